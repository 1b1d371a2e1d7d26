"""A test that fails, always or at times, from some commit on: the posterior of that commit, in closed form. Pure.

Before the step a run fails with rate a, from it on with rate b. Three hypotheses, with prior weights:

    always      a = 0, b = 1                                    one run a commit decides
    at times    a = 0, b uniform                                a failure decides, passes add up
    more often  a ~ Beta(1/2, 10), b uniform                    the good end fails as well, seldom

For f failures and s passes on a side and a rate of prior Beta(x, y) the integral is B(x + f, y + s) / B(x, y);
a step's likelihood is the weighted sum over the hypotheses of the product of both sides. Consistent results
leave only the first and the search is plain bisection; the first mixed ones rule it out. The Beta-Bernoulli
core is as in `git_bayesect` (hauntsaninja, MIT), which has the third hypothesis alone.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from loop.bisect.information import of_counts


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a test may fail; None: a rate of exactly 0 before the step, of 1 after it."""

    weight: float
    before: tuple[float, float] | None
    after: tuple[float, float] | None


HYPOTHESES = (
    Hypothesis(0.90, None, None),
    Hypothesis(0.07, None, (1.0, 1.0)),
    Hypothesis(0.03, (0.5, 10.0), (1.0, 1.0)),
)
Counts = tuple[int, int]
"""Failures and passes."""


class Runs:
    """All steps that the runs of some positions allow; good end first."""

    def __init__(self, runs: Mapping[int, Sequence[float]]) -> None:
        """`runs`: by position, 1 where one passed."""
        self.positions = tuple(sorted(position for position, values in runs.items() if values))
        counts = [_counts(runs[position]) for position in self.positions]
        self._failed = list(accumulate(failed for failed, _ in counts))
        self._passed = list(accumulate(passed for _, passed in counts))

    @functools.cached_property
    def likelihoods(self) -> tuple[float, ...]:
        """log likelihood of a step between each two neighbouring positions."""
        return tuple(_log_sum(self._parts(split)) for split in range(len(self.positions) - 1))

    @functools.cached_property
    def best(self) -> int:
        """The likeliest of these steps."""
        return max(range(len(self.likelihoods)), key=self.likelihoods.__getitem__)

    @functools.cached_property
    def plain(self) -> tuple[float, ...]:
        """The same for a test that always fails from the step on: 0, or far below."""
        return tuple(max(self._parts(split)[0], -1e9) for split in range(len(self.positions) - 1))

    def weights(self, split: int) -> list[float]:
        """Posterior weights of the hypotheses, the step being between `positions[split]` and the next."""
        parts = self._parts(split)
        total = _log_sum(parts)
        return [math.exp(part - total) if part > -math.inf else 0.0 for part in parts]

    def sides(self, split: int) -> tuple[Counts, Counts]:
        """Failures and passes before and after a step."""
        failed, passed = self._failed[split], self._passed[split]
        return (failed, passed), (self._failed[-1] - failed, self._passed[-1] - passed)

    def rates(self, split: int) -> tuple[float, float]:
        """Mean posterior failure rate before and after a step."""
        before, after = self.sides(split)
        pairs = zip(self.weights(split), HYPOTHESES, strict=True)
        both = [(weight, _rate(one.before, before, 0.0), _rate(one.after, after, 1.0)) for weight, one in pairs]
        return math.fsum(w * low for w, low, _ in both), math.fsum(w * high for w, _, high in both)

    def information(self, split: int, probability: float, batch: int) -> float:
        """Bits that `batch` runs of a commit tell of its side, which is the failing one with this probability."""
        before, after = self.sides(split)
        lower, upper = [0.0] * (batch + 1), [0.0] * (batch + 1)
        for weight, one in zip(self.weights(split), HYPOTHESES, strict=True):
            if weight > 1e-6:
                _add(lower, weight, _chances(batch, one.before, before, 0))
                _add(upper, weight, _chances(batch, one.after, after, batch))
        return max(of_counts(probability, upper, lower), 0.0)

    def _parts(self, split: int) -> list[float]:
        before, after = self.sides(split)
        return [
            math.log(one.weight) + _integral(one.before, before, 0.0) + _integral(one.after, after, 1.0)
            for one in HYPOTHESES
        ]


def _counts(values: Sequence[float]) -> Counts:
    passed = sum(value > 0 for value in values)
    return len(values) - passed, passed


def _log_sum(logs: Sequence[float]) -> float:
    best = max(logs)
    return best + math.log(math.fsum(math.exp(value - best) for value in logs)) if best > -math.inf else -1e9


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _integral(prior: tuple[float, float] | None, counts: Counts, fixed: float) -> float:
    """log probability of one sequence; where the rate is fixed at 0 or 1 it has to be all of one kind."""
    failed, passed = counts
    if prior is None:
        return -math.inf if (passed if fixed else failed) else 0.0
    return _log_beta(prior[0] + failed, prior[1] + passed) - _log_beta(*prior)


def _rate(prior: tuple[float, float] | None, counts: Counts, fixed: float) -> float:
    if prior is None:
        return fixed
    return (prior[0] + counts[0]) / (sum(prior) + sum(counts))


def _add(total: list[float], weight: float, chances: Sequence[float]) -> None:
    for index, chance in enumerate(chances):
        total[index] += weight * chance


def _chances(batch: int, prior: tuple[float, float] | None, counts: Counts, fixed: int) -> tuple[float, ...]:
    """Probability of 0, 1, ... `batch` failures, after what was seen."""
    if prior is None:
        return tuple(float(failed == fixed) for failed in range(batch + 1))
    return _beta_binomial(batch, prior[0] + counts[0], prior[1] + counts[1])


@functools.lru_cache(65536)
def _beta_binomial(batch: int, a: float, b: float) -> tuple[float, ...]:
    return tuple(
        math.comb(batch, failed) * math.exp(_log_beta(a + failed, b + batch - failed) - _log_beta(a, b))
        for failed in range(batch + 1)
    )
