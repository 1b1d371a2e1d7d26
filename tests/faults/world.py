"""A scratch world for one case: a project of two variants, real sessions of it, and what must hold of them."""

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
from loop.base.places import Project
from loop.base.processes import process_name
from loop.library.trust import definition_hash
from loop.model.record import Finished
from loop.store import journal
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
"""A step that notices a second life of its own: it holds a lock as long as anything of it lives."""
COMMAND = "  - {{id: s{0}, title: step {0}, action: command.run, budget_s: 20, with: {{run: {1!r}}}}}"
BUILD = "  - {id: build, title: build, action: kernel.build, budget_s: 20}"


@dataclass
class Running:
    """A command that was started; what it says goes to files, which outlive it."""

    process: subprocess.Popen[bytes]
    said: Path
    errors: Path

    @property
    def acknowledged(self) -> list[dict[str, Any]]:
        """The events that it has told of: whole lines only. What it fails of comes last, and is no event."""
        lines = self.said.read_text(errors="replace").split("\n")[:-1]
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in told if "happening" in event]

    def end(self) -> int:
        """Wait for it, at most LIMIT_S; its exit status."""
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
    """Commands so far."""
    program: Sequence[str] = tuple(LOOP)
    """What the words of a command are given to."""

    @property
    def target(self) -> Path:
        return self.folder / "project"

    @property
    def sessions(self) -> Path:
        return self.folder / "sessions"

    @property
    def env(self) -> dict[str, str]:
        """An environment that leads nowhere else."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOP_", "XDG_"))}
        own = {"LOOP_SESSIONS": "sessions", "LOOP_STATE": "state", "LOOP_CACHE": "cache", "HOME": "."}
        places = {name: str((self.folder / place).resolve()) for name, place in own.items()}
        modules = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        quiet = {"LOOP_WATCH_PREEMPTION": "off", "PYTHONPATH": modules}
        return {**kept, **places, **quiet, **self.extra}

    def start(self, *words: str, **environment: str) -> Running:
        self.count += 1
        said, errors = (self.folder / f"{name}-{self.count}" for name in ("said", "errors"))
        with said.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                [*self.program, *words],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**self.env, **environment},
                cwd=self.folder,
            )
        return Running(process, said, errors)

    def session(self, *words: str, **environment: str) -> Running:
        """Start a session of the plan, or what the words say instead."""
        words = words or ("try",)
        return self.start("run", "session", *words, "--events", "--target", str(self.target), **environment)

    def done(self, *words: str) -> tuple[int, str]:
        """Run a command to its end: its status, and what it said on stderr."""
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
    others = [COMMAND.format(f"x{number}", shell) for number, shell in enumerate(also, start=1)]
    write_project(world, [steps[0], BUILD, *others, *steps[1:]])
    return world


def write_project(world: World, steps: list[str]) -> None:
    """A trusted project of two variants, with a plan `try` of these steps."""
    make_project(world.target)
    (world.target / "target.yaml").write_text(VARIANTS)
    (world.target / "other.c").write_text(KERNEL)
    write_plan(world.target, "try", steps)
    allow(world)


def allow(world: World) -> None:
    """Write down what `loop trust` would: that the project's definitions were seen."""
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


def judged(world: World, running: Running) -> str:
    """What broke after a fault; "" where all held.

    Nothing acknowledged is lost, every session is readable and goes on to its end, at most the open step was
    repeated, and no step ever ran beside its own earlier life. No process is left: of a command that was killed
    (SIGKILL), once the next one has begun.
    """
    for look in (left, unreadable, lost):
        broken = look(world, running)
        if broken:
            return broken
    return traceback_in(running) or not_resumed(world) or repeated(world, running) or beside(world) or left(world)


def left(world: World, running: Running | None = None) -> str:
    """What still runs once all has to be gone; after SIGKILL the next command has to end it."""
    if running is not None and running.process.returncode == -signal.SIGKILL:
        return ""
    end = time.monotonic() + GONE_S
    while found := list(living(world.folder)):
        if time.monotonic() > end:
            names = ", ".join(f"{one.pid} {' '.join(one.cmdline())[:60]}" for one in found if one.is_running())
            for one in found:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            return f"left after {GONE_S:.0f} s: {names}"
        time.sleep(0.02)
    return ""


def living(folder: Path) -> Iterator[psutil.Process]:
    """Processes of a world: by their HOME, by where they stand, or by a name that a step has noted."""
    home = f"HOME={folder.resolve()}\0".encode()
    noted = {name for path in folder.glob("pid-*") for name in path.read_text().split()}
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            place = Path(f"/proc/{process.pid}")
            ours = home in (place / "environ").read_bytes() or process_name(process.pid) in noted
            ours = ours or os.readlink(place / "cwd").startswith(str(folder.resolve()))
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def unreadable(world: World, _: Running) -> str:
    """A session that cannot be read."""
    for one in world.folders():
        try:
            one.head(), one.lines(), one.record()
        except LoopError as error:
            return f"unreadable: {error.message}"
    return ""


def lost(world: World, running: Running) -> str:
    """What was acknowledged and is not there."""
    told = running.acknowledged
    stored = {
        key(line.event) for one in world.folders() for line in one.lines() if isinstance(line.event, Finished)
    }
    for event in told:
        fields = {name: value for name, value in event.items() if name in Finished.model_fields}
        if event["happening"] == "StepEnded" and key(Finished.model_validate(fields)) not in stored:
            return f"lost: {event['step']} was told to have ended, and is not in the journal"
        if event["happening"] == "SessionEnded" and not any(one.record() for one in world.folders()):
            return "lost: the session was told to have ended, and has no record"
    return ""


def key(event: Finished) -> tuple[object, ...]:
    """What names an ended step."""
    return (event.run, event.pattern, event.step, event.attempt, event.status)


def traceback_in(running: Running) -> str:
    """A traceback that a user would have seen; one of a Ctrl-C before loop was loaded is Python's own."""
    text = running.errors.read_text(errors="replace")
    if "Traceback" in text and not text.rstrip().endswith("KeyboardInterrupt"):
        return f"a traceback: {text.strip().splitlines()[-1][:200]}"
    return ""


def not_resumed(world: World) -> str:
    """A session that does not go on to its end, or a new one that does not, where none had begun."""
    names = [("--resume", one.id) for one in world.folders()] or [("try",)]
    for words in names:
        running = world.session(*words)
        code = running.end()
        if code or traceback_in(running):
            said = running.errors.read_text(errors="replace").strip()[-300:]
            return f"`run session {' '.join(words)}` ended with {code}: {said}"
    return next((f"{one.id} has no whole record" for one in world.folders() if not _whole(one)), "")


def _whole(folder: SessionFolder) -> bool:
    record = folder.record()
    return (
        record is not None and journal.last_close_event(folder.lines()) is not None and record.status == "passed"
    )


def repeated(world: World, running: Running) -> str:
    """A step that was done again though it was told to have passed."""
    for event in running.acknowledged:
        passed = event["happening"] == "StepEnded" and event["status"] == "passed"
        if passed and event["step"][1:].isdigit() and world.ran(int(event["step"][1:])) > 1:
            return f"{event['step']} had passed, and ran {world.ran(int(event['step'][1:]))} times"
    return ""


def beside(world: World) -> str:
    """A step that ran beside its own earlier life."""
    path = world.folder / "beside"
    return f"step {path.read_text().split()[0]} ran beside its own earlier life" if path.exists() else ""
