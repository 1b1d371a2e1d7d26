"""`hosts.yaml`: machines that are reached by ssh, what they cost, and what starts and stops them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from loop.base.documents import did_you_mean
from loop.base.documents.complaints import quote
from loop.base.errors import UsageError
from loop.base.places import config_folder, who_else_may_write
from loop.library.definitions import read_file
from loop.library.hosted import FILE
from loop.model.base import Model
from loop.model.money import HourPrices, Price
from loop.model.plan import Text

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
ADDRESS = re.compile(r"(?P<to>(?:[\w.][\w.-]*@)?(?:[\w.][\w.-]*|\[[0-9a-fA-F:.]+\]))(?::(?P<port>\d{1,5}))?")


def _address(text: object) -> object:
    """An address that ssh cannot take for an option, nor a shell for words."""
    if isinstance(text, str) and not ADDRESS.fullmatch(text):
        raise ValueError(f"expected [user@]address[:port] or a name of ~/.ssh/config, got {quote(text)}")
    return text


class Host(Model):
    """One machine."""

    ssh: Annotated[str, BeforeValidator(_address)]
    """`[user@]address[:port]`, or a name of `~/.ssh/config`."""
    python: Text = "python3"
    """Interpreter whose packages `loop` sees there; it installs nothing into it."""
    gpus: tuple[Annotated[int, Field(ge=0, lt=64)], ...] | None = None
    """Numbers of the GPUs that `loop` may use; all where none is named."""
    usd_per_hour: Price | HourPrices | None = None
    """What an hour costs; `{on_demand: 0.7, spot: 0.28}` where that differs."""
    start: Text | None = None
    """Command that starts the machine, run here when nobody answers there."""
    stop: Text | None = None
    """Command that stops the machine, run here after its last job."""
    labels: tuple[Name, ...] = ()
    """Words that `--on` takes as well as the name."""

    @property
    def prices(self) -> HourPrices | None:
        """What an hour costs, on demand and as a spot machine."""
        price = self.usd_per_hour
        return HourPrices(on_demand=price, spot=price) if isinstance(price, float | int) else price


class Hosts(Model):
    """The file."""

    format: Literal[1]
    """Format number of this file."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)]
    """The machines, by the name that `--on` takes."""


@dataclass(frozen=True)
class Listed:
    """A machine with the file that names it."""

    name: str
    host: Host
    path: Path

    @property
    def before_colon(self) -> str:
        """The address for rsync, which wants brackets around one that has colons."""
        return ADDRESS.sub(r"\g<to>", self.host.ssh)

    @property
    def address(self) -> str:
        """What ssh is called with."""
        return self.before_colon.replace("[", "").replace("]", "")

    @property
    def port(self) -> str:
        """The port; empty where it is that of ssh's own configuration."""
        return ADDRESS.sub(lambda match: match["port"] or "", self.host.ssh)


def hosts(project: Path | None) -> dict[str, Listed]:
    """All machines by name: of the user's own file, then of the project's, whose entries replace those before.

    `project`: folder of a target that is no bundled one. Raises DefinitionError with file, line and column, and
    UsageError where others could change the user's file.
    """
    own = config_folder() / FILE
    if own.is_file() and (why := who_else_may_write(own)):
        raise UsageError(f"{own}: it names commands, and others can change it: {why}", f"chmod go-w {own}")
    return {**_listed(own), **(_listed(project / FILE) if project is not None else {})}


def _listed(path: Path) -> dict[str, Listed]:
    """The machines of one file by name; none where it is not there."""
    named = read_file(path, Hosts).value.hosts if path.is_file() else {}
    return {name: Listed(name, host, path) for name, host in named.items()}


def lines_of_project_hosts(project: Path) -> Iterator[str]:
    """What a project's own file has run, and which machines of the user's it replaces, a line each."""
    replacing = _listed(project / FILE)
    users = hosts(None) if replacing else {}
    for name, listed in replacing.items():
        host = listed.host
        instead = f", in place of your own {name} of {users[name].path}" if name in users else ""
        yield f"host {name}: ssh {host.ssh}, and there {host.python}{instead}"
        yield from (f"host {name}: {command}" for command in (host.start, host.stop) if command is not None)


def choose(listed: Mapping[str, Listed], word: str) -> list[Listed]:
    """The machine of that name, else all with that label. Raises UsageError with the nearest name."""
    chosen = [listed[word]] if word in listed else [host for host in listed.values() if word in host.host.labels]
    if chosen:
        return chosen
    if not listed:
        raise UsageError(f"no host {word!r}: there is no {FILE}", hint=f"write one: {config_folder() / FILE}")
    known = [*listed, *(label for host in listed.values() for label in host.host.labels)]
    raise UsageError(f"no host {word!r}", hint=did_you_mean(word, known) or f"known: {', '.join(listed)}")
