"""From a measurement, or the log ratios of blocks, to the word of a verdict. Pure.

Against the baseline, a few rounds give an interval, and the interval gives the word
(`by_interval`). Two of our own binaries are timed block by block until the evidence suffices
(`by_evidence`). A timing that cannot be trusted has no speed (`invalid_verdict`, for `doubts`).

**The sequential rule.** A value is the log ratio of a block, log(reference time / candidate time):
above 0 the candidate is faster. The evidence is an e-value, the Bayes factor of a one-sided t test
whose prior on sigma is 1 / sigma (right-Haar). Without an effect it ever reaches E with probability
1 / E at most.

Of n values x_i, less the margin, let r = n mean(x)^2 / sum(x^2) = t^2 / (t^2 + v), v = n - 1, t
Student's statistic, and let the effect mean/sigma be normal with variance g. Then, with w = n g /
(1 + n g):

    two-sided   B = (1 + n g)^(-1/2) [(1 + t^2 / v) / (1 + t^2 / (v (1 + n g)))]^(n/2)
                  = (1 + n g)^(-1/2) (1 - w r)^(-n/2)
    posterior   (mean - w mean(x)) / sqrt(w sum(x^2) (1 - w r)) * n is Student's t with n degrees
    one-sided   e = 2 B P(effect > 0 | x) = 2 B T_n(sign(mean(x)) n sqrt(g r / (1 + n g (1 - r))))

In r nothing divides by a spread that may be zero. e stays below 2 (1 + n g)^((n-1)/2) for any t.

**Outliers.** A value further than three robust deviations from the median of all blocks is clipped
to that distance (`stats.winsorise`), so one bad block in five moves the mean little. If more than
three blocks in ten lie beyond, nothing is clipped. The clip touches 3 in 1,000 normal values, so
the bound on e nearly holds. For heavy tails, one block in five disturbed, and autocorrelation it is
simulated, not proven, with a look after every block (`tests/bench/VERDICT.md`). Disturbances must
hit both sides alike, so the side that starts is random.

**Shared processes.** Blocks of the same processes share an offset that more blocks do not average
out. Then `allowance` widens the margin by three standard deviations of this offset.

Sources: Rouder et al. 2009, "Bayesian t tests for accepting and rejecting the null hypothesis" (B);
Gronau, Ly and Wagenmakers 2020, "Informed Bayesian t-tests" (one side); Hendriksen, de Heide and
Grünwald 2021, "Optional stopping with Bayes factors" (right-Haar priors: stop whenever you like).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Literal

from loop.base.stats import (
    CONFIDENCE,
    MIN_VALUES,
    Clipped,
    median,
    ratio_interval,
    significant,
    t_cdf,
    times,
    winsorise,
)
from loop.model.causes import Cause
from loop.model.measurement import Measurement
from loop.model.target import Target, Workload
from loop.model.verdict import Against, NoSpeedVerdict, SpeedVerdict, is_vague
from loop.model.workloads import evaluate_work
from loop.timing import samples
from loop.timing.samples import MIN_ROUNDS, Pair, Timings, log_ratios


def confidence(comparisons: int) -> float:
    """Confidence of each interval, so that one session in 100 has a false verdict (Bonferroni).

    A verdict can be false at one end of its interval only. So each of `comparisons` may miss at
    either end in 1 / (100 comparisons) of all cases; a single one in 1 of 200.
    """
    return max(CONFIDENCE, 1 - 2 * (1 - CONFIDENCE) / comparisons)


def measurements(
    target: Target,
    pairs: Sequence[Pair],
    timed: Sequence[Workload],
    timings: Timings,
    confidence: float = CONFIDENCE,
) -> tuple[Measurement, ...]:
    """One for each pair and workload that has at least two rounds that count."""
    measurements = []
    for pair in pairs:
        for workload in timed:
            if len(log_ratios(timings.segments_of(workload.name), *pair.side_names)) >= MIN_ROUNDS:
                flops, moved = evaluate_work(target.flops, workload), evaluate_work(target.bytes, workload)
                measurement = measure_pair(
                    timings, pair, workload, flops=flops, moved=moved, confidence=confidence
                )
                measurements.append(measurement)
    return tuple(measurements)


def measure_pair(
    timings: Timings,
    pair: Pair,
    workload: Workload,
    *,
    flops: float | None = None,
    moved: float | None = None,
    confidence: float = CONFIDENCE,
) -> Measurement:
    """The measurement of a pair on a workload; `flops`, `moved`: operations and bytes of a call."""
    segments = timings.segments_of(workload.name)
    logs = log_ratios(segments, *pair.side_names)
    ratio, low, high = ratio_interval(logs, confidence, samples.process_variance(segments, *pair.side_names))
    ranged = is_vague((low, high))
    if ranged:
        ratio, low, high = math.exp(median(logs)), math.exp(min(logs)), math.exp(max(logs))

    def latency_s(side: str) -> float:
        """Seconds of one call: geometric mean of the segments' medians, outliers clipped."""
        logs = [samples.log_time([segment]) for segment in segments if segment.side == side]
        return math.exp(winsorise(logs).mean)

    def peak(side: str) -> int | None:
        peaks = timings.peak_bytes.get((side, workload.name))
        return int(median(peaks)) if peaks else None

    candidate_s = latency_s(pair.candidate.name)
    return Measurement(
        variant=pair.variant,
        workload=workload,
        against=pair.against,
        rounds=len(logs),
        outliers=winsorise(logs).clipped_count,
        ratio=ratio,
        interval=(low, high),
        ranged=ranged,
        reference_us=latency_s(pair.reference) * 1e6,
        candidate_us=candidate_s * 1e6,
        reference_peak_bytes=peak(pair.reference),
        candidate_peak_bytes=peak(pair.candidate.name),
        timed_by="itself" if pair.candidate.name in timings.self_timed_sides else "loop",
        flops_per_s=flops / candidate_s if flops else None,
        bytes_per_s=moved / candidate_s if moved else None,
        dropped=len(samples.rounds_with_both(segments, *pair.side_names)) - len(logs),
        held_back=samples.explain_gpu_slowdown(segments, *pair.side_names),
    )


