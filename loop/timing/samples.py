"""From raw samples to log ratios: which samples, segments and rounds count. No clock, no disk.

**Other programs.** A sample's wait is the run-queue delay of its worker process: how long something
else used the core. It is never subtracted: a variant whose own threads wait for each other would
gain by it. A sample counts as measured, or not at all. With two cores kept busy, a call with two
threads took 0.25 ms without a wait, 7 to 15 ms with one. Ratios of rounds scattered by 175 % (sd)
with all samples, and by 9 % with only those that did not wait.

**The GPU.** A round does not count if the GPU slowed one side only: it throttled, or clocks differ.

**Deferred work**, done only when a result is read, counts as work of the call (`charge_left_work`).
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loop.base.stats import median
from loop.model.dtypes import Device
from loop.model.measurement import BASELINE, Check, Segment
from loop.model.verdict import Against
from loop.workers.bench import Side
from loop.workers.judge_process import CallWay, Floors

EMPTY_CALL_NAMES: dict[CallWay, str] = {
    "c_abi": "C",
    "python": "Python",
    "torch": "PyTorch that only allocates",
    "kernel": "kernel in a CUDA graph",
}
"""Calls that do nothing, by the way they are called."""
MIN_ROUNDS = 2
"""An interval needs two replicates."""
PROVES_FACTOR, PROVES_S = 3.0, 20e-6
"""A verified call also proves calls up to this many times faster, or samples this much shorter."""
CLEAN_WAIT_SHARE = 0.02
"""Share of its time that a sample may wait for a core and still count."""
FEWEST_SAMPLES = 3
"""Samples that a median needs."""
MOST_CORE_LOG_RATIO = 0.1
"""Allowed log difference between the shares of core time that the two sides of a round got."""
LEAST_CORE_SHARE = 0.1
"""Smallest share of core time that a side needs for its round to count."""
WARN_SHARE = 0.1
"""Share of disturbed samples above which a warning is given."""
MOST_CLOCK_DIFFERENCE = 0.01
"""Median SM clocks of the two sides may differ by this share of the higher clock."""
PROCESS_SD, PROCESS_PRIOR_SETS = 0.006, 3
"""Expected standard deviation of a ratio between sets of processes on a GPU, and its weight in
measured sets. The driver gives each process different memory. On H200s, identical binaries differed
by 0.30 % (rms; 1.1 % at most): 216 sets of five sessions, calls of 2 to 50 us."""
COPY_SLACK, COPY_SLACK_S = 1.25, 1e-6
"""Returning a result may take this many times the baseline's, plus this; the rest is work."""
SEGMENT_S = 4e-3
"""Length of a segment of a short workload. More rounds help more than longer segments: 10 ms would
narrow an interval by a tenth, and make a round 1.4 times as long."""


@dataclass(frozen=True)
class Terms:
    """How long to measure."""

    rounds: int
    """Rounds, if time allows."""
    limit_s: float
    """No round starts that would probably end later."""
    seed: int
    """Seed of the order of sides, and of the values."""
    segment_s: float = SEGMENT_S
    """Length of one segment."""
    least_rounds: int = MIN_ROUNDS
    """Rounds that are timed even if they exceed `limit_s`."""


class MemoryProbe(NamedTuple):
    """Seconds of a call on new values, and on the same again; `clean`: no wait for a core."""

    new_values_s: float
    repeated_values_s: float
    is_undisturbed: bool = True


class JudgedSample(NamedTuple):
    """A sample that contains the verified call: seconds of one call, and calls in the sample."""

    seconds: float
    calls: int


@dataclass
class Timings:
    """Raw samples, and what was observed while they were taken."""

    segments: list[Segment] = field(default_factory=list)
    peak_bytes: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Side and workload to the peak bytes of the first call, one entry a round."""
    floors: Floors | None = None
    """How long empty calls take on this machine."""
    self_timed_sides: set[str] = field(default_factory=set)
    """Sides that reported their own times."""
    rounds: int = 0
    rounds_s: float = 0.0
    """Duration of all rounds, without starting processes."""
    wrong_outputs: list[tuple[str, Check]] = field(default_factory=list)
    """Timed outputs that were wrong: side and check."""
    checked_outputs: int = 0
    """Timed outputs that were checked against the reference."""
    memory_probes: dict[tuple[str, str], list[MemoryProbe]] = field(default_factory=dict)
    """Side and workload to its tests for cached results, one a process."""
    clock_pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """On a GPU: side to seconds of each sample by our clock and by the device's."""
    return_times_s: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """Side, workload and round to the seconds per call that returning the result took."""
    call_descriptions: dict[str, str] = field(default_factory=dict)
    """Side to how it is called, in words."""
    judged_samples: dict[tuple[str, str], list[JudgedSample]] = field(default_factory=dict)
    """Side and workload to the samples with a verified call, one a set of processes."""

    def segments_of(self, workload: str) -> list[Segment]:
        """The segments of one workload."""
        return [segment for segment in self.segments if segment.workload == workload]

    def unproven_times_s(self, side: str, workload: str) -> tuple[float, float] | None:
        """Seconds of a usual call and of the fastest verified one, if all verified were far slower.

        A correct result proves the time of its own call only, so nothing shows that the others
        computed. None if at least one verified call was as fast as they are.
        """
        own = [segment for segment in self.segments_of(workload) if segment.side == side]
        proofs = self.judged_samples.get((side, workload), ())
        if not own or not proofs:
            return None
        usual_s = math.exp(log_time(own))
        for proof in proofs:
            if proof.seconds < PROVES_FACTOR * usual_s or (proof.seconds - usual_s) * proof.calls < PROVES_S:
                return None
        return usual_s, min(proof.seconds for proof in proofs)


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Names of the sides that still have to be timed, by workload; empty when everything is decided."""


@dataclass(frozen=True)
class Pair:
    """A candidate side and the side it is compared with."""

    candidate: Side
    variant: str
    """Name of the candidate's variant."""
    reference: str
    """Name of the other side."""
    against: Against

    @property
    def side_names(self) -> tuple[str, str]:
        """Names of reference and candidate."""
        return self.reference, self.candidate.name


