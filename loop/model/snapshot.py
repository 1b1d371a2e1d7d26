"""What a target's files were when a step failed, or when one that had failed passed again."""

from typing import Literal

from pydantic import Field

from loop.model.base import Model


class SourceFile(Model):
    """One file of a target."""

    digest: str
    """Hash of its content."""
    text: str | None = None
    """Its content; None where the commit has it, or where it is no text or too long to be kept."""


class Snapshot(Model):
    """The files that the steps of a session stood on."""

    format: Literal[1] = 1
    """Format number."""
    ground: str
    """Hash of all of them."""
    commit: str | None
    """The commit that has those without a text; None outside git."""
    files: dict[str, SourceFile] = Field(default_factory=dict)
    """Path from the target's folder to the file."""


class Change(Model):
    """What differs between two snapshots."""

    files: tuple[str, ...] = ()
    """Files that differ."""
    patch: str = ""
    """The difference, as far as the contents are known."""
    unknown: tuple[str, ...] = ()
    """Files that differ and whose content is not known any more."""
