"""What builds say of the latencies of their commits, and whether both ends differ by more than builds do. Pure."""

import functools
import math
from collections.abc import Iterator
from typing import Self

from loop.base.ratios import significant
from loop.base.stats import median
from loop.bisect.change_point import Fit, Levels, Unit, bounds_of, units_of, weight_of, z_score
from loop.bisect.journal import Links, Observations
from loop.bisect.model import Conclusion, Problem, Try
from loop.bisect.probes import Metric
from loop.bisect.steps import Steps
from loop.timing.verdicts import MARGIN

WIDER = 0.01
"""What builds may differ by on their own, before an observation is called an outlier."""
SPENT = 0.1
"""Share of what a build can tell: where less is left, it has told what it can."""
REPRODUCED_Z = 4.5
"""The ends differ by so many standard errors before anything is searched between them."""
REVERSED = 4.0
"""A good end that is slower by so many times what builds differ by is the bad one."""
SEARCHED = 0.9
"""Probability of no step, up to which one is searched for."""
RARE_Z = 2.7
"""The deviate of the normal that is as rare as this difference, by Student's t: few observations know their noise
badly. Weak by itself: what it lets through by chance is refused later, by `STANDING_Z` and by the confirmation."""
STANDING_Z = 3.0
"""What more observations may leave of the difference while the search is on."""
ENDS_FIRST = 3
"""Observations of an end before it is judged."""
ENDS_LEAST = 8
"""The same, before it is said that they do not differ."""
ENDS_MOST = 200
"""The same, before that is left open."""
SATURATED = 0.9
"""Share of what observations of one build can ever tell, beyond which they are no longer worth it."""
TODAY = "the bad end is as fast today, so what was slow may have been the machine or its environment"
"""What is said where there is nothing to search."""
BOUND_Z = 2.6
"""Standard errors above which a difference is ruled out."""
BROAD = 3
"""Builds that stand for an end where its own may be faster or slower by its layout."""
PART = 0.15
"""A further culprit brings at least this share of the whole step, and a culprit inside a merge of what the merge
brought."""


