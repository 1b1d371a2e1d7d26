"""From raw samples to log ratios: which samples, segments and rounds count. No clock, no disk.

**Other programs.** A sample's wait is the run-queue delay of its worker process: how long something
else used the core. It is never subtracted: a variant whose own threads wait for each other would
gain by it. A sample counts as measured, or not at all. With two cores kept busy, a call with two
threads took 0.25 ms without a wait, 7 to 15 ms with one. Ratios of rounds scattered by 175 % (sd)
with all samples, and by 9 % with only those that did not wait. Where a variant runs more threads
than it has cores, they wait for each other: such a sample counts.

**The GPU.** A round does not count if the GPU slowed one side only: it throttled, or clocks differ.

**Deferred work**, done only when a result is read, counts as the call's (`charge_deferred_work`).
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from loop.model.measurement import BASELINE, Against, Check, Segment
from loop.workers.bench import Side
from loop.workers.program import CallWay, Floors

EMPTY_CALL_NAMES: dict[CallWay, str] = {
    "c_abi": "C",
    "python": "Python",
    "kernel": "kernel in a CUDA graph",
}
"""Calls that do nothing, by the way they are called."""
ROUNDS_SHARE = 0.95  # Share of a step's time for its rounds; the rest is for verdicts and doubts.
MIN_ROUNDS = 2  # An interval needs two replicates.
PROVES_FACTOR, PROVES_S = 3.0, 20e-6
"""A verified call also proves calls up to this many times faster, or samples this much shorter."""
CLEAN_WAIT_SHARE = 0.02  # Share of its time that a sample may wait for a core and still count.
FEWEST_SAMPLES = 3  # Undisturbed samples that a segment needs to count.
MOST_CORE_LOG_RATIO = 0.1  # Most log difference between two sides in their share of core time.
LEAST_CORE_SHARE = 0.1  # Smallest share of core time that a side needs for its round to count.
WARN_SHARE = 0.1  # Share of disturbed samples above which a warning is given.
MOST_CLOCK_DIFFERENCE = 0.01  # Share by which the median SM clocks of the two sides may differ.
PROCESS_SD, PROCESS_PRIOR_SETS = 0.006, 3
"""Expected standard deviation of a ratio between sets of processes on a GPU; its weight in sets.
On H200s, identical binaries differed by 0.30 % (rms), 1.1 % at most: 216 sets, five sessions."""
COPY_SLACK, COPY_SLACK_S = 1.25, 1e-6
"""Returning a result may take this many times the baseline's, plus this; the rest is work."""


@dataclass(frozen=True)
class Limits:
    """How long to measure, and the seed of the measurement."""

    rounds: int  # Rounds, if time allows.
    limit_s: float  # No round starts that would probably end later.
    seed: int  # Seed of the order of sides, and of the values.
    least_rounds: int = MIN_ROUNDS  # Rounds that are timed even if they exceed `limit_s`.


class MemoryProbe(NamedTuple):
    """Seconds of a call on new values, and on the same again; whether none waited for a core."""

    new_values_s: float
    repeated_values_s: float
    is_undisturbed: bool = True


