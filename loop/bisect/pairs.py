"""What pairs of a commit and the good end say: log ratios, above 0 is slower. Pure.

Builds before the step are on one level, those from it on on another. A build is off its level by chance: pairs
scatter (variance s^2 / n of their mean), and code that lies elsewhere is faster or slower by itself (*spread*, the
same in each pair of that build). Each build votes for its side by the log likelihood ratio of both levels,

    (mean - middle of the levels) * step / (spread^2 + s^2 / n + variance of the middle)

and the score of a gap is the sum of the votes of the builds above it. Levels and spread are those of the best gap.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, stdev

from loop.base.ratios import significant
from loop.base.stats import clipped, median
from loop.bisect.model import Key, Observations, SearchEnd, Try
from loop.model.bisect import Claim
from loop.timing.verdicts import MARGIN, e_value

SPREAD, STRICT = 0.005, 0.02
"""What builds differ by on their own (standard deviation), while a search goes on; before a commit is blamed,
until the builds that were seen rule it out."""
RULED_OUT = -2.33
"""Standard normal quantile: a spread is ruled out where builds would scatter this little in one case of 100."""
TELLING = 9
"""Builds, beyond two, that can rule out a spread."""
CLEAR, ALONE = 2.5, 4.0
"""Times the spread that a step exceeds, or nobody is blamed and no range either; where one side has one build."""
VOTES = math.log(249)
"""Votes that decide the side of a build."""
OUTLIER = 4.5
"""Median deviations beyond both levels at which a pair is pulled in."""
ENDS_FIRST, ENDS_LEAST, ENDS_MOST = 3, 8, 200
"""Pairs of the ends before they are judged; before they are called the same; before they are left open."""
DIFFER_Z, NONE_Z = 4.5, 2.6
"""Standard errors by which the ends differ; above which a difference is ruled out."""
ENOUGH = 1.5
"""How much more exact a neighbour is than its vote would need."""
APART, APART_Z = 0.065, 2.8
"""By how much a third level is apart from two others at least, and by how many standard errors of pairs."""
TOPPED = 1.75
"""How much more exact than the likely spread a neighbour gets, before builds are left open."""
ROOMY, WORN = 5.0, 2.0
"""Times the pairs that a vote needs, after which more would not decide it either."""
BATCH_MOST = 32
"""Pairs at a time."""
PART = 0.15
"""A further culprit brings at least this share of the whole step."""
ABOVE, BELOW = 0.3, 0.5
"""Shares of the step that a confirmed culprit exceeds; below which it is none."""
NEEDED, FUTILE = 100.0, 20.0
"""Evidence that confirms a culprit; that denies it."""
FIRST_PAIRS, MOST_PAIRS = 4, 60
"""Pairs of a confirmation before it is judged, and at most unless noise hides the step for longer."""
WHOLE, WHOLE_Z = 0.7, 1.645
"""A culprit that explains less of the whole step, by so many standard errors, is not alone."""
TODAY = "the bad end is as fast today, so what was slow may have been the machine or its environment"


@dataclass(frozen=True)
class TimedBuild:
    """One build: its mean log ratio to the good end, and the variance of that mean."""

    position: int
    mean: float
    variance: float


@dataclass(frozen=True)
class Fit:
    """Two levels, fitted to the builds of a stretch."""

    scores: Sequence[float]
    """Of each gap between two builds."""
    step: float
    spread: float
    off: float
    """Variance of the middle between the levels."""


def spread_of(residuals: Sequence[tuple[float, float]], quantile: float) -> float:
    """The spread of builds about two levels, from (squared residual, variance of the mean) of each build.

    Where builds have this spread, sum of residual^2 / (spread^2 + variance) is below what was seen in the share of
    cases that the standard normal `quantile` tells; 0: half of them. chi^2 by Wilson and Hilferty 1931.
    """
    freedom = len(residuals) - 2
    if freedom < (TELLING if quantile < 0 else 1):
        return math.inf if quantile < 0 else 0.0
    part = 2 / (9 * freedom)
    wanted = freedom * max(1 - part + quantile * math.sqrt(part), 0.01) ** 3

    def scatter(spread: float) -> float:
        return math.fsum(square / (spread**2 + variance + 1e-18) for square, variance in residuals)

    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if scatter(middle) > wanted else (low, middle)
    return high if scatter(0.0) > wanted else 0.0


class Pairs:
    """Log ratios of pairs, commit by commit. `low` and `high` are two positions that differ."""

    def __init__(self, observations: Observations) -> None:
        self.seen = observations
        self.fit = functools.cache(self._fit)
        self.builds = functools.cache(self._builds)

    @functools.cached_property
    def values(self) -> dict[int, list[float]]:
        """Pairs of each position, outliers pulled in to just beyond both levels."""
        raw = {at: values for at, values in self.seen.values.items() if values}
        middles = {at: median(values) for at, values in raw.items()}
        off = [abs(value - middles[at]) for at, values in raw.items() for value in values if len(values) > 2]
        if len(off) < 6:
            return raw
        reach, top = OUTLIER * max(median(off), 1e-4), middles.get(self.seen.problem.last, 0.0)
        low, high = min(0.0, top) - reach, max(0.0, top) + reach
        return {at: [min(max(value, low), high) for value in values] for at, values in raw.items()}

    @functools.cached_property
    def variance(self) -> float:
        """Variance of one pair about its build's mean, more where few pairs tell it."""
        series = [values for values in self.values.values() if len(values) > 1]
        freedom = sum(len(values) - 1 for values in series)
        squares = math.fsum((value - fmean(values)) ** 2 for values in series for value in values)
        return max(squares / freedom * (1 + 6 / freedom) if freedom else 0.0, 1e-12)

    def _builds(self, low: int, high: int) -> list[TimedBuild]:
        """The builds of a stretch. The good end is the reference of all pairs: its own mean is 0."""
        builds = [
            TimedBuild(at, fmean(values), self.variance / len(values))
            for at, values in sorted(self.values.items())
            if low <= at <= high and at > 0
        ]
        return [TimedBuild(0, 0.0, 0.0), *builds] if low == 0 else builds

    def _fit(self, low: int, high: int, *, strict: bool) -> Fit:
        builds = self.builds(low, high)
        noise, most = 4 * math.sqrt(self.variance), STRICT if strict else SPREAD
        levels, spread, off = (builds[0].mean, builds[-1].mean), min(most, noise), 0.0
        scores = [0.0] * (len(builds) - 1)
        for _ in range(4):  # Levels, spread and the best gap follow from each other.
            step, middle = max(levels[1] - levels[0], 1e-9), fmean(levels)
            votes = [  # However far off a build is, it votes like two.
                min(max(build.mean - middle, -step), step) * step / (spread**2 + build.variance + off)
                for build in builds
            ]
            scores = list(accumulate(-vote for vote in votes))[:-1]
            best = 1 + max(range(len(scores)), key=scores.__getitem__)
            sides, means, off = (builds[:best], builds[best:]), list[float](), 0.0
            for side in sides:
                weights = [1 / (spread**2 + build.variance) for build in side]
                total = math.fsum(weight * build.mean for weight, build in zip(weights, side, strict=True))
                means.append(total / sum(weights))
                off += 0.25 / sum(weights)
            levels = means[0], means[1]
            residuals = [
                ((build.mean - level) ** 2, build.variance)
                for side, level in zip(sides, levels, strict=True)
                for build in side
            ]
            likely = spread_of(residuals, 0.0)  # Numbers that never scatter have no layouts either:
            assumed = min(most, max(noise, 4 * likely))
            if strict:
                assumed = min(assumed, max(spread_of(residuals, RULED_OUT), SPREAD))
            spread = max(likely, assumed, 1e-6)
        return Fit(scores, max(levels[1] - levels[0], 1e-9), spread, off)

    def scores(self, low: int, high: int, *, strict: bool) -> tuple[Sequence[int], Sequence[float]]:
        """Positions of the builds, and the score of each gap between them; `strict`: builds may differ more."""
        return [build.position for build in self.builds(low, high)], self.fit(low, high, strict=strict).scores

    def clear(self, low: int, high: int, parent: int, suspect: int) -> bool:
        """Whether the step between two positions is well above what builds differ by.

        A build that is alone on its side may be off its level: there the step has to be further above that.
        """
        builds, fit = self.builds(low, high), self.fit(low, high, strict=True)
        alone = min(sum(b.position <= parent for b in builds), sum(b.position >= suspect for b in builds)) < 2
        return fit.step >= (ALONE if alone else CLEAR) * fit.spread

    def batch(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Pairs to add to a build that is not decided; 0 where more would not tell more."""
        count, fit = self.seen.count(position), self.fit(low, high, strict=strict)
        room = fit.step**2 / 2 / VOTES - fit.spread**2 - fit.off
        wanted = self.variance / max(room, fit.spread**2 / 2, 1e-12)
        if count >= (ROOMY * wanted + 2 if room > fit.spread**2 / 2 else WORN * wanted):
            return 0
        return min(max(1, math.ceil(wanted / 3), count // 4), BATCH_MOST)

    def enough(self, low: int, high: int) -> tuple[int, int]:
        """Pairs of a neighbour at a time, and at most. A dozen rule out a spread that hides the step."""
        step, spread = self.fit(low, high, strict=True).step, self.fit(low, high, strict=False).spread
        batch = min(max(1, math.ceil(ENOUGH * self.variance * 2 * VOTES / step**2)), BATCH_MOST)
        return batch, math.ceil(TOPPED * self.variance / spread**2)

    def whole(self, low: int, high: int) -> tuple[float, float]:
        """How much slower the upper position is than the lower one, and the standard error of pairs alone."""
        ends = {build.position: build for build in self.builds(low, high)}
        return ends[high].mean - ends[low].mean, math.sqrt(ends[high].variance + ends[low].variance)

    def ends(self, low: int, high: int) -> Try | SearchEnd | None:
        """Observe both until they differ, or evidently do not."""
        ends = [end for end in (low, high) if end]
        for end in ends:
            if (missing := ENDS_FIRST - self.seen.count(end)) > 0:
                return self.seen.look(end, missing, "end: does the difference show today?")
        step, error = self.whole(low, high)
        count = min(map(self.seen.count, ends))
        begun = any(low < at < high for at in self.values)
        if step >= (3.0 if begun else DIFFER_Z) * error:
            return None
        if step <= -DIFFER_Z * error and -step > 4 * SPREAD:
            why = f"the good end is slower than the bad one, by {math.expm1(-step):.1%}: are they swapped?"
            return SearchEnd("no_regression", why, swapped=True)
        last = self.seen.problem.last
        least = math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self.whole(0, last)[0])
        if count >= ENDS_LEAST and step + NONE_Z * error < least:
            size = f"{math.expm1(step):+.2%} after {count} observations, surely below {math.expm1(least):.1%}"
            return SearchEnd("no_regression", f"not reproduced: {size}: {TODAY}")
        if count >= ENDS_MOST:
            sd, hidden = math.sqrt(self.variance), step + NONE_Z * error
            return SearchEnd("inconclusive", f"too noisy: pairs scatter by {sd:.1%}, {hidden:.1%} may be hidden")
        fewer = min(ends, key=self.seen.count)
        return self.seen.look(fewer, 1 + count // 8, f"end: the difference shows with z = {step / error:.1f}")

    def apart(self, low: int, high: int) -> int | None:
        """A position that is above the lower end and below the upper one for certain: there are two steps."""
        builds = {build.position: build for build in self.builds(low, high)}

        def clear(lower: TimedBuild, upper: TimedBuild) -> bool:
            error = math.sqrt(lower.variance + upper.variance)
            return upper.mean - lower.mean >= math.hypot(APART, APART_Z * error)

        least = 2 if self.variance > SPREAD**2 else 1
        inside = [at for at in builds if low < at < high and self.seen.count(at) >= least]
        both = [at for at in inside if clear(builds[low], builds[at]) and clear(builds[at], builds[high])]
        return max(both, key=self.seen.count) if both else None

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Fresh pairs are always asked for."""
        return False

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The culprit is slower than its parent by a share of the whole step."""
        return Claim(number=number, step=self.fit(low, high, strict=True).step, sd=math.sqrt(self.variance))

    def word(self, key: Key) -> tuple[str, float]:
        """What the fresh pairs say, once there are enough: `confirmed`, `failed` or `open`, and the evidence."""
        claim, values = self.seen.claims[key], self.seen.fresh.get((key, key[0]), [])
        if len(values) < FIRST_PAIRS:
            return "open", 1.0
        kept = clipped(values).values
        variance = min(max(1.0, (claim.step / max(claim.sd, 1e-12)) ** 2), 1e4)
        evidence = e_value(kept, ABOVE * claim.step, variance)
        if evidence >= NEEDED:
            return "confirmed", evidence
        against = e_value([-value for value in kept], -BELOW * claim.step, variance)
        noise = stdev(kept) / max(claim.step, 1e-12)
        over = len(values) >= max(MOST_PAIRS, math.ceil(40 * noise**2))
        return ("failed" if against >= FUTILE or over else "open"), evidence

    def confirm(self, key: Key, claim: Claim) -> Try:
        """More pairs of culprit and parent."""
        culprit, parent, _ = key
        count, problem = len(self.seen.fresh.get((key, culprit), ())), self.seen.problem
        names = f"{problem.name(culprit)} slower than {problem.name(parent)}"
        why = f"confirm: is {names} by over {math.expm1(ABOVE * claim.step):.1%}?"
        batch = max(FIRST_PAIRS - count, 1 + count // 8)
        return Try(problem.shown(culprit), batch, why, problem.shown(parent), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """The mean of the confirming pairs; whether what remains is clear of noise and of builds' own spread."""
        pairs = clipped(self.seen.fresh[key, key[0]]).values
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        whole, unsure = self.whole(low, high)
        sides = [ends for ends in ((low, key[1]), (key[0], high)) if len(self.builds(*ends)) > 1]
        spread = max((self.fit(*ends, strict=False).spread for ends in sides), default=SPREAD)
        off = math.sqrt(2 + 2 * WHOLE**2) * spread
        missing = WHOLE * whole - step
        return step, missing > WHOLE_Z * math.hypot(WHOLE * unsure, error, off)

    def said(self, step: float) -> str:
        """`+3.2% against its parent`, or `takes 4.01 times as long as its parent`."""
        if step < 1:
            return f"{math.expm1(step):+.1%} against its parent"
        return f"takes {significant(math.exp(step))} times as long as its parent"
