"""From a measurement, or the log ratios of blocks, to the word of a verdict. Pure.

Against the baseline, a few rounds give an interval, and the interval gives the word
(`by_interval`). Two of our own binaries are timed block by block until the evidence suffices
(`by_evidence`). A timing that cannot be trusted has no speed (`invalid_verdict`, for `doubts`).

**The sequential rule.** A value is the log ratio of a block, log(reference time / candidate time):
above 0 the candidate is faster. The evidence is an e-value, the Bayes factor of a one-sided t test
with the prior 1 / sigma (right-Haar). Without an effect, P(it ever reaches E) is 1 / E at most.

Of n values x_i, less the margin, let r = n mean(x)^2 / sum(x^2) = t^2 / (t^2 + v), v = n - 1, t be
Student's statistic, and the effect mean/sigma be normal with variance g. With w = n g / (1 + n g):

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
out. Three standard deviations of it widen the margin, which misses 1 in 1,000 cases.

Sources: Rouder et al. 2009, "Bayesian t tests for accepting and rejecting the null hypothesis" (B);
Gronau, Ly and Wagenmakers 2020, "Informed Bayesian t-tests" (one side); Hendriksen, de Heide and
Grünwald 2021, "Optional stopping with Bayes factors" (right-Haar priors: stop whenever you like).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Literal

from loop.base.stats import CONFIDENCE, MIN_VALUES, ratio_interval, t_cdf, winsorise
from loop.model.causes import Cause
from loop.model.measurement import Against, Measurement, NoSpeedVerdict, SpeedVerdict, is_vague
from loop.model.target import Target, Workload
from loop.model.workloads import evaluate_work
from loop.report.format import significant, speedup_text
from loop.timing import samples
from loop.timing.samples import MIN_ROUNDS, Pair, Timings, log_ratios


def confidence(comparisons: int) -> float:
    """Confidence of each interval, so that one session in 100 has a false verdict (Bonferroni). A
    verdict can be false at one end of its interval only. So each of `comparisons` may miss at
    either end in 1 / (100 comparisons) of all cases; a single one in 1 of 200."""
    return max(CONFIDENCE, 1 - 2 * (1 - CONFIDENCE) / comparisons)


def measurements(
    target: Target,
    pairs: Sequence[Pair],
    workloads: Sequence[Workload],
    timings: Timings,
    confidence: float = CONFIDENCE,
) -> tuple[Measurement, ...]:
    """One for each pair and workload that has at least two rounds that count."""
    measured = []
    for pair, workload in itertools.product(pairs, workloads):
        if len(log_ratios(timings.segments_of(workload.name), *pair.side_names)) >= MIN_ROUNDS:
            work = evaluate_work(target.flops, workload), evaluate_work(target.bytes, workload)
            measured.append(measure_pair(timings, pair, workload, work, confidence))
    return tuple(measured)


Work = tuple[float | None, float | None]  # Operations and bytes of a call.


def measure_pair(
    timings: Timings,
    pair: Pair,
    workload: Workload,
    work: Work = (None, None),
    confidence: float = CONFIDENCE,
) -> Measurement:
    """The measurement of a pair on a workload with at least two rounds that count. If the interval
    says nothing (`is_vague`), `ratio` is the median of the rounds, `interval` their range."""
    segments, (flops, moved_bytes) = timings.segments_of(workload.name), work
    rounds = samples.counted_rounds(segments, *pair.side_names)
    ratios = [log_ratio for _, log_ratio in rounds]
    ratio, low, high = ratio_interval(ratios, confidence, samples.process_variance(rounds))
    is_range = is_vague((low, high))
    if is_range:
        ratio, low, high = map(math.exp, (median(ratios), min(ratios), max(ratios)))
    latencies_s = []  # Of a call: geometric mean of segments' lower quartiles, outliers clipped.
    for side in pair.side_names:
        log_times = [samples.log_time([segment]) for segment in segments if segment.side == side]
        latencies_s.append(math.exp(winsorise(log_times).mean))
    reference_s, candidate_s = latencies_s
    return Measurement(
        variant=pair.candidate.name,
        workload=workload,
        against=pair.against,
        rounds=len(ratios),
        ratio=ratio,
        interval=(low, high),
        ranged=is_range,
        reference_us=reference_s * 1e6,
        candidate_us=candidate_s * 1e6,
        timed_by="itself" if pair.candidate.name in timings.self_timed_sides else "loop",
        flops_per_s=flops / candidate_s if flops else None,
        bytes_per_s=moved_bytes / candidate_s if moved_bytes else None,
        held_back=samples.explain_gpu_slowdown(segments, *pair.side_names),
    )


def noise_between_rounds(log_ratios_by_workload: Iterable[Sequence[float]]) -> float | None:
    """Median over workloads of the rounds' standard deviation (log ratios); None for one round."""
    several = [ratios for ratios in log_ratios_by_workload if len(ratios) > 1]
    deviations = [stdev(winsorise(ratios).values) for ratios in several]
    return median(deviations) if deviations else None