class LatencyLevels(Metric):
    """Log latencies, or log ratios of pairs; see `model.Noise`."""

    def __init__(self, problem: Problem, seen: Observations, *, careful: bool = False) -> None:
        """`careful`: builds differ by what is typical; by itself by the least that is not improbable."""
        super().__init__(problem, seen)
        self._careful = careful
        self._units = functools.cache(self._units_between)
        self._steps = functools.cache(self._steps_between)
        self._whole = functools.cache(self._ends_alone)

    def said(self, step: float) -> str:
        """`+3.2% against its parent`, or `takes 4.01 times as long as its parent`."""
        if step < 1:
            return f"{math.expm1(step):+.1%} against its parent"
        return f"takes {significant(math.exp(step))} times as long as its parent"

    def careful(self) -> Self:
        """With the noise between builds that is typical."""
        return type(self)(self.problem, self.seen, careful=True)

    def _fit(self, low: int, high: int) -> Fit:
        steps = self._steps(low, high)
        return steps.likely if self._careful else steps.quick

    def levels(self) -> Levels:
        """Both sides of the likeliest step of the whole history."""
        return self._fit(0, self.seen.positions.last).likeliest

    def _steps_between(self, low: int, high: int) -> Steps:
        return Steps(self._units(low, high), self.seen.positions.prior, known=self._is_known(low))

    def _ends_alone(self, low: int, high: int) -> Levels:
        return self._alone(low, high, self._steps(low, high).likely.ratio if self._relinks() else 0.0)

    def _alone(self, low: int, high: int, ratio: float) -> Levels:
        """Two positions as if there were no others."""
        ends = [unit for unit in self._units(low, high) if unit.position in (low, high)]
        return Fit(ends, (), ratio, known=self._is_known(low)).levels(0)

    def _units_between(self, low: int, high: int) -> list[Unit]:
        """Builds from end to end, without outliers."""
        inside = {position: links for position, links in self.seen.values.items() if low <= position <= high}
        series = [values for links in inside.values() for values in links.values()]
        good, bad = (0.0 if self._is_known(end) else self._middle(end) for end in (low, high))
        return units_of(inside, bounds_of(series, good, bad, WIDER))

    def _middle(self, position: int) -> float:
        """The median of a position; nan, which bounds nothing, before it is observed."""
        values = [value for values in self._links(position).values() for value in values]
        return median(values) if values else math.nan

    def _is_known(self, position: int) -> bool:
        """Whether its level is 0: the good end, where ratios are to its binary."""
        return self.problem.noise.paired and position == 0

    def _links(self, position: int) -> Links:
        return self.seen.values.get(position, {})

    def weight(self, position: int, low: int, high: int) -> float:
        """Effective observations of a position."""
        ratio = self._fit(low, high).ratio
        return self._own(position, ratio) + (weight_of(math.inf, ratio) if self._is_known(position) else 0.0)

    def _own(self, position: int, ratio: float) -> float:
        """Those that were made."""
        return math.fsum(weight_of(len(values), ratio) for values in self._links(position).values())

    def _left(self, low: int, high: int, count: int) -> float:
        """Share of what a build can ever tell that is left after so many observations, under the typical noise."""
        return 1 / (1 + count * self._steps(low, high).likely.ratio)

    def _relinks(self) -> int:
        return 0 if self.seen.unlinked else self.problem.noise.relinks

    def _choice(self, links: Links) -> Iterator[int]:
        """The builds of a position, and one more relinked one where builds of the same source differ."""
        yield from sorted(links) or (0,)
        if links and self._relinks() > max(links):
            yield max(links) + 1

    def again(self, position: int, batch: int, why: str) -> Try:
        """In the build that tells most for its cost."""
        links, ratio = self._links(position), 0.0
        if links and self._relinks():
            ratio = self._fit(0, self.seen.positions.last).ratio
        worth = functools.partial(self._worth, links, ratio)
        return self.look(position, batch, why, max(self._choice(links), key=worth))

    def _worth(self, links: Links, ratio: float, relink: int) -> float:
        """What one more observation of a build adds to what is known, for its cost."""
        before, costs = len(links.get(relink, ())), self.problem.costs
        cost = costs.measure + (0 if before else costs.relink)
        return (weight_of(before + 1, ratio) - weight_of(before, ratio)) / cost

    def doubt(self, low: int, high: int) -> float:
        """Whether what is seen is the scatter of builds."""
        return self._steps(low, high).doubt

    def ends(self, low: int, high: int) -> Try | Conclusion | None:
        """Observe both in turn until they differ, or evidently do not."""
        for end in (low, high):
            missing = ENDS_FIRST - self.seen.count(end)
            if missing > 0 and not self._is_known(end):
                return self.again(end, missing, "end: does the difference show today?")
        levels, z = self._whole(low, high), z_score(self._whole(low, high))
        errors = STANDING_Z if self._begun(low, high) else REPRODUCED_Z
        if levels.step >= errors * levels.error and z >= RARE_Z:
            return None
        if z <= -REPRODUCED_Z and -levels.step > REVERSED * self._steps(low, high).layout_sd:
            why = f"the good end is slower than the bad one, by {math.expm1(-levels.step):.1%}: are they swapped?"
            return Conclusion("no_regression", why, swapped=True)
        return self._unsettled(low, high, levels, z)

    def _unsettled(self, low: int, high: int, levels: Levels, z: float) -> Try | Conclusion | None:
        """What to do while the two do not differ for certain."""
        count = min(self.seen.count(end) for end in (low, high) if not self._is_known(end))
        bound = levels.step + BOUND_Z * levels.error
        tiny = count >= ENDS_LEAST and bound < self._least(low, high)
        worn = tiny or abs(z) >= REPRODUCED_Z or (count >= ENDS_LEAST and self._left(low, high, count) < SPENT)
        if worn and not self._relinks() and (low, high) == (0, self.seen.positions.last):
            return self._broad(
                low, high
            )  # More of the same two builds would not tell whether their commits differ.
        if tiny:
            said = f"{math.expm1(levels.step):+.2%} after {count} observations"
            why = f"not reproduced: {said}, surely below {math.expm1(self._least(low, high)):.1%}: {TODAY}"
            return Conclusion("no_regression", why)
        return self._too_noisy(low, high, count, levels, z) or self._once_more(low, high, count, z)

    def _begun(self, low: int, high: int) -> bool:
        """Whether the ends of the whole history were verified, since commits between them were observed."""
        whole = (low, high) == (0, self.seen.positions.last)
        return whole and any(low < position < high for position in self.seen.values)

    def _broad(self, low: int, high: int) -> Try | Conclusion | None:
        """Commits next to the ends stand for them, too: builds differ on their own."""
        reach = min(BROAD, (high - low + 1) // 2)
        for near in (range(low, low + reach), range(high, high - reach, -1)):
            wanted = min(self.seen.count(near[0]) or ENDS_LEAST, ENDS_LEAST)
            for position in near[1:]:
                missing = wanted - self.seen.count(position)
                if missing > 0 and position not in self.seen.broken:
                    return self.look(position, missing, "beside an end: does its own build alone differ?")
        doubt, levels = self.doubt(low, high), self._steps(low, high).likely.likeliest
        tiny = levels.step + BOUND_Z * levels.error < self._least(low, high)
        return self.unsure(low, high, 1.0 if tiny else doubt) if tiny or doubt > SEARCHED else None

    def _too_noisy(self, low: int, high: int, count: int, levels: Levels, z: float) -> Conclusion | None:
        """Why more observations of the ends would not tell, if so."""
        if count >= ENDS_MOST:
            hidden = levels.step + BOUND_Z * levels.error
            why = f"observations scatter by {levels.sd:.1%}, {hidden:.1%} may be hidden"
        elif self._relinks() and self._fit(low, high).ratio * self.weight(high, low, high) > SATURATED * (
            1 + self._relinks()
        ):
            noise = self._steps(0, self.seen.positions.last).layout_sd
            most = f"{self._relinks()} relinked ones are all that may be asked for"
            why = f"builds of the same source differ by {noise:.1%}, and {most}"
        else:
            return None
        return Conclusion("inconclusive", f"too noisy: {why} (z = {z:.1f})")

    def _once_more(self, low: int, high: int, count: int, z: float) -> Try:
        fewer = min((low, high), key=lambda end: self.weight(end, low, high))
        return self.again(fewer, 1 + count // 16, f"end: the difference shows with z = {z:.1f}")

    def _least(self, low: int, high: int) -> float:
        """The smallest step that is looked for: the margin of a verdict, or a share of the whole step."""
        last = self.seen.positions.last
        return math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self._whole(0, last).step)

    def unsure(self, low: int, high: int, doubt: float) -> Conclusion:
        """Builds scatter so much that there may be no step."""
        steps = self._steps(low, high)
        likeliest = max(range(len(steps.mass)), key=steps.mass.__getitem__)
        where = f"commit {self.name(likeliest)} ({(1 - doubt) * steps.mass[likeliest]:.0%})"
        noise = f"builds differ by {steps.layout_sd:.1%} (sd) on their own"
        why = f"{noise}, the likeliest step is {math.expm1(steps.likely.likeliest.step):+.1%} at {where}"
        if doubt > 0.5:
            return Conclusion("no_regression", f"not reproduced: no step stands out, {why}: {TODAY}")
        return Conclusion("inconclusive", f"no step stands out for certain: {why}")

    def apart(self, low: int, high: int) -> int | None:
        """The position that is above the good end and below the bad one for certain; the best known of them."""
        inside = [position for position in self.seen.values if low < position < high]
        return max((one for one in inside if self._stands_out(low, high, one)), key=self.seen.count, default=None)

    def _stands_out(self, low: int, high: int, position: int) -> bool:
        if self.seen.count(position) < ENDS_FIRST:
            return False
        ratio = self._steps(low, high).likely.ratio
        both = self._alone(low, position, ratio), self._alone(position, high, ratio)
        return all(one.step >= REPRODUCED_Z * one.error and z_score(one) >= REPRODUCED_Z for one in both)
