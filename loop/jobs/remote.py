"""A machine reached by ssh: its entry in `hosts.yaml`, a connection to it, and the installation of `loop`.

One OpenSSH master carries everything and ends with this process. After a lost connection the next
call reconnects. The machine is not trusted: its output is bounded, callers check all names.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints

from loop.base.documents import did_you_mean
from loop.base.documents.reading import quote
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed
from loop.base.locks import locked_temporary_folder
from loop.base.own_process import die_with_parent
from loop.base.places import PACKAGE, config_folder, explain_foreign_access, shipped
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


OPTIONS = (
    "BatchMode=yes",  # No prompts: no person may be present.
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ForwardAgent=no",  # Keep the user's keys and screen from the machine.
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlPersist=no",  # These two override user settings that would end the master.
    "RemoteCommand=none",
)
T = TypeVar("T")
SSH_VARIABLE = "LOOP_SSH"  # Environment variable with a program and options to use instead of `ssh`.
BEGIN_MARKER, END_MARKER = b"loop-begins-here\n", b"loop-ends-here\n"
"""Markers around a script's output: login shells print before BEGIN; without END it was cut."""
ANSWER_LIMIT_S = 30.0  # Time limit in seconds for a short script.
COPY_LIMIT_S = 3600.0  # Time limit in seconds for a copy or an installation.
MAX_ANSWER_BYTES = 1 << 20  # Most bytes of an answer that are read.
BACK_OFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds to wait between attempts to connect; the last value repeats."""
CONNECTION_EXIT_CODES = (10, 12, 30, 35, 255)  # Exit codes of rsync for a lost or timed-out connection.
DISK_FULL_TEXT = "No space left on device"
REMEDY_BY_ERROR = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "its host key has changed: somebody may pose as it",
        "if you made it anew: {ssh} true names the call of ssh-keygen that forgets the old one",
    ),
    "Host key verification failed": (
        "its host key is not known here",
        "look at its key and accept it: {ssh} true",
    ),
    "Permission denied": (
        "it takes none of your keys, and loop answers no prompt for a password",
        "ssh-copy-id {address}; or ssh-add the key that it knows",
    ),
    "Could not resolve hostname": ("no such address", "mend `ssh:` of {name} in {path}"),
    "Bad configuration option": ("ssh refuses its configuration", "{ssh} true"),
}
"""Text that ssh prints, to its meaning and the user's remedy. Other errors are worth a retry."""


class Unreachable(MachineFailure):
    """The machine does not answer, or no longer; a retry may help."""


