"""What steps of a running session say they do, for `loop status`: an append-only file, best effort, bounded."""

import contextlib
import json
from pathlib import Path

from loop.base.documents import sums
from loop.model.record import StepTick

NAME = "ticks.jsonl"
LARGEST = 2**20
"""Bytes after which nothing more is kept."""
APART_S = 0.02
"""Notes that follow each other more quickly are one."""


class Ticks:
    """Writes those that say something new. What cannot be written is let go: no session ends for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: StepTick | None = None
        self._left = LARGEST - (path.stat().st_size if path.exists() else 0)

    def add(self, tick: StepTick) -> None:
        """Keep one, unless it says what the one before it did, or comes at its heels."""
        last = self._last
        same = last is not None and last.of(tick) and not tick.heartbeat
        if last is not None and same and (tick.note == last.note or tick.seconds - last.seconds < APART_S):
            return
        text = json.dumps(tick.model_dump(mode="json"))
        self._left -= len(sums.with_checksum(text)) + 1
        self._last = tick
        if self._left >= 0:
            with contextlib.suppress(OSError):
                sums.append_sealed(self._path, text)


def read_ticks(path: Path) -> list[StepTick]:
    """All that can be read; what is damaged is named and left out, and a file that is not there holds none."""
    with contextlib.suppress(OSError):
        return list(sums.sealed_lines(path, StepTick))
    return []
