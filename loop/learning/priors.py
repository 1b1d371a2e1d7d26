"""What does a pattern take where no session has run it yet? Measured elsewhere, else its author's word."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from loop.learning.durations import BIAS
from loop.model.pattern import Pattern

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
