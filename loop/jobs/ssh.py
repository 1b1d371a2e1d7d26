"""Machines reached by ssh: a connection to one, `loop` there, its jobs, and the executor `ssh`.

One OpenSSH master carries everything and ends with its `Connection`. After a lost connection the
next call reconnects; a lost call can be repeated. The machine is not trusted: its output is
bounded, and names are checked. Jobs are in `~/.loop/jobs` there. `~/.loop/trees` holds a folder for
each project sent; it is never replaced while a job runs in it. The executor runs one job at a time
on each GPU. Other machines run the jobs of one that stays away; closing ends its old jobs there.
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.base.locks import LockHeld, locked_temporary_folder
from loop.base.places import MANIFEST, PACKAGE, shipped
from loop.cloud.hosts import Host, find_host, hosts_path, read_hosts
from loop.jobs import folder as job_files
from loop.jobs.executor import MIN_FREE_BYTES, OWN_SESSION, Slot
from loop.jobs.folder import JobFolder
from loop.library.definitions import Project
from loop.library.trust import HOSTS_FILE, SENDER_VARIABLE, Sender, definition_hash
from loop.machine.machine import VISIBLE_VARIABLE
from loop.model.base import Model
from loop.model.record import Where
from loop.store.sessions import import_session

OPTIONS = (
    "BatchMode=yes",  # No prompts: no person may be present.
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ForwardAgent=no",  # Keep the user's keys and screen from the machine.
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlMaster=auto",  # The first call starts a master for the others; ssh restarts a lost one.
    "ControlPersist=60",
    "RemoteCommand=none",  # The user's settings may have one, which would take the place of ours.
)
T = TypeVar("T")
SSH_VARIABLE = "LOOP_SSH"  # Environment variable: a program and options to use in place of `ssh`.
BEGIN_MARKER, END_MARKER = b"loop-begins-here\n", b"loop-ends-here\n"
"""Markers around a script's output: login shells print before BEGIN; without END it was cut."""
CALL_LIMIT_S = 30.0  # Time limit in seconds for a short script.
EXIT_LIMIT_S = 5.0  # Time limit in seconds for the end of the ssh master.
COPY_LIMIT_S = 3600.0  # Time limit in seconds for a copy or an installation.
MAX_ANSWER_BYTES = 1 << 20  # Most bytes of an answer that are read.
RETRY_S = 2.0  # Seconds to wait between attempts to connect.
CONNECTION_EXIT_CODES = (10, 12, 30, 35, 255)  # Of rsync, for a lost or timed-out connection.
DISK_FULL_TEXT = "No space left on device"
REMEDY_BY_ERROR = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "is it new? {ssh} true tells how to forget its key",
    "Host key verification failed": "look at its key and accept it: {ssh} true",
    "Permission denied": "loop types no password; give it a key: ssh-copy-id {address}; or ssh-add",
    "Could not resolve hostname": "mend `ssh:` of {place}",
    "Bad configuration option": "{ssh} true",
}
"""Text that ssh prints, to the user's remedy. Other errors are worth a retry."""
LOOP_FOLDER = ".loop"  # Folder below the user's home there that holds everything of `loop`.
PYTHON = f"{LOOP_FOLDER}/venv/bin/python"
DIGEST = f"{LOOP_FOLDER}/venv/loop-digest"
MADE_BY = f"{LOOP_FOLDER}/venv/made-by"  # File that names the environment's interpreter.
OLDEST_PYTHON = (3, 11)
NEEDED_GB_BY_TORCH = {True: 1.0, False: 12.0}
"""Free disk space that an installation needs, in GB, by whether torch is already there."""
FACTS_SCRIPT = """
cd
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
MAX_FILE_BYTES = 1 << 30  # Largest file in bytes that is fetched.
BUNDLE_FILE = "branches.bundle"  # File with the git branches of sessions that were kept there.
START_LOG = "begun"  # File with what the process that runs the job printed: why it could not begin.

# name PID: prints number, start time and boot id of a process that runs, as `JobFolder` does.
# alive JOB: true if the process in its `pid` file runs.
# running: prints a line for each job that runs: its id, and the name of its project's folder.
SHELL_FUNCTIONS = f"""
cd "$HOME" && mkdir -p -m 700 {LOOP_FOLDER} && cd {LOOP_FOLDER} && mkdir -p jobs trees || exit 1
name() {{
  set -- "$1" $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
  [ $# -ge 21 ] && [ "$2" != Z ] && echo "$1-${{21}} $(cat /proc/sys/kernel/random/boot_id)"
}}
alive() {{
  [ -s "$1/pid" ] || return 1
  read -r name boot rest <"$1/pid"  # Fails without a line end, after it has read all.
  [ "$(name "${{name%-*}}")" = "$name $boot" ]
}}
running() {{
  for job in jobs/*/; do
    [ ! -e "$job/rc" ] && alive "$job" && echo "$(basename "$job") $(cat "$job/tree" 2>/dev/null)"
  done
}}
"""
READY_SCRIPT = """
printf '%s\\n' "$(cd && pwd -P)" "$(head -c 64 venv/loop-digest 2>/dev/null)"
df -Pk . | awk 'NR == 2 {print $4}'
"""
START_SCRIPT = """
cd jobs/@ID@ || exit 1
[ -e rc ] || alive . || {
  @EXPORTS@
  [ -d /usr/local/cuda/bin ] && export PATH="$PATH:/usr/local/cuda/bin"
  export LOOP_SESSIONS="$PWD/out/sessions"
  [ ! -d ../../trees/@TREE@.past ] ||
    { mkdir -p out/sessions && cp -a ../../trees/@TREE@.past/. out/sessions/; } || exit 1
  printf %s @TREE@ >tree && rm -f pid || exit 1
  setsid nohup "$HOME/@PYTHON@" -P -c "from loop.cli import main; main()" job run . \\
    </dev/null >@LOG@ 2>&1 &
  echo "$(name $!) $(readlink /proc/self/ns/pid)" >pid  # It counts as running at once.
}
"""
# Prints the job that runs in the old tree, else replaces it. git's worktree records move along.
SWAP_SCRIPT = """
running | grep " @TREE@$" || {
  if [ -d trees/@TREE@/.git/worktrees ] && [ -d trees/@TREE@.new/.git ]; then
    mv trees/@TREE@/.git/worktrees trees/@TREE@.new/.git/ || exit 1
  fi
  rm -rf trees/@TREE@.old && mv trees/@TREE@ trees/@TREE@.old &&
    mv trees/@TREE@.new trees/@TREE@ || exit 1
  rm -rf trees/@TREE@.old
}
"""
# Writes the session branches of a project to a git bundle next to a job's results.
BUNDLE_SCRIPT = f"""
rm -f jobs/@ID@/{BUNDLE_FILE}
made() {{ git -C trees/@TREE@ "$@" --branches='loop/*' --not HEAD; }}
[ ! -d trees/@TREE@/.git ] || [ -z "$(made rev-list -n 1 2>/dev/null)" ] ||
  made bundle create --quiet ../../jobs/@ID@/{BUNDLE_FILE} || exit 1
"""
POLL_SCRIPT = """
state=gone
cd jobs/@ID@ 2>/dev/null && { state=lost; alive . && state=running; }
echo "$state $(head -c 8 rc 2>/dev/null)"
"""
REMOVE_SCRIPT = f"""
for job in @JOBS@; do [ -d $job ] && touch $job/{job_files.CANCEL}; done
n=0
for job in @JOBS@; do while alive $job && [ $n -lt 350 ]; do sleep 0.1; n=$((n + 1)); done; done
rm -rf @JOBS@
"""
POLL_ANSWER = re.compile(r"(?P<state>running|lost|gone) (?P<rc>-?\d{1,4})?")  # rc: exit code.
JobState = tuple[str, int | None]  # State of a job there, and its exit code: see `Connection.poll`.


class Unreachable(MachineFailure):
    """The machine does not answer, or no longer; a retry may help."""


def tree_in_use_error(host: str, job: str) -> LockHeld:
    """The error to raise if another job runs in the project's folder on that machine."""
    error = LockHeld(Path(host), f"job {job} of this project")
    error.hint = f"wait for it: loop jobs follow {job}; or end it: loop jobs follow {job} --cancel"
    return error


class Connection:
    """An ssh connection to a machine, opened by the first call. Its context ends the ssh master."""

    def __init__(self, host: Host) -> None:
        self.host, self.name = host, host.name
        self._temporary_folders = contextlib.ExitStack()
        # In /tmp, because the path of a socket may have 108 bytes.
        folder = locked_temporary_folder(Path("/tmp"), f"loop-{os.geteuid()}-ssh-")
        self._socket = self._temporary_folders.enter_context(folder) / "s"
        port = ["-p", host.port] if host.port else []
        program = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
        options = [word for option in OPTIONS for word in ("-o", option)]
        self._ssh = [*program, "-T", *options, *port, "-S", str(self._socket)]
        """Command line of ssh for this machine, without the address."""
        self.ssh_command = shlex.join(["ssh", *port, host.ssh_address])
        """The command with which a person reaches this machine, such as `ssh -p 2222 me@there`."""
        self._check_hint = f"look whether it runs: {self.ssh_command} true"
        self.python = shlex.quote(host.python)
        """The interpreter of `hosts.yaml`, quoted for a shell; `~` means the home there."""
        if host.python.startswith("~/"):
            self.python = f'"$HOME"/{shlex.quote(host.python[2:])}'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the ssh master, if one answers, and delete the local folder that holds its socket."""
        with self._temporary_folders, contextlib.suppress(LoopError):
            self._run([*self._ssh, "-O", "exit", self.host.ssh_address], EXIT_LIMIT_S, b"")

    def run_script(self, script: str, *, limit_s: float = CALL_LIMIT_S, **values: str) -> list[str]:
        """Run a script with `sh` in `~/.loop` there, after `SHELL_FUNCTIONS`; `values` replace
        `@NAME@`. Returns its output by lines, at most 1 MiB; the last is empty after a line end.
        Raises Unreachable; UsageError for what a person has to fix; WorkFailed if it fails."""
        script = SHELL_FUNCTIONS + re.sub("@([A-Z]+)@", lambda match: values[match[1]], script)
        # Without the first marker the script never began; without the last the answer was cut off.
        stdin = b"echo " + BEGIN_MARKER + script.encode() + b"\necho " + END_MARKER
        command = [*self._ssh, self.host.ssh_address, "exec sh -s"]
        code, out, errors = self._run(command, limit_s, stdin)
        _, marker, body = out.partition(BEGIN_MARKER)
        if code or not marker:  # 255 is ssh's own exit code, for a lost connection.
            raise self._make_error(errors, is_cut=not marker or code == 255)
        if not body.endswith(END_MARKER) and len(body) < MAX_ANSWER_BYTES:
            raise self._make_error(b"", is_cut=True)
        return body.removesuffix(END_MARKER)[:MAX_ANSWER_BYTES].decode(errors="replace").split("\n")

    def send(self, root: Path, names: Iterable[str], folder: str, *, link_folder: str = "") -> None:
        """Copy files `names` of `root` to an existing folder below the home. Raises as `_rsync`.
        `link_folder`: relative to `folder`; files that are equal there are linked, not sent."""
        # `./`: rsync skips names that begin with # or ; as comments.
        stdin = "".join(f"./{name}\0" for name in names).encode(errors="surrogateescape")
        if not stdin:
            return  # `root` need not exist.
        options = [f"--link-dest={link_folder}"] if link_folder else []
        destination = f"{self.host.rsync_address}:{folder}/"
        self._rsync(["--files-from=-", "--from0", *options, f"{root}/", destination], stdin)

    def fetch(self, source: str, folder: Path, *names: str, options: Sequence[str] = ()) -> None:
        """Copy files or folders from the folder `source` there, no links, devices or files over
        `MAX_FILE_BYTES`: the machine is not trusted. `options`: more options of rsync."""
        words = [*options, "--no-links", "--no-devices", "--no-specials"]
        words += ["--chmod=D700,F600", f"--max-size={MAX_FILE_BYTES}"]
        for name in names:
            words += [f"--include=/{name}", f"--include=/{name}/**"]
        self._rsync([*words, "--exclude=*", f"{self.host.rsync_address}:{source}/", f"{folder}/"])

    def _rsync(self, arguments: Sequence[str], stdin: bytes = b"") -> None:
        """Run rsync with these arguments. Raises the error of `_make_error` if it fails."""
        options = ["-a", "--timeout=60", "--no-owner", "--no-group", "--partial"]
        command = ["rsync", *options, "-e", shlex.join(self._ssh), *arguments]
        code, _, errors = self._run(command, COPY_LIMIT_S, stdin)
        if code:
            raise self._make_error(errors, is_cut=code in CONNECTION_EXIT_CODES)

    def _run(self, command: list[str], limit_s: float, stdin: bytes) -> tuple[int, bytes, bytes]:
        """Run a local program that talks to the machine, without a terminal (no Ctrl-C, no
        prompts). Returns exit code, stdout, stderr. Raises Unreachable after `limit_s`, UsageError
        without the program. Output goes to files: a pipe stays open while the ssh master lives."""
        options: dict[str, Any] = {"timeout": limit_s, **OWN_SESSION}
        options["env"] = {**os.environ, "LC_ALL": "C"}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            try:
                ended = subprocess.run(command, input=stdin, stdout=out, stderr=errors, **options)
            except subprocess.TimeoutExpired:
                self._socket.unlink(missing_ok=True)  # A stalled master counts as lost.
                raise Unreachable(f"{self.name} does not answer", self._check_hint) from None
            except FileNotFoundError as error:
                package = "rsync" if command[0] == "rsync" else "openssh-client"
                hint = f"install it: apt-get install {package}"
                raise UsageError(f"{command[0]} is not installed", hint) from error
            out.seek(0)
            errors.seek(0)
            return ended.returncode, out.read(2 * MAX_ANSWER_BYTES), errors.read(MAX_ANSWER_BYTES)

    def _make_error(self, stderr: bytes, *, is_cut: bool) -> LoopError:
        """The error to raise for what ssh or rsync printed: MachineFailure for a full disk there;
        `is_cut`: Unreachable, or UsageError if a retry cannot help; else WorkFailed."""
        text = stderr.decode(errors="replace")
        if DISK_FULL_TEXT in text:
            return self.disk_full_error()
        lines = [line.strip() for line in text.splitlines() if not line.startswith("rsync error:")]
        last = next((line[:300] for line in reversed(lines) if line), "")
        if not is_cut:
            return WorkFailed(f"{self.name}: {last or 'a script failed there'}", self._check_hint)
        message = f"{self.name} cannot be reached"
        for error_text, remedy in REMEDY_BY_ERROR.items():
            if error_text in text:
                ssh, place = self.ssh_command, f"{self.name} in {hosts_path()}"
                hint = remedy.format(ssh=ssh, address=ssh.removeprefix("ssh "), place=place)
                return UsageError(f"{message}: {error_text}", hint)
        return Unreachable(f"{message}: {last or 'the connection was cut'}", self._check_hint)

    def disk_full_error(self) -> MachineFailure:
        """The error to raise if the machine's disk is full."""
        hint = f"free some space there: {self.ssh_command} 'du -sh .loop/*'"
        return MachineFailure(f"the disk of {self.name} is full", hint)

    def check_ready(self) -> tuple[str, int]:
        """Home folder there, free KiB of disk (0: unknown). Raises UsageError without this loop."""
        home, digest, free_kb, _ = self.run_script(READY_SCRIPT)
        if digest != hash_package(list_package_files()):
            which = "another" if digest else "no"
            raise UsageError(f"{self.name} has {which} loop", f"loop hosts setup {self.name}")
        return home, int(free_kb) if free_kb.isdigit() else 0

    def send_tree(self, tree: str, root: Path, names: Iterable[str], config: str = "") -> None:
        """Make the folder `tree` there hold exactly the files `names` of `root`. `config`: content
        of its `.git/config`; empty: unchanged. Raises LockHeld if a job runs in the folder."""
        new = f"trees/{tree}.new"
        self.run_script(f"rm -rf {new} && mkdir -p trees/{tree} {new} || exit 1")
        self.send(root, names, f"{LOOP_FOLDER}/{new}", link_folder=f"../{tree}")
        if config:
            script = f"printf %s @CONFIG@ >{new}/.git/config || exit 1"
            self.run_script(script, CONFIG=shlex.quote(config))
        if running := self.run_script(SWAP_SCRIPT, TREE=tree)[0]:
            raise tree_in_use_error(self.name, running.split()[0][:80])

    def submit(self, job: JobFolder, trusted: tuple[str, ...], gpus: Sequence[int] | None) -> None:
        """Send a job's folder and start the job there; one that was started is not started again.
        `trusted`: hashes of definitions that the user trusts. `gpus`: indices to use; None: all."""
        self.run_script("mkdir -p jobs/@ID@ || exit 1", ID=job.id)
        paths = (path.relative_to(job.path) for path in sorted(job.path.rglob("*")))
        names = [path.as_posix() for path in paths if path.as_posix() != job_files.LOCK]
        self.send(job.path, names, f"{LOOP_FOLDER}/jobs/{job.id}")
        sent = read_sent(job)
        target, tree = (sent.project, sent.tree) if sent else (None, "-")
        # The price is as old as the file that states it.
        changed_at = job_files.modified_at(hosts_path())
        as_of = datetime.datetime.fromtimestamp(changed_at, datetime.UTC).date()
        price: dict[str, Any] = {"usd_per_hour": self.host.usd_per_hour, "as_of": as_of}
        sender = Sender(name=self.name, target=target, trusted=trusted, **price)
        variables = {SENDER_VARIABLE: sender.model_dump_json()}
        if gpus is not None:
            variables[VISIBLE_VARIABLE] = ",".join(map(str, gpus))
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        values = {"ID": job.id, "TREE": tree, "PYTHON": PYTHON, "LOG": START_LOG}
        values["EXPORTS"] = "; ".join(exports)
        self.run_script(START_SCRIPT, limit_s=CALL_LIMIT_S, **values)

    def poll(self, job: str) -> JobState:
        """State of a job, and its exit code if it has ended. States: `running`; `ended`; `lost`:
        its process died; `gone`: it has no folder any more. Raises Unreachable, also if damaged."""
        match = POLL_ANSWER.fullmatch(self.run_script(POLL_SCRIPT, ID=job)[0])
        if match is None:
            raise Unreachable(f"the answer of {self.name} is damaged", self._check_hint)
        return ("ended", int(match["rc"])) if match["rc"] else (match["state"], None)

    def cancel(self, job: str) -> None:
        """Ask a job to end, as Ctrl-C does."""
        self.run_script(f"[ ! -d jobs/{job} ] || touch jobs/{job}/{job_files.CANCEL} || exit 1")

    def fetch_results(self, job: JobFolder, *more_files: str, past: Sequence[str] = ()) -> None:
        """Fetch a job's results and `more_files`, without the sessions in `past`, which were sent
        from here. Also records the machine's local name and its price of an hour."""
        files = [job_files.RESULTS, job_files.MANIFEST, job_files.WHERE, BUNDLE_FILE, START_LOG]
        without_past = [f"--exclude=/{job_files.RESULTS}/{name}" for name in past]
        files += more_files
        self.fetch(f"{LOOP_FOLDER}/jobs/{job.id}", job.path, *files, options=without_past)
        update = {"host": self.name, "usd_per_hour": self.host.usd_per_hour}
        device = job.device or Where(host=self.name)
        write_sealed(job.path / job_files.WHERE, device.model_copy(update=update))

    def remove(self, *jobs: str) -> None:
        """End jobs that still run, then remove the folders of all these jobs."""
        if not jobs:
            return
        self.run_script(REMOVE_SCRIPT, limit_s=60, JOBS=" ".join(f"jobs/{job}" for job in jobs))

    def list_running(self) -> list[str]:
        """Ids of all jobs that run there, including those that other users of the account sent."""
        return [line.split()[0] for line in self.run_script("running; true") if line]


def retry_unreachable(
    call: Callable[[], T], seconds: float = 60.0, report: Callable[[str], None] = lambda why: None
) -> T:
    """Repeat `call` for `seconds` while it raises Unreachable; then raise. `report`: gets why."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except Unreachable as error:
            if time.monotonic() + RETRY_S > end:
                raise
            report(error.message)
        time.sleep(RETRY_S)


def list_package_files() -> dict[str, Path]:
    """All files of `loop` and its data, by path relative to the package's parent folder."""
    data = ("patterns", "kernels", "templates", "sessions/plans", "sessions/history")
    roots = (PACKAGE, *map(shipped, (*data, "sessions/rates.yaml")))
    paths = sorted(path for root in roots for path in (root, *root.rglob("*")))
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(PACKAGE.parent).as_posix(): path for path in files}


def hash_package(files: Mapping[str, Path]) -> str:
    """Hash of the package: machines with equal hashes run the same `loop`, installed or a checkout.
    Of `kernels` only the headers count, because a checkout is sent with each command."""
    digest = hashlib.sha256()
    path_by_name = {name.removeprefix("loop/_data/"): path for name, path in files.items()}
    for name, path in sorted(path_by_name.items()):
        if name.startswith("kernels/include/") or not name.startswith("kernels/"):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32]


def ask_facts(connection: Connection) -> dict[str, str]:
    """Name in `FACTS_SCRIPT` (`nvcc`) to text; empty: a missing tool. Raises as `run_script`."""
    values = {"OURS": PYTHON, "MADEBY": MADE_BY, "PYTHON": connection.python}
    lines = connection.run_script(FACTS_SCRIPT, limit_s=120, **values)
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {**dict.fromkeys(re.findall(r"^say (\w+)", FACTS_SCRIPT, re.M), ""), **dict(pairs)}


def list_lacks(connection: Connection, facts: Mapping[str, str]) -> list[str]:
    """A line for each optional tool that is missing there: what does not work, and the fix.
    Raises UsageError for the first missing requirement without which `loop` cannot run there."""
    python, version, setting = connection.host.python, facts["python"], f"python: in {hosts_path()}"
    version_numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    free_gb, needed_gb = int(facts["free_kb"] or 0) / 1e6, NEEDED_GB_BY_TORCH[bool(facts["torch"])]
    install = f"{connection.ssh_command} 'sudo apt-get install -y {{}}'"
    show_sizes = f"{connection.ssh_command} 'du -xh --max-depth=1 | sort -h'"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    too_old = f"has Python {version} as `{python}`; loop needs {oldest} or newer"
    too_full = f"has {free_gb:.1f} GB free in its home; an installation needs {needed_gb:g}"
    no_venv = f"has a `{python}` that makes no environments"
    for is_missing, why, hint in (  # Requirements.
        (not version_numbers, f"has no `{python}`", f"name its interpreter: {setting}"),
        (version_numbers < OLDEST_PYTHON, too_old, f"name a newer one: {setting}"),
        (not facts["rsync"], "has no rsync", install.format("rsync")),
        (not facts["setsid"], "has no setsid", install.format("util-linux")),
        (not facts["venv"], no_venv, install.format("python3-venv")),
        (free_gb < needed_gb, too_full, f"free some: {show_sizes}"),
    ):
        if is_missing:
            raise UsageError(f"{connection.name} {why}", hint=hint)
    compiler = f"no compiler: kernels in C and C++ cannot be built; {install.format('g++')}"
    nvcc = "no nvcc: CUDA kernels cannot be built; install the CUDA toolkit there"
    driver = "no NVIDIA driver answers: nvidia-smi names no GPU; install the driver there"
    torch = f"no torch for `{python}`: it is downloaded into loop's own environment"
    wants_gpu = connection.host.gpus is not None
    lacks = {compiler: not facts["gcc"], nvcc: facts["gpus"] and not facts["nvcc"]}
    lacks |= {driver: wants_gpu and not facts["gpus"], torch: not facts["torch"]}
    return [line for line, is_missing in lacks.items() if is_missing]


INSTALL_SCRIPT = """
set -e
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
venv/bin/python -m pip --disable-pip-version-check --no-input install @INDEX@ @NEEDS@ \\
  >pip.log 2>&1 || fail
venv/bin/python -c 'import loop.cli'
printf %s @DIGEST@ >venv/loop-digest
rm -f pip.log
"""


def install(connection: Connection, facts: Mapping[str, str]) -> None:
    """Install this `loop` there, in its own environment. `facts`: of `ask_facts`; raises alike."""
    files, requirements = list_package_files(), importlib.metadata.requires("kernel-loop") or []
    connection.run_script("mkdir -p package package.new || exit 1")
    connection.send(PACKAGE.parent, files, f"{LOOP_FOLDER}/package.new", link_folder="../package")
    index = ""
    if not facts["gpus"] and not facts["torch"]:  # Without a GPU, pip's torch would be too large.
        index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    needs = shlex.join(requirement for requirement in requirements if "extra ==" not in requirement)
    values = {"INDEX": index, "NEEDS": needs, "PYTHON": connection.python}
    values["DIGEST"] = hash_package(files)
    try:
        connection.run_script(INSTALL_SCRIPT, limit_s=COPY_LIMIT_S, **values)
    except WorkFailed as error:
        hint = f"mend that, then: loop hosts setup {connection.name}"
        raise WorkFailed(f"loop cannot be installed: {error.message}", hint=hint) from error


SESSION_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[a-z0-9-]{1,80}")


class SentJob(Model):
    """Where a job was sent, and where its results belong here. Stored as `sent.json`."""

    format: int = 1
    host: str
    project: str | None
    """Folder of the target; None for the bundled one."""
    sessions: str
    """Folder here that receives the job's sessions."""
    root: str = ""
    """Project folder here that was sent; empty if none was."""
    tree: str = ""
    """Name of the project's folder there, below `~/.loop/trees`."""
    home: str
    """The user's home folder on that machine."""
    past: tuple[str, ...] = ()
    """Sessions from here that were sent for reference and are not fetched again."""
    last: bool = True
    """False if more jobs of the same command follow, as after `kernels check`."""
    keep_host: bool = False
    """True: the machine goes on running after the job."""


def read_sent(folder: JobFolder) -> SentJob | None:
    """Where a job was sent; None for a job of this machine. Raises LoopError for a damaged note."""
    with contextlib.suppress(OSError):
        return read_sealed(SentJob, folder.path / job_files.SENT)
    return None


def list_sent_jobs(host: str = "") -> Iterator[tuple[JobFolder, SentJob]]:
    """Jobs sent away and not brought back, oldest first. `host`: its jobs only; empty: all."""
    for folder in job_files.list_jobs():
        sent = read_sent(folder) if folder.exit_code is None else None
        if sent is not None and host in ("", sent.host):
            yield folder, sent


def import_job_sessions(folder: JobFolder, sent: SentJob) -> list[Path]:
    """Copy a job's sessions into the local sessions folder, then delete the job's own `out/`.
    Returns their folders, also of one that an earlier call copied. Raises as `import_session`."""
    imported: list[Path] = []
    for session in sorted((folder.path / job_files.SESSIONS).glob("*")):
        is_folder = session.is_dir() and not session.is_symlink()
        if is_folder and SESSION_NAME.fullmatch(session.name) and session.name not in sent.past:
            imported.append(import_session(session, Path(sent.sessions)))
    shutil.rmtree(folder.path / job_files.RESULTS, ignore_errors=True)
    return imported


HOSTS_VARIABLE = "LOOP_HOSTS"  # Environment variable: names, with commas; unset: all hosts.
AWAY_LIMIT_S = 120.0  # Seconds without an answer after which a machine loses its jobs.
POLL_S = 0.3
REMOVE_LIMIT_S = 30.0  # Seconds that a machine has to answer when its last jobs are removed.


def check() -> list[Host]:
    """The machines that LOOP_HOSTS names, by default all of the user's. Raises UsageError: none."""
    names = list(filter(None, os.environ.get(HOSTS_VARIABLE, "").split(","))) or [*read_hosts()]
    if not names:
        raise UsageError(f"--executor ssh: no hosts: there is no {HOSTS_FILE}", "loop hosts --help")
    return [find_host(name) for name in dict.fromkeys(names)]


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs of the chosen machines (see `HOSTS_VARIABLE`). Skips a machine
    that does not answer or has a full disk; raises MachineFailure if all are skipped."""
    usable: list[Slot] = []
    failures: list[MachineFailure] = []
    for machine in check():
        if len(usable) == width:
            break
        try:
            with Connection(machine) as connection:
                _, free_kb = connection.check_ready()
                if free_kb << 10 < MIN_FREE_BYTES:
                    raise connection.disk_full_error()
        except MachineFailure as error:
            failures.append(error)
            continue
        gpus = machine.gpus or (None,)
        usable += [SshSlot(machine, gpu) for gpu in gpus[: width - len(usable)]]
        if machine.stop or machine.cost_text:
            cost = f", and costs {machine.cost_text}" if machine.cost_text else ""
            advice = f"loop hosts stop {machine.name}" if machine.stop else "stop it yourself"
            remark_once(f"{machine.name} goes on running when all is over{cost}; then: {advice}")
    for failure in failures:
        if not usable:
            raise failure
        remark_once(f"{failure.message}: the others do its jobs")
    return usable


class SshSlot(Slot):
    """One GPU of a machine, over its own connection. `number`: GPU index; None: any GPU."""

    def __init__(self, host: Host, number: int | None = None) -> None:
        self.host, self.connection = host.name, Connection(host)
        self.gpus = None if number is None else (number,)
        self.stale_jobs: set[str] = set()  # Ids of jobs there that nothing waits for any longer.

    def run_in_slot(self, job: JobFolder) -> None:
        """Send a job, poll until it ends, and fetch its results. Raises WorkFailed if its process
        died there. If the machine stays away or a person has to mend it, also sets `trouble`."""
        connection = self.connection
        try:
            retry_unreachable(lambda: connection.remove(*self.stale_jobs), AWAY_LIMIT_S)
            self.stale_jobs = {job.id}
            manifests = [name for name in job.task.files if Path(name).name == MANIFEST]
            folders = [(job.path / job_files.SOURCES / name).parent for name in manifests]
            projects = [Project(folder, folder, bundled=False) for folder in folders]
            trusted = tuple(map(definition_hash, projects))  # The job's user trusts these targets.
            retry_unreachable(lambda: connection.submit(job, trusted, self.gpus), AWAY_LIMIT_S)
            while True:
                state, _ = retry_unreachable(lambda: connection.poll(job.id), AWAY_LIMIT_S)
                if state != "running":
                    break
                if job.is_cancelled:
                    retry_unreachable(lambda: connection.cancel(job.id), AWAY_LIMIT_S)
                time.sleep(POLL_S)
            if state != "ended":
                raise WorkFailed(f"the process that ran it on {self.host} died")
            files = (job_files.STDOUT, job_files.STDERR, job_files.EXIT_CODE, job_files.TRIES)
            retry_unreachable(lambda: connection.fetch_results(job, *files), AWAY_LIMIT_S)
        except (MachineFailure, UsageError) as error:  # A person has to fix it, or it is away.
            reason = f"{self.host} stays away" if isinstance(error, Unreachable) else error.message
            remark_once(f"{reason}: its jobs are done elsewhere")
            self.trouble = error
            raise
        self.uuid = job.device.uuid if job.device else ""

    def close(self) -> None:
        """End and remove the jobs still there (one try if it has trouble); close the connection."""
        with self.connection, contextlib.suppress(LoopError):
            limit_s = 0.0 if self.trouble else REMOVE_LIMIT_S
            retry_unreachable(lambda: self.connection.remove(*self.stale_jobs), limit_s)
