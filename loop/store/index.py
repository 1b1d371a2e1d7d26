"""The index of sessions: what every folder says, in one row each, without reading the folders again.

It is an SQLite file in the cache folder, derived from the session folders and brought up to date whenever it is
opened. A folder is read again when the size or time of its files has changed. A damaged index is made anew. Where
no file can be kept, the index is kept in memory. While no session has changed, no model is imported.
"""

import contextlib
import datetime
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from loop import __version__
from loop.base.places import cache_folder
from loop.base.remarks import remark

if TYPE_CHECKING:
    from loop.model.index import SessionRow

LOOKED_BACK = 200
"""Predictions, proposals and decisions rest on so many sessions, the newest."""
NAMED = 5
"""So many damaged folders are named where rows are read; `loop sessions list` has all."""
FORMAT = f"15 {__version__}"
"""Of the table and of what a row says; an index of another format is made anew."""
BATCH = 500
"""Rows a transaction: a kill loses no more than these."""
BUSY_S = 20.0
"""How long to wait for another process that writes."""
TABLES = """
CREATE TABLE about (format TEXT, root TEXT);
CREATE TABLE sessions (
  folder TEXT PRIMARY KEY, stamp TEXT, id TEXT, copy_of TEXT, problem TEXT, started TEXT, target TEXT, plan TEXT,
  device TEXT, status TEXT, grade TEXT, seconds REAL, usd REAL, fastest TEXT, recorded INTEGER, row TEXT
);
"""
"""What lists and choices are made of, and the whole row as JSON behind it."""
COUNTED = "id IS NOT NULL AND copy_of IS NULL"
"""Sessions that say something, each once."""
T = TypeVar("T")


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

    What is damaged is left out, and named (`read` returns it, too); a copied session counts once.
    """
    sessions, listings = _ask(
        root, lambda database: (_rows(database, last, target), _listed(database, wrong=True))
    )
    for listing in [listing for listing in listings if listing.problem][:NAMED]:
        remark(f"left out: {listing.problem}")
    return sessions


def read(root: Path) -> "tuple[list[SessionRow], list[SessionListing]]":
    """All rows, and the folders that are damaged, of another format or copies."""
    return _ask(root, lambda database: (_rows(database, None, None), _listed(database, wrong=True)))


def listing(root: Path) -> list[SessionListing]:
    """A line for every session folder, oldest first, damaged ones and copies included."""
    return _ask(root, _listed)


def _rows(database: sqlite3.Connection, last: int | None, target: str | None) -> "list[SessionRow]":
    from pydantic import TypeAdapter

    from loop.model.index import SessionRow

    where = f"{COUNTED} AND target = ?" if target is not None else COUNTED
    limit = f"LIMIT {int(last)}" if last is not None else ""
    query = f"SELECT row FROM sessions WHERE {where} ORDER BY started DESC, folder DESC {limit}"
    texts = [text for (text,) in database.execute(query, (target,) if target is not None else ())]
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(reversed(texts))}]")


def _listed(database: sqlite3.Connection, *, wrong: bool = False) -> list[SessionListing]:
    columns = "folder, target, plan, device, status, grade, seconds, usd, fastest, recorded, problem, copy_of"
    where = "WHERE problem != '' OR copy_of IS NOT NULL" if wrong else ""
    query = f"SELECT {columns}, id IS NOT NULL FROM sessions {where} ORDER BY started, folder"
    return [SessionListing(*fields) for fields in database.execute(query)]


def _ask(root: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """The answer to a question to the index of `root`, brought up to date."""
    path = file_of(root)
    for _ in range(2):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = OFF")  # Derived: after a power cut it is made anew.
                _bring_up_to_date(database, root)
                return question(database)
        except (sqlite3.Error, OSError, ValueError) as error:
            refused = isinstance(error, sqlite3.OperationalError) and "decode" not in str(error)
            if not refused and not isinstance(error, OSError):  # It is neither busy nor does the disk refuse.
                remark(f"{path}: damaged; made anew from the sessions")
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        _bring_up_to_date(database, root)
        return question(database)


def file_of(root: Path) -> Path:
    """Where the index of a folder of sessions is kept: with what may be deleted."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.sqlite"


