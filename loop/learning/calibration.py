"""Do predictions hold? How many sessions took a time inside the interval that was given when they began."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from loop.base.stats import beta_quantile, median
from loop.learning.durations import LEVEL
from loop.model.index import SessionRow

RECENT = 40
"""Predictions that intervals are widened or narrowed by."""
PRIOR = 12
"""Predictions that the rule's own widths are worth while few were seen to hold or fail."""
NARROWEST, WIDEST = 0.4, 5.0
"""Bounds of the factor."""


@dataclass(frozen=True)
class Calibration:
    """How earlier predictions held."""

    count: int
    """Sessions with a prediction that came to the end of their plan."""
    inside: int
    """Those whose time was inside the interval."""
    low: float
    """90 % interval of the share that is inside: Jeffreys."""
    high: float
    error: float
    """Median of |log(actual / predicted)|: 0.1 is 10 %."""

    @property
    def share(self) -> float:
        """Inside of all."""
        return self.inside / self.count


def held(row: SessionRow) -> bool:
    """Whether a session took a time inside its interval. Only for rows that `judged` names."""
    return row.predicted is not None and row.predicted.low_s <= row.seconds <= row.predicted.high_s


def judged(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Sessions that can be held against their prediction: it was stored, and they ended with their plan."""
    return [row for row in rows if row.predicted is not None and row.complete and row.seconds > 0]


def calibration(rows: Sequence[SessionRow]) -> Calibration | None:
    """How the predictions of these sessions held; None where there were none."""
    known = judged(rows)
    if not known:
        return None
    inside = sum(held(row) for row in known)
    a, b = inside + 0.5, len(known) - inside + 0.5
    errors = [abs(math.log(row.seconds / row.predicted.seconds)) for row in known if row.predicted]
    return Calibration(len(known), inside, beta_quantile(0.05, a, b), beta_quantile(0.95, a, b), median(errors))


def in_words(rows: Sequence[SessionRow]) -> str:
    """How predictions held, in a sentence; empty where none was made."""
    found = calibration(rows)
    if found is None:
        return ""
    count = f"the last {found.count} predicted sessions" if found.count > 1 else "the one predicted session so far"
    return (
        f"Of {count}, {found.inside} took a time inside the 80 % interval: {100 * found.share:.0f} % "
        f"[{100 * found.low:.0f}, {100 * found.high:.0f}]; half of the predictions were off by less than "
        f"{100 * math.expm1(found.error):.0f} %."
    )


def widening(rows: Sequence[SessionRow], level: float = LEVEL) -> float:
    """Factor on the half width of the next interval, so that `level` of such would have held (split conformal).

    A score is how far a time was from its prediction, in half widths as they were before widening. While there
    are few, the scores of a normal distribution stand beside them (Vovk et al., Algorithmic Learning in a Random
    World, section 2.2, for the rule; the prior scores are ours).
    """
    scores = [score for row in judged(rows)[-RECENT:] if (score := _score(row)) is not None]
    ordered = sorted([*scores, *_prior_scores(level)])
    place = level * (len(ordered) + 1)
    below = min(int(place), len(ordered)) - 1
    above = min(below + 1, len(ordered) - 1)
    factor = ordered[below] + (place - int(place)) * (ordered[above] - ordered[below])
    return min(max(factor, NARROWEST), WIDEST)


def _score(row: SessionRow) -> float | None:
    known = row.predicted
    if known is None or not 0 < known.low_s < known.high_s:
        return None
    half = math.log(known.high_s / known.low_s) / 2 / known.widened
    return abs(math.log(row.seconds / known.seconds)) / half


def _prior_scores(level: float) -> list[float]:
    """Evenly spread over a normal distribution whose interval of this level has a half width of 1."""
    normal = NormalDist()
    edge = normal.inv_cdf(0.5 + level / 2)
    return [normal.inv_cdf(0.5 + (k + 0.5) / PRIOR / 2) / edge for k in range(PRIOR)]
