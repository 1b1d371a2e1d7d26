"""What the catalogue shows: plain values that a command has gathered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from loop.model.index import SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.target import Target
from loop.profile.resources_section import KernelRow
from loop.store.index import Listed


@dataclass(frozen=True)
class Known:
    """A pattern and what the sessions say of it."""

    pattern: Pattern
    standing: str
    """Proposed, applied, validated, doubtful or retired."""
    said: tuple[str, ...]
    """Its statistics in sentences."""
    share: str
    """How often it answers, `80-95 %`; a dash where it was never run."""
    runs: int
    """Runs that say something."""


@dataclass(frozen=True)
class Looked:
    """What the compiler said of a variant's kernels, in the last session that asked."""

    session: str
    gpu: str
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True)
class Contents:
    """Everything that the site shows."""

    target: Target
    patterns: Mapping[str, Known]
    plans: Mapping[str, Plan]
    rows: tuple[SessionRow, ...]
    """Sessions, oldest first."""
    damaged: tuple[Listed, ...] = ()
    resources: Mapping[str, tuple[Looked, ...]] = field(default_factory=dict)
    """By variant."""
    reports: Mapping[str, Path] = field(default_factory=dict)
    """By session: its report in Markdown."""
    version: str = ""
    """Of loop."""
    made: str = ""
    """When, in words."""

    @cached_property
    def by_id(self) -> dict[str, SessionRow]:
        """Sessions by their id."""
        return {row.id: row for row in self.rows}

    @cached_property
    def used(self) -> dict[str, list[SessionRow]]:
        """Sessions in which a pattern ran, newest first."""
        found: dict[str, list[SessionRow]] = {}
        for row in reversed(self.rows):
            for name in dict.fromkeys(run.pattern for run in row.runs):
                found.setdefault(name, []).append(row)
        return found

    @cached_property
    def walked(self) -> dict[str, list[SessionRow]]:
        """Sessions of a plan, newest first."""
        found: dict[str, list[SessionRow]] = {}
        for row in reversed(self.rows):
            found.setdefault(row.plan, []).append(row)
        return found
