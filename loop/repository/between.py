"""What happened to the sources between two commits: how they are related, which commits, which files."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from loop.base.errors import LoopError
from loop.model.base import Model
from loop.repository import history
from loop.repository.git import git
from loop.repository.history import Commit


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


SHOWN = 10
"""Commits and files that are listed; the others are counted."""


def between(folder: Path, older: str, newer: str) -> tuple[str, list[Commit], int]:
    """How the second commit stands to the first, the commits only it has, and how many only the first has.

    Raises LoopError where one is not in the repository around `folder`.
    """
    first, last = history.resolve(folder, older), history.resolve(folder, newer)
    if first == last:
        return "same", [], 0
    gained = history.between(folder, [first], last)
    missing = len(history.between(folder, [last], first))
    relation = "apart" if gained and missing else "after" if gained else "before"
    return relation, gained, missing


def files(folder: Path, older: str, newer: str) -> dict[str, tuple[int, int]]:
    """Files that differ between two commits, to lines added and removed (0 for what is not text)."""
    words = ["diff", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", "-z", older, newer, "--"]
    rows = [line.split("\t", 2) for line in git(folder, *words).split("\0") if line]
    return {name: (_lines(added), _lines(removed)) for added, removed, name in rows}


def _lines(count: str) -> int:
    return int(count) if count.isdigit() else 0


def revisions(folder: Path, names: tuple[str, str], commits: tuple[str | None, str | None]) -> Revisions:
    """The same of two sessions, by their ids and commits; unknown with the reason where git cannot tell."""
    older, newer = names
    first, last = commits
    if first is None or last is None:
        without = older if first is None else newer
        return Revisions(
            older=older, newer=newer, relation="unknown", reason=f"no commit of {without} is on record"
        )
    try:
        relation, gained, missing = between(folder, first, last)
        changed = files(folder, first, last) if relation != "same" else {}
    except LoopError as error:
        return Revisions(older=older, newer=newer, relation="unknown", reason=error.message)
    listed = tuple(f"{one.short} {one.subject}" for one in reversed(gained))[:SHOWN]
    return Revisions.model_validate(
        {
            "older": older,
            "newer": newer,
            "relation": relation,
            "commits": listed,
            "count": len(gained),
            "missing": missing,
            "files": changed,
        }
    )
