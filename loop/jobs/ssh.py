"""Jobs on machines that are reached by ssh: operations on one machine's jobs, and the executor `ssh`.

`RemoteJobs` sends, starts, polls and fetches jobs in `~/.loop/jobs` of a machine; a lost call can be
repeated. `~/.loop/trees` there holds a folder for each project sent; it is never replaced while a job
runs in it. The executor runs jobs on machines of `hosts.yaml`, one at a time on each of their GPUs. It
reopens a lost connection. If a machine stays away, other machines run its jobs. When it answers again,
its old jobs are ended, and it takes new ones.
"""

import base64
import contextlib
import datetime
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.base.locks import LockHeld
from loop.base.places import MANIFEST, Project
from loop.jobs import folder as job_files
from loop.jobs import remote
from loop.jobs.executor import MIN_FREE_BYTES, Slot
from loop.jobs.folder import JobFolder, read_text
from loop.jobs.remote import LOOP_FOLDER, Connection, HostEntry, Unreachable, fill_script, retry_unreachable
from loop.library.hosted import HOSTS_FILE, SENDER_VARIABLE, Sender, read_terms
from loop.library.trust import definition_hash
from loop.machine.gpus import VISIBLE_VARIABLE
from loop.model.base import Model
from loop.model.record import State, Where
from loop.store import journal
from loop.store.sessions import HEAD

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
    resumed: str = ""
    """Name of the session that the job continues; empty: a new one."""
    past: tuple[str, ...] = ()
    """Sessions from here that were sent for reference and are not fetched again."""
    last: bool = True
    """False if more jobs of the same command follow, as after `kernels check`."""
    keep_until: float | None = None
    """Time until which the machine is needed, in seconds since 1970; None: not stated."""

    def make_local(self, text: str, job: str) -> str:
        """A line that a job printed there, with local paths in place of remote ones. `job`: id of the job."""
        home_there = f"{self.home}/{LOOP_FOLDER}"
        text = text.replace(f"{home_there}/jobs/{job}/{job_files.SESSIONS}", self.sessions)
        return text.replace(f"{home_there}/trees/{self.tree}", self.root) if self.root else text


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
    """Copy a job's sessions into the local sessions folder, then delete the job's own `out/`. Returns their
    folders here, also of one that an earlier call copied. Only the resumed session is replaced, and only if it did
    not also continue here. Raises WorkFailed for that, and if another session has the name."""
    imported: list[Path] = []
    for session in sorted((folder.path / job_files.SESSIONS).glob("*")):
        name, destination = session.name, Path(sent.sessions) / session.name
        is_folder = session.is_dir() and not session.is_symlink()
        if not is_folder or not SESSION_NAME.fullmatch(name) or name in sent.past:
            continue
        imported.append(destination)
        is_resumed = name == sent.resumed
        if destination.exists():
            has_same_head = read_text(destination / HEAD) == read_text(session / HEAD)
            if has_same_head and not is_resumed:
                continue  # An interrupted call already copied this session.
            local_journal = read_text(destination / journal.NAME)
            whole_lines = local_journal[: local_journal.rfind("\n") + 1]
            continues_local = read_text(session / journal.NAME).startswith(whole_lines)
            if not is_resumed or not continues_local:
                why = "went on here meanwhile" if is_resumed else "is there already"
                hint = f"move it aside, then: loop jobs follow {folder.id}"
                raise WorkFailed(f"{destination} {why}", hint=hint)
        # At any moment `destination` or its `.old` copy holds a whole session.
        new, old = destination.with_name(f".{name}.new"), destination.with_name(f".{name}.old")
        for stale in (new, old):
            shutil.rmtree(stale, ignore_errors=True)
        shutil.copytree(session, new)  # Makes the folder of all sessions, too.
        if destination.exists():
            destination.rename(old)
        new.rename(destination)
        shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(folder.path / job_files.RESULTS, ignore_errors=True)
    return imported


