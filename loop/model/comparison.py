"""What happened to the sources between two sessions."""

from typing import Literal

from pydantic import Field

from loop.model.base import Model


class Revisions(Model):
    """What happened to the sources between two sessions."""

    older: str
    """Id of the first session."""
    newer: str
    """Id of the second."""
    relation: Literal["same", "after", "before", "apart", "unknown"]
    """Where the second one's commit stands: the same, after the first, before it, on another line."""
    reason: str = ""
    """Why it is unknown, or what else a reader has to know."""
    commits: tuple[str, ...] = ()
    """Commits that only the second has, newest first, the first so many."""
    count: int = 0
    """How many there are."""
    missing: int = 0
    """Commits that only the first has."""
    files: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Files that differ: lines added and removed."""
