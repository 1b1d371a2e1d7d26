"""A job on disk: arguments for `loop`, input files, and results; the same layout on every machine.

job.json        the task (`Job`)
src/            input files; their hashes are in job.json
tries           number of times the job was begun
pid             the process that runs it (`JobFolder.write_runner`)
heartbeat       a number that grows each second while it runs
cancel          exists once the job has to end; the running process polls for it
stdout, stderr  what the command printed
where.json      the device it ran on (`Where`)
out/            its results; sessions are in `out/sessions`
manifest.json   hashes of all files in out/
rc              the command's exit code, written last
sent.json       exists if a command sent the job to another machine (`loop.jobs.ssh.SentJob`)
"""

import contextlib
import functools
import json
import os
import platform
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

import loop
from loop.base.documents import content_hash, to_json, write_atomic
from loop.base.documents.sums import read_sealed, write_sealed
from loop.base.errors import ExitCode, UsageError, WorkFailed
from loop.base.places import JOBS, state_folder
from loop.base.processes import process_name
from loop.machine.machine import detect_gpus, installed_version, processor_identity
from loop.model.base import Model
from loop.model.record import JobRun, State, Where

TASK, SOURCES, RESULTS, MANIFEST = "job.json", "src", "out", "manifest.json"
TRIES, RUNNER, HEARTBEAT, CANCEL, LOCK = "tries", "pid", "heartbeat", "cancel", "lock"
STDOUT, STDERR, WHERE, EXIT_CODE, SENT = "stdout", "stderr", "where.json", "rc", "sent.json"
SESSIONS = f"{RESULTS}/sessions"
MOST_TRIES = 3  # Most starts of a job that dies without an exit code: it may crash the machine.
HEARTBEAT_LIMIT_S = 30.0  # Seconds without a heartbeat after which a job elsewhere counts as dead.
ENDED_STATES: tuple[State, ...] = ("done", "failed", "cancelled")
ANSWER_EXIT_CODES = frozenset({ExitCode.OK, ExitCode.GATE_FAILED})
"""Exit codes of a command that gave an answer; a failed gate is an answer, too."""


@functools.cache
def detect_devices(*, gpu: bool) -> tuple[Where, ...]:
    """This machine's GPUs in CUDA's order; its processor if there is none or not `gpu`. Cached."""
    detected, torch = detect_gpus() if gpu else None, installed_version("torch") or ""
    common = {"host": platform.node(), "torch": torch, "loop": loop.__version__}
    if detected is None or not detected.usable:
        return (Where(uuid=processor_identity()[:16], **common),)
    common |= {"driver": detected.driver or "", "cuda": ".".join(map(str, detected.cuda or ()))}
    return tuple(Where(device=gpu.name, uuid=gpu.uuid, **common) for gpu in detected.usable)


class Job(Model):
    """The task of a job, stored as `job.json`."""

    format: Literal[1] = 1
    id: str
    """Name of the job's folder; for work with a reusable result, a hash of all that decides it."""
    words: tuple[str, ...]
    """Command-line arguments after `loop`."""
    title: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    """Input files: path below `src/` to the SHA-256 of the content."""
    folder: str = ""
    """Working folder; the user's own sessions are used. Empty: `src/`, with sessions in `out/`."""
    needs_gpu: bool = False
    alone: bool = False
    """True: nothing else may run on its host (host-side timing, kernels for processors)."""
    programs: tuple[str, ...] = ()
    """Programs that must be on the PATH, such as compilers: a build without them proves nothing."""
    ttl_s: float | None = None
    times: bool = False
    """True: the job times something. All timings of one step run on devices of one group."""


