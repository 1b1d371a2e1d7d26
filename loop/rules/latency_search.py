"""What a search over commits has to know about latencies: ends, noise, information, confirmation. Pure."""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, stdev

from loop.rules.change_point import Fit, Levels, Unit, bounds_of, units_of, weight_of, z_score
from loop.rules.compare import MARGIN
from loop.rules.confirming import Word, pairs_say
from loop.rules.information import of_normal
from loop.rules.probes import Blamed, Look, Refuted, Wish
from loop.rules.suspects import Claim, Key, Problem, Seen, Try
from loop.stats import median

REPRODUCED_Z = 4.5
"""The ends differ by so many standard errors before anything is searched between them."""
RARE_Z = 3.0
"""The deviate of the normal that is as rare as this difference, by Student's t."""
STANDING_Z = 3.0
"""What more observations may leave of that while the search is on."""
ENDS_FIRST = 3
"""Observations of an end before it is judged."""
ENDS_LEAST = 8
"""The same, before it is said that they do not differ."""
ENDS_MOST = 200
"""The same, before that is left open."""
BOUND_Z = 2.6
"""Standard errors above which a difference is ruled out."""
BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
"""Sizes that are considered for the first look at a commit."""
FIRST_SHARE = 4
"""Of the observations that would pay for a build one in so many is asked for at once: most sides show soon."""
PATIENCE = 4.0
"""Builds count so many times: after a wrong turn more of them are lost than the next one."""
CLAIMED = 0.15
"""Share of the step that a culprit has to exceed for certain."""
EXPECTED = 0.5
"""Share that it is expected to reach: below that it is none."""
FIRST_PAIRS = 4
"""Pairs of a confirmation before it is judged."""
WHOLE = 0.7
"""A culprit that explains less of the whole step is not alone."""
WHOLE_Z = 1.645
"""Standard errors by which it has to be less."""
PART = 0.15
"""A further culprit brings at least this share of the whole step."""


def _differ(step: float, levels: Levels, errors: float) -> bool:
    """Whether a step is so many standard errors, and rare also where these come from few observations."""
    return step >= errors * levels.error and math.copysign(z_score(levels), step * levels.step) >= RARE_Z


