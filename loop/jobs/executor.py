"""Have a list of jobs done: a queue, and slots that take jobs from it, each one job at a time in its own thread.

`local`, `ssh`, `ray` and `slurm` make the slots; all else is the same for the four. The folder of a job is the
truth: when a process that waits for jobs has died, the next one finds there which of them have ended.
"""

import contextlib
import importlib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from loop.base.documents import did_you_mean, write_atomic
from loop.base.documents.sums import write_sealed
from loop.base.errors import ExitCode, LoopError, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.base.processes import Tick, python_path
from loop.base.screen import TALKS
from loop.jobs import folder as named
from loop.jobs.folder import ENDED, MOST_TRIES, JobFolder, content_hashes, devices, devices_by_group, last_line
from loop.model.jobs import State, Where

LOOP = (sys.executable, "-P", "-c", "from loop.cli import main; main()")
TIED = (
    *LOOP[:-1],
    f"from loop.base.processes import die_with_parent; die_with_parent({int(signal.SIGTERM)}); {LOOP[-1]}",
)
"""The same, ended in good order with who runs it. It says so itself: between fork and exec that may
deadlock, for an executor has threads."""
LOOK_S = 0.05
"""Between two looks at a command that runs."""
COMMAND_ENDS_S = 30.0
"""Time for a command to end in good order once it is told; then its group is killed."""
LEAST_BYTES = 64 << 20
"""Room on the disk without which no job begins."""
REST_S = 0.1
"""Longest time between two looks at jobs; one that ends meanwhile is noticed at once."""
MENDS_S = 1.0
"""Seconds between two looks at a slot in trouble."""
ENDS_S = 60.0
"""Longest time for slots to end their jobs when an executor is closed."""
FAILURES = 2
"""A slot that loses so many jobs in a row gets no further job, unless it is the last of its kind."""
AGAIN = frozenset({ExitCode.PAUSED, ExitCode.OVER_BUDGET})
"""Exit codes of a machine that failed, or of a job that hung: the job is run again."""
WRONG = (LoopError, OSError, RuntimeError, ValueError, MemoryError)
"""A lost or full disk, a torn file, a machine without room for one more thread."""
NAMES = ("local", "ssh", "ray", "slurm")
"""Executors; each is a module here with functions `check()` and `slots(width)`."""


def run(folder: JobFolder, env: Mapping[str, str] | None = None, where: Where | None = None) -> int:
    """The exit code of a job's command, which has run now or before; negative for a signal.

    `env` stands on top of this process's environment; `where` is what it runs on, where that is known. What this
    machine cannot do, as with a full disk, is exit code 75, and the reason is in `stderr`. Raises Held where it is
    run by somebody else, UsageError where there is no job.
    """
    job = folder.job
    with locked(folder.path / named.LOCK):
        if (code := folder.rc) is not None:
            return code
        folder.write_runner(os.getpid())
        tries = folder.tries + 1
        write_atomic(folder.path / named.TRIES, str(tries))
        known = where or devices(gpu=job.needs_gpu)[0]
        began, clock = time.time(), time.monotonic()
        facts: dict[str, float] = {"began": began}
        why, code = _obstacle(folder), ExitCode.PAUSED
        if tries > MOST_TRIES:
            why = f"begun {MOST_TRIES} times, and never brought to an end: it is not begun again"
            code = ExitCode.CANNOT_TELL
        elif not why:
            code = _command(folder, env or {})
            facts |= {"seconds": time.monotonic() - clock, "timed": job.times}
        write_sealed(folder.path / named.WHERE, known.model_copy(update=facts))
        return folder.refuse(why, code) if why else folder.end(code)


def _obstacle(folder: JobFolder) -> str:
    """Why this machine cannot begin a job; empty where it can."""
    job, host = folder.job, platform.node()
    digests = content_hashes(folder.path / named.SRC)
    wrong = sorted(name for name in job.files if digests.get(name) != job.files[name])
    if wrong:
        torn = "a copy was torn, or the folder is not shared"
        return f"{folder.path / named.SRC / wrong[0]} is not what was submitted: {torn}"
    missing = [program for program in job.programs if shutil.which(program) is None]
    if missing:
        return f"no {missing[0]} on {host}"
    free = shutil.disk_usage(folder.path).free
    return f"{folder.path}: {free >> 20} MiB left on {host}" if free < LEAST_BYTES else ""


