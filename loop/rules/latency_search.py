"""What a search over commits has to know about latencies: ends, noise, information, confirmation. Pure."""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev

from loop.rules.change_point import Fit, Levels, Unit, bounds_of, units_of, weight_of, z_score
from loop.rules.compare import MARGIN
from loop.rules.confirming import Word, pairs_say
from loop.rules.information import of_normal
from loop.rules.probes import Blamed, Look, Refuted, Wish
from loop.rules.steps import Guess, Steps
from loop.rules.suspects import Claim, Key, Problem, Seen, Try
from loop.stats import median

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
USELESS = 0.1
"""What one more observation has to add to the effective ones of its build, or it helps nobody."""
TODAY = "the bad end is as fast today, so what was slow may have been the machine or its environment"
"""What is said where there is nothing to search."""
BOUND_Z = 2.6
"""Standard errors above which a difference is ruled out."""
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
SPENT = 0.1
"""Share of what a build can tell: where less is left, it has told what it can."""
BROAD = 3
"""Builds that stand for an end where its own may be faster or slower by its layout."""
NEIGHBOURS = 6
"""Builds on either side of the commits in doubt, after which no more are asked for."""
CLOSE = 2
"""So many of them are next to the suspect."""
APART = 4.0
"""Observations of such a build: as many as put both levels so many standard errors apart."""
BATCH_MOST = 16
"""Observations of such a build at most."""
WIDER = 0.01
"""What builds may differ by on their own, before an observation is called an outlier."""
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
SIZE_MOST = 60
"""Pairs, and observations of an end, after which a share that is not clearly too small is taken for the whole."""
PART = 0.15
"""A further culprit brings at least this share of the whole step."""
Links = Mapping[int, Sequence[float]]
"""Observations of a position, by relink."""


class Latency:
    """Log latencies, or log ratios of pairs; see `suspects.Noise`."""

    named = 0.98
    telling = 2e-3

    def __init__(self, problem: Problem, seen: Seen, *, careful: bool = False) -> None:
        """`careful`: builds differ by what is typical; by itself by the least that is not improbable."""
        self._problem, self._careful = problem, careful
        self._costs, self._noise, self._seen = problem.costs, problem.noise, seen
        self._pilot = problem.noise.pilot_sd, problem.noise.pilot_freedom
        self._units = functools.cache(self._units_between)
        self._steps = functools.cache(self._steps_between)
        self._ends = functools.cache(self._ends_alone)

    # The ends

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
                if position not in self._seen.broken and position != self._known(low) and missing > 0 and position != near[0]:
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
        wanted += [number for number in there if self._seen.count(testable[number]) < batch and testable[number] != self._known(low)]
        for number in wanted:
            missing = batch - self._seen.count(testable[number])
            why = "neighbour: what do builds differ by on their own?"
            return len(there), Wish(testable[number], missing, why)
        return None

    def _observed(self, position: int) -> bool:
        return self._seen.count(position) > 0 or self._known(0) == position == 0

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

    def _saturated(self, low: int, high: int) -> bool:
        """Whether all builds of the bad end that may be are there, and more observations tell next to nothing."""
        if not self._relinks():
            return False
        return self._ratio(low, high) * self._weight(high, low, high) > SATURATED * (1 + self._relinks())

    def _least(self, low: int, high: int) -> float:
        """The smallest step that is looked for: the margin of a verdict, or a share of the whole step."""
        last = self._seen.line.last
        return math.log1p(MARGIN) if (low, high) == (0, last) else PART * abs(self._ends(0, last).step)

    def _known(self, low: int) -> int | None:
        """The position whose level is 0: the good end, where ratios are to its binary."""
        return 0 if self._noise.paired and low == 0 else None

    # The posterior

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

    def _guess(self, low: int, high: int) -> Guess:
        steps = self._steps(low, high)
        return steps.likely if self._careful else steps.quick

    def doubt(self, low: int, high: int) -> float:
        """Whether what is seen is the scatter of builds."""
        return self._steps(low, high).doubt

    def _steps_between(self, low: int, high: int) -> Steps:
        return Steps(self._units(low, high), self._seen.line.prior, self._known(low), self._pilot)

    def _ratio(self, low: int, high: int) -> float:
        """Variance between builds of the same source over that of observations."""
        return self._guess(low, high).ratio

    def _fit(self, low: int, high: int) -> Fit:
        return self._guess(low, high).fit

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

    def _links(self, position: int) -> Links:
        return self._seen.values.get(position, {})

    def _weight(self, position: int, low: int, high: int) -> float:
        """Effective observations of a position."""
        ratio = self._ratio(low, high)
        own = math.fsum(weight_of(len(values), ratio) for values in self._links(position).values())
        return own + (weight_of(math.inf, ratio) if position == self._known(low) else 0.0)

    def _levels(self, low: int, high: int) -> Levels:
        """Both sides of the likeliest step."""
        return self._guess(low, high).levels

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

    # What to look at

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

    def _left(self, low: int, high: int, count: int) -> float:
        """Share of what a build can ever tell that is left after so many observations, under the typical noise."""
        return 1 / (1 + count * self._steps(low, high).ratio)

    def _patience(self, low: int, high: int) -> float:
        levels = self._levels(low, high)
        return min(1 + PATIENCE * (levels.sd / max(levels.step, 1e-300)) ** 2, PATIENCE_MOST)

    def _choice(self, position: int, links: Links) -> Iterator[int]:
        """The builds of a position, and one more relinked one where builds of the same source differ."""
        yield from sorted(links) or (0,)
        if links and self._relinks() > max(links):
            yield max(links) + 1

    def _relinks(self) -> int:
        return 0 if self._seen.unlinked else self._noise.relinks

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

    # Confirmation

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
        """What the offsets of four builds bring into a culprit's share of the whole, where none is relinked (sd)."""
        return 0.0 if self._relinks() else math.sqrt(2 + 2 * WHOLE**2) * self._steps(low, high).layout_sd

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
