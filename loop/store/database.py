"""The file of the index: SQLite, derived from the session folders, brought up to date whenever it is opened.

Session folders are the truth. A row is read again when the size or time of its session's files has changed; a file
that is torn, of another format or not writable is made anew, in memory where it has to be. Nothing here imports
the models: while no session has changed, none is needed.
"""

import contextlib
import datetime
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loop import __version__
from loop.base.errors import LoopError
from loop.base.locks import waiting
from loop.base.places import cache_folder
from loop.base.remarks import remark

if TYPE_CHECKING:
    from loop.model.index import SessionRow

T = TypeVar("T")
FORMAT = f"14 {__version__}"
"""Of the tables and of what a row says; another one is made anew."""
BATCH = 500
"""Rows a transaction: a kill loses no more than these."""
SUM, CHANGING = ".sum", "changing"
"""Ending of the file with its checksum, and what stands there while a process writes: a kill may leave it so."""
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


def asked(root: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """The answer to a question to the index of `root`, brought up to date.

    A file that is torn is made anew and asked again; where no file can be used, one in memory is asked.
    """
    path = file_of(root)
    for attempt in (_on_disk, _on_disk):
        try:
            with contextlib.closing(attempt(path, root)) as database:
                return question(database)
        except (sqlite3.Error, OSError, ValueError) as error:
            refused = isinstance(error, sqlite3.OperationalError) and "decode" not in str(error)
            if not refused and not isinstance(error, OSError):  # It is neither busy nor does the disk refuse.
                remark(f"{path}: damaged; made anew from the sessions")
                _remove(path)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        _make(database, root)
        _refresh(database, root, lambda: None)
        return question(database)


def file_of(root: Path) -> Path:
    """Where the index of a folder of sessions is kept: with what may be deleted."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.sqlite"


def _on_disk(path: Path, root: Path) -> sqlite3.Connection:
    """The file, seen to be whole and brought up to date, by one process at a time: its checksum is beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with waiting(path.with_suffix(".lock"), BUSY_S):
            return _up_to_date(path, root)
    except LoopError as error:  # Nobody may write here, or another process takes long.
        raise OSError(error.message) from error


def _up_to_date(path: Path, root: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    noted = path.with_suffix(SUM)
    try:
        database.execute("PRAGMA synchronous = OFF")  # Derived: after a power cut it is made anew.
        current = _format(database) == [(FORMAT, str(root.absolute()))]
        if current and not _is_noted(path, noted):
            raise ValueError("its checksum does not match")
        if not current:
            noted.write_text(CHANGING)
            _make(database, root)
        if _refresh(database, root, lambda: noted.write_text(CHANGING)) or not current:
            noted.write_text(_checksum(path))
    except (sqlite3.Error, ValueError, OSError):
        database.close()
        raise
    return database


def _is_noted(path: Path, noted: Path) -> bool:
    """Whether the file is what it was when its checksum was noted, or a kill left no checksum of it."""
    try:
        checksum = noted.read_text()
    except FileNotFoundError:
        return False
    return checksum == CHANGING or checksum == _checksum(path)


def _checksum(path: Path) -> str:
    """CRC-32 finds every flipped bit, and takes a tenth of the time of a hash; with it the size."""
    with path.open("rb") as file:
        crc = size = 0
        while part := file.read(1 << 20):
            crc, size = zlib.crc32(part, crc), size + len(part)
    return f"{size} {crc:08x}"


def _format(database: sqlite3.Connection) -> list[tuple[str, str]]:
    known = database.execute("SELECT name FROM sqlite_master WHERE name = 'about'").fetchall()
    return database.execute("SELECT format, root FROM about").fetchall() if known else []


def _make(database: sqlite3.Connection, root: Path) -> None:
    """Empty tables, in one transaction, unless another process has just made them."""
    with _writing(database):
        if _format(database) == [(FORMAT, str(root.absolute()))]:
            return
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            database.execute(f'DROP TABLE "{name}"')
        for statement in filter(str.strip, TABLES.split(";")):
            database.execute(statement)
        database.execute("INSERT INTO about VALUES (?, ?)", (FORMAT, str(root.absolute())))


@contextlib.contextmanager
def _writing(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction, alone: all of it or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for name in (path, path.with_name(f"{path.name}-journal"), path.with_suffix(SUM)):
            name.unlink(missing_ok=True)


def stamps(root: Path) -> dict[str, str]:
    """Each session folder with size and time of the files that say what it is; the time in nanoseconds."""
    try:
        with os.scandir(root) as entries:
            found = [(entry.name, _stamp(entry.path)) for entry in entries if entry.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: stamp for name, stamp in found if stamp}


def _stamp(folder: str) -> str:
    """Empty where the folder is no session."""
    try:
        stats = [os.stat(f"{folder}/{name}") for name in ("session.json", "record.json", "journal.jsonl")]
    except OSError:  # It is open, recorded elsewhere, or damaged.
        names = ("session.json", "recorded.json", "record.json", "journal.jsonl")
        parts = [_size_and_time(f"{folder}/{name}") for name in names]
        return " ".join(parts) if parts[0] != "-" or parts[1] != "-" else ""
    return " ".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats)


def _size_and_time(path: str) -> str:
    """A dash where there is no such file."""
    try:
        stat = os.stat(path)
    except OSError:
        return "-"
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _refresh(database: sqlite3.Connection, root: Path, first: Callable[[], object]) -> bool:
    """Read again what has changed, forget what is gone; whether anything had. `first`: done before writing."""
    there = stamps(root)
    known = dict(database.execute("SELECT folder, stamp FROM sessions"))
    changed = [name for name, stamp in there.items() if known.get(name) != stamp]
    gone = [name for name in known if name not in there]
    if not changed and not gone:
        return False
    from loop.store.rows import row_of  # Here: while no session has changed, no model is needed.

    first()
    for start in range(0, len(changed), BATCH):
        names = sorted(changed)[start : start + BATCH]
        rows = [(name, *row_of(root / name)) for name in names]  # Before the transaction: others may write.
        with _writing(database):
            for name, row, problem in rows:
                _put(database, name, there[name], row, problem)
    with _writing(database):
        database.executemany("DELETE FROM sessions WHERE folder = ?", [(name,) for name in gone])
        _mark_copies(database)
    return True


def _put(database: sqlite3.Connection, folder: str, stamp: str, row: "SessionRow | None", problem: str) -> None:
    fields = {"folder": folder, "stamp": stamp, "problem": problem, **(_columns(row) if row else {})}
    marks = ", ".join("?" * len(fields))
    query = f"INSERT OR REPLACE INTO sessions ({', '.join(fields)}) VALUES ({marks})"
    database.execute(query, tuple(fields.values()))


def _columns(row: "SessionRow") -> dict[str, object]:
    # None stays unknown: what was recorded elsewhere comes before all that was run here.
    at = row.started and row.started.astimezone(datetime.UTC)
    started = at.isoformat(timespec="microseconds") if at else None
    return {
        "id": row.id,
        "started": started,
        "target": row.target,
        "plan": row.plan,
        "device": row.device,
        "status": row.status,
        "grade": row.grade,
        "seconds": row.seconds,
        "usd": None if row.recorded and not row.charges else row.usd,
        "fastest": row.fastest,
        "recorded": row.recorded,
        "row": row.model_dump_json(),
    }


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
