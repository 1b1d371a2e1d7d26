"""`hosts.yaml`: machines to reach by ssh, their prices, and commands to start and stop them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from loop.base.documents import did_you_mean
from loop.base.documents.reading import quote
from loop.base.errors import UsageError
from loop.base.places import config_folder, explain_foreign_access
from loop.library.definitions import read_file
from loop.library.hosted import HOSTS_FILE
from loop.model.base import Model
from loop.model.money import HourPrices, Price
from loop.model.plan import Text

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
ADDRESS = re.compile(r"(?P<to>(?:[\w.][\w.-]*@)?(?:[\w.][\w.-]*|\[[0-9a-fA-F:.]+\]))(?::(?P<port>\d{1,5}))?")


def _validate_address(text: object) -> object:
    """The address, unless ssh may read it as an option or a shell as several words: then raises ValueError."""
    if isinstance(text, str) and not ADDRESS.fullmatch(text):
        raise ValueError(f"expected [user@]address[:port] or a name of ~/.ssh/config, got {quote(text)}")
    return text


class Host(Model):
    """One machine of `hosts.yaml`."""

    ssh: Annotated[str, BeforeValidator(_validate_address)]
    """`[user@]address[:port]`, or a name of `~/.ssh/config`."""
    python: Text = "python3"
    """Python interpreter on the machine. `loop` uses its packages and installs nothing into it."""
    gpus: tuple[Annotated[int, Field(ge=0, lt=64)], ...] | None = None
    """Indices of the GPUs that `loop` may use; all if left out."""
    usd_per_hour: Price | HourPrices | None = None
    """Price of an hour in dollars; `{on_demand: 0.7, spot: 0.28}` if the two differ."""
    start: Text | None = None
    """Command that starts the machine. It runs here when the machine does not answer."""
    stop: Text | None = None
    """Command that stops the machine. It runs here after the machine's last job."""

    @property
    def prices(self) -> HourPrices | None:
        """Price of an hour, on demand and as a spot machine; None if the file has none."""
        price = self.usd_per_hour
        return HourPrices(on_demand=price, spot=price) if isinstance(price, float | int) else price


class Hosts(Model):
    """The content of `hosts.yaml`."""

    format: Literal[1]
    """Format number of this file."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)]
    """The machines, by the name that `--on` takes."""


@dataclass(frozen=True)
class HostEntry:
    """A machine with its name and the file that lists it."""

    name: str
    host: Host
    path: Path

    @property
    def cost_text(self) -> str:
        """`$0.70 an hour`, by the higher of its prices; empty without a price."""
        prices = self.host.prices
        return f"${prices.usd_and_terms(None)[0]:.2f} an hour" if prices else ""

    @property
    def rsync_address(self) -> str:
        """The address as rsync takes it: brackets around an IPv6 address, no port."""
        return ADDRESS.sub(r"\g<to>", self.host.ssh)

    @property
    def ssh_address(self) -> str:
        """The address as ssh takes it: no brackets, no port."""
        return self.rsync_address.replace("[", "").replace("]", "")

    @property
    def port(self) -> str:
        """The port as text; empty if ssh's own configuration decides."""
        return ADDRESS.sub(lambda match: match["port"] or "", self.host.ssh)


def read_hosts(project: Path | None) -> dict[str, HostEntry]:
    """All machines by name, of the user's own `hosts.yaml` and the project's, whose entries win.
    `project`: folder of the target; None: the bundled one. Raises DefinitionError with file and
    line; UsageError if other users can change the user's own file, because it names commands."""
    own = config_folder() / HOSTS_FILE
    if own.is_file() and (why := explain_foreign_access(own)):
        raise UsageError(f"{own}: it names commands, and others can change it: {why}", f"chmod go-w {own}")
    entries = _read_hosts_file(own)
    return entries | _read_hosts_file(project / HOSTS_FILE) if project is not None else entries


def _read_hosts_file(path: Path) -> dict[str, HostEntry]:
    """The machines of one file by name; empty if the file does not exist."""
    named = read_file(path, Hosts).value.hosts if path.is_file() else {}
    return {name: HostEntry(name, host, path) for name, host in named.items()}


def describe_project_hosts(project: Path) -> Iterator[str]:
    """What a project's `hosts.yaml` would run or replace: lines to read before trusting it."""
    project_hosts = _read_hosts_file(project / HOSTS_FILE)
    users_hosts = read_hosts(None) if project_hosts else {}
    for name, listed in project_hosts.items():
        host, replaced = listed.host, ""
        if name in users_hosts:
            replaced = f", in place of your own {name} of {users_hosts[name].path}"
        yield f"host {name}: ssh {host.ssh}, and there {host.python}{replaced}"
        yield from (f"host {name}: {command}" for command in (host.start, host.stop) if command)


def choose_host(entries: Mapping[str, HostEntry], name: str) -> HostEntry:
    """The machine of this name. Raises UsageError if there is none."""
    if name in entries:
        return entries[name]
    if not entries:
        hint = f"write one: {config_folder() / HOSTS_FILE}"
        raise UsageError(f"no host {name!r}: there is no {HOSTS_FILE}", hint=hint)
    hint = did_you_mean(name, [*entries]) or f"known: {', '.join(entries)}"
    raise UsageError(f"no host {name!r}", hint=hint)
