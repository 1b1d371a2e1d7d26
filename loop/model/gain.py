"""What advice promises of a variant's speed, and what came of it. Gains are ratios: 1.2 is 20 % faster."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Count, Model
from loop.model.verdict import Interval

Basis = Literal["change", "later session"]


class Promise(Model):
    """The gain that a leaf of the decision tree promises, and what earlier outcomes make of it."""

    advice: str
    """The leaf: its bottleneck."""
    stated: Interval
    """What the rule says: lowest and highest ratio of speeds, after over before."""
    expected: Interval
    """The same, drawn towards what came of this advice before."""
    outcomes: Count = 0
    """Outcomes of this advice that were on record."""
    inside: Count = 0
    """Those inside the interval that was stated for them."""


class Promised(Model):
    """A promise of one session, which a later one can be held against."""

    promise: Promise
    """What was promised."""
    variant: str
    """The variant it is about."""
    workload: str
    """The workload it is about: where the variant did worst."""
    build: str
    """The build that was to be made faster."""
    ratio: Annotated[float, Field(gt=0)]
    """Its speed there, against the baseline."""


class GainOutcome(Model):
    """What came of one promise."""

    promise: Promise
    """What was promised."""
    variant: str
    """The variant it was about."""
    workload: str
    """The workload it was about."""
    actual: Annotated[float, Field(gt=0)]
    """Ratio of speeds there, after over before."""
    basis: Basis
    """Timed side by side as a change, or in a later session, each against the baseline."""
    session: str = ""
    """The session that timed it."""

    @property
    def side(self) -> str:
        """`inside` the stated interval, `below` it or `above` it."""
        low, high = self.promise.stated
        return "below" if self.actual < low else "above" if self.actual > high else "inside"