class Connection:
    """An ssh connection to a machine, which the first call opens. As a context manager it ends its ssh process."""

    def __init__(self, entry: HostEntry) -> None:
        self.entry = entry
        self.name = entry.name
        self._master: subprocess.Popen[bytes] | None = None
        self._temporary_folders = contextlib.ExitStack()
        # In /tmp, because the path of a socket may have 108 bytes.
        folder = locked_temporary_folder(Path("/tmp"), f"loop-{os.geteuid()}-ssh-")
        self._socket = self._temporary_folders.enter_context(folder) / "s"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection, and delete the local folder that holds its socket."""
        self.disconnect()
        self._temporary_folders.close()

    @property
    def ssh_command(self) -> str:
        """The command with which a person reaches this machine, such as `ssh -p 2222 me@there`."""
        port = ["-p", self.entry.port] if self.entry.port else []
        return shlex.join(["ssh", *port, self.entry.ssh_address])

    @property
    def _ssh(self) -> list[str]:
        """Command line of ssh for this machine, without the address."""
        options = [word for option in OPTIONS for word in ("-o", option)]
        options += ["-p", self.entry.port] if self.entry.port else []
        program = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
        return [*program, "-T", *options, "-S", str(self._socket)]

    def connect(self) -> None:
        """Start the ssh master unless it runs. Raises Unreachable, or UsageError with a remedy."""
        if self._master is not None and self._master.poll() is None and self._socket.exists():
            return
        self.disconnect()
        with tempfile.TemporaryFile() as errors:
            self._master = _start_child([*self._ssh, "-M", "-N", self.entry.ssh_address], stderr=errors)
            end = time.monotonic() + ANSWER_LIMIT_S
            while self._master.poll() is None and time.monotonic() < end:
                if self._socket.exists():
                    return
                time.sleep(0.005)
            self.disconnect()
            errors.seek(0)
            raise self._make_error(errors.read(MAX_ANSWER_BYTES), is_cut=True)

    def disconnect(self) -> None:
        """Kill the ssh master; every transfer through it fails."""
        if self._master is not None:
            self._master.kill()
            self._master.wait()
            self._master = None
        self._socket.unlink(missing_ok=True)

    def run_script(self, script: str, *, limit_s: float = ANSWER_LIMIT_S) -> bytes:
        """Run a script with `sh` on the machine. Returns its output, at most 1 MiB. Raises
        Unreachable; UsageError for what a person has to fix; WorkFailed if the script fails."""
        # Without the first marker the script never began; without the last the answer was cut off.
        stdin = b"echo " + BEGIN_MARKER + script.encode() + b"\necho " + END_MARKER
        command = [*self._ssh, self.entry.ssh_address, "exec sh -s"]
        code, out, errors = self._run_program(command, limit_s, stdin)
        _, marker, answer = out.partition(BEGIN_MARKER)
        if not marker or code == 255:  # ssh's own exit code for a lost connection.
            raise self._make_error(errors, is_cut=True)
        if code:
            raise self._make_error(errors, is_cut=False)
        if not answer.endswith(END_MARKER) and len(answer) < MAX_ANSWER_BYTES:
            raise self._make_error(b"", is_cut=True)
        return answer.removesuffix(END_MARKER)[:MAX_ANSWER_BYTES]

    def send(self, root: Path, names: Iterable[str], remote_folder: str, *, link_folder: str = "") -> None:
        """Copy files `names` of `root` to an existing folder below the home there. Raises as `_rsync`.
        `link_folder`: relative to `remote_folder`; files that are the same there are hard-linked and not sent."""
        # `./`: rsync skips names that begin with # or ; as comments.
        stdin = "".join(f"./{name}\0" for name in names).encode(errors="surrogateescape")
        options = ["--files-from=-", "--from0"]
        options += [f"--link-dest={link_folder}"] if link_folder else []
        destination = f"{self.entry.rsync_address}:{remote_folder}/"
        self._rsync([*options, f"{root}/", destination], stdin)

    def fetch(
        self, source: str, folder: Path, *, max_bytes: int, included: Sequence[str], excluded: Sequence[str] = ()
    ) -> None:
        """Copy files or folders `included`, without `excluded`, from the folder `source` there to `folder`. Skips
        links, devices and files over `max_bytes`, because the machine is not trusted. Raises as `_rsync`."""
        options = ["--no-links", "--no-devices", "--no-specials"]
        options += ["--chmod=D700,F600", f"--max-size={max_bytes}"]
        options += [f"--exclude=/{name}" for name in excluded]
        for name in included:
            options += [f"--include=/{name}", f"--include=/{name}/**"]
        self._rsync([*options, "--exclude=*", f"{self.entry.rsync_address}:{source}/", f"{folder}/"], b"")

    def _rsync(self, arguments: Sequence[str], stdin: bytes) -> None:
        """Run rsync with these arguments. Raises the error of `_make_error` if it fails."""
        options = ["-a", "--timeout=60", "--no-owner", "--no-group", "--partial"]
        command = ["rsync", *options, "-e", shlex.join(self._ssh), *arguments]
        code, _, errors = self._run_program(command, COPY_LIMIT_S, stdin)
        if code:
            raise self._make_error(errors, is_cut=code in CONNECTION_EXIT_CODES)

    def _run_program(self, command: Sequence[str], limit_s: float, stdin: bytes) -> tuple[int, bytes, bytes]:
        """Run a local program that talks to the machine. Returns exit code, stdout and stderr. Raises Unreachable
        after `limit_s`. Files take the output, because a pipe stays open while any grandchild lives."""
        self.connect()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            child = _start_child(command, stdin=subprocess.PIPE, stdout=out, stderr=errors)
            try:
                child.communicate(stdin, timeout=limit_s)
            except subprocess.TimeoutExpired:
                self.disconnect()  # A stalled connection counts as lost.
                raise Unreachable(f"{self.name} does not answer", self._check_hint) from None
            finally:
                child.kill()
                child.wait()
            out.seek(0)
            errors.seek(0)
            return child.returncode, out.read(2 * MAX_ANSWER_BYTES), errors.read(MAX_ANSWER_BYTES)

    def _make_error(self, stderr: bytes, *, is_cut: bool) -> LoopError:
        """The error to raise for what ssh or rsync printed: MachineFailure for a full disk there. `is_cut`: the
        connection failed: then UsageError if a retry cannot help (`REMEDY_BY_ERROR`), else Unreachable. Without
        it, WorkFailed: a script or a copy failed there."""
        text = stderr.decode(errors="replace")
        if DISK_FULL_TEXT in text:
            return self.disk_full_error()
        lines = [line.strip() for line in text.splitlines() if not line.startswith("rsync error:")]
        last = next((line[:300] for line in reversed(lines) if line), "")
        if not is_cut:
            return WorkFailed(f"{self.name}: {last or 'a script failed there'}", self._check_hint)
        message = f"{self.name} cannot be reached"
        for error_text, (why, remedy) in REMEDY_BY_ERROR.items():
            if error_text in text:
                hint = remedy.format(
                    ssh=self.ssh_command,
                    address=self.ssh_command.removeprefix("ssh "),
                    name=self.name,
                    path=self.entry.path,
                )
                return UsageError(f"{message}: {why}", hint)
        return Unreachable(f"{message}: {last or 'the connection was cut'}", self._check_hint)

    @property
    def _check_hint(self) -> str:
        """Advice for the user: how to see whether the machine answers."""
        return f"look whether it runs: {self.ssh_command} true"

    def disk_full_error(self) -> MachineFailure:
        """The error to raise if the machine's disk is full."""
        hint = f"free some space there: {self.ssh_command} 'du -sh .loop/*'"
        return MachineFailure(f"the disk of {self.name} is full", hint)


