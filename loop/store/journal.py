"""The journal: an append-only file of JSON lines, each on disk before the next thing begins."""

import contextlib
import datetime
import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from loop.errors import LoopError
from loop.model.record import Closed, Event, Finished, Line, Opened, Started

NAME = "journal.jsonl"


class Journal:
    """Appends events to one file. `append` returns only when the line is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = read(path)
        self._seq = self._lines[-1].seq if self._lines else 0
        try:
            self._cut_torn_tail()
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(path, error) from error

    def _cut_torn_tail(self) -> None:
        """Drop what a kill left of an unfinished last line, so that the next one starts on its own."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))

    @property
    def lines(self) -> tuple[Line, ...]:
        """Everything written so far, by this process and by those before it."""
        return tuple(self._lines)

    def append(self, event: Event) -> Line:
        """Write one event and wait until it is on disk. Raises LoopError when the disk refuses."""
        line = Line(seq=self._seq + 1, at=datetime.datetime.now(datetime.UTC), event=event)
        try:
            self._write(to_text(line).encode() + b"\n")
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._seq += 1
        self._lines.append(line)
        return line

    def _write(self, data: bytes) -> None:
        """Put `data` on disk, or leave nothing of it there: a later line must start on its own."""
        size = self._file.seek(0, os.SEEK_END)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(size)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def to_text(line: Line) -> str:
    """One line without its line end."""
    outer = line.model_dump(mode="json", exclude={"event"})
    return json.dumps({**outer, **line.event.model_dump(mode="json")}, ensure_ascii=False)


def read(path: Path) -> list[Line]:
    """All whole lines of a journal; a torn last line is left out. Raises LoopError on a damaged one."""
    try:
        parts = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", exit_code=1) from error
    return [_parse(path, number, part) for number, part in enumerate(parts[:-1], start=1)]


def whole_lines(path: Path) -> tuple[list[Line], str]:
    """The lines before any damage, and what the damage is; raises LoopError only where nothing can be read."""
    found: list[Line] = []
    try:
        parts = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", exit_code=1) from error
    for number, part in enumerate(parts[:-1], start=1):
        try:
            found.append(_parse(path, number, part))
        except LoopError as error:
            return found, error.message
    return found, ""


def _parse(path: Path, number: int, text: bytes) -> Line:
    try:
        fields = json.loads(text)
        outer = {name: fields.pop(name) for name in ("format", "seq", "at")}
        line = Line.model_validate({**outer, "event": fields}, strict=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as error:
        raise LoopError(
            f"{path}:{number}: damaged journal line",
            hint=f"the {number - 1} lines before it are whole; move the session aside, or cut the file there",
            exit_code=1,
        ) from error
    if line.seq != number:
        raise LoopError(f"{path}:{number}: expected line {number}, got {line.seq}", exit_code=1)
    return line


def finished(lines: Iterable[Line]) -> tuple[Finished, ...]:
    """The steps that have ended, in order; those before a fresh start no longer count."""
    found: list[Finished] = []
    for line in lines:
        if isinstance(line.event, Opened) and line.event.fresh:
            found.clear()
        elif isinstance(line.event, Finished):
            found.append(line.event)
    return tuple(found)


def open_step(lines: Iterable[Line]) -> Started | None:
    """The step that was begun and never ended, if there is one."""
    last: Started | None = None
    for line in lines:
        if isinstance(line.event, Started):
            last = line.event
        elif isinstance(line.event, Finished):
            last = None
    return last


def last_closed(lines: Iterable[Line]) -> Closed | None:
    """How the session was closed; None while it is open, or was killed."""
    last: Closed | None = None
    for line in lines:
        if isinstance(line.event, Closed):
            last = line.event
        elif isinstance(line.event, Opened):
            last = None
    return last


def unwritable(path: Path, error: OSError) -> LoopError:
    """What to tell a user whose disk refuses."""
    hint = "free some space, or choose another folder with LOOP_SESSIONS"
    return LoopError(f"{path}: cannot be written: {error.strerror}", hint=hint)
