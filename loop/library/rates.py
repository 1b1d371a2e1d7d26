"""The rate card (prices): a project's own `rates.yaml` overrides the shipped one."""

from dataclasses import replace

from loop.base.documents import complain, load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.places import shipped
from loop.library.definitions import ParsedFile, read_file
from loop.library.hosted import with_rented_price
from loop.library.project import Project
from loop.model.money import RateCard

RESOURCES_BY_FIELD = {"gpu": ("gpu",), "waiting": ("engineer", "ai"), "ai": ("ai",)}
"""Field that names a rate, to the resources which that rate may price."""
INHERITED_FIELDS = ("rates", "gpu")
"""Required fields that a project's card may omit; the shipped card supplies them."""


def rates(project: Project) -> RateCard:
    """The rate card of a project: its own rates and machines, plus every shipped one that it does not
    set. If it sets an engineer's rate, the card also charges an engineer who waits for sessions. If
    this command was sent to a rented machine, the card charges that machine's price. Raises
    DefinitionError with file, line and column for an invalid price or an unknown rate name."""
    shipped_card = read_file(shipped("sessions/rates.yaml"), RateCard)
    path = project.target / "rates.yaml"
    if project.bundled or not path.is_file():
        return with_rented_price(_check_rate_names(shipped_card, shipped_card.value))
    document = load_yaml(path)
    if isinstance(document.data, dict):
        defaults = {name: shipped_card.document.data[name] for name in INHERITED_FIELDS}
        document = replace(document, data={**defaults, **document.data})
    project_card = ParsedFile(parse(RateCard, document), document, path)
    card, shipped_rates = project_card.value, shipped_card.value.rates
    own_names = {rate.name for rate in card.all_rates}
    all_rates, machines = [*card.rates], [*card.machines]
    all_rates += [rate for rate in shipped_rates if rate.name not in own_names]
    for machine in shipped_card.value.machines:
        if own_names.isdisjoint(rate.name for rate in machine.rates):
            machines.append(machine)
    merged = card.model_copy(update={"rates": tuple(all_rates), "machines": tuple(machines)})
    has_own_rates = card.rates != shipped_rates  # A card without `rates` got the shipped ones.
    has_engineer_rate = any(rate.resource == "engineer" for rate in card.rates)
    merged = merged.with_waiting_person(is_attended=has_own_rates and has_engineer_rate)
    return with_rented_price(_check_rate_names(project_card, merged))


def _check_rate_names(definition: ParsedFile[RateCard], card: RateCard) -> RateCard:
    """Return `card`. Raises DefinitionError if a field of it names an unknown rate, or a rate of another
    resource than the field is for. `definition`: the file to blame, with its lines."""
    for field, resources in RESOURCES_BY_FIELD.items():
        name = getattr(card, field)
        rate = card.find_rate(name)
        if name is not None and rate is None:
            known = ", ".join(rate.name for rate in definition.value.rates)
            hint = "`loop cost rates` lists the shipped ones too"
            raise DefinitionError([complain(definition.document, (field,), f"one of {known}", repr(name), hint)])
        if rate is not None and rate.resource not in resources:
            expected, got = f"a rate of {' or '.join(resources)}", f"{name!r}, a rate of {rate.resource}"
            raise DefinitionError([complain(definition.document, (field,), expected, got)])
    return card
