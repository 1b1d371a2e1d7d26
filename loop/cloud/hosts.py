"""`hosts.yaml`: the machines that the user reaches by ssh, most of them rented."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from loop.base.documents import did_you_mean, quote
from loop.base.errors import UsageError
from loop.base.places import explain_foreign_access
from loop.library.definitions import read_file
from loop.library.trust import HOSTS_FILE
from loop.model.base import Model
from loop.model.money import Price
from loop.model.plan import Text

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
MACHINE = r"(?P<to>(?:[\w.][\w.-]*@)?(?:[\w.][\w.-]*|\[[0-9a-fA-F:.]+\]))"
ADDRESS = re.compile(MACHINE + r"(?::(?P<port>\d{1,5}))?")


def _validate_address(text: object) -> object:
    """The address. Raises ValueError if to ssh it may be an option, or to a shell several words."""
    if isinstance(text, str) and not ADDRESS.fullmatch(text):
        expected = "[user@]address[:port] or a name of ~/.ssh/config"
        raise ValueError(f"expected {expected}, got {quote(text)}")
    return text


class Host(Model):
    """One machine of the user's `hosts.yaml`."""

    name: str = ""
    """Its key in the file, which `--on` takes: `read_hosts` sets it."""
    ssh: Annotated[str, BeforeValidator(_validate_address)]
    """`[user@]address[:port]`, or a name of `~/.ssh/config`."""
    python: Text = "python3"
    """Python interpreter on the machine. `loop` uses its packages and installs nothing into it."""
    gpus: tuple[Annotated[int, Field(ge=0, lt=64)], ...] | None = None
    """Indices of the GPUs that `loop` may use; all if left out."""
    usd_per_hour: Price | None = None
    """Price of an hour in dollars, as the machine is rented: on demand, or as a spot machine."""
    start: Text | None = None
    """Command that starts the machine. It runs here when the machine does not answer."""
    stop: Text | None = None
    """Command that stops the machine. It runs here after the machine's last job."""

    @property
    def cost_text(self) -> str:
        """`$0.70 an hour`; empty without a price."""
        return f"${self.usd_per_hour:.2f} an hour" if self.usd_per_hour else ""

    @property
    def rsync_address(self) -> str:
        """The address as rsync takes it: brackets around an IPv6 address, no port."""
        return ADDRESS.sub(r"\g<to>", self.ssh)

    @property
    def ssh_address(self) -> str:
        """The address as ssh takes it: no brackets, no port."""
        return self.rsync_address.replace("[", "").replace("]", "")

    @property
    def port(self) -> str:
        """The port as text; empty if ssh's own configuration decides."""
        return ADDRESS.sub(lambda match: match["port"] or "", self.ssh)


class Hosts(Model):
    """The content of `hosts.yaml`."""

    format: Literal[1]
    """Format number of this file."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)]
    """The machines, by the name that `--on` takes."""


def hosts_path() -> Path:
    """The user's own `hosts.yaml`, in `loop` of XDG_CONFIG_HOME or ~/.config. It need not exist."""
    config_folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute()
    return config_folder / "loop" / HOSTS_FILE


def read_hosts() -> dict[str, Host]:
    """All machines of `hosts.yaml`, by name; empty without the file. Raises DefinitionError with
    file and line; UsageError if other users can change the file, because it names commands."""
    path = hosts_path()
    if not path.is_file():
        return {}
    if why := explain_foreign_access(path):
        message = f"{path}: it names commands, and others can change it: {why}"
        raise UsageError(message, f"chmod go-w {path}")
    hosts = read_file(path, Hosts).value.hosts
    return {name: host.model_copy(update={"name": name}) for name, host in hosts.items()}


def find_host(name: str) -> Host:
    """The machine of this name. Raises UsageError if there is none, and as `read_hosts`."""
    entries = read_hosts()
    if not entries:
        message = f"no host {name!r}: there is no {HOSTS_FILE}"
        raise UsageError(message, hint=f"write one: {hosts_path()}")
    if name not in entries:
        hint = did_you_mean(name, [*entries]) or f"known: {', '.join(entries)}"
        raise UsageError(f"no host {name!r}", hint=hint)
    return entries[name]
