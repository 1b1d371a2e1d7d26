"""What the catalogue shows, as plain values that a command has gathered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from loop.model.index import SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.target import Target
from loop.store.index import SessionListing


@dataclass(frozen=True)
class Known:
    """A pattern and what the sessions say of it."""

    pattern: Pattern
    standing: str = "proposed"
    """Proposed, applied, validated, doubtful or retired."""
    statistics: tuple[str, ...] = ()
    """Its statistics in sentences."""
    share: str = "-"
    """How often it answers, `80-95 %`; a dash where it was never run."""
    runs: int = 0
    """Runs that say something."""


@dataclass(frozen=True)
class Contents:
    """Everything that the site shows."""

    target: Target
    patterns: Mapping[str, Known]
    plans: Mapping[str, Plan]
    rows: tuple[SessionRow, ...]
    """Sessions, oldest first."""
    damaged: tuple[SessionListing, ...] = ()
    reports: Mapping[str, Path] = field(default_factory=dict)
    """By session: its report in Markdown."""
    version: str = ""
    """Of loop."""
    date: str = ""
    """When, in words."""

    @cached_property
    def by_id(self) -> dict[str, SessionRow]:
        """Sessions by their id."""
        return {row.id: row for row in self.rows}

    def of_plan(self, name: str) -> list[SessionRow]:
        """Sessions of a plan, newest first."""
        return [row for row in reversed(self.rows) if row.plan == name]


def status_of(row: SessionRow) -> str:
    """How a session ended, in a word."""
    return "recorded" if row.recorded else row.status or "open"
