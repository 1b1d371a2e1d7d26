"""What a search over commits has to know of latencies: what to look at next, and confirmations. Pure."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev

from loop.bisect.change_point import weight_of
from loop.bisect.confirming import Word, pairs_say
from loop.bisect.information import of_normal
from loop.bisect.journal import Links
from loop.bisect.latency_levels import SPENT, LatencyLevels
from loop.bisect.model import Key, Try
from loop.bisect.probes import Blamed, Look
from loop.model.bisect import Claim

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
"""So many builds beside a suspect are next to it."""
APART = 4.0
"""Observations of such a build: as many as put both levels so many standard errors apart."""
BATCH_MOST = 16
"""Observations of such a build at most."""
CLAIMED = 0.15
"""Share of the step that a culprit has to exceed for certain."""
EXPECTED = 0.5
"""Share that it is expected to reach: evidently below that it is none."""
VARIANCE_MOST = 1e4
"""Prior variance of the effect at most, in units of what one pair in a layout of its own scatters by."""
FIRST_PAIRS = 4
"""Pairs of a confirmation before it is judged."""
RELINKED = 2
"""Fresh layouts that a culprit is confirmed in, at least, where builds of the same source differ."""
WHOLE = 0.7
"""A culprit that explains less of the whole step is not alone."""
WHOLE_Z = 1.645
"""Standard errors by which it has to be less."""
OFFSETS = math.sqrt(2 + 2 * WHOLE**2)
"""Of culprit and parent, and of both ends: the scatter of what is missing, where each build has one (sd)."""
SIZE_MOST = 60
"""Pairs, and observations of an end, after which a share that is not clearly too small is taken for the whole."""


class Latency(LatencyLevels):
    """Where to look, and whether a suspect is slower than its parent in fresh pairs."""

    named = 0.98
    telling = 2e-3

    def mass(self, low: int, high: int) -> Sequence[float]:
        """Averaged over what builds may differ by on their own."""
        return self._steps(low, high).mass

    def first(self, low: int, high: int) -> Sequence[float]:
        """As if builds differed by one known noise."""
        return self._fit(low, high).mass

    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Try | None:
        """A build next to a suspect, or to commits in doubt, on the side that has fewer.

        It shows what builds differ by; then the levels of both sides are known from several builds.
        """
        sides = (range(parent, low - 1, -1), range(suspect, high + 1))
        looks = [one for one in (self._beside(low, high, side, least) for side in sides) if one]
        return min(looks, key=lambda one: one[0])[1] if looks else None

    def _beside(self, low: int, high: int, side: Sequence[int], least: int) -> tuple[int, Try] | None:
        """How many builds a side has, and a look at one; None where they are enough, or all.

        Two that are next to the suspect, then those in the middle of the widest gaps: what is far off may be, too.
        """
        testable = [position for position in side if position not in self.seen.broken]
        there = [n for n, position in enumerate(testable) if self.seen.count(position) or self._is_known(position)]
        wanted = [number for number in range(min(CLOSE, len(testable))) if number not in there]
        if not wanted and len(there) < min(least, len(testable)):
            gap = max(pairwise([*there, len(testable)]), key=lambda gap: gap[1] - gap[0])
            wanted = [sum(gap) // 2]
        levels = self._fit(low, high).likeliest
        batch = math.ceil(min(APART * levels.sd / max(levels.step, 1e-300), BATCH_MOST**0.5) ** 2)
        wanted += [number for number in there if not self._is_known(testable[number])]
        for position in (testable[number] for number in wanted):
            missing = batch - self.seen.count(position)
            if missing > 0:
                return len(there), self.look(
                    position, missing, "neighbour: what do builds differ by on their own?"
                )
        return None

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """One more observation of a build that is there; a new build with as many as pay for it."""
        sides, costs = self.sides(low, high, position), self.problem.costs
        links = self._links(position)
        for relink in self._choice(links):
            there, before = (position, relink) in self.seen.built, len(links.get(relink, ()))
            if there and self._left(low, high, before) < SPENT:
                continue
            making = costs.relink if relink else costs.build * self._patience(low, high)
            for batch in (1,) if there else BATCHES:
                bits = of_normal(probability, self._separation(low, high, before, batch, sides))
                why = f"tells {bits:.2f} bits: slow with probability {probability:.1%}"
                count = max(math.ceil(batch / FIRST_SHARE), before // AGAIN_SHARE)
                cost = (0.0 if there else making) + batch * costs.measure
                yield Look(self.look(position, count, why, relink), bits, cost)

    def _patience(self, low: int, high: int) -> float:
        levels = self._fit(low, high).likeliest
        return min(1 + PATIENCE * (levels.sd / max(levels.step, 1e-300)) ** 2, PATIENCE_MOST)

    def sides(self, low: int, high: int, position: int) -> tuple[float, float]:
        """Effective observations of either side of the likeliest step, without those of a position."""
        fit = self._fit(low, high)
        below, above = fit.likeliest.weights
        own = self._own(position, fit.ratio)
        return (below - own, above) if position <= fit.positions[fit.best] else (below, above - own)

    def _separation(self, low: int, high: int, before: int, batch: int, sides: tuple[float, float]) -> float:
        """How far apart the levels are, in standard deviations of what `batch` more observations tell."""
        fit = self._fit(low, high)
        gained = weight_of(before + batch, fit.ratio) - weight_of(before, fit.ratio)
        variance = 1 / max(gained, 1e-12) + sum(1 / max(side, 0.5) for side in sides) / 4
        return max(fit.likeliest.step, 0.0) / fit.likeliest.sd / math.sqrt(variance)

    def instead(self, low: int, high: int, end: int, wanted: Try) -> Try:
        """An end group never has fewer observations than the commit on trial, or the search stalls."""
        if self._is_known(end):
            return wanted
        again = self.again(end, 1, "end: its group has fewer observations than the commit on trial")
        before, ratio = len(self._links(end).get(again.relink, ())), self._fit(low, high).ratio
        return again if weight_of(before + 1, ratio) - weight_of(before, ratio) > USELESS else wanted

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """The culprit exceeds its parent by a share of the step that the search sees."""
        levels = self._fit(low, high).likeliest
        layout_sd = self._steps(low, high).layout_sd if self._relinks() else 0.0
        sd = max(levels.sd, 1e-12) * (1 if self.problem.noise.paired else math.sqrt(2))
        above, ratio = CLAIMED * levels.step, 2 * layout_sd**2 / sd**2
        return Claim(
            number=number,
            above=above,
            below=EXPECTED * levels.step,
            clip=levels.step - above + 4 * (sd + layout_sd),
            variance=min(max(1.0, ((levels.step - above) / sd) ** 2), VARIANCE_MOST * (1 + ratio)),
            ratio=ratio,
        )

    def word(self, key: Key) -> tuple[Word, float]:
        """What the pairs say, once there are enough of them."""
        links = self.fresh(key, key[0])
        enough = sum(map(len, links.values())) >= FIRST_PAIRS and len(links) >= min(RELINKED, self._relinks())
        return pairs_say(links, self.seen.confirmations[key].claim) if enough else ("open", 1.0)

    def ask(self, key: Key, claim: Claim) -> Try:
        """More pairs of culprit and parent; in fresh layouts where builds of the same source differ."""
        culprit, parent, _ = key
        links = self.fresh(key, culprit)
        count = sum(map(len, links.values()))
        batch = max(FIRST_PAIRS - count, 1 + count // 8)
        relink = self._fresh_layout(key, links, claim.ratio) if self._relinks() else 0
        names = f"{self.name(culprit)} slower than {self.name(parent)}"
        wanted = self.look(
            culprit,
            min(batch, 2) if relink else batch,
            f"confirm: is {names} by over {math.expm1(claim.above):.1%}?",
            relink,
        )
        return replace(wanted, against=self.seen.positions.shown(parent), claim=claim)

    def _fresh_layout(self, key: Key, links: Links, ratio: float) -> int:
        """Not one of those that made the suspect: one that the confirmation has, or the next."""
        used = max((relink for position in key[:2] for relink in self._links(position)), default=0)
        following = max(links, default=used) + 1
        open_to = [*links, *([following] if len(links) < self._relinks() else [])]
        if len(links) < RELINKED:
            return open_to[-1]
        return max(open_to, key=functools.partial(self._worth, links, ratio))

    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """The step of the pairs, and whether it is too small to be the whole."""
        pairs, whole = self._pairs(key), self._whole(low, high)
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        layout = 0.0 if self._relinks() else OFFSETS * self._steps(low, high).layout_sd
        missing, unsure = WHOLE * whole.step - step, math.hypot(WHOLE * whole.error, error)
        if missing > WHOLE_Z * math.hypot(unsure, layout):
            return Blamed(step, remains=True)
        return Blamed(step, more=self._sized(low, high, key, error) if missing > 0 and unsure > layout else None)

    def _pairs(self, key: Key) -> list[float]:
        """All pairs of a confirmed culprit and its parent, clipped as its claim has it."""
        claim = self.seen.confirmations[key].claim
        links = [*self.fresh(key, key[0]).values(), *self.fresh((*key[:2], 0), key[0]).values()]
        far = math.inf if claim.clip is None else claim.clip
        return [min(max(value, claim.above - far), claim.above + far) for values in links for value in values]

    def _sized(self, low: int, high: int, key: Key, error: float) -> Try | None:
        """What is less certain once more, the whole step or the culprit's share; nothing after enough of both."""
        whole = self._whole(low, high)
        fewer = min((low, high), key=lambda end: self.weight(end, low, high))
        if error < WHOLE * whole.error and self.seen.count(fewer) < SIZE_MOST:
            return self.again(fewer, 2, "end: how large is the whole step?")
        if len(self._pairs(key)) >= SIZE_MOST:
            return None
        claim = self.seen.confirmations[key].claim.model_copy(update={"number": 0})
        why = f"size: how much of the whole step is it, {math.expm1(whole.step):.1%}?"
        return replace(self.ask((*key[:2], 0), claim), why=why, batch=2)