def _bring_up_to_date(database: sqlite3.Connection, root: Path) -> None:
    """Make tables that are missing or of another format; read what has changed, and forget what is gone."""
    about = (FORMAT, str(root.absolute()))
    if _about(database) != [about]:
        with _transaction(database):
            if _about(database) != [about]:  # No other process has just made them.
                names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                for (name,) in names:
                    database.execute(f'DROP TABLE "{name}"')
                for statement in filter(str.strip, TABLES.split(";")):
                    database.execute(statement)
                database.execute("INSERT INTO about VALUES (?, ?)", about)
    stamps = _stamps(root)
    known = dict(database.execute("SELECT folder, stamp FROM sessions"))
    changed = sorted(name for name, stamp in stamps.items() if known.get(name) != stamp)
    gone = [name for name in known if name not in stamps]
    if not changed and not gone:
        return
    from loop.store.rows import row_of  # Here: while no session has changed, no model is needed.

    for start in range(0, len(changed), BATCH):
        batch = [(name, *row_of(root / name)) for name in changed[start : start + BATCH]]
        with _transaction(database):
            for name, row, problem in batch:
                _put(database, name, stamps[name], row, problem)
    with _transaction(database):
        database.executemany("DELETE FROM sessions WHERE folder = ?", [(name,) for name in gone])
        _mark_copies(database)


def _about(database: sqlite3.Connection) -> list[tuple[str, str]]:
    known = database.execute("SELECT name FROM sqlite_master WHERE name = 'about'").fetchall()
    return database.execute("SELECT format, root FROM about").fetchall() if known else []


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing, and nobody else meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _stamps(root: Path) -> dict[str, str]:
    """Each session folder with size and time of the files that say what it is; the time in nanoseconds."""
    stamps = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
        for entry in entries:
            parts = []
            for name in ("session.json", "recorded.json", "record.json", "journal.jsonl"):
                try:
                    facts = os.stat(f"{entry.path}/{name}")
                    parts.append(f"{facts.st_size} {facts.st_mtime_ns}")
                except OSError:
                    parts.append("-")
            if entry.name[0] != "." and parts[:2] != ["-", "-"]:
                stamps[entry.name] = " ".join(parts)
    return stamps


def _put(database: sqlite3.Connection, folder: str, stamp: str, row: "SessionRow | None", problem: str) -> None:
    fields: dict[str, object] = {"folder": folder, "stamp": stamp, "problem": problem}
    if row is not None:
        names = ("id", "target", "plan", "device", "status", "grade", "seconds", "usd", "fastest", "recorded")
        fields |= {name: getattr(row, name) for name in names}
        # None stays unknown: what was recorded elsewhere comes before all that was run here.
        at = row.started and row.started.astimezone(datetime.UTC)
        fields["started"] = at.isoformat(timespec="microseconds") if at else None
        fields["row"] = row.model_dump_json()
        if row.recorded and not row.charges:
            fields["usd"] = None
    marks = ", ".join("?" * len(fields))
    query = f"INSERT OR REPLACE INTO sessions ({', '.join(fields)}) VALUES ({marks})"
    database.execute(query, tuple(fields.values()))


def _mark_copies(database: sqlite3.Connection) -> None:
    """Of several folders with one session, that of its name counts, else the first; the others are copies."""
    database.execute("UPDATE sessions SET copy_of = NULL WHERE copy_of IS NOT NULL")
    twice = "SELECT id FROM sessions WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"
    for (name,) in database.execute(twice).fetchall():
        folders = [folder for (folder,) in database.execute("SELECT folder FROM sessions WHERE id = ?", (name,))]
        original = name if name in folders else min(folders)
        database.execute(
            "UPDATE sessions SET copy_of = ? WHERE id = ? AND folder != ?", (original, name, original)
        )
