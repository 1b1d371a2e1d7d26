"""`--on HOST`, `loop hosts` and `loop jobs`: runs commands on machines of `hosts.yaml`; lists both.

A command with `--on` becomes a job there: `run_on_host` sends the project and starts it, `follow`
shows its output and brings its session back. The machine may then be stopped.
"""

import contextlib
import datetime
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from loop.base import errors
from loop.base.documents import content_hash, write_atomic
from loop.base.documents.sums import write_sealed
from loop.base.errors import ExitCode, LoopError, Stopped, UsageError, WorkFailed, remark_once
from loop.base.locks import LockHeld, is_locked, locked
from loop.base.places import PACKAGE, state_folder
from loop.base.processes import run, run_to_end
from loop.cli.command import Command
from loop.cloud.hosts import Host, find_host, hosts_path, read_hosts
from loop.jobs import executor, ssh
from loop.jobs import folder as job_files
from loop.jobs.folder import STDERR, STDOUT, Job, JobFolder, create_job, read_text
from loop.jobs.ssh import Connection, JobState, SentJob, Unreachable, retry_unreachable
from loop.learning.next_plan import sessions_needed
from loop.library import trust
from loop.library.definitions import find_project
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.dtypes import Device
from loop.model.record import JobRun
from loop.money import decisions
from loop.report import format as say
from loop.report.screen import Screen
from loop.repository import worktree
from loop.steps.setting import ask_for_session_trust, trusted_setting
from loop.store import sessions
from loop.store.sessions import HEAD, SessionFolder

POLL_S = 0.5  # Seconds between two polls of a job. A poll takes 23 ms of the other machine.
GIVE_UP_S = 3600.0 * 12  # Seconds without an answer after which a machine is given up.
COMMAND_S = 900.0  # Time limit of the commands `start:` and `stop:` in seconds.
TTL_S = 12 * 3600.0  # Seconds after which a job without a budget is ended: its user may be gone.
AFTER_BUDGET_S = 1800.0  # Seconds for a job to finish its report after its budget, then it ends.
LARGEST_BYTES = 2 << 30  # The largest project that is sent, in bytes.
SPARE_KB = 512 << 10  # KiB of free disk that a job needs in addition to the files that are sent.
SENT_SESSIONS = 20  # How many of the newest sessions are sent, from which the job predicts time.
UNSENT = ("lock", ".reserve")  # Files of a session that mean something on this machine only.

CHECK_COMMAND = "kernels check"  # The machine runs on after it: its user goes on editing.
START_LIMIT_S = 600.0  # Seconds for a machine to answer after its `start:`.
Values = Mapping[str, Any]  # Of a command's parameters, by name.


def follow_job(job: str, screen: Screen, *, cancel: bool) -> int:
    """Follow a job that was sent away, by its id, prefix or `last`: see `follow`. `cancel`: end it
    first; 0 at once if another process follows it. Raises UsageError unless exactly one matches."""
    jobs = {folder.id: (folder, sent) for folder, sent in ssh.list_sent_jobs()}
    matches = [*jobs][-1:] if job == "last" else [name for name in jobs if name.startswith(job)]
    if len(matches) != 1:
        message = "no job is away" if job == "last" else f"no job {job!r} is on another machine"
        raise UsageError(message, hint=f"there are {', '.join(jobs)}" if jobs else "loop hosts")
    folder, sent = jobs[matches[0]]
    with Connection(find_host(sent.host)) as connection:
        if cancel:
            connection.cancel(folder.id)
        try:
            return follow(folder, sent, connection, screen)
        except LockHeld as busy:
            if not cancel:
                raise
            screen.say(f"job {folder.id} ends; {busy.holder} follows it, and brings it back")
            return ExitCode.OK


def follow(job: JobFolder, sent: SentJob, connection: Connection, screen: Screen) -> int:
    """Print the output of a job on another machine until it ends, fetch its results, and return its
    exit code. Ctrl-C stops following, not the job. Raises LockHeld if another process follows."""
    machine = connection.host
    with locked(job.path / job_files.LOCK):
        if job.exit_code is not None:
            raise UsageError(f"job {job.id} was brought back", hint="loop sessions list")
        try:
            ending = _tail_output(job, sent, connection, screen)
        except Stopped:
            cost = f", and {machine.name} costs {machine.cost_text}" if machine.cost_text else ""
            screen.say(f"job {job.id} still runs on {machine.name}{cost}")
            screen.say(f"  follow it: loop jobs follow {job.id}")
            screen.say(f"  end it: loop jobs follow {job.id} --cancel")
            raise
        return _bring_back(job, sent, connection, screen, ending)