CHUNK_BYTES = 1 << 16  # Most bytes of each output stream that one poll fetches.
START_LIMIT_S = 60.0  # Seconds that a started job has to write its `pid` file.
MAX_FILE_BYTES = 1 << 30  # Largest file in bytes that is fetched.
TERMS_FILE = "terms"  # File with the machine's cloud and terms (`gcp spot`), as `loop.cloud.clouds` prints them.
BUNDLE_FILE = "branches.bundle"  # File with the git branches of sessions that were kept there.

# alive JOB: true if the process in its `pid` file runs: same number, start time, and boot id.
# busy TREE: prints the jobs that run in that project's folder.
SHELL_FUNCTIONS = f"""
cd "$HOME" && mkdir -p -m 700 {LOOP_FOLDER} && cd {LOOP_FOLDER} && mkdir -p jobs trees || exit 1
alive() {{
  [ -s "$1/pid" ] || return 1
  read -r name boot rest <"$1/pid"
  [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] || return 1
  set -- $(sed 's/.*) //' "/proc/${{name%-*}}/stat" 2>/dev/null) || return 1
  [ $# -ge 20 ] && [ "${{20}}" = "${{name#*-}}" ] && [ "$1" != Z ]
}}
busy() {{
  for job in jobs/*/; do
    job=${{job%/}}
    [ "$(cat "$job/tree" 2>/dev/null)" = "$1" ] && [ ! -e "$job/rc" ] && alive "$job" && echo "${{job#jobs/}}"
  done
}}
"""
READY_SCRIPT = """
printf '%s\\n' "$(cd && pwd -P)" "$(head -c 64 venv/loop-digest 2>/dev/null)"
df -Pk . | awk 'NR == 2 {print $4}'
busy @TREE@
"""
TERMS_PROGRAM = "import sys, loop.cloud.clouds as here; sys.stdout.write(here.terms_of_machine())"
START_SCRIPT = """
cd jobs/@ID@ || exit 1
[ -e rc ] || alive . || {
  @EXPORTS@
  [ -d /usr/local/cuda/bin ] && export PATH="$PATH:/usr/local/cuda/bin"
  export LOOP_SESSIONS="$PWD/out/sessions"
  [ ! -d ../../trees/@TREE@.past ] ||
    { mkdir -p out/sessions && cp -a ../../trees/@TREE@.past/. out/sessions/; } || exit 1
  printf %s @TREE@ >tree && rm -f pid || exit 1
  setsid nohup sh -c 'LOOP_TERMS=$(@PYTHON@ -P -c "$1"); export LOOP_TERMS; echo "$LOOP_TERMS" >terms
    exec @PYTHON@ -P -c "from loop.cli import main; main()" job run .' sh @TERMS@ </dev/null >begun 2>&1 &
}
"""
# Moves git's worktree records to the new tree, which already has the sessions' branches.
SWAP_SCRIPT = """
running=$(busy @TREE@)
[ -z "$running" ] || { echo "job $running of this project runs there" >&2; exit 1; }
if [ -d trees/@TREE@/.git/worktrees ] && [ -d trees/@TREE@.new/.git ]; then
  mv trees/@TREE@/.git/worktrees trees/@TREE@.new/.git/ || exit 1
fi
rm -rf trees/@TREE@.old && mv trees/@TREE@ trees/@TREE@.old && mv trees/@TREE@.new trees/@TREE@ || exit 1
rm -rf trees/@TREE@.old
"""
BUNDLE_SCRIPT = f"""
rm -f jobs/@ID@/{BUNDLE_FILE}
made() {{ git -C trees/@TREE@ "$@" --branches='loop/*' --not HEAD; }}
[ ! -d trees/@TREE@/.git ] || [ -z "$(made rev-list -n 1 2>/dev/null)" ] ||
  made bundle create --quiet ../../jobs/@ID@/{BUNDLE_FILE} || exit 1
"""
REMOVE_PAST_SCRIPT = """
mkdir -p trees/@TREE@.past && cd trees/@TREE@.past || exit 1
for name in *; do case " @KEPT@ " in *" $name "*) ;; *) rm -rf "./$name" || exit 1 ;; esac; done
"""
POLL_SCRIPT = """
if ! cd jobs/@ID@ 2>/dev/null; then echo "gone - 0 0 0"; printf '\\n\\n\\n'; else
  state=queued; [ -s pid ] && state=lost; alive . && state=running
  rc=$(head -c 8 rc 2>/dev/null)
  size() { wc -c <"$1" 2>/dev/null || echo 0; }
  age=$(($(touch ../../.look && stat -c %Y ../../.look) - $(stat -c %Y begun 2>/dev/null || stat -c %Y .)))
  echo "$state ${rc:--} $(size stdout) $(size stderr) $age"
  tail -c "+$((@OUT@ + 1))" stdout 2>/dev/null | head -c @CHUNK@ | base64 | tr -d '\\n'; echo
  tail -c "+$((@TALK@ + 1))" stderr 2>/dev/null | head -c @CHUNK@ | base64 | tr -d '\\n'; echo
  tail -n 1 begun 2>/dev/null | head -c 300 | tr -d '\\n'; echo
fi
"""
REMOVE_SCRIPT = f"""
for job in @JOBS@; do [ -d $job ] && touch $job/{job_files.CANCEL}; done
n=0
for job in @JOBS@; do while alive $job && [ $n -lt 350 ]; do sleep 0.1; n=$((n + 1)); done; done
rm -rf @JOBS@
"""
POLL_ANSWER = re.compile(
    r"(?P<state>queued|running|lost|gone) (?P<rc>-|-?\d{1,4}) "
    r"(?P<out>\d{1,12}) (?P<talk>\d{1,12}) (?P<age>-?\d{1,12})"
)
"""First line that `POLL_SCRIPT` prints: state, exit code, stream sizes (bytes), age (seconds)."""