def _start_child(command: Sequence[str], **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a child without a terminal (no Ctrl-C, no prompts) that dies with this process. `pipes`: for Popen.
    Raises UsageError if the program is not installed."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **pipes}
    env = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=die_with_parent, **pipes)
    except FileNotFoundError as error:
        hint = f"install it: apt-get install {'rsync' if command[0] == 'rsync' else 'openssh-client'}"
        raise UsageError(f"{command[0]} is not installed", hint) from error


def retry_unreachable(
    call: Callable[[], T], seconds: float = 60.0, report: Callable[[str], None] = lambda why: None
) -> T:
    """Repeat `call` for `seconds` while it raises Unreachable; then raise it. `report` gets each reason."""
    end, waits_s = time.monotonic() + seconds, list(BACK_OFF_S)
    while True:
        try:
            return call()
        except Unreachable as error:
            if time.monotonic() + waits_s[0] > end:
                raise
            report(error.message)
        time.sleep(waits_s[0])
        waits_s = waits_s[1:] or waits_s  # The last value repeats.


def fill_script(script: str, **values: str) -> str:
    """Replace each `@NAME@` in a script by its value. Values are not searched for further names."""
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], script)


LOOP_FOLDER = ".loop"  # Folder below the user's home there that holds everything of `loop`.
PYTHON = f"{LOOP_FOLDER}/venv/bin/python"
DIGEST = f"{LOOP_FOLDER}/venv/loop-digest"
MADE_BY = f"{LOOP_FOLDER}/venv/made-by"  # File that names the interpreter for which the environment was made.
DATA_PATHS = ("patterns", "kernels", "templates", "sessions/plans", "sessions/history", "sessions/rates.yaml")
"""Data folders and files that are shipped next to the package."""
OLDEST_PYTHON = (3, 11)
NEEDED_GB_BY_TORCH = {True: 1.0, False: 12.0}
"""Free disk space that an installation needs, in GB, by whether torch is already there."""
FACTS_SCRIPT = """
say() { printf '%s=%s\\n' "$1" "$(printf %s "$2" | head -n 1 | head -c 200)"; }
say free_kb "$(df -Pk "$HOME" | awk 'NR == 2 {print $4}')"
say python "$(@PYTHON@ -c 'import platform; print(platform.python_version())' 2>/dev/null)"
say venv "$(@PYTHON@ -c 'import ensurepip, venv; print("yes")' 2>/dev/null)"
torch() { "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null; }
say torch "$(torch @PYTHON@ || { [ "$(cat @MADEBY@ 2>/dev/null)" = @PYTHON@ ] && torch @OURS@; })"
say gcc "$(g++ --version 2>/dev/null)"
say nvcc "$( (nvcc --version || /usr/local/cuda/bin/nvcc --version) 2>/dev/null | tail -n 1)"
say gpus "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ';')"
say driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)"
say rsync "$(rsync --version 2>/dev/null)"
say setsid "$(command -v setsid)"
"""