@dataclass
class Timings:
    """Raw samples, and what was observed while they were taken."""

    segments: list[Segment] = field(default_factory=list)
    floors: Floors | None = None  # How long empty calls take on this machine.
    self_timed_sides: set[str] = field(default_factory=set)  # Sides that reported their own times.
    crowding_threads: dict[str, int] = field(default_factory=dict)
    """Side to the most threads that it ran at once, if these are more than its cores."""
    rounds: int = 0
    rounds_s: float = 0.0  # Duration of all rounds, without starting processes.
    wrong_outputs: list[tuple[str, Check]] = field(default_factory=list)  # Side and check.
    checked_outputs: int = 0  # Timed outputs that were checked against the reference.
    memory_probes: dict[tuple[str, str], list[MemoryProbe]] = field(default_factory=dict)
    """Side and workload to its tests for cached results, one a process."""
    clock_pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """On a GPU: side to seconds of each sample by our clock and by the device's."""
    return_times_s: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """Side, workload and round to the seconds per call that returning the result took."""
    call_descriptions: dict[str, str] = field(default_factory=dict)  # Side to how it is called.
    judged_samples: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    """Side and workload to (seconds of one call, calls) of each sample with a verified call."""

    def segments_of(self, workload: str) -> list[Segment]:
        """The segments of one workload."""
        return [segment for segment in self.segments if segment.workload == workload]

    def unproven_times_s(self, side: str, workload: str) -> tuple[float, float] | None:
        """Seconds of a usual call and of the fastest verified one, if all verified were far slower.
        A right result proves the time of its own call only, so nothing shows that others computed.
        None if a verified call was about as fast as they are, or if none was verified."""
        segments = [segment for segment in self.segments_of(workload) if segment.side == side]
        verified = self.judged_samples.get((side, workload), ())
        if not segments or not verified:
            return None
        usual_s = math.exp(log_time(segments))
        for seconds, calls in verified:
            excess_s = (seconds - usual_s) * calls
            if seconds < PROVES_FACTOR * usual_s or excess_s < PROVES_S:
                return None
        return usual_s, min(verified)[0]


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Names of the sides that still have to be timed, by workload; empty when everything is decided."""


@dataclass(frozen=True)
class Pair:
    """A candidate side and the side it is compared with."""

    candidate: Side  # Named like its variant.
    reference: str  # Name of the other side.
    against: Against

    @property
    def side_names(self) -> tuple[str, str]:
        """Names of reference and candidate."""
        return self.reference, self.candidate.name


class Sample(NamedTuple):
    """Seconds of one call, and the share of this time that the call waited for a core."""

    seconds: float
    waited_share: float


def is_disturbed(seconds: float, waited_s: float | None) -> bool:
    """Whether a sample of this many seconds waited too long for a core to count; None: unknown."""
    return waited_s is not None and waited_s > CLEAN_WAIT_SHARE * seconds


def samples_of_segment(segment: Segment) -> list[Sample]:
    """The samples of a segment; their waits are 0 if the system does not report them."""
    waits_s = segment.waited
    if len(waits_s) != len(segment.seconds):
        waits_s = (0.0,) * len(segment.seconds)
    pairs = zip(segment.seconds, waits_s, strict=True)
    # A clock may give 0 s.
    return [Sample(seconds, min(wait_s / max(seconds, 1e-12), 1.0)) for seconds, wait_s in pairs]


def counted_samples(segments: Iterable[Segment]) -> list[list[Sample]]:
    """The undisturbed samples of one side in one round, by segment, if these have three or more;
    else all clean samples together, filled up to three with the least disturbed."""
    counted, all_samples, clean_count = list[list[Sample]](), list[Sample](), 0
    for segment in segments:
        samples = samples_of_segment(segment)
        clean = [sample for sample in samples if sample.waited_share <= CLEAN_WAIT_SHARE]
        # Without reported waits every sample is clean, so a segment counts even if it is short.
        if not segment.waited or len(clean) >= FEWEST_SAMPLES:
            counted.append(clean)
        all_samples += samples
        clean_count += len(clean)
    if counted:
        return counted
    all_samples.sort(key=lambda sample: sample.waited_share)
    return [all_samples[: max(clean_count, FEWEST_SAMPLES)]]


def log_time(segments: Iterable[Segment]) -> float:
    """Log of the seconds of a side's call in one round: the lower quartile of its samples that
    count. All else on a machine adds time, so it scatters less than the median: rounds differed by
    1.7 % (sd), not 3.2 %, in 603 comparisons of a build with itself or another on a busy virtual
    machine of two cores. 324 reached a verdict by it, 176 by means of medians; none falsely."""
    seconds = [sample.seconds for samples in counted_samples(segments) for sample in samples]
    if len(seconds) < 2:  # A slow call has one; `quantiles` wants two.
        return math.log(seconds[0])
    return math.log(statistics.quantiles(seconds, method="inclusive")[0])


def rounds_with_both(
    segments: Iterable[Segment], reference: str, candidate: str
) -> list[tuple[list[Segment], list[Segment]]]:
    """Segments of reference and candidate, for each round that has both, in order of rounds."""
    sides_by_round: dict[int, dict[str, list[Segment]]] = {}
    for segment in segments:
        sides = sides_by_round.setdefault(segment.round, {reference: [], candidate: []})
        if segment.side in sides:
            sides[segment.side].append(segment)
    rounds = [(sides[reference], sides[candidate]) for _, sides in sorted(sides_by_round.items())]
    return [pair for pair in rounds if all(pair)]


def log_ratios(segments: Iterable[Segment], reference: str, candidate: str) -> list[float]:
    """One log(reference time / candidate time) for each counted round of one workload. Not counted:
    the GPU slowed one side only; other programs disturbed it, unless fewer than two are left."""
    return [log_ratio for _, log_ratio in counted_rounds(segments, reference, candidate)]


def counted_rounds(
    segments: Iterable[Segment], reference: str, candidate: str
) -> list[tuple[int | None, float]]:
    """`log_ratios`, each after the number of its round's process set; None: a set of its own."""
    rounds = rounds_with_both(segments, reference, candidate)
    rounds = [sides for sides in rounds if find_gpu_slowdown(*sides) is None]
    undisturbed = [sides for sides in rounds if not is_unevenly_disturbed(*sides)]
    rounds = undisturbed if len(undisturbed) > 1 else rounds
    return [
        (of_candidate[0].processes, log_time(of_reference) - log_time(of_candidate))
        for of_reference, of_candidate in rounds
    ]


def process_variance(rounds: Iterable[tuple[int | None, float]]) -> float:
    """Variance that shared processes add to the mean log ratio of `counted_rounds`; else 0. Rounds
    of one set share an offset, as a process keeps its memory. The offset's variance is estimated
    from the means of the sets, with a prior (`PROCESS_SD`) that counts as `PROCESS_PRIOR_SETS`."""
    log_ratios_by_set: dict[int, list[float]] = {}
    for process_set, log_ratio in rounds:
        if process_set is not None:
            log_ratios_by_set.setdefault(process_set, []).append(log_ratio)
    if not log_ratios_by_set:
        return 0.0
    means = [statistics.fmean(log_ratios) for log_ratios in log_ratios_by_set.values()]
    grand_mean = statistics.fmean(means)
    squares = PROCESS_PRIOR_SETS * PROCESS_SD**2 + sum((mean - grand_mean) ** 2 for mean in means)
    offset_variance = squares / (PROCESS_PRIOR_SETS + len(means) - 1)
    return offset_variance / len(means)


