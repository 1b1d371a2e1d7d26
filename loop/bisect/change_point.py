"""Where a series of noisy levels steps up: the posterior of a change point, in closed form. Pure.

The model. Commits before the step have the level a, commits from it on the level b > a. An observation of a
build is its commit's level, plus what this one build is off by (layout, variance rho sigma^2, rho given), plus
noise (variance sigma^2). Priors: a and b flat, sigma 1 / sigma, b > a. Where observations are ratios to the
good end's own binary, a is 0, save for what that build is off by.

A build with n observations of mean y weighs w = n / (1 + n rho). With W the sum of weights on a side, m its
weighted mean and

    S = sum of squares within builds + sum over both sides of w (y - m)^2

the integral over a, b and sigma is, for N observations and p flat means (2, or 1 where a is known),

    L = (W_a W_b)^(-1/2) S^(-(N - p) / 2) * T_(N-p)((m_b - m_a) / sqrt(S / (N - p) (1 / W_a + 1 / W_b)))

up to a constant that is the same for every step; T is the distribution of Student's t, and stands for b > a. W,
W m and W m^2 come from prefix sums, so that all steps together cost one pass over the builds. Between two
commits that were observed L is constant, and the prior decides.

Sources: Smith 1975, "A Bayesian approach to inference about a change-point in a sequence of random variables";
Box and Tiao 1973, section 2.4 (two means, one sigma) and 5.2 (random effects).
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean

from loop.base.stats import median, t_cdf

KNOWN = 1e9
"""Observations that a level counts as where it is known, and builds do not differ."""
FAR = 6.0
"""Beyond both levels by so many standard deviations an observation is none of either."""
PLENTY = 20
"""Degrees of freedom with which Student's t is as good as a transformed normal, to three digits."""
MANY = 3
"""So many observations of a build show whether one of them is an outlier."""


@dataclass(frozen=True)
class Unit:
    """The observations of one build."""

    position: int
    count: int
    mean: float
    squares: float
    """Sum of squares about the mean."""


@dataclass(frozen=True)
class Levels:
    """Both sides of a step at one place."""

    low: float
    """Mean before the step."""
    high: float
    """Mean from the step on."""
    sd: float
    """Of one observation about its level."""
    weights: tuple[float, float]
    """Effective observations of either side."""
    freedom: int
    """Degrees of freedom of `sd`."""

    @property
    def step(self) -> float:
        """How much higher the second level is."""
        return self.high - self.low

    @property
    def error(self) -> float:
        """Standard error of the step."""
        return self.sd * math.sqrt(sum(1 / weight for weight in self.weights))


@dataclass(frozen=True)
class _Sums:
    """Of one position: weight, weight * mean, weight * mean^2."""

    weight: float
    first: float
    second: float

    def plus(self, other: "_Sums") -> "_Sums":
        """Both together."""
        return _Sums(self.weight + other.weight, self.first + other.first, self.second + other.second)

    def less(self, other: "_Sums") -> "_Sums":
        """What is left without a part."""
        return _Sums(self.weight - other.weight, self.first - other.first, self.second - other.second)


NOTHING = _Sums(0.0, 0.0, 0.0)


class Fit:
    """All steps that the builds of some positions allow, good end first. Needs two positions, or one and a
    known level."""

    def __init__(
        self, units: Iterable[Unit], prior: Sequence[float], ratio: float = 0.0, *, known: bool = False
    ) -> None:
        """`prior`: of a step at each position. `ratio`: rho. `known`: the level of position 0 is 0."""
        used = [unit for unit in units if unit.count]
        self.ratio, self._prior = ratio, prior
        self.freedom = sum(unit.count for unit in used) - (1 if known else 2)
        self._within = math.fsum(unit.squares for unit in used)
        self._shift = 0.0 if known or not used else fmean(unit.mean for unit in used)
        at = {0: _Sums(weight_of(math.inf, ratio), 0.0, 0.0)} if known else {}
        for unit in used:
            at[unit.position] = at.get(unit.position, NOTHING).plus(_sums(unit, ratio, self._shift))
        self.positions = tuple(sorted(at))
        """Where something is known, in order."""
        self._upto = list(accumulate((at[position] for position in self.positions), _Sums.plus))
        self._floor = 1e-18 * max((abs(one.second / one.weight) for one in at.values()), default=0.0) + 1e-300

    def levels(self, split: int) -> Levels:
        """Both sides of a step between `positions[split]` and the next."""
        below, above = self._side(0, split + 1), self._side(split + 1, len(self.positions))
        low, high = below.first / below.weight, above.first / above.weight
        spread = self._squares(below, above) / max(self.freedom, 1)
        weights = (below.weight, above.weight)
        return Levels(low + self._shift, high + self._shift, math.sqrt(spread), weights, self.freedom)

    @functools.cached_property
    def likelihoods(self) -> tuple[float, ...]:
        """log L of a step between each two neighbouring positions."""
        return tuple(self._likelihood(split) for split in range(len(self.positions) - 1))

    @functools.cached_property
    def best(self) -> int:
        """The likeliest of these steps."""
        return max(range(len(self.likelihoods)), key=self.likelihoods.__getitem__)

    @functools.cached_property
    def likeliest(self) -> Levels:
        """Both sides of it."""
        return self.levels(self.best)

    @functools.cached_property
    def mass(self) -> list[float]:
        """Posterior of a step at each position of the history."""
        return posterior(self._prior, self.positions, self.likelihoods)

    def against_nothing(self, split: int, density: float) -> float:
        """log of the odds of a step there, of a size with this prior density, to no step at all."""
        if self.freedom < 1:
            return 0.0
        whole = self._side(0, len(self.positions))
        squares = max(self._within + whole.second - whole.first**2 / whole.weight, self._floor)
        nothing = -0.5 * math.log(whole.weight) - (self.freedom + 1) / 2 * math.log(math.pi * squares)
        step = self.likelihoods[split] - self.freedom / 2 * math.log(math.pi) + math.log(density)
        return step + math.lgamma(self.freedom / 2) - nothing - math.lgamma((self.freedom + 1) / 2)

    def _likelihood(self, split: int) -> float:
        if self.freedom < 1:
            return 0.0
        below, above = self._side(0, split + 1), self._side(split + 1, len(self.positions))
        squares = self._squares(below, above)
        error = math.sqrt(squares / self.freedom * (1 / below.weight + 1 / above.weight))
        t = (above.first / above.weight - below.first / below.weight) / error
        rest = -0.5 * math.log(below.weight * above.weight) - self.freedom / 2 * math.log(squares)
        return rest + (0.0 if _certain(t, self.freedom) else math.log(max(_below(t, self.freedom), 1e-300)))

    def _side(self, start: int, stop: int) -> _Sums:
        """Sums of a run of positions."""
        return self._upto[stop - 1].less(self._upto[start - 1]) if start else self._upto[stop - 1]

    def _squares(self, below: _Sums, above: _Sums) -> float:
        about = [side.second - side.first * side.first / side.weight for side in (below, above)]
        return max(self._within + max(about[0], 0.0) + max(about[1], 0.0), self._floor)