def describe_calls(side: Side, device: Device, *, captured: bool) -> str:
    """How a side is called, in words; `captured`: a CUDA graph replays its calls."""
    kind = side.kind
    if kind == "command":
        return "a program, once a call"
    writes = "writes into a given output" if kind == "c_abi" else "allocates its result"
    way = "C" if kind == "c_abi" else "Python"
    if device == "cpu":
        return f"{way}, {writes}"
    return f"CUDA graph of calls from {way}, {writes}" if captured else f"launch by launch from {way}, {writes}"


class Sample(NamedTuple):
    """Seconds of one call, and the share of this time that the call waited for a core."""

    seconds: float
    waited_share: float


def is_disturbed(seconds: float, waited_s: float | None) -> bool:
    """Whether a sample waited too long for a core to count; `whole` and `waited` in seconds."""
    return waited_s is not None and waited_s > CLEAN_WAIT_SHARE * seconds


def samples_of_segment(segment: Segment) -> list[Sample]:
    """The samples of a segment; the wait is 0 if the system does not report it."""
    waited = segment.waited if len(segment.waited) == len(segment.seconds) else (0.0,) * len(segment.seconds)
    pairs = zip(segment.seconds, waited, strict=True)
    return [Sample(took, min(wait / max(took, 1e-12), 1.0)) for took, wait in pairs]


def counted_samples(segments: Iterable[Segment]) -> list[list[Sample]]:
    """The samples of one side in one round that count, by segment: those that nothing disturbed.

    A segment with fewer than three is left out. If all have fewer, their clean samples count
    together, filled up to three with the least disturbed.
    """
    chosen = list(segments)
    every = [samples_of_segment(segment) for segment in chosen]
    if not any(segment.waited for segment in chosen):
        return every
    clean = [[sample for sample in group if sample.waited_share <= CLEAN_WAIT_SHARE] for group in every]
    enough = [group for group in clean if len(group) >= FEWEST_SAMPLES]
    if enough:
        return enough
    calmest = sorted((sample for group in every for sample in group), key=lambda sample: sample.waited_share)
    return [calmest[: max(sum(map(len, clean)), FEWEST_SAMPLES)]]


def log_time(segments: Iterable[Segment]) -> float:
    """Log of the seconds of a side's call in one round: the mean of its segments' log medians."""
    return statistics.fmean(
        math.log(median([sample.seconds for sample in group])) for group in counted_samples(segments)
    )


def rounds_with_both(
    segments: Iterable[Segment], reference: str, candidate: str
) -> list[tuple[list[Segment], list[Segment]]]:
    """Segments of reference and candidate, for each round that has both, in order."""
    rounds: dict[int, dict[str, list[Segment]]] = {}
    for segment in segments:
        sides = rounds.setdefault(segment.round, {reference: [], candidate: []})
        if segment.side in sides:
            sides[segment.side].append(segment)
    pairs = ((sides[reference], sides[candidate]) for _, sides in sorted(rounds.items()))
    return [pair for pair in pairs if pair[0] and pair[1]]


def log_ratios(segments: Iterable[Segment], reference: str, candidate: str) -> list[float]:
    """One log(reference time / candidate time) a round, for the segments of one workload.

    A round in which one side only was slowed does not count. If other programs leave fewer than two
    rounds, all theirs count: a busy machine gets a vague answer rather than none.
    """
    return [log for _, log in _counted_rounds(segments, reference, candidate)]


def _counted_rounds(segments: Iterable[Segment], reference: str, candidate: str) -> list[tuple[int | None, float]]:
    """For each round that counts: its set of processes (None if fresh), and its log ratio."""
    fair = [
        sides for sides in rounds_with_both(segments, reference, candidate) if find_gpu_slowdown(*sides) is None
    ]
    calm = [sides for sides in fair if not is_unevenly_disturbed(*sides)]
    counting = calm if len(calm) > 1 else fair
    return [(after[0].processes, log_time(before) - log_time(after)) for before, after in counting]


