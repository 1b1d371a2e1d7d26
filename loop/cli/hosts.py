"""`--on HOST`, `loop hosts` and `loop jobs`: runs commands on machines of `hosts.yaml`, and lists both.

A command with `--on` becomes a job there: `run_on_host` sends the project and starts it, `follow` shows
its output and brings its session back. The machine may then be stopped.
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

from loop.base.documents import content_hash, write_atomic
from loop.base.documents.sums import write_sealed
from loop.base.errors import (
    ExitCode,
    LoopError,
    MachineFailure,
    Stopped,
    UsageError,
    WorkFailed,
    remark_once,
)
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
from loop.library.definitions import Project, find_project
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.dtypes import Device
from loop.model.record import JobRun
from loop.money import decisions
from loop.report import format as say
from loop.report.screen import Screen
from loop.repository.worktree import (
    fetch_session_branches,
    git_config_to_send,
    list_files_to_send,
    root_of,
)
from loop.steps.setting import ask_for_session_trust, trusted_setting
from loop.store import sessions
from loop.store.sessions import HEAD, SessionFolder

POLL_S = 0.5  # Seconds between two polls of a job. A poll takes 23 ms of the other machine.
GIVE_UP_S = 3600.0 * 12  # Seconds without an answer after which a machine is given up.
COMMAND_S = 900.0  # Time limit of the commands `start:` and `stop:` in seconds.
TTL_S = (
    12 * 3600.0
)  # Seconds after which a job without a budget is ended, because its user may never come back.
AFTER_BUDGET_S = 1800.0  # Seconds that a job may go on after its budget, to finish its report, before it is ended.
LARGEST_BYTES = 2 << 30  # The largest project that is sent, in bytes.
SPARE_KB = 512 << 10  # KiB of free disk that a job needs in addition to the files that are sent.
SENT_SESSIONS = (
    20  # How many of the newest sessions are sent: the job predicts time and cost from them.
)
UNSENT = ("lock", ".reserve")  # Files of a session that mean something on this machine only.
MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
CHECK_COMMAND = "kernels check"  # After this command the machine keeps running, because its user goes on editing.
START_LIMIT_S = 600.0  # Seconds for a machine to answer after its `start:`.


def follow_job(job: str, screen: Screen, *, cancel: bool) -> int:
    """Follow a job that was sent away, by its id, prefix or `last`, as `follow` does; returns its exit code.
    `cancel`: end it first; 0 is returned at once if another process follows it, and so will bring back its
    results. Raises UsageError unless exactly one matches."""
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
            screen.say(
                f"job {folder.id} ends; {busy.holder} follows it, and brings back what it made"
            )
            return ExitCode.OK


def follow(folder: JobFolder, sent: SentJob, connection: Connection, screen: Screen) -> int:
    """Print the output of a job on another machine until it ends, fetch its results, and return its exit
    code. Ctrl-C stops following, not the job. Raises LockHeld if another process follows it."""
    machine = connection.host
    with locked(folder.path / job_files.LOCK):
        if folder.exit_code is not None:
            raise UsageError(f"job {folder.id} was brought back", hint="loop sessions list")
        try:
            state, code = _print_output(folder, sent, connection, screen)
        except Stopped:
            cost = f", and {machine.name} costs {machine.cost_text}" if machine.cost_text else ""
            screen.say(f"job {folder.id} still runs on {machine.name}{cost}")
            screen.say(f"  follow it: loop jobs follow {folder.id}")
            screen.say(f"  end it: loop jobs follow {folder.id} --cancel")
            raise
        return _bring_back(folder, sent, connection, screen, state, code)


def _print_output(
    folder: JobFolder, sent: SentJob, connection: Connection, screen: Screen
) -> JobState:
    """Print a job's output line by line until it ends, and append it to its local `stdout` and `stderr`, whose
    whole lines were printed before. Returns the last answer of `poll`. Raises Unreachable after `GIVE_UP_S`."""

    def report_lost(reason: str) -> None:
        """Say that the machine does not answer: each reason once, for an outage can take hours."""
        screen.status(reason)
        remark_once(f"{reason}; the job goes on there, and so does this command")

    def poll() -> JobState:
        """The answer of `poll`. Also fetches what the job printed until then, and was not fetched before."""
        state, code = connection.poll(folder.id)
        if state != "gone":
            source = f"{ssh.LOOP_FOLDER}/jobs/{folder.id}"
            connection.fetch(source, folder.path, STDOUT, STDERR, options=["--append"])
        return state, code

    home_there = f"{sent.home}/{ssh.LOOP_FOLDER}"
    local_paths = {
        f"{home_there}/jobs/{folder.id}/{job_files.SESSIONS}": sent.sessions
    }  # By remote path.
    if sent.root:
        local_paths[f"{home_there}/trees/{sent.tree}"] = sent.root
    with (folder.path / STDERR).open("a+b") as errors, (folder.path / STDOUT).open("a+b") as output:
        for file in (errors, output):
            file.seek(0)
            file.seek(file.read().rfind(b"\n") + 1)
        while True:
            state, code = retry_unreachable(poll, GIVE_UP_S, report_lost)
            for file, show in ((errors, screen.say), (output, screen.data)):
                while line := file.readline():
                    if state == "running" and not line.endswith(b"\n"):
                        file.seek(-len(line), os.SEEK_CUR)  # It has not ended yet.
                        break
                    text = line.decode(errors="replace").removesuffix("\n")
                    for remote_path, local_path in local_paths.items():
                        text = text.replace(remote_path, local_path)
                    show(text)
            if state != "running":
                return state, code
            time.sleep(POLL_S)


def _bring_back(
    folder: JobFolder,
    sent: SentJob,
    connection: Connection,
    screen: Screen,
    state: str,
    code: int | None,
) -> int:
    """Fetch an ended job's sessions and branches, remove it there, keep or stop the machine, and return the exit
    code; 1 also if `stop:` failed. May be repeated until it succeeds. `state`, `code`: as of `Connection.poll`.
    Raises MachineFailure for a job without exit code (it was lost), and for one that a signal killed."""
    session_folders: list[Path] = []
    bundle = folder.path / ssh.BUNDLE_FILE
    past = [f"{job_files.SESSIONS.rpartition('/')[2]}/{name}" for name in sent.past]
    try:
        if state != "gone":
            if sent.root:
                bundle_branches = partial(connection.run_script, ssh.BUNDLE_SCRIPT)
                retry_unreachable(lambda: bundle_branches(ID=folder.id, TREE=sent.tree), GIVE_UP_S)
            retry_unreachable(lambda: connection.fetch_results(folder, past=past), GIVE_UP_S)
            if code is not None:  # A lost job has no manifest to compare its files with.
                folder.verify_results(past)
            session_folders = ssh.import_job_sessions(folder, sent)
    except LoopError:  # Do not stop the machine: its disk may hold the only copy.
        retry = f"its results are not here; try again: loop jobs follow {folder.id}"
        screen.say(f"{sent.host} STILL RUNS AND COSTS: {retry}")
        screen.say(f"  give them up: loop hosts stop {sent.host}")
        raise
    for session in session_folders:
        screen.say(f"brought back from {sent.host}: {os.path.relpath(session)}")
    if state != "gone" and sent.root and bundle.exists():
        try:
            branches = fetch_session_branches(Path(sent.root), bundle)
            if branches:
                screen.say(f"branches from {sent.host}: {', '.join(branches)}")
        except LoopError as error:  # Nothing is lost: the session's folder has the patch.
            screen.say(f"{error.message}; the branches are in {bundle}")
    write_atomic(folder.path / job_files.EXIT_CODE, str(ExitCode.PAUSED if code is None else code))
    connection.remove(folder.id)
    has_stop_failed = False
    if sent.last:
        try:
            keep_or_stop_machine(folder, sent, connection, session_folders, screen)
        except LoopError as error:  # The command's own result is printed already.
            screen.fail(error)
            has_stop_failed = True
    if code is None or code < 0:  # Killed by a signal, or no exit code was written.
        heads = [
            SessionFolder(session).head()
            for session in session_folders
            if (session / HEAD).is_file()
        ]
        hint = heads[0].resume_command if heads else "run the same command again"
        start_error = job_files.last_line(folder.path / ssh.START_LOG)
        reason = "its folder is not there any more" if state == "gone" else start_error
        reason = reason or "it was killed, as for lack of memory, or the machine was started again"
        raise MachineFailure(f"job {folder.id} was lost on {sent.host}: {reason}", hint=hint)
    return code or (ExitCode.GATE_FAILED if has_stop_failed else ExitCode.OK)


def keep_or_stop_machine(
    folder: JobFolder,
    sent: SentJob,
    connection: Connection,
    session_folders: list[Path],
    screen: Screen,
) -> None:
    """Keep the machine after a job, or stop it where that is cheaper than idling; print the costs.
    A machine on which other jobs run, or that has neither price nor `stop:`, stays. `session_folders`:
    sessions of the job. Raises WorkFailed if `stop:` fails, for the machine goes on costing."""
    machine = connection.host
    rate_usd, name = machine.usd_per_hour, machine.name
    if rate_usd is None and machine.stop is None:
        return
    others = [job for job, _ in ssh.list_sent_jobs(name) if job.id != folder.id]
    other_jobs = connection.list_running()
    other_jobs += [
        job.id for job in others if is_locked(job.path / job_files.LOCK)
    ]  # Those are being sent.
    if other_jobs:
        screen.say(f"{name} stays: {other_jobs[0]} runs there")
        return
    decision: Literal["keep", "stop"] = "stop"
    if rate_usd:
        screen.say(f"{name} costs {machine.cost_text} while it runs:")
        # Cost of a stop and hours between sessions are measured by the local sessions on the same device.
        device: Device = (
            SessionFolder(session_folders[-1]).head().device if session_folders else "cuda"
        )
        rows = sessions.rows(Path(sent.sessions), last=sessions.RECENT_SESSIONS)
        measured = [row for row in rows if not row.recorded and row.device == device]
        card = rates(find_project(Path(sent.project) if sent.project else None, Path.cwd()))
        stop_cost = decisions.measured_stop(measured, device, card, rate_usd)
        decision, lines = decisions.weigh_leaving(
            rate_usd, stop_cost, decisions.gap_hours(measured)
        )
        for line in lines:
            screen.say(f"  {line}")
    if decision == "keep" or sent.keep_host:
        screen.say(
            f"{name} is kept" + (f"; stop it then: loop hosts stop {name}" if machine.stop else "")
        )
    elif machine.stop is None:
        screen.say(
            f"{name} goes on costing money: hosts.yaml has no `stop:` for it; stop it yourself"
        )
    else:
        stop_machine(machine, screen)


def stop_machine(machine: Host, screen: Screen) -> None:
    """Run the machine's `stop:` command. Raises WorkFailed if it has none, or fails: it goes on costing."""
    warning = f"{machine.name} STILL RUNS AND COSTS {machine.cost_text or 'money'}"
    if machine.stop is None:
        raise WorkFailed(f"{warning}: {hosts_path()} has no `stop:` for it", "stop it yourself")
    screen.say(f"stopping {machine.name}: {machine.stop}")
    try:
        run_machine_command(machine.stop)
    except LoopError as error:
        raise WorkFailed(
            f"{warning}: {error.message}", f"stop it yourself: {machine.stop}"
        ) from error
    screen.say(f"{machine.name} is stopped")


