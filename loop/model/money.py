"""Money: what things cost, what a session used, and what it avoided."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.pattern import Text

Resource = Literal["gpu", "engineer", "ai"]
EvidenceClass = Literal["measured", "history", "prior"]


class Rate(Model):
    """The price of an hour of something, with its source and date."""

    name: Text
    """Name of the rate within its card."""
    resource: Resource
    """What is paid for."""
    usd_per_hour: Annotated[float, Field(gt=0, lt=500)]
    """Dollars an hour. Catalogues write 0 or 700 for "not offered": both are refused."""
    source: Text
    """Where the figure comes from."""
    as_of: datetime.date
    """When it was true."""


class RateCard(Model):
    """Dated prices, and which of them a session is charged at."""

    format: Literal[1]
    """Format number of this file."""
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    """The prices."""
    gpu: Text
    """Name of the rate that a session on a GPU is charged at."""
    waiting: Text
    """Name of the rate of whoever waits for a session, and would have done its work by hand."""

    def find(self, name: str) -> Rate | None:
        """The rate called `name`, if there is one."""
        return next((rate for rate in self.rates if rate.name == name), None)


class Charge(Model):
    """Measured use of one resource, priced."""

    resource: Resource
    """What was used."""
    rate: str
    """Name of the rate."""
    seconds: Annotated[float, Field(ge=0)]
    """Measured use."""
    usd: Annotated[float, Field(ge=0)]
    """Use times rate."""


class Saving(Model):
    """Time and money avoided by one pattern, with the evidence that says so."""

    pattern: str
    """Name of the pattern."""
    evidence: EvidenceClass
    """This project's own records, the recorded history, or an author's estimate."""
    source: str
    """Which rows, or whose word."""
    minutes: float
    """Minutes avoided: what it takes without the pattern, less what it took."""
    minutes_low: float
    """The same from the most favourable row."""
    minutes_high: float
    """The same from the least favourable row."""
    usd: float
    """The minutes at the rate of whoever would have spent them."""


class Unmeasured(Model):
    """A resource whose use is not known: shown as such, never as zero."""

    resource: Resource | Literal["energy"]
    """What may have been used."""
    reason: str
    """Why there is no figure."""


class Bill(Model):
    """What a session cost and saved."""

    charges: tuple[Charge, ...]
    """Priced use."""
    unmeasured: tuple[Unmeasured, ...]
    """Resources without a figure."""
    savings: tuple[Saving, ...]
    """Avoided cost, pattern by pattern."""
    usd: float
    """Sum of the charges."""
    saved_usd: dict[EvidenceClass, float]
    """Sum of the savings, class by class; classes are never added up silently."""
    roi: dict[EvidenceClass, float]
    """(savings - charges) / charges by evidence class; empty when nothing was charged."""
