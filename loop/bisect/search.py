"""Which commit caused the regression: what to observe next, or the answer. Pure: measures nothing.

The next try depends on the probes alone, so an interrupted search continues from saved probes.

1. Both ends are observed until they differ.
2. The middle commit of those in question is observed until its side is decided.
3. Builds near the step show how far builds differ by chance. If this noise hides a commit's side,
   it stays
   in question: the answer is a range, or none.
4. Fresh observations of culprit and parent confirm the culprit. If they do not, the search
   continues
   without it, and gives up after the third.
5. If a culprit explains too little of the whole step, both sides of it are searched.

A gap lies between two observed commits. Its score is the log likelihood that the step lies in it
(`Pairs`, `Runs`). A commit's share is its part of exp(score), added to the next one if it does not
build.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean, stdev
from typing import Literal

from loop.base.stats import median, significant, winsorise
from loop.bisect.model import Culprit, Key, Problem, SearchEnd, Try
from loop.model.bisect import Claim, Probe
from loop.timing.verdicts import MARGIN, e_value

NEEDED, FUTILE = 100.0, 20.0
"""E-value that confirms a culprit; e-value that rejects it."""


class Observations:
    """The probes so far, by position; `Pairs` and `Runs` draw conclusions from them.

    Methods name a range of positions by its ends, `low` and `high`, which differ.
    """

    def __init__(self, problem: Problem, probes: Sequence[Probe]) -> None:
        """Ignores ratios to a commit other than the good end: they belong to other searches."""
        self.problem = problem
        self.values: dict[int, list[float]] = {}
        """Latency: log(time of the commit / time of the good end). Correctness: 1 for right, 0 for wrong."""
        self.claims: dict[Key, Claim] = {}
        """Confirmations, and what each has to show."""
        self.fresh: dict[tuple[Key, int], list[float]] = {}
        """Observations of a confirmation, by its key and position."""
        self.broken: dict[int, str] = {}
        """Positions that cannot be tested, and why."""
        self.built: set[int] = set()
        """Positions that have a build."""
        self.lost: list[str] = []
        """Reasons of the latest consecutive tries without a result."""
        self.observations = 0
        number = {commit: index for index, commit in enumerate(problem.commits)}
        for probe in probes:
            values = [value for value in probe.values if math.isfinite(value)]
            if probe.status == "lost" or (probe.status == "measured" and not values):
                self.lost.append(probe.reason or "no value came")
                continue
            self.lost = []
            position, against = (problem.place[number[name]] for name in (probe.commit, probe.against))
            if probe.status == "broken":
                self.broken[position] = probe.reason
                continue
            self.built |= {position, against}
            if probe.claim is not None:  # A confirmation may observe either side.
                key = max(position, against), min(position, against), probe.claim.number
                self.claims.setdefault(key, probe.claim)
                self.fresh.setdefault((key, position), []).extend(values)
            elif problem.metric == "correctness" or against == 0:
                self.values.setdefault(position, []).extend(values)
            else:
                continue
            self.observations += len(values)

    def look(self, position: int, batch: int, why: str) -> Try:
        """A request to observe a position `batch` times."""
        return Try(self.problem.shown(position), batch, why)

    def count(self, position: int) -> int:
        """Number of the search's observations at a position, without confirmations."""
        return len(self.values.get(position, ()))

    def apart(self, low: int, high: int) -> int | None:
        """A position that is certainly between two steps, if there is one."""
        return None

    def clear(self, low: int, high: int, parent: int, suspect: int) -> bool:
        """Whether the step between parent and suspect exceeds the noise between builds."""
        return True

    def enough(self, low: int, high: int) -> tuple[int, int]:
        """Observations of a neighbour of the step: at a time, and at most; 0 if useless."""
        return 0, 0

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Whether the suspect needs no confirmation; or the try that has to show this."""
        return False


SPREAD, STRICT = 0.005, 0.02
"""Noise between builds (standard deviation): assumed during a search; and before a commit is
blamed, until the observed builds rule it out."""
RULED_OUT = -2.33
"""Normal quantile: a spread is ruled out if builds scatter this little in 1 of 100 cases."""
TELLING = 9
"""Builds, beyond two, that are enough to rule out a spread."""
CLEAR, ALONE = 2.5, 4.0
"""Least step, in spreads, to blame a commit or a range; and if one side has a single build."""
VOTES = math.log(249)
"""Log odds that decide the side of a build."""
OUTLIER = 4.5
"""A pair this many median deviations beyond both levels is clipped."""
ENDS_FIRST, ENDS_LEAST, ENDS_MOST = 3, 8, 200
"""Pairs of the ends before a first look; before `no_regression`; before `inconclusive`."""
DIFFER_Z, NONE_Z = 4.5, 2.6
"""Standard errors by which ends differ; above which a difference is ruled out."""
ENOUGH, TOPPED = 1.5, 1.75
"""Precision of a neighbour, as a multiple of its vote's need, and of the likely spread."""
APART, APART_Z = 0.065, 2.8
"""Least distance of a third level from both others: log ratio, and standard errors of pairs."""
ROOMY, WORN = 5.0, 2.0
"""After this many times the pairs that a vote needs, more would not decide it either."""
BATCH_MOST = 32
"""Most pairs in one try."""
PART = 0.15
"""Least share of the whole step that a further culprit explains."""
ABOVE, BELOW = 0.3, 0.5
"""Share of the step that a confirmed culprit exceeds; below the other share it is rejected."""
FIRST_PAIRS, MOST_PAIRS = 4, 60
"""Pairs of a confirmation before a first look; and at most, unless noise needs more."""
WHOLE, WHOLE_Z = 0.7, 1.645
"""If a culprit explains less of the step, by this many standard errors, there are others."""
TODAY = "the bad end is as fast today, so what was slow may have been the machine or its environment"