class Latency:
    """Log latencies, or log ratios of pairs; see `suspects.Noise`."""

    def __init__(self, problem: Problem, seen: Seen) -> None:
        self._problem, self._noise, self._seen = problem, problem.noise, seen
        self._fit = functools.lru_cache(64)(self._fitted)
        self._ends = functools.lru_cache(64)(self._ends_fitted)

    # The ends

    def ends(self, low: int, high: int) -> Wish | Refuted | None:
        """Observe both in turn until they differ, or evidently do not."""
        for end in (low, high):
            missing = ENDS_FIRST - self._seen.count(end)
            if missing > 0 and self._known(low) != end:
                return self.again(end, missing, "end: does the difference show today?")
        levels = self._ends(low, high)
        z, whole = z_score(levels), (low, high) == (0, self._seen.line.last)
        standing = whole and any(low < position < high for position in self._seen.values)
        if _differ(levels.step, levels, STANDING_Z if standing else REPRODUCED_Z):
            return None
        if _differ(-levels.step, levels, REPRODUCED_Z):
            why = f"the good end is slower than the bad one, by {math.expm1(-levels.step):.1%}: are they swapped?"
            return Refuted("no_regression", why, swapped=True)
        return self._not_yet(low, high, levels, z)

    def _not_yet(self, low: int, high: int, levels: Levels, z: float) -> Wish | Refuted:
        count = min(self._seen.count(end) for end in (low, high) if self._known(low) != end)
        bound, least = levels.step + BOUND_Z * levels.error, self._least(low, high)
        if count >= ENDS_LEAST and bound < least:
            seen = f"{math.expm1(levels.step):+.2%} after {count} observations of each"
            return Refuted("no_regression", f"not reproduced: {seen}, less than {math.expm1(least):.1%} for certain")
        if count >= ENDS_MOST:
            noise = f"observations scatter by {levels.sd:.1%}: {bound:.1%} may be hidden (z = {z:.1f})"
            return Refuted("inconclusive", f"too noisy: {noise}")
        fewer = min((low, high), key=lambda end: self._weight(end, low, high))
        return self.again(fewer, 1 + count // 16, f"end: the difference shows with z = {z:.1f}")

    def _least(self, low: int, high: int) -> float:
        """The smallest step that is looked for: the margin of a verdict, or a share of the whole step."""
        last = self._seen.line.last
        return math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self._ends(0, last).step)

    def _known(self, low: int) -> int | None:
        """The position whose level is 0: the good end, where ratios are to its binary."""
        return 0 if self._noise.paired and low == 0 else None

    def _weight(self, position: int, low: int, high: int) -> float:
        """Effective observations of a position."""
        ratio, known = self._ratio(low, high), self._known(low)
        own = sum(weight_of(len(values), ratio) for values in self._seen.values.get(position, {}).values())
        return own + ((1 / ratio if ratio else math.inf) if position == known else 0.0)

    # The posterior

    def steps(self, low: int, high: int) -> tuple[Sequence[int], Sequence[float]]:
        """As `change_point` has it."""
        fit = self._fit(low, high)
        return fit.positions, fit.likelihoods

    def _fitted(self, low: int, high: int) -> Fit:
        return Fit(self._units(low, high), self._ratio(low, high), self._known(low))

    def _ends_fitted(self, low: int, high: int) -> Levels:
        ends = [unit for unit in self._units(low, high) if unit.position in (low, high)]
        return Fit(ends, self._ratio(low, high), self._known(low)).levels(0)

    def _units(self, low: int, high: int) -> list[Unit]:
        """Builds between the ends, without outliers."""
        inside = {position: links for position, links in self._seen.values.items() if low <= position <= high}
        series = [values for links in inside.values() for values in links.values()]
        known = self._known(low)
        middles = [0.0 if end == known else self._middle(end) for end in (low, high)]
        return units_of(inside, bounds_of(series, middles[0], middles[1], self._noise.layout_sd))

    def _middle(self, position: int) -> float:
        """The median of a position; nan, which bounds nothing, before it is observed."""
        values = [value for values in self._seen.values.get(position, {}).values() for value in values]
        return median(values) if values else math.nan

    def _ratio(self, low: int, high: int) -> float:
        """Variance between builds of the same source over that of observations."""
        if not self._noise.layout_sd:
            return 0.0
        units = self._units(low, high)
        freedom = sum(max(unit.count - 1, 0) for unit in units)
        within = math.fsum(unit.squares for unit in units) / freedom if freedom else 0.0
        return self._noise.layout_sd**2 / within if within else 0.0

    def _split(self, low: int, high: int) -> tuple[Fit, int]:
        """The likeliest step."""
        fit = self._fit(low, high)
        return fit, fit.best

    def apart(self, low: int, high: int) -> int | None:
        """The position that is above the good end and below the bad one for certain; the best known of them."""
        inside = [position for position in self._seen.values if low < position < high]
        return max((one for one in inside if self._stands_out(low, high, one)), key=self._seen.count, default=None)

    def _stands_out(self, low: int, high: int, position: int) -> bool:
        if self._seen.count(position) < ENDS_FIRST:
            return False
        both = self._ends(low, position), self._ends(position, high)
        far = all(levels.step >= REPRODUCED_Z * levels.error for levels in both)
        return far and all(z_score(levels) >= REPRODUCED_Z for levels in both)

    # What to look at

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """One more observation of a build that is there; a new build with as many as pay for it."""
        links, weights = self._seen.values.get(position, {}), self._sides(low, high, position)
        for relink in self._links(position):
            there = (position, relink) in self._seen.built
            cost = 0.0 if there else self._problem.costs.relink if relink else self._problem.costs.build
            for batch in (1,) if there and links else BATCHES:
                bits = of_normal(probability, self._separation(low, high, len(links.get(relink, ())), batch, weights))
                why = f"tells {bits:.2f} bits: slow with probability {probability:.1%}"
                first = math.ceil(batch / FIRST_SHARE)
                yield Look(
                    Wish(position, first, why, relink), bits, PATIENCE * cost + batch * self._problem.costs.measure
                )

    def _links(self, position: int) -> Iterator[int]:
        """The builds of a position, and one more relinked one where builds of the same source differ."""
        links = self._seen.values.get(position, {})
        yield from sorted(links) or (0,)
        if links and self._relinks() > max(links):
            yield max(links) + 1

    def _relinks(self) -> int:
        return 0 if self._seen.unlinked or not self._noise.layout_sd else self._noise.relinks

    def _sides(self, low: int, high: int, position: int) -> tuple[float, float]:
        """Effective observations of either side of the likeliest step, without those of a position."""
        fit, split = self._split(low, high)
        below, above = fit.levels(split).weights
        own = sum(
            weight_of(len(values), self._ratio(low, high))
            for values in self._seen.values.get(position, {}).values()
        )
        return (below - own, above) if position <= fit.positions[split] else (below, above - own)

    def _separation(self, low: int, high: int, before: int, batch: int, sides: tuple[float, float]) -> float:
        """How far the levels are apart, in standard deviations of what `batch` more observations of a build tell."""
        fit, split = self._split(low, high)
        levels, ratio = fit.levels(split), self._ratio(low, high)
        gained = weight_of(before + batch, ratio) - weight_of(before, ratio)
        variance = 1 / gained + sum(1 / max(side, 0.5) for side in sides) / 4
        return max(levels.step, 0.0) / levels.sd / math.sqrt(variance)

    def backed(self, low: int, high: int, wish: Wish) -> Wish:
        """An end group never has fewer observations than the commit on trial, or the search stalls."""
        ratio = self._ratio(low, high)
        own = sum(
            weight_of(len(values), ratio) for values in self._seen.values.get(wish.position, {}).values()
        )
        below, above = self._sides(low, high, wish.position)
        if min(below, above) >= own + 1 or wish.position in (low, high):
            return wish
        end = low if below < above else high
        return self.again(end, 1, "end: its group has fewer observations than the commit on trial")

    def again(self, position: int, batch: int, why: str) -> Wish:
        """Observe a position that has to be known better: in the build that tells most for its cost."""
        low, high = 0, self._seen.line.last
        links = self._seen.values.get(position, {})
        if not links:
            return Wish(position, batch, why)
        ratio = self._ratio(low, high) if self._relinks() else 0.0
        return Wish(position, batch, why, max(self._links(position), key=functools.partial(self._worth, links, ratio)))

    def _worth(self, links: dict[int, list[float]], ratio: float, relink: int) -> float:
        before = len(links.get(relink, ()))
        cost = self._problem.costs.measure + (0 if before else self._problem.costs.relink)
        return (weight_of(before + 1, ratio) - weight_of(before, ratio)) / cost

    # Confirmation

    def certain(self, low: int, high: int, probability: float) -> bool:
        """Latencies are always confirmed."""
        return False

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """The culprit exceeds its parent by a share of the step that the search sees."""
        fit, split = self._split(low, high)
        levels = fit.levels(split)
        sd = max(levels.sd, 1e-12) * (1 if self._noise.paired else math.sqrt(2))
        above = CLAIMED * levels.step
        return Claim(
            number,
            above=above,
            below=EXPECTED * levels.step,
            clip=levels.step - above + 4 * (sd + self._noise.layout_sd),
            variance=max(1.0, ((levels.step - above) / sd) ** 2),
            ratio=2 * self._noise.layout_sd**2 / sd**2,
        )

    def word(self, key: Key) -> tuple[Word, float]:
        """What the pairs say, once there are enough of them."""
        links = self._seen.trials[key].values.get(key[0], {})
        needed = min(2, self._relinks())
        if sum(map(len, links.values())) < FIRST_PAIRS or len(links) < needed:
            return "open", 1.0
        return pairs_say(links, self._seen.trials[key].claim)

    def ask(self, key: Key, claim: Claim) -> Try:
        """More pairs of culprit and parent; relinked ones where builds of the same source differ."""
        culprit, parent, _ = key
        trial = self._seen.trials.get(key)
        links = trial.values.get(culprit, {}) if trial else {}
        count = sum(map(len, links.values()))
        batch = max(FIRST_PAIRS - count, 1 + count // 8)
        relink = max([*links, max(links, default=-1) + 1] if self._relinks() > len(links) else [*links] or [0],
                     key=functools.partial(self._worth, links, claim.ratio)) if self._relinks() else 0
        shown = self._seen.line.shown
        why = f"confirm: is {shown(culprit)} slower than {shown(parent)} by more than {math.expm1(claim.above):.1%}?"
        return Try(shown(culprit), batch, why, shown(parent), relink, claim)

    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """The step of the pairs, and whether it is too small to be the whole."""
        claim, whole = self._seen.trials[key].claim, self._ends(low, high)
        logs = [value for values in self._seen.trials[key].values[key[0]].values() for value in values]
        kept = [min(max(value, claim.above - claim.clip), claim.above + claim.clip) for value in logs]
        step, error = fmean(kept), stdev(kept) / math.sqrt(len(kept))
        missing = WHOLE * whole.step - step
        return Blamed(step, missing > WHOLE_Z * math.hypot(WHOLE * whole.error, error))
