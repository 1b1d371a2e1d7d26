"""Prices and recorded histories."""

from loop.base.places import shipped
from loop.library.histories import read_history
from loop.library.rates import rates as rates
from loop.model.history import History


def histories() -> list[History]:
    """The recorded histories that ship with loop."""
    return [read_history(path).value for path in sorted(shipped("sessions/history").glob("*.yaml"))]
