"""Money: prices, use of resources in a session, costs and savings."""

import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from loop.model.base import Count, Model
from loop.model.plan import Text


class ModelUse(Model):
    """Tokens and cost of one AI model. `usd` None: unknown."""

    model: str
    tokens: Count
    usd: float | None


class AiUse(Model):
    """AI use of a session's agents, from the most reliable source available."""

    source: Literal["result", "stated"]
    agents: tuple[str, ...] = ()
    models: tuple[ModelUse, ...] = ()
    usd: float | None
    """Known cost in US dollars; None if no cost is known."""
    unpriced: tuple[str, ...] = ()
    """Models without a known price. Their cost is not in `usd`."""
    notes: tuple[str, ...] = ()

    @property
    def total_tokens(self) -> int:
        return sum(use.tokens for use in self.models)


Resource = Literal["gpu", "engineer", "ai"]
Basis = Literal["measured", "stated"]  # Whether `loop` measured the use, or the user stated it.
Price = Annotated[float, Field(gt=0, lt=500)]
"""US dollars per hour. Catalogues write 0 or 700 for "not offered"; both are refused."""


class Rate(Model):
    """An hourly price of a GPU, an engineer or AI, with source and date."""

    name: Text
    resource: Resource
    usd_per_hour: Price
    source: Text
    as_of: datetime.date
    gpu: Text | None = None
    """Driver name of the GPU that this price is for; None: any GPU."""
    cloud: Text | None = None
    """The cloud provider. `gcp` charges at least a minute."""
    whole: bool = False
    """Whether the price is for the whole rented machine, so that CPU sessions cost the same."""

    @property
    def minimum_s(self) -> float:
        """Minimum charge in seconds: GCP bills by the second, but at least one minute."""
        return 60.0 if self.cloud == "gcp" else 0.0


class MachineRate(Model):
    """Hourly prices of a whole cloud machine: GPU and host together. Its rates are named
    `<cloud>/<region>/<shape>`, with `/spot` added for spot machines."""

    on_demand: Price | None = None
    spot: Price | None = None
    """US dollars per hour of a spot machine. The price may change daily."""
    gpu: Text
    count: Annotated[int, Field(ge=1)] = 1
    cloud: Text
    region: Text
    """Region of the cloud; `any` if all regions have this price."""
    shape: Text
    source: Text
    as_of: datetime.date

    @model_validator(mode="after")
    def _refuse_no_price(self) -> "MachineRate":
        if self.on_demand is None and self.spot is None:
            raise ValueError("expected on_demand, spot or both, got neither")
        return self

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The machine's known prices as rates."""
        shared = {"resource": "gpu", **self.model_dump(include={"source", "as_of", "gpu", "cloud"})}
        name = f"{self.cloud}/{self.region}/{self.shape}"
        prices = ((name, self.on_demand), (f"{name}/spot", self.spot))
        known = [(key, usd) for key, usd in prices if usd is not None]
        return tuple(Rate(name=key, usd_per_hour=usd, **shared) for key, usd in known)


class RateCard(Model):
    """Dated prices and the choice of rates for sessions. A project's own card may omit fields."""

    format: Literal[1]
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    """Prices of people, AI, and machines that no cloud offers."""
    machines: tuple[MachineRate, ...] = ()
    gpu: Text
    """Name of the rate for sessions on a GPU."""
    waiting: Text | None = None
    """Rate of a person who waits for sessions. Every second is charged, with basis `stated`."""
    ai: Text | None = None
    """Rate for AI per session hour, used if AI use was not measured; basis `stated`."""

    @property
    def all_rates(self) -> tuple[Rate, ...]:
        """All rates; rates of machines come last."""
        return (*self.rates, *(rate for machine in self.machines for rate in machine.rates))

    def find_rate(self, name: str | None) -> Rate | None:
        """The rate with this name, of a person, AI or machine; None if the card has none."""
        return next((rate for rate in self.all_rates if rate.name == name), None)

    def with_waiting_person(self, *, is_attended: bool) -> "RateCard":
        """The card; if `is_attended` and nobody is set as waiting, its first engineer is."""
        if not is_attended or self.waiting is not None:
            return self
        engineers = [rate.name for rate in self.rates if rate.resource == "engineer"]
        return self.model_copy(update={"waiting": engineers[0] if engineers else None})


class Charge(Model):
    """Use of one resource and its cost."""

    resource: Resource
    rate: str
    """Name of the rate; for AI, the source of the amount."""
    seconds: Annotated[float, Field(ge=0)]
    """Measured use; 0 for AI that is not charged by time."""
    usd: Annotated[float, Field(ge=0)]
    basis: Basis = "measured"
    """`measured`: use that `loop` measured; `stated`: use that the user stated."""


class Saving(Model):
    """Time and money that a pattern saved, compared with a time measured here without it."""

    pattern: str
    source: str
    minutes: float
    usd: float


class Unmeasured(Model):
    """A resource with unknown use or price. Reports show it as unknown, never as zero."""

    resource: Resource
    reason: str


class Bill(Model):
    """Costs and measured savings of a session."""

    charges: tuple[Charge, ...]
    unmeasured: tuple[Unmeasured, ...]
    savings: tuple[Saving, ...]
    usd: float
    saved_usd: float = 0.0
    roi: float | None = None
    """(savings - charges) / charges; None if nothing was charged or no saving was measured."""
    ai: AiUse | None = None
    notes: tuple[str, ...] = ()