@dataclass(frozen=True)
class TimedBuild:
    """One build: its mean log ratio to the good end, and the variance of this mean."""

    position: int
    mean: float
    variance: float


@dataclass(frozen=True)
class Fit:
    """Two levels, good and bad, fitted to the builds of a range."""

    scores: Sequence[float]
    """One for each gap between two builds."""
    step: float
    spread: float
    off: float
    """Variance of the midpoint between the levels."""


def spread_of(residuals: Sequence[tuple[float, float]], quantile: float) -> float:
    """The noise between builds, from (squared residual, variance of the mean) of each build.

    Solves sum of residual^2 / (spread^2 + variance) = the chi^2 quantile that belongs to the
    standard normal `quantile` (0: the median). chi^2 by Wilson and Hilferty 1931.
    """
    freedom = len(residuals) - 2
    if freedom < (TELLING if quantile < 0 else 1):
        return math.inf if quantile < 0 else 0.0
    part = 2 / (9 * freedom)
    wanted = freedom * max(1 - part + quantile * math.sqrt(part), 0.01) ** 3

    def scatter(spread: float) -> float:
        return math.fsum(square / (spread**2 + variance + 1e-18) for square, variance in residuals)

    if scatter(0.0) <= wanted:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if scatter(middle) > wanted else (low, middle)
    return high


