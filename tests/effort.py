"""How much work a call does, counted in calls rather than by a clock: the same on every machine, busy or not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

MOST_CALLS = 200_000
"""For one expression: a thousand characters of it need a third of these."""


@dataclass
class Effort:
    """What was counted in a `counted` block."""

    calls: int = 0
    """Of functions, Python's and C's; a slow one of C's, such as a regular expression, counts as one."""


@contextmanager
def counted() -> Iterator[Effort]:
    """Count the calls of this thread until the block ends."""
    effort, before = Effort(), sys.getprofile()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        effort.calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield effort
    finally:
        sys.setprofile(before)
