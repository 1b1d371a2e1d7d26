"""Session folders: made, found, read. `sessions/<id>/` holds head, journal, samples, record and report."""

import contextlib
import datetime
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.model.history import RecordedSession
from loop.model.record import Finished, Line, Opened, SessionHead, SessionRecord
from loop.store import journal

HEAD, RECORD, REPORT, LOCK, SAMPLES = "session.json", "record.json", "report.md", "lock", "samples"
CHANGES, RECORDED = "changes", "recorded.json"
RESERVE_BYTES = 1 << 20
NOT_SESSIONS = ("plans", "history")
RECENT = 50
"""Sessions that predictions look back on."""

T = TypeVar("T", SessionHead, SessionRecord, RecordedSession)


@dataclass(frozen=True)
class SessionFolder:
    """One session on disk."""

    path: Path

    @property
    def id(self) -> str:
        """Name of the session."""
        return self.path.name

    @property
    def report(self) -> Path:
        """Where its report is."""
        return self.path / REPORT

    def lock(self) -> AbstractContextManager[object]:
        """Hold it for writing; raises Held when another process does."""
        return locked(self.path / LOCK)

    @contextlib.contextmanager
    def begun(self, head: SessionHead) -> Iterator[None]:
        """Hold it while the session is under way. Where its head cannot be written nothing of it stays."""
        try:
            with self.lock():
                self.write_head(head)
                yield
        except LoopError:
            if not (self.path / HEAD).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def head(self) -> SessionHead:
        """What was known when it began."""
        return _load(SessionHead, self.path / HEAD)

    def record(self) -> SessionRecord | None:
        """What it found; None while it is not finished."""
        path = self.path / RECORD
        return _load(SessionRecord, path) if path.exists() else None

    def lines(self) -> list[Line]:
        """Its journal. Raises LoopError where lines are damaged, or fewer than when its record was written."""
        lines, record = journal.read_journal(self.path / journal.NAME), None
        with contextlib.suppress(LoopError):  # A damaged record is named by who asks for it.
            record = self.record()
        if lost := lines_lost(self.path, record, lines):
            raise WorkFailed(lost, hint=f"move {self.path} aside")
        return lines

    def finished(self) -> tuple[Finished, ...]:
        """Its ended steps."""
        return journal.finished_steps(self.lines())

    @property
    def reserve(self) -> Path:
        """The file that is given up when the disk is full, so that the last record can be written."""
        return self.path / ".reserve"

    def keep_reserve(self) -> None:
        """Take room for the last record. Raises LoopError when there is none."""
        try:
            self.reserve.write_bytes(os.urandom(RESERVE_BYTES))  # No file system makes that smaller.
        except OSError as error:
            raise journal.unwritable(self.reserve, error) from error

    def write_head(self, head: SessionHead) -> None:
        """Store what is known at the start."""
        sums.write_sealed(self.path / HEAD, head)

    def write_record(self, record: SessionRecord) -> None:
        """Store what was found."""
        sums.write_sealed(self.path / RECORD, record)

    def write_report(self, text: str, figures: Mapping[str, str]) -> None:
        """Store the figures, by their paths from the report, then the report."""
        write_figures(self.path, figures)
        write_atomic(self.report, text)

    def write_samples(self, name: str, rows: Sequence[Any]) -> str:
        """Store raw samples; returns the file's path inside the session."""
        folder = self.path / SAMPLES
        folder.mkdir(exist_ok=True)
        sums.write_sealed(folder / f"{name}.json", {"format": 1, "segments": list(rows)})
        return f"{SAMPLES}/{name}.json"


def lines_lost(folder: Path, record: SessionRecord | None, lines: Sequence[Line]) -> str:
    """Which lines its journal had when its record was written, and has no more; empty as a rule."""
    if record is None or len(lines) >= record.lines:
        return ""
    first, path = len(lines) + 1, folder / journal.NAME
    return f"{path}:{first}: damaged: cut off, lines {first} to {record.lines} are missing"


def left_out(error: LoopError) -> None:
    """Say that a damaged session, or a part of one, is left out of what is worked out from several."""
    remark_once(f"left out: {error.message}")


def write_figures(beside: Path, figures: Mapping[str, str]) -> None:
    """Store the figures of a report in its folder. Raises LoopError when the disk refuses."""
    for path, text in ((beside / name, text) for name, text in figures.items()):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise journal.unwritable(path.parent, error) from error
        write_atomic(path, text)


def create_session(root: Path, plan: str, now: datetime.datetime) -> SessionFolder:
    """A new, empty session folder, named by time and plan. Raises LoopError when it cannot be made."""
    stem = f"{now:%Y-%m-%d-%H%M%S}-{plan}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
            with contextlib.suppress(FileExistsError):
                (root / name).mkdir()
                return SessionFolder(root / name)
    except OSError as error:
        raise journal.unwritable(root, error) from error
    raise WorkFailed(f"{root}: a hundred sessions began in this second", hint="try again")


def every_session(root: Path) -> list[SessionFolder]:
    """All sessions in a folder, in the order in which they began."""
    if not root.is_dir():
        return []
    folders = (SessionFolder(path) for path in root.iterdir() if path.name not in NOT_SESSIONS)

    def age(folder: SessionFolder) -> list[str | int]:
        # Names begin with the time. Of several sessions of one second, the tenth comes after the second.
        return [int(part) if part.isdigit() else part for part in re.split("([0-9]+)", folder.id)]

    return sorted((folder for folder in folders if (folder.path / HEAD).is_file()), key=age)


def sessions_before(root: Path, session: str) -> list[SessionFolder]:
    """The last sessions before one, oldest first: what it saw when it began, however often it is resumed."""
    folders = every_session(root)
    ids = [folder.id for folder in folders]
    return folders[: ids.index(session) if session in ids else None][-RECENT:]


def find_session(root: Path, name: str) -> SessionFolder:
    """A session by id, by the beginning of one, `last`, or `last~1` for the one before it.

    Raises LoopError when none or several match.
    """
    folders = every_session(root)
    back = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if back and int(back[1] or 0) < len(folders):
        return folders[-1 - int(back[1] or 0)]
    matches = [f for f in folders if f.id == name] or [f for f in folders if f.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(folder.id for folder in matches or folders[-5:])
    hint = f"one of {known}" if known else "`loop run session` makes one"
    what = f"{name}: {len(matches)} sessions begin so" if matches else f"{root}: no session {name}"
    raise UsageError(what, hint=hint)


def _load(model: type[T], path: Path) -> T:
    try:
        return sums.read_sealed(model, path, f"move {path.parent} aside")
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def read_recorded(folder: Path) -> RecordedSession:
    """A session that was recorded elsewhere. Raises LoopError when its file is damaged or of another format."""
    return _load(RecordedSession, folder / RECORDED)


def wall_seconds(lines: Sequence[Line]) -> float:
    """Wall time of all walks of a session."""
    walked = [b.at - a.at for a, b in pairwise(lines) if not isinstance(b.event, Opened)]
    return sum(max(0.0, passed.total_seconds()) for passed in walked)
