"""A job on disk: words after `loop`, the files they work on, and what came of it; the same wherever it runs.

job.json        what is to be done (`Job`)
src/            the files it works on; their hashes are in job.json
tries           how often it was begun
pid             who runs it (`JobFolder.write_runner`)
heartbeat       a number that grows each second while it runs
cancel          there once it is to end; whoever runs it looks for it
stdout, stderr  what the command printed
where.json      what it ran on (`Where`)
out/            what it made: `out/sessions` are its sessions
manifest.json   hashes of all in out/
rc              the command's exit code, written last
sent.json       there for a job that one command sent to another machine (`loop.jobs.there.Sent`)
"""

import contextlib
import functools
import json
import os
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

import loop
from loop.base.documents import content_hash, to_json, write_atomic
from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import ExitCode, UsageError, WorkFailed
from loop.base.locks import boot_id
from loop.base.places import JOBS, state_folder
from loop.base.processes import name_of
from loop.machine.gpus import gpus
from loop.machine.machine import installed, processor_identity
from loop.model.base import Model
from loop.model.jobs import JobRun, State, Where

WHAT, SRC, TRIES, PID, HEARTBEAT, CANCEL = "job.json", "src", "tries", "pid", "heartbeat", "cancel"
OUT, TALK, WHERE, MADE, MANIFEST, RC = "stdout", "stderr", "where.json", "out", "manifest.json", "rc"
SENT, LOCK = "sent.json", "lock"
SESSIONS = f"{MADE}/sessions"
MOST_TRIES = 3
"""So often a job is begun that ends without a word: a kernel that kills its machine must not go on for ever."""
STALE_S = 30.0
"""A heartbeat of another machine that is older by the clock of the file system they share has ended."""
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
TELLING = frozenset({ExitCode.OK, ExitCode.GATE_FAILED})
"""Exit codes of a command that has an answer: a gate that failed is one."""

Device = TypeVar("Device", bound=Where)


@functools.cache
def devices(*, gpu: bool) -> tuple[Where, ...]:
    """The GPUs of this machine that a CUDA program may use, in its order; its processor where there is none."""
    detected = gpus() if gpu else None
    known = {"host": platform.node(), "torch": installed("torch") or "", "loop": loop.__version__}
    if detected is None or not detected.usable:
        return (Where(uuid=processor_identity()[:16], **known),)
    known |= {"driver": detected.driver or "", "cuda": ".".join(map(str, detected.cuda or ()))}
    return tuple(Where(device=there.name, uuid=there.uuid, **known) for there in detected.usable)


