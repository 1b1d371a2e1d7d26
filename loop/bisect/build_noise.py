"""How far builds differ that no commit made faster or slower, from what was observed of them. Pure.

Code that lies elsewhere runs faster or slower by itself: a build's mean is its commit's level plus an offset
with standard deviation tau plus noise, N(level, tau^2 + sigma^2 / n). Nobody knows tau beforehand. Here the
history falls into any number of stretches, each with a level of its own; between two builds it steps with a
probability c that grows with what lies between them. So a few steps, up or down, do not widen the estimate.

With levels uniform over a width R, weights w = 1 / (tau^2 + sigma^2 / n), W their sum and y the means, a stretch
has the likelihood

    l = prod (w / 2 pi)^(1/2) exp(-sum w (y - mean)^2 / 2) (2 pi / W)^(1/2) / R

and all ways to cut the history follow from a forward recursion over its builds: F_j = sum_i F_i c_i l(i, j) prod
(1 - c). So p(tau | builds) ~ p(tau) F_end(tau).

Sources: Barry and Hartigan 1992, "Product partition models for change point problems"; Fearnhead 2006, "Exact and
efficient Bayesian inference for multiple changepoint problems".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist

from loop.bisect.change_point import Unit

SDS = (0.0, 0.001, 0.002, 0.0035, 0.005, 0.007, 0.01, 0.014, 0.02, 0.03, 0.05, 0.1)
"""The values of tau that are considered, as log ratios."""
TYPICAL, SPREAD = 0.009, 0.8
"""Median and logarithmic width of their prior: two builds of the same source differ by about a hundredth."""
CHANGED, CHANGES = 0.03, 1.5
"""Steps that are expected between two neighbours, before anything is known, and more of them in the whole."""
LEAST = 0.01
"""Steps that are smaller are hardly looked for."""
STEP = 0.05
"""Steps of this size or larger are half of them."""


def _prior() -> tuple[float, ...]:
    """Log-normal; each value stands for what is nearest to it."""
    below = NormalDist(math.log(TYPICAL), SPREAD)
    edges = [below.cdf(math.log((one + other) / 2)) for one, other in pairwise(SDS)]
    return tuple(high - low for low, high in pairwise([0.0, *edges, 1.0]))


PRIOR = _prior()


@dataclass(frozen=True)
class _Build:
    """The mean of a build, its variance by noise, and whether a step lies before it."""

    mean: float
    noise: float
    stays: float
    """Log probability that there is none."""
    steps: float
    """Log probability that there is one."""


def shares(units: Sequence[Unit], sd: float, upper: Sequence[float], *, known: bool = False) -> tuple[float, ...]:
    """Probability of each of `SDS`, after what builds show.

    `units`: the builds. `sd`: of one observation about its build's level. `upper`: prior probability of a step at
    each position or before it. `known`: the build of position 0 is what observations are relative to; its mean is
    0, without noise.
    """
    line = _line([unit for unit in units if unit.count], sd, upper, known=known)
    means = [one.mean for one in line]
    width = math.log(max(max(means) - min(means), STEP)) if line else 0.0
    logs = [math.log(weight) + _likelihood(line, tau, width) for tau, weight in zip(SDS, PRIOR, strict=True)]
    best = max(logs)
    odds = [math.exp(log - best) for log in logs]
    return tuple(one / math.fsum(odds) for one in odds)


def _line(units: Sequence[Unit], sd: float, upper: Sequence[float], *, known: bool) -> list[_Build]:
    """The builds in the order of history."""
    places = [(unit.position, unit.mean, sd * sd / unit.count) for unit in units]
    places = sorted([*places, (0, 0.0, 0.0)] if known else places)
    line: list[_Build] = []
    before = places[0][0] if places else 0
    for position, mean, noise in places:
        expected = CHANGED + CHANGES * (upper[position] - upper[before]) if position != before else 0.0
        line.append(_Build(mean, noise, -expected, math.log(-math.expm1(-expected)) if expected else -math.inf))
        before = position
    return line


def _likelihood(line: Sequence[_Build], tau: float, width: float) -> float:
    """Log probability of these builds; `width`: the log of how far levels may lie apart."""
    builds = [(one.mean, 1 / (tau * tau + one.noise + 1e-16), one.stays, one.steps) for one in line]
    logs = [0.5 * math.log(weight / (2 * math.pi)) for _, weight, _, _ in builds]
    ways = [0.0]  # log F of the builds before each
    half = 0.5 * math.log(2 * math.pi) - width
    for last in range(len(builds)):
        terms, whole, first, second, constant = [], 0.0, 0.0, 0.0, half
        for start in range(last, -1, -1):
            mean, weight, stays, steps = builds[start]
            part = weight * mean
            whole, first, second = whole + weight, first + part, second + part * mean
            constant += logs[start]
            squares = second - first * first / whole
            terms.append(ways[start] + constant - 0.5 * (squares + math.log(whole)) + (steps if start else 0.0))
            constant += stays
        best = max(terms)
        ways.append(best + math.log(math.fsum([math.exp(term - best) for term in terms])))
    return ways[-1]


def size(step: float) -> float:
    """Prior density of the size of a step: half-Cauchy, without those that nobody would call a regression."""
    return -math.expm1(-((step / LEAST) ** 2)) * 2 / (math.pi * STEP * (1 + (step / STEP) ** 2)) + 1e-300


def typical(found: Sequence[float]) -> float:
    """The mean of tau."""
    return math.fsum(tau * share for tau, share in zip(SDS, found, strict=True))


def quantile(found: Sequence[float], share: float) -> float:
    """The least tau that is not exceeded with this probability."""
    below = accumulate(found)
    return next((tau for tau, upto in zip(SDS, below, strict=True) if upto >= share), SDS[-1])
