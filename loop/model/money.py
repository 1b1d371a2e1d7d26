"""Money: what things cost, what a session used, and what it avoided."""

import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from loop.model.base import Count, Model
from loop.model.plan import Text

AiSource = Literal["result", "stated"]


class Tokens(Model):
    """Tokens of one call or of many. The five kinds are disjoint: none is counted in another."""

    input: Count = 0
    """Read, and not from a cache."""
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    """Put into a cache that lasts five minutes."""
    cache_write_1h: Count = 0
    """Put into a cache that lasts an hour."""
    searches: Count = 0

    @property
    def total(self) -> int:
        """All tokens."""
        return self.input + self.output + self.cache_read + self.cache_write + self.cache_write_1h

    def plus(self, other: "Tokens") -> "Tokens":
        """Both together."""
        fields = {name: count + other.__dict__[name] for name, count in self.__dict__.items()}
        return Tokens.model_construct(**fields)


class ModelUse(Model):
    """What one model was used for."""

    model: str
    calls: Count
    tokens: Tokens
    usd: float | None


class AiUse(Model):
    """What agents used in a session, from the best source there was."""

    source: AiSource
    agents: tuple[str, ...] = ()
    models: tuple[ModelUse, ...] = ()
    usd: float | None
    """What is known to have been paid; None where nothing is known."""
    unpriced: tuple[str, ...] = ()
    """Models whose price is not known: what they cost comes on top."""
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """All tokens that are known of."""
        return sum(use.tokens.total for use in self.models)

    @property
    def accuracy(self) -> Literal["exact", "estimate", "partial", "unknown"]:
        """How well its dollars are known: as somebody stated, as an agent estimates, in part, or not at all."""
        if self.usd is None and not self.tokens:
            return "unknown"
        if self.usd is None or self.unpriced:
            return "partial"
        return "exact" if self.source == "stated" else "estimate"


Resource = Literal["gpu", "engineer", "ai"]
Basis = Literal["measured", "stated"]
"""Use that was measured here, or what somebody typed."""
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


Terms = Literal["on_demand", "spot"]
"""How a machine is rented: until it is given back, or until its cloud takes it away."""


class HourPrices(Model):
    """What an hour of one machine costs."""

    on_demand: OptionalPrice = None
    spot: OptionalPrice = None
    """Dollars an hour of one that may be taken away; it may change daily."""

    @model_validator(mode="after")
    def _has_a_price(self) -> "HourPrices":
        if self.on_demand is None and self.spot is None:
            raise ValueError("expected on_demand, spot or both, got neither")
        return self

    def at(self, terms: Terms | None) -> tuple[float, Terms]:
        """Dollars an hour and what they are for; the dearer price where the terms, or theirs, are not known."""
        known: dict[Terms, float | None] = {"on_demand": self.on_demand, "spot": self.spot}
        prices = {name: usd for name, usd in known.items() if usd is not None}
        used = terms if terms in prices else max(prices, key=lambda name: prices[name])
        return prices[used], used


class Rate(Model):
    """The price of an hour of something, with its source and date."""

    name: Text
    resource: Literal["gpu", "engineer", "ai"]
    usd_per_hour: Price
    source: Text
    as_of: datetime.date
    gpu: Text | None = None
    """The GPU that it is for, as its driver names it; where none is named it is for any."""
    cloud: Text | None = None
    """Who rents it out; `gcp` charges a minute at least."""
    whole: bool = False
    """Whether it is that of the whole rented machine: its processor costs as much as its GPU."""

    @property
    def minimum_s(self) -> float:
        """The least that is charged, in seconds."""
        return MINIMUM_S.get(self.cloud or "", 0.0)


class MachineRate(HourPrices):
    """The price of an hour of a whole machine: prices of the GPU or the host alone are both wrong.

    Its rates are called `<cloud>/<region>/<shape>`, and the same with `/spot`.
    """

    gpu: Text
    count: Annotated[int, Field(ge=1)] = 1
    cloud: Text
    region: Text
    """Where; `any` where all regions cost the same."""
    shape: Text
    source: Text
    as_of: datetime.date

    @property
    def name(self) -> str:
        """What its rate on demand is called."""
        return f"{self.cloud}/{self.region}/{self.shape}"

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Its prices as rates."""
        prices = {self.name: self.on_demand, f"{self.name}/spot": self.spot}
        shared = {"resource": "gpu", **self.model_dump(include={"source", "as_of", "gpu", "cloud"})}
        known = [(name, usd) for name, usd in prices.items() if usd is not None]
        return tuple(Rate(name=name, usd_per_hour=usd, **shared) for name, usd in known)


class RateCard(Model):
    """Dated prices, and which a session is charged at; a project's own may leave fields to the shipped one."""

    format: Literal[1]
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    """Prices of people, of AI, and of machines that are nobody's product."""
    machines: tuple[MachineRate, ...] = ()
    gpu: Text
    """Name of the rate that a session on a GPU is charged at."""
    waiting: Text | None = None
    """Name of the rate of a person who attends to sessions: each second is charged, and called `stated`."""
    ai: Text | None = None
    """Name of a rate for each hour of a session that AI is charged at where nothing was measured: `stated`."""

    @property
    def every(self) -> tuple[Rate, ...]:
        """All rates, those of machines last."""
        return (*self.rates, *(rate for machine in self.machines for rate in machine.rates))

    def find(self, name: str | None) -> Rate | None:
        """The rate called `name`, if there is one."""
        return next((rate for rate in self.every if rate.name == name), None) if name else None

    def attended(self, stated: bool) -> "RateCard":
        """The card of a session: whoever attends is the first engineer on it, if the user states that one does."""
        first = next((rate.name for rate in self.rates if rate.resource == "engineer"), None)
        return self.model_copy(update={"waiting": first}) if stated and self.waiting is None else self


class Charge(Model):
    """Use of one resource, priced."""

    resource: Resource
    rate: str
    """Name of the rate; for AI, where the figure comes from."""
    seconds: Annotated[float, Field(ge=0)]
    """Measured use; 0 for AI that is not charged by time."""
    usd: Annotated[float, Field(ge=0)]
    basis: Basis = "measured"
    """Measured use at a dated price, or something that somebody stated."""


class Saving(Model):
    """Time and money that something spared here, by a time that was measured here without it."""

    pattern: str
    source: str
    minutes: float
    usd: float


class Unmeasured(Model):
    """A resource whose use or price is not known: shown as such, never as zero."""

    resource: Resource
    reason: str


class Gains(Model):
    """What a session brought, counted so that its cost can be divided by it."""

    accepted: int = 0
    accepted_us: float | None = None
    """Microseconds a call that they save, mean over the timed workloads, added up; None where none was timed."""


class Bill(Model):
    """What a session cost, and what it measurably saved."""

    charges: tuple[Charge, ...]
    unmeasured: tuple[Unmeasured, ...]
    savings: tuple[Saving, ...]
    usd: float
    saved_usd: float = 0.0
    roi: float | None = None
    """(savings - charges) / charges; None where nothing was charged, or no saving was measured."""
    ai: AiUse | None = None
    gains: Gains = Gains()
    notes: tuple[str, ...] = ()
