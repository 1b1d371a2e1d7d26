"""Is the culprit slower than its parent, or does it fail more often? Fresh observations, and evidence for it.
Pure.

Latency: pairs of culprit and parent, under the e-value of `timing/verdicts` with three more terms. Pairs of
one relink share what these two builds are off by (variance rho sigma^2, rho given), so that with K = sum n_u /
(1 + n_u rho) in the place of the count n, and r = c^2 / (K Q) from the weighted sums

    c = sum n_u mean_u / (1 + n_u rho)       Q = sum (squares within u + n_u mean_u^2 / (1 + n_u rho))
    w = g K / (1 + g K)
    e = 2 (1 + g K)^(-1/2) (1 - w r)^(-n/2) T_n(sign(c) sqrt(n g K r / (1 + g K (1 - r))))

The prior variance g of the effect is set from the search, before the first pair: with g = 1 six pairs are
needed for 100 to 1, however clear the step. With rho = 0 and g = 1 it is `verdicts.e_value`. Values are
clipped on both sides of what has to be exceeded, so that one outlier does not outweigh all others.

Correctness: a block is one run of each. With failure rates a of the culprit and b of the parent, fixed before
the block, and c = (a + b) / 2, its evidence is P_a(x) P_b(y) / (P_c(x) P_c(y)): 1 at most in the mean, whatever
rate both truly share (Turner, Ly and Grünwald 2024, "Generic e-variables for exact sequential k-sample tests").
"""

import math
from collections.abc import Iterable, Sequence
from statistics import stdev
from typing import Literal

from loop.base.stats import t_cdf
from loop.bisect.journal import Links
from loop.model.bisect import Claim

NEEDED = 100.0
"""Evidence that blames: where there is no such step it is reached in one case of a hundred at most."""
FUTILE = 20.0
"""Evidence that the step is smaller than a culprit's: the confirmation has failed."""
MOST_PAIRS = 60
"""A confirmation that is not decided by then has failed, unless noise hides the step for longer."""
ENOUGH = 40.0
"""Pairs, where noise and step are alike, after which it would have been decided."""
MOST_RUNS = 200
"""The same, runs of culprit and parent together."""
STRENGTH = 4.0
"""Runs that the rates expected by the search count for."""
LEAST = 0.02
"""No rate is expected nearer to 0 or 1."""
Word = Literal["confirmed", "failed", "open"]


def e_value(
    links: Links, above: float, ratio: float = 0.0, variance: float = 1.0, clip: float | None = None
) -> float:
    """Evidence that the mean log ratio, of which `links` has some from each relink, is above `above`."""
    far = math.inf if clip is None else clip
    series = [[min(max(value - above, -far), far) for value in values] for values in links.values() if values]
    count = sum(map(len, series))
    if not count:
        return 1.0
    scale = max(max(map(abs, values)) for values in series) or 1.0
    effective, share = _share([[value / scale for value in values] for values in series], ratio)
    odds = variance * effective
    log_factor = -0.5 * math.log1p(odds) - count / 2 * math.log1p(-odds / (1 + odds) * abs(share))
    argument = math.sqrt(count * odds * abs(share) / (1 + odds * (1 - abs(share))))
    return math.exp(min(log_factor, 700.0)) * 2 * t_cdf(math.copysign(argument, share), count)


def _share(series: Sequence[Sequence[float]], ratio: float) -> tuple[float, float]:
    """K, and r with the sign of the mean."""
    weights = [1 / (1 + len(values) * ratio) for values in series]
    sums = [math.fsum(values) for values in series]
    effective = math.fsum(weight * len(values) for weight, values in zip(weights, series, strict=True))
    first = math.fsum(weight * total for weight, total in zip(weights, sums, strict=True))
    squares = math.fsum(value * value for values in series for value in values)
    between = [
        (1 - weight) * total * total / len(values)
        for weight, total, values in zip(weights, sums, series, strict=True)
    ]
    total = squares - math.fsum(between)
    share = min(first * first / (effective * total), 1.0) if total > 0 else 0.0
    return effective, math.copysign(share, first)


def pairs_say(links: Links, claim: Claim) -> tuple[Word, float]:
    """Whether pairs of culprit and parent confirm the claim, and the evidence for it."""
    evidence = e_value(links, claim.above, claim.ratio, claim.variance, claim.clip)
    if evidence >= NEEDED:
        return "confirmed", evidence
    mirrored = {link: [-value for value in values] for link, values in links.items()}
    against = e_value(mirrored, -claim.below, claim.ratio, claim.variance, claim.clip)
    over = sum(map(len, links.values())) >= most_pairs(links, claim.below)
    return ("failed" if against >= FUTILE or over else "open"), evidence


def most_pairs(links: Links, below: float) -> int:
    """Pairs after which a confirmation ends: more where pairs scatter by more than a culprit's step, 2 `below`.

    At 40 (noise / step)^2 pairs a step as large as expected has been confirmed in nearly all cases.
    """
    values = [value for series in links.values() for value in series]
    if len(values) < 2 or below <= 0:
        return MOST_PAIRS
    return max(MOST_PAIRS, math.ceil(ENOUGH * (stdev(values) / (2 * below)) ** 2))


def runs_evidence(
    culprit: Iterable[float], parent: Iterable[float], rates: tuple[float, float]
) -> tuple[float, float]:
    """Evidence that the culprit fails more often, block by block: the highest it ever was, and the last.

    Values are 1 where a run passed. `rates`: failure rates of culprit and parent that are expected; each block
    moves them. Where they are the wrong way round a block says nothing.
    """
    highest = evidence = 1.0
    expected = [min(max(rate, LEAST), 1 - LEAST) for rate in rates]
    counts = [[STRENGTH * rate, STRENGTH * (1 - rate)] for rate in expected]
    for block in zip(culprit, parent, strict=False):
        of_culprit, of_parent = (failed / (failed + passed) for failed, passed in counts)
        if of_culprit > of_parent:
            evidence *= _factor(block, of_culprit, of_parent)
        highest = max(highest, evidence)
        for passed, count in zip(block, counts, strict=True):
            count[int(passed)] += 1
    return highest, evidence


def _factor(block: tuple[float, float], of_culprit: float, of_parent: float) -> float:
    """Evidence of one run of each."""
    both = (of_culprit + of_parent) / 2
    culprit, parent = block
    apart = _chance(culprit, of_culprit) * _chance(parent, of_parent)
    return apart / (_chance(culprit, both) * _chance(parent, both))


def _chance(passed: float, rate: float) -> float:
    return 1 - rate if passed else rate


def runs_say(culprit: Sequence[float], parent: Sequence[float], claim: Claim) -> tuple[Word, float]:
    """Whether runs of culprit and parent confirm that the culprit fails more often, and the evidence for it."""
    highest, last = runs_evidence(culprit, parent, claim.rates)
    if highest >= NEEDED:
        return "confirmed", highest
    over = last <= 1 / FUTILE or len(culprit) + len(parent) >= MOST_RUNS
    return ("failed" if over else "open"), highest
