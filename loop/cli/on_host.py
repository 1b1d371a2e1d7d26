"""`--on HOST`: the same command on another machine, its lines on this screen, its session in this folder."""

import contextlib
import datetime
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import content_hash
from loop.base.errors import UsageError
from loop.base.locks import boot_id, locked
from loop.base.places import PACKAGE, Project, state_folder
from loop.base.screen import Screen
from loop.cli import following
from loop.cli.command import Command
from loop.cli.following import run_here
from loop.jobs import hosts as known
from loop.jobs import sent as noted
from loop.jobs.folder import LOCK, Job, JobFolder, prepare
from loop.jobs.hosts import Listed
from loop.jobs.remote import Connection, Unreachable, patiently
from loop.jobs.sent import Sent
from loop.jobs.setup import HOME
from loop.jobs.there import Busy, Ready, There
from loop.library import trust
from loop.library.hosted import VARIABLE, Hosted
from loop.library.made_of import made_of
from loop.machine.gpus import VISIBLE
from loop.repository import root_of
from loop.repository.carried import carried, settings
from loop.steps.setting import allow_session, trusted_setting
from loop.store import sessions
from loop.store.past_changes import needed
from loop.store.sessions import SessionFolder

TTL_S = 12 * 3600.0
"""Seconds after which a job without a budget is ended there: nobody may come back to it."""
AFTER_BUDGET_S = 1800.0
LARGEST_BYTES = 2 << 30
"""Bytes of a project that are sent at most."""
SPARE_KB = 512 << 10
"""KiB that a job needs there besides what is sent."""
PAST = 20
"""Newest sessions that are sent: the next one predicts from them."""
UNSENT = ("lock", ".reserve")
CHECK = "kernels check"
"""The command after which the machine is kept: its user goes on editing."""
STARTS_S = 600.0
"""Time for a machine to answer after it was started."""


def run(command: Command, values: Mapping[str, Any], screen: Screen) -> int:
    """Run a command on the machine that `--on` names: send the project, follow the job. Returns its exit code."""
    options = {name: value for name, value in values.items() if name not in ("on", "keep_until")}
    if not values.get("on"):
        raise UsageError("--keep-until is for the machine that --on names", hint="--on HOST --keep-until 16:00")
    until = following.until(values.get("keep_until"), datetime.datetime.now().astimezone())
    setting = trusted_setting(options.get("target"), screen)
    if made_of(setting.project.target):
        raise UsageError("--on: a task of another format is judged here only", hint="loop targets inspect TASK")
    (host, *_) = known.choose(known.hosts(own(setting.project)), str(values["on"]))
    resumed = sessions.find(setting.project.sessions, options["resume"]) if options.get("resume") else None
    if resumed is not None:  # What it runs is told there to be allowed.
        allow_session(resumed.path, resumed.head(), setting, screen)
    sending = _Sending.of(setting.project)
    if folder := _away(host, setting.project, sending, resumed):
        if resumed is None:  # Its branches are in the folder that would be replaced.
            raise Busy(host.name, folder.id)
        screen.say(f"job {folder.id} has not been brought back from {host.name} yet")
        return following.follow(folder, screen)
    with reached(host, screen) as there, contextlib.ExitStack() as sends:
        locks = state_folder() / "trees"
        locks.mkdir(parents=True, exist_ok=True)
        sends.enter_context(locked(locks / f"{host.name}-{sending.tree}"))
        ready = there.ready(sending.tree)
        _check(ready, sending, there, screen)
        project = f"{ready.home}/{HOME}/trees/{sending.tree}"
        if sending.target is not None:
            options["target"] = f"{project}/{sending.target}"
        past = _past(setting.project, resumed)
        root = setting.project.sessions
        every = (path for name in past for path in (root / name).rglob("*"))
        files = [path.relative_to(root).as_posix() for path in every if path.name not in UNSENT]
        config = settings(sending.root) if sending.root else ""
        folder = _prepared(command, options, f"{project}/{sending.cwd}", resumed)
        last = command.words != CHECK and not options.get("dry_run")
        going_on = resumed.id if resumed else ""
        sent = Sent(
            host=host.name,
            project=None if own(setting.project) is None else str(setting.project.target),
            sessions=str(root),
            root=str(sending.root or ""),
            tree=sending.tree,
            home=ready.home,
            resumed=going_on,
            past=tuple(name for name in past if name != going_on),
            last=last,
            keep_until=until,
        )
        variables = _variables(host, setting.project, resumed)
        sends.enter_context(locked(folder.path / LOCK))
        noted.write(folder, sent)
        try:
            patiently(lambda: there.send_past(sending.tree, root, files, past))
            patiently(lambda: there.send_tree(sending.tree, sending.root or PACKAGE, sending.names, config))
        except BaseException:  # Nothing knows of it then.
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        patiently(lambda: there.submit(folder, variables, sending.tree))
        screen.say(f"on {host.name}: job {folder.id}")
        sends.close()
        return following.follow(folder, screen, there)


def _away(host: Listed, project: Project, sending: "_Sending", resumed: SessionFolder | None) -> JobFolder | None:
    """A job of this checkout, or of the resumed session, that has to be brought back before another is sent."""
    for folder, sent in noted.away(host.name):
        if sent.root and sent.tree == sending.tree:
            return folder
        if resumed is not None and sent.sessions == str(project.sessions):
            return folder
    return None