@dataclass(frozen=True)
class JobFolder:
    """A job, by the folder that holds its files."""

    path: Path

    @property
    def id(self) -> str:
        """The job's id, which is its folder's name."""
        return self.path.name

    @functools.cached_property
    def task(self) -> Job:
        """The task as submitted. Raises UsageError without a job, LoopError for a damaged file."""
        try:
            return read_sealed(Job, self.path / TASK)
        except OSError as error:
            message = f"{self.path}: no job there: {error.strerror}"
            raise UsageError(message, hint="`loop jobs` lists what there is") from error

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command; negative: a signal ended it; None: no end, or it is lost."""
        text = read_text(self.path / EXIT_CODE).strip()
        return int(text) if text.lstrip("-").isdigit() else None

    @property
    def state(self) -> State:
        """State of the job, from its files. `done`: it has an answer; a failed gate is one. `lost`:
        its process died. A job sent to another machine is `running` until it is brought back."""
        code = self.exit_code
        if code in ANSWER_EXIT_CODES:
            return "done"
        if code is not None:
            return "cancelled" if self.is_cancelled else "failed"
        if (self.path / SENT).exists():
            return "running"
        runner = read_text(self.path / RUNNER)
        if not runner:
            return "cancelled" if self.is_cancelled else "queued"
        process, _, system = runner.partition(" ")
        if system == _system_id():
            is_running = bool(process) and process_name(int(process.partition("-")[0])) == process
        else:  # A process on another system has to have a young heartbeat.
            now_file = self.path / ".now"
            with contextlib.suppress(OSError):  # The shared disk's clock: machines' clocks differ.
                now_file.touch()
            last_sign = max(modified_at(self.path / HEARTBEAT), modified_at(self.path / RUNNER))
            is_running = modified_at(now_file) - last_sign < HEARTBEAT_LIMIT_S
        return "running" if is_running else "lost"

    @property
    def is_refused(self) -> bool:
        """True if no machine could begin the job: exit code 75, and no output, as it never ran."""
        return self.exit_code == ExitCode.PAUSED and not (self.path / STDOUT).exists()

    @property
    def is_cancelled(self) -> bool:
        """True if a user or `loop` asked the job to end."""
        return (self.path / CANCEL).exists()

    @property
    def tries(self) -> int:
        """Number of times the job was begun; 0 for a damaged count."""
        text = read_text(self.path / TRIES)
        return int(text) if text.isdecimal() else 0

    @property
    def device(self) -> Where | None:
        """Device that the job ran on; None if it is not known."""
        with contextlib.suppress(OSError):
            return read_sealed(Where, self.path / WHERE)
        return None

    @property
    def run_record(self) -> JobRun:
        """For reports. Times of a running job are those of its files `pid` and `heartbeat`."""
        task, device = self.task, self.device
        fields = device.model_dump() if device else {}
        began = modified_at(self.path / RUNNER)
        if device is None and began:
            seconds = max(0.0, modified_at(self.path / HEARTBEAT) - began)
            fields = {"began": began, "seconds": seconds}
        title = task.title or " ".join(task.words)
        return JobRun(id=self.id, title=title, state=self.state, tries=self.tries, **fields)

    def read_answer(self) -> dict[str, Any]:
        """The JSON object that the command printed. Raises WorkFailed if it is incomplete."""
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(read_text(self.path / STDOUT))
            if isinstance(document, dict):
                return document
        problem = "no machine could do it" if self.is_refused else "it printed no result; it said"
        message = f"job {self.id}: {problem}: {last_line(self.path / STDERR) or 'nothing'}"
        raise WorkFailed(message, hint=f"see {self.path / STDERR}")

    def cancel(self) -> None:
        """Ask the job to end, as Ctrl-C does; returns at once."""
        (self.path / CANCEL).touch()

    def write_runner(self, pid: int) -> None:
        """Note as runner: `process_name` of `pid` (empty: it has ended), system's id. LoopError."""
        write_atomic(self.path / RUNNER, f"{process_name(pid)} {_system_id()}", durable=False)

    def write_tries(self, tries: int) -> None:
        """Note how many times the job was begun."""
        write_atomic(self.path / TRIES, str(tries))

    def write_end(self, code: int) -> int:
        """End the job: write the hashes of its results, then the exit code. Returns it."""
        hashes = to_json(content_hashes(self.path / RESULTS))
        write_atomic(self.path / MANIFEST, hashes, durable=False)
        write_atomic(self.path / EXIT_CODE, str(int(code)))
        return int(code)

    def refuse(self, why: str, code: int = ExitCode.PAUSED) -> int:
        """End the job without a run: `why` becomes its stderr. Returns `code` (75: the machine)."""
        (self.path / STDERR).write_text(f"{why}\n")
        return self.write_end(code)

    def reset(self) -> None:
        """Delete what runs or a cancel request wrote; task, input files and count of tries stay."""
        for name in (EXIT_CODE, RUNNER, CANCEL, HEARTBEAT, STDOUT, STDERR, WHERE, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / RESULTS, ignore_errors=True)

    def verify_results(self, earlier: Sequence[str] = ()) -> None:
        """Compare the results with their manifest. Raises WorkFailed if a file differs or is lost.
        `earlier`: folders below `out/` from before the job began: their files are not compared."""
        try:
            digest_by_name = json.loads(read_text(self.path / MANIFEST))
        except ValueError:
            message = f"{self.path}: {MANIFEST} is missing or torn"
            raise WorkFailed(message, hint="run the job again") from None
        digests = content_hashes(self.path / RESULTS)
        skipped = tuple(f"{folder}/" for folder in earlier)
        changed = (name for name, digest in digest_by_name.items() if digests.get(name) != digest)
        if wrong := sorted(name for name in changed if not name.startswith(skipped)):
            message = f"{wrong[0]} is not what the job made ({len(wrong)} files differ)"
            raise WorkFailed(f"{self.path / RESULTS}: {message}", "copy it or run the job again")