def list_package_files() -> dict[str, Path]:
    """All files of `loop` and its data, by path relative to the package's parent folder."""
    paths: list[Path] = []
    for root in (PACKAGE, *(shipped(name) for name in DATA_PATHS)):
        paths += [root] if root.is_file() else root.rglob("*")
    files = [path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(PACKAGE.parent).as_posix(): path for path in files}


def hash_package(files: Mapping[str, Path]) -> str:
    """Hash of the package; two machines with equal hashes run the same `loop`. `files`: see `list_package_files`.
    Of `kernels` only the headers count, because a checkout is sent with each command. An installation has its
    data in `loop/_data`, a checkout beside `loop`: both hash alike."""
    digest = hashlib.sha256()
    path_by_name = {name.removeprefix("loop/_data/"): path for name, path in files.items()}
    for name, path in sorted(path_by_name.items()):
        if name.startswith("kernels/include/") or not name.startswith("kernels/"):
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def ask_facts(connection: Connection) -> dict[str, str]:
    """Facts on the machine's tools, by the names that `FACTS_SCRIPT` says; a missing tool's is
    empty. Raises as `Connection.run_script`."""
    script = fill_script(FACTS_SCRIPT, OURS=PYTHON, MADEBY=MADE_BY, PYTHON=_quote_python(connection))
    lines = connection.run_script(script, limit_s=120).decode(errors="replace").splitlines()
    facts = dict.fromkeys(re.findall(r"^say (\w+)", FACTS_SCRIPT, re.MULTILINE), "")
    for line in lines:
        name, equals, value = line.partition("=")
        if equals:
            facts[name] = value
    return facts


def _quote_python(connection: Connection) -> str:
    """The interpreter of `hosts.yaml`, quoted for a shell; `~` means the home there."""
    path = connection.entry.host.python
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def refuse_unfit_machine(connection: Connection, facts: Mapping[str, str]) -> None:
    """Raise UsageError for the first missing requirement without which `loop` cannot run there."""
    python, version, setting = connection.entry.host.python, facts["python"], f"python: in {connection.entry.path}"
    version_numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    free_gb, needed_gb = int(facts["free_kb"] or 0) / 1e6, NEEDED_GB_BY_TORCH[bool(facts["torch"])]
    install = f"{connection.ssh_command} 'sudo apt-get install -y {{}}'"
    show_sizes = f"{connection.ssh_command} 'du -xh --max-depth=1 | sort -h'"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    too_old = f"has Python {version} as `{python}`; loop needs {oldest} or newer"
    too_full = f"has {free_gb:.1f} GB free in its home; an installation needs {needed_gb:g}"
    for is_missing, why, hint in (
        (not version_numbers, f"has no `{python}`", f"name its interpreter: {setting}"),
        (version_numbers < OLDEST_PYTHON, too_old, f"name a newer one: {setting}"),
        (not facts["rsync"], "has no rsync", install.format("rsync")),
        (not facts["setsid"], "has no setsid", install.format("util-linux")),
        (not facts["venv"], f"has a `{python}` that makes no environments", install.format("python3-venv")),
        (free_gb < needed_gb, too_full, f"free some: {show_sizes}"),
    ):
        if is_missing:
            raise UsageError(f"{connection.name} {why}", hint=hint)


