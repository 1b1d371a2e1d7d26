"""How long will it take? Logarithms of seconds, shrunk to an author's estimate while little was measured.

Times are log-normal around an unknown centre with an unknown spread. A normal-inverse-gamma prior stands for the
estimate; the posterior is in closed form, and what comes next follows Student's t (Gelman et al., Bayesian Data
Analysis, 3rd ed., section 3.3). Runs count by weight: those on other machines or of other work say less.
"""

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.stats import t_quantile
from loop.model.index import SessionRow
from loop.model.pattern import Pattern

WEIGHTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""What a run is worth where this fact differs: half for a toolchain or a processor, a quarter for another GPU."""
FACTS = tuple(WEIGHTS)
"""In the order of the fields of `Environment`."""
SPREAD = 0.25
"""Standard deviation of log seconds from run to run, as far as is known before any run."""
SPREAD_WORTH = 3.0
"""Runs that this is worth."""
BIAS = 1.2
"""Standard deviation of log(actual / estimate): authors are off by a factor of 3 and more, either way."""
SLOWED = 0.9
"""Power of (1 + other programs for each core) by which a session takes longer.

Cores that are shared evenly give 1; what waits, or stops at its budget, takes less."""
LEVEL = 0.8
"""Of every interval of a time or cost."""
FILE = Path(__file__).with_name("priors.json")
"""What patterns took on idle machines: written by `python -m tests.bench.prediction priors`."""
HERE, ELSEWHERE = 0.35, 0.6
"""Standard deviation of log(actual / prior) with the cores that it was measured with, and with others."""
SERIAL = 0.5
"""Share of the time that more cores do not shorten. Stated, not measured: timing is serial, compiling is not."""

Place = Sequence[str | None]
"""The facts of an environment, in the order of FACTS; None: not known."""


def place_of(row: SessionRow) -> tuple[str | None, ...]:
    """The facts of a session's environment."""
    return tuple(getattr(row.environment, name) for name in FACTS)


def alike(place: Place, other: Place) -> float:
    """What a run in one environment is worth in another: 1 where all known facts agree.

    A fact that one side does not know is no difference, but a GPU or none is one.
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
    """Runs that it rests on, by weight; 0 where only the estimate does."""

    @property
    def seconds(self) -> float:
        """Median."""
        return math.exp(self.centre)

    def interval(self, level: float = LEVEL, widened: float = 1.0) -> tuple[float, float]:
        """Seconds between which it lies with this probability; `widened`: a factor on its logarithm."""
        freedom = min(round(2 * self.freedom) / 2, 200.0)  # Half steps: few quantiles.
        half = widened * t_quantile(0.5 + level / 2, freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def expected(estimate_s: float, runs: Iterable[tuple[float, float]], bias: float = BIAS) -> Duration:
    """The next run, from the author's estimate in seconds and from pairs of seconds and weight."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    total = math.fsum(weight * log for log, weight in logs)
    guess = math.log(estimate_s)
    mean = total / weight if weight > 0 else guess
    within = math.fsum(weight * (log - mean) ** 2 for log, weight in logs)
    prior = (SPREAD / bias) ** 2
    worth, freedom = prior + weight, SPREAD_WORTH + weight
    variance = (SPREAD_WORTH * SPREAD**2 + within) / freedom  # An author's mistake is no spread of the runs.
    return Duration(
        centre=(prior * guess + total) / worth,
        scale=math.sqrt(variance * (1 + 1 / worth)),
        freedom=freedom,
        weight=weight,
    )


def slowed(load: float | None) -> float:
    """How many times as long a run takes with so many other programs for each core."""
    return math.exp(SLOWED * math.log1p(load or 0.0))


@functools.cache
def measured() -> tuple[dict[str, Any], ...]:
    """The rows of `priors.json`: pattern, bundled, cores, nvcc, seconds, runs."""
    return tuple(json.loads(FILE.read_text()))


def prior(pattern: Pattern, *, bundled: bool, cores: int, nvcc: bool) -> tuple[float, float]:
    """Seconds of a first run on an idle machine, and the standard deviation of log(actual / seconds).

    From the runs on the machine most like this one: its compilers first, then its cores.
    Without any, the author's estimate.
    """
    rows = [row for row in measured() if (row["pattern"], row["bundled"]) == (pattern.name, bundled)]
    if not rows:
        return 60 * pattern.estimate.minutes, BIAS
    nearest = min(rows, key=lambda row: (row["nvcc"] != nvcc, abs(row["cores"] - cores)))
    same = nearest["cores"] == cores and (nearest["nvcc"] == nvcc or not bundled)  # Own kernels need no nvcc here.
    scale = SERIAL + (1 - SERIAL) * nearest["cores"] / cores
    return nearest["seconds"] * scale, HERE if same else ELSEWHERE
