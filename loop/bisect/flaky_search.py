"""What a search over commits has to know about runs that pass or fail: ends, information, confirmation. Pure."""

import functools
import math
from collections.abc import Iterable, Sequence

from loop.bisect.change_point import posterior
from loop.bisect.confirming import NEEDED, Word, runs_evidence, runs_say
from loop.bisect.failure_rates import Runs
from loop.bisect.probes import Blamed, Look, Refuted, Wish
from loop.bisect.suspects import Claim, Key, Problem, Seen, Try

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
CERTAIN = 0.99
"""Consistent results need no confirmation above this."""


class Correctness:
    """Runs of commits; 1 where one passed."""

    named = 0.95
    telling = 3e-4

    def __init__(self, problem: Problem, seen: Seen) -> None:
        self._problem, self._seen = problem, seen
        self._fit = functools.cache(self._fitted)

    def ends(self, low: int, high: int) -> Wish | Refuted | None:
        """Run both until the bad one evidently fails more often."""
        for end in (high, low):
            if self._seen.count(end) < TWICE:
                return Wish(
                    end, TWICE - self._seen.count(end), "end: does it fail today, and does the good end pass?"
                )
        good, bad = self._runs(low), self._runs(high)
        plain = self._plain(low, high)
        if (plain and self._consistent(good, bad)) or self._evident(bad, good):
            return None
        if (plain and self._consistent(bad, good)) or self._evident(good, bad):
            why = "the good end fails and the bad one passes: are they swapped?"
            return Refuted("no_regression", why, swapped=True)
        return self._alike(good, bad) or self._once_more(low, high)

    def _plain(self, low: int, high: int) -> bool:
        """Whether no commit both failed and passed, so far."""
        inside = [self._runs(position) for position in self._seen.values if low <= position <= high]
        return all(all(runs) or not any(runs) for runs in inside)

    def _once_more(self, low: int, high: int) -> Wish:
        if all(self._runs(low)) and all(self._runs(high)):
            count = TWICE + self._seen.count(high) // 8
            return Wish(high, count, "end: it passed so far, does it fail at times?")
        fewer = min((high, low), key=self._seen.count)
        return Wish(
            fewer, TWICE + self._seen.count(fewer) // 8, "end: it does not always fail, how often does it?"
        )

    def _alike(self, good: Sequence[float], bad: Sequence[float]) -> Refuted | None:
        least = min(len(good), len(bad))
        if least >= ALIKE and not any(good) and not any(bad):
            why = f"the good end fails as well, {len(good)} times of {len(good)}: it is not good today"
            return Refuted("no_regression", f"not reproduced: {why}")
        if len(bad) >= NEVER and all(bad):
            return Refuted(
                "no_regression", f"not reproduced: the bad end passed {len(bad)} times of {len(bad)}, {DRIFTED}"
            )
        if least >= MOST:
            rates = [f"{sum(not run for run in runs)} of {len(runs)}" for runs in (bad, good)]
            return Refuted("inconclusive", f"the bad end fails {rates[0]} times, the good one {rates[1]}")
        return None

    def _consistent(self, good: Sequence[float], bad: Sequence[float]) -> bool:
        return all(good) and not any(bad)

    def _evident(self, bad: Sequence[float], good: Sequence[float]) -> bool:
        return runs_evidence(bad, good, (0.5, 0.05))[0] >= NEEDED

    def _runs(self, position: int) -> list[float]:
        return self._seen.values.get(position, {}).get(0, [])

    def mass(self, low: int, high: int) -> Sequence[float]:
        """As `failure_rates` has it."""
        return self._mass(low, high, self._fit(low, high).likelihoods)

    def guesses(self, low: int, high: int) -> Sequence[float]:
        """While results are consistent, as if they always were: plain bisection."""
        fit = self._fit(low, high)
        return self._mass(low, high, fit.plain if max(fit.plain) > -1e9 else fit.likelihoods)

    def first(self, low: int, high: int) -> Sequence[float]:
        """The posterior."""
        return self.mass(low, high)

    def careful(self) -> "Correctness":
        """As it is."""
        return self

    def doubt(self, low: int, high: int) -> float:
        """None: the ends differ, and builds that are alike do so always."""
        return 0.0

    def _mass(self, low: int, high: int, likelihoods: Sequence[float]) -> Sequence[float]:
        return posterior(self._seen.line.prior, low, high, self._fit(low, high).positions, likelihoods)

    def _fitted(self, low: int, high: int) -> Runs:
        return Runs({position: self._runs(position) for position in self._seen.values if low <= position <= high})

    def _split(self, low: int, high: int) -> tuple[Runs, int]:
        fit = self._fit(low, high)
        return fit, fit.best

    def apart(self, low: int, high: int) -> int | None:
        """A rate between two others is not looked for."""
        return None

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """Two runs of a build that is there; a new build with as many as pay for it."""
        fit, split = self._split(low, high)
        there = (position, 0) in self._seen.built
        cost = 0.0 if there else self._problem.costs.build
        for batch in (1, 2, 4) if there else BATCHES:
            bits = fit.information(split, probability, batch)
            why = f"tells {bits:.2f} bits: fails with probability {probability:.1%}"
            yield Look(Wish(position, batch, why), bits, cost + batch * self._problem.costs.measure)

    def backed(self, low: int, high: int, wish: Wish) -> Wish:
        """Where a rate is known from fewer runs than a commit on trial, these could mean anything."""
        fit, split = self._split(low, high)
        own, sides = self._seen.count(wish.position), [sum(side) for side in fit.sides(split)]
        sides[0 if wish.position <= fit.positions[split] else 1] -= own
        if min(sides) >= own + 1 or wish.position in (low, high):
            return wish
        end = low if sides[0] < sides[1] else high
        return Wish(end, wish.batch, "end: its group has fewer runs than the commit on trial")

    def again(self, position: int, batch: int, why: str) -> Wish:
        """More runs."""
        return Wish(position, batch, why)

    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Wish | None:
        """Results are consistent but few."""
        return self.again(min((parent, suspect), key=self._seen.count), 1, "nothing else tells more")

    def unsure(self, low: int, high: int, doubt: float) -> Refuted:
        """The runs that were made fit too many commits alike."""
        return Refuted("inconclusive", f"failures fit {high - low} commits alike: more runs of each would tell")

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """The culprit fails more often than its parent; the rates are those that the search saw."""
        fit, split = self._split(low, high)
        before, after = fit.rates(split)
        return Claim(number, rates=(after, before))

    def certain(self, low: int, high: int, parent: int, suspect: int, probability: float) -> Wish | bool:
        """Consistent results need no confirmation, but suspect and parent some runs more."""
        fit, split = self._split(low, high)
        if not fit.weights(split)[0]:
            return False
        for position in (parent, suspect):
            if self._seen.count(position) < ALIKE:
                return Wish(position, ALIKE - self._seen.count(position), "does it always do the same?")
        return probability >= CERTAIN or Wish(parent, TWICE, "does it always pass?")

    def word(self, key: Key) -> tuple[Word, float]:
        """What fresh runs of both say."""
        trial = self._seen.trials[key]
        sides = [trial.values.get(position, {}).get(0, []) for position in key[:2]]
        return runs_say(sides[0], sides[1], trial.claim)

    def ask(self, key: Key, claim: Claim) -> Try:
        """More runs of culprit and parent, in turn."""
        trial, shown = self._seen.trials.get(key), self._seen.line.shown
        counts = [len(trial.values.get(position, {}).get(0, [])) if trial else 0 for position in key[:2]]
        tried, other = (key[0], key[1]) if counts[0] <= counts[1] else (key[1], key[0])
        why = f"confirm: does {shown(key[0])} fail more often than {shown(key[1])}?"
        return Try(shown(tried), 4, why, shown(other), 0, claim)

    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """How much more often the culprit fails."""
        trial = self._seen.trials[key]
        sides = [trial.values[position][0] for position in key[:2]]
        rates = [1 - math.fsum(runs) / len(runs) for runs in sides]
        return Blamed(rates[0] - rates[1])