def _tail_output(job: JobFolder, sent: SentJob, connection: Connection, screen: Screen) -> JobState:
    """Print a job's output until it ends, and append it to its `stdout` and `stderr` here, whose
    whole lines were printed before. Returns how it ended. Raises Unreachable after `GIVE_UP_S`."""
    folder_there = f"{ssh.LOOP_FOLDER}/jobs/{job.id}"

    def report_lost(reason: str) -> None:
        """Say that the machine does not answer: each reason once, for an outage can take hours."""
        screen.status(reason)
        remark_once(f"{reason}; the job goes on there, and so does this command")

    def poll() -> JobState:
        """The answer of `Connection.poll`. Also fetches what the job has printed since the last."""
        state, code = connection.poll(job.id)
        if state != "gone":
            connection.fetch(folder_there, job.path, STDOUT, STDERR, options=["--append"])
        return state, code

    local_by_remote = {f"{sent.home}/{folder_there}/{job_files.SESSIONS}": sent.sessions}
    if sent.root:
        local_by_remote[f"{sent.home}/{ssh.LOOP_FOLDER}/trees/{sent.tree}"] = sent.root
    with (job.path / STDERR).open("a+b") as stderr, (job.path / STDOUT).open("a+b") as stdout:
        for file in (stderr, stdout):
            file.seek(0)
            file.seek(file.read().rfind(b"\n") + 1)
        while True:
            state, code = retry_unreachable(poll, GIVE_UP_S, report_lost)
            for file, show in ((stderr, screen.say), (stdout, screen.data)):
                while line := file.readline():
                    if state == "running" and not line.endswith(b"\n"):
                        file.seek(-len(line), os.SEEK_CUR)  # It has not ended yet.
                        break
                    text = line.decode(errors="replace").removesuffix("\n")
                    for remote_path, local_path in local_by_remote.items():
                        text = text.replace(remote_path, local_path)
                    show(text)
            if state != "running":
                return state, code
            time.sleep(POLL_S)


def _bring_back(
    job: JobFolder, sent: SentJob, connection: Connection, screen: Screen, ending: JobState
) -> int:
    """Fetch an ended job's sessions and branches, remove it there, keep or stop the machine, and
    return the exit code; 1 also if `stop:` failed. May be repeated until it succeeds. `ending`: of
    `Connection.poll`. Raises MachineFailure for a job that was lost, or killed by a signal."""
    state, code = ending
    session_paths = list[Path]()
    bundle = job.path / ssh.BUNDLE_FILE
    past = [f"{job_files.SESSIONS.rpartition('/')[2]}/{name}" for name in sent.past]
    try:
        if state != "gone":
            if sent.root:
                bundle_branches = partial(connection.run_script, ssh.BUNDLE_SCRIPT)
                retry_unreachable(lambda: bundle_branches(ID=job.id, TREE=sent.tree), GIVE_UP_S)
            retry_unreachable(lambda: connection.fetch_results(job, past=past), GIVE_UP_S)
            if code is not None:  # A lost job has no manifest to compare its files with.
                job.verify_results(past)
            session_paths = ssh.import_job_sessions(job, sent)
    except LoopError:  # Do not stop the machine: its disk may hold the only copy.
        retry = f"its results are not here; try again: loop jobs follow {job.id}"
        screen.say(f"{sent.host} STILL RUNS AND COSTS: {retry}")
        screen.say(f"  give them up: loop hosts stop {sent.host}")
        raise
    for path in session_paths:
        screen.say(f"brought back from {sent.host}: {os.path.relpath(path)}")
    if state != "gone" and sent.root and bundle.exists():
        try:
            branches = worktree.fetch_session_branches(Path(sent.root), bundle)
            if branches:
                screen.say(f"branches from {sent.host}: {', '.join(branches)}")
        except LoopError as error:  # Nothing is lost: the session's folder has the patch.
            screen.say(f"{error.message}; the branches are in {bundle}")
    write_atomic(job.path / job_files.EXIT_CODE, str(ExitCode.PAUSED if code is None else code))
    connection.remove(job.id)
    has_stop_failed = False
    if sent.last:
        try:
            keep_or_stop_machine(job, sent, connection, session_paths, screen)
        except LoopError as error:  # The command's own result is printed already.
            screen.fail(error)
            has_stop_failed = True
    if code is None or code < 0:  # Killed by a signal, or no exit code was written.
        heads = [SessionFolder(path).head() for path in session_paths if (path / HEAD).is_file()]
        hint = heads[0].resume_command if heads else "run the same command again"
        start_error = job_files.last_line(job.path / ssh.START_LOG)
        reason = "its folder is not there any more" if state == "gone" else start_error
        reason = reason or "it was killed, as for lack of memory, or the machine was started again"
        raise errors.MachineFailure(f"job {job.id} was lost on {sent.host}: {reason}", hint)
    return code or (ExitCode.GATE_FAILED if has_stop_failed else ExitCode.OK)


