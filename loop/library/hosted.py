"""For a command sent to another machine: what its sender says of price, target folder and trust."""

import datetime
import os

from pydantic import ValidationError

from loop.base.errors import UsageError
from loop.model.base import Model
from loop.model.money import Price

HOSTS_FILE = "hosts.yaml"
SENDER_VARIABLE = "LOOP_HOSTED"  # Environment variable with the sender's `Sender` as JSON.


class Sender(Model):
    """What the sending machine says of a command that it sent here."""

    name: str
    """The sender's name for this machine."""
    target: str | None = None
    """The target's folder on the sending machine. Sessions record it. None: the bundled target."""
    usd_per_hour: Price | None = None
    """Price of this machine; None: the user stated none."""
    as_of: datetime.date
    """Day of the price."""
    trusted: tuple[str, ...] = ()
    """Hashes of the definitions that the user allowed on the sending machine."""


def read_sender() -> Sender | None:
    """What the sender says; None for a command typed here. Raises UsageError if it is unreadable."""
    text = os.environ.get(SENDER_VARIABLE)
    if not text:
        return None
    try:
        return Sender.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{SENDER_VARIABLE} cannot be read", hint=f"unset {SENDER_VARIABLE}") from error
