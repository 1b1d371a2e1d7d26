"""For a command sent to another machine: what its sender says of price, target folder and trust."""

import datetime
import os

from pydantic import ValidationError

from loop.base.errors import UsageError
from loop.model.base import Model
from loop.model.money import HourPrices, Rate, RateCard, Terms

HOSTS_FILE = "hosts.yaml"
SENDER_VARIABLE, TERMS_VARIABLE = "LOOP_HOSTED", "LOOP_TERMS"
"""Environment variables: the sender's `Sender` as JSON; and cloud with rental terms, as `gcp spot`."""


class Sender(Model):
    """What the sending machine says of a command that it sent here."""

    name: str
    """The sender's name for this machine."""
    target: str | None = None
    """The target's folder on the sending machine. Sessions record it. None: the bundled target."""
    prices: HourPrices | None = None
    as_of: datetime.date
    trusted: tuple[str, ...] = ()
    """Hashes of the definitions that the user allowed on the sending machine."""

    def to_json_text(self) -> str:
        """JSON for the environment variable `LOOP_HOSTED`."""
        return self.model_dump_json(exclude_none=True)  # An explicit null price is an error.

    def rate(self, terms: Terms | None, cloud: str | None) -> Rate | None:
        """The hourly price of this whole machine; None without one. `terms`: how it is rented, by
        the `cloud`; None if unknown: then the higher price counts."""
        if self.prices is None:
            return None
        usd, used_terms = self.prices.usd_and_terms(terms)
        reason = f"{cloud}'s metadata server says {terms}" if terms else "nobody says whether it is a spot machine"
        return Rate(
            name=f"{self.name}/{used_terms}",
            resource="gpu",
            usd_per_hour=usd,
            source=f"{HOSTS_FILE}; {reason}",
            as_of=self.as_of,
            cloud=cloud,
            whole=True,
        )


def read_sender() -> Sender | None:
    """What the sender says; None for a command typed here. Raises UsageError if it is unreadable."""
    text = os.environ.get(SENDER_VARIABLE)
    if not text:
        return None
    try:
        return Sender.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{SENDER_VARIABLE} cannot be read", hint=f"unset {SENDER_VARIABLE}") from error


def read_terms(text: str) -> tuple[str | None, Terms | None]:
    """Cloud and rental terms from text such as `gcp spot`; (None, None) for any other text."""
    cloud, _, word = text.strip().partition(" ")
    terms: dict[str, Terms] = {"spot": "spot", "on_demand": "on_demand"}
    return (cloud, terms[word]) if word in terms and cloud.isalnum() else (None, None)


def with_rented_price(card: RateCard) -> RateCard:
    """The card, charging this machine's price if the command was sent to a rented machine."""
    sender = read_sender()
    cloud, terms = read_terms(os.environ.get(TERMS_VARIABLE, ""))
    if sender is None or (rate := sender.rate(terms, cloud)) is None:
        return card
    return card.model_copy(update={"rates": (*card.rates, rate), "gpu": rate.name})
