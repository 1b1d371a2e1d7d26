"""A verdict of a session on one variant on one workload."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.causes import Cause

Against = Literal["baseline", "known_good", "self"]
Interval = tuple[float, float]
TOO_WIDE = 10.0
"""An interval with a larger high/low factor is noise, unless it lies far from 1."""


def is_vague(interval: Interval) -> bool:
    """Whether an interval of a ratio is too wide to use: high / low exceeds `TOO_WIDE`, and it does not show that
    the candidate is at least twice as slow, or faster by more than this factor."""
    low, high = interval
    return high / low > TOO_WIDE and high >= 0.5 and low <= high / low


class SpeedVerdict(Model):
    """A verdict on the speed of a variant with right outputs."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["faster", "slower", "same", "inconclusive"]
    ratio: Annotated[float, Field(gt=0)]
    """Reference time / candidate time; above 1 the candidate is faster."""
    interval: Interval
    e_value: float | None = None
    """Evidence of the sequential test. None against the baseline: too few processes for a test."""

    @property
    def vague(self) -> bool:
        """Whether the interval is too wide for the ratio to be useful (see `is_vague`)."""
        return is_vague(self.interval)


class NoSpeedVerdict(Model):
    """A verdict on a variant that is wrong or could not be timed. It has no ratio."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["incorrect", "invalid"]
    cause: Cause = ""
    ratio: None = None
    interval: None = None


Verdict = Annotated[SpeedVerdict | NoSpeedVerdict, Field(discriminator="verdict")]
