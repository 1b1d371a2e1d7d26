"""A scratch world for one case: a project of two variants, its real sessions, and checks of the promises."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.processes import process_name
from loop.library.definitions import Project
from loop.library.trust import definition_hash
from loop.model.record import Closed, Finished
from loop.store.sessions import SessionFolder, list_sessions
from tests.conftest import ROOT
from tests.projects import KERNEL, LOOP, PATTERN, PLAN, TARGET, make_project

GONE_S = 5.0  # Seconds after which no process of a world may be left.
LIMIT_S = 120.0  # After so long a command counts as hung: far more than a busy machine needs.
VARIANTS = TARGET.replace(
    "  ours:",
    "  other: {kind: c_abi, device: cpu, sources: [other.c], entry: scale, build: {compiler: gcc, flags: [-O0]}}\n"
    "  ours:",
)
ALONE = "exec 9>>$HOME/lock-{0}; flock -n 9 || echo {0} >> $HOME/beside; echo $$ >> $HOME/ran-{0}; sleep {1}"
"""A step that notes in `beside` if it runs twice at once: its processes hold a lock."""
COMMAND = "  - {{id: s{0}, title: step {0}, action: command.run, budget_s: 20, with: {{run: {1!r}}}}}"
BUILD = "  - {id: build, title: build, action: kernel.build, budget_s: 20}"


@dataclass
class Running:
    """A started command; its output goes to files."""

    process: subprocess.Popen[bytes]
    stdout: Path
    errors: Path

    @property
    def acknowledged(self) -> list[dict[str, Any]]:
        """The events that it has printed, from whole lines only. An error comes last, and is no event."""
        lines = self.stdout.read_text(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if "happening" in event]

    def end(self) -> int:
        """Wait at most LIMIT_S seconds for its exit status."""
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@dataclass
class World:
    """Folders of one case, and commands that see nothing else."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    """Variables for every command."""
    count: int = 0
    """Commands started so far."""
    program: Sequence[str] = tuple(LOOP)
    """The program that gets the words of a command."""

    @property
    def target(self) -> Path:
        return self.folder / "project"

    @property
    def sessions(self) -> Path:
        return self.folder / "sessions"

    @property
    def env(self) -> dict[str, str]:
        """An environment in which `loop` uses the folders of this world only."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOOP_", "XDG_"))}
        folders = {"LOOP_SESSIONS": "sessions", "LOOP_STATE": "state", "LOOP_CACHE": "cache", "HOME": "."}
        places = {name: str((self.folder / place).resolve()) for name, place in folders.items()}
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        quiet = {"LOOP_WATCH_PREEMPTION": "off", "PYTHONPATH": modules}
        return {**inherited, **places, **quiet, **self.extra}

    def start(self, *words: str, **environment: str) -> Running:
        self.count += 1
        out_path, err_path = (self.folder / f"{name}-{self.count}" for name in ("said", "errors"))
        with out_path.open("wb") as out, err_path.open("wb") as err:
            process = subprocess.Popen(
                [*self.program, *words],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**self.env, **environment},
                cwd=self.folder,
            )
        return Running(process, out_path, err_path)

    def session(self, *words: str, **environment: str) -> Running:
        """Start a session with these words, by default of the plan `try`."""
        words = words or ("try",)
        return self.start("run", "session", *words, "--events", "--target", str(self.target), **environment)

    def done(self, *words: str) -> tuple[int, str]:
        """Run a command to its end: its exit status and its stderr."""
        running = self.start(*words)
        return running.end(), running.errors.read_text(errors="replace")

    def folders(self) -> list[SessionFolder]:
        """Sessions that have begun."""
        return list_sessions(self.sessions)

    def ran(self, step: int) -> int:
        """How often a step was run."""
        path = self.folder / f"ran-{step}"
        return len(path.read_text().split()) if path.exists() else 0


def make_world(
    folder: Path, *, pauses: Sequence[float] = (0.05, 0.1, 0.05), also: Sequence[str] = (), **extra: str
) -> World:
    """A trusted project: a plan `try` with a step for each pause (seconds), and a build of both variants between.

    `also`: shell commands that further steps run. `extra`: variables for every command.
    """
    world = World(folder, extra)
    steps = [COMMAND.format(number, ALONE.format(number, pause)) for number, pause in enumerate(pauses, start=1)]
    further = [COMMAND.format(f"x{number}", shell) for number, shell in enumerate(also, start=1)]
    write_project(world, [steps[0], BUILD, *further, *steps[1:]])
    return world


def write_project(world: World, steps: list[str]) -> None:
    """A trusted project of two variants, with a plan `try` of these steps."""
    make_project(world.target)
    (world.target / "target.yaml").write_text(VARIANTS)
    (world.target / "other.c").write_text(KERNEL)
    write_plan(world.target, "try", steps)
    allow(world)


def allow(world: World) -> None:
    """Store the grant that `loop trust` would give."""
    (world.folder / "state").mkdir(exist_ok=True)
    digest = definition_hash(Project(world.target.resolve(), world.sessions, bundled=False))
    sums.write_sealed(world.folder / "state" / "trusted.json", {str(world.target.resolve()): digest})


