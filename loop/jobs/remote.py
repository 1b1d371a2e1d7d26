"""A machine reached by ssh: run scripts there, send files, fetch files.

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
from pathlib import Path
from typing import Any, Self, TypeVar

from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed
from loop.base.locks import locked_temporary_folder
from loop.base.own_process import die_with_parent
from loop.base.places import PACKAGE, shipped
from loop.jobs.hosts import ListedHost

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
SSH = "LOOP_SSH"
"""Environment variable with a program and options to use instead of `ssh`."""
BEGIN, END = b"loop-begins-here\n", b"loop-ends-here\n"
"""Markers around a script's output: login shells print before BEGIN; without END it was cut."""
ANSWER_S = 30.0
"""Time limit in seconds for a short script."""
COPY_S = 3600.0
"""Time limit in seconds for a copy or an installation."""
ANSWER_CAP = 1 << 20
"""Most bytes of an answer that are read."""
BACK_OFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds to wait between attempts to connect; the last value repeats."""
RSYNC_CUT = (10, 12, 30, 35, 255)
"""Exit codes of rsync for a lost or timed-out connection."""
FULL = "No space left on device"
REFUSED = {
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
    """An ssh connection to a machine. As a context manager it ends its ssh process at exit."""

    def __init__(self, listed: ListedHost) -> None:
        self.listed = listed
        self.name = listed.name
        self._master: subprocess.Popen[bytes] | None = None
        self._temporary_folders = contextlib.ExitStack()
        # In /tmp, because the path of a socket may have 108 bytes.
        folder = locked_temporary_folder(Path("/tmp"), f"loop-{os.geteuid()}-ssh-")
        self._socket = self._temporary_folders.enter_context(folder) / "s"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self._temporary_folders.close()

    @property
    def ssh_command(self) -> str:
        """The command with which a person reaches this machine, such as `ssh -p 2222 me@there`."""
        port = ["-p", self.listed.port] if self.listed.port else []
        return shlex.join(["ssh", *port, self.listed.ssh_address])

    @property
    def _ssh(self) -> list[str]:
        """Command line of ssh for this machine, without the address."""
        options = [word for option in OPTIONS for word in ("-o", option)]
        options += ["-p", self.listed.port] if self.listed.port else []
        program = shlex.split(os.environ.get(SSH) or "ssh")
        return [*program, "-T", *options, "-S", str(self._socket)]

    def connect(self) -> None:
        """Start the ssh master unless it runs. Raises Unreachable, or UsageError with a remedy."""
        if self._master is not None and self._master.poll() is None and self._socket.exists():
            return
        self.hang_up()
        with tempfile.TemporaryFile() as errors:
            self._master = _start_child([*self._ssh, "-M", "-N", self.listed.ssh_address], stderr=errors)
            end = time.monotonic() + ANSWER_S
            while self._master.poll() is None and time.monotonic() < end:
                if self._socket.exists():
                    return
                time.sleep(0.005)
            self.hang_up()
            errors.seek(0)
            raise self._make_error(errors.read(ANSWER_CAP), is_cut=True)

    def hang_up(self) -> None:
        """Kill the ssh master; every transfer through it fails."""
        if self._master is not None:
            self._master.kill()
            self._master.wait()
            self._master = None
        self._socket.unlink(missing_ok=True)

    def run_script(self, script: str, *, limit_s: float = ANSWER_S) -> bytes:
        """Run a script with `sh` on the machine. Returns its output, at most 1 MiB. Raises Unreachable; UsageError
        for what a person has to fix; WorkFailed if the script fails."""
        # Without BEGIN the script never began; without END the answer was cut off.
        stdin = b"echo " + BEGIN + script.encode() + b"\necho " + END
        code, out, errors = self._run_program([*self._ssh, self.listed.ssh_address, "exec sh -s"], limit_s, stdin)
        _, begun, answer = out.partition(BEGIN)
        if not begun or code == 255:  # ssh's own exit code for a lost connection.
            raise self._make_error(errors, is_cut=True)
        if code:
            raise self._make_error(errors, is_cut=False)
        if not answer.endswith(END) and len(answer) < ANSWER_CAP:
            raise self._make_error(b"", is_cut=True)
        return answer.removesuffix(END)[:ANSWER_CAP]

    def send(self, root: Path, names: Iterable[str], place: str, *, beside: str = "") -> None:
        """Copy files `names` of `root` to `place`, a folder that exists below the home there. Raises as `_rsync`.
        `beside`: a folder relative to `place`; its identical files are hard-linked and not sent."""
        # `./`: rsync skips names that begin with # or ; as comments.
        listed = "".join(f"./{name}\0" for name in names).encode(errors="surrogateescape")
        options = ["--files-from=-", "--from0", *([f"--link-dest={beside}"] if beside else [])]
        self._rsync([*options, f"{root}/", f"{self.listed.rsync_address}:{place}/"], listed)

    def fetch(
        self, place: str, into: Path, *, most_bytes: int, only: Sequence[str], without: Sequence[str] = ()
    ) -> None:
        """Copy files in `only`, except `without`, from `place` there to `into`. Raises as `_rsync`. Skips
        links, devices, and files over `most_bytes`, because the machine is not trusted."""
        options = ["--no-links", "--no-devices", "--no-specials"]
        options += ["--chmod=D700,F600", f"--max-size={most_bytes}"]
        options += [f"--exclude=/{name}" for name in without]
        for name in only:
            options += [f"--include=/{name}", f"--include=/{name}/**"]
        self._rsync([*options, "--exclude=*", f"{self.listed.rsync_address}:{place}/", f"{into}/"], b"")

    def _rsync(self, arguments: Sequence[str], stdin: bytes) -> None:
        """Run rsync with these arguments. Raises the error of `_make_error` if it fails."""
        options = ["-a", "--timeout=60", "--no-owner", "--no-group", "--partial"]
        command = ["rsync", *options, "-e", shlex.join(self._ssh), *arguments]
        code, _, errors = self._run_program(command, COPY_S, stdin)
        if code:
            raise self._make_error(errors, is_cut=code in RSYNC_CUT)

    def _run_program(self, command: Sequence[str], limit_s: float, stdin: bytes) -> tuple[int, bytes, bytes]:
        """Run a local program that talks to the machine. Returns exit code, stdout and stderr. Raises Unreachable
        after `limit_s`. Files take the output, because a pipe stays open while any grandchild lives."""
        self.connect()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            child = _start_child(command, stdin=subprocess.PIPE, stdout=out, stderr=errors)
            try:
                child.communicate(stdin, timeout=limit_s)
            except subprocess.TimeoutExpired:
                self.hang_up()  # A stalled connection counts as lost.
                raise Unreachable(f"{self.name} does not answer", self._check_hint) from None
            finally:
                child.kill()
                child.wait()
            out.seek(0)
            errors.seek(0)
            return child.returncode, out.read(2 * ANSWER_CAP), errors.read(ANSWER_CAP)

    def _make_error(self, stderr: bytes, *, is_cut: bool) -> LoopError:
        """The error to raise for what ssh or rsync printed. `is_cut`: the connection failed."""
        text = stderr.decode(errors="replace")
        if FULL in text:
            return self.disk_full_error()
        lines = [line.strip() for line in text.splitlines() if not line.startswith("rsync error:")]
        last = next((line[:300] for line in reversed(lines) if line), "")
        if not is_cut:
            return WorkFailed(f"{self.name}: {last or 'a script failed there'}", self._check_hint)
        for pattern, (why, remedy) in REFUSED.items():
            if pattern in text:
                hint = remedy.format(
                    ssh=self.ssh_command,
                    address=self.ssh_command.removeprefix("ssh "),
                    name=self.name,
                    path=self.listed.path,
                )
                return UsageError(f"{self.name} cannot be reached: {why}", hint)
        reason = last or "the connection was cut"
        return Unreachable(f"{self.name} cannot be reached: {reason}", self._check_hint)

    @property
    def _check_hint(self) -> str:
        return f"look whether it runs: {self.ssh_command} true"

    def disk_full_error(self) -> MachineFailure:
        """The error to raise if the machine's disk is full."""
        hint = f"free some space there: {self.ssh_command} 'du -sh .loop/*'"
        return MachineFailure(f"the disk of {self.name} is full", hint)