def is_unevenly_disturbed(reference: Sequence[Segment], candidate: Sequence[Segment]) -> bool:
    """Whether other programs took the core from one side more often, or nearly always."""
    core_shares = []
    for segments in (reference, candidate):
        total_s, waited_s = 1e-12, 0.0
        for sample in itertools.chain(*counted_samples(segments)):
            total_s += sample.seconds
            waited_s += sample.waited_share * sample.seconds
        core_shares.append(max(1 - waited_s / total_s, 1e-3))
    core_log_ratio = abs(math.log(core_shares[0] / core_shares[1]))
    return min(core_shares) < LEAST_CORE_SHARE or core_log_ratio > MOST_CORE_LOG_RATIO


def warn_of_other_programs(segments: Iterable[Segment]) -> str:
    """A warning if other programs disturbed many samples of these segments; else empty."""
    samples = [sample for segment in segments for sample in samples_of_segment(segment)]
    disturbed = sum(sample.waited_share > CLEAN_WAIT_SHARE for sample in samples)
    disturbed_share = disturbed / max(len(samples), 1)
    if disturbed_share < WARN_SHARE:
        return ""
    during = f"during {disturbed_share:.0%} of the samples"
    return f"other programs took the core {during}: those were left out where possible"


def find_gpu_slowdown(
    reference: Sequence[Segment], candidate: Sequence[Segment]
) -> tuple[str, str] | None:
    """`reference` or `candidate`, whichever the GPU slowed in a round, and why. None if it slowed
    neither or both alike, and without sensors. Takes the two sides' segments in that round."""
    throttle_reasons, clocks_mhz = list[str](), list[list[int]]()
    for segments in (reference, candidate):
        readings = [reading for segment in segments for reading in segment.sensors or ()]
        if not readings:
            return None
        reasons = dict.fromkeys(reason for reading in readings for reason in reading.throttle)
        throttle_reasons.append(", ".join(reasons))
        clocks_mhz.append([r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None])
    if bool(throttle_reasons[0]) != bool(throttle_reasons[1]):
        slowed, other = "reference", "candidate"
        if throttle_reasons[1]:
            slowed, other = other, slowed
        reasons_text = "".join(throttle_reasons)
        return slowed, f"the {slowed} was throttled ({reasons_text}), the {other} was not"
    if not all(clocks_mhz):
        return None
    reference_mhz, candidate_mhz = [median(side_mhz) for side_mhz in clocks_mhz]
    difference = abs(reference_mhz - candidate_mhz) / max(reference_mhz, candidate_mhz, 1.0)
    if difference <= MOST_CLOCK_DIFFERENCE:
        return None
    clocks = f"{reference_mhz:.0f} MHz for the reference, {candidate_mhz:.0f} MHz for the candidate"
    slower = "candidate" if reference_mhz > candidate_mhz else "reference"
    return slower, f"median SM clocks differ by {difference:.1%}: {clocks}"


def explain_gpu_slowdown(segments: Iterable[Segment], reference: str, candidate: str) -> str | None:
    """A sentence if the GPU slowed one side in more than half of the rounds, else None."""
    rounds = rounds_with_both(segments, reference, candidate)
    slowdowns = [slowdown for sides in rounds if (slowdown := find_gpu_slowdown(*sides))]
    for side in ("reference", "candidate"):
        reasons = [reason for slowed_side, reason in slowdowns if slowed_side == side]
        if 2 * len(reasons) > len(rounds):
            reason = statistics.mode(reasons)
            return f"the {side} was held back in {len(reasons)} of {len(rounds)} rounds: {reason}"
    return None


def charge_deferred_work(
    segments: Sequence[Segment], return_times_s: Mapping[tuple[str, str, int], Sequence[float]]
) -> list[Segment]:
    """The segments of one round and workload, with deferred work added to each sample. Returning a
    result is a copy. Time beyond the copy of the baseline's result counts as work; without a
    baseline in the round, the fastest side replaces it. `return_times_s`: as in `Timings`."""
    copy_s_by_side: dict[str, float] = {}
    for segment in segments:
        if seconds := return_times_s.get((segment.side, segment.workload, segment.round)):
            copy_s_by_side[segment.side] = median(seconds)
    usual_s = copy_s_by_side.get(BASELINE, min(copy_s_by_side.values(), default=0.0))
    charged = []
    for segment in segments:
        deferred_s = copy_s_by_side.get(segment.side, 0.0) - COPY_SLACK * usual_s - COPY_SLACK_S
        if deferred_s > 0:
            seconds = tuple(sample_s + deferred_s for sample_s in segment.seconds)
            segment = segment.model_copy(update={"seconds": seconds, "left_s": deferred_s})
        charged.append(segment)
    return charged
