"""Lines of a log that another program may be writing: what is whole counts, what is not is told."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loop.agents.calls import Odd


class Log:
    """One log. It is read up to where it ended when it was opened: what is written meanwhile comes next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable = 0
        """Lines that are no JSON, or not what such a log writes."""
        self.torn = False
        """Whether its last line had not been written to its end."""
        self.gone = ""
        """Why it could not be read; empty where it could."""

    def objects(self, marker: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lines that hold `marker`, with their numbers. A file that has gone, or goes, ends early."""
        try:
            with self.path.open("rb") as file:
                yield from self._objects(file, os.fstat(file.fileno()).st_size, marker)
        except OSError as error:
            self.gone = error.strerror or str(error)

    def _objects(self, file: Any, size: int, marker: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        read = 0
        for number, raw in enumerate(file, start=1):
            read += len(raw)
            whole = raw.endswith(b"\n") and read <= size
            if marker in raw:
                found = self._parse(raw, whole=whole)
                if found is not None:
                    yield number, found
            elif not whole and raw.strip() and not _is_json(raw):
                self.torn = True
            if read >= size:
                return

    def _parse(self, raw: bytes, *, whole: bool) -> dict[str, Any] | None:
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            if whole:
                self.unreadable += bool(raw.strip())
            else:
                self.torn = True
            return None
        return found if isinstance(found, dict) else None

    @contextlib.contextmanager
    def odd(self, number: int) -> Iterator[None]:
        """Count a line that turns out to be something else."""
        try:
            yield
        except Odd:
            self.unreadable += 1


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True