def run_machine_command(command: str) -> None:
    """Run a machine's `start:` or `stop:` command here, for it may be off. Raises WorkFailed if it fails."""
    completed = run_to_end(run(["sh", "-c", command], limit_s=COMMAND_S, env=dict(os.environ)))
    if not completed.succeeded:
        lines = [line.strip() for line in completed.errors.splitlines() if line.strip()]
        reason = lines[-1] if lines else completed.ending
        raise WorkFailed(
            f"{hosts_path()}: `{command}` failed: {reason[:300]}", hint="run it yourself"
        )


def run_on_host(command: Command, values: Mapping[str, Any], screen: Screen) -> int:
    """Run a command on the `--on` machine: send the project, start a job, follow it. Returns its exit code.
    Raises LockHeld while an earlier job of the project still has results there."""
    if not values.get("on"):
        raise UsageError(
            "--keep-host is for the machine that --on names", hint="--on HOST --keep-host"
        )
    setting = trusted_setting(values.get("target"), screen)
    project, resumed = setting.project, None
    if trust.read_origin(project.target):
        raise UsageError(
            "--on: a task of another format is judged here only", "loop targets inspect TASK"
        )
    machine = find_host(str(values["on"]))
    if values.get("resume"):
        resumed = sessions.find_session(project.sessions, values["resume"])
        ask_for_session_trust(resumed.path, resumed.head(), setting, screen)
    # The bundled target is sent only from a source checkout of loop: elsewhere nobody edits it.
    is_sent = not project.bundled or (PACKAGE.parent / "pyproject.toml").is_file()
    root = (
        (root_of(project.target) or project.target).resolve()
        if is_sent
        else root_of(Path.cwd().resolve())
    )
    files = list_project_files(root, project.sessions) if root else []
    if unfetched := unfetched_job(machine, project.sessions, tree_name(root), resumed):
        raise ssh.tree_in_use_error(machine.name, unfetched.id)
    lock_folder = state_folder() / "trees"
    lock_folder.mkdir(parents=True, exist_ok=True)
    with connection_to(machine, screen) as connection:
        # Two commands must not send the same project to one machine at a time.
        with locked(lock_folder / f"{machine.name}-{tree_name(root)}"):
            folder, sent = _send_job(command, values, project, root, files, resumed, connection)
        screen.say(f"on {machine.name}: job {folder.id}")
        return follow(folder, sent, connection, screen)


