"""A job on disk: words after `loop`, the files they work on, and what came of it; the same wherever it runs.

job.json        what is to be done (`Job`)
src/            the files it works on; their hashes are in job.json
tries           how often it was begun
pid             who runs it (`write_runner`)
heartbeat       a number that grows each second while it runs
cancel          there once it is to end; whoever runs it looks for it
stdout, stderr  what the command printed
where.json      what it ran on (`Where`)
out/            what it made: `out/sessions` are its sessions
manifest.json   hashes of all in out/
rc              the command's exit code, written last
"""

import contextlib
import functools
import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

import loop
from loop.base.documents import content_hash, write_atomic
from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import ExitCode, UsageError, WorkFailed
from loop.base.locks import boot_id
from loop.base.places import JOBS, state_folder
from loop.base.processes import name_of
from loop.machine.gpus import gpus
from loop.machine.machine import installed, processor_identity
from loop.model.base import Model
from loop.model.jobs import JobRun, State, Where


@functools.cache
def devices(*, gpu: bool) -> tuple[Where, ...]:
    """The GPUs of this machine that a CUDA program may use, in its order; its processor where there is none."""
    detected = gpus() if gpu else None
    known = {"host": platform.node(), "torch": installed("torch") or "", "loop": loop.__version__}
    if detected is None or not detected.usable:
        return (Where(uuid=processor_identity()[:16], **known),)
    cuda = ".".join(map(str, detected.cuda)) if detected.cuda else ""
    return tuple(
        Where(device=there.name, uuid=there.uuid, driver=detected.driver or "", cuda=cuda, **known)
        for there in detected.usable
    )


Device = TypeVar("Device", bound=Where)


def groups(places: Iterable[Device]) -> dict[str, list[Device]]:
    """Devices by their group."""
    by_name: dict[str, list[Device]] = {}
    for place in places:
        by_name.setdefault(place.group, []).append(place)
    return by_name


WHAT, SRC, OUT, TALK, RC, PID = "job.json", "src", "stdout", "stderr", "rc", "pid"
HEARTBEAT, CANCEL, LOCK, TRIES, WHERE, MADE, MANIFEST = (
    "heartbeat", "cancel", "lock", "tries", "where.json", "out", "manifest.json",
)  # fmt: skip
SESSIONS = f"{MADE}/sessions"
SENT = "sent.json"
"""There for a job that one command sent to another machine (`sent`)."""
MOST_TRIES = 3
"""So often a job is begun that ends without a word: a kernel that kills its machine must not go on for ever."""
STALE_S = 30.0
"""A heartbeat of another machine that is older by the clock of the file system they share has ended."""
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
TELLING = frozenset({ExitCode.OK, ExitCode.GATE_FAILED})
"""Exit codes of a command that has an answer: a gate that failed is one."""


class Job(Model):
    """What is to be done: `job.json`."""

    format: Literal[1] = 1
    """Format number."""
    id: str
    """Name of its folder; for work that may be repeated, a hash of all that matters (`identity`)."""
    words: tuple[str, ...]
    """The command, after `loop`."""
    title: str = ""
    """What it does, in a few words."""
    files: dict[str, str] = Field(default_factory=dict)
    """Path below `src/` to the SHA-256 of its content."""
    folder: str = ""
    """Where on this machine it runs, with the user's own sessions; empty: in `src/`, sessions in `out/`."""
    needs_gpu: bool = False
    """Whether it runs on a GPU; else it needs a processor only."""
    alone: bool = False
    """Whether nothing else may run on its host meanwhile: calls from the host, kernels for processors."""
    programs: tuple[str, ...] = ()
    """What its machine has to have on the PATH, as compilers: a build that fails for their lack says nothing."""
    ttl_s: float | None = None
    """It is ended after so many seconds."""
    times: bool = False
    """Whether it times something: devices of one group do all such work of a step."""
    within: str = ""
    """The session whose campaign it belongs to."""


