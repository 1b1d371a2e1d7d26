"""Progress notes of running steps: a file of limited size beside a session's journal."""

import contextlib
import json
from pathlib import Path

from loop.base.documents import sums
from loop.model.record import StepTick

TICKS = "ticks.jsonl"
MAX_TICK_BYTES = 2**20
"""Maximum size of the file of progress notes, which `loop status` reads. Later notes are dropped."""
MIN_INTERVAL_S = 0.02
"""Minimum seconds between two notes of one step. A note that comes sooner is dropped."""


class TickFile:
    """Appends progress notes to one file. Ignores write errors, so that they never end a session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_tick: StepTick | None = None

    def add(self, tick: StepTick) -> None:
        """Append a note if the file is not full. Of one attempt at a step, a note that repeats the last one or
        comes too soon is dropped, unless it is a heartbeat."""
        last = self._last_tick
        is_same_attempt = last is not None and (last.key, last.attempt) == (tick.key, tick.attempt)
        if last is not None and is_same_attempt and not tick.heartbeat:
            is_too_soon = tick.seconds - last.seconds < MIN_INTERVAL_S
            if tick.note == last.note or is_too_soon:
                return
        self._last_tick = tick
        with contextlib.suppress(OSError):
            if not self._path.exists() or self._path.stat().st_size < MAX_TICK_BYTES:
                sums.append_sealed(self._path, json.dumps(tick.model_dump(mode="json")))


def read_ticks(path: Path) -> list[StepTick]:
    """All readable ticks; empty when the file is missing. Reports damaged lines and skips them."""
    with contextlib.suppress(OSError):
        return list(sums.sealed_lines(path, StepTick))
    return []