def list_project_files(root: Path, sessions_folder: Path) -> list[Path]:
    """The files of a checkout that are sent: without what git ignores, and without sessions, which are sent
    separately. Raises UsageError if they exceed `LARGEST_BYTES`."""
    session_folders = {head.parent for head in sessions_folder.glob(f"*/{sessions.HEAD}")}
    paths = [root / name for name in list_files_to_send(root)]
    files = [path for path in paths if session_folders.isdisjoint(path.parents)]
    size_bytes = sum(os.lstat(path).st_size for path in files)
    if size_bytes > LARGEST_BYTES:
        size = f"{size_bytes >> 20} MiB would be sent, more than {LARGEST_BYTES >> 20}"
        raise UsageError(f"{root}: {size}", hint="name what nobody needs there in .gitignore")
    return files


def tree_name(root: Path | None) -> str:
    """Name of a checkout's folder on the other machine. Two machines that send there use different folders."""
    if root is None:
        return "none"
    machine_ids = [read_text(Path(file)).strip() for file in MACHINE_IDS]
    machine = next(filter(None, machine_ids), os.uname().nodename)
    safe_name = re.sub("[^A-Za-z0-9]", "-", root.name)[:40] or "root"
    return f"{safe_name}-{content_hash([machine, str(root)])[:12]}"