@dataclass(frozen=True)
class JobFolder:
    """One job."""

    path: Path

    @property
    def id(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def job(self) -> Job:
        """What is to be done. Raises LoopError where that is damaged, or there is no job."""
        return _read(self.path)

    @property
    def rc(self) -> int | None:
        """How the command ended; negative for a signal, None while it has not."""
        text = read_text(self.path / RC).strip()
        return int(text) if text.lstrip("-").isdigit() else None

    @property
    def state(self) -> State:
        """Where it stands, by its files alone."""
        code = self.rc
        if code is not None:
            return "done" if code in TELLING else "cancelled" if self.cancelled else "failed"
        runner = read_text(self.path / PID)
        if (self.path / SENT).exists():
            return "running"  # On another machine, as far as is known here.
        if not runner:
            return "cancelled" if self.cancelled else "queued"
        return "running" if _alive(runner, self.path) else "lost"

    @property
    def refused(self) -> bool:
        """Whether no machine could begin it, or bring it to an end."""
        return self.rc == ExitCode.PAUSED and not (self.path / OUT).exists()

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants it to end."""
        return (self.path / CANCEL).exists()

    @property
    def tries(self) -> int:
        """How often it was begun."""
        return int(read_text(self.path / TRIES) or 0)

    @property
    def where(self) -> Where | None:
        """What it ran on, as far as that is known."""
        with contextlib.suppress(OSError):
            return read_sealed(Where, self.path / WHERE)
        return None

    @property
    def ran(self) -> JobRun:
        """What became of it so far."""
        job, where = self.job, self.where
        known = where.model_dump() if where else {}
        if where is None and (began := modified(self.path / PID)):
            known = {"began": began, "seconds": max(0.0, modified(self.path / HEARTBEAT) - began)}
        return JobRun(
            id=self.id, title=job.title or " ".join(job.words), state=self.state, tries=self.tries, **known
        )

    def answer(self) -> dict[str, Any]:
        """What the command printed as JSON. Raises WorkFailed where that is not all there."""
        text = read_text(self.path / OUT)
        try:
            document = json.loads(text)
            assert isinstance(document, dict)
            return document
        except (ValueError, AssertionError, RecursionError) as error:
            talk = last_line(self.path / TALK) or "nothing"
            what = "no machine could do it" if self.refused else "its command printed no result; it said"
            message = f"job {self.id}: {what}: {talk}"
            raise WorkFailed(message, hint=f"see {self.path / TALK}") from error

    def cancel(self) -> None:
        """Ask it to end, as Ctrl-C does; returns at once."""
        (self.path / CANCEL).touch()

    def check(self, earlier: Sequence[str] = ()) -> None:
        """Compare what came back with its manifest. Raises WorkFailed for a file that is missing or differs.

        `earlier`: folders below `out/` that were there before it began, and stayed there.
        """
        try:
            manifest = json.loads(read_text(self.path / MANIFEST))
        except ValueError:
            raise WorkFailed(f"{self.path}: {MANIFEST} is missing or torn", hint="run the job again") from None
        digests = hashes(self.path / MADE)
        names = [name for name in manifest if not any(name.startswith(f"{folder}/") for folder in earlier)]
        wrong = sorted(name for name in names if digests.get(name) != manifest[name])
        if wrong:
            message = f"{self.path / MADE}: {wrong[0]} is not what the job made ({len(wrong)} files differ)"
            raise WorkFailed(message, hint="copy it again, or run the job again")

    def forget(self) -> None:
        """Make it as if it had never been begun; how often it was begun stays."""
        for name in (RC, PID, CANCEL, HEARTBEAT, OUT, TALK, WHERE, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / MADE, ignore_errors=True)


@functools.lru_cache(maxsize=4096)
def _read(path: Path) -> Job:
    """A job as it was submitted: that never changes, and whoever waits for many jobs asks often."""
    try:
        return read_sealed(Job, path / WHAT)
    except OSError as error:
        message = f"{path}: no job there: {error.strerror}"
        raise UsageError(message, hint="`loop jobs` lists what there is") from error


def jobs_folder() -> Path:
    """Where jobs are kept: the user's own, so that what lies there is as trusted as what was submitted."""
    return state_folder() / JOBS


def prepare(
    job: Job, source: Path | None = None, files: Iterable[Path] = (), *, parent: Path | None = None
) -> JobFolder:
    """The folder of a job, made unless it is there. `files` of `source` are copied to `src/`.

    A job whose id is a hash has the same folder again, with its result. Raises LoopError when the disk refuses.
    """
    folder = JobFolder((parent or jobs_folder()) / job.id)
    if (folder.path / WHAT).is_file():
        return folder
    (folder.path / SRC).mkdir(parents=True, exist_ok=True)
    for file in files:
        assert source is not None
        place = folder.path / SRC / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    write_sealed(folder.path / WHAT, job)
    return folder


def identity(words: Sequence[str], files: Mapping[str, str], within: str = "") -> str:
    """The id of work that may be repeated: a hash of its words and files. `within`: who may reuse its result."""
    parts = [*words, "", *(part for pair in sorted(files.items()) for part in pair), within]
    return content_hash(parts)[:24]


def every(parent: Path | None = None) -> list[JobFolder]:
    """All jobs, the oldest first."""
    folder = parent or jobs_folder()
    paths = [path for path in folder.glob("*") if (path / WHAT).is_file()]
    return [JobFolder(path) for path in sorted(paths, key=lambda path: modified(path / WHAT))]


def forget_old(newest: int, prefix: str = "") -> None:
    """Remove the folders of jobs that have ended, but for the newest; `prefix`: only of ids that begin so."""
    ended = [job for job in every() if job.id.startswith(prefix) and job.state not in ("queued", "running")]
    for job in ended[:-newest]:
        shutil.rmtree(job.path, ignore_errors=True)


def hashes(folder: Path, files: Iterable[Path] | None = None) -> dict[str, str]:
    """Path below `folder` to the SHA-256 of its content, for the files, or all that are there."""
    chosen = folder.rglob("*") if files is None else files
    return {
        path.relative_to(folder).as_posix(): content_hash(path.read_bytes())
        for path in sorted(chosen)
        if path.is_file() and (files is not None or not path.is_symlink())
    }


def write_runner(folder: JobFolder, pid: int) -> None:
    """Note who runs a job: its number with its start, the run of the system, and its namespace."""
    write_atomic(folder.path / PID, f"{name_of(pid)} {_system()}", lasting=False)


def _system() -> str:
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{boot_id()} "


def _alive(runner: str, folder: Path) -> bool:
    """Whether a runner still runs: asked of the system where it is this one, else by its heartbeat."""
    name, _, system = runner.partition(" ")
    if system == _system():
        return bool(name) and name_of(int(name.partition("-")[0])) == name
    mark = folder / ".now"
    with contextlib.suppress(OSError):  # The clock of the file system: that of two machines may differ by hours.
        mark.touch()
        return modified(mark) - max(modified(folder / HEARTBEAT), modified(folder / PID)) < STALE_S
    return time.time() - modified(folder / HEARTBEAT) < STALE_S


def read_text(path: Path) -> str:
    """What is in a file; empty where it is not there."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def last_line(path: Path) -> str:
    """The last line that was printed, cut to what fits a screen."""
    return next((line.strip()[:300] for line in reversed(read_text(path).splitlines()) if line.strip()), "")


def modified(path: Path) -> float:
    """When a file changed, in seconds since 1970; 0 where it is not there."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
