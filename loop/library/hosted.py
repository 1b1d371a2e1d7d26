"""What a command that was sent to another machine is told of whoever sent it: its price, its target, its trust."""

import datetime
import os

from pydantic import ValidationError

from loop.base.errors import UsageError
from loop.model.base import Model
from loop.model.money import HourPrices, Rate, RateCard, Terms

FILE = "hosts.yaml"
VARIABLE, TERMS = "LOOP_HOSTED", "LOOP_TERMS"
"""In the environment: what the sender says; and what the cloud's metadata server says there, `gcp spot`."""


class Hosted(Model):
    """Who sent this command here."""

    name: str
    """What its sender calls this machine."""
    target: str | None = None
    """The target's folder at the sender's, by which both sides know the sessions; None for the bundled target."""
    prices: HourPrices | None = None
    as_of: datetime.date
    trusted: tuple[str, ...] = ()
    """Hashes of what the user allowed there."""

    def as_text(self) -> str:
        """What stands in the environment."""
        return self.model_dump_json(exclude_none=True)  # A price that is named has to be there.

    def rate(self, terms: Terms | None, cloud: str | None) -> Rate | None:
        """The price of this machine; the dearer one where no metadata server says which it is."""
        if self.prices is None:
            return None
        usd, used = self.prices.at(terms)
        why = f"{cloud}'s metadata server says {terms}" if terms else "nobody says whether it is a spot machine"
        return Rate(
            name=f"{self.name}/{used}",
            resource="gpu",
            usd_per_hour=usd,
            source=f"{FILE}; {why}",
            as_of=self.as_of,
            cloud=cloud,
            whole=True,
        )


def hosted() -> Hosted | None:
    """Who sent this command here; None where it was typed here. Raises UsageError for what cannot be read."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return Hosted.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{VARIABLE} cannot be read", hint=f"unset {VARIABLE}") from error


def read_terms(text: str) -> tuple[str | None, Terms | None]:
    """Cloud and terms of a machine, as `loop.cloud.clouds` prints them."""
    cloud, _, word = text.strip().partition(" ")
    terms: dict[str, Terms] = {"spot": "spot", "on_demand": "on_demand"}
    return (cloud, terms[word]) if word in terms and cloud.isalnum() else (None, None)


def with_rented_price(card: RateCard) -> RateCard:
    """The card, with the price of the rented machine that this is, if it is one."""
    sender = hosted()
    cloud, terms = read_terms(os.environ.get(TERMS, ""))
    if sender is None or (rate := sender.rate(terms, cloud)) is None:
        return card
    return card.model_copy(update={"rates": (*card.rates, rate), "gpu": rate.name})
