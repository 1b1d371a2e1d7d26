"""`loop hosts`: the machines of `hosts.yaml`, and what they need to run a session."""

from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import UsageError, WorkFailed
from loop.base.places import config_folder, project
from loop.base.screen import Screen
from loop.cli.following import still_costs, stop_machine
from loop.cli.on_host import own, reached
from loop.jobs import hosts as known
from loop.jobs import sent as noted
from loop.jobs import setup
from loop.jobs.hosts import Listed
from loop.library.hosted import FILE
from loop.library.trust import is_trusted, refusal
from loop.model.base import Model, Printed
from loop.model.money import HourPrices
from loop.report import format as say


class OneHost(Model):
    """A machine that `--on` takes."""

    name: str
    """Its name."""
    ssh: str
    """Its address."""
    labels: tuple[str, ...]
    """What it is called besides."""
    usd_per_hour: HourPrices | None
    """What an hour of it costs."""
    file: str
    """The file that names it."""
    jobs: tuple[str, ...]
    """Jobs that were sent there and have not been brought back."""
    lacks: tuple[str, ...] = ()
    """What is missing there, with what mends it, as far as somebody has just looked."""


class HostList(Printed):
    """All machines."""

    hosts: tuple[OneHost, ...]
    """By name."""


def list_hosts(target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """The machines, a row each. Nothing is connected to."""
    rows = tuple(_row(listed) for listed in known.hosts(own(project(target, Path.cwd()))).values())
    if as_json:
        screen.data(to_json(HostList(hosts=rows)))
    elif not rows:
        screen.say(f"no hosts; write {config_folder() / FILE}: format: 1, hosts: {{gpu: {{ssh: me@ADDRESS}}}}")
    else:
        cells = [
            (row.name, row.ssh, _price(row.usd_per_hour), ", ".join(row.jobs) or "-", row.file) for row in rows
        ]
        screen.table(("host", "ssh", "an hour", "jobs there", "file"), cells)


def _row(listed: Listed, lacks: tuple[str, ...] = ()) -> OneHost:
    return OneHost(
        name=listed.name,
        ssh=listed.host.ssh,
        labels=listed.host.labels,
        usd_per_hour=listed.host.prices,
        file=str(listed.path),
        jobs=tuple(folder.id for folder, _ in noted.away(listed.name)),
        lacks=lacks,
    )


def _price(prices: HourPrices | None) -> str:
    if prices is None:
        return "?"
    named = {"on demand": prices.on_demand, "spot": prices.spot}
    if prices.on_demand == prices.spot:
        return say.usd(prices.at(None)[0])
    return ", ".join(f"{say.usd(usd)} {name}" for name, usd in named.items() if usd is not None)


def set_up(host: str, target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """Install this `loop` on the machines of a name or label, and name what they lack."""
    here = project(target, Path.cwd())
    hosts = known.choose(known.hosts(own(here)), host)
    if any(listed.path.parent == here.target for listed in hosts) and not is_trusted(here):
        raise refusal(here)
    ready = tuple(_row(listed, _set_up(listed, screen)) for listed in hosts)
    if as_json:
        screen.data(to_json(HostList(hosts=ready)))


def stop(host: str, target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """Run `stop:` of the machines of a name or label. Raises WorkFailed where one goes on running."""
    here = project(target, Path.cwd())
    hosts = known.choose(known.hosts(own(here)), host)
    for listed in hosts:
        if listed.host.stop is None:
            raise WorkFailed(still_costs(listed, f"{listed.path} has no `stop:` for it"), "stop it yourself")
        stop_machine(listed, str(here.target), screen)
    if as_json:
        screen.data(to_json(HostList(hosts=tuple(map(_row, hosts)))))


def _set_up(host: Listed, screen: Screen) -> tuple[str, ...]:
    """What it lacks, once `loop` is there."""
    with reached(host, screen) as there:
        facts = setup.ask(there.connection)
        setup.refuse_unfit(there.connection, facts)
        if running := there.running():
            hint = f"wait for it, or end it: loop jobs follow {running[0]} --cancel"
            raise UsageError(f"{host.name}: job {running[0]} runs with the loop that is there", hint)
        lacks = tuple(setup.lacks(there.connection, facts))
        for line in lacks:
            screen.say(f"{host.name}: {line}")
        wait = "" if facts["torch"] else "; torch takes minutes"
        screen.say(f"{host.name}: installing loop into ~/{setup.HOME}/venv, over Python {facts['python']}{wait}")
        setup.install(there.connection, facts)
        torch = f"torch {facts['torch']}" if facts["torch"] else "torch of its own"
        gpus = f"{facts['gpus']}, driver {facts['driver']}" if facts["gpus"] else "no GPU"
        screen.say(f"{host.name}: ready, with {torch} and {gpus}")
        screen.say(f"  next: loop run session --on {host.name}")
    return lacks