@dataclass(frozen=True)
class PollResult:
    """State of a job and its new output, from one poll."""

    state: State
    exit_code: int | None
    """Exit code of its command; None while it has not ended."""
    stdout: bytes
    """New bytes of stdout since the last poll, at most 64 KiB."""
    stderr: bytes
    has_more: bool
    """True if more output is waiting."""
    start_error: str = ""
    """Why the job did not begin; empty if it did."""
    is_gone: bool = False
    """True if the job's folder no longer exists, as on a reinstalled machine."""

    @property
    def has_ended(self) -> bool:
        """True if the job has ended and all its output was read."""
        return not self.has_more and self.state not in ("queued", "running")


def tree_in_use_error(host: str, job: str) -> LockHeld:
    """The error to raise if another job runs in the project's folder on that machine."""
    error = LockHeld(Path(host), f"job {job} of this project")
    error.hint = f"wait for it: loop jobs follow {job}; or end it: loop jobs follow {job} --cancel"
    return error


class RemoteJobs(Connection):
    """A connection to a machine, with operations on its jobs."""

    def _run(self, script: str, limit_s: float = remote.ANSWER_LIMIT_S, **values: str) -> list[str]:
        """Run a script in `~/.loop` there, with `@NAME@` replaced by values. Returns its lines."""
        text = self.run_script(SHELL_FUNCTIONS + fill_script(script, **values), limit_s=limit_s)
        return text.decode(errors="replace").split("\n")

    def check_ready(self, tree: str = "-") -> tuple[str, int]:
        """Home folder of the user there, and free disk space in KiB (0: unknown). `tree`: name of the project's
        folder there; `-`: none. Raises UsageError if no `loop` or another is installed, LockHeld if a job uses
        `tree`."""
        home, digest, free_kb, *running = self._run(READY_SCRIPT, TREE=tree)
        if digest != remote.hash_package(remote.list_package_files()):
            which = "another" if digest else "no"
            raise UsageError(f"{self.name} has {which} loop", f"loop hosts setup {self.name}")
        if running[0]:  # Id of the job that uses the tree.
            raise tree_in_use_error(self.name, running[0][:80])
        return home, int(free_kb) if free_kb.isdigit() else 0

    def send_tree(self, tree: str, root: Path, names: Iterable[str], config: str = "") -> None:
        """Make the project's folder there hold exactly the files `names` of `root`. `config`: content of its
        `.git/config`; empty: unchanged. Raises WorkFailed if a job runs in the folder."""
        new = f"trees/{tree}.new"
        self._run(f"rm -rf {new} && mkdir -p trees/{tree} {new} || exit 1")
        self.send(root, names, f"{LOOP_FOLDER}/{new}", link_folder=f"../{tree}")
        if config:
            self._run("printf %s @CONFIG@ >@NEW@/.git/config || exit 1", CONFIG=shlex.quote(config), NEW=new)
        self._run(SWAP_SCRIPT, TREE=tree)

    def send_past_sessions(self, tree: str, root: Path, names: Iterable[str], sessions: Sequence[str]) -> None:
        """Make exactly these earlier sessions available to a project's jobs. `names`: their files in `root`."""
        self._run(REMOVE_PAST_SCRIPT, TREE=tree, KEPT=" ".join(sessions))
        if sessions:
            self.send(root, names, f"{LOOP_FOLDER}/trees/{tree}.past")

    def submit(self, folder: JobFolder, trusted: tuple[str, ...], gpus: Sequence[int] | None) -> None:
        """Send a job's folder and start the job there; one that was started is not started again. Its `sent.json`,
        if it has one, names its target and its project's folder there. `trusted`: hashes of the definitions that
        the user trusts. `gpus`: indices of the GPUs it may use; None: all."""
        self._run("mkdir -p jobs/@ID@ || exit 1", ID=folder.id)
        paths = sorted(folder.path.rglob("*"))
        names = [path.relative_to(folder.path).as_posix() for path in paths]
        names = [name for name in names if name != job_files.LOCK]
        self.send(folder.path, names, f"{LOOP_FOLDER}/jobs/{folder.id}")
        sent, entry = read_sent(folder), self.entry
        target, tree = (sent.project, sent.tree) if sent else (None, "-")
        # The price is as old as the file that states it.
        as_of = datetime.datetime.fromtimestamp(job_files.modified_at(entry.path), datetime.UTC).date()
        sender = Sender(name=self.name, target=target, prices=entry.host.prices, as_of=as_of, trusted=trusted)
        variables = {SENDER_VARIABLE: sender.to_json_text()}
        if gpus is not None:
            variables[VISIBLE_VARIABLE] = ",".join(map(str, gpus))
        exports = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        python, terms_program = f'"$HOME/{remote.PYTHON}"', shlex.quote(TERMS_PROGRAM)
        self._run(START_SCRIPT, ID=folder.id, TREE=tree, EXPORTS=exports, PYTHON=python, TERMS=terms_program)

    def poll(self, job: str, stdout_bytes: int = 0, stderr_bytes: int = 0) -> PollResult:
        """State of a job, and its output after the bytes of each stream that are known already. A job that did not
        begin within `START_LIMIT_S` is `lost`. The machine is not trusted: raises WorkFailed if the answer does
        not match `POLL_ANSWER`."""
        out, talk = str(stdout_bytes), str(stderr_bytes)
        lines = self._run(POLL_SCRIPT, ID=job, CHUNK=str(CHUNK_BYTES), OUT=out, TALK=talk)
        match = POLL_ANSWER.fullmatch(lines[0]) if len(lines) >= 4 else None
        if match is None:
            raise WorkFailed("the machine answers nonsense", "run the same command again")
        _, stdout_text, stderr_text, start_error, *_ = lines
        stdout = base64.b64decode(stdout_text.encode())[:CHUNK_BYTES]
        stderr = base64.b64decode(stderr_text.encode())[:CHUNK_BYTES]
        exit_code = int(match["rc"]) if match["rc"] != "-" else None
        state: State = "lost"
        if exit_code is not None:
            state = "done" if exit_code in job_files.ANSWER_EXIT_CODES else "failed"
        elif match["state"] == "running":
            state = "running"
        elif match["state"] == "queued" and int(match["age"]) <= START_LIMIT_S:
            state = "queued"
        has_more_stdout = stdout_bytes + len(stdout) < int(match["out"])
        has_more_stderr = stderr_bytes + len(stderr) < int(match["talk"])
        has_more, is_gone = has_more_stdout or has_more_stderr, match["state"] == "gone"
        return PollResult(state, exit_code, stdout, stderr, has_more, start_error, is_gone)

    def cancel(self, job: str) -> None:
        """Ask a job to end, as Ctrl-C does."""
        self._run(f"[ ! -d jobs/{job} ] || touch jobs/{job}/{job_files.CANCEL} || exit 1")

    def bundle_branches(self, job: str, tree: str) -> None:
        """Write the session branches of a project to a git bundle next to the job's results."""
        self._run(BUNDLE_SCRIPT, ID=job, TREE=tree)

    def fetch_results(self, folder: JobFolder, *more_files: str, past: Sequence[str] = ()) -> None:
        """Fetch a job's results and `more_files`, without the sessions in `past`, which were sent from here. Also
        records the machine's local name and its price of an hour."""
        files = (job_files.RESULTS, job_files.MANIFEST, job_files.WHERE, TERMS_FILE, *more_files)
        excluded = [f"{job_files.RESULTS}/{name}" for name in past]
        source, limit = f"{LOOP_FOLDER}/jobs/{folder.id}", MAX_FILE_BYTES
        self.fetch(source, folder.path, max_bytes=limit, included=files, excluded=excluded)
        prices = self.entry.host.prices
        # Terms: whether the machine runs on demand or as a spot machine.
        _, terms = read_terms(read_text(folder.path / TERMS_FILE))
        price = prices.usd_and_terms(terms)[0] if prices else None
        device = folder.device or Where(host=self.name)
        device = device.model_copy(update={"host": self.name, "usd_per_hour": price})
        write_sealed(folder.path / job_files.WHERE, device)

    def remove(self, *jobs: str) -> None:
        """End jobs that still run, then remove the folders of all these jobs."""
        self._run(REMOVE_SCRIPT, limit_s=60, JOBS=" ".join(f"jobs/{job}" for job in jobs))

    def list_running(self) -> list[str]:
        """Ids of all jobs that run there, including those that other users of the account sent."""
        script = 'for job in jobs/*/; do [ ! -e "$job/rc" ] && alive "$job" && basename "$job"; done; true'
        return [name for name in self._run(script) if name]


