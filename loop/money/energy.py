"""The joules that a session's measurements took, from the records of its steps."""

from collections.abc import Iterable

from loop.model.record import Finished


def energy(finished: Iterable[Finished]) -> tuple[float, float] | None:
    """Joules and seconds over all measurements, of every attempt: what was used was used. None where none told."""
    told = [found for one in finished if (found := _told(one.output)) is not None]
    return (sum(joules for joules, _ in told), sum(seconds for _, seconds in told)) if told else None


def _told(output: dict[str, object]) -> tuple[float, float] | None:
    """A measurement's own, or that of the measurement of a change."""
    found = output.get("found")
    fields: dict[str, object] = found if isinstance(found, dict) else output
    joules, seconds = fields.get("energy_j"), fields.get("energy_s")
    if isinstance(joules, int | float) and isinstance(seconds, int | float):
        return float(joules), float(seconds)
    return None
