"""The journal: an append-only file of JSON lines. Each is on disk before the session goes on."""

import contextlib
import datetime
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from loop.base.documents import file_error, sums
from loop.base.errors import LoopError, WorkFailed
from loop.model.record import Event, Finished, Line, Opened, Started

NAME = "journal.jsonl"


class Journal:
    """Appends events to one file. `append` returns only when the line is on disk."""

    def __init__(self, path: Path) -> None:
        """Read the lines so far; cut an unfinished last one. Raises LoopError for damaged ones."""
        self.path = path
        lines = list(checked_lines(path))
        self.lines = [line for line, _ in lines]  # Also those of earlier processes.
        self._last_checksum = lines[-1][1] if lines else ""
        try:
            if path.exists():  # A kill may have left part of a line.
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise write_error(path, error) from error

    def append(self, event: Event) -> Line:
        """Write one event, wait until it is on disk, return its line; or raise LoopError."""
        line = Line(seq=len(self.lines) + 1, at=datetime.datetime.now(datetime.UTC), event=event)
        fields = line.model_dump(mode="json", exclude={"event"}) | event.model_dump(mode="json")
        text = json.dumps(fields, ensure_ascii=False)
        data = sums.with_checksum(text, self._last_checksum).encode()
        try:
            size_before, unwritten = self._file.seek(0, os.SEEK_END), memoryview(data + b"\n")
            try:
                while unwritten:
                    unwritten = unwritten[self._file.write(unwritten) :]
                os.fsync(self._file.fileno())
            except BaseException:  # Cut the partial line: the next one needs its own line.
                with contextlib.suppress(OSError):
                    self._file.truncate(size_before)
                raise
        except OSError as error:
            raise write_error(self.path, error) from error
        self._last_checksum = sums.split_checksum(data, self._last_checksum)[1]
        self.lines.append(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def checked_lines(path: Path) -> Iterator[tuple[Line, str]]:
    """Each line of a journal with its checksum, without an unfinished last one; none without a
    file. Raises WorkFailed where a line is damaged, or breaks the checksum chain."""
    checksum, content = "", b""
    try:
        content = sums.read_regular(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error
    *rows, partial_row = content.split(b"\n")  # A kill may have cut the last one: unchecked.
    for number, row in enumerate(rows, start=1):
        problem = f"{path}:{number}: damaged journal line"
        hint = f"{number - 1} lines before it are whole; move the session aside, or cut it there"
        text, checksum, is_intact = sums.split_checksum(row, checksum)
        try:
            fields = json.loads(text)
            shared = {name: fields.pop(name) for name in ("format", "seq", "at")}
            line = Line.model_validate({**shared, "event": fields}, strict=False, extra="ignore")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WorkFailed(problem, hint=hint) from error
        if line.seq != number:
            raise WorkFailed(f"{path}:{number}: expected line {number}, got {line.seq}")
        if not is_intact:
            raise WorkFailed(f"{problem}: its checksum does not match", hint=hint)
        yield line, checksum
    _, checksum, is_intact = sums.split_checksum(partial_row[:-1], checksum)
    if is_intact and checksum.encode() in partial_row:  # Whole but its end: no kill does that.
        hint = f"{len(rows)} lines before it are whole; end line {len(rows) + 1} with a line end"
        raise WorkFailed(f"{path}:{len(rows) + 1}: damaged line end", hint=hint)


def finished_steps(lines: Iterable[Line]) -> tuple[Finished, ...]:
    """The ended steps, in order, since the last fresh start (a resume after the target changed)."""
    ended: list[Finished] = []
    for line in lines:
        if isinstance(line.event, Opened) and line.event.fresh:
            ended.clear()
        elif isinstance(line.event, Finished):
            ended.append(line.event)
    return tuple(ended)


def open_step(lines: Iterable[Line]) -> Started | None:
    """The step that began and has not ended; None if there is none."""
    events = [line.event for line in lines if isinstance(line.event, Started | Finished)]
    return events[-1] if events and isinstance(events[-1], Started) else None


def write_error(path: Path, error: OSError) -> LoopError:
    """The error for a file that cannot be written, with a hint about LOOP_SESSIONS."""
    free_space = "free some space, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    hint = f"{free_space}choose another folder with LOOP_SESSIONS"
    return file_error(path, "written", error, hint)