HOSTS_VARIABLE = "LOOP_HOSTS"
"""Environment variable: names of machines, comma-separated; unset: all of the user's."""
AWAY_LIMIT_S = 120.0  # Seconds without an answer after which a machine loses its jobs.
POLL_S = 0.3
REMOVE_LIMIT_S = 30.0  # Seconds that a machine has to answer when its last jobs are removed.


def check() -> None:
    """Raise UsageError if no machine is named, or a name is unknown."""
    _choose_hosts()


def _choose_hosts() -> list[HostEntry]:
    """The machines that LOOP_HOSTS names, by default all of the user's. Raises UsageError if there are none."""
    entries = remote.read_hosts(None)
    names = list(filter(None, os.environ.get(HOSTS_VARIABLE, "").split(","))) or [*entries]
    if not names:
        raise UsageError(f"--executor ssh: no hosts: there is no {HOSTS_FILE}", hint="loop hosts --help")
    return [remote.choose_host(entries, name) for name in dict.fromkeys(names)]


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs of the chosen machines (see `HOSTS_VARIABLE`). Skips a machine that does not
    answer or has a full disk; raises MachineFailure if all are skipped."""
    usable: list[Slot] = []
    failures: list[MachineFailure] = []
    for entry in _choose_hosts():
        if len(usable) == width:
            break
        try:
            with RemoteJobs(entry) as connection:
                _, free_kb = connection.check_ready()
                if free_kb << 10 < MIN_FREE_BYTES:
                    raise connection.disk_full_error()
        except MachineFailure as error:
            failures.append(error)
            continue
        gpus = entry.host.gpus or (None,)
        usable += [SshSlot(entry, gpu) for gpu in gpus[: width - len(usable)]]
        if entry.host.stop or entry.cost_text:
            cost = f", and costs {entry.cost_text}" if entry.cost_text else ""
            advice = f"loop hosts stop {entry.name}" if entry.host.stop else "stop it yourself"
            remark_once(f"{entry.name} goes on running when all is over{cost}; then: {advice}")
    if failures and not usable:
        raise failures[0]
    for failure in failures:
        remark_once(f"{failure.message}: the others do its jobs")
    return usable


class SshSlot(Slot):
    """One GPU of a machine, over its own connection. `number`: GPU index; None: any GPU."""

    def __init__(self, host: HostEntry, number: int | None = None) -> None:
        self.host, self.connection = host.name, RemoteJobs(host)
        self.gpus = None if number is None else (number,)
        self.stale_jobs: set[str] = set()
        """Ids of jobs on the machine that nothing here waits for any longer."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Send a job, poll until it ends, and fetch its results. Raises WorkFailed if its process died there. If
        the machine stays away or a person has to mend it, also sets `trouble`."""
        connection, is_cancelled = self.connection, False
        try:
            retry_unreachable(self._remove_stale_jobs, AWAY_LIMIT_S)
            self.stale_jobs.add(job.id)
            retry_unreachable(lambda: connection.submit(job, trusted_hashes(job), self.gpus), AWAY_LIMIT_S)
            while True:
                state = retry_unreachable(lambda: connection.poll(job.id), AWAY_LIMIT_S).state
                if state not in ("queued", "running"):
                    break
                if job.is_cancelled and not is_cancelled:
                    retry_unreachable(lambda: connection.cancel(job.id), AWAY_LIMIT_S)
                    is_cancelled = True
                time.sleep(POLL_S)
            if state == "lost":
                raise WorkFailed(f"the process that ran it on {self.host} died")
            files = (job_files.STDOUT, job_files.STDERR, job_files.EXIT_CODE, job_files.TRIES)
            retry_unreachable(lambda: connection.fetch_results(job, *files), AWAY_LIMIT_S)
        except (MachineFailure, UsageError) as error:  # A person has to fix it, or it is away.
            reason = f"{self.host} stays away" if isinstance(error, Unreachable) else error.message
            remark_once(f"{reason}: its jobs are done elsewhere")
            self.trouble = error
            raise
        self.uuid = job.device.uuid if job.device else ""

    def _remove_stale_jobs(self) -> None:
        """End the stale jobs on the machine and remove their folders."""
        if self.stale_jobs:
            self.connection.remove(*self.stale_jobs)
            self.stale_jobs.clear()

    def try_recovery(self) -> bool:
        """True if the machine answers again after it was away."""
        if isinstance(self.trouble, Unreachable):
            with contextlib.suppress(LoopError):
                self._remove_stale_jobs()
                self.trouble = None
        return self.trouble is None

    def close(self) -> None:
        """End and remove the jobs still there (one try if it has trouble); close the connection."""
        with self.connection, contextlib.suppress(LoopError):
            retry_unreachable(self._remove_stale_jobs, 0.0 if self.trouble else REMOVE_LIMIT_S)


def trusted_hashes(job: JobFolder) -> tuple[str, ...]:
    """Hashes of the definitions of all targets among a job's input files: its user trusts them."""
    manifests = [job.path / job_files.SOURCES / name for name in job.task.files if Path(name).name == MANIFEST]
    return tuple(definition_hash(Project(path.parent, path.parent, bundled=False)) for path in manifests)