def noise_between_rounds(logs_by_workload: Iterable[Sequence[float]]) -> float | None:
    """Median over workloads of the standard deviation of a round's log ratio; None without two rounds."""
    deviations = [stdev(winsorise(logs).values) for logs in logs_by_workload if len(logs) > 1]
    return median(deviations) if deviations else None


MARGIN = 0.01
"""A difference below one per cent counts as none."""
SAME = 2 * MARGIN
"""`same` needs a difference within twice the margin."""
G = 1.0
"""Prior variance of the effect (mean / sigma)."""
MIN_BLOCKS = 8
"""Fewest blocks whose evidence can clearly exceed what a verdict needs."""
FAR = math.log(2)
"""A log ratio beyond this (twice or half the time) needs fewer blocks."""
FAR_BLOCKS = 4
"""Fewest blocks for such a large difference, if they agree."""
FAR_G = 100.0
"""Prior variance of such an effect (mean / sigma)."""
MAX_BLOCKS = 60
"""A pair that is undecided after this many blocks becomes `inconclusive`."""
MORE_BLOCKS = 150
"""The same limit for a candidate that may still be kept."""
SAME_EVIDENCE = 100.0
"""Evidence that `same` needs on either side."""
TOO_NOISY = 0.03
"""Above this standard deviation of blocks, the machine is called too noisy."""


Word = Literal["faster", "slower", "same", "inconclusive"]


def by_interval(measurement: Measurement) -> SpeedVerdict:
    """`faster` and `slower` need the whole interval beyond the margin, `same` all of it near 1.

    The number of rounds is fixed beforehand or limited by time; results so far never change it.
    """
    rounds, (low, high) = measurement.rounds, measurement.interval
    word: Word = "inconclusive"
    if measurement.held_back:
        reason = measurement.held_back
    elif measurement.ranged and rounds < MIN_VALUES:
        range_ = f"they gave {times(low)} to {times(high)}"
        reason = f"{rounds} rounds are too few for an interval, {range_}: allow the step more time"
    elif measurement.ranged or is_vague(measurement.interval):
        remedy = "end what else runs on the machine, and measure again"
        reason = f"the machine is too noisy to judge: {remedy}"
    elif low > 1 + MARGIN or high < 1 / (1 + MARGIN):
        word, factor = ("faster", low) if low > 1 + MARGIN else ("slower", 1 / high)
        further = f"{factor - 1:.1%} {word}" if factor < 10 else f"{significant(factor)} times {word}"
        reason = f"at least {further}, at 99 % confidence"
    elif low > 1 / (1 + SAME) and high < 1 + SAME:
        word, reason = "same", f"within {SAME:.0%} either way, at 99 % confidence"
    elif rounds < MIN_VALUES:
        reason = f"{rounds} rounds are few: allow the step more time"
    else:
        reason = "the interval is too wide to tell"
    return speed_verdict(measurement, word, reason)


def speed_verdict(measurement: Measurement, word: Word, reason: str, e_value: float | None = None) -> SpeedVerdict:
    """The verdict on a measurement; `e_value`: its evidence, under the sequential rule only."""
    return SpeedVerdict(
        variant=measurement.variant,
        workload=measurement.workload.name,
        against=measurement.against,
        verdict=word,
        ratio=measurement.ratio,
        interval=measurement.interval,
        e_value=e_value,
        reason=reason,
    )


def tally_words(verdicts: Sequence[SpeedVerdict]) -> str:
    """`faster on 2, same on 1`."""
    words = [verdict.verdict for verdict in verdicts]
    return ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))


def invalid_verdict(variant: str, workload: str, against: Against, cause: Cause, reason: str) -> NoSpeedVerdict:
    """A verdict on a timing that cannot be trusted."""
    return NoSpeedVerdict(
        variant=variant, workload=workload, against=against, verdict="invalid", cause=cause, reason=reason
    )


@dataclass(frozen=True)
class Decision:
    """The verdict that the blocks so far support."""

    verdict: Word
    """`faster` or `slower`: beyond the margin. `same`: within twice the margin."""
    e_value: float
    """Evidence for the verdict; for `inconclusive`, the higher of those for faster and slower."""
    reason: str
    """One sentence."""