def keep_or_stop_machine(
    job: JobFolder, sent: SentJob, connection: Connection, session_paths: list[Path], screen: Screen
) -> None:
    """Keep the machine after a job, or stop it where that is cheaper than idling; print the costs.
    A machine on which other jobs run, or that has neither price nor `stop:`, stays.
    `session_paths`: sessions of the job. Raises WorkFailed if `stop:` fails: it goes on costing."""
    machine = connection.host
    rate_usd, name = machine.usd_per_hour, machine.name
    if rate_usd is None and machine.stop is None:
        return
    other_jobs = connection.list_running()
    for other, _ in ssh.list_sent_jobs(name):
        if other.id != job.id and is_locked(other.path / job_files.LOCK):  # It is being sent.
            other_jobs.append(other.id)
    if other_jobs:
        screen.say(f"{name} stays: {other_jobs[0]} runs there")
        return
    decision: Literal["keep", "stop"] = "stop"
    if rate_usd:
        screen.say(f"{name} costs {machine.cost_text} while it runs:")
        # Sessions here on the same device tell what a stop costs, and the hours between sessions.
        device: Device = "cuda"
        if session_paths:
            device = SessionFolder(session_paths[-1]).head().device
        rows = sessions.rows(Path(sent.sessions), last=sessions.RECENT_SESSIONS)
        rows = [row for row in rows if not row.recorded and row.device == device]
        card = rates(find_project(Path(sent.project) if sent.project else None, Path.cwd()))
        stop_cost = decisions.measured_stop(rows, device, card, rate_usd)
        decision, lines = decisions.weigh_leaving(rate_usd, stop_cost, decisions.gap_hours(rows))
        for line in lines:
            screen.say(f"  {line}")
    if decision == "keep" or sent.keep_host:
        advice = f"; stop it then: loop hosts stop {name}" if machine.stop else ""
        screen.say(f"{name} is kept{advice}")
    elif machine.stop is None:
        screen.say(f"{name} goes on costing: hosts.yaml has no `stop:` for it; stop it yourself")
    else:
        stop_machine(machine, screen)


def stop_machine(machine: Host, screen: Screen) -> None:
    """Run a machine's `stop:` command. Raises WorkFailed if it has none, or if it fails."""
    warning = f"{machine.name} STILL RUNS AND COSTS {machine.cost_text or 'money'}"
    command = machine.stop
    if command is None:
        raise WorkFailed(f"{warning}: {hosts_path()} has no `stop:` for it", "stop it yourself")
    screen.say(f"stopping {machine.name}: {command}")
    try:
        run_machine_command(command)
    except LoopError as error:
        raise WorkFailed(f"{warning}: {error.message}", f"stop it yourself: {command}") from error
    screen.say(f"{machine.name} is stopped")


def run_machine_command(command: str) -> None:
    """Run a `start:` or `stop:` command here: the machine may be off. Raises WorkFailed."""
    completed = run_to_end(run(["sh", "-c", command], limit_s=COMMAND_S, env=dict(os.environ)))
    if not completed.succeeded:
        lines = [line.strip() for line in completed.errors.splitlines() if line.strip()]
        reason = lines[-1] if lines else completed.ending
        message = f"{hosts_path()}: `{command}` failed: {reason[:300]}"
        raise WorkFailed(message, hint="run it yourself")


