"""Is a culprit slower than its parent, in fresh pairs, and how much of the whole step is that? Pure."""

import functools
import math
from dataclasses import replace
from statistics import fmean, stdev

from loop.bisect.confirming import Word, pairs_say
from loop.bisect.latency_builds import Builds, Links
from loop.bisect.probes import Blamed, Wish
from loop.bisect.suspects import Claim, Key, Try

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


class Confirming(Builds):
    """Confirmations of latencies; see `confirming`."""

    def certain(self, low: int, high: int, parent: int, suspect: int, probability: float) -> Wish | bool:
        """Latencies are always confirmed."""
        return False

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """The culprit exceeds its parent by a share of the step that the search sees."""
        levels, layout_sd = self._levels(low, high), self._steps(low, high).layout_sd if self._relinks() else 0.0
        sd = max(levels.sd, 1e-12) * (1 if self._noise.paired else math.sqrt(2))
        above, ratio = CLAIMED * levels.step, 2 * layout_sd**2 / sd**2
        return Claim(
            number,
            above=above,
            below=EXPECTED * levels.step,
            clip=levels.step - above + 4 * (sd + layout_sd),
            variance=min(max(1.0, ((levels.step - above) / sd) ** 2), VARIANCE_MOST * (1 + ratio)),
            ratio=ratio,
        )

    def word(self, key: Key) -> tuple[Word, float]:
        """What the pairs say, once there are enough of them."""
        trial = self._seen.trials[key]
        links = trial.values.get(key[0], {})
        enough = sum(map(len, links.values())) >= FIRST_PAIRS and len(links) >= min(RELINKED, self._relinks())
        return pairs_say(links, trial.claim) if enough else ("open", 1.0)

    def ask(self, key: Key, claim: Claim) -> Try:
        """More pairs of culprit and parent; in fresh layouts where builds of the same source differ."""
        culprit, parent, _ = key
        links = self._seen.trials[key].values.get(culprit, {}) if key in self._seen.trials else {}
        count, shown = sum(map(len, links.values())), self._seen.line.shown
        batch = max(FIRST_PAIRS - count, 1 + count // 8)
        relink = self._fresh_layout(key, links, claim.ratio) if self._relinks() else 0
        why = f"confirm: is {shown(culprit)} slower than {shown(parent)} by over {math.expm1(claim.above):.1%}?"
        return Try(shown(culprit), min(batch, 2) if relink else batch, why, shown(parent), relink, claim)

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
        pairs, whole = self._pairs(key), self._ends(low, high)
        step, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
        layout = self._layout(low, high)
        missing, unsure = WHOLE * whole.step - step, math.hypot(WHOLE * whole.error, error)
        if missing > WHOLE_Z * math.hypot(unsure, layout):
            return Blamed(step, remains=True)
        return Blamed(step, more=self._sized(low, high, key, error) if missing > 0 and unsure > layout else None)

    def _layout(self, low: int, high: int) -> float:
        """What the offsets of four builds bring into a share of the whole, where none is relinked (sd)."""
        return 0.0 if self._relinks() else OFFSETS * self._steps(low, high).layout_sd

    def _pairs(self, key: Key) -> list[float]:
        """All pairs of a confirmed culprit and its parent, clipped as its claim has it."""
        claim, sized = self._seen.trials[key].claim, (*key[:2], 0)
        trials = [self._seen.trials[one] for one in (key, sized) if one in self._seen.trials]
        logs = [value for trial in trials for values in trial.values[key[0]].values() for value in values]
        return [min(max(value, claim.above - claim.clip), claim.above + claim.clip) for value in logs]

    def _sized(self, low: int, high: int, key: Key, error: float) -> Wish | Try | None:
        """What is less certain once more, the whole step or the culprit's share; nothing after enough of both."""
        fewer = min((low, high), key=lambda end: self._weight(end, low, high))
        if error < WHOLE * self._ends(low, high).error and self._seen.count(fewer) < SIZE_MOST:
            return self.again(fewer, 2, "end: how large is the whole step?")
        if len(self._pairs(key)) >= SIZE_MOST:
            return None
        claim = replace(self._seen.trials[key].claim, number=0)
        why = f"size: how much of the whole step is it, {math.expm1(self._ends(low, high).step):.1%}?"
        return replace(self.ask((*key[:2], 0), claim), why=why, batch=2)