def process_variance(segments: Iterable[Segment], reference: str, candidate: str) -> float:
    """Variance that rounds in shared processes add to the mean log ratio; 0 if all have fresh ones.

    Estimated from the means of the sets, with a prior (`PROCESS_SD`), because two sets say little.
    """
    sets: dict[int, list[float]] = {}
    for number, log in _counted_rounds(segments, reference, candidate):
        if number is not None:
            sets.setdefault(number, []).append(log)
    if not sets:
        return 0.0
    means = [statistics.fmean(logs) for logs in sets.values()]
    middle = statistics.fmean(means)
    squares = PROCESS_PRIOR_SETS * PROCESS_SD**2 + sum((mean - middle) ** 2 for mean in means)
    return squares / (PROCESS_PRIOR_SETS + len(means) - 1) / len(means)


def is_unevenly_disturbed(reference: Sequence[Segment], candidate: Sequence[Segment]) -> bool:
    """Whether a round does not count: other programs slowed one side more than the other."""
    left = []
    for side in (reference, candidate):
        chosen = [sample for group in counted_samples(side) for sample in group]
        seconds = max(sum(sample.seconds for sample in chosen), 1e-12)
        left.append(max(1 - sum(sample.waited_share * sample.seconds for sample in chosen) / seconds, 1e-3))
    return min(left) < LEAST_CORE_SHARE or abs(math.log(left[0] / left[1])) > MOST_CORE_LOG_RATIO


def warn_of_other_programs(segments: Iterable[Segment]) -> str:
    """A warning about other programs, for all segments; empty if they hardly disturbed them."""
    shares = [sample.waited_share for segment in segments for sample in samples_of_segment(segment)]
    disturbed = sum(share > CLEAN_WAIT_SHARE for share in shares) / max(len(shares), 1)
    if disturbed < WARN_SHARE:
        return ""
    return (
        f"other programs took the core during {disturbed:.0%} of the samples: those were left out where possible"
    )


def find_gpu_slowdown(reference: Sequence[Segment], candidate: Sequence[Segment]) -> tuple[str, str] | None:
    """The side that the GPU slowed, and why; None if its sensors show no such thing."""
    names, reasons, clocks = ("reference", "candidate"), list[str](), list[list[int]]()
    for side in (reference, candidate):
        readings = [reading for segment in side for reading in segment.sensors or ()]
        if not readings:
            return None
        reasons.append(", ".join(dict.fromkeys(reason for reading in readings for reason in reading.throttle)))
        clocks.append([reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None])
    if bool(reasons[0]) != bool(reasons[1]):
        held, other = names if reasons[0] else names[::-1]
        return held, f"the {held} was throttled ({reasons[0] or reasons[1]}), the {other} was not"
    if not all(clocks):
        return None
    before, after = statistics.median(clocks[0]), statistics.median(clocks[1])
    apart = abs(before - after) / max(before, after, 1.0)
    if apart <= MOST_CLOCK_DIFFERENCE:
        return None
    both = f"{before:.0f} MHz for the reference, {after:.0f} MHz for the candidate"
    return names[before > after], f"median SM clocks differ by {apart:.1%}: {both}"


def explain_gpu_slowdown(segments: Iterable[Segment], reference: str, candidate: str) -> str | None:
    """A sentence if the GPU slowed one side in more than half of the rounds, else None."""
    rounds = rounds_with_both(segments, reference, candidate)
    drops = [drop for sides in rounds if (drop := find_gpu_slowdown(*sides)) is not None]
    for side, dropped in Counter(side for side, _ in drops).items():
        if 2 * dropped > len(rounds):
            reason = statistics.mode(reason for name, reason in drops if name == side)
            return f"the {side} was held back in {dropped} of {len(rounds)} blocks: {reason}"
    return None


def charge_deferred_work(
    segments: Sequence[Segment], return_times_s: Mapping[tuple[str, str, int], Sequence[float]], round_number: int
) -> list[Segment]:
    """The segments of one round (`number`) and workload, with deferred work added to each sample.

    Returning a result is a copy. Time beyond the copy of the baseline's result counts as work;
    without a baseline in the round, the fastest side replaces it. `handed`: as in `Timings`.
    """
    workload = segments[0].workload if segments else ""
    names = {segment.side for segment in segments}
    copies = {
        name: median(seconds) for name in names if (seconds := return_times_s.get((name, workload, round_number)))
    }
    usual_s = copies.get(BASELINE, min(copies.values(), default=0.0))
    charged = []
    for segment in segments:
        left_s = copies.get(segment.side, 0.0) - COPY_SLACK * usual_s - COPY_SLACK_S
        if left_s > 0:
            seconds = tuple(sample_s + left_s for sample_s in segment.seconds)
            segment = segment.model_copy(update={"seconds": seconds, "left_s": left_s})
        charged.append(segment)
    return charged