def run_on_host(command: Command, values: Values, screen: Screen) -> int:
    """Run a command on the `--on` machine: send the project, start a job, follow it. Returns its
    exit code. Raises LockHeld while an earlier job of the project still has results there."""
    if not values.get("on"):
        raise UsageError("--keep-host is for the machine of --on", hint="--on HOST --keep-host")
    setting = trusted_setting(values.get("target"), screen)
    project = setting.project
    if trust.read_origin(project.target):
        message = "--on: a task of another format is judged here only"
        raise UsageError(message, "loop targets inspect TASK")
    machine = find_host(str(values["on"]))
    options = {name: value for name, value in values.items() if name not in ("on", "keep_host")}
    trusted = list[str]()  # The other machine trusts what is allowed here.
    if options.get("resume"):
        resumed = sessions.find_session(project.sessions, options["resume"])
        ask_for_session_trust(resumed.path, resumed.head(), setting, screen)
        options["resume"] = resumed.id
        trusted.append(trust.digest_of(trust.session_commands(resumed.head())))
    # The bundled target is sent only from a source checkout of loop: elsewhere nobody edits it.
    is_sent = not project.bundled or (PACKAGE.parent / "pyproject.toml").is_file()
    root = worktree.root_of(project.target if is_sent else Path.cwd().resolve())
    if is_sent:
        root = (root or project.target).resolve()
        options["target"] = project.target.resolve().relative_to(root)
        trusted.append(trust.definition_hash(project))
    files = list_project_files(root, project.sessions) if root else []
    sent = SentJob(
        host=machine.name,
        project=None if project.bundled else str(project.target),
        sessions=str(project.sessions),
        root=str(root or ""),
        tree=tree_name(root),
        home="",
        # After the last command that needs the machine, it may be stopped.
        last=command.words != CHECK_COMMAND and not options.get("dry_run"),
        keep_host=bool(values.get("keep_host")),
    )
    if job := unfetched_job(machine, project.sessions, sent.tree, bool(options.get("resume"))):
        raise ssh.tree_in_use_error(machine.name, job.id)
    lock_folder = state_folder() / "trees"
    lock_folder.mkdir(parents=True, exist_ok=True)
    with connection_to(machine, screen) as connection:
        # Two commands must not send the same project to one machine at a time.
        with locked(lock_folder / f"{machine.name}-{sent.tree}"):
            sent = _send_files(connection, sent, files, options.get("resume"))
            job = _start_job(connection, sent, command, options, trusted)
        screen.say(f"on {machine.name}: job {job.id}")
        return follow(job, sent, connection, screen)


def list_project_files(root: Path, sessions_folder: Path) -> list[Path]:
    """The files of a checkout that are sent: without what git ignores, and without sessions, which
    are sent separately. Raises UsageError if they exceed `LARGEST_BYTES`."""
    session_folders = {head.parent for head in sessions_folder.glob(f"*/{sessions.HEAD}")}
    paths = [root / name for name in worktree.list_files_to_send(root)]
    files = [path for path in paths if session_folders.isdisjoint(path.parents)]
    size_bytes = sum(os.lstat(path).st_size for path in files)
    if size_bytes > LARGEST_BYTES:
        size = f"{size_bytes >> 20} MiB would be sent, more than {LARGEST_BYTES >> 20}"
        raise UsageError(f"{root}: {size}", hint="name what nobody needs there in .gitignore")
    return files


def tree_name(root: Path | None) -> str:
    """Name of a checkout's folder on the other machine, which no other sender uses."""
    if root is None:
        return "none"
    machine_id = read_text(Path("/etc/machine-id")) or read_text(Path("/var/lib/dbus/machine-id"))
    machine = machine_id.strip() or os.uname().nodename
    safe_name = re.sub("[^A-Za-z0-9]", "-", root.name)[:40] or "root"
    return f"{safe_name}-{content_hash([machine, str(root)])[:12]}"


