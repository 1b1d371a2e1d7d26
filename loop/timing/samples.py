"""From raw samples to log ratios: which samples, segments and rounds count. Pure: no clock, no disk.

**Other programs.** A sample's wait is the kernel's run-queue delay, read from outside the worker: it says how long
something else ran, and nothing of the result. It is never subtracted: a variant whose own threads wait for each
other would gain by it. A sample is left out, or kept as it was measured. On a machine whose two cores were kept
busy, samples of one call with two threads took 0.25 ms without a wait and 7 to 15 ms with one. A ratio of rounds
scattered by 175 % (sd); by 9 % where only samples without a wait count.

**The GPU.** A round does not count where it held one side back and the other not: by a reason to throttle, or by
clocks that differ.

**Work that is left** until a result is looked at counts as work of the call (`charged`).
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from loop.base.stats import median
from loop.model.measurement import BASELINE, Check, DeviceReading, Segment
from loop.model.verdict import Against
from loop.workers.bench import Side
from loop.workers.judge_clock import Floors

MIN_ROUNDS = 2
"""An interval needs two replicates."""

VOUCHES, VOUCHES_S = 3.0, 20e-6
"""A right result vouches for calls up to so many times as quick as its own, and for samples so much shorter."""
CLEAN = 0.02
"""Share of its time that a sample may have waited for a core and still count."""
ENOUGH = 3
"""Samples that a median needs."""
APART = 0.1
"""Share by which the time that was left to one side of a round may differ from the other's: the ratio is off by as
much."""
LEAST = 0.1
"""Share of its time that a side has to be left."""
NOTEWORTHY = 0.1
"""Share of disturbed samples from which on it is said."""
CLOCKS_APART = 0.01
"""Median SM clocks of the two sides may differ by this share of the higher one."""
PROCESS_SD, PROCESS_SETS = 0.006, 3
"""Standard deviation of a ratio from one set of processes to the next on a GPU, and how many sets this expectation
counts for beside those that were measured. The driver gives each process other memory. On H200s the mean of a set
was off by 0.30 % (rms; 1.1 % at most) where both sides were one binary: 216 sets of five sessions, calls of 2 to
50 us."""
COPIES, COPIES_S = 1.25, 1e-6
"""Handing a result over may take so much longer than the baseline's, and so much more, before it counts."""

SideName = Literal["reference", "candidate"]
Handed = Mapping[tuple[str, str, int], Sequence[float]]
"""Side, workload and round to seconds a call that handing its result over took."""


class Probed(NamedTuple):
    """Whether a process remembers values."""

    fresh_s: float
    """Seconds of a call on values that it had not seen."""
    again_s: float
    """Seconds of one on values that it had just seen."""
    clean: bool = True
    """Whether neither waited for a core."""


@dataclass(frozen=True)
class Proof:
    """A sample that holds a call whose result was judged."""

    seconds: float
    """Of one call."""
    calls: int

    def beyond(self, usual_s: float) -> float:
        """Seconds that the sample took longer than its calls usually do."""
        return (self.seconds - usual_s) * self.calls


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
    probes: dict[tuple[str, str], list[Probed]] = field(default_factory=dict)
    """Side and workload to what asking whether it remembers values found, one a process."""
    clocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Of a GPU: side to pairs of seconds that a sample took by our clock and by the device's."""
    handed: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """Side, workload and round to seconds a call that handing its result over took."""
    ways: dict[str, str] = field(default_factory=dict)
    """Side to how its calls are made."""
    readied: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    """Side and workload to seconds that making calls ready took, and how many: they are not timed."""
    proofs: dict[tuple[str, str], list[Proof]] = field(default_factory=dict)
    """Side and workload to the samples that were judged, one a set of processes."""
    strays: dict[str, str] = field(default_factory=dict)
    """Sides that left the cores they were given, and how."""

    def of(self, workload: str) -> list[Segment]:
        """The segments of one workload."""
        return [segment for segment in self.segments if segment.workload == workload]

    def unproven(self, side: str, workload: str) -> tuple[float, float] | None:
        """Seconds of a call, and of the quickest whose result was judged, where that is far longer; else None.

        A right result vouches for the time of its own call. Where all that were judged took far longer than what
        counts, nothing shows that the others were computed. A single one may have been disturbed.
        """
        own = [segment for segment in self.of(workload) if segment.side == side]
        proofs = self.proofs.get((side, workload), ())
        if not own or not proofs:
            return None
        usual_s = math.exp(log_time(own))
        if any(one.seconds < VOUCHES * usual_s or one.beyond(usual_s) < VOUCHES_S for one in proofs):
            return None
        return usual_s, min(one.seconds for one in proofs)


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


