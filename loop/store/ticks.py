"""Progress notes of running steps, for `loop status`: an append-only file of limited size."""

import contextlib
import json
from pathlib import Path

from loop.base.documents import sums
from loop.model.record import StepTick

NAME = "ticks.jsonl"
MAX_BYTES = 2**20
"""Maximum size of the file in bytes. Later notes are dropped."""
MIN_INTERVAL_S = 0.02
"""Minimum seconds between two notes of one step. A note that comes sooner is dropped."""


class TickFile:
    """Appends progress notes to one file. Ignores write errors, so that they never end a session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_tick: StepTick | None = None
        self._remaining_bytes = MAX_BYTES - (path.stat().st_size if path.exists() else 0)

    def add(self, tick: StepTick) -> None:
        """Append a tick; nothing once the file is full. Drop it, unless a heartbeat or of another attempt than the
        last, if its note repeats the last one or it comes within `MIN_INTERVAL_S` of it."""
        last = self._last_tick
        if last is not None and last.is_same_attempt(tick) and not tick.heartbeat:
            is_too_soon = tick.seconds - last.seconds < MIN_INTERVAL_S
            if tick.note == last.note or is_too_soon:
                return
        text = json.dumps(tick.model_dump(mode="json"))
        self._remaining_bytes -= len(sums.with_checksum(text)) + 1
        self._last_tick = tick
        if self._remaining_bytes >= 0:
            with contextlib.suppress(OSError):
                sums.append_sealed(self._path, text)


def read_ticks(path: Path) -> list[StepTick]:
    """All readable ticks; empty when the file is missing. Reports damaged lines and skips them."""
    with contextlib.suppress(OSError):
        return list(sums.sealed_lines(path, StepTick))
    return []
