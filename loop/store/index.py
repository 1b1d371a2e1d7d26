"""The index of sessions: what every folder says, in one row each, without reading the folders again."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loop.base.remarks import remark
from loop.model.tally import Listed, Saved, Tally
from loop.store.database import COUNTED, asked

if TYPE_CHECKING:
    from loop.model.index import Index, SessionRow

T = TypeVar("T")
OLDEST_FIRST = "ORDER BY started, folder"
SAID = 5
"""Damaged folders that are named where rows are read; `loop sessions list` has all."""


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> "list[SessionRow]":
    """The sessions of a folder, oldest first: all, or the `last` so many, of one target.

    What is damaged is left out, and said (`read` returns it, too); a copied session counts once.
    """
    return _told(root, lambda database: _rows(database, last, target))


def _told(root: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """The answer to a question on all sessions, once those were named of which it knows nothing, or a part."""
    found, problems = asked(root, lambda database: (question(database), _problems(database)))
    for problem in problems[:SAID]:
        remark(f"left out: {problem}")
    return found


def _problems(database: sqlite3.Connection) -> list[str]:
    return [
        text for (text,) in database.execute("SELECT problem FROM sessions WHERE problem != '' ORDER BY folder")
    ]


def _rows(database: sqlite3.Connection, last: int | None, target: str | None) -> "list[SessionRow]":
    from pydantic import TypeAdapter

    from loop.model.index import SessionRow

    where = f"{COUNTED} AND target = ?" if target is not None else COUNTED
    limit = f"LIMIT {int(last)}" if last is not None else ""
    order = "ORDER BY started DESC, folder DESC"
    query = f"SELECT row FROM sessions JOIN bodies USING (folder) WHERE {where} {order} {limit}"
    texts = [text for (text,) in database.execute(query, (target,) if target is not None else ())]
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(reversed(texts))}]")


def read(root: Path) -> "Index":
    """All rows, and the folders that are damaged, of another format or copies."""
    from loop.model.index import Damage, Index

    found, listed = asked(root, lambda database: (_rows(database, None, None), _listed(database)))
    damaged = (Damage(id=one.folder, reason=reason(one), counted=not one.copy_of and one.readable)
               for one in listed if one.problem or one.copy_of)  # fmt: skip
    return Index(rows=tuple(found), damaged=tuple(damaged))


def reason(listed: Listed) -> str:
    """What is wrong with a folder, in words."""
    return f"a copy of session {listed.copy_of}" if listed.copy_of else listed.problem


def listing(root: Path) -> list[Listed]:
    """A line for every session folder, oldest first, damaged ones and copies included."""
    return asked(root, _listed)


def _listed(database: sqlite3.Connection) -> list[Listed]:
    columns = "folder, target, plan, device, status, grade, seconds, usd, fastest, recorded, problem, copy_of"
    query = f"SELECT {columns}, id IS NOT NULL FROM sessions ORDER BY started, folder"
    return [Listed(*fields) for fields in database.execute(query)]


def damaged(root: Path) -> list[Listed]:
    """Only the folders with something wrong."""
    return [one for one in listing(root) if one.problem or one.copy_of]


def learned(root: Path) -> tuple[list[Tally], list[Saved]]:
    """Runs of each pattern in each environment, summed up; and its savings by class of evidence."""
    return _told(root, lambda database: (_tallies(database), _saved(database)))


def tallies(root: Path) -> list[Tally]:
    """The first part of `learned`."""
    return _told(root, _tallies)


def saved(root: Path) -> list[Saved]:
    """The second part of `learned`."""
    return _told(root, _saved)


def _tallies(database: sqlite3.Connection) -> list[Tally]:
    rows = database.execute("SELECT * FROM tallies")
    return [Tally(one[0], tuple(json.loads(one[1])), *one[2:]) for one in rows]


def _saved(database: sqlite3.Connection) -> list[Saved]:
    return [Saved(*one) for one in database.execute("SELECT * FROM saved")]


def reindex(root: Path) -> int:
    """Make the index anew from the folders; the sessions that count."""
    query = f"SELECT count(*) FROM sessions WHERE {COUNTED}"
    return asked(root, lambda database: int(database.execute(query).fetchone()[0]), anew=True)
