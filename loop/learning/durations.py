"""How long will one pattern take? Its author's estimate at first, then the runs on record.

Times are log-normal with unknown centre and spread. A normal-inverse-gamma prior stands for the estimate, and the
next time follows Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3). A run counts by its
weight: less where its environment or its work differs from what is asked about.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loop.base.stats import t_quantile
from loop.model.index import SessionRow

WEIGHTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""Weight of a run where this fact differs."""
FACTS = tuple(WEIGHTS)
"""In the order of the fields of `Environment`."""
SPREAD, SPREAD_WORTH = 0.25, 3.0
"""Standard deviation of log seconds between runs as it is assumed before any, and the runs that this is worth."""
BIAS = 1.2
"""Standard deviation of log(actual / author's estimate): authors are off by a factor of 3 and more."""
SLOWED = 0.9
"""Time grows with this power of (1 + other programs for each core)."""
LEVEL = 0.8
"""Probability of every interval of a time or cost."""

Place = Sequence[str | None]
"""The facts of an environment, in the order of FACTS; None: not known."""


def place_of(row: SessionRow) -> tuple[str | None, ...]:
    """The facts of a session's environment."""
    return tuple(getattr(row.environment, name) for name in FACTS)


def alike(place: Place, other: Place) -> float:
    """Weight of a run in one environment for another: 1 where all known facts agree.

    An unknown fact is no difference, except that no GPU differs from any GPU.
    """
    pairs = zip(FACTS, place, other, strict=True)
    return math.prod(WEIGHTS[name] for name, a, b in pairs if a != b and (name == "gpu" or (a and b)))


@dataclass(frozen=True)
class Duration:
    """What the next run will probably take."""

    centre: float
    """Logarithm of the median seconds."""
    scale: float
    """Scale of Student's t of the logarithm."""
    freedom: float
    """Its degrees of freedom."""
    weight: float
    """Sum of the weights of the runs behind it; 0: only the estimate."""

    @property
    def seconds(self) -> float:
        """Median."""
        return math.exp(self.centre)

    def interval(self, level: float = LEVEL, widened: float = 1.0) -> tuple[float, float]:
        """Seconds between which it lies with probability `level`. `widened`: factor on the half width."""
        freedom = min(round(2 * self.freedom) / 2, 200.0)  # Half steps: few quantiles to compute.
        half = widened * t_quantile(0.5 + level / 2, freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def expected(estimate_s: float, runs: Iterable[tuple[float, float]], bias: float = BIAS) -> Duration:
    """The next run, from an estimate in seconds and from pairs of seconds and weight."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    total = math.fsum(weight * log for log, weight in logs)
    guess = math.log(estimate_s)
    mean = total / weight if weight > 0 else guess
    within = math.fsum(weight * (log - mean) ** 2 for log, weight in logs)
    prior_worth = (SPREAD / bias) ** 2
    worth, freedom = prior_worth + weight, SPREAD_WORTH + weight
    variance = (SPREAD_WORTH * SPREAD**2 + within) / freedom  # An author's mistake is no spread of the runs.
    return Duration((prior_worth * guess + total) / worth, math.sqrt(variance * (1 + 1 / worth)), freedom, weight)


def slowed(load: float | None) -> float:
    """How many times as long a run takes with `load` other programs for each core."""
    return math.exp(SLOWED * math.log1p(load or 0.0))
