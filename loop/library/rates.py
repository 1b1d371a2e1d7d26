"""The rate card: the project's own before the shipped one."""

from dataclasses import replace

from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.places import Project, shipped
from loop.library.definitions import Read, read_file
from loop.library.hosted import with_rented_price
from loop.model.money import RateCard

NAMED = {"gpu": ("gpu",), "waiting": ("engineer", "ai"), "ai": ("ai",)}
"""Fields that name a rate, and what it may be the rate of."""
TAKEN = ("rates", "gpu")
"""Fields that a card of one's own may leave to the shipped one."""


def rates(project: Project) -> RateCard:
    """The project's own rate card, with every shipped rate that it does not set itself; else the shipped card;
    with the price of a rented machine that a command was sent to.

    Raises DefinitionError, with file, line and column, for a price that is none and a name that leads nowhere.
    """
    base = read_file(shipped("sessions/rates.yaml"), RateCard)
    path = project.target / "rates.yaml"
    if project.bundled or not path.is_file():
        return with_rented_price(_checked(base, base.value))
    document = load_yaml(path)
    if isinstance(document.data, dict):
        left_out = {name: base.document.data[name] for name in TAKEN if name not in document.data}
        document = replace(document, data={**left_out, **document.data})
    own = Read(parse(RateCard, document), document, path)
    return with_rented_price(_checked(own, rates_over(own.value, base.value)))


def rates_over(own: RateCard, base: RateCard) -> RateCard:
    """A card with the rates of another below its own: what both have is the own one's.

    An engineer's rate of its own states that one attends to the sessions.
    """
    mine = {rate.name for rate in own.every}
    rates = tuple(rate for rate in base.rates if rate.name not in mine)
    machines = tuple(machine for machine in base.machines if not mine & {rate.name for rate in machine.rates})
    whole = own.model_copy(update={"rates": own.rates + rates, "machines": own.machines + machines})
    states = own.rates != base.rates and any(rate.resource == "engineer" for rate in own.rates)
    return whole.attended(states)


def _checked(read: Read[RateCard], card: RateCard) -> RateCard:
    """The card. Raises DefinitionError where it is charged at a rate that is not there, or of something else."""
    for field, kinds in NAMED.items():
        name = getattr(card, field)
        rate = card.find(name)
        if name is not None and rate is None:
            known = ", ".join(rate.name for rate in read.value.rates)
            hint = "`loop cost rates` lists the shipped ones too"
            raise DefinitionError([read.complain((field,), f"one of {known}", repr(name), hint)])
        if rate is not None and rate.resource not in kinds:
            expected, got = f"a rate of {' or '.join(kinds)}", f"{name!r}, a rate of {rate.resource}"
            raise DefinitionError([read.complain((field,), expected, got)])
    return card
