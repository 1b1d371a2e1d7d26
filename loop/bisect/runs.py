"""What runs that pass or fail say of a commit: a test that fails, always or at times, from some commit on. Pure.

Before the step a run fails with rate a, from it on with rate b. Three hypotheses, with prior weights:

    always      a = 0, b = 1                                    one run decides a commit
    at times    a = 0, b uniform                                a failure decides, passes add up
    more often  a ~ Beta(1/2, 10), b uniform                    the good end fails as well, seldom

A step's likelihood is the weighted sum of B(x + failed, y + passed) / B(x, y) of both sides. Consistent results
leave the first alone, and the search is plain bisection.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

from loop.bisect.model import Key, Observations, SearchEnd, Try, Word
from loop.model.bisect import Claim

Beta = tuple[float, float]
HYPOTHESES: tuple[tuple[float, Beta | None, Beta | None], ...] = (
    (0.90, None, None),
    (0.07, None, (1.0, 1.0)),
    (0.03, (0.5, 10.0), (1.0, 1.0)),
)
"""Weight, and the rate before and after the step; None: exactly 0 before it, 1 after it."""
TWICE, ALIKE = 2, 4
"""Runs of a commit at first; runs of each end, all failing, after which they are alike."""
NEVER, MOST = 60, 200
"""Runs of the bad end, all passing, after which nothing is reproduced; runs after which something is left open."""
NEEDED, FUTILE = 100.0, 20.0
"""Evidence that confirms a culprit; that denies it."""
LEAST = 0.02
"""No rate is expected nearer to 0 or 1."""
DRIFTED = "so it is good today: what failed before may have come from the machine, the compiler or the inputs"


class Runs:
    """Runs, commit by commit; 1 where one passed. `low` and `high` are two positions that differ."""

    def __init__(self, observations: Observations) -> None:
        self.seen = observations

    def runs(self, position: int) -> Sequence[float]:
        """Those of a position."""
        return self.seen.values.get(position, [])

    def plain(self, low: int, high: int) -> bool:
        """Whether no commit both failed and passed, so far."""
        inside = [runs for at, runs in self.seen.values.items() if low <= at <= high]
        return all(all(runs) or not any(runs) for runs in inside)

    def ends(self, low: int, high: int) -> Try | SearchEnd | None:
        """Run both until the bad one evidently fails more often."""
        for end in (high, low):
            if (missing := TWICE - self.seen.count(end)) > 0:
                return self.seen.look(end, missing, "end: does it fail today, and does the good end pass?")
        good, bad = self.runs(low), self.runs(high)
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

    def counts(self, low: int, high: int) -> tuple[list[int], list[int], list[int]]:
        """Positions with runs, and before each of them, and after the last, the failures and passes so far."""
        positions = [at for at in sorted(self.seen.values) if low <= at <= high and self.runs(at)]
        failed = [0, *accumulate(sum(not run for run in self.runs(at)) for at in positions)]
        passed = [0, *accumulate(sum(map(bool, self.runs(at))) for at in positions)]
        return positions, failed, passed

    def scores(self, low: int, high: int) -> tuple[Sequence[int], Sequence[float]]:
        """See above."""
        positions, failed, passed = self.counts(low, high)
        scores = []
        for gap in range(1, len(positions)):
            logs = [
                math.log(weight)
                + _log_rate(before, failed[gap], passed[gap], fixed=False)
                + _log_rate(after, failed[-1] - failed[gap], passed[-1] - passed[gap], fixed=True)
                for weight, before, after in HYPOTHESES
            ]
            best = max(logs)
            scores.append(best + math.log(math.fsum(math.exp(log - best) for log in logs)))
        return positions, scores

    def rates(self, low: int, high: int) -> tuple[float, float]:
        """Failure rates after and before the likeliest step."""
        _, failed, passed = self.counts(low, high)
        scores = self.scores(low, high)[1]
        gap = 1 + max(range(len(scores)), key=scores.__getitem__)
        after, over = failed[-1] - failed[gap], passed[-1] - passed[gap]
        return (after + 1) / (after + over + 2), (failed[gap] + 0.5) / (failed[gap] + passed[gap] + 10.5)

    def batch(self, low: int, high: int, position: int, *, sure: bool) -> int:
        """Two runs at first; where commits fail at times, as many as show a failure."""
        count = self.seen.count(position)
        if self.plain(low, high):
            return TWICE if count == 0 else 1
        rate = max(self.rates(low, high)[0], LEAST)
        return 0 if count >= MOST else min(max(TWICE, math.ceil(1 / rate), count // 4), 16)

    def doubt(self, low: int, high: int) -> float:
        """Builds do not fail for where their code lies."""
        return 0.0

    def apart(self, low: int, high: int) -> int | None:
        """Failure rates between those of both ends are not looked for."""
        return None

    def beside(self, low: int, high: int, sides: tuple[int, int]) -> Try | None:
        """Neighbours tell nothing more."""
        return None

    def certain(self, parent: int, suspect: int) -> Try | bool:
        """Consistent results need no confirmation, but suspect and parent some runs more."""
        if not self.plain(0, self.seen.positions.last):
            return False
        for at in (parent, suspect):
            if self.seen.count(at) < ALIKE:
                return self.seen.look(at, ALIKE - self.seen.count(at), "does it always do the same?")
        return True

    def claim(self, low: int, high: int, number: int) -> Claim:
        """The culprit fails more often than its parent; the rates are those that the search saw."""
        return Claim(number=number, rates=self.rates(low, high))

    def word(self, key: Key) -> tuple[Word, float]:
        """What fresh runs of both say."""
        culprit, parent = (self.seen.fresh(key, position) for position in key[:2])
        rates = self.seen.confirmations[key].claim.rates
        evidence = runs_evidence(culprit, parent, rates)
        if evidence >= NEEDED:
            return "confirmed", evidence
        over = evidence <= 1 / FUTILE or len(culprit) + len(parent) >= MOST
        return ("failed" if over else "open"), evidence

    def confirm(self, key: Key, claim: Claim) -> Try:
        """More runs of culprit and parent, in turn."""
        tried, other = sorted(key[:2], key=lambda position: len(self.seen.fresh(key, position)))
        why = f"confirm: does {self.seen.name(key[0])} fail more often than {self.seen.name(key[1])}?"
        wanted = self.seen.look(tried, 4, why)
        return Try(wanted.commit, 4, why, self.seen.positions.shown(other), claim)

    def step(self, low: int, high: int, key: Key) -> tuple[float, bool]:
        """How much more often the culprit fails."""
        culprit, parent = (1 - fmean(self.seen.fresh(key, position)) for position in key[:2])
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
    evidence = highest = 1.0
    for tried, other in zip(culprit, parent, strict=False):
        evidence *= _chance(tried, high) * _chance(other, low) / (_chance(tried, both) * _chance(other, both))
        highest = max(highest, evidence)
        if highest >= NEEDED:
            return highest
    return evidence


def _chance(passed: float, rate: float) -> float:
    return 1 - rate if passed else rate


def _log_rate(prior: Beta | None, failed: int, passed: int, *, fixed: bool) -> float:
    """log probability of one sequence; where the rate is fixed it has to be all of one kind."""
    if prior is None:
        return -1e4 * (passed if fixed else failed)
    return _log_beta(prior[0] + failed, prior[1] + passed) - _log_beta(*prior)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