MARGIN = 0.01  # A difference below one per cent counts as none.
SAME_MARGIN = 2 * MARGIN  # `same` needs a difference within twice the margin.
MIN_BLOCKS = 8  # Fewest blocks whose evidence can clearly exceed what `faster` and `slower` need.
WIDE_SAME_BLOCKS = 6  # The same for `same` within more than SAME_MARGIN, which needs less evidence.
MAX_BLOCKS = 60  # A pair that is undecided after this many blocks stays `inconclusive`.
MORE_BLOCKS = 150  # The same limit for a candidate that may still be kept.
SAME_EVIDENCE = 100.0  # Evidence that `same` needs on either side.
FUTILE_BLOCKS, FUTILE_EVIDENCE = 2 * MIN_BLOCKS, 100.0
"""Fewest blocks, and evidence, after which a candidate that is not faster is no longer timed."""
TOO_NOISY_SD = 0.03  # Above this standard deviation of blocks, the machine is called too noisy.

Word = Literal["faster", "slower", "same", "inconclusive"]


def by_interval(measurement: Measurement) -> SpeedVerdict:
    """`faster` and `slower` need the whole interval beyond the margin, `same` all of it near 1;
    else, or if the GPU slowed one side, `inconclusive`. Results change no number of rounds."""
    rounds, (low, high) = measurement.rounds, measurement.interval
    word: Word = "inconclusive"
    if measurement.held_back:  # A sentence: the GPU slowed one side.
        reason = measurement.held_back
    elif measurement.ranged and rounds < MIN_VALUES:  # `interval` is only the rounds' range.
        range_ = f"they gave {speedup_text(low)} to {speedup_text(high)}"
        reason = f"{rounds} rounds are too few for an interval, {range_}: measure more"
    elif measurement.ranged or is_vague(measurement.interval):
        remedy = "end what else runs on the machine, and measure again"
        reason = f"the machine is too noisy to judge: {remedy}"
    elif low > 1 + MARGIN or high < 1 / (1 + MARGIN):
        word, factor = ("faster", low) if low > 1 + MARGIN else ("slower", 1 / high)
        further = f"{factor - 1:.1%} {word}"
        if factor >= 10:
            further = f"{significant(factor)} times {word}"
        reason = f"at least {further}, at 99 % confidence"
    elif low > 1 / (1 + SAME_MARGIN) and high < 1 + SAME_MARGIN:
        word, reason = "same", f"within {SAME_MARGIN:.0%} either way, at 99 % confidence"
    elif rounds < MIN_VALUES:
        reason = f"{rounds} rounds are few: measure more"
    else:
        reason = "the interval is too wide to tell"
    return speed_verdict(measurement, word, reason)


def speed_verdict(
    measurement: Measurement, word: Word, reason: str, e_value: float | None = None
) -> SpeedVerdict:
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
    """How many workloads have each verdict: `faster on 2, same on 1`."""
    words = [verdict.verdict for verdict in verdicts]
    return ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))


def invalid_verdict(
    variant: str, workload: str, against: Against, cause: Cause, reason: str
) -> NoSpeedVerdict:
    """A verdict on a timing that is untrue or unfair. A noisy one is `inconclusive` instead."""
    return NoSpeedVerdict(
        variant=variant,
        workload=workload,
        against=against,
        verdict="invalid",
        cause=cause,
        reason=reason,
    )


@dataclass(frozen=True)
class Decision:
    """The verdict that the blocks so far support."""

    verdict: Word  # `faster` or `slower`: beyond the margin. `same`: within twice the margin.
    e_value: float  # For the verdict; if `inconclusive`, the higher of faster and slower.
    reason: str
    log_ratios: Sequence[float]  # One for each block that counts.
    against_faster: float  # Evidence that a candidate is not faster; 0 before FUTILE_BLOCKS.