def _send_job(
    command: Command,
    values: Mapping[str, Any],
    project: Project,
    root: Path | None,
    files: Sequence[Path],
    resumed: SessionFolder | None,
    connection: Connection,
) -> tuple[JobFolder, SentJob]:
    """Send a project and its sessions, and start the command there as a job. `root`: the git checkout around the
    project, else its folder; None for the bundled target, which the other machine has. `files`: of `root`.
    `resumed`: the session that goes on there. Returns the job, and where it was sent. Raises UsageError without
    disk space, LockHeld while a job of this project runs."""
    home, free_kb = connection.check_ready()
    size_bytes = sum(os.lstat(path).st_size for path in files if os.path.lexists(path))
    needed_kb = (size_bytes >> 10) + SPARE_KB
    if free_kb < needed_kb:
        message = f"{connection.name} has {free_kb >> 10} MiB free; {needed_kb >> 10} are needed"
        raise UsageError(
            message, f"free some there: {connection.ssh_command} 'du -sh {ssh.LOOP_FOLDER}/*'"
        )
    tree, here, git_config = (
        tree_name(root),
        Path.cwd().resolve(),
        git_config_to_send(root) if root else "",
    )
    # The sessions that are sent: the resumed one, the newest, and older ones that `loop` still reads.
    newest = sessions.list_sessions(project.sessions)[-SENT_SESSIONS:]
    ids = {
        *sessions_needed(project.sessions),
        *(session.id for session in (*newest, *filter(None, [resumed]))),
    }
    past = sorted(name for name in ids if ssh.SESSION_NAME.fullmatch(name))
    paths = (path for name in past for path in (project.sessions / name).rglob("*"))
    past_files = [
        str(path.relative_to(project.sessions)) for path in paths if path.name not in UNSENT
    ]
    names = [path.relative_to(root or PACKAGE).as_posix() for path in files]
    retry_unreachable(lambda: connection.send_tree(f"{tree}.past", project.sessions, past_files))
    retry_unreachable(lambda: connection.send_tree(tree, root or PACKAGE, names, git_config))
    options = {name: value for name, value in values.items() if name not in ("on", "keep_host")}
    title = shlex.join(["loop", *command.command_line({**options, "target": None})]).replace(
        " -- ", " "
    )
    folder_there = project_there = f"{home}/{ssh.LOOP_FOLDER}/trees/{tree}"
    trusted = list[str]()  # The other machine trusts what is allowed here.
    if root is not None and here.is_relative_to(root):
        folder_there = f"{project_there}/{here.relative_to(root).as_posix()}"
    if root is not None and (not project.bundled or (PACKAGE.parent / "pyproject.toml").is_file()):
        options["target"] = (
            f"{project_there}/{project.target.resolve().relative_to(root).as_posix()}"
        )
        trusted.append(trust.definition_hash(project))
    if resumed is not None:
        options["resume"] = resumed.id
        trusted.append(trust.digest_of(trust.session_commands(resumed.head())))
    minutes = options.get("budget_minutes") or options.get("max_minutes")
    job = Job(
        id=f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{os.urandom(3).hex()}",
        words=tuple(command.command_line(options)),
        title=title,
        folder=folder_there,
        ttl_s=60 * float(minutes) + AFTER_BUDGET_S if minutes else TTL_S,
    )
    sent = SentJob(
        host=connection.name,
        project=None if project.bundled else str(project.target),
        sessions=str(project.sessions),
        root=str(root or ""),
        tree=tree,
        home=home,
        past=tuple(name for name in past if resumed is None or name != resumed.id),
        # After the last command that needs the machine, it may be stopped.
        last=command.words != CHECK_COMMAND and not options.get("dry_run"),
        keep_host=bool(values.get("keep_host")),
    )
    folder, gpus = create_job(job), connection.host.gpus
    with locked(folder.path / job_files.LOCK):  # Nobody follows it before it is there.
        write_sealed(folder.path / job_files.SENT, sent)
        retry_unreachable(lambda: connection.submit(folder, tuple(trusted), gpus))
    return folder, sent


def unfetched_job(
    machine: Host, root: Path, tree: str, resumed: SessionFolder | None
) -> JobFolder | None:
    """A job on a machine whose results must be fetched before another is sent; else None. It has the same checkout
    (`tree`), whose branches would be lost; or, if a session is resumed, the same folder of sessions (`root`)."""
    for folder, sent in ssh.list_sent_jobs(machine.name):
        if (sent.root and sent.tree == tree) or (resumed and sent.sessions == str(root)):
            return folder
    return None


@contextlib.contextmanager
def connection_to(machine: Host, screen: Screen) -> Iterator[Connection]:
    """An open connection to a machine. One that does not answer is started first, if it has a `start:`."""
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
    """Run the job in a folder, unless it has ended. Returns it, and its exit code: 128 + N after signal N."""
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
            screen.say(
                f"no hosts; write {hosts_path()}: format: 1, hosts: {{gpu: {{ssh: me@ADDRESS}}}}"
            )
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
    """Install this `loop` on a machine. Raises UsageError if it lacks what `loop` needs, or runs a job."""
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