def _system_id() -> str:
    """Boot id and pid namespace of this system. Process numbers are comparable only within both."""
    boot_id = pid_namespace = ""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError):
        pid_namespace = os.readlink("/proc/self/ns/pid")
    # A space stands between them, also where the system tells no namespace.
    return f"{boot_id} {pid_namespace}"


def jobs_folder() -> Path:
    """Folder of all jobs, which belongs to the user: its content is as trusted as the user's."""
    return state_folder() / JOBS


def create_job(job: Job, source: Path | None = None, files: Iterable[Path] = ()) -> JobFolder:
    """Create a job's folder, with `files` from below `source` in `src/`. An existing job stays."""
    folder = JobFolder(jobs_folder() / job.id)
    if (folder.path / TASK).is_file():
        return folder
    (folder.path / SOURCES).mkdir(parents=True, exist_ok=True)
    for file in files:
        assert source is not None
        copy = folder.path / SOURCES / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    write_sealed(folder.path / TASK, job)
    return folder


def list_jobs() -> list[JobFolder]:
    """All jobs on this machine, oldest first."""
    tasks = sorted(jobs_folder().glob(f"*/{TASK}"), key=modified_at)
    return [JobFolder(task.parent) for task in tasks]


def remove_old_jobs(kept_count: int, prefix: str = "") -> None:
    """Remove ended and lost jobs whose id begins with `prefix`, but the last `kept_count` (> 0)."""
    jobs = (job for job in list_jobs() if job.id.startswith(prefix))
    for job in [job for job in jobs if job.state not in ("queued", "running")][:-kept_count]:
        shutil.rmtree(job.path, ignore_errors=True)


def content_hashes(folder: Path, files: Iterable[Path] | None = None) -> dict[str, str]:
    """Path below `folder` to a file's SHA-256. `files`: None: all but links, which may lead out."""
    if files is None:
        files = [path for path in folder.rglob("*") if not path.is_symlink()]
    plain = sorted(path for path in files if path.is_file())
    return {path.relative_to(folder).as_posix(): content_hash(path.read_bytes()) for path in plain}


def read_text(path: Path) -> str:
    """Text of a file; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def last_line(path: Path) -> str:
    """The last non-empty line of a file, at most 300 characters; empty if there is none."""
    lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def modified_at(path: Path) -> float:
    """Time of a file's last change, in seconds since 1970; 0 if the file does not exist."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0
