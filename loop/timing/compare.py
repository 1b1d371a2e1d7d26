"""From timings to measurements and verdicts. Pure: no clock, no disk."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from loop.base.stats import CONFIDENCE, FEWEST, clipped, median, ratio_interval
from loop.model.measurement import Measurement, Segment
from loop.model.target import Workload
from loop.model.verdict import TOO_WIDE, Against, SpeedVerdict
from loop.timing import device_health, disturbance

MARGIN = 0.01
"""A difference below one per cent is none."""
SAME = 2 * MARGIN
"""`same` needs a difference within twice the margin."""


@dataclass(frozen=True)
class Clocked:
    """What a measurement takes from outside the samples."""

    variant: str
    candidate: str
    """Name of the side that was timed for the variant."""
    workload: Workload
    against: Against
    reference: str
    """Name of the side that is compared with."""
    reference_peak_bytes: int | None
    candidate_peak_bytes: int | None
    own_clock: bool
    flops: float | None
    """Operations of one call."""
    confidence: float = CONFIDENCE
    """Of its interval."""


def confidence(comparisons: int, looks: int = 1) -> float:
    """Of each interval, so that one verdict in 100 sessions is false at most (Bonferroni).

    A verdict can be false at one end of its interval only. So each of `comparisons`, looked at `looks` times, may
    miss at either end in 1 / (100 comparisons looks) of all cases; a single one in 1 of 200, as ever.
    """
    return max(CONFIDENCE, 1 - 2 * (1 - CONFIDENCE) / (comparisons * looks))


def log_ratios(segments: Iterable[Segment], reference: str, candidate: str) -> list[float]:
    """One log(reference time / candidate time) a round, from the medians of the segments of one workload.

    Rounds in which one side was held back and the other was not do not count. Where other programs leave fewer
    than two, theirs count all the same: a busy machine gets an answer, if a vague one.
    """
    fair = [sides for sides in _rounds(segments, reference, candidate) if _throttled(*sides) is None]
    calm = [sides for sides in fair if disturbance.drop(*sides) is None]
    counting = calm if len(calm) > 1 else fair
    return [disturbance.log_time(theirs) - disturbance.log_time(ours) for theirs, ours in counting]


def _rounds(
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


def _throttled(reference: Sequence[Segment], candidate: Sequence[Segment]) -> device_health.Drop | None:
    """Why the GPU's sensors say that a round does not count."""
    theirs, ours = ([s.sensors for s in side if s.sensors is not None] for side in (reference, candidate))
    return device_health.drop(theirs, ours) if theirs and ours else None


PROCESS_SD = 0.006
"""Standard deviation of a ratio from one pair of processes to the next on a GPU, beyond what the rounds within one
pair show: the medians of a process on an H200 differ by up to 0.42 %, those of a pair by sqrt(2) as much."""


def process_variance(segments: Iterable[Segment], reference: str, candidate: str) -> float:
    """Variance of the mean log ratio that rounds in kept processes share; 0 where each round has fresh ones."""
    rounds = _rounds(segments, reference, candidate)
    sets = {ours[0].processes for _, ours in rounds if ours[0].processes is not None}
    return PROCESS_SD**2 / len(sets) if sets else 0.0


def held_back(segments: Iterable[Segment], reference: str, candidate: str) -> str | None:
    """What to say when the GPU held one side back in most rounds."""
    rounds = _rounds(segments, reference, candidate)
    drops = [drop for sides in rounds if (drop := _throttled(*sides)) is not None]
    persistent = device_health.persistent(drops, len(rounds))
    return persistent.message if persistent else None


def measured(segments: Sequence[Segment], clocked: Clocked) -> Measurement:
    """The measurement of one variant on one workload; `segments` are those of that workload."""
    sides = (clocked.reference, clocked.candidate)
    logs = log_ratios(segments, *sides)
    ratio, low, high = ratio_interval(logs, clocked.confidence, process_variance(segments, *sides))
    ranged = high > TOO_WIDE * low
    if ranged:
        ratio, low, high = math.exp(median(logs)), math.exp(min(logs)), math.exp(max(logs))
    candidate_s = _latency(segments, clocked.candidate)
    return Measurement(
        variant=clocked.variant,
        workload=clocked.workload,
        against=clocked.against,
        rounds=len(logs),
        outliers=clipped(logs).beyond,
        ratio=ratio,
        interval=(low, high),
        ranged=ranged,
        reference_us=_latency(segments, clocked.reference) * 1e6,
        candidate_us=candidate_s * 1e6,
        reference_peak_bytes=clocked.reference_peak_bytes,
        candidate_peak_bytes=clocked.candidate_peak_bytes,
        timed_by="itself" if clocked.own_clock else "loop",
        flops_per_s=clocked.flops / candidate_s if clocked.flops else None,
        dropped=len(_rounds(segments, *sides)) - len(logs),
        held_back=held_back(segments, *sides),
    )


def _latency(segments: Iterable[Segment], side: str) -> float:
    """Seconds of one call: the geometric mean of the segments' medians, outliers pulled in as in the ratio."""
    logs = [disturbance.log_time([segment]) for segment in segments if segment.side == side]
    return math.exp(fmean(clipped(logs).values))


def noise(logs_by_workload: Iterable[Sequence[float]]) -> float | None:
    """Median over workloads of the standard deviation of a round's log ratio; None without two rounds."""
    deviations = [stdev(clipped(logs).values) for logs in logs_by_workload if len(logs) > 1]
    return median(deviations) if deviations else None


def judge(measurement: Measurement) -> SpeedVerdict:
    """`faster` and `slower` need the whole interval beyond the margin, `same` all of it near 1.

    The number of rounds is fixed beforehand, or set by the time there is, never by what the rounds say.
    """
    low, high = measurement.interval
    word, reason = "inconclusive", _obstacle(measurement)
    if reason:
        pass
    elif low > 1 + MARGIN:
        word, reason = "faster", f"at least {low - 1:.1%} faster, at 99 % confidence"
    elif high < 1 / (1 + MARGIN):
        word, reason = "slower", f"at least {1 / high - 1:.1%} slower, at 99 % confidence"
    elif low > 1 / (1 + SAME) and high < 1 + SAME:
        word, reason = "same", f"within {SAME:.0%} either way, at 99 % confidence"
    elif measurement.rounds < FEWEST:
        reason = f"{measurement.rounds} rounds are few: allow the step more time"
    else:
        reason = "the interval is too wide to tell"
    return SpeedVerdict.model_validate(
        {
            "variant": measurement.variant,
            "workload": measurement.workload.name,
            "against": measurement.against,
            "verdict": word,
            "ratio": measurement.ratio,
            "interval": measurement.interval,
            "reason": reason,
        }
    )


def _obstacle(measurement: Measurement) -> str:
    """Why the rounds allow no verdict, whatever they say; empty when they do."""
    rounds, (low, high) = measurement.rounds, measurement.interval
    remedy = "end what else runs on the machine, and measure again"
    if measurement.held_back:
        return measurement.held_back
    if measurement.ranged and rounds < FEWEST:
        seen = f"they gave {low:.2f}x to {high:.2f}x"
        return f"{rounds} rounds are too few for an interval, {seen}: allow the step more time"
    if measurement.ranged or high > TOO_WIDE * low:
        return f"the machine is too noisy to judge: {remedy}"
    return ""
