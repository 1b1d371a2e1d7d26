"""The rate card (prices): a project's own `rates.yaml` overrides the shipped one."""

from dataclasses import replace

from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.places import Project, shipped
from loop.library.definitions import Read, read_file
from loop.library.hosted import with_rented_price
from loop.model.money import RateCard

NAMED = {"gpu": ("gpu",), "waiting": ("engineer", "ai"), "ai": ("ai",)}
"""Field that names a rate, to the resources which that rate may price."""
TAKEN = ("rates", "gpu")
"""Required fields that a project's card may omit; the shipped card supplies them."""


def rates(project: Project) -> RateCard:
    """The rate card of a project: its own rates, plus every shipped rate that it does not set.

    If this command was sent to a rented machine, the card charges that machine's price. Raises
    DefinitionError with file, line and column for an invalid price or an unknown rate name.
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
    """Card `own` plus those rates of `base` whose names `own` lacks.

    If `own` sets an engineer's rate, the card also charges an engineer who waits for sessions.
    """
    mine = {rate.name for rate in own.all_rates}
    rates = tuple(rate for rate in base.rates if rate.name not in mine)
    machines = tuple(machine for machine in base.machines if not mine & {rate.name for rate in machine.rates})
    whole = own.model_copy(update={"rates": own.rates + rates, "machines": own.machines + machines})
    states = own.rates != base.rates and any(rate.resource == "engineer" for rate in own.rates)
    return whole.with_waiting_person(states)


def _checked(read: Read[RateCard], card: RateCard) -> RateCard:
    """Return `card`. Raises DefinitionError if it names an unknown rate or one of another resource."""
    for field, kinds in NAMED.items():
        name = getattr(card, field)
        rate = card.find_rate(name)
        if name is not None and rate is None:
            known = ", ".join(rate.name for rate in read.value.rates)
            hint = "`loop cost rates` lists the shipped ones too"
            raise DefinitionError([read.complain((field,), f"one of {known}", repr(name), hint)])
        if rate is not None and rate.resource not in kinds:
            expected, got = f"a rate of {' or '.join(kinds)}", f"{name!r}, a rate of {rate.resource}"
            raise DefinitionError([read.complain((field,), expected, got)])
    return card
