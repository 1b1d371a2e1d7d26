"""From log ratios to a measurement: the mean of the rounds, with its interval."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from loop.base.stats import CONFIDENCE, clipped, median, ratio_interval
from loop.model.measurement import Measurement, Segment
from loop.model.target import Target, Workload
from loop.model.verdict import is_vague
from loop.model.workloads import counted
from loop.timing import samples
from loop.timing.samples import MIN_ROUNDS, Pair, Timings, log_ratios


def confidence(comparisons: int) -> float:
    """Of each interval, so that one verdict in 100 sessions is false at most (Bonferroni).

    A verdict can be false at one end of its interval only. So each of `comparisons` may miss at either end in
    1 / (100 comparisons) of all cases; a single one in 1 of 200, as ever.
    """
    return max(CONFIDENCE, 1 - 2 * (1 - CONFIDENCE) / comparisons)


def measurements(
    target: Target,
    pairs: Sequence[Pair],
    timed: Sequence[Workload],
    timings: Timings,
    confidence: float = CONFIDENCE,
) -> tuple[Measurement, ...]:
    """One a pair and workload that both sides were timed on for two rounds at least."""
    return tuple(
        measured(
            timings,
            pair,
            workload,
            flops=counted(target.flops, workload),
            moved=counted(target.bytes, workload),
            confidence=confidence,
        )
        for pair in pairs
        for workload in timed
        if len(log_ratios(timings.of(workload.name), *pair.sides)) >= MIN_ROUNDS
    )


def measured(
    timings: Timings,
    pair: Pair,
    workload: Workload,
    *,
    flops: float | None = None,
    moved: float | None = None,
    confidence: float = CONFIDENCE,
) -> Measurement:
    """The measurement of one pair on one workload; `flops`, `moved`: operations and bytes of a call."""
    segments = timings.of(workload.name)
    logs = log_ratios(segments, *pair.sides)
    ratio, low, high = ratio_interval(logs, confidence, samples.process_variance(segments, *pair.sides))
    ranged = is_vague((low, high))
    if ranged:
        ratio, low, high = math.exp(median(logs)), math.exp(min(logs)), math.exp(max(logs))
    candidate_s = _latency(segments, pair.candidate.name)
    return Measurement(
        variant=pair.variant,
        workload=workload,
        against=pair.against,
        rounds=len(logs),
        outliers=clipped(logs).beyond,
        ratio=ratio,
        interval=(low, high),
        ranged=ranged,
        reference_us=_latency(segments, pair.reference) * 1e6,
        candidate_us=candidate_s * 1e6,
        reference_peak_bytes=_peak(timings, pair.reference, workload),
        candidate_peak_bytes=_peak(timings, pair.candidate.name, workload),
        timed_by="itself" if pair.candidate.name in timings.own_clock else "loop",
        flops_per_s=flops / candidate_s if flops else None,
        bytes_per_s=moved / candidate_s if moved else None,
        dropped=len(samples.rounds_of(segments, *pair.sides)) - len(logs),
        held_back=samples.held_back(segments, *pair.sides),
    )


def _peak(timings: Timings, side: str, workload: Workload) -> int | None:
    peaks = timings.peaks.get((side, workload.name))
    return int(median(peaks)) if peaks else None


def _latency(segments: Iterable[Segment], side: str) -> float:
    """Seconds of one call: the geometric mean of the segments' medians, outliers pulled in as in the ratio."""
    logs = [samples.log_time([segment]) for segment in segments if segment.side == side]
    return math.exp(fmean(clipped(logs).values))


def noise(logs_by_workload: Iterable[Sequence[float]]) -> float | None:
    """Median over workloads of the standard deviation of a round's log ratio; None without two rounds."""
    deviations = [stdev(clipped(logs).values) for logs in logs_by_workload if len(logs) > 1]
    return median(deviations) if deviations else None
