"""What runs that pass or fail say: a test that fails, always or at times, from some commit on. Pure.

Before the step a run fails with one rate, from it on with another. Each commit votes for its side by the log
likelihood ratio of its runs; the score of a gap is the sum of the votes of the commits above it. While no commit
both failed and passed, the rates are near 0 and 1, and the search is plain bisection.
"""

import functools
import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

from loop.bisect.model import Key, Observations, SearchEnd, Try
from loop.model.bisect import Claim

PLAIN = 0.005
"""Failure rate before the step, and pass rate after it, while all results are consistent."""
TWICE, ALIKE = 2, 4
"""Runs of a commit at first; runs of each end, all failing, after which they are alike."""
NEVER, MOST = 60, 200
"""Runs of the bad end, all passing, after which nothing is reproduced; runs after which something is left open."""
NEEDED, FUTILE = 100.0, 20.0
"""Evidence that confirms a culprit; that denies it."""
LEAST = 0.02
"""No rate of a confirmation is expected nearer to 0 or 1."""
DRIFTED = "so it is good today: what failed before may have come from the machine, the compiler or the inputs"


class Runs:
    """Runs, commit by commit; 1 where one passed. `low` and `high` are two positions that differ."""

    def __init__(self, observations: Observations) -> None:
        self.seen = observations
        self.fit = functools.cache(self._fit)

    def plain(self, low: int, high: int) -> bool:
        """Whether no commit both failed and passed, so far."""
        inside = [runs for at, runs in self.seen.values.items() if low <= at <= high]
        return all(all(runs) or not any(runs) for runs in inside)

    def ends(self, low: int, high: int) -> Try | SearchEnd | None:
        """Run both until the bad one evidently fails more often."""
        for end in (high, low):
            if (missing := TWICE - self.seen.count(end)) > 0:
                return self.seen.look(end, missing, "end: does it fail today, and does the good end pass?")
        good, bad = self.seen.values[low], self.seen.values[high]
        plain = self.plain(low, high)
        if (plain and all(good) and not any(bad)) or runs_evidence(bad, good, (0.5, 0.05)) >= NEEDED:
            return None
        if (plain and all(bad) and not any(good)) or runs_evidence(good, bad, (0.5, 0.05)) >= NEEDED:
            why = "the good end fails and the bad one passes: are they swapped?"
            return SearchEnd("no_regression", why, swapped=True)
        least = min(len(good), len(bad))
        if least >= ALIKE and not any(good) and not any(bad):
            why = f"the good end fails as well, {len(good)} times of {len(good)}: it is not good today"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if len(bad) >= NEVER and all(bad):
            why = f"the bad end passed {len(bad)} times of {len(bad)}, {DRIFTED}"
            return SearchEnd("no_regression", f"not reproduced: {why}")
        if least >= MOST:
            rates = [f"{sum(not run for run in runs)} of {len(runs)}" for runs in (bad, good)]
            return SearchEnd("inconclusive", f"the bad end fails {rates[0]} times, the good one {rates[1]}")
        if all(good) and all(bad):
            end, why = high, "end: it passed so far, does it fail at times?"
        else:
            end, why = min((high, low), key=self.seen.count), "end: it does not always fail, how often does it?"
        return self.seen.look(end, TWICE + self.seen.count(end) // 8, why)

    def _fit(self, low: int, high: int) -> tuple[list[int], list[float], tuple[float, float]]:
        """Positions with runs, the score of each gap between them, and the rates before and after the best."""
        positions = [at for at in sorted(self.seen.values) if low <= at <= high and self.seen.values[at]]
        failed = [sum(not run for run in self.seen.values[at]) for at in positions]
        passed = [sum(map(bool, self.seen.values[at])) for at in positions]
        plain, best, scores = self.plain(low, high), 0, [0.0]
        rates = PLAIN, 1 - PLAIN
        for turn in range(3):  # Rates and the best gap follow from each other.
            if not plain:
                start, end = (1, len(positions) - 1) if turn == 0 else (best + 1, best + 1)
                before, after = (sum(failed[:start]), sum(passed[:start])), (sum(failed[end:]), sum(passed[end:]))
                rates = (before[0] + 0.5) / (sum(before) + 10.5), (after[0] + 1) / (sum(after) + 2)
                rates = rates[0], max(rates[1], rates[0] + 0.01)
            votes = [
                f * math.log(rates[1] / rates[0]) + p * math.log((1 - rates[1]) / (1 - rates[0]))
                for f, p in zip(failed, passed, strict=True)
            ]
            scores = list(accumulate(-vote for vote in votes))[:-1]
            best = max(range(len(scores)), key=scores.__getitem__)
        return positions, scores, rates

    def scores(self, low: int, high: int, *, strict: bool) -> tuple[Sequence[int], Sequence[float]]:
        """Positions with runs, and the score of each gap between two of them."""
        positions, scores, _ = self.fit(low, high)
        return positions, scores

    def batch(self, low: int, high: int, position: int, *, strict: bool) -> int:
        """Two runs at first; where commits fail at times, as many as show a failure."""
        count = self.seen.count(position)
        if self.plain(low, high):
            return TWICE if count == 0 else 1
        rate = max(self.fit(low, high)[2][1], LEAST)
        return 0 if count >= MOST else min(max(TWICE, math.ceil(1 / rate), count // 4), 16)

    def enough(self, low: int, high: int) -> tuple[int, int]:
        """Neighbours tell nothing: builds do not fail for where their code lies."""
        return 0, 0

    def clear(self, low: int, high: int, parent: int, suspect: int) -> bool:
        """Nor is a step hidden by that."""
        return True

    def apart(self, low: int, high: int) -> int | None:
        """Failure rates between those of both ends are not looked for."""
        return None

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Consistent results need no confirmation, but suspect and parent some runs more."""
        if not self.plain(0, self.seen.problem.last):
            return False
        for at in (parent, suspect):
            if self.seen.count(at) < ALIKE:
                return self.seen.look(at, ALIKE - self.seen.count(at), "does it always do the same?")
        return True

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The culprit fails more often than its parent; the rates are those that the search saw."""
        before, after = self.fit(low, high)[2]
        return Claim(number=number, rates=(after, before))

    def word(self, key: Key) -> tuple[str, float]:
        """What fresh runs of both say: `confirmed`, `failed` or `open`, and the evidence."""
        culprit, parent = (self.seen.fresh.get((key, at), []) for at in key[:2])
        evidence = runs_evidence(culprit, parent, self.seen.claims[key].rates)
        if evidence >= NEEDED:
            return "confirmed", evidence
        over = evidence <= 1 / FUTILE or len(culprit) + len(parent) >= MOST
        return ("failed" if over else "open"), evidence

    def confirm(self, key: Key, claim: Claim) -> Try:
        """More runs of culprit and parent, in turn."""
        problem = self.seen.problem
        tried, other = sorted(key[:2], key=lambda at: len(self.seen.fresh.get((key, at), ())))
        why = f"confirm: does {problem.name(key[0])} fail more often than {problem.name(key[1])}?"
        return Try(problem.shown(tried), 4, why, problem.shown(other), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """How much more often the culprit fails."""
        culprit, parent = (1 - fmean(self.seen.fresh[key, at]) for at in key[:2])
        return culprit - parent, False

    def said(self, step: float) -> str:
        """`it fails where its parent passes`, or how much more often it fails."""
        if step >= 0.995:
            return "it fails where its parent passes"
        return f"it fails in {round(100 * step)} of 100 runs more than its parent"


def runs_evidence(culprit: Sequence[float], parent: Sequence[float], rates: tuple[float, float]) -> float:
    """Evidence that the culprit fails more often: an e-value of blocks of one run of each, in order.

    `rates`: of culprit and parent, fixed before the first run, a and b. With c = (a + b) / 2 a block's evidence is
    P_a(x) P_b(y) / (P_c(x) P_c(y)): 1 at most in the mean, whatever rate both share (Turner, Ly and Grünwald 2024,
    "Generic e-variables for exact sequential k-sample tests").
    """
    high, low = (min(max(rate, LEAST), 1 - LEAST) for rate in rates)
    both = (high + low) / 2

    def chance(passed: float, rate: float) -> float:
        return 1 - rate if passed else rate

    evidence = highest = 1.0
    for tried, other in zip(culprit, parent, strict=False):
        evidence *= chance(tried, high) * chance(other, low) / (chance(tried, both) * chance(other, both))
        highest = max(highest, evidence)
        if highest >= NEEDED:
            return highest
    return evidence