def devices_by_group(places: Iterable[Device]) -> dict[str, list[Device]]:
    """Devices by their group."""
    by_name: dict[str, list[Device]] = {}
    for place in places:
        by_name.setdefault(place.group, []).append(place)
    return by_name


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

    @functools.cached_property
    def job(self) -> Job:
        """What is to be done, as it was submitted. Raises LoopError where that is damaged, or there is no job."""
        try:
            return read_sealed(Job, self.path / WHAT)
        except OSError as error:
            message = f"{self.path}: no job there: {error.strerror}"
            raise UsageError(message, hint="`loop jobs` lists what there is") from error

    @property
    def rc(self) -> int | None:
        """How the command ended; negative for a signal, None while it has not."""
        text = read_text(self.path / RC).strip()
        return int(text) if text.lstrip("-").isdigit() else None

    @property
    def state(self) -> State:
        """Where it stands, by its files alone. One that was sent away runs, as far as is known here."""
        code = self.rc
        if code is not None:
            return "done" if code in TELLING else "cancelled" if self.cancelled else "failed"
        if (self.path / SENT).exists():
            return "running"
        if not (runner := read_text(self.path / PID)):
            return "cancelled" if self.cancelled else "queued"
        return "running" if self._is_run_by(runner) else "lost"

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
        if where is None and (began := modified_at(self.path / PID)):
            known = {"began": began, "seconds": max(0.0, modified_at(self.path / HEARTBEAT) - began)}
        title = job.title or " ".join(job.words)
        return JobRun(id=self.id, title=title, state=self.state, tries=self.tries, **known)

    def answer(self) -> dict[str, Any]:
        """What the command printed as JSON. Raises WorkFailed where that is not all there."""
        try:
            document = json.loads(read_text(self.path / OUT))
            assert isinstance(document, dict)
            return document
        except (ValueError, AssertionError, RecursionError) as error:
            talk = last_line(self.path / TALK) or "nothing"
            what = "no machine could do it" if self.refused else "its command printed no result; it said"
            raise WorkFailed(f"job {self.id}: {what}: {talk}", hint=f"see {self.path / TALK}") from error

    def cancel(self) -> None:
        """Ask it to end, as Ctrl-C does; returns at once."""
        (self.path / CANCEL).touch()

    def write_runner(self, pid: int) -> None:
        """Note who runs it: its number with its start, the run of the system, and its namespace."""
        write_atomic(self.path / PID, f"{name_of(pid)} {_system()}", lasting=False)

    def end(self, code: int) -> int:
        """Note what was made, then how it ended: its exit code, which is returned."""
        write_atomic(self.path / MANIFEST, to_json(content_hashes(self.path / MADE)), lasting=False)
        write_atomic(self.path / RC, str(int(code)))
        return int(code)

    def refuse(self, why: str, code: int = ExitCode.PAUSED) -> int:
        """Note that it was not done, and why; the exit code, which says that the machine failed."""
        (self.path / TALK).write_text(f"{why}\n")
        return self.end(code)

    def forget(self) -> None:
        """Make it as if it had never been begun; how often it was begun stays."""
        for name in (RC, PID, CANCEL, HEARTBEAT, OUT, TALK, WHERE, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / MADE, ignore_errors=True)

    def check(self, earlier: Sequence[str] = ()) -> None:
        """Compare what came back with its manifest. Raises WorkFailed for a file that is missing or differs.

        `earlier`: folders below `out/` that were there before it began, and stayed there.
        """
        try:
            manifest = json.loads(read_text(self.path / MANIFEST))
        except ValueError:
            raise WorkFailed(f"{self.path}: {MANIFEST} is missing or torn", hint="run the job again") from None
        digests, before = content_hashes(self.path / MADE), tuple(f"{folder}/" for folder in earlier)
        own = [name for name in sorted(manifest) if not name.startswith(before)]
        wrong = [name for name in own if digests.get(name) != manifest[name]]
        if wrong:
            message = f"{self.path / MADE}: {wrong[0]} is not what the job made ({len(wrong)} files differ)"
            raise WorkFailed(message, hint="copy it again, or run the job again")

    def _is_run_by(self, runner: str) -> bool:
        """Whether a runner still runs: asked of the system where it is this one, else by its heartbeat."""
        name, _, system = runner.partition(" ")
        if system == _system():
            return bool(name) and name_of(int(name.partition("-")[0])) == name
        mark = self.path / ".now"
        with contextlib.suppress(OSError):  # The file system's clock: two machines' may differ by hours.
            mark.touch()
        return modified_at(mark) - max(modified_at(self.path / HEARTBEAT), modified_at(self.path / PID)) < STALE_S


def _system() -> str:
    """Which run of which system this is, and which namespace of process numbers."""
    with contextlib.suppress(OSError):
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    return f"{boot_id()} "


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


def job_identity(words: Sequence[str], files: Mapping[str, str], within: str = "") -> str:
    """The id of work that may be repeated: a hash of its words and files. `within`: who may reuse its result."""
    parts = [*words, "", *(part for pair in sorted(files.items()) for part in pair), within]
    return content_hash(parts)[:24]


def every_job() -> list[JobFolder]:
    """All jobs, the oldest first."""
    paths = [path for path in jobs_folder().glob("*") if (path / WHAT).is_file()]
    return [JobFolder(path) for path in sorted(paths, key=lambda path: modified_at(path / WHAT))]


def forget_old(newest: int, prefix: str = "") -> None:
    """Remove the folders of jobs that have ended, but for the newest; `prefix`: only of ids that begin so."""
    ended = [job for job in every_job() if job.id.startswith(prefix) and job.state not in ("queued", "running")]
    for job in ended[:-newest]:
        shutil.rmtree(job.path, ignore_errors=True)


def content_hashes(folder: Path, files: Iterable[Path] | None = None) -> dict[str, str]:
    """Path below `folder` to the SHA-256 of its content, for the files, or all that are there."""
    chosen = folder.rglob("*") if files is None else files
    return {
        path.relative_to(folder).as_posix(): content_hash(path.read_bytes())
        for path in sorted(chosen)
        if path.is_file() and (files is not None or not path.is_symlink())
    }


def read_text(path: Path) -> str:
    """What is in a file; empty where it is not there."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def last_line(path: Path) -> str:
    """The last line that was printed, cut to what fits a screen."""
    return next((line.strip()[:300] for line in reversed(read_text(path).splitlines()) if line.strip()), "")


def modified_at(path: Path) -> float:
    """When a file changed, in seconds since 1970; 0 where it is not there."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
