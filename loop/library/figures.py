"""Prices and recorded histories."""

from loop.documents import complain
from loop.errors import DefinitionError
from loop.library.definitions import read_file
from loop.model.history import History
from loop.model.money import RateCard
from loop.places import Project, shipped


def rates(project: Project) -> RateCard:
    """The project's own rate card, else the shipped one."""
    own = project.target / "rates.yaml"
    path = own if not project.bundled and own.is_file() else shipped("sessions/rates.yaml")
    read = read_file(path, RateCard)
    for field in ("gpu", "waiting"):
        if read.value.find(getattr(read.value, field)) is None:
            known = ", ".join(rate.name for rate in read.value.rates)
            raise DefinitionError(
                [complain(read.document, (field,), f"one of {known}", repr(getattr(read.value, field)))]
            )
    return read.value


def histories() -> list[History]:
    """The recorded histories that ship with loop."""
    return [read_file(path, History).value for path in sorted(shipped("sessions/history").glob("*.yaml"))]