def _send_files(
    connection: Connection, sent: SentJob, files: Sequence[Path], resumed: str | None
) -> SentJob:
    """Send `files` of a project and the sessions that its job reads: the resumed one (an id), the
    newest, and older ones. Returns `sent` with the home folder there and unchanged sessions. Raises
    UsageError without this loop or disk space there, LockHeld while a job of this project runs."""
    home, free_kb = connection.check_ready()
    size_bytes = sum(os.lstat(path).st_size for path in files if os.path.lexists(path))
    needed_kb = (size_bytes >> 10) + SPARE_KB
    if free_kb < needed_kb:
        message = f"{connection.name} has {free_kb >> 10} MiB free; {needed_kb >> 10} are needed"
        hint = f"free some there: {connection.ssh_command} 'du -sh {ssh.LOOP_FOLDER}/*'"
        raise UsageError(message, hint)
    root = Path(sent.root or PACKAGE)
    folder = Path(sent.sessions)
    git_config = worktree.git_config_to_send(root) if sent.root else ""
    newest = sessions.list_sessions(folder)[-SENT_SESSIONS:]
    ids = {resumed or "", *sessions_needed(folder), *(session.id for session in newest)}
    past = sorted(name for name in ids if ssh.SESSION_NAME.fullmatch(name))
    paths = (path for name in past for path in (folder / name).rglob("*"))
    past_files = [str(path.relative_to(folder)) for path in paths if path.name not in UNSENT]
    names = [path.relative_to(root).as_posix() for path in files]
    retry_unreachable(lambda: connection.send_tree(f"{sent.tree}.past", folder, past_files))
    retry_unreachable(lambda: connection.send_tree(sent.tree, root, names, git_config))
    unchanged = tuple(name for name in past if name != resumed)  # The resumed one comes back.
    return sent.model_copy(update={"home": home, "past": unchanged})


def _start_job(
    connection: Connection, sent: SentJob, command: Command, options: Values, trusted: list[str]
) -> JobFolder:
    """Start a command as a job on a machine that has its files. `options`: values of the command's
    parameters; `target` is below the project's root. `trusted`: hashes of what it may run."""
    place = Path(sent.home, ssh.LOOP_FOLDER, "trees", sent.tree)
    here = Path.cwd().resolve()
    is_inside = bool(sent.root) and here.is_relative_to(sent.root)
    title = shlex.join(["loop", *command.command_line({**options, "target": None})])
    if options.get("target"):
        options = {**options, "target": place / options["target"]}
    minutes = options.get("budget_minutes") or options.get("max_minutes")
    task = Job(
        id=f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{os.urandom(3).hex()}",
        words=tuple(command.command_line(options)),
        title=title.replace(" -- ", " "),
        folder=str(place / here.relative_to(sent.root) if is_inside else place),
        ttl_s=60 * float(minutes) + AFTER_BUDGET_S if minutes else TTL_S,
    )
    job = create_job(task)
    with locked(job.path / job_files.LOCK):  # Nobody follows it before it is there.
        write_sealed(job.path / job_files.SENT, sent)
        gpus = connection.host.gpus
        retry_unreachable(lambda: connection.submit(job, tuple(trusted), gpus))
    return job


def unfetched_job(machine: Host, folder: Path, tree: str, is_resume: bool) -> JobFolder | None:
    """A job on a machine whose results must be fetched before another is sent; else None: of the
    same checkout (`tree`), whose branches would be lost; for a resume, of the sessions `folder`."""
    for job, sent in ssh.list_sent_jobs(machine.name):
        if (sent.root and sent.tree == tree) or (is_resume and sent.sessions == str(folder)):
            return job
    return None


@contextlib.contextmanager
def connection_to(machine: Host, screen: Screen) -> Iterator[Connection]:
    """An open connection. A machine that does not answer is started first, if it has a `start:`."""
    with Connection(machine) as connection:
        try:
            connection.run_script("true")
        except Unreachable:
            if machine.start is None:
                raise
            screen.say(f"{machine.name} does not answer; starting it: {machine.start}")
            run_machine_command(machine.start)
            retry_unreachable(lambda: connection.run_script("true"), START_LIMIT_S, screen.status)
        yield connection