def write_plan(target: Path, name: str, steps: list[str]) -> None:
    """A pattern of these steps, and a plan of the same name."""
    for kind in ("patterns", "plans"):
        (target / kind).mkdir(exist_ok=True)
    text = PATTERN.format(name=name, number=100, steps="\n".join(steps))
    (target / "patterns" / f"{name}.yaml").write_text(text)
    (target / "plans" / f"{name}.yaml").write_text(PLAN.format(name=name, patterns=name))


def judge(world: World, running: Running) -> str:
    """What broke after a fault; "" if all promises held.

    Promises: nothing acknowledged is lost, and every session is readable and can be finished. At most the open
    step was repeated, and no two processes ran one step at once. No process is left; those of a command killed by
    SIGKILL end when the next command begins.
    """
    for look in (left, unreadable, lost):
        broken = look(world, running)
        if broken:
            return broken
    return traceback_in(running) or not_resumed(world) or repeated(world, running) or beside(world) or left(world)


def left(world: World, running: Running | None = None) -> str:
    """Kills and names processes that run after GONE_S; after SIGKILL, none: the next command has to end them."""
    if running is not None and running.process.returncode == -signal.SIGKILL:
        return ""
    end = time.monotonic() + GONE_S
    while processes := list(living(world.folder)):
        if time.monotonic() > end:
            names = ", ".join(
                f"{proc.pid} {' '.join(proc.cmdline())[:60]}" for proc in processes if proc.is_running()
            )
            for proc in processes:
                with contextlib.suppress(psutil.Error):
                    proc.kill()
            return f"left after {GONE_S:.0f} s: {names}"
        time.sleep(0.02)
    return ""


def living(folder: Path) -> Iterator[psutil.Process]:
    """Processes of a world: by HOME, by working folder, or by a name that a step has noted."""
    home = f"HOME={folder.resolve()}\0".encode()
    noted = {name for path in folder.glob("pid-*") for name in path.read_text().split()}
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            place = Path(f"/proc/{process.pid}")
            is_ours = home in (place / "environ").read_bytes() or process_name(process.pid) in noted
            is_ours = is_ours or os.readlink(place / "cwd").startswith(str(folder.resolve()))
            if is_ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def unreadable(world: World, _: Running) -> str:
    """The complaint about the first session that cannot be read; "" if all can."""
    for session in world.folders():
        try:
            session.head(), session.lines(), session.record()
        except LoopError as error:
            return f"unreadable: {error.message}"
    return ""


def lost(world: World, running: Running) -> str:
    """An acknowledged event that is not stored; "" if all are."""
    acknowledged = running.acknowledged
    events = (line.event for session in world.folders() for line in session.lines())
    stored = {key(event) for event in events if isinstance(event, Finished)}
    for event in acknowledged:
        fields = {name: value for name, value in event.items() if name in Finished.model_fields}
        if event["happening"] == "StepEnded" and key(Finished.model_validate(fields)) not in stored:
            return f"lost: {event['step']} was told to have ended, and is not in the journal"
        if event["happening"] == "SessionEnded" and not any(session.record() for session in world.folders()):
            return "lost: the session was told to have ended, and has no record"
    return ""


def key(event: Finished) -> tuple[object, ...]:
    """What names an ended step."""
    return (event.run, event.pattern, event.step, event.attempt, event.status)


def traceback_in(running: Running) -> str:
    """The last line of a traceback on stderr; one of a Ctrl-C before loop was loaded does not count."""
    text = running.errors.read_text(errors="replace")
    if "Traceback" in text and not text.rstrip().endswith("KeyboardInterrupt"):
        return f"a traceback: {text.strip().splitlines()[-1][:200]}"
    return ""


def not_resumed(world: World) -> str:
    """A session that cannot be resumed to its end (if none had begun: a new one); "" if all can."""
    names = [("--resume", session.id) for session in world.folders()] or [("try",)]
    for words in names:
        running = world.session(*words)
        code = running.end()
        if code or traceback_in(running):
            errors = running.errors.read_text(errors="replace").strip()[-300:]
            return f"`run session {' '.join(words)}` ended with {code}: {errors}"
    return next((f"{session.id} has no whole record" for session in world.folders() if not _whole(session)), "")


def _whole(folder: SessionFolder) -> bool:
    record = folder.record()
    return record is not None and isinstance(folder.lines()[-1].event, Closed) and record.status == "passed"


def repeated(world: World, running: Running) -> str:
    """A step that ran again though it was acknowledged as passed; "" if there is none."""
    for event in running.acknowledged:
        passed = event["happening"] == "StepEnded" and event["status"] == "passed"
        if passed and event["step"][1:].isdigit() and world.ran(int(event["step"][1:])) > 1:
            return f"{event['step']} had passed, and ran {world.ran(int(event['step'][1:]))} times"
    return ""


def beside(world: World) -> str:
    """A step that ran while processes of its first run lived; "" if there is none."""
    path = world.folder / "beside"
    return f"step {path.read_text().split()[0]} ran beside its own earlier life" if path.exists() else ""
