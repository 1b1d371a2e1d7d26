"""A verdict: what a session says of one variant on one workload, and never more than it knows."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.causes import Cause

Against = Literal["baseline", "known_good", "self"]
Interval = tuple[float, float]
TOO_WIDE = 10.0
"""An interval whose ends differ by this factor comes from disturbance, unless it lies far from 1."""


def is_vague(interval: Interval) -> bool:
    """Whether an interval of a ratio is so wide that the ratio says nothing.

    Above 1 one as far off as it is wide says something, as 40 to 500. Below 1, where nobody is flattered, one that
    ends at half the speed does, as 0.001 to 0.3.
    """
    low, high = interval
    width = high / low
    return width > TOO_WIDE and low <= width and high >= 0.5


class SpeedVerdict(Model):
    """A verdict on a variant whose outputs were right."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["faster", "slower", "same", "inconclusive"]
    ratio: Annotated[float, Field(gt=0)]
    """Reference time / candidate time; above 1 the candidate is faster."""
    interval: Interval
    e_value: float | None = None
    """Evidence by the sequential rule; None against the baseline, which too few processes are compared with."""

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that its ratio says nothing."""
        return is_vague(self.interval)


class NoSpeedVerdict(Model):
    """A verdict on a variant that is wrong or could not be judged: it has no speed."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["incorrect", "invalid"]
    cause: Cause = ""
    ratio: None = None
    interval: None = None


Verdict = Annotated[SpeedVerdict | NoSpeedVerdict, Field(discriminator="verdict")]
