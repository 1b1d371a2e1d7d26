"""Do predictions hold? How many times, and how many gains, lay inside the interval that was given before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from loop.base.stats import beta_quantile, median
from loop.learning.durations import LEVEL
from loop.model.gain import GainOutcome
from loop.model.index import SessionRow
from loop.model.plan import Predicted
from loop.profile.promised import held, outcomes

RECENT = 40
"""Predictions that intervals are widened or narrowed by."""
PRIOR = 12
"""Predictions that the rule's own widths are worth while few were seen to hold or fail."""
NARROWEST, WIDEST = 0.4, 5.0
"""Bounds of the factor."""


class Outcome(NamedTuple):
    """A prediction and what came of it, in seconds or as a ratio of speeds."""

    low: float
    expected: float
    high: float
    actual: float

    @property
    def inside(self) -> bool:
        """Whether it held."""
        return self.low <= self.actual <= self.high


@dataclass(frozen=True)
class Calibration:
    """How earlier predictions held."""

    count: int
    """Predictions with an outcome."""
    inside: int
    """Those whose outcome was inside the interval."""
    low: float
    """90 % interval of the share that is inside: Jeffreys."""
    high: float
    error: float
    """Median of |log(actual / predicted)|: 0.1 is 10 %."""

    @property
    def text(self) -> str:
        """`33 % [6, 75]`: the share with its 90 % interval."""
        return f"{100 * self.inside / self.count:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


def judged(rows: Sequence[SessionRow]) -> list[tuple[Predicted, float]]:
    """Prediction and seconds of each session that stored a prediction and ended with its plan."""
    return [(row.predicted, row.seconds) for row in rows if row.predicted and row.complete and row.seconds > 0]


def times(rows: Sequence[SessionRow]) -> list[Outcome]:
    """The times of sessions beside their predictions."""
    return [Outcome(known.low_s, known.seconds, known.high_s, seconds) for known, seconds in judged(rows)]


def gains(found: Sequence[GainOutcome]) -> list[Outcome]:
    """What advice came to, beside the intervals that its rules state."""
    stated = [(*one.promise.stated, one.actual) for one in found]
    return [Outcome(low, math.sqrt(low * high), high, actual) for low, high, actual in stated]


def calibration(found: Sequence[Outcome]) -> Calibration | None:
    """How predictions held; None where there were none."""
    if not found:
        return None
    inside = sum(one.inside for one in found)
    a, b = inside + 0.5, len(found) - inside + 0.5
    errors = [abs(math.log(one.actual / one.expected)) for one in found]
    return Calibration(len(found), inside, beta_quantile(0.05, a, b), beta_quantile(0.95, a, b), median(errors))


def in_words(rows: Sequence[SessionRow]) -> str:
    """How predictions of time and of gain held, in a sentence each; empty where none has an outcome.

    `rows`: oldest first. What the last one made of earlier advice is said in full.
    """
    told = []
    if found := calibration(times(rows)):
        many = f"the last {found.count} predicted sessions"
        count = many if found.count > 1 else "the one predicted session so far"
        told.append(
            f"Of {count}, {found.inside} took a time inside the 80 % interval: {found.text}; half of the "
            f"predictions were off by less than {100 * math.expm1(found.error):.0f} %."
        )
    came = outcomes(rows)
    if found := calibration(gains(came)):
        inside = f"{found.inside} lay inside the interval: {found.text}"
        told.append(f"Of {found.count} gains that advice promised, {inside}.")
    for outcome in came:
        if outcome.session == rows[-1].id and outcome.basis == "later session":
            advice = f"Advice on {outcome.promise.advice} for {outcome.variant} on {outcome.workload}"
            told.append(f"{advice} promised {held(outcome)}.")
    return " ".join(told)


def widening(rows: Sequence[SessionRow]) -> float:
    """Factor on the half width of the next interval, so that LEVEL of such would have held (split conformal).

    A score is how far a time was from its prediction, in half widths as they were before widening. While there
    are few, the scores of a normal distribution stand beside them (Vovk et al., Algorithmic Learning in a Random
    World, section 2.2, for the rule; the prior scores are ours).
    """
    normal = NormalDist()
    edge = normal.inv_cdf(0.5 + LEVEL / 2)
    prior = [normal.inv_cdf(0.5 + (k + 0.5) / PRIOR / 2) / edge for k in range(PRIOR)]
    scores = [
        abs(math.log(seconds / known.seconds)) / (math.log(known.high_s / known.low_s) / 2 / known.widened)
        for known, seconds in judged(rows)[-RECENT:]
        if 0 < known.low_s < known.high_s
    ]
    ordered = sorted([*scores, *prior])
    place = LEVEL * (len(ordered) + 1)
    below = min(int(place), len(ordered)) - 1
    above = min(below + 1, len(ordered) - 1)
    factor = ordered[below] + (place - int(place)) * (ordered[above] - ordered[below])
    return min(max(factor, NARROWEST), WIDEST)
