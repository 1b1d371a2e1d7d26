"""How much is measured, and what a set of processes has to do of it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loop.timing.samples import MIN_ROUNDS, Timings

SEGMENT_S = 4e-3
"""Time filled by one segment of a short workload. More rounds tell more than longer segments: with 10 ms an
interval is a tenth narrower, and a round takes 1.4 times as long."""


@dataclass(frozen=True)
class Terms:
    """How much is measured, and how."""

    rounds: int
    """Rounds, when time allows."""
    limit_s: float
    """No round begins that would probably end later than this."""
    seed: int
    """Of the order in which sides take turns, and of the values."""
    segment_s: float = SEGMENT_S
    """Time that one segment fills."""
    cold: bool = False
    """Whether the caches are emptied before each timed call."""
    least: int = MIN_ROUNDS
    """Rounds that are made even when they take longer than `limit_s`."""


@dataclass(frozen=True)
class Shift:
    """The rounds that a set of processes serves. A workload is staged once for all of them."""

    numbers: range
    """Of the rounds. Fewer are made where time is short."""
    ends: float = math.inf
    """When it should be over, by the monotonic clock."""
    least: int = 2
    """Rounds that are made however long they take."""

    def fitting(self, round_s: float, to_come: int) -> int:
        """Rounds of a workload that fit its share of the time, when the first took `round_s`."""
        share = max(0.0, self.ends - time.monotonic()) / to_come
        more = min(share / max(round_s, 1e-6), len(self.numbers))
        return min(len(self.numbers), max(2, self.least, 1 + int(more)))


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Which sides are still to be timed on which workload, by name; empty when everything is decided."""
