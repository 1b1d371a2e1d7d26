"""What was observed of the builds of a history, as latencies: levels, noise, what one more look adds. Pure."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

from loop.base.stats import median
from loop.bisect.change_point import Fit, Levels, Unit, bounds_of, units_of, weight_of
from loop.bisect.probes import Wish
from loop.bisect.steps import Guess, Steps
from loop.bisect.suspects import Problem, Seen

SPENT = 0.1
"""Share of what a build can tell: where less is left, it has told what it can."""
WIDER = 0.01
"""What builds may differ by on their own, before an observation is called an outlier."""
Links = Mapping[int, Sequence[float]]
"""Observations of a position, by relink."""


class Builds:
    """Log latencies, or log ratios of pairs; see `suspects.Noise`."""

    def __init__(self, problem: Problem, seen: Seen, *, careful: bool = False) -> None:
        """`careful`: builds differ by what is typical; by itself by the least that is not improbable."""
        self._problem, self._careful = problem, careful
        self._costs, self._noise, self._seen = problem.costs, problem.noise, seen
        self._pilot = problem.noise.pilot_sd, problem.noise.pilot_freedom
        self._units = functools.cache(self._units_between)
        self._steps = functools.cache(self._steps_between)
        self._ends = functools.cache(self._ends_alone)

    def _ratio(self, low: int, high: int) -> float:
        """Variance between builds of the same source over that of observations."""
        return self._guess(low, high).ratio

    def _guess(self, low: int, high: int) -> Guess:
        steps = self._steps(low, high)
        return steps.likely if self._careful else steps.quick

    def _fit(self, low: int, high: int) -> Fit:
        return self._guess(low, high).fit

    def _levels(self, low: int, high: int) -> Levels:
        """Both sides of the likeliest step."""
        return self._guess(low, high).levels

    def _steps_between(self, low: int, high: int) -> Steps:
        return Steps(self._units(low, high), self._seen.line.prior, self._known(low), self._pilot)

    def _ends_alone(self, low: int, high: int) -> Levels:
        return self._alone(low, high, self._steps(low, high).ratio if self._relinks() else 0.0)

    def _alone(self, low: int, high: int, ratio: float) -> Levels:
        """Two positions as if there were no others."""
        ends = [unit for unit in self._units(low, high) if unit.position in (low, high)]
        return Fit(ends, ratio, self._known(low), self._pilot).levels(0)

    def _units_between(self, low: int, high: int) -> list[Unit]:
        """Builds from end to end, without outliers."""
        inside = {position: links for position, links in self._seen.values.items() if low <= position <= high}
        series = [values for links in inside.values() for values in links.values()]
        middles = [0.0 if end == self._known(low) else self._middle(end) for end in (low, high)]
        return units_of(inside, bounds_of(series, middles[0], middles[1], WIDER))

    def _middle(self, position: int) -> float:
        """The median of a position; nan, which bounds nothing, before it is observed."""
        values = [value for values in self._links(position).values() for value in values]
        return median(values) if values else math.nan

    def _known(self, low: int) -> int | None:
        """The position whose level is 0: the good end, where ratios are to its binary."""
        return 0 if self._noise.paired and low == 0 else None

    def _links(self, position: int) -> Links:
        return self._seen.values.get(position, {})

    def _weight(self, position: int, low: int, high: int) -> float:
        """Effective observations of a position."""
        ratio = self._ratio(low, high)
        own = math.fsum(weight_of(len(values), ratio) for values in self._links(position).values())
        return own + (weight_of(math.inf, ratio) if position == self._known(low) else 0.0)

    def _left(self, low: int, high: int, count: int) -> float:
        """Share of what a build can ever tell that is left after so many observations, under the typical noise."""
        return 1 / (1 + count * self._steps(low, high).ratio)

    def _relinks(self) -> int:
        return 0 if self._seen.unlinked else self._noise.relinks

    def _choice(self, position: int, links: Links) -> Iterator[int]:
        """The builds of a position, and one more relinked one where builds of the same source differ."""
        yield from sorted(links) or (0,)
        if links and self._relinks() > max(links):
            yield max(links) + 1

    def again(self, position: int, batch: int, why: str) -> Wish:
        """Observe a position that has to be known better, in the build that tells most for its cost."""
        links, ratio = self._links(position), 0.0
        if links and self._relinks():
            ratio = self._ratio(0, self._seen.line.last)
        worth = functools.partial(self._worth, links, ratio)
        return Wish(position, batch, why, max(self._choice(position, links), key=worth))

    def _worth(self, links: Links, ratio: float, relink: int) -> float:
        """What one more observation of a build adds to what is known, for its cost."""
        before = len(links.get(relink, ()))
        cost = self._costs.measure + (0 if before else self._costs.relink)
        return (weight_of(before + 1, ratio) - weight_of(before, ratio)) / cost

    def doubt(self, low: int, high: int) -> float:
        """Whether what is seen is the scatter of builds."""
        return self._steps(low, high).doubt