def _start_child(command: Sequence[str], **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a child without a terminal (no Ctrl-C, no prompts) that dies with this process."""
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
    """Repeat `call` for `seconds` while it raises Unreachable, then let that pass. `report` gets the reasons."""
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


HOME = ".loop"
"""Folder below the user's home there that holds everything of `loop`."""
PYTHON = f"{HOME}/venv/bin/python"
DIGEST = f"{HOME}/venv/loop-digest"
MADE_BY = f"{HOME}/venv/made-by"
"""File that names the interpreter for which the environment was made."""
DATA = ("patterns", "kernels", "templates", "sessions/plans", "sessions/history", "sessions/rates.yaml")
"""Data folders and files that are shipped next to the package."""
OLDEST_PYTHON = (3, 11)
FREE_GB = {True: 1.0, False: 12.0}
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
    for root in (PACKAGE, *(shipped(name) for name in DATA)):
        paths += [root] if root.is_file() else root.rglob("*")
    files = [path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(PACKAGE.parent).as_posix(): path for path in files}


def hash_package(files: Mapping[str, Path]) -> str:
    """Hash of the package; two machines with equal hashes run the same `loop`. `files`: see `list_package_files`.
    Kernels count only by their headers, because a checkout is sent with each command. An installation has its data
    in `loop/_data`, a checkout beside `loop`."""
    digest = hashlib.sha256()
    path_by_name = {name.removeprefix("loop/_data/"): path for name, path in files.items()}
    for name, path in sorted(path_by_name.items()):
        if name.startswith("kernels/include/") or not name.startswith("kernels/"):
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def ask_facts(there: Connection) -> dict[str, str]:
    """Facts on the machine's tools, by the names that `FACTS_SCRIPT` says; empty if missing. Raises as
    `Connection.run_script`."""
    script = fill_script(FACTS_SCRIPT, OURS=PYTHON, MADEBY=MADE_BY, PYTHON=_quote_python(there))
    lines = there.run_script(script, limit_s=120).decode(errors="replace").splitlines()
    facts = dict.fromkeys(re.findall(r"^say (\w+)", FACTS_SCRIPT, re.MULTILINE), "")
    for line in lines:
        name, equals, value = line.partition("=")
        if equals:
            facts[name] = value
    return facts


def _quote_python(there: Connection) -> str:
    """The interpreter of `hosts.yaml`, quoted for a shell; `~` means the home there."""
    path = there.listed.host.python
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def refuse_unfit(there: Connection, facts: Mapping[str, str]) -> None:
    """Raise UsageError for the first missing requirement without which `loop` cannot run there."""
    python, setting, version = there.listed.host.python, f"python: in {there.listed.path}", facts["python"]
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    free_gb, needed_gb = int(facts["free_kb"] or 0) / 1e6, FREE_GB[bool(facts["torch"])]
    apt = f"{there.ssh_command} 'sudo apt-get install -y {{}}'"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    too_old = f"has Python {version} as `{python}`; loop needs {oldest} or newer"
    too_full = f"has {free_gb:.1f} GB free in its home; an installation needs {needed_gb:g}"
    for is_missing, why, hint in (
        (not numbers, f"has no `{python}`", f"name its interpreter: {setting}"),
        (numbers < OLDEST_PYTHON, too_old, f"name a newer one: {setting}"),
        (not facts["rsync"], "has no rsync", apt.format("rsync")),
        (not facts["setsid"], "has no setsid", apt.format("util-linux")),
        (not facts["venv"], f"has a `{python}` that makes no environments", apt.format("python3-venv")),
        (free_gb < needed_gb, too_full, f"free some: {there.ssh_command} 'du -xh --max-depth=1 | sort -h'"),
    ):
        if is_missing:
            raise UsageError(f"{there.name} {why}", hint=hint)


def list_missing_tools(there: Connection, facts: Mapping[str, str]) -> Iterator[str]:
    """Optional tools that are missing there, with the fix, a line each."""
    if not facts["gcc"]:
        apt = f"{there.ssh_command} 'sudo apt-get install -y g++'"
        yield f"no compiler: kernels in C and C++ cannot be built; {apt}"
    if facts["gpus"] and not facts["nvcc"]:
        yield "no nvcc: CUDA kernels cannot be built; install the CUDA toolkit there"
    if there.listed.host.gpus is not None and not facts["gpus"]:
        yield "no NVIDIA driver answers: nvidia-smi names no GPU; install the driver there"
    if not facts["torch"]:
        yield f"no torch for `{there.listed.host.python}`: it is downloaded into loop's own environment"


INSTALL = """
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


def install(there: Connection, facts: Mapping[str, str]) -> None:
    """Install this `loop` there, in its own virtual environment. Raises as `Connection.run_script`. `facts`: see
    `ask_facts`."""
    try:
        requirements = importlib.metadata.requires("kernel-loop") or []
    except importlib.metadata.PackageNotFoundError as error:
        why = "this loop was never installed, so nobody says what it needs"
        raise UsageError(why, "pip install -e .") from error
    files, folders = list_package_files(), "jobs trees package package.new"
    make = f"mkdir -m 700 {HOME} && cd {HOME}"
    there.run_script(f"cd {HOME} 2>/dev/null || {make} && mkdir -p {folders}")
    there.send(PACKAGE.parent, files, f"{HOME}/package.new", beside="../package")
    index = ""
    if not facts["gpus"] and not facts["torch"]:  # Without a GPU, pip's torch would be too large.
        index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    needs = [requirement for requirement in requirements if "extra ==" not in requirement]
    script = fill_script(
        INSTALL,
        HOME=HOME,
        INDEX=index,
        NEEDS=shlex.join(needs),
        DIGEST=hash_package(files),
        PYTHON=_quote_python(there),
    )
    try:
        there.run_script(script, limit_s=COPY_S)
    except WorkFailed as error:
        again = f"mend that, then: loop hosts setup {there.name}"
        raise WorkFailed(f"loop cannot be installed: {error.message}", hint=again) from error
