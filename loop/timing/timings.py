"""What the files of this room share: how much is measured, what a segment came to, and what all rounds came to."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loop.model.measurement import Check, Segment
from loop.model.verdict import Against
from loop.workers.bench import Side
from loop.workers.judge_clock import Floors

SEGMENT_S = 4e-3
"""Time filled by one segment of a short workload. Processes are forked or start quickly, so more rounds tell more
than long segments: of 10 ms an interval is a tenth narrower, and a round takes 1.4 times as long."""
MIN_ROUNDS = 2
"""An interval needs two replicates."""


@dataclass(frozen=True)
class Terms:
    """How much is measured, and how."""

    rounds: int
    """Rounds, when time allows."""
    limit_s: float
    """No round is begun that would probably end later than this."""
    seed: int
    """Of the order in which sides take turns, and of the values."""
    segment_s: float = SEGMENT_S
    """Time that one segment fills."""
    cold: bool = False
    """Whether the caches are emptied before each timed call."""
    least: int = MIN_ROUNDS
    """Rounds that are made even when they take longer than `limit_s`."""


@dataclass
class Timings:
    """Raw samples, and what was noticed while they were taken."""

    segments: list[Segment] = field(default_factory=list)
    peaks: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Side and workload to bytes that the first call took, one a round."""
    floors: Floors | None = None
    """What calls that do nothing take here."""
    own_clock: set[str] = field(default_factory=set)
    """Sides that timed themselves."""
    rounds: int = 0
    seconds: float = 0.0
    """What all rounds took, without the start of processes."""
    wrong: list[tuple[str, Check]] = field(default_factory=list)
    """Timed outputs that were wrong, with their side."""
    outputs: int = 0
    """Timed outputs that were judged."""
    probes: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """Side and workload to seconds of a call on values it had not seen, and on values it had just seen."""
    clocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Of a GPU: side to pairs of seconds that a sample took by our clock and by the device's."""
    handed: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """Side, workload and round to seconds a call that handing its result over took."""
    ways: dict[str, str] = field(default_factory=dict)
    """Side to how its calls are made."""
    readied: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    """Side and workload to seconds that making calls ready took, and how many: they are not timed."""
    strays: dict[str, str] = field(default_factory=dict)
    """Sides that left the cores they were given, and how."""

    def of(self, workload: str) -> list[Segment]:
        """The segments of one workload."""
        return [segment for segment in self.segments if segment.workload == workload]


@dataclass(frozen=True)
class Shift:
    """The rounds that a set of processes serves: a workload is staged once for all of them."""

    numbers: range
    """Of the rounds. Fewer are made where time is short."""
    ends: float = math.inf
    """When it should be over, by the monotonic clock."""
    least: int = 2
    """Rounds that are made however long they take, as far as there are so many."""

    def fitting(self, round_s: float, to_come: int) -> int:
        """Rounds of a workload in its share of the time, the first among them, which took so long."""
        share = max(0.0, self.ends - time.monotonic()) / to_come
        more = min(share / max(round_s, 1e-6), len(self.numbers))
        return min(len(self.numbers), max(2, self.least, 1 + int(more)))


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Which sides are still to be timed on which workload, by name; empty when everything is decided."""


@dataclass(frozen=True)
class Pair:
    """A side and what it is compared with."""

    candidate: Side
    variant: str
    """Name of the variant that the candidate stands for."""
    reference: str
    """Name of the side it is compared with."""
    against: Against

    @property
    def sides(self) -> tuple[str, str]:
        """Names of reference and candidate."""
        return self.reference, self.candidate.name