def _check(ready: Ready, sending: "_Sending", there: There, screen: Screen) -> None:
    """Warn where the clocks differ. Raises UsageError where the disk there is too full for what would be sent."""
    needed_kb = sending.kilobytes + SPARE_KB
    if ready.free_kb < needed_kb:
        why = f"{there.name} has {ready.free_kb >> 10} MiB free; {needed_kb >> 10} are needed"
        raise UsageError(why, f"free some there: ssh {shlex.join(there.connection.words)} 'du -sh {HOME}/*'")
    if ready.skew_s:
        screen.say(f"the clock of {there.name} is {ready.skew_s / 60:+.0f} min from here: dates there are off")


def own(project: Project) -> Path | None:
    """Folder of a project that may name hosts of its own."""
    return None if project.bundled else project.target


@contextlib.contextmanager
def reached(host: Listed, screen: Screen) -> Iterator[There]:
    """Connect to a machine. One that does not answer is started by its `start:`, if it has one."""
    with Connection(host) as connection:
        try:
            connection.connect()
        except Unreachable:
            if host.host.start is None:
                raise
            screen.say(f"{host.name} does not answer; starting it: {host.host.start}")
            run_here(host.host.start, host)
            patiently(connection.connect, STARTS_S, screen.status)
        yield There(connection)


@dataclass(frozen=True)
class _Sending:
    """Files to send: the checkout around a project, else its folder. The bundled target is there already."""

    root: Path | None
    target: str | None
    """The target's folder below it; None for one that ships with the other machine's `loop`, too."""
    cwd: str
    """Where the command was typed, below it."""
    names: tuple[str, ...]
    tree: str
    """Name of the folder there: the same for every command of this checkout."""

    @classmethod
    def of(cls, project: Project) -> "_Sending":
        """Raises UsageError for more than is sent."""
        here = Path.cwd().resolve()
        checkout = _is_sent(project)
        root = (root_of(project.target) or project.target).resolve() if checkout else root_of(here)
        if root is None:
            return cls(None, None, ".", (), "none")
        heads = [head.parent for head in project.sessions.glob(f"*/{sessions.HEAD}")]
        names = tuple(name for name in carried(root) if not any(map((root / name).is_relative_to, heads)))
        cwd = here.relative_to(root).as_posix() if here.is_relative_to(root) else "."
        target = project.target.resolve().relative_to(root).as_posix() if checkout else None
        digest = content_hash([boot_host(), str(root)])[:12]
        word = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in root.name)[:40]
        sending = cls(root, target, cwd, names, f"{word or 'root'}-{digest}")
        if sending.kilobytes << 10 > LARGEST_BYTES:
            why = f"{root}: {sending.kilobytes >> 10} MiB would be sent, more than {LARGEST_BYTES >> 20}"
            raise UsageError(why, hint="name what nobody needs there in .gitignore")
        return sending

    @property
    def kilobytes(self) -> int:
        """Size of all that is sent."""
        return sum(os.lstat(self.root / name).st_size for name in self.names if self.root) >> 10


def boot_host() -> str:
    """An id of this machine, so that two that send to the same host use different folders there."""
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        with contextlib.suppress(OSError):
            return path.read_text().strip()
    return os.uname().nodename or boot_id()


def _prepared(command: Command, options: Mapping[str, Any], cwd: str, resumed: SessionFolder | None) -> JobFolder:
    """The job's folder here, with the session that it goes on with."""
    words = command.words_of({**options, **({"resume": resumed.id} if resumed else {})})
    minutes = options.get("budget_minutes") or options.get("max_minutes")
    now = datetime.datetime.now(datetime.UTC)
    job = Job(
        id=f"{now:%Y%m%d-%H%M%S}-{os.urandom(3).hex()}",
        words=tuple(words),
        title=shlex.join(["loop", *command.words_of({**options, "target": None})]).replace(" -- ", " "),
        folder=cwd,
        ttl_s=60 * float(minutes) + AFTER_BUDGET_S if minutes else TTL_S,
    )
    return prepare(job)


def _past(project: Project, resumed: SessionFolder | None) -> list[str]:
    """Names of the sessions to send: those that the next one learns from, and the one that is resumed."""
    recent = [session.id for session in sessions.every(project.sessions)[-PAST:]]
    names = {*recent, *needed(project.sessions), *([resumed.id] if resumed else [])}
    return sorted(name for name in names if noted.SESSION.fullmatch(name))


def _is_sent(project: Project) -> bool:
    """Whether a target's files go there: of the bundled one those of a checkout, which may be edited."""
    return not project.bundled or (PACKAGE.parent / "pyproject.toml").is_file()


def _variables(host: Listed, project: Project, resumed: SessionFolder | None) -> dict[str, str]:
    """Environment of the command there: the machine's price, what the user trusts, and its GPUs."""
    trusted = [trust.definition_hash(project)] if _is_sent(project) else []
    if resumed is not None:
        head = resumed.head()
        trusted += [trust.digest_of(trust.session_runs(head))]
    written = datetime.datetime.fromtimestamp(host.path.stat().st_mtime, datetime.UTC).date()
    hosted = Hosted(
        name=host.name,
        target=None if project.bundled else str(project.target),
        prices=host.host.prices,
        as_of=written,
        trusted=tuple(trusted),
    )
    gpus = host.host.gpus
    visible = {} if gpus is None else {VISIBLE: ",".join(map(str, gpus))}
    return {VARIABLE: hosted.as_text(), **visible}