def needed_evidence(workloads: int, candidate_number: int = 0) -> float:
    """The e-value for `faster` and `slower`: one false in 1,000 a workload, one in 100 a session.
    For candidate number k of a campaign, `faster` needs 20 k (k + 1) a workload: 1 / (20 k (k + 1))
    of all k add up to 1/20: at most 1 campaign in 20 keeps anything false. 0: none, or `slower`."""
    for_campaign = 20.0 * candidate_number * (candidate_number + 1)
    return max(1000.0, 100.0 * workloads, for_campaign * workloads)


def e_value(log_ratios: Sequence[float], threshold: float, prior_variance: float = 1.0) -> float:
    """Evidence that the mean of `log_ratios` (finite) exceeds `threshold`: a Bayes factor. 1 is
    none, below 1 is against it. For the formulas see the module; `prior_variance` is g there."""
    count = len(log_ratios)
    values = [value - threshold for value in log_ratios]
    scale = max(map(abs, values), default=0.0)
    share, sign = 0.0, 1.0  # r of the formulas, and the sign of the mean.
    if scale:
        scaled = [value / scale for value in values]  # Squares of tiny values would underflow.
        total = math.fsum(scaled)
        squares = math.fsum(value * value for value in scaled)
        share, sign = min(total * total / (count * squares), 1.0), total
    spread = count * prior_variance  # n g
    shrinkage = spread / (1 + spread)  # w
    log_two_sided = -0.5 * math.log1p(spread) - count / 2 * math.log1p(-shrinkage * share)  # log B
    argument = count * math.sqrt(prior_variance * share / (1 + spread * (1 - share)))
    probability_above = t_cdf(math.copysign(argument, sign), count) if count else 0.5
    return 2 * math.exp(min(log_two_sided, 700.0)) * probability_above  # exp overflows above 709.


def by_evidence(
    log_ratios: Sequence[float],
    workloads: int = 1,
    extra_margin: float = 0.0,
    candidate_number: int = 0,
    same_within: float = SAME_MARGIN,
) -> Decision:
    """The verdict that the blocks' log ratios support; `inconclusive`: another block may decide.
    `workloads`: number compared; `extra_margin`: widens the margin; `candidate_number`: see above;
    `same_within`: greatest `same` (beyond SAME_MARGIN if it is unlikely to exceed MARGIN)."""
    blocks, needed_for_slower = len(log_ratios), needed_evidence(workloads)
    needed_for_faster = needed_evidence(workloads, candidate_number)
    values, margin = winsorise(log_ratios).values, math.log1p(MARGIN) + extra_margin
    negated, same_limit = [-value for value in values], extra_margin - math.log1p(same_within)
    faster, slower = e_value(values, margin), e_value(negated, margin)
    # `same`: the mean is above -same_within, and it is below same_within.
    same = min(e_value(values, same_limit), e_value(negated, same_limit))
    is_wide = same_within > SAME_MARGIN
    least_same_blocks = WIDE_SAME_BLOCKS if is_wide and not candidate_number else MIN_BLOCKS
    may_be_same = not is_wide or max(faster, slower) <= 1
    is_candidate = candidate_number > 0 and blocks >= FUTILE_BLOCKS
    against_faster = e_value(negated, -margin) if is_candidate else 0.0
    spread = stdev(values) if blocks > 1 else 0.0
    word: Word = "inconclusive"
    evidence, odds = max(faster, slower), f"to 1 after {blocks} blocks"
    if blocks >= MIN_BLOCKS and faster >= needed_for_faster:
        word, evidence = "faster", faster
        reason = f"more than {MARGIN:.0%} faster: evidence {faster:,.0f} {odds}"
    elif blocks >= MIN_BLOCKS and slower >= needed_for_slower:
        word, evidence = "slower", slower
        reason = f"more than {MARGIN:.0%} slower: evidence {slower:,.0f} {odds}"
    elif blocks >= least_same_blocks and same >= SAME_EVIDENCE and may_be_same:
        word, evidence = "same", same
        reason = f"within {same_within:.0%} either way: evidence {same:,.0f} {odds}"
    elif against_faster >= FUTILE_EVIDENCE:
        reason = f"not more than {MARGIN:.0%} faster: evidence {against_faster:,.0f} {odds}"
    elif spread > TOO_NOISY_SD:
        remedy = "end what else runs on the machine, or measure longer"
        reason = f"too noisy to judge: blocks differ by {spread:.1%} (sd); {remedy}"
    elif blocks < MIN_BLOCKS:
        reason = f"{blocks} of the {MIN_BLOCKS} blocks that a verdict needs: measure longer"
    else:
        reason = f"evidence {evidence:,.1f} {odds}, {needed_for_slower:,.0f} needed: measure longer"
    return Decision(word, evidence, reason, log_ratios, against_faster)