def _certain(t: float, freedom: int) -> bool:
    """Whether P(T > t) is below 1e-9, which this bounds, so that it need not be worked out."""
    return t > 1 and -freedom / 2 * math.log1p(t * t / freedom) < -21


def _below(t: float, freedom: int) -> float:
    """Probability that Student's t is below `t`; with many degrees of freedom by Wallace's normal deviate.

    Source: Wallace 1959, "Bounds on normal approximations to Student's and the chi-square distributions".
    """
    if freedom < PLENTY:
        return t_cdf(t, freedom)
    deviate = math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return 0.5 * math.erfc(-math.copysign(deviate, t) / math.sqrt(2))


def _sums(unit: Unit, ratio: float, shift: float) -> _Sums:
    """The sums of a build."""
    weight, mean = weight_of(unit.count, ratio), unit.mean - shift
    return _Sums(weight, weight * mean, weight * mean * mean)


def weight_of(count: float, ratio: float) -> float:
    """Effective observations of one build: never more than 1 / ratio, however often it is observed."""
    if math.isinf(count):
        return min(1 / ratio, KNOWN) if ratio else KNOWN
    return count / (1 + count * ratio)


def posterior(prior: Sequence[float], positions: Sequence[int], likelihoods: Sequence[float]) -> list[float]:
    """Probability of a step at each position after the first of `positions` up to the last; zeros elsewhere.

    `prior`: of every position. `likelihoods`: between neighbouring `positions`. Where the prior leaves nothing,
    every position counts alike. Sums to 1.
    """
    best, low, high = max(likelihoods), positions[0], positions[-1]
    found = [0.0] * len(prior)
    for likelihood, (before, after) in zip(likelihoods, pairwise(positions), strict=True):
        factor, span = math.exp(likelihood - best), slice(before + 1, after + 1)
        found[span] = [factor * weight for weight in prior[span]]
    total = math.fsum(found)
    if not total:
        return [1 / (high - low) if low < position <= high else 0.0 for position in range(len(prior))]
    return [value / total for value in found]


def z_score(levels: Levels) -> float:
    """The normal deviate that is as rare as this step where there is none, by Student's t."""
    if levels.freedom < 1:
        return 0.0
    t = levels.step / max(levels.error, 1e-300)
    tail = min(max(t_cdf(-abs(t), levels.freedom), 1e-300), 0.5)
    return math.copysign(-NormalDist().inv_cdf(tail), t)


def units_of(values: Mapping[int, Mapping[int, Sequence[float]]], bounds: tuple[float, float]) -> list[Unit]:
    """Each build's observations, less those outside the bounds (as `bounds_of` gives them).

    Of three and more of which most lie outside none is an outlier: this build is just further up or down, and they
    count as if they were at the bound.
    """
    return [
        _unit(position, _within(series, *bounds))
        for position, links in values.items()
        for series in links.values()
    ]


def _within(series: Sequence[float], low: float, high: float) -> list[float]:
    inside = [value for value in series if low <= value <= high]
    if len(series) >= MANY and 2 * len(inside) < len(series):
        return [min(max(value, low), high) for value in series]
    return inside


def _unit(position: int, series: Sequence[float]) -> Unit:
    mean = fmean(series) if series else 0.0
    return Unit(position, len(series), mean, math.fsum((value - mean) ** 2 for value in series))


def bounds_of(
    series: Iterable[Sequence[float]], low: float, high: float, layout_sd: float = 0.0
) -> tuple[float, float]:
    """Between these, observations may belong to either level; `low` and `high` are medians of the two ends.

    The scale is the median distance from a build's own median, less the one of each build that is 0 or nearest
    to it. With few of them it is uncertain, and the bounds are wider; builds that differ by themselves widen
    them too.
    """
    distances = sorted(distance for values in series if len(values) > 1 for distance in _distances(values))
    scale = 1.4826 * median(distances) if len(distances) >= MANY else 0.0
    if not scale or math.isnan(low + high):
        return -math.inf, math.inf
    far = FAR * ((1 + 4 / len(distances)) * scale + layout_sd)
    return min(low, high) - far, max(low, high) + far


def _distances(values: Sequence[float]) -> list[float]:
    middle = median(values)
    return sorted(abs(value - middle) for value in values)[1:]
