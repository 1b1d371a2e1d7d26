"""The rate card (prices): a project's own `rates.yaml` overrides the shipped one."""

from dataclasses import replace

from loop.base.documents import complain, load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.places import shipped
from loop.library.definitions import ParsedFile, Project, read_file
from loop.library.trust import HOSTS_FILE, read_sender
from loop.model.money import Rate, RateCard

RESOURCES_BY_FIELD = {"gpu": ("gpu",), "waiting": ("engineer", "ai"), "ai": ("ai",)}
"""Field that names a rate, to the resources which that rate may price."""
INHERITED_FIELDS = ("rates", "gpu")  # Required fields that a project's card may omit.


def rates(project: Project) -> RateCard:
    """The rate card of a project: its own rates and machines, and each shipped one that it lacks.
    Raises DefinitionError for an invalid price, an unknown rate, or one of another resource."""
    shipped_file = read_file(shipped("sessions/rates.yaml"), RateCard)
    file, card, path = shipped_file, shipped_file.value, project.target / "rates.yaml"
    if not project.bundled and path.is_file():
        document = load_yaml(path)
        if isinstance(document.data, dict):
            defaults = {name: shipped_file.document.data[name] for name in INHERITED_FIELDS}
            document = replace(document, data={**defaults, **document.data})
        file = ParsedFile(parse(RateCard, document), document, path)
        own_card, shipped_card = file.value, shipped_file.value
        own_names = {rate.name for rate in own_card.all_rates}
        all_rates = [*own_card.rates]
        all_rates += [rate for rate in shipped_card.rates if rate.name not in own_names]
        machines = [*own_card.machines]
        for machine in shipped_card.machines:
            if own_names.isdisjoint(rate.name for rate in machine.rates):
                machines.append(machine)
        card = own_card.model_copy(update={"rates": tuple(all_rates), "machines": tuple(machines)})
        has_own_rates = own_card.rates != shipped_card.rates  # Without, it got the shipped ones.
        has_engineer_rate = any(rate.resource == "engineer" for rate in own_card.rates)
        card = card.with_waiting_person(is_attended=has_own_rates and has_engineer_rate)
    for field, resources in RESOURCES_BY_FIELD.items():
        name = getattr(card, field)
        rate = card.find_rate(name)
        if name is not None and (rate is None or rate.resource not in resources):
            expected, hint = f"a rate of {' or '.join(resources)}", "`loop cost rates` lists them"
            got = f"{name!r}, {f'a rate of {rate.resource}' if rate else 'which is no rate'}"
            raise DefinitionError([complain(file.document, (field,), expected, got, hint)])
    sender = read_sender()
    if sender is None or sender.usd_per_hour is None:
        return card
    rate = Rate(
        name=f"host/{sender.name}",
        resource="gpu",
        usd_per_hour=sender.usd_per_hour,
        source=HOSTS_FILE,
        as_of=sender.as_of,
        whole=True,
    )
    return card.model_copy(update={"rates": (*card.rates, rate), "gpu": rate.name})