class JobList(Printed):
    """Jobs of this user on this machine, oldest first."""

    schema_version: int = 2
    jobs: tuple[JobRun, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        if not self.jobs:
            screen.say("no jobs: --executor and --on make some")
            return
        rows = []
        for job in self.jobs:
            state = f"{job.state}, {job.tries} times" if job.tries > 1 else job.state
            place = job.host if job.device == "cpu" else f"{job.device}, {job.host}"
            rows.append((job.id, state, job.title, place, f"{job.seconds:.0f}"))
        screen.table(("job", "state", "work", "where", "s"), rows, folded_column=2)


def run_job(folder: Path) -> tuple[JobList, int]:
    """Run the job in a folder, unless it has ended. Its exit code is 128 + N after signal N."""
    job = JobFolder(folder.absolute())
    code = executor.run_job(job)  # -N after signal N.
    return JobList(jobs=(job.run_record,)), code if code >= 0 else 128 - code


def list_jobs(limit: int) -> JobList:
    """The newest `limit` jobs. A damaged job is reported on stderr and left out."""
    jobs = list[JobRun]()
    for folder in job_files.list_jobs():
        try:
            jobs.append(folder.run_record)
        except LoopError as error:
            remark_once(f"{error.message}; {error.hint}")
    return JobList(jobs=tuple(jobs[-limit:]))


class HostList(Printed):
    """Machines of hosts.yaml."""

    schema_version: int = 2
    hosts: tuple[Host, ...]
    jobs: dict[str, tuple[str, ...]]
    """Name of a machine to the ids of the jobs whose results are still there."""
    lacks: tuple[str, ...] = ()
    """What the machine lacks, with the remedy; filled by `loop hosts setup` only."""

    @classmethod
    def of(cls, *machines: Host, lacks: tuple[str, ...] = ()) -> "HostList":
        """These machines with their jobs. `lacks`: what `set_up` missed on one, a line each."""
        jobs: dict[str, tuple[str, ...]] = {machine.name: () for machine in machines}
        for folder, sent in ssh.list_sent_jobs():
            if sent.host in jobs:
                jobs[sent.host] += (folder.id,)
        return cls(hosts=machines, jobs=jobs, lacks=lacks)

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        if not self.hosts:
            text = "format: 1, hosts: {gpu: {ssh: me@ADDRESS}}"
            screen.say(f"no hosts; write {hosts_path()}: {text}")
            return
        rows = []
        for host in self.hosts:
            price = say.usd(host.usd_per_hour) if host.usd_per_hour else "?"
            rows.append((host.name, host.ssh, price, ", ".join(self.jobs[host.name]) or "-"))
        screen.table(("host", "ssh", "an hour", "jobs there"), rows)


def list_hosts() -> HostList:
    """The machines of hosts.yaml. Opens no connection."""
    return HostList.of(*read_hosts().values())


def set_up(host: str, screen: Screen) -> HostList:
    """Install this `loop` on a machine. Raises UsageError if it lacks something, or runs a job."""
    machine = find_host(host)
    with connection_to(machine, screen) as connection:
        facts = ssh.ask_facts(connection)
        lacks = ssh.list_lacks(connection, facts)
        if running := connection.list_running():
            hint = f"wait for it, or end it: loop jobs follow {running[0]} --cancel"
            raise UsageError(f"{host}: job {running[0]} runs with the loop that is there", hint)
        for line in lacks:
            screen.say(f"{host}: {line}")
        wait = "" if facts["torch"] else "; torch takes minutes"
        folder = f"~/{ssh.LOOP_FOLDER}/venv"
        screen.say(f"{host}: installing loop into {folder}, over Python {facts['python']}{wait}")
        ssh.install(connection, facts)
    torch = f"torch {facts['torch']}" if facts["torch"] else "torch of its own"
    gpus = f"{facts['gpus']}, driver {facts['driver']}" if facts["gpus"] else "no GPU"
    screen.say(f"{host}: ready, with {torch} and {gpus}")
    screen.say(f"  next: loop run session --on {host}")
    return HostList.of(machine, lacks=tuple(lacks))


def stop(host: str, screen: Screen) -> HostList:
    """Run a machine's `stop:` command. Raises WorkFailed if it still runs."""
    machine = find_host(host)
    stop_machine(machine, screen)
    return HostList.of(machine)