def list_missing_tools(connection: Connection, facts: Mapping[str, str]) -> Iterator[str]:
    """A line for each optional tool that is missing there: what does not work without it, and the fix."""
    if not facts["gcc"]:
        apt = f"{connection.ssh_command} 'sudo apt-get install -y g++'"
        yield f"no compiler: kernels in C and C++ cannot be built; {apt}"
    if facts["gpus"] and not facts["nvcc"]:
        yield "no nvcc: CUDA kernels cannot be built; install the CUDA toolkit there"
    if connection.entry.host.gpus is not None and not facts["gpus"]:
        yield "no NVIDIA driver answers: nvidia-smi names no GPU; install the driver there"
    if not facts["torch"]:
        yield f"no torch for `{connection.entry.host.python}`: it is downloaded into loop's own environment"


INSTALL_SCRIPT = """
set -e
cd @HOME@
fail() { tail -n 3 pip.log >&2; exit 1; }
[ -x venv/bin/python ] && [ "$(cat venv/made-by 2>/dev/null)" = @PYTHON@ ] || {
  rm -rf venv
  @PYTHON@ -m venv venv >pip.log 2>&1 || fail
  @PYTHON@ - <<'END' >venv/base.pth
import site, sysconfig
own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
for folder in dict.fromkeys([*site.getsitepackages(), *own]):
    print(f"import site; site.addsitedir({folder!r})")
END
  printf %s @PYTHON@ >venv/made-by
}
rm -f venv/loop-digest
rm -rf package && mv package.new package
site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\\n' "$PWD/package" >"$site/0-loop.pth"
[ ! -e venv/base.pth ] || mv venv/base.pth "$site/loop-base.pth"
venv/bin/python -m pip --disable-pip-version-check --no-input install @INDEX@ @NEEDS@ >pip.log 2>&1 || fail
venv/bin/python -c 'import loop.cli'
printf %s @DIGEST@ >venv/loop-digest
rm -f pip.log
"""


def install(connection: Connection, facts: Mapping[str, str]) -> None:
    """Install this `loop` there, in its own virtual environment. Raises as `run_script`."""
    try:
        requirements = importlib.metadata.requires("kernel-loop") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError("this loop was never installed: nobody says what it needs", "pip install -e .") from error
    files, folders = list_package_files(), "jobs trees package package.new"
    make = f"mkdir -m 700 {LOOP_FOLDER} && cd {LOOP_FOLDER}"
    connection.run_script(f"cd {LOOP_FOLDER} 2>/dev/null || {make} && mkdir -p {folders}")
    connection.send(PACKAGE.parent, files, f"{LOOP_FOLDER}/package.new", link_folder="../package")
    index = ""
    if not facts["gpus"] and not facts["torch"]:  # Without a GPU, pip's torch would be too large.
        index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    needs = [requirement for requirement in requirements if "extra ==" not in requirement]
    script = fill_script(
        INSTALL_SCRIPT,
        HOME=LOOP_FOLDER,
        INDEX=index,
        NEEDS=shlex.join(needs),
        DIGEST=hash_package(files),
        PYTHON=_quote_python(connection),
    )
    try:
        connection.run_script(script, limit_s=COPY_LIMIT_S)
    except WorkFailed as error:
        hint = f"mend that, then: loop hosts setup {connection.name}"
        raise WorkFailed(f"loop cannot be installed: {error.message}", hint=hint) from error
