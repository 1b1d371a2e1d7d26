"""How one segment is filled: what its samples came to, and when there are enough of them."""

import math
import random
from dataclasses import dataclass, field

from loop.timing.samples import disturbed

GPU_SEGMENT_S = 1.5e-3
"""Seconds of a segment on a GPU at most: its clock is so even that more rounds tell more than longer segments."""
GPU_SAMPLE_S, GPU_PROBED_S = 0.5e-3, 0.1e-3
"""Seconds of a sample on a GPU, whose events count in half microseconds; and of one that only shows whether values
are remembered."""
CALLS, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 10
"""Calls in a CUDA graph, the most that take no longer than a sample, and replays of it in one sample at most."""
LAUNCH_S = 5e-6
"""Seconds that launching a graph takes. All replays are launched before the first begins by the device's clock."""


def replays_of(once: float, sample_s: float, most: int) -> tuple[int, int]:
    """Calls in a graph, `most` at most, and replays of it in a sample, when one call takes `once` seconds."""
    calls = next((n for n in CALLS if n * once <= sample_s and n <= most), 1)
    return calls, max(1, min(math.ceil(sample_s / (calls * once)), MOST_REPLAYS))


WARM_UP_S, WARM_UP_CALLS, WARM_UP_MOST_S = 1e-3, 5, 0.1
"""Calls are made for so long before a segment, until so many of them were not disturbed, or the time is over."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
SLOW_CALL_S = 0.25
"""A call that takes longer is timed once a segment, and not probed for values it knows: it meets none twice."""
COLD_SAMPLES = 5
"""Samples of a segment for each of which the caches are emptied first: that takes milliseconds."""
WARM_UP_READY_S = 0.2
"""A warm-up on a host ends when calls were made ready for so long."""
MOST_READY = 100
"""A segment comes to its end when calls were made ready for so many times its time."""
MOST_DISTURBED = 10
"""Where others keep the cores busy a segment takes up to so many times its time to get enough sound samples."""

SECRET = random.SystemRandom()
"""Draws which samples and segments are looked at: a seed that is known would tell."""


@dataclass
class SegmentSamples:
    """What a segment came to."""

    calls: int = 1
    """Calls in a sample."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of one call, sample by sample."""
    waited: list[float] = field(default_factory=list)
    """Seconds a call in which worker or judge waited for a core; empty where the system does not tell."""
    handed: list[float] = field(default_factory=list)
    """Seconds a call that handing the results over took, where that was asked for."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """Of a GPU: seconds of a sample by the judge's clock, less the launches, and by the device's."""
    own: bool = False
    """Whether the variant timed itself."""
    output: bytes | None = None
    """The output of the call whose answer is known."""
    known: int = 0
    """Number of the sample that holds it."""
    changed: list[str] = field(default_factory=list)
    """Inputs that do not hold what the judge wrote."""
    broken: list[str] = field(default_factory=list)
    """What the variant replaced in its process, by name."""
    unwritten: bool = False
    """Whether one of the calls beside it left what stood in its output before."""
    writes: list[str] = field(default_factory=list)
    """Writes outside of tensors, or too late, a sentence each."""


@dataclass
class Filling:
    """How far a segment has come."""

    sampled: SegmentSamples
    seconds: float
    """What its sound samples have to fill."""
    least: int
    """Samples that it has whatever they take."""
    most: int
    judged: bool
    """Whether one of its samples holds the call whose answer is known."""
    place: int
    """Number of the sample that holds it."""
    sound: float = 0.0
    """Seconds of the samples that nothing disturbed."""
    spent: float = 0.0
    """Seconds of all samples, and of handing their results over."""
    early: float = 0.0
    """Seconds that making calls ready took."""
    late: bool = False
    """Whether it took far longer than it should: what is judged comes soon then, whenever that is."""

    @property
    def made(self) -> int:
        """Samples so far."""
        return len(self.sampled.seconds)

    @property
    def to_judge(self) -> bool:
        """Whether the call whose answer is known is still to come."""
        return self.judged and self.sampled.output is None

    @property
    def goes_on(self) -> bool:
        """Whether another sample is needed."""
        unfilled = self.sound < self.seconds and not self.late and self.made < self.most
        return self.made < self.least or self.to_judge or unfilled

    def add(self, whole: float, waited: float | None, ready_s: float, handed_s: float) -> None:
        """Count a sample."""
        self.spent += whole + handed_s
        self.early += ready_s
        self.sound += 0.0 if disturbed(whole, waited) else whole
        self.late = self.spent >= MOST_DISTURBED * self.seconds or self.early >= MOST_READY * self.seconds


def begin_filling(
    sampled: SegmentSamples, seconds: float, once: float, replays: int, *, cold: bool, judged: bool
) -> Filling:
    """What a segment needs when a call takes `once` seconds. The judged sample is drawn at random."""
    most = COLD_SAMPLES if cold else MAX_SAMPLES
    least = 1 if once > SLOW_CALL_S else MIN_SAMPLES
    expected = max(least, min(int(seconds / (sampled.calls * replays * once)), most))
    return Filling(sampled, seconds, least, most, judged, SECRET.randrange(expected))


@dataclass
class WarmUp:
    """Calls before a segment, until it is known how long one takes."""

    seconds: float
    """For which they are made at least."""
    enough: int
    """Sound samples that are enough."""
    sounds: int = 0
    spent: float = 0.0
    """Seconds of all samples."""
    early: float = 0.0
    """Seconds that making calls ready took, on a host."""
    sound: float = math.inf
    """Seconds of a call, the shortest that nothing disturbed."""
    rough: float = math.inf
    """The shortest of all."""

    def add(self, once: float, whole: float, waited: float | None) -> bool:
        """Count a sample whose calls took `once` seconds each; whether nothing disturbed it."""
        self.rough, self.spent = min(self.rough, once), self.spent + whole
        if disturbed(whole, waited):
            return False
        self.sound, self.sounds = min(self.sound, once), self.sounds + 1
        return True

    @property
    def goes_on(self) -> bool:
        """Whether another sample is needed."""
        if self.rough == math.inf:
            return True
        if self.early > WARM_UP_READY_S:
            return False
        most_s = WARM_UP_MOST_S if self.sounds else 5 * WARM_UP_MOST_S
        return self.spent < self.seconds or (self.sounds < self.enough and self.spent < most_s)

    @property
    def once(self) -> float:
        """Seconds of a call."""
        return max(self.rough if self.sound == math.inf else self.sound, 1e-8)
