"""Do both ends of a history differ, in latency, by more than builds do on their own? Pure."""

import math

from loop.bisect.change_point import Levels, z_score
from loop.bisect.latency_builds import SPENT, Builds
from loop.bisect.probes import Refuted, Wish
from loop.timing.verdicts import MARGIN

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
"""A further culprit brings at least this share of the whole step."""


class Ends(Builds):
    """Two positions, and what stands for them."""

    def ends(self, low: int, high: int) -> Wish | Refuted | None:
        """Observe both in turn until they differ, or evidently do not."""
        for end in (low, high):
            missing = ENDS_FIRST - self._seen.count(end)
            if missing > 0 and self._known(low) != end:
                return self.again(end, missing, "end: does the difference show today?")
        levels, z = self._ends(low, high), z_score(self._ends(low, high))
        errors = STANDING_Z if self._begun(low, high) else REPRODUCED_Z
        if levels.step >= errors * levels.error and z >= RARE_Z:
            return None
        if z <= -REPRODUCED_Z and -levels.step > REVERSED * self._steps(low, high).layout_sd:
            why = f"the good end is slower than the bad one, by {math.expm1(-levels.step):.1%}: are they swapped?"
            return Refuted("no_regression", why, swapped=True)
        if not self._relinks() and (low, high) == (0, self._seen.line.last) and self._worn(low, high, levels, z):
            return self._broad(low, high)
        return self._not_yet(low, high, levels, z)

    def _worn(self, low: int, high: int, levels: Levels, z: float) -> bool:
        """Whether more of the same two builds would not tell whether their commits differ."""
        count = min(self._seen.count(end) for end in (low, high) if self._known(low) != end)
        if count >= ENDS_LEAST and levels.step + BOUND_Z * levels.error < self._least(low, high):
            return True
        return abs(z) >= REPRODUCED_Z or (count >= ENDS_LEAST and self._left(low, high, count) < SPENT)

    def _broad(self, low: int, high: int) -> Wish | Refuted | None:
        """Commits next to the ends stand for them, too: builds differ on their own."""
        reach = min(BROAD, (high - low + 1) // 2)
        for near in (range(low, low + reach), range(high, high - reach, -1)):
            for position in near:
                missing = min(self._seen.count(near[0]) or ENDS_LEAST, ENDS_LEAST) - self._seen.count(position)
                if (
                    position not in self._seen.broken
                    and position != self._known(low)
                    and missing > 0
                    and position != near[0]
                ):
                    return Wish(position, missing, "beside an end: does its own build alone differ?")
        doubt, levels = self.doubt(low, high), self._steps(low, high).likely.levels
        tiny = levels.step + BOUND_Z * levels.error < self._least(low, high)
        return self.unsure(low, high, 1.0 if tiny else doubt) if tiny or doubt > SEARCHED else None

    def _begun(self, low: int, high: int) -> bool:
        """Whether the ends of the whole history were verified, since commits between them were observed."""
        whole = (low, high) == (0, self._seen.line.last)
        return whole and any(low < position < high for position in self._seen.values)

    def _not_yet(self, low: int, high: int, levels: Levels, z: float) -> Wish | Refuted:
        count = min(self._seen.count(end) for end in (low, high) if self._known(low) != end)
        bound, least = levels.step + BOUND_Z * levels.error, self._least(low, high)
        if count >= ENDS_LEAST and bound < least:
            found = f"{math.expm1(levels.step):+.2%} after {count} observations"
            why = f"not reproduced: {found}, surely below {math.expm1(least):.1%}: {TODAY}"
            return Refuted("no_regression", why)
        if count >= ENDS_MOST:
            noise = f"observations scatter by {levels.sd:.1%}"
            return Refuted("inconclusive", f"too noisy: {noise}, {bound:.1%} may be hidden (z = {z:.1f})")
        if self._saturated(low, high):
            return Refuted("inconclusive", f"{self._differing()} (z = {z:.1f})")
        fewer = min((low, high), key=lambda end: self._weight(end, low, high))
        return self.again(fewer, 1 + count // 16, f"end: the difference shows with z = {z:.1f}")

    def _differing(self) -> str:
        noise = f"builds of the same source differ by {self._steps(0, self._seen.line.last).layout_sd:.1%}"
        return f"too noisy: {noise}, and {self._relinks()} relinked ones are all that may be asked for"

    def _saturated(self, low: int, high: int) -> bool:
        """Whether all builds of the bad end that may be are there, and more observations tell next to nothing."""
        if not self._relinks():
            return False
        return self._ratio(low, high) * self._weight(high, low, high) > SATURATED * (1 + self._relinks())

    def _least(self, low: int, high: int) -> float:
        """The smallest step that is looked for: the margin of a verdict, or a share of the whole step."""
        last = self._seen.line.last
        return math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self._ends(0, last).step)

    def unsure(self, low: int, high: int, doubt: float) -> Refuted:
        """Builds scatter so much that there may be no step."""
        found = self._steps(low, high)
        likeliest = max(range(len(found.mass)), key=found.mass.__getitem__)
        where = f"commit {self._seen.line.shown(likeliest)} ({(1 - doubt) * found.mass[likeliest]:.0%})"
        seen = f"builds differ by {found.layout_sd:.1%} (sd) on their own"
        why = f"{seen}, the likeliest step is {math.expm1(found.likely.levels.step):+.1%} at {where}"
        if doubt > 0.5:
            return Refuted("no_regression", f"not reproduced: no step stands out, {why}: {TODAY}")
        return Refuted("inconclusive", f"no step stands out for certain: {why}")

    def apart(self, low: int, high: int) -> int | None:
        """The position that is above the good end and below the bad one for certain; the best known of them."""
        inside = [position for position in self._seen.values if low < position < high]
        return max((one for one in inside if self._stands_out(low, high, one)), key=self._seen.count, default=None)

    def _stands_out(self, low: int, high: int, position: int) -> bool:
        if self._seen.count(position) < ENDS_FIRST:
            return False
        ratio = self._steps(low, high).ratio
        both = self._alone(low, position, ratio), self._alone(position, high, ratio)
        far = all(levels.step >= REPRODUCED_Z * levels.error for levels in both)
        return far and all(z_score(levels) >= REPRODUCED_Z for levels in both)
