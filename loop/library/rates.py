"""The rate card: the project's own before the shipped one."""

from pathlib import Path

from loop.documents import complain
from loop.errors import DefinitionError
from loop.library.definitions import Read, read_file
from loop.model.money import RateCard
from loop.places import Project, shipped

NAMED = ("gpu", "waiting", "ai")
"""Fields that name a rate."""


def rates(project: Project) -> RateCard:
    """The project's own rate card, with every shipped rate that it does not set itself; else the shipped card.

    Raises DefinitionError, with file, line and column, for a price that is none and a name that leads nowhere.
    """
    own = own_card(project)
    base = read_file(shipped("sessions/rates.yaml"), RateCard)
    if own is None:
        return _checked(base, base.value)
    read = read_file(own, RateCard)
    return _checked(read, over(read.value, base.value))


def own_card(project: Project) -> Path | None:
    """Where the project's own card is, if it has one."""
    path = project.target / "rates.yaml"
    return path if not project.bundled and path.is_file() else None


def over(own: RateCard, base: RateCard) -> RateCard:
    """A card with the rates of another below its own: what both have is the own one's."""
    mine = {rate.name for rate in own.every}
    rates = tuple(rate for rate in base.rates if rate.name not in mine)
    machines = tuple(one for one in base.machines if not mine & {rate.name for rate in one.rates})
    return own.model_copy(update={"rates": own.rates + rates, "machines": own.machines + machines})


def _checked(read: Read[RateCard], card: RateCard) -> RateCard:
    for field in NAMED:
        name = getattr(card, field)
        if name is not None and card.find(name) is None:
            known = ", ".join(rate.name for rate in read.value.rates)
            hint = "`loop cost rates` lists the shipped ones too"
            raise DefinitionError([complain(read.document, (field,), f"one of {known}", repr(name), hint)])
    return card
