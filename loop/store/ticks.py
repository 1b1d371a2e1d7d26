"""Progress notes of running steps, for `loop status`: an append-only file of limited size."""

import contextlib
import json
from pathlib import Path

from loop.base.documents import sums
from loop.model.record import StepTick

NAME = "ticks.jsonl"
LARGEST = 2**20
"""Maximum size of the file in bytes. Later notes are dropped."""
APART_S = 0.02
"""Minimum seconds between two notes of one step. A note that comes sooner is dropped."""


class Ticks:
    """Appends progress notes to one file. Ignores write errors, so that they never end a session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: StepTick | None = None
        self._left = LARGEST - (path.stat().st_size if path.exists() else 0)

    def add(self, tick: StepTick) -> None:
        """Append a tick. Drop it if its note repeats the last one or comes within `APART_S` of it."""
        last = self._last
        same = last is not None and last.is_same_attempt(tick) and not tick.heartbeat
        if last is not None and same and (tick.note == last.note or tick.seconds - last.seconds < APART_S):
            return
        text = json.dumps(tick.model_dump(mode="json"))
        self._left -= len(sums.with_checksum(text)) + 1
        self._last = tick
        if self._left >= 0:
            with contextlib.suppress(OSError):
                sums.append_sealed(self._path, text)


def read_ticks(path: Path) -> list[StepTick]:
    """All readable ticks; empty when the file is missing. Reports damaged lines and skips them."""
    with contextlib.suppress(OSError):
        return list(sums.sealed_lines(path, StepTick))
    return []
