"""Do other programs keep the cores busy that we measure on? What was seen of them, in words. Pure."""

from collections.abc import Sequence
from typing import Protocol

BUSY = 0.15
"""Share of a core from which on a program counts; what a desktop does at rest stays below."""
MUCH = 0.1
"""Share of all cores from which on it is said."""
COST = 2.0
"""Further times that a verdict takes per program and core: one to wait for it, one for the noise it makes."""
NAMED = 3


class Program(Protocol):
    """A process that is not ours."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def cores(self) -> float:
        """Cores that it kept busy, as in 0.5."""


def warning(cores: int, programs: Sequence[Program], stolen: float = 0.0) -> str:
    """That others keep the cores busy, and what it will cost; empty when they hardly do.

    `stolen`: cores that the host took from this virtual machine.
    """
    busy = sorted((one for one in programs if one.cores >= BUSY), key=lambda one: -one.cores)
    taken = sum(one.cores for one in busy)
    said = _said(busy, taken, cores) if taken >= MUCH * cores else []
    said += [f"the host takes {stolen:.1f} of {cores} cores"] if stolen >= MUCH * cores else []
    if not said:
        return ""
    times = 1 + COST * (max(taken, len(busy) if taken >= MUCH * cores else 0.0) + stolen) / cores
    cost = f"verdicts take about {times:.0f} times as long" if times >= 1.5 else "verdicts take longer"
    return f"{', '.join(said)}: {cost}; end what else runs, or allow more time"


def _said(busy: Sequence[Program], taken: float, cores: int) -> list[str]:
    names = ", ".join(dict.fromkeys(one.name for one in busy[:NAMED]))
    many = "1 other program keeps" if len(busy) == 1 else f"{len(busy)} other programs keep"
    return [f"{many} {min(taken, cores):.1f} of {cores} cores busy ({names})"]
