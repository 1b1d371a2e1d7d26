"""What pairs of a commit and the good end say: log ratios, above 0 is slower. Pure.

A build's mean is its commit's level, plus what this one build is off by (code that lies elsewhere is faster or
slower by itself; standard deviation tau), plus noise (variance s^2 / n). With weights w = 1 / (tau^2 + s^2 / n), W
their sum and m the weighted mean of a side of the step, a step in a gap has the likelihood

    prod w^(1/2) * prod over both sides of W^(-1/2) exp(-sum w (y - m)^2 / 2)

which is averaged over tau. The good end is the reference of all pairs: its own mean is 0, without noise.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, stdev
from typing import Any

from loop.base.ratios import significant
from loop.base.stats import clipped, median
from loop.bisect.model import Key, Observations, SearchEnd, Try, Word
from loop.model.bisect import Claim
from loop.timing.verdicts import MARGIN, e_value

NOISES = (0.0005, 0.001, 0.002, 0.0035, 0.005, 0.007, 0.01, 0.014, 0.02, 0.03, 0.05, 0.1)
"""Values of tau that are considered."""
TYPICAL, SPREAD = 0.006, 1.0
"""tau before anything is known: the median, and the standard deviation of its logarithm."""
SIZE = 0.05
"""Half of all steps are larger, before anything is known of one."""
NO_STEP = 0.1
"""Probability that there is no step, before anything is known."""
OUTLIER = 2.5
"""Beyond both levels by so many deviations a pair counts as if it were just there."""
ENDS_FIRST, ENDS_LEAST, ENDS_MOST = 3, 8, 200
"""Pairs of the ends before they are judged; before they are called the same; before they are left open."""
DIFFER_Z, NONE_Z = 4.5, 2.6
"""Standard errors by which the ends differ; above which a difference is ruled out."""
WORN_LEAST = 4
"""Pairs of a build before its noise is taken for that of the build itself."""
BATCH_MOST = 24
"""Pairs at a time."""
BESIDE = 6
"""Builds on each side of the step that show how far builds differ, before a range is the answer."""
CLEAR, UNTOLD = 5.0, 0.009
"""Where neighbours may be one binary, a step is at least so many times what builds differ by, and that is supposed
to be so much."""
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
class Unit:
    """One build: its mean log ratio to the good end, and the variance of that mean."""

    position: int
    count: int
    mean: float
    variance: float


class Latencies:
    """Log ratios of pairs, commit by commit. `low` and `high` are two positions that differ."""

    def __init__(self, observations: Observations) -> None:
        self.seen = observations
        self.fit = functools.cache(self._fit)
        self.units = functools.cache(self._units)

    @functools.cached_property
    def values(self) -> dict[int, list[float]]:
        """Pairs of each position, outliers pulled in to just beyond both levels."""
        raw = {at: list(values) for at, values in self.seen.values.items() if values}
        top = median(raw[self.seen.positions.last]) if self.seen.positions.last in raw else 0.0
        middles = {at: median(values) for at, values in raw.items()}
        residuals = [value - middles[at] for at, values in raw.items() for value in values if len(values) > 2]
        if len(residuals) < 6:
            return raw
        reach = OUTLIER * max(1.4826 * 1.2 * median([abs(value) for value in residuals]), 1e-4)
        low, high = min(0.0, top) - reach, max(0.0, top) + reach
        return {
            at: [
                min(max(value, max(low, middles[at] - 2 * reach)), min(high, middles[at] + 2 * reach))
                for value in values
            ]
            for at, values in raw.items()
        }

    @functools.cached_property
    def noise(self) -> tuple[float, int]:
        """Variance of one pair about its build's mean, and the degrees of freedom of that."""
        series = [(sum(values) / len(values), values) for values in self.values.values() if len(values) > 1]
        freedom = sum(len(values) - 1 for _, values in series)
        squares = sum((value - mean) ** 2 for mean, values in series for value in values)
        return max(squares / freedom if freedom else 0.0, 1e-12), freedom

    def _units(self, low: int, high: int) -> list[Unit]:
        """The builds of a stretch."""
        variance, freedom = self.noise
        variance *= 1 + 4 / max(freedom, 1)  # Few pairs know their noise badly.
        units = [
            Unit(at, len(values), fmean(values), variance / len(values))
            for at, values in sorted(self.values.items())
            if low <= at <= high and at > 0
        ]
        return [Unit(0, 0, 0.0, 0.0), *units] if low == 0 else units

    def _fit(self, low: int, high: int) -> tuple[list[float], list[float], float, float]:
        """The score of each gap, the share of each noise of `NOISES`, the probability of no step, and the step."""
        import numpy as np

        units = self.units(low, high)
        upper = [0.0, *accumulate(self.seen.positions.prior)]
        spans = np.array([upper[b.position + 1] - upper[a.position + 1] for a, b in pairwise(units)]).clip(1e-12)
        means = np.array([unit.mean for unit in units])
        noises = np.array(NOISES)[:, None]
        weights = 1 / (noises**2 + np.array([unit.variance for unit in units]))  # Noise, build.
        prior = -((np.log(noises / TYPICAL) / SPREAD) ** 2) / 2 + np.log(weights).sum(1, keepdims=True) / 2
        parts = [np.cumsum(weights * means**power, axis=1) for power in (0, 1, 2)]
        whole = [part[:, -1:] for part in parts]
        before = [part[:, :-1] for part in parts]
        after = [total - part for total, part in zip(whole, before, strict=True)]

        def level(sums: Sequence[Any]) -> Any:
            """Log likelihood of builds on one level, from their weights, weighted means and squares."""
            weight, first, second = sums
            return -(second - first**2 / weight) / 2 - np.log(weight) / 2

        step = after[1] / after[0] - before[1] / before[0]
        z = step / np.sqrt(1 / before[0] + 1 / after[0])
        up = np.log(np.array([[max(0.5 * math.erfc(-x / math.sqrt(2)), 1e-300) for x in row] for row in z]))
        size = np.log(2 * SIZE / math.pi / (SIZE**2 + step**2)) + math.log(2 * math.pi) / 2
        gaps = prior + level(before) + level(after) + up + size  # Noise, gap.
        scores = np.logaddexp.reduce(gaps, axis=0)
        each = np.logaddexp.reduce(gaps + np.log(spans), axis=1)
        best = np.logaddexp.reduce(each)
        odds = best - math.log(spans.sum()) - np.logaddexp.reduce((prior + level(whole))[:, 0])
        doubt = 1 / (1 + (1 - NO_STEP) / NO_STEP * math.exp(min(float(odds), 700.0)))
        shares = np.exp(gaps + np.log(spans) - best)
        return scores.tolist(), np.exp(each - best).tolist(), doubt, float((shares * step).sum())

    def tau(self, low: int, high: int) -> float:
        """What builds differ by on their own, the mean of what it may be."""
        if len(self.units(low, high)) < 2:
            return TYPICAL
        shares = self.fit(low, high)[1]
        return math.fsum(share * tau for share, tau in zip(shares, NOISES, strict=True))

    def whole(self, low: int, high: int) -> tuple[float, float]:
        """How much slower the upper position is than the lower one, and the standard error of pairs alone."""
        ends = {unit.position: unit for unit in self.units(low, high)}
        step = ends[high].mean - ends[low].mean
        return step, math.sqrt(ends[high].variance + ends[low].variance)

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
        if step <= -DIFFER_Z * error and -step > 4 * TYPICAL:
            why = f"the good end is slower than the bad one, by {math.expm1(-step):.1%}: are they swapped?"
            return SearchEnd("no_regression", why, swapped=True)
        entire = (low, high) == (0, self.seen.positions.last)
        least = math.log1p(MARGIN) if entire else PART * abs(self.whole(0, self.seen.positions.last)[0])
        if count >= ENDS_LEAST and step + NONE_Z * error < least:
            size = f"{math.expm1(step):+.2%} after {count} observations, surely below {math.expm1(least):.1%}"
            return SearchEnd("no_regression", f"not reproduced: {size}: {TODAY}")
        if count >= ENDS_MOST:
            sd = math.sqrt(self.noise[0])
            hidden = step + NONE_Z * error
            return SearchEnd("inconclusive", f"too noisy: pairs scatter by {sd:.1%}, {hidden:.1%} may be hidden")
        fewer = min(ends, key=self.seen.count)
        return self.seen.look(fewer, 1 + count // 8, f"end: the difference shows with z = {step / error:.1f}")

    def scores(self, low: int, high: int) -> tuple[Sequence[int], Sequence[float]]:
        """See above."""
        return [unit.position for unit in self.units(low, high)], self.fit(low, high)[0]

    def doubt(self, low: int, high: int) -> float:
        """Whether what is seen is the scatter of builds. Of builds that may be one binary, several tell no more
        than one does: there the step has to be far above that scatter."""
        _, _, doubt, step = self.fit(low, high)
        noise = min(UNTOLD, math.sqrt(self.noise[0]))  # A number that never scatters has no layouts either.
        clear = self.seen.problem.told or step >= CLEAR * max(noise, self.tau(low, high))
        return doubt if clear else max(doubt, 0.5)

    def batch(self, low: int, high: int, position: int, *, sure: bool) -> int:
        """A third of what decides between both levels; of a build that has told what it can, none."""
        variance, tau, count = self.noise[0], self.tau(low, high), self.seen.count(position)
        if count >= WORN_LEAST and variance / count < (0.5 if sure else 1.5) * tau**2:
            return 0
        step = max(self.fit(low, high)[3], 1e-6)
        wanted = 9 * variance / step**2
        return min(max(1, math.ceil(wanted / 3), count // 4), BATCH_MOST)

    def apart(self, low: int, high: int) -> int | None:
        """The position that is above the lower end and below the upper one for certain."""
        units = {unit.position: unit for unit in self.units(low, high)}

        def clear(lower: Unit, upper: Unit) -> bool:
            error = math.sqrt(lower.variance + upper.variance + 2 * TYPICAL**2)
            return upper.mean - lower.mean >= DIFFER_Z * error

        inside = [unit for at, unit in units.items() if low < at < high and unit.count >= ENDS_FIRST]
        both = [unit for unit in inside if clear(units[low], unit) and clear(unit, units[high])]
        return max(both, key=lambda unit: unit.count).position if both else None

    def beside(self, low: int, high: int, sides: tuple[int, int]) -> Try | None:
        """Try the nearest untried build beside the step, to learn what builds differ by.

        None where `BESIDE` of each side are known; the side with fewer comes first.
        """
        parent, suspect = sides
        looks = []
        batch = min(max(WORN_LEAST, math.ceil(self.noise[0] / self.tau(low, high) ** 2)), 2 * WORN_LEAST)
        for side in (range(parent, low - 1, -1), range(suspect, high + 1)):
            there = [at for at in side if at not in self.seen.broken]
            known = [at for at in there if at in self.values or at == 0]  # 0: the good end.
            fresh = [at for at in there if at not in known]
            if fresh and len(known) < BESIDE:
                looks.append((len(known), fresh[0]))
        if not looks:
            return None
        return self.seen.look(min(looks)[1], batch, "neighbour: what do builds differ by on their own?")

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Fresh pairs are always asked for."""
        return False

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The culprit is slower than its parent by a share of the whole step."""
        return Claim(number=number, step=max(self.fit(low, high)[3], 1e-6), sd=math.sqrt(self.noise[0]))

    def word(self, key: Key) -> tuple[Word, float]:
        """What the pairs say, once there are enough of them."""
        claim, values = self.seen.confirmations[key].claim, self.seen.fresh(key, key[0])
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
        count = len(self.seen.fresh(key, culprit))
        names = f"{self.seen.name(culprit)} slower than {self.seen.name(parent)}"
        why = f"confirm: is {names} by over {math.expm1(ABOVE * claim.step):.1%}?"
        wanted = self.seen.look(culprit, max(FIRST_PAIRS - count, 1 + count // 8), why)
        return Try(wanted.commit, wanted.batch, why, self.seen.positions.shown(parent), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """The mean of the confirming pairs; what remains has to be clear of noise and of builds' own scatter."""
        pairs = clipped(self.seen.fresh(key, key[0])).values
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        whole, unsure = self.whole(low, high)
        tau = max(self.tau(low, key[1]), self.tau(key[0], high))  # Further steps would widen that of the whole.
        off = math.sqrt(2 + 2 * WHOLE**2) * tau
        missing = WHOLE * whole - step
        return step, missing > WHOLE_Z * math.hypot(WHOLE * unsure, error, off)

    def said(self, step: float) -> str:
        """`+3.2% against its parent`, or `takes 4.01 times as long as its parent`."""
        if step < 1:
            return f"{math.expm1(step):+.1%} against its parent"
        return f"takes {significant(math.exp(step))} times as long as its parent"
