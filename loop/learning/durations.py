"""How long will it take? Logarithms of seconds, shrunk to an author's estimate while little was measured.

Times are log-normal around an unknown centre with an unknown spread. A normal-inverse-gamma prior stands for the
estimate; the posterior is in closed form, and what comes next follows Student's t (Gelman et al., Bayesian Data
Analysis, 3rd ed., section 3.3). Runs count by weight (a power prior: Ibrahim and Chen 2000): those of other
times, other machines or other work say less.
"""

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.stats import t_quantile
from loop.model.index import SessionRow
from loop.model.pattern import Pattern

FACTS = ("processor", "gpu", "driver", "cuda", "torch", "compiler")
"""In the order of the fields of `Environment`."""
WEIGHTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""What a run is worth where this fact differs: half for a toolchain or a processor, a quarter for another GPU."""

Place = Sequence[str | None]
"""The facts of an environment, in the order of FACTS; None: not known."""


def place_of(row: SessionRow) -> tuple[str | None, ...]:
    """The facts of a session's environment."""
    return tuple(getattr(row.environment, name) for name in FACTS)


def alike(one: Place, other: Place) -> float:
    """What a run in one environment is worth in another: 1 where all known facts agree."""
    weight = 1.0
    for name in changed(one, other):
        weight *= WEIGHTS[name]
    return weight


def changed(one: Place, other: Place) -> tuple[str, ...]:
    """The facts that differ; a fact that one side does not know is no difference, but a GPU or none is one."""
    pairs = zip(FACTS, one, other, strict=True)
    return tuple(name for name, mine, its in pairs if mine != its and (name == "gpu" or (mine and its)))


def in_words(place: Place) -> str:
    """`NVIDIA L4, driver 550, CUDA 12.4, torch 2.4.1`."""
    known = dict(zip(FACTS, place, strict=True))
    words = [known["gpu"] or known["processor"] or "unknown"]
    words += [f"{label} {known[name]}" for name, label in (("driver", "driver"), ("cuda", "CUDA")) if known[name]]
    return ", ".join(words + ([f"torch {known['torch']}"] if known["torch"] else []))


SPREAD = 0.25
"""Standard deviation of log seconds from run to run, as far as is known before any run."""
SPREAD_WORTH = 3.0
"""Runs that this is worth."""
BIAS = 1.2
"""Standard deviation of log(actual / estimate): authors are off by a factor of 3 and more, either way.

The sixteen steps with a target in the recorded history give 1.5, its two sessions with one 1.5."""
SLOWED, SLOWED_SPREAD = 0.9, 0.35
"""Power of (1 + other programs for each core) by which a session takes longer, before runs tell, and its spread.

Cores that are shared evenly give 1; what waits, or stops at its budget, takes less."""
LEVEL = 0.8
"""Of every interval of a time or cost."""


@dataclass(frozen=True)
class Sums:
    """Weighted logarithms of seconds, summed up."""

    weight: float = 0.0
    logs: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.weight + other.weight, self.logs + other.logs, self.squares + other.squares)


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
        half = widened * quantile(0.5 + level / 2, self.freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def quantile(probability: float, freedom: float) -> float:
    """Student's t; degrees in steps of a half, so that few are worked out."""
    return t_quantile(probability, min(round(2 * freedom) / 2, 200.0))


def summed(weighted: Iterable[tuple[float, float]]) -> Sums:
    """Sums of pairs of seconds and weight."""
    total = Sums()
    for seconds, weight in weighted:
        log = math.log(max(seconds, 1e-6))
        total += Sums(weight, weight * log, weight * log * log)
    return total


@dataclass(frozen=True)
class Slowing:
    """How other programs slow a run: its time goes with a power of (1 + other programs for each core)."""

    power: float = SLOWED
    spread: float = SLOWED_SPREAD
    """Standard deviation of the power."""

    def factor(self, load: float | None) -> float:
        """How many times as long it takes under a load."""
        return math.exp(self.power * math.log1p(load or 0.0))


def slowing(runs: Sequence[tuple[float, float, float]]) -> Slowing:
    """From runs of the same work: load, seconds, weight. A regression whose slope has a normal prior."""
    whole = sum(weight for _, _, weight in runs)
    if whole <= 0:
        return Slowing()
    points = [(math.log1p(load), math.log(max(seconds, 1e-6)), weight) for load, seconds, weight in runs]
    x0, y0 = (sum(one[place] * one[2] for one in points) / whole for place in (0, 1))
    known = sum(w * (x - x0) ** 2 for x, _, w in points) / SPREAD**2 + 1 / SLOWED_SPREAD**2
    slope = sum(w * (x - x0) * (y - y0) for x, y, w in points) / SPREAD**2 + SLOWED / SLOWED_SPREAD**2
    return Slowing(max(0.0, slope / known), math.sqrt(1 / known))


def expected(estimate_s: float, sums: Sums, bias: float = BIAS) -> Duration:
    """The next run, from the author's estimate in seconds and from the runs there were."""
    prior = (SPREAD / bias) ** 2
    worth, freedom = prior + sums.weight, SPREAD_WORTH + sums.weight
    guess = math.log(estimate_s)
    mean = sums.logs / sums.weight if sums.weight > 0 else guess
    within = max(0.0, sums.squares - sums.weight * mean * mean)
    variance = (SPREAD_WORTH * SPREAD**2 + within) / freedom  # An author's mistake is no spread of the runs.
    return Duration(
        centre=(prior * guess + sums.logs) / worth,
        scale=math.sqrt(variance * (1 + 1 / worth)),
        freedom=freedom,
        weight=sums.weight,
    )


FILE = Path(__file__).with_name("priors.json")
"""Written by `python -m tests.speed.prediction priors`; reduced to an idle machine."""
HERE, ELSEWHERE = 0.35, 0.6
"""Standard deviation of log(actual / prior) with the cores that it was measured with, and with others."""
SERIAL = 0.5
"""Share of the time that more cores do not shorten. Stated, not measured: timing is serial, compiling is not."""


@dataclass(frozen=True)
class Prior:
    """Seconds of one run on an idle machine."""

    seconds: float
    spread: float
    """Standard deviation of log(actual / seconds)."""


@dataclass(frozen=True)
class Measured:
    """What runs of a pattern took on one kind of machine."""

    pattern: str
    bundled: bool
    """Whether the bundled target ran, with its variants for a GPU; else a target of one small kernel."""
    cores: int
    nvcc: bool
    seconds: float
    """Geometric mean, as on an idle machine."""
    runs: int


@functools.cache
def measured() -> tuple[Measured, ...]:
    """Everything in the data file."""
    return tuple(Measured(**one) for one in json.loads(FILE.read_text()))


def prior(pattern: Pattern, *, bundled: bool, cores: int, nvcc: bool) -> Prior:
    """From the runs on the machine most like this one: its compilers first, then its cores."""
    known = [one for one in measured() if (one.pattern, one.bundled) == (pattern.name, bundled)]
    if not known:
        return Prior(60 * pattern.estimate.minutes, BIAS)
    nearest = min(known, key=lambda one: (one.nvcc != nvcc, abs(one.cores - cores)))
    scale = SERIAL + (1 - SERIAL) * nearest.cores / cores
    alike = nearest.cores == cores and (nearest.nvcc == nvcc or not bundled)  # Own kernels need no nvcc here.
    return Prior(nearest.seconds * scale, HERE if alike else ELSEWHERE)
