"""Money: what things cost, what a session used, and what it avoided."""

import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from loop.model.base import Model
from loop.model.metering import AiUse
from loop.model.pattern import Text

Resource = Literal["gpu", "engineer", "ai", "energy"]
EvidenceClass = Literal["measured", "history", "prior"]
EVIDENCE: dict[EvidenceClass, str] = {
    "measured": "this project's own records",
    "history": "the recorded history",
    "prior": "an author's estimate",
}
"""What each class rests on, the best first."""
Basis = Literal["measured", "stated"]
HIGHEST_USD_PER_HOUR = 500
MINIMUM_S = {"gcp": 60.0}
"""The least that a cloud charges a machine for: GCP bills by the second, and a minute at least."""


def _no_blank(price: object) -> object:
    """A price that is named has to be there: catalogues leave it blank for "not offered"."""
    if price is None:
        raise ValueError("expected a price, or no such line, got nothing")
    return price


Price = Annotated[float, Field(gt=0, lt=HIGHEST_USD_PER_HOUR)]
"""Dollars an hour. Catalogues write 0 or 700 for "not offered": both are refused."""
OptionalPrice = Annotated[Price | None, BeforeValidator(_no_blank)]


class Rate(Model):
    """The price of an hour of something, with its source and date."""

    name: Text
    """Name of the rate within its card."""
    resource: Literal["gpu", "engineer", "ai"]
    """What is paid for."""
    usd_per_hour: Price
    """Dollars an hour. Catalogues write 0 or 700 for "not offered": both are refused."""
    source: Text
    """Where the figure comes from."""
    as_of: datetime.date
    """When it was true."""
    gpu: Text | None = None
    """The GPU that it is for, as its driver names it; where none is named it is for any."""
    cloud: Text | None = None
    """Who rents it out; `gcp` charges a minute at least."""

    @property
    def minimum_s(self) -> float:
        """The least that is charged, in seconds."""
        return MINIMUM_S.get(self.cloud or "", 0.0)


class MachineRate(Model):
    """The price of an hour of a whole machine: prices of the GPU or the host alone are both wrong.

    Its rates are called `<cloud>/<region>/<shape>`, and the same with `/spot`.
    """

    gpu: Text
    """Its GPU, as the driver names it."""
    count: Annotated[int, Field(ge=1)] = 1
    """How many it has."""
    cloud: Text
    """Who rents it out."""
    region: Text
    """Where; `any` where all regions cost the same."""
    shape: Text
    """What the cloud calls it."""
    on_demand: OptionalPrice = None
    """Dollars an hour without a commitment."""
    spot: OptionalPrice = None
    """Dollars an hour of one that may be taken away; it may change daily."""
    source: Text
    """Where the figures come from."""
    as_of: datetime.date
    """When they were true."""

    @model_validator(mode="after")
    def _has_a_price(self) -> "MachineRate":
        if self.on_demand is None and self.spot is None:
            raise ValueError("expected on_demand, spot or both, got neither")
        return self

    @property
    def name(self) -> str:
        """What its rate on demand is called."""
        return f"{self.cloud}/{self.region}/{self.shape}"

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Its prices as rates."""
        prices = {self.name: self.on_demand, f"{self.name}/spot": self.spot}
        terms = {"source": self.source, "as_of": self.as_of, "gpu": self.gpu, "cloud": self.cloud}
        return tuple(
            Rate.model_validate({"name": name, "resource": "gpu", "usd_per_hour": price, **terms})
            for name, price in prices.items()
            if price is not None
        )


class EnergyRate(Model):
    """The price of electricity, for machines of one's own: a rented one has it in its hour."""

    usd_per_kwh: Annotated[float, Field(gt=0, lt=10)]
    """Dollars a kilowatt-hour."""
    source: Text
    """Where the figure comes from."""
    as_of: datetime.date
    """When it was true."""


class RateCard(Model):
    """Dated prices, and which a session is charged at; a project's own may leave fields to the shipped one."""

    format: Literal[1]
    """Format number of this file."""
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    """Prices of people, of AI, and of machines that are nobody's product."""
    machines: tuple[MachineRate, ...] = ()
    """Prices of rented machines."""
    gpu: Text
    """Name of the rate that a session on a GPU is charged at."""
    waiting: Text
    """Name of the rate of whoever waits for a session, and would have done its work by hand."""
    ai: Text | None = None
    """Name of a rate for each hour of a session that AI is charged at where nothing was measured: `stated`."""
    energy: EnergyRate | None = None
    """Price of electricity; without one, energy is shown and not charged."""

    @property
    def every(self) -> tuple[Rate, ...]:
        """All rates, those of machines last."""
        return (*self.rates, *(rate for machine in self.machines for rate in machine.rates))

    def find(self, name: str) -> Rate | None:
        """The rate called `name`, if there is one."""
        return next((rate for rate in self.every if rate.name == name), None)


class Charge(Model):
    """Use of one resource, priced."""

    resource: Resource
    """What was used."""
    rate: str
    """Name of the rate; for AI, where the figure comes from."""
    seconds: Annotated[float, Field(ge=0)]
    """Measured use; 0 for AI that is not charged by time."""
    usd: Annotated[float, Field(ge=0)]
    """Use times rate."""
    basis: Basis = "measured"
    """Measured use at a dated price, or an amount that somebody stated."""


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
    usd_low: float | None = None
    """The same of `minutes_low`; None in records of older versions."""
    usd_high: float | None = None
    """The same of `minutes_high`."""

    @property
    def interval_usd(self) -> tuple[float, float]:
        """Dollars of the most and of the least favourable row; in proportion to their minutes in older records."""
        if self.usd_low is not None and self.usd_high is not None:
            return self.usd_low, self.usd_high
        a_minute = self.usd / self.minutes if self.minutes else 0.0
        return self.minutes_low * a_minute, self.minutes_high * a_minute


class Unmeasured(Model):
    """A resource whose use or price is not known: shown as such, never as zero."""

    resource: Resource
    """What may have been used."""
    reason: str
    """Why there is no figure."""


class Gains(Model):
    """What a session brought, counted so that its cost can be divided by it."""

    accepted: int = 0
    """Changes that were kept."""
    accepted_us: float | None = None
    """Microseconds a call that they save, mean over the timed workloads, added up; None where none was timed."""


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
    ai: AiUse | None = None
    """What agents used; None where nothing is known."""
    energy_j: float | None = None
    """Joules that the GPU took while it was measured; None where no sensor told."""
    gains: Gains = Gains()
    """What it brought."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of these figures: an old price, a clock that jumped."""
