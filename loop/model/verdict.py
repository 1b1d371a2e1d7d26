"""A verdict: what a session says of one variant on one workload, and never more than it knows."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.causes import Cause

Against = Literal["baseline", "known_good", "self", "torch_compile"]
Interval = tuple[float, float]
TOO_WIDE = 10.0
"""An interval whose ends differ by this factor comes from disturbance, whatever side of 1 it lies on."""


class _Judged(Model):
    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    against: Against
    """What it was compared with."""
    reason: str
    """Why the verdict is this one."""


class SpeedVerdict(_Judged):
    """A verdict on a variant whose outputs were right."""

    verdict: Literal["faster", "slower", "same", "inconclusive"]
    """What the evidence allows to say."""
    ratio: Annotated[float, Field(gt=0)]
    """Reference time / candidate time; above 1 the candidate is faster."""
    interval: Interval
    """99 % confidence interval of the ratio."""
    e_value: float | None = None
    """Evidence by the sequential rule; None against the baseline, which too few processes are compared with."""

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that its ratio says nothing."""
        return self.interval[1] > TOO_WIDE * self.interval[0]


class NoSpeedVerdict(_Judged):
    """A verdict on a variant that is wrong or could not be judged: it has no speed."""

    verdict: Literal["incorrect", "invalid"]
    """Wrong output, or no trustworthy answer."""
    cause: Cause = ""
    """What is wrong, as a code."""
    ratio: None = None
    """Always absent."""
    interval: None = None
    """Always absent."""


Verdict = Annotated[SpeedVerdict | NoSpeedVerdict, Field(discriminator="verdict")]