def _command(folder: JobFolder, env: Mapping[str, str]) -> int:
    """Run a job's command, whose heart beats each second; its exit code, 124 where it ran into its limit."""
    job, sessions = folder.job, folder.path / named.SESSIONS
    sessions.mkdir(parents=True, exist_ok=True)
    own = {} if job.folder else {"LOOP_SESSIONS": str(sessions)}
    with (folder.path / named.OUT).open("wb") as out, (folder.path / named.TALK).open("wb") as talk:
        command = subprocess.Popen(
            [*TIED, *job.words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=talk,
            cwd=job.folder or folder.path / named.SRC,
            env={**os.environ, **env, **own, TALKS: "1", "PYTHONPATH": python_path()},
            start_new_session=True,
        )
    begun, beats = time.monotonic(), -1
    try:
        while (code := command.poll()) is None:
            seconds = time.monotonic() - begun
            if int(seconds) > beats:
                beats = int(seconds)
                (folder.path / named.HEARTBEAT).write_text(str(beats))
            if job.ttl_s is not None and seconds > job.ttl_s:
                return ExitCode.OVER_BUDGET
            if folder.cancelled:
                _end(command)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(LOOK_S)
        return code
    finally:
        _end(command)


def _end(command: "subprocess.Popen[bytes]") -> None:
    """End a command in good order; kill its group where it does not."""
    for number, seconds in ((signal.SIGTERM, COMMAND_ENDS_S), (signal.SIGKILL, None)):
        if command.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(seconds)


def begin(folder: JobFolder) -> None:
    """Run a job apart from this process, and return at once; it goes on when this process ends."""
    with (folder.path / named.TALK).open("wb") as talk:
        process = subprocess.Popen(
            [*LOOP, "job", "run", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=talk,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
        folder.write_runner(process.pid)  # It runs from its first moment on, however long it takes to start.
    threading.Thread(target=process.wait, daemon=True).start()  # Else it would stay as a zombie.


class Slot:
    """Where one job runs at a time."""

    gpu: bool | None = None
    """Whether it is a GPU; None: it takes any job."""
    host: str = ""
    """A job that has to be alone is alone among the slots with this name."""
    uuid: str = ""
    """The device; empty where nobody knows it yet, or a cluster chooses another one each time."""
    trouble: LoopError | None = None
    """Why it takes no job for now."""
    lost = 0.0
    """Jobs in a row that it did not bring to an end; infinite for one that gets no further job."""

    def do(self, job: JobFolder) -> None:
        """Have a job done, and bring its results into its folder. Ends the job when it is cancelled.

        Raises one of `WRONG` where the job came to no end. Sets `trouble` where the next job would fail, too.
        """
        raise NotImplementedError

    def mended(self) -> bool:
        """Whether its trouble is over, which was just looked at."""
        return False

    def close(self) -> None:
        """Leave nothing behind; called once, in the thread of the slot."""


class Executor:
    """Gives jobs to slots."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = list(slots)
        self._queue: list[JobFolder] = []
        self._running: dict[str, tuple[JobFolder, Slot]] = {}
        self._unnoted: set[str] = set()
        """Ids of jobs that failed, which their folders do not say."""
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=[slot], daemon=True) for slot in slots]
        for slot, thread in zip(slots, self._threads, strict=True):
            thread.name = slot.uuid or slot.host
            thread.start()

    def submit(self, job: JobFolder) -> None:
        """Put it at the end of the queue. A job for a GPU runs on a processor where there is no GPU."""
        with self._changed:
            self._unnoted.discard(job.id)
            self._queue.append(job)
            self._changed.notify_all()

    def state(self, job: JobFolder) -> State:
        """Where a job stands that was submitted here. Raises LoopError where every slot is in trouble."""
        with self._changed:
            busy = job in self._queue or job.id in self._running
            troubles = [slot.trouble for slot in self.slots if slot.trouble]
            if busy and len(troubles) == len(self.slots):
                raise troubles[-1]
            return "running" if busy else "failed" if job.id in self._unnoted else job.state

    def rest(self, seconds: float) -> None:
        """Wait for so long at most; no longer where a job ends meanwhile."""
        with self._changed:
            self._changed.wait(seconds)

    def cancel(self, job: JobFolder) -> None:
        """Take it out of the queue, or have its slot end it. Returns at once."""
        job.cancel()
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def avoid(self, where: Where | None) -> None:
        """Give a device no further job, where there is another one of its kind."""
        with self._changed:
            for slot in self.slots:
                slot.lost = math.inf if where is not None and slot.uuid == where.uuid else slot.lost
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for what was cancelled."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        end = time.monotonic() + ENDS_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self, slot: Slot) -> None:
        """One slot, job after job."""
        try:
            while not self._closed.is_set():
                if slot.trouble is not None and not slot.mended():
                    self._closed.wait(MENDS_S)
                elif (job := self._next(slot)) is None:
                    return
                else:
                    is_noted = _done(slot, job)
                    with self._changed:
                        del self._running[job.id]
                        self._unnoted |= set() if is_noted else {job.id}
                        self._changed.notify_all()
        finally:
            slot.close()

    def _next(self, slot: Slot) -> JobFolder | None:
        """The next job for a slot, once there is one; None when the slot is not needed any more.

        A job that has to be alone waits for the others of its host, and they wait for it.
        """
        with self._changed:
            while not self._closed.is_set():
                spare = any(other.uuid != slot.uuid and other.gpu == slot.gpu for other in self.slots)
                if spare and slot.uuid and slot.lost >= FAILURES:
                    remark_once(f"device {slot.uuid} gets no further job")
                    self.slots.remove(slot)
                    return None
                beside = [busy for busy, other in self._running.values() if other.host == slot.host]
                for job in self._queue:
                    gpu = job.job.needs_gpu and any(other.gpu for other in self.slots)
                    crowded = any(busy.job.alone for busy in beside) or (job.job.alone and beside)
                    if slot.gpu in (None, gpu) and not crowded:
                        self._queue.remove(job)
                        self._running[job.id] = job, slot
                        return job
                    if job.job.alone:
                        break  # Nothing overtakes it, or it would wait for ever.
                self._changed.wait()
        return None


def _done(slot: Slot, job: JobFolder) -> bool:
    """Have a slot do a job. False where the job failed and not even that can be noted, as on a full disk."""
    tries = job.tries
    try:
        slot.do(job)
        if job.state not in ENDED:
            raise WorkFailed("the process that ran it died")
        if (job.rc or 0) < 0:
            slot.lost += 1
        elif slot.lost < FAILURES:
            slot.lost = 0
    except WRONG as error:
        slot.lost += 1
        try:
            job.forget()
            write_atomic(job.path / named.TRIES, str(max(job.tries, tries + 1)))
            job.refuse(str(error))
        except WRONG as why:
            remark_once(f"job {job.id} failed, and that cannot be noted: {why}")
            return False
    return True


def check(name: str) -> None:
    """Raise UsageError where there is no such executor, or it cannot work here: before anything is begun."""
    _module(name).check()


def open_executor(name: str, width: int) -> Executor:
    """The executor of this name; at most `width` jobs run at a time. Raises UsageError where it cannot work."""
    check(name)
    return Executor(_module(name).slots(width))


def _module(name: str) -> Any:
    """The module of an executor. Raises UsageError where there is none of that name."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}"
        raise UsageError(f"no executor {name!r}", hint=hint)
    return importlib.import_module(f"loop.jobs.{name}")


def all_done(executor: Executor, jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
    """Have all jobs done. Those that are done already are not run again.

    A job that still runs, begun by a process that has died since, is waited for. When the generator is closed, all
    jobs are ended. The state of a job that could not be done says why.
    """
    open_ = {job.id: job for job in jobs if job.state != "done"}
    submitted: set[str] = set()
    try:
        while open_:
            for job in [*open_.values()]:
                is_ours = job.id in submitted
                state = executor.state(job) if is_ours else job.state
                if state == "running":
                    continue
                if state == "done" or (is_ours and not may_run_again(job, state)):
                    del open_[job.id]
                    continue
                if is_ours:
                    why = last_line(job.path / named.TALK) if job.refused else f"it ended with {job.rc}"
                    remark_once(f"job {job.id} is begun again: {why}")
                if is_ours and job.refused:
                    executor.avoid(job.where)
                elif job.refused:  # Since then a person may have mended the machine.
                    (job.path / named.TRIES).unlink(missing_ok=True)
                job.forget()
                executor.submit(job)
                submitted.add(job.id)
            yield Tick(f"{len(jobs) - len(open_)} of {len(jobs)} jobs done")
            executor.rest(REST_S)
    finally:
        for job in open_.values():
            executor.cancel(job)


def may_run_again(job: JobFolder, state: State) -> bool:
    """Whether a job ended through no fault of its own, and has tries left."""
    code = job.rc
    return state == "failed" and code is not None and (code in AGAIN or code < 0) and job.tries < MOST_TRIES


def all_trusted(executor: Executor, jobs: Sequence[JobFolder], group: str = "") -> Generator[Tick, None, None]:
    """Have all jobs done; those that time something on devices of one group: this one, else that of most jobs.

    A result of another group is done again elsewhere, and refused where it comes from such a device once more.
    """
    yield from all_done(executor, jobs)
    repeated = jobs_on_other_devices(jobs, group)
    for job, why in repeated:
        where = job.where
        remark_once(f"device {where.uuid if where else ''} is set aside: {why}")
        executor.avoid(where)
        job.forget()
    yield from all_done(executor, [job for job, _ in repeated])
    for job, why in jobs_on_other_devices(jobs, group):
        job.forget()
        job.refuse(f"{why}, and ratios of two kinds of devices are not mixed")


def jobs_on_other_devices(jobs: Sequence[JobFolder], group: str = "") -> list[tuple[JobFolder, str]]:
    """Jobs that timed something on a device of another group than this one, or than most; each with the reason."""
    timed = [(job, where) for job in jobs if job.job.times and (where := job.where) is not None]
    sizes = {name: len(devices) for name, devices in devices_by_group(where for _, where in timed).items()}
    chosen = group or max(sizes, key=lambda name: sizes[name], default="")
    return [
        (job, f"it is {where.group}; the others are {chosen}") for job, where in timed if where.group != chosen
    ]
