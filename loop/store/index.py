"""The index of sessions: what every folder says, in one row each, without reading the folders again."""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loop.base.remarks import remark
from loop.store.database import COUNTED, asked

if TYPE_CHECKING:
    from loop.model.index import SessionRow

LOOKED_BACK = 200
"""Sessions, the newest, that predictions, proposals and decisions rest on."""
SAID = 5
"""Damaged folders that are named where rows are read; `loop sessions list` has all."""


class SessionListing(NamedTuple):
    """What a list says of one session folder; None: not known, or not yet."""

    folder: str
    """Name of the folder."""
    target: str | None
    """Name of the target."""
    plan: str | None
    """Name of the plan."""
    device: str | None
    """Where it ran."""
    status: str | None
    """How it ended; None while it is open."""
    grade: str | None
    """Its letter."""
    seconds: float | None
    """Wall time."""
    usd: float | None
    """What it cost."""
    fastest: str | None
    """The variant with the best mean ratio."""
    recorded: bool
    """Whether it was recorded elsewhere."""
    problem: str
    """What is wrong with its files; empty where nothing is."""
    copy_of: str | None
    """The session that it is a copy of, and is counted as."""
    readable: bool
    """Whether anything could be read of it."""

    @property
    def reason(self) -> str:
        """What is wrong with the folder, in words; empty where nothing is."""
        return f"a copy of session {self.copy_of}" if self.copy_of else self.problem

    @property
    def counted(self) -> bool:
        """Whether what could be read of it counts."""
        return self.readable and not self.copy_of


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> "list[SessionRow]":
    """The sessions of a folder, oldest first: all, or the `last` so many, of one target.

    What is damaged is left out, and said (`read` returns it, too); a copied session counts once.
    """
    found, listed = asked(root, lambda database: (_rows(database, last, target), _listed(database, damaged=True)))
    for one in [folder for folder in listed if folder.problem][:SAID]:
        remark(f"left out: {one.problem}")
    return found


def _rows(database: sqlite3.Connection, last: int | None, target: str | None) -> "list[SessionRow]":
    from pydantic import TypeAdapter

    from loop.model.index import SessionRow

    where = f"{COUNTED} AND target = ?" if target is not None else COUNTED
    limit = f"LIMIT {int(last)}" if last is not None else ""
    query = f"SELECT row FROM sessions WHERE {where} ORDER BY started DESC, folder DESC {limit}"
    texts = [text for (text,) in database.execute(query, (target,) if target is not None else ())]
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(reversed(texts))}]")


def read(root: Path) -> "tuple[list[SessionRow], list[SessionListing]]":
    """All rows, and the folders that are damaged, of another format or copies."""
    return asked(root, lambda database: (_rows(database, None, None), _listed(database, damaged=True)))


def listing(root: Path) -> list[SessionListing]:
    """A line for every session folder, oldest first, damaged ones and copies included."""
    return asked(root, _listed)


def _listed(database: sqlite3.Connection, *, damaged: bool = False) -> list[SessionListing]:
    columns = "folder, target, plan, device, status, grade, seconds, usd, fastest, recorded, problem, copy_of"
    where = "WHERE problem != '' OR copy_of IS NOT NULL" if damaged else ""
    query = f"SELECT {columns}, id IS NOT NULL FROM sessions {where} ORDER BY started, folder"
    return [SessionListing(*fields) for fields in database.execute(query)]


def damaged(root: Path) -> list[SessionListing]:
    """Only the folders with something wrong."""
    return [folder for folder in listing(root) if folder.reason]
