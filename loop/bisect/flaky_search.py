"""What a search over commits has to know about runs that pass or fail: ends, information, confirmation. Pure."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from loop.bisect.change_point import posterior
from loop.bisect.confirming import NEEDED, Word, runs_evidence, runs_say
from loop.bisect.failure_rates import Runs
from loop.bisect.journal import Observations
from loop.bisect.model import Conclusion, Key, Problem, Try
from loop.bisect.probes import Blamed, Look, Metric
from loop.model.bisect import Claim

TWICE = 2
"""Failing twice on one seed is failing always, as long as nothing else is seen."""
ALIKE = 4
"""Runs of each end, all failing, after which they are alike."""
NEVER = 60
"""Runs of the bad end, all passing, after which nothing is reproduced."""
MOST = 200
"""Runs of each end after which it is left open whether they differ."""
BATCHES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Sizes that are considered for the first look at a commit."""
DRIFTED = "so it is good today: what failed before may have come from the machine, the compiler or the inputs"
"""What is said where there is nothing to search: an environment that drifted is in no commit."""
ALWAYS = 0.995
"""A rise of the failure rate above this is from never to always."""
CERTAIN = 0.99
"""Consistent results need no confirmation above this."""


class Correctness(Metric):
    """Runs of commits; 1 where one passed."""

    named = 0.95
    telling = 3e-4

    def __init__(self, problem: Problem, seen: Observations) -> None:
        super().__init__(problem, seen)
        self._fit = functools.cache(self._fitted)

    def ends(self, low: int, high: int) -> Try | Conclusion | None:
        """Run both until the bad one evidently fails more often."""
        for end in (high, low):
            missing = TWICE - self.seen.count(end)
            if missing > 0:
                return self.look(end, missing, "end: does it fail today, and does the good end pass?")
        good, bad = self._runs(low), self._runs(high)
        plain = self._plain(low, high)
        if (plain and all(good) and not any(bad)) or self._evident(bad, good):
            return None
        if (plain and all(bad) and not any(good)) or self._evident(good, bad):
            why = "the good end fails and the bad one passes: are they swapped?"
            return Conclusion("no_regression", why, swapped=True)
        return self._alike(good, bad) or self._once_more(low, high)

    def _plain(self, low: int, high: int) -> bool:
        """Whether no commit both failed and passed, so far."""
        inside = [self._runs(position) for position in self.seen.values if low <= position <= high]
        return all(all(runs) or not any(runs) for runs in inside)

    def _once_more(self, low: int, high: int) -> Try:
        if all(self._runs(low)) and all(self._runs(high)):
            end, why = high, "end: it passed so far, does it fail at times?"
        else:
            end = min((high, low), key=self.seen.count)
            why = "end: it does not always fail, how often does it?"
        return self.look(end, TWICE + self.seen.count(end) // 8, why)

    def _alike(self, good: Sequence[float], bad: Sequence[float]) -> Conclusion | None:
        least = min(len(good), len(bad))
        if least >= ALIKE and not any(good) and not any(bad):
            why = f"the good end fails as well, {len(good)} times of {len(good)}: it is not good today"
            return Conclusion("no_regression", f"not reproduced: {why}")
        if len(bad) >= NEVER and all(bad):
            why = f"the bad end passed {len(bad)} times of {len(bad)}, {DRIFTED}"
            return Conclusion("no_regression", f"not reproduced: {why}")
        if least >= MOST:
            rates = [f"{sum(not run for run in runs)} of {len(runs)}" for runs in (bad, good)]
            return Conclusion("inconclusive", f"the bad end fails {rates[0]} times, the good one {rates[1]}")
        return None

    def _evident(self, bad: Sequence[float], good: Sequence[float]) -> bool:
        return runs_evidence(bad, good, (0.5, 0.05))[0] >= NEEDED

    def _runs(self, position: int) -> list[float]:
        return self.seen.values.get(position, {}).get(0, [])

    def said(self, step: float) -> str:
        """`it fails where its parent passes`, or how much more often it fails."""
        if step >= ALWAYS:
            return "it fails where its parent passes"
        return f"it fails in {round(100 * step)} of 100 runs more than its parent"

    def mass(self, low: int, high: int) -> Sequence[float]:
        """As `failure_rates` has it."""
        return self._mass(low, high, self._fit(low, high).likelihoods)

    def guesses(self, low: int, high: int) -> Sequence[float]:
        """While results are consistent, as if they always were: plain bisection."""
        fit = self._fit(low, high)
        return self._mass(low, high, fit.plain if max(fit.plain) > -1e9 else fit.likelihoods)

    def _mass(self, low: int, high: int, likelihoods: Sequence[float]) -> Sequence[float]:
        return posterior(self.seen.positions.prior, self._fit(low, high).positions, likelihoods)

    def _fitted(self, low: int, high: int) -> Runs:
        return Runs({position: self._runs(position) for position in self.seen.values if low <= position <= high})

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """Two runs of a build that is there; a new build with as many as pay for it."""
        fit = self._fit(low, high)
        there = (position, 0) in self.seen.built
        cost = 0.0 if there else self.problem.costs.build
        for batch in (1, 2, 4) if there else BATCHES:
            bits = fit.information(fit.best, probability, batch)
            why = f"tells {bits:.2f} bits: fails with probability {probability:.1%}"
            yield Look(self.look(position, batch, why), bits, cost + batch * self.problem.costs.measure)

    def sides(self, low: int, high: int, position: int) -> tuple[float, float]:
        """Where a rate is known from fewer runs than a commit on trial, these could mean anything."""
        fit, own = self._fit(low, high), self.seen.count(position)
        below, above = (sum(side) for side in fit.sides(fit.best))
        return (below - own, above) if position <= fit.positions[fit.best] else (below, above - own)

    def weight(self, position: int, low: int, high: int) -> float:
        """Its runs."""
        return self.seen.count(position)

    def instead(self, low: int, high: int, end: int, wanted: Try) -> Try:
        """As many runs of the end."""
        return self.look(end, wanted.batch, "end: its group has fewer runs than the commit on trial")

    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Try | None:
        """Results are consistent but few."""
        return self.look(min((parent, suspect), key=self.seen.count), 1, "nothing else tells more")

    def unsure(self, low: int, high: int, doubt: float) -> Conclusion:
        """The runs that were made fit too many commits alike."""
        return Conclusion("inconclusive", f"failures fit {high - low} commits alike: more runs of each would tell")

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """The culprit fails more often than its parent; the rates are those that the search saw."""
        fit = self._fit(low, high)
        before, after = fit.rates(fit.best)
        return Claim(number=number, rates=(after, before))

    def certain(self, low: int, high: int, parent: int, suspect: int, probability: float) -> Try | bool:
        """Consistent results need no confirmation, but suspect and parent some runs more."""
        fit = self._fit(low, high)
        if not fit.weights(fit.best)[0]:
            return False
        for position in (parent, suspect):
            if self.seen.count(position) < ALIKE:
                return self.look(position, ALIKE - self.seen.count(position), "does it always do the same?")
        return probability >= CERTAIN or self.look(parent, TWICE, "does it always pass?")

    def word(self, key: Key) -> tuple[Word, float]:
        """What fresh runs of both say."""
        culprit, parent = (self.fresh(key, position).get(0, []) for position in key[:2])
        return runs_say(culprit, parent, self.seen.confirmations[key].claim)

    def ask(self, key: Key, claim: Claim) -> Try:
        """More runs of culprit and parent, in turn."""
        tried, other = sorted(key[:2], key=lambda position: len(self.fresh(key, position).get(0, [])))
        why = f"confirm: does {self.name(key[0])} fail more often than {self.name(key[1])}?"
        return replace(self.look(tried, 4, why), against=self.seen.positions.shown(other), claim=claim)

    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """How much more often the culprit fails."""
        culprit, parent = (1 - fmean(self.fresh(key, position)[0]) for position in key[:2])
        return Blamed(culprit - parent)