def needed_evidence(workloads: int, candidate: int = 0) -> float:
    """The e-value for `faster` and `slower`: one false in 1,000 a workload, one in 100 a session.

    For the k-th `candidate` of a campaign, `faster` needs 20 k (k + 1) a workload. The shares 1 /
    (20 k (k + 1)) of all k add up to 1/20. So at most one campaign in 20 keeps anything false.
    """
    return max(1000.0, 100.0 * workloads, 20.0 * candidate * (candidate + 1) * workloads)


def e_value(logs: Sequence[float], above: float, variance: float = G) -> float:
    """Evidence that the mean of `logs` (finite) is above `above`: 1 is none, below 1 is against.

    `variance`: prior variance of the effect.
    """
    count = len(logs)
    values = [value - above for value in logs]
    scale = max(map(abs, values), default=0.0)
    share = 0.0
    """n mean^2 / sum of squares, 0 to 1, with the sign of the mean; scaled against underflow."""
    if scale:
        scaled = [value / scale for value in values]
        total = math.fsum(scaled)
        share = total * total / (count * math.fsum(value * value for value in scaled))
        share = math.copysign(min(share, 1.0), total)
    odds = count * variance
    log_factor = -0.5 * math.log1p(odds) - count / 2 * math.log1p(-odds / (1 + odds) * abs(share))
    argument = count * math.sqrt(variance * abs(share) / (1 + odds * (1 - abs(share))))
    positive = t_cdf(math.copysign(argument, share), count) if count else 0.5
    return math.exp(min(log_factor, 700.0)) * 2 * positive


def allowance(variance: float) -> float:
    """How far to widen the margin for the variance that blocks share: misses 1 in 1,000 cases."""
    return 3 * math.sqrt(variance)


def by_evidence(
    logs: Sequence[float], workloads: int = 1, allowed: float = 0.0, candidate: int = 0, most: int = MAX_BLOCKS
) -> Decision | None:
    """The verdict that `logs` support; None: measure another block, if fewer than `most` exist.

    `workloads`: how many are compared; `allowed`: the `allowance`; `candidate`: number in a
    campaign.
    """
    decision = far_off(logs, needed_evidence(workloads, candidate))
    if decision is not None:
        return decision
    kept, needed = winsorise(logs), needed_evidence(workloads)
    faster, slower = _evidence(kept, math.log1p(MARGIN) + allowed)
    if len(logs) >= MIN_BLOCKS:
        same, when = min(_evidence(kept, allowed - math.log1p(SAME))), f"to 1 after {len(logs)} blocks"
        if faster >= needed_evidence(workloads, candidate):
            return Decision("faster", faster, f"more than {MARGIN:.0%} faster: evidence {faster:,.0f} {when}")
        if slower >= needed:
            return Decision("slower", slower, f"more than {MARGIN:.0%} slower: evidence {slower:,.0f} {when}")
        if same >= SAME_EVIDENCE:
            return Decision("same", same, f"within {SAME:.0%} either way: evidence {same:,.0f} {when}")
    if len(logs) < most:
        return None
    nearest = max(faster, slower)
    spread = stdev(kept.values) if len(logs) > 1 else 0.0
    if spread > TOO_NOISY:
        remedy = "end what else runs on the machine, or measure longer"
        reason = f"too noisy to judge: blocks differ by {spread:.1%} (sd); {remedy}"
    elif len(logs) < MIN_BLOCKS:
        reason = f"{len(logs)} of the {MIN_BLOCKS} blocks that a verdict needs: measure longer"
    else:
        reason = f"evidence {nearest:,.1f} to 1 after {len(logs)} blocks, {needed:,.0f} needed: measure longer"
    return Decision("inconclusive", nearest, reason)


def conclude_now(logs: Sequence[float], workloads: int = 1, allowed: float = 0.0, candidate: int = 0) -> Decision:
    """The verdict when no time is left for another block: `inconclusive` without evidence."""
    decision = by_evidence(logs, workloads, allowed, candidate, most=0)
    assert decision is not None
    return decision


def far_off(logs: Sequence[float], needed: float) -> Decision | None:
    """The verdict if the time evidently doubled or halved, which few blocks show; else None.

    `needed`: e-value. The prior allows effects of many sigma; without an effect, evidence is near
    0.
    """
    if len(logs) < FAR_BLOCKS:
        return None
    sides: tuple[tuple[Word, Sequence[float]], ...] = (("faster", logs), ("slower", [-value for value in logs]))
    for word, values in sides:
        evidence = e_value(winsorise(values).values, FAR, FAR_G)
        if evidence >= needed:
            reason = f"more than twice as {word.replace('er', '')}: evidence {evidence:,.0f} to 1"
            return Decision(word, evidence, f"{reason} after {len(logs)} blocks")
    return None


def _evidence(kept: Clipped, above: float) -> tuple[float, float]:
    """Evidence that the mean is above `above`, and that it is below `-above`."""
    return e_value(kept.values, above), e_value([-value for value in kept.values], above)