@dataclass(frozen=True)
class Sample:
    """Seconds of one call, and the share of them that it waited."""

    seconds: float
    share: float


@dataclass(frozen=True)
class Drop:
    """Why a round does not count."""

    side: SideName
    """The side that was held back."""
    reason: str
    """One line."""


def disturbed(whole: float, waited: float | None) -> bool:
    """Whether a sample says more of the machine than of the call; both in seconds."""
    return waited is not None and waited > CLEAN * whole


def samples(segment: Segment) -> list[Sample]:
    """The samples of a segment; without a wait where the system does not tell."""
    waited = segment.waited if len(segment.waited) == len(segment.seconds) else (0.0,) * len(segment.seconds)
    pairs = zip(segment.seconds, waited, strict=True)
    return [Sample(took, min(wait / max(took, 1e-12), 1.0)) for took, wait in pairs]


def counted(segments: Iterable[Segment]) -> list[list[Sample]]:
    """What counts of a side's segments in one round, segment by segment: the samples that nothing disturbed.

    Segments with too few of them are left out; where all have too few, their clean samples count together, and
    where these are too few still, the least disturbed ones.
    """
    chosen = list(segments)
    every = [samples(segment) for segment in chosen]
    clean = [[one for one in group if one.share <= CLEAN] for group in every]
    told = any(segment.waited for segment in chosen)
    enough = [group for group in clean if len(group) >= ENOUGH] if told else every
    if enough:
        return enough
    together = sorted((one for group in every for one in group), key=lambda one: one.share)
    sound = sum(map(len, clean))
    return [together[: max(sound, ENOUGH)]]


def log_time(segments: Iterable[Segment]) -> float:
    """Logarithm of the seconds that a call of a side took in one round: the mean over its segments' medians."""
    logs = [math.log(median([one.seconds for one in group])) for group in counted(segments)]
    return sum(logs) / len(logs)


def log_ratios(segments: Iterable[Segment], reference: str, candidate: str) -> list[float]:
    """One log(reference time / candidate time) a round, from the medians of the segments of one workload.

    Rounds in which one side was held back and the other was not do not count. Where other programs leave fewer
    than two, theirs count all the same: a busy machine gets an answer, if a vague one.
    """
    return [log for _, log in _counting(segments, reference, candidate)]


def _counting(segments: Iterable[Segment], reference: str, candidate: str) -> list[tuple[int | None, float]]:
    """The set of processes of each round that counts (None where it has fresh ones), and its log ratio."""
    fair = [sides for sides in rounds_of(segments, reference, candidate) if spoilt_by_gpu(*sides) is None]
    calm = [sides for sides in fair if spoilt_by_others(*sides) is None]
    counting = calm if len(calm) > 1 else fair
    return [(ours[0].processes, log_time(theirs) - log_time(ours)) for theirs, ours in counting]


def rounds_of(
    segments: Iterable[Segment], reference: str, candidate: str
) -> list[tuple[list[Segment], list[Segment]]]:
    """Both sides' segments of each round that has some of both, in the order of the rounds."""
    rounds: dict[int, dict[str, list[Segment]]] = {}
    for segment in segments:
        sides = rounds.setdefault(segment.round, {reference: [], candidate: []})
        if segment.side in sides:
            sides[segment.side].append(segment)
    pairs = ((sides[reference], sides[candidate]) for _, sides in sorted(rounds.items()))
    return [pair for pair in pairs if pair[0] and pair[1]]


def process_variance(segments: Iterable[Segment], reference: str, candidate: str) -> float:
    """Variance of the mean log ratio that rounds in kept processes share; 0 where each round has fresh ones.

    Estimated from the means of the sets, with what is expected of any GPU counted in: two sets tell little.
    """
    sets: dict[int, list[float]] = {}
    for number, log in _counting(segments, reference, candidate):
        if number is not None:
            sets.setdefault(number, []).append(log)
    if not sets:
        return 0.0
    means = [statistics.fmean(logs) for logs in sets.values()]
    middle = statistics.fmean(means)
    apart = PROCESS_SETS * PROCESS_SD**2 + sum((one - middle) ** 2 for one in means)
    return apart / (PROCESS_SETS + len(means) - 1) / len(means)


