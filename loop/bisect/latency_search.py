"""What a search over commits has to know of latencies: where the step may be, what to look at next. Pure."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from loop.bisect.change_point import weight_of
from loop.bisect.information import of_normal
from loop.bisect.latency_builds import SPENT
from loop.bisect.latency_confirming import Confirming
from loop.bisect.latency_ends import Ends
from loop.bisect.probes import Look, Wish

USELESS = 0.1
"""What one more observation has to add to the effective ones of its build, or it helps nobody."""
BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
"""Sizes that are considered for the first look at a commit."""
FIRST_SHARE = 4
"""Of the observations that would pay for a build one in so many is asked for at once: most sides show soon."""
AGAIN_SHARE = 4
"""Of the observations that a build has one in so many is asked for at once again."""
PATIENCE = 6.0
"""A build counts 1 + PATIENCE / (step / noise)^2 times: where looks tell little, wrong turns cost more builds."""
PATIENCE_MOST = 4.0
"""But not more often than this."""
CLOSE = 2
"""So many of them are next to the suspect."""
APART = 4.0
"""Observations of such a build: as many as put both levels so many standard errors apart."""
BATCH_MOST = 16
"""Observations of such a build at most."""


class Latency(Ends, Confirming):
    """Log latencies, or log ratios of pairs; see `suspects.Noise`."""

    named = 0.98
    telling = 2e-3

    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Wish | None:
        """A build next to a suspect, or to commits in doubt, on the side that has fewer.

        It shows what builds differ by; then the levels of both sides are known from several builds.
        """
        sides = (range(parent, low - 1, -1), range(suspect, high + 1))
        found = [one for one in (self._beside(low, high, side, least) for side in sides) if one]
        return min(found, key=lambda one: one[0])[1] if found else None

    def _beside(self, low: int, high: int, side: Sequence[int], least: int) -> tuple[int, Wish] | None:
        """How many builds a side has, and a look at one; None where they are enough, or all.

        Two that are next to the suspect, then those in the middle of the widest gaps: what is far off may be, too.
        """
        testable = [position for position in side if position not in self._seen.broken]
        there = [number for number, position in enumerate(testable) if self._observed(position)]
        levels = self._levels(low, high)
        batch = math.ceil(min(APART * levels.sd / max(levels.step, 1e-300), BATCH_MOST**0.5) ** 2)
        wanted = [number for number in range(min(CLOSE, len(testable))) if number not in there]
        if not wanted and len(there) < min(least, len(testable)):
            gaps = sorted(pairwise([*there, len(testable)]), key=lambda gap: gap[0] - gap[1])
            wanted = [sum(gaps[0]) // 2]
        wanted += [
            number
            for number in there
            if self._seen.count(testable[number]) < batch and testable[number] != self._known(low)
        ]
        for number in wanted:
            missing = batch - self._seen.count(testable[number])
            why = "neighbour: what do builds differ by on their own?"
            return len(there), Wish(testable[number], missing, why)
        return None

    def _observed(self, position: int) -> bool:
        return self._seen.count(position) > 0 or self._known(0) == position == 0

    def mass(self, low: int, high: int) -> Sequence[float]:
        """Averaged over what builds may differ by on their own."""
        return self._steps(low, high).mass

    def first(self, low: int, high: int) -> Sequence[float]:
        """As if builds differed by one known noise."""
        return self._guess(low, high).mass

    def guesses(self, low: int, high: int) -> Sequence[float]:
        """The same."""
        return self._guess(low, high).mass

    def careful(self) -> "Latency":
        """With the noise between builds that is typical."""
        return Latency(self._problem, self._seen, careful=True)

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """One more observation of a build that is there; a new build with as many as pay for it."""
        sides = self._sides(low, high, position)
        for relink in self._choice(position, self._links(position)):
            there = (position, relink) in self._seen.built
            cost = (
                0.0 if there else self._costs.relink if relink else self._costs.build * self._patience(low, high)
            )
            before = len(self._links(position).get(relink, ()))
            if there and self._left(low, high, before) < SPENT:
                continue
            for batch in (1,) if there else BATCHES:
                bits = of_normal(probability, self._separation(low, high, before, batch, sides))
                why = f"tells {bits:.2f} bits: slow with probability {probability:.1%}"
                wish = Wish(position, max(math.ceil(batch / FIRST_SHARE), before // AGAIN_SHARE), why, relink)
                yield Look(wish, bits, cost + batch * self._costs.measure)

    def _patience(self, low: int, high: int) -> float:
        levels = self._levels(low, high)
        return min(1 + PATIENCE * (levels.sd / max(levels.step, 1e-300)) ** 2, PATIENCE_MOST)

    def _sides(self, low: int, high: int, position: int) -> tuple[float, float]:
        """Effective observations of either side of the likeliest step, without those of a position."""
        fit, ratio = self._fit(low, high), self._ratio(low, high)
        below, above = fit.levels(fit.best).weights
        own = math.fsum(weight_of(len(values), ratio) for values in self._links(position).values())
        return (below - own, above) if position <= fit.positions[fit.best] else (below, above - own)

    def _separation(self, low: int, high: int, before: int, batch: int, sides: tuple[float, float]) -> float:
        """How far apart the levels are, in standard deviations of what `batch` more observations tell."""
        levels, ratio = self._levels(low, high), self._ratio(low, high)
        gained = weight_of(before + batch, ratio) - weight_of(before, ratio)
        variance = 1 / max(gained, 1e-12) + sum(1 / max(side, 0.5) for side in sides) / 4
        return max(levels.step, 0.0) / levels.sd / math.sqrt(variance)

    def backed(self, low: int, high: int, wish: Wish) -> Wish:
        """An end group never has fewer observations than the commit on trial, or the search stalls."""
        below, above = self._sides(low, high, wish.position)
        own = self._weight(wish.position, low, high)
        if min(below, above) >= own + 1 or wish.position in (low, high):
            return wish
        end = low if below < above else high
        if end == self._known(low):
            return wish
        instead = self.again(end, 1, "end: its group has fewer observations than the commit on trial")
        before = len(self._links(end).get(instead.relink, ()))
        gained = weight_of(before + 1, self._ratio(low, high)) - weight_of(before, self._ratio(low, high))
        return instead if gained > USELESS else wish
