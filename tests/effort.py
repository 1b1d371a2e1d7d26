"""Count the work of a call in function calls, not seconds: the same on every machine, busy or not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

MOST_CALLS = 200_000
"""Limit for one expression; a thousand characters need a third of it."""


@dataclass
class Effort:
    """The count of a `counted` block."""

    calls: int = 0
    """Calls of Python and C functions; a slow C function, such as a regular expression, counts once."""


@contextmanager
def counted() -> Iterator[Effort]:
    """Count the calls of this thread until the block ends."""
    effort, profiler = Effort(), sys.getprofile()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        effort.calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield effort
    finally:
        sys.setprofile(profiler)