def spoilt_by_others(reference: Sequence[Segment], candidate: Sequence[Segment]) -> Drop | None:
    """Why a round does not count: other programs took the core from one side more than from the other."""
    theirs, ours = waiting(reference), waiting(candidate)
    left = [max(1 - share, 1e-3) for share in (theirs, ours)]
    if min(left) >= LEAST and abs(math.log(left[0] / left[1])) <= APART:
        return None
    side: SideName = "reference" if theirs > ours else "candidate"
    shares = f"{theirs:.0%} of the reference's time, {ours:.0%} of the candidate's"
    return Drop(side, f"other programs took the core for {shares}")


def waiting(segments: Iterable[Segment]) -> float:
    """Share of its time that a side waited in the samples that count; 0 where the system does not tell."""
    chosen = [one for group in counted(segments) for one in group]
    return sum(one.share * one.seconds for one in chosen) / max(sum(one.seconds for one in chosen), 1e-12)


def warning(segments: Iterable[Segment]) -> str:
    """What is to be said of other programs when everything was timed; empty when they hardly disturbed it."""
    shares = [one.share for segment in segments for one in samples(segment)]
    disturbed = sum(share > CLEAN for share in shares) / max(len(shares), 1)
    if disturbed < NOTEWORTHY:
        return ""
    return (
        f"other programs took the core during {disturbed:.0%} of the samples: those were left out where possible"
    )


def spoilt_by_gpu(reference: Sequence[Segment], candidate: Sequence[Segment]) -> Drop | None:
    """Why the GPU's sensors say that a round does not count; None where they tell nothing of a side."""
    theirs, ours = ([reading for one in side for reading in one.sensors or ()] for side in (reference, candidate))
    return (_throttled(theirs, ours) or _clocks_apart(theirs, ours)) if theirs and ours else None


def _throttled(reference: Sequence[DeviceReading], candidate: Sequence[DeviceReading]) -> Drop | None:
    theirs, ours = (
        ", ".join(dict.fromkeys(reason for reading in side for reason in reading.throttle))
        for side in (reference, candidate)
    )
    if bool(theirs) == bool(ours):
        return None
    if theirs:
        return Drop("reference", f"the reference was throttled ({theirs}), the candidate was not")
    return Drop("candidate", f"the candidate was throttled ({ours}), the reference was not")


def _clocks_apart(reference: Sequence[DeviceReading], candidate: Sequence[DeviceReading]) -> Drop | None:
    sides = [[one.sm_clock_mhz for one in side if one.sm_clock_mhz is not None] for side in (reference, candidate)]
    if not all(sides):
        return None
    theirs, ours = (statistics.median(side) for side in sides)
    apart = abs(theirs - ours) / max(theirs, ours, 1.0)
    if apart <= CLOCKS_APART:
        return None
    clocks = f"{theirs:.0f} MHz for the reference, {ours:.0f} MHz for the candidate"
    return Drop("reference" if theirs < ours else "candidate", f"median SM clocks differ by {apart:.1%}: {clocks}")


def held_back(segments: Iterable[Segment], reference: str, candidate: str) -> str | None:
    """What to say when the GPU held one side back in more than half of the rounds: a result in itself."""
    rounds = rounds_of(segments, reference, candidate)
    drops = [drop for sides in rounds if (drop := spoilt_by_gpu(*sides)) is not None]
    for side, dropped in Counter(drop.side for drop in drops).items():
        if 2 * dropped > len(rounds):
            reason = statistics.mode(drop.reason for drop in drops if drop.side == side)
            return f"the {side} was held back in {dropped} of {len(rounds)} blocks: {reason}"
    return None


def charged(segments: Sequence[Segment], handed: Handed, number: int) -> list[Segment]:
    """The segments of one round and workload, each sample longer by what its side left for later.

    Handing over is a copy of the result: what it takes beyond the copy of the baseline's result is work. Without a
    baseline in the round, the quickest side stands for it.
    """
    names = {one.side for one in segments}
    workload = segments[0].workload if segments else ""
    taken = {name: median(some) for name in names if (some := handed.get((name, workload, number)))}
    if not taken:
        return list(segments)
    usual = taken.get(BASELINE, min(taken.values()))
    return [_charged(one, taken.get(one.side, 0.0) - COPIES * usual - COPIES_S) for one in segments]


def _charged(segment: Segment, left_s: float) -> Segment:
    if left_s <= 0:
        return segment
    return segment.model_copy(update={"seconds": tuple(one + left_s for one in segment.seconds), "left_s": left_s})