class Pairs(Observations):
    """Log ratios of pairs at each commit: above 0 the commit is slower than the good end."""

    def __init__(self, problem: Problem, probes: Sequence[Probe]) -> None:
        super().__init__(problem, probes)
        self.fit = functools.cache(self._fit)
        self.builds = functools.cache(self._builds)

    @functools.cached_property
    def pulled(self) -> dict[int, list[float]]:
        """Pairs of each position, outliers clipped to just beyond both levels."""
        raw = {at: values for at, values in self.values.items() if values}
        middles = {at: median(values) for at, values in raw.items()}
        off = [abs(value - middles[at]) for at, values in raw.items() for value in values if len(values) > 2]
        if len(off) < 6:
            return raw
        reach, top = OUTLIER * max(median(off), 1e-4), middles.get(self.problem.last, 0.0)
        low, high = min(0.0, top) - reach, max(0.0, top) + reach
        return {at: [min(max(value, low), high) for value in values] for at, values in raw.items()}

    @functools.cached_property
    def variance(self) -> float:
        """Variance of one pair about its build's mean, enlarged if few pairs estimate it."""
        series = [values for values in self.pulled.values() if len(values) > 1]
        freedom = sum(len(values) - 1 for values in series)
        squares = math.fsum((value - fmean(values)) ** 2 for values in series for value in values)
        return max(squares / freedom * (1 + 6 / freedom) if freedom else 0.0, 1e-12)

    def _builds(self, low: int, high: int) -> list[TimedBuild]:
        """The builds of a range. The good end is the reference of all pairs, with mean 0."""
        builds = [
            TimedBuild(at, fmean(values), self.variance / len(values))
            for at, values in sorted(self.pulled.items())
            if low <= at <= high and at > 0
        ]
        return [TimedBuild(0, 0.0, 0.0), *builds] if low == 0 else builds

    def _fit(self, low: int, high: int, *, strict: bool) -> Fit:
        builds = self.builds(low, high)
        noise, most = 4 * math.sqrt(self.variance), STRICT if strict else SPREAD
        levels, spread, off = (builds[0].mean, builds[-1].mean), min(most, noise), 0.0
        scores = [0.0] * (len(builds) - 1)
        for _ in range(4):  # Iterate: levels, spread and best gap depend on each other.
            step, middle = max(levels[1] - levels[0], 1e-9), fmean(levels)
            votes = [  # Clipped: an outlier votes at most like two builds.
                min(max(build.mean - middle, -step), step) * step / (spread**2 + build.variance + off)
                for build in builds
            ]
            scores = list(accumulate(-vote for vote in votes))[:-1]
            best = 1 + max(range(len(scores)), key=scores.__getitem__)
            means, residuals, off = list[float](), list[tuple[float, float]](), 0.0
            for side in (builds[:best], builds[best:]):
                weights = [1 / (spread**2 + build.variance) for build in side]
                total = math.fsum(weight * build.mean for weight, build in zip(weights, side, strict=True))
                level = total / sum(weights)
                means.append(level)
                off += 0.25 / sum(weights)
                residuals += [((build.mean - level) ** 2, build.variance) for build in side]
            levels = means[0], means[1]
            likely = spread_of(residuals, 0.0)  # Without noise in pairs, builds differ little:
            assumed = min(most, max(noise, 4 * likely))
            if strict:
                assumed = min(assumed, max(spread_of(residuals, RULED_OUT), SPREAD))
            spread = max(likely, assumed, 1e-6)
        return Fit(scores, max(levels[1] - levels[0], 1e-9), spread, off)

    def scores(self, low: int, high: int, *, strict: bool) -> tuple[Sequence[int], Sequence[float]]:
        """Positions of the builds, and each gap's score; `strict`: assume more noise."""
        return [build.position for build in self.builds(low, high)], self.fit(low, high, strict=strict).scores

    def clear(self, low: int, high: int, parent: int, suspect: int) -> bool:
        """Whether the step between two positions clearly exceeds the noise between builds.

        A single build on one side may be off its level by chance, so the step has to be larger.
        """
        builds, fit = self.builds(low, high), self.fit(low, high, strict=True)
        alone = min(sum(b.position <= parent for b in builds), sum(b.position >= suspect for b in builds)) < 2
        return fit.step >= (ALONE if alone else CLEAR) * fit.spread

    def batch(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Pairs to add to a build that is not decided; 0 if more would not help."""
        count, fit = self.count(position), self.fit(low, high, strict=strict)
        room = fit.step**2 / 2 / VOTES - fit.spread**2 - fit.off
        wanted = self.variance / max(room, fit.spread**2 / 2, 1e-12)
        if count >= (ROOMY * wanted + 2 if room > fit.spread**2 / 2 else WORN * wanted):
            return 0
        return min(max(1, math.ceil(wanted / 3), count // 4), BATCH_MOST)

    def enough(self, low: int, high: int) -> tuple[int, int]:
        """Pairs of a neighbour at a time, and at most: a dozen rule out a spread that hides it."""
        step, spread = self.fit(low, high, strict=True).step, self.fit(low, high, strict=False).spread
        batch = min(max(1, math.ceil(ENOUGH * self.variance * 2 * VOTES / step**2)), BATCH_MOST)
        return batch, math.ceil(TOPPED * self.variance / spread**2)

    def whole(self, low: int, high: int) -> tuple[float, float]:
        """Log ratio of the upper position to the lower, and its standard error from pairs alone."""
        ends = {build.position: build for build in self.builds(low, high)}
        return ends[high].mean - ends[low].mean, math.sqrt(ends[high].variance + ends[low].variance)

    def ends(self, low: int, high: int) -> Try | SearchEnd | None:
        """Observe both ends until they differ, or evidently do not; None if they differ."""
        ends = [end for end in (low, high) if end]
        for end in ends:
            if (missing := ENDS_FIRST - self.count(end)) > 0:
                return self.look(end, missing, "end: does the difference show today?")
        step, error = self.whole(low, high)
        count = min(map(self.count, ends))
        begun = any(low < at < high for at in self.pulled)
        if step >= (3.0 if begun else DIFFER_Z) * error:
            return None
        if step <= -DIFFER_Z * error and -step > 4 * SPREAD:
            why = f"the good end is slower than the bad one, by {math.expm1(-step):.1%}: are they swapped?"
            return SearchEnd("no_regression", why, swapped=True)
        last = self.problem.last
        least = math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self.whole(0, last)[0])
        if count >= ENDS_LEAST and step + NONE_Z * error < least:
            size = f"{math.expm1(step):+.2%} after {count} observations, surely below {math.expm1(least):.1%}"
            return SearchEnd("no_regression", f"not reproduced: {size}: {TODAY}")
        if count >= ENDS_MOST:
            sd, hidden = math.sqrt(self.variance), step + NONE_Z * error
            return SearchEnd("inconclusive", f"too noisy: pairs scatter by {sd:.1%}, {hidden:.1%} may be hidden")
        fewer = min(ends, key=self.count)
        return self.look(fewer, 1 + count // 8, f"end: the difference shows with z = {step / error:.1f}")

    def apart(self, low: int, high: int) -> int | None:
        """A position certainly above the lower end and below the upper: there are two steps."""
        builds = {build.position: build for build in self.builds(low, high)}

        def clear(lower: TimedBuild, upper: TimedBuild) -> bool:
            error = math.sqrt(lower.variance + upper.variance)
            return upper.mean - lower.mean >= math.hypot(APART, APART_Z * error)

        least = 2 if self.variance > SPREAD**2 else 1
        inside = [at for at in builds if low < at < high and self.count(at) >= least]
        both = [at for at in inside if clear(builds[low], builds[at]) and clear(builds[at], builds[high])]
        return max(both, key=self.count, default=None)

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The claim that the culprit is slower than its parent by a share of the whole step."""
        return Claim(number=number, step=self.fit(low, high, strict=True).step, sd=math.sqrt(self.variance))

    def word(self, key: Key) -> tuple[str, float]:
        """Result of a confirmation so far: `confirmed`, `failed` or `open`, and its e-value."""
        claim, values = self.claims[key], self.fresh.get((key, key[0]), [])
        if len(values) < FIRST_PAIRS:
            return "open", 1.0
        kept = winsorise(values).values
        variance = min(max(1.0, (claim.step / max(claim.sd, 1e-12)) ** 2), 1e4)
        evidence = e_value(kept, ABOVE * claim.step, variance)
        if evidence >= NEEDED:
            return "confirmed", evidence
        against = e_value([-value for value in kept], -BELOW * claim.step, variance)
        noise = stdev(kept) / max(claim.step, 1e-12)
        over = len(values) >= max(MOST_PAIRS, math.ceil(40 * noise**2))
        return ("failed" if against >= FUTILE or over else "open"), evidence

    def confirm(self, key: Key, claim: Claim) -> Try:
        """Request more pairs of culprit and parent."""
        culprit, parent, _ = key
        count, problem = len(self.fresh.get((key, culprit), ())), self.problem
        names = f"{problem.name(culprit)} slower than {problem.name(parent)}"
        why = f"confirm: is {names} by over {math.expm1(ABOVE * claim.step):.1%}?"
        batch = max(FIRST_PAIRS - count, 1 + count // 8)
        return Try(problem.shown(culprit), batch, why, problem.shown(parent), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """Mean of the confirming pairs; and whether a significant part of the step remains."""
        pairs = winsorise(self.fresh[key, key[0]]).values
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        whole, unsure = self.whole(low, high)
        sides = [ends for ends in ((low, key[1]), (key[0], high)) if len(self.builds(*ends)) > 1]
        spread = max((self.fit(*ends, strict=False).spread for ends in sides), default=SPREAD)
        off = math.sqrt(2 + 2 * WHOLE**2) * spread
        missing = WHOLE * whole - step
        return step, missing > WHOLE_Z * math.hypot(WHOLE * unsure, error, off)

    def size(self, step: float) -> str:
        """`+3.2% against its parent`, or `takes 4.01 times as long as its parent`."""
        if step < 1:
            return f"{math.expm1(step):+.1%} against its parent"
        return f"takes {significant(math.exp(step))} times as long as its parent"


PLAIN = 0.005
"""Failure rate before the step, and pass rate after it, if all results are consistent."""
TWICE, ALIKE = 2, 4
"""First runs of a commit; runs of each end, all failing, before `no_regression`."""
NEVER, MOST = 60, 200
"""Runs of the bad end, all passing, before `no_regression`; runs before `inconclusive`."""
LEAST = 0.02
"""Rates of a confirmation stay at least this far from 0 and 1."""
DRIFTED = "so it is good today: what failed before may have come from the machine, the compiler or the inputs"


class Runs(Observations):
    """Runs at each commit; 1 is passed. Fits two rates only, those of the ends.

    Neighbours do not help, because code layout does not make builds fail.
    """

    def __init__(self, problem: Problem, probes: Sequence[Probe]) -> None:
        super().__init__(problem, probes)
        self.fit = functools.cache(self._fit)

    def plain(self, low: int, high: int) -> bool:
        """Whether no commit has both failed and passed so far."""
        inside = [runs for at, runs in self.values.items() if low <= at <= high]
        return all(all(runs) or not any(runs) for runs in inside)

    def ends(self, low: int, high: int) -> Try | SearchEnd | None:
        """Run both ends until the bad one evidently fails more often; then None."""
        for end in (high, low):
            if (missing := TWICE - self.count(end)) > 0:
                return self.look(end, missing, "end: does it fail today, and does the good end pass?")
        good, bad, plain = self.values[low], self.values[high], self.plain(low, high)
        if (plain and all(good) and not any(bad)) or runs_evidence(bad, good, (0.5, 0.05)) >= NEEDED:
            return None
        if (plain and all(bad) and not any(good)) or runs_evidence(good, bad, (0.5, 0.05)) >= NEEDED:
            why = "the good end fails and the bad one passes: are they swapped?"
            return SearchEnd("no_regression", why, swapped=True)
        least = min(len(good), len(bad))
        if least >= ALIKE and not any(good) and not any(bad):
            why = f"the good end fails as well, {len(good)} times of {len(good)}: it is not good today"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if len(bad) >= NEVER and all(bad):
            why = f"the bad end passed {len(bad)} times of {len(bad)}, {DRIFTED}"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if least >= MOST:
            rates = [f"{sum(not run for run in runs)} of {len(runs)}" for runs in (bad, good)]
            return SearchEnd("inconclusive", f"the bad end fails {rates[0]} times, the good one {rates[1]}")
        if all(good) and all(bad):
            end, why = high, "end: it passed so far, does it fail at times?"
        else:
            end, why = min((high, low), key=self.count), "end: it does not always fail, how often does it?"
        return self.look(end, TWICE + self.count(end) // 8, why)

    def _fit(self, low: int, high: int) -> tuple[list[int], list[float], tuple[float, float]]:
        """Positions with runs, each gap's score, failure rates before and after the best gap."""
        positions = [at for at in sorted(self.values) if low <= at <= high and self.values[at]]
        failed = [sum(not run for run in self.values[at]) for at in positions]
        passed = [sum(map(bool, self.values[at])) for at in positions]
        best, scores, rates = 0, [0.0], (PLAIN, 1 - PLAIN)
        for turn in range(3):  # Iterate: rates and best gap depend on each other.
            if not self.plain(low, high):
                start, end = (1, len(positions) - 1) if turn == 0 else (best + 1, best + 1)
                before, after = (sum(failed[:start]), sum(passed[:start])), (sum(failed[end:]), sum(passed[end:]))
                rates = (before[0] + 0.5) / (sum(before) + 10.5), (after[0] + 1) / (sum(after) + 2)
                rates = rates[0], max(rates[1], rates[0] + 0.01)
            votes = [
                f * math.log(rates[1] / rates[0]) + p * math.log((1 - rates[1]) / (1 - rates[0]))
                for f, p in zip(failed, passed, strict=True)
            ]
            scores = list(accumulate(-vote for vote in votes))[:-1]
            best = max(range(len(scores)), key=scores.__getitem__)
        return positions, scores, rates

    def scores(self, low: int, high: int, *, strict: bool) -> tuple[Sequence[int], Sequence[float]]:
        """Positions with runs, and the score of each gap between them."""
        return self.fit(low, high)[:2]

    def batch(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Two runs at first; for intermittent failures, as many as probably show one."""
        count = self.count(position)
        if self.plain(low, high):
            return TWICE if count == 0 else 1
        rate = max(self.fit(low, high)[2][1], LEAST)
        return 0 if count >= MOST else min(max(TWICE, math.ceil(1 / rate), count // 4), 16)

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Consistent results need no confirmation, only a few more runs of suspect and parent."""
        if not self.plain(0, self.problem.last):
            return False
        for at in (parent, suspect):
            if self.count(at) < ALIKE:
                return self.look(at, ALIKE - self.count(at), "does it always do the same?")
        return True

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The claim that the culprit fails more often than its parent, at the observed rates."""
        before, after = self.fit(low, high)[2]
        return Claim(number=number, rates=(after, before))

    def word(self, key: Key) -> tuple[str, float]:
        """Result of a confirmation so far: `confirmed`, `failed` or `open`, and its e-value."""
        culprit, parent = (self.fresh.get((key, at), []) for at in key[:2])
        evidence = runs_evidence(culprit, parent, self.claims[key].rates)
        if evidence >= NEEDED:
            return "confirmed", evidence
        over = evidence <= 1 / FUTILE or len(culprit) + len(parent) >= MOST
        return ("failed" if over else "open"), evidence

    def confirm(self, key: Key, claim: Claim) -> Try:
        """Request more runs of culprit and parent, alternating."""
        problem = self.problem
        tried, other = sorted(key[:2], key=lambda at: len(self.fresh.get((key, at), ())))
        why = f"confirm: does {problem.name(key[0])} fail more often than {problem.name(key[1])}?"
        return Try(problem.shown(tried), 4, why, problem.shown(other), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """Failure rate of the culprit less its parent's; no part of the step remains (False)."""
        culprit, parent = (1 - fmean(self.fresh[key, at]) for at in key[:2])
        return culprit - parent, False

    def size(self, step: float) -> str:
        """`it fails where its parent passes`, or how much more often it fails."""
        if step >= 0.995:
            return "it fails where its parent passes"
        return f"it fails in {round(100 * step)} of 100 runs more than its parent"


def runs_evidence(culprit: Sequence[float], parent: Sequence[float], rates: tuple[float, float]) -> float:
    """Evidence that the culprit fails more often: an e-value of blocks, each with one run of both.

    `rates`: failure rates a of culprit and b of parent, set before the first run. With c = (a + b)
    / 2 a block's evidence is P_a(x) P_b(y) / (P_c(x) P_c(y)), at most 1 in the mean for any common
    rate (Turner, Ly and Grünwald 2024, "Generic e-variables for exact sequential k-sample tests").
    """
    high, low = (min(max(rate, LEAST), 1 - LEAST) for rate in rates)
    both = (high + low) / 2

    def chance(passed: float, rate: float) -> float:
        return 1 - rate if passed else rate

    evidence = highest = 1.0
    for tried, other in zip(culprit, parent, strict=False):
        evidence *= chance(tried, high) * chance(other, low) / (chance(tried, both) * chance(other, both))
        highest = max(highest, evidence)
        if highest >= NEEDED:
            return highest
    return evidence


LEANING, DECIDED = 0.05, 0.004
"""Share of the other side below which the search moves past a commit; below which it is decided."""
DENIED = 0.01
"""Factor on a suspect's odds after a failed confirmation."""
SUSPECTS = 3
"""Rejected suspects after which the search gives up."""
FEW, MANY = 8, 14
"""Builds that estimate the noise between builds; if this noise is probably small."""
WIDEST = 16
"""A range of more commits, or of more than a quarter of all, is no answer; five always are."""
LOST_MOST = 3
"""Consecutive tries without a result, after which the search gives up."""
OBSERVED_MOST = 3000
"""Observations after which the search gives up."""

Evidence = Pairs | Runs


def next_move(problem: Problem, probes: Sequence[Probe]) -> Try | SearchEnd:
    """The next try, or the result of the search, from the probes so far."""
    probed = Pairs(problem, probes) if problem.metric == "latency" else Runs(problem, probes)
    if problem.last == 0:
        return SearchEnd("no_regression", "not in the code: both ends are the same")
    for end, at in (("good", 0), ("bad", problem.last)):
        if at in probed.broken:
            return SearchEnd("inconclusive", f"the {end} end cannot be tested: {probed.broken[at]}")
    move = _solve(probed, 0, problem.last)
    if isinstance(move, SearchEnd):
        return _concluded(probed, move)
    if len(probed.lost) >= LOST_MOST:
        return SearchEnd("inconclusive", f"{len(probed.lost)} tries in a row were lost: {probed.lost[-1]}")
    if probed.observations >= OBSERVED_MOST:
        return SearchEnd("inconclusive", f"no answer after {probed.observations} observations")
    return move


def _solve(probed: Evidence, low: int, high: int) -> Try | SearchEnd:
    """The next try between two positions, or the result for this range."""
    ends = probed.ends(low, high)
    if ends is not None:
        return ends
    if (middle := probed.apart(low, high)) is not None:
        return _both(probed, [(low, middle), (middle, high)], SearchEnd("inconclusive", ""))
    failed = list[Key]()
    for key, claim in probed.claims.items():
        if low <= key[1] and key[0] <= high:
            word, evidence = probed.word(key)
            if word == "open" and probed.broken.keys().isdisjoint(key[:2]):
                return probed.confirm(key, claim)
            if word == "confirmed":
                step, remains = probed.step(low, high, key)
                culprit = _culprit(probed.problem, key, evidence, step)
                shares = tuple(_shares(probed, low, high, (), strict=False))
                end = SearchEnd("culprit", "", shares, (culprit,))
                return _both(probed, [(low, key[1]), (key[0], high)], end) if remains else end
            failed.append(key)
    if len(failed) >= SUSPECTS:
        why = f"{len(failed)} suspects were not confirmed, the last one {probed.problem.name(failed[-1][0])}"
        return SearchEnd("inconclusive", why)
    return _narrow(probed, low, high, failed)


def _both(probed: Evidence, ranges: Sequence[tuple[int, int]], end: SearchEnd) -> Try | SearchEnd:
    """Search the ranges in order; add their culprits to `end`."""
    for low, high in ranges:
        if low < high:
            more = _solve(probed, low, high)
            if isinstance(more, Try):
                return more
            culprits = tuple(sorted(end.confirmed + more.confirmed, key=lambda culprit: culprit.first))
            shares = tuple(map(max, end.shares or more.shares, more.shares)) if more.confirmed else end.shares
            end = replace(end if end.why else more, shares=shares, confirmed=culprits)
    return end


def _narrow(probed: Evidence, low: int, high: int, failed: Sequence[Key]) -> Try | SearchEnd:
    """Search between two ends that differ, until the side of each commit is decided."""
    testable = [at for at in range(low, high + 1) if at not in probed.broken]
    observed = [at for at in testable if probed.count(at) or at in (low, high)]
    good, bad, shares, hopeful = low, high, list[float](), False
    for doubt, strict in ((LEANING, False), (DECIDED, True)):
        hopeful = testable.index(bad) - testable.index(good) == 1  # Decided, if builds differ little.
        shares = _shares(probed, low, high, failed, strict=strict)
        below = list(accumulate(shares))
        """How surely a position is bad: the share of steps at it or before it."""
        good = max(at for at in observed if below[at] <= doubt or at == low)
        bad = min((at for at in observed if at > good and below[at] >= 1 - doubt), default=high)
        inside = [at for at in observed if good < at < bad]
        for at in sorted(inside, key=lambda at: abs(below[at] - 0.5)):
            if batch := probed.batch(low, high, at, strict=strict):
                return probed.look(at, batch, f"again: {below[at]:.0%} that it regressed")
        fresh = [at for at in testable if good < at < bad and not probed.count(at)]
        if fresh and doubt == LEANING:
            broken = [at for at in probed.broken if good < at < bad]
            away = {at: min((abs(at - other) for other in broken), default=1) for at in fresh}
            reach = min(3 ** max(len(broken) - 1, 0), max(away.values()))  # Broken commits cluster: jump away.
            at = min((at for at in fresh if away[at] >= reach), key=lambda at: (abs(below[at] - 0.5), at))
            batch = max(probed.batch(low, high, at, strict=strict), 1)
            return probed.look(at, batch, f"probe: {below[at]:.0%} that it regressed")
    single, clear = testable.index(bad) - testable.index(good) == 1, probed.clear(low, high, good, bad)
    if not (single and clear):
        upper = list(accumulate(shares))
        parent, suspect = max(pairwise(testable), key=lambda pair: upper[pair[1]] - upper[pair[0]])
        if wanted := _neighbour(probed, testable, parent, suspect, MANY if hopeful else FEW):
            return wanted
        if not clear or (not single and bad - good > min(max((high - low) // 4, 5), WIDEST)):
            name, share = probed.problem.name(suspect), upper[suspect] - upper[parent]
            why = f"no step is clear of the noise between builds: {name} with {share:.0%}"
            return SearchEnd("inconclusive", why, tuple(shares))
    certain = probed.certain(good, bad)
    if isinstance(certain, Try):
        return certain
    if certain:
        culprit = _culprit(probed.problem, (bad, good, 0), 1 / DECIDED, 1.0)
        return SearchEnd("culprit", "", tuple(shares), (culprit,))
    number = 1 + len(failed)
    return probed.confirm((bad, good, number), probed.claim(low, high, number))


def _neighbour(probed: Evidence, testable: Sequence[int], parent: int, suspect: int, most: int) -> Try | None:
    """Try the nearest untried build beside the step, on the side with fewer known builds.

    None if `most` builds are known, or if neighbours do not help.
    """
    at = testable.index(parent)
    known = [place for place in testable if probed.count(place) or place == 0]
    sides = testable[at::-1], testable[testable.index(suspect) :]
    fresh = [[place for place in side if place not in known] for side in sides]
    batch, exact = probed.enough(testable[0], testable[-1])
    why = "neighbour: what do builds differ by on their own?"
    if batch and len(known) < most and any(fresh):
        side = min((side for side in (0, 1) if fresh[side]), key=lambda side: len(sides[side]) - len(fresh[side]))
        return probed.look(fresh[side][0], batch, why)
    least = min(known[1:], key=probed.count)
    return probed.look(least, batch, why) if most == MANY and probed.count(least) < exact else None


def _shares(probed: Evidence, low: int, high: int, failed: Sequence[Key], *, strict: bool) -> list[float]:
    """Probability that the step is at each position, reduced by failed confirmations."""
    positions, scores = probed.scores(low, high, strict=strict)
    best = max(scores)
    weights = [0.0] * (probed.problem.last + 1)
    for (start, end), score in zip(pairwise(positions), scores, strict=True):
        weights[start + 1 : end + 1] = [math.exp(max(score - best, -700.0))] * (end - start)
    for culprit, parent, _ in failed:
        weights[parent + 1 : culprit + 1] = [DENIED * value for value in weights[parent + 1 : culprit + 1]]
    total = math.fsum(weights)
    return [value / total for value in weights]


def _culprit(problem: Problem, key: Key, evidence: float, step: float) -> Culprit:
    """The commits after the parent's position, up to the culprit's: one made the step."""
    culprit, parent, _ = key
    return Culprit(problem.first[parent + 1], problem.first[culprit], evidence, step)


def _concluded(probed: Evidence, end: SearchEnd) -> SearchEnd:
    """The result of a search, with a sentence on each culprit."""
    if not end.confirmed:
        return end
    problem, words = probed.problem, list[str]()
    for culprit in end.confirmed:
        step = f"{probed.size(culprit.step)}, evidence {culprit.evidence:,.0f} to 1"
        begin, last = (problem.commits[index][:12] for index in (culprit.first, culprit.last))
        skipped = probed.broken.keys() & range(problem.place[culprit.first], problem.place[culprit.last])
        hidden = "" if skipped else "; builds differ on their own, so that no single one stands out"
        several = f"one of commits {begin} to {last}: {step}{hidden}"
        words.append(several if culprit.first < culprit.last else f"commit {begin}: {step}")
    is_range = end.confirmed[0].first < end.confirmed[0].last
    outcome: Literal["several", "range", "culprit"]
    outcome = "several" if len(end.confirmed) > 1 else "range" if is_range else "culprit"
    return replace(end, outcome=outcome, why="; ".join(words))
