"""Session folders: made, found, read. `sessions/<id>/` holds head, journal, samples, record and report."""

import contextlib
import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from loop.documents import to_json, write_atomic
from loop.errors import LoopError
from loop.locks import locked
from loop.model.record import Finished, Line, Opened, SessionHead, SessionRecord
from loop.store import journal, sums

HEAD, RECORD, REPORT, LOCK, SAMPLES = "session.json", "record.json", "report.md", "lock", "samples"
FORMAT = 1
"""Of heads and records that this version reads."""
NOT_SESSIONS = ("plans", "history")
RECENT = 50
"""Sessions that predictions look back on."""

T = TypeVar("T", SessionHead, SessionRecord)


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

    def lock(self) -> AbstractContextManager[None]:
        """Hold it for writing; raises Held when another process does."""
        return locked(self.path / LOCK)

    def head(self) -> SessionHead:
        """What was known when it began."""
        return _load(SessionHead, self.path / HEAD)

    def record(self) -> SessionRecord | None:
        """What it found; None while it is not finished."""
        path = self.path / RECORD
        return _load(SessionRecord, path) if path.exists() else None

    def lines(self) -> list[Line]:
        """Its journal."""
        return journal.read(self.path / journal.NAME)

    def finished(self) -> tuple[Finished, ...]:
        """Its ended steps."""
        return journal.finished(self.lines())

    def write_head(self, head: SessionHead) -> None:
        """Store what is known at the start."""
        write_atomic(self.path / HEAD, sums.sealed(to_json(head)))

    def write_record(self, record: SessionRecord) -> None:
        """Store what was found."""
        write_atomic(self.path / RECORD, sums.sealed(to_json(record)))

    def write_report(self, text: str, figures: Mapping[str, str] = MappingProxyType({})) -> None:
        """Store the report; the figures that it shows first, by their paths from it."""
        write_figures(self.path, figures)
        write_atomic(self.report, text)

    def write_samples(self, name: str, rows: Sequence[Any]) -> str:
        """Store raw samples; returns the file's path inside the session."""
        folder = self.path / SAMPLES
        folder.mkdir(exist_ok=True)
        write_atomic(folder / f"{name}.json", sums.sealed(to_json({"format": 1, "segments": list(rows)})))
        return f"{SAMPLES}/{name}.json"


def write_figures(beside: Path, figures: Mapping[str, str]) -> None:
    """Store the figures of a report in its folder. Raises LoopError when the disk refuses."""
    for name, text in figures.items():
        path = beside / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise journal.unwritable(path.parent, error) from error
        write_atomic(path, text)


def create(root: Path, plan: str, now: datetime.datetime) -> SessionFolder:
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
    raise LoopError(f"{root}: a hundred sessions began in this second", hint="try again")


def every(root: Path) -> list[SessionFolder]:
    """All sessions in a folder, oldest first."""
    if not root.is_dir():
        return []
    folders = (path for path in sorted(root.iterdir(), key=_age) if path.name not in NOT_SESSIONS)
    return [SessionFolder(path) for path in folders if (path / HEAD).is_file()]


def _age(path: Path) -> list[str | int]:
    """Order of sessions by name, the tenth of one second after the second."""
    return [int(part) if part.isdigit() else part for part in re.split("([0-9]+)", path.name)]


def find(root: Path, name: str) -> SessionFolder:
    """A session by id, by the beginning of one, `last`, or `last~1` for the one before it.

    Raises LoopError when none or several match.
    """
    folders = every(root)
    back = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if back and int(back[1] or 0) < len(folders):
        return folders[-1 - int(back[1] or 0)]
    matches = [f for f in folders if f.id == name] or [f for f in folders if f.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise LoopError(f"{name}: {len(matches)} sessions begin so", hint=_list(matches))
    hint = _list(folders[-5:]) if folders else "`loop run session` makes one"
    raise LoopError(f"{root}: no session {name}", hint=hint)


def _list(folders: Iterable[SessionFolder]) -> str:
    return "one of " + ", ".join(folder.id for folder in folders)


def records(root: Path) -> list[SessionRecord]:
    """The records of all sessions that ended, oldest first; unreadable ones are left out."""
    found = []
    for folder in every(root):
        try:
            record = folder.record()
        except LoopError:
            continue
        if record is not None:
            found.append(record)
    return found


def other_format(path: Path) -> str:
    """What to say of a head or record of another format, whatever else is unknown in it; empty for any other."""
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    number = fields.get("format") if isinstance(fields, dict) else None
    if not isinstance(number, int) or number == FORMAT:
        return ""
    whose = "a newer loop" if number > FORMAT else "an older loop"
    return f"{path}: of format {number}, by {whose}; this one reads format {FORMAT}"


def _load(model: type[T], path: Path) -> T:
    try:
        return model.model_validate_json(sums.opened(path, journal.read_regular(path)))
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", exit_code=1) from error
    except LoopError as error:
        if other := other_format(path):
            raise LoopError(other, hint=f"move {path.parent} aside", exit_code=1) from error
        raise
    except ValidationError as error:
        if other := other_format(path):
            raise LoopError(other, hint=f"move {path.parent} aside", exit_code=1) from error
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{place}: {first['msg']}" if place else first["msg"]
        hint = f"move {path.parent} aside"
        raise LoopError(f"{path}: damaged, or of another format: {what}", hint=hint, exit_code=1) from error


def concluded(root: Path, target: str) -> dict[str, tuple[Finished, ...]]:
    """The ended steps of recent finished sessions of a target, by session, oldest first."""
    found = {}
    for folder in every(root)[-RECENT:]:
        try:
            if folder.record() is not None and folder.head().target == target:
                found[folder.id] = folder.finished()
        except LoopError:
            continue
    return found


def wall_seconds(lines: Sequence[Line]) -> tuple[float, float]:
    """Wall time of all walks of a session, and the part of it outside any step: the runner's own."""
    wall = steps = 0.0
    begun = last = None
    for line in lines:
        if isinstance(line.event, Opened):
            begun = line.at
        if begun is not None and last is not None and line.at > last and not isinstance(line.event, Opened):
            wall += (line.at - last).total_seconds()
        if isinstance(line.event, Finished):
            steps += line.event.seconds
        last = line.at
    return wall, max(0.0, wall - steps)
