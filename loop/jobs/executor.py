"""Run a list of jobs: `run_all` keeps the queue, and each slot runs one job at a time in a thread.

`local`, `ssh`, `ray` and `slurm` make the slots. The job's folder holds its state: when a process
that waits for jobs dies, the next process reads there which jobs have ended.
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
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL
from typing import Any

from loop.base.documents import did_you_mean
from loop.base.documents.sums import write_sealed
from loop.base.errors import ExitCode, LoopError, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.base.own_process import die_with_parent
from loop.base.processes import Tick, Waiting, python_path
from loop.jobs import folder as job_files
from loop.jobs.folder import MOST_TRIES, JobFolder, content_hashes, detect_devices, last_line
from loop.model.record import Where
from loop.report.screen import MESSAGES_VARIABLE

COMMAND = (sys.executable, "-P", "-c", "from loop.cli import main; main()")
DIE = f"from loop.base.own_process import die_with_parent; die_with_parent({signal.SIGTERM:d})"
COMMAND_DYING_WITH_PARENT = (*COMMAND[:-1], f"{DIE}; {COMMAND[-1]}")
"""The same command; it gets SIGTERM when its parent process dies. The child sets this up itself:
code between fork and exec may deadlock, because an executor has threads."""
OWN_SESSION: dict[str, Any] = {"start_new_session": True, "preexec_fn": die_with_parent}
"""Options of a program that gets no Ctrl-C from the terminal, and ends when this process does."""
POLL_S = 0.05
COMMAND_END_LIMIT_S = 30.0  # Seconds that a command has to end after SIGTERM, before SIGKILL.
MIN_FREE_BYTES = 64 << 20  # Free disk space in bytes below which no job begins.
LONGEST_WAIT_S = 0.1  # Most seconds between two polls of the jobs; the end of one ends the wait.
CLOSE_LIMIT_S = 60.0  # Most seconds that closed slots have to end their jobs.
MAX_LOST_IN_A_ROW = 2  # A slot that lost so many jobs gets none, unless no other is of its kind.
REPEATED_EXIT_CODES = frozenset({ExitCode.PAUSED, ExitCode.OVER_BUDGET})
"""Exit codes after which a job runs again: the machine failed, or the job hung."""
JOB_ERRORS = (LoopError, OSError, RuntimeError, ValueError, MemoryError)
"""Errors that fail a job, not the executor: a lost or full disk, a torn file, too many threads."""
EXECUTOR_NAMES = ("local", "ssh", "ray", "slurm")
"""Names of the executors: modules of this package with functions `check()` and `slots(width)`."""


def run_job(folder: JobFolder, env: Mapping[str, str] = {}, device: Where | None = None) -> int:
    """Run a job's command unless it has ended before. Returns its exit code; negative: a signal
    ended it; 75: this machine cannot run it; 125: begun too often. `env`: more variables. `device`:
    None: detect it. Raises LockHeld if another process runs the job, UsageError without a job."""
    with locked(folder.path / job_files.LOCK):
        if (earlier_code := folder.exit_code) is not None:
            return earlier_code
        folder.write_runner(os.getpid())
        tries = folder.tries + 1
        folder.write_tries(tries)
        device = device or detect_devices(gpu=folder.task.needs_gpu)[0]
        device = device.model_copy(update={"began": time.time()})
        obstacle, code = _find_obstacle(folder), ExitCode.PAUSED
        if tries > MOST_TRIES:
            obstacle = f"begun {MOST_TRIES} times, and it never ended: it is not begun again"
            code = ExitCode.CANNOT_TELL
        if obstacle:
            write_sealed(folder.path / job_files.WHERE, device)
            return folder.refuse(obstacle, code)
        started = time.monotonic()
        exit_code = _run_command(folder, env)
        run_fields = {"seconds": time.monotonic() - started, "timed": folder.task.times}
        write_sealed(folder.path / job_files.WHERE, device.model_copy(update=run_fields))
        return folder.write_end(exit_code)


def _find_obstacle(folder: JobFolder) -> str:
    """Why this machine cannot begin a job: a torn copy, no such program, a full disk; or empty."""
    source = folder.path / job_files.SOURCES
    digests = content_hashes(source)
    for name, digest in sorted(folder.task.files.items()):
        if digests.get(name) != digest:
            return f"{source / name} is not what was submitted: a torn copy, or no shared folder"
    for program in folder.task.programs:
        if shutil.which(program) is None:
            return f"no {program} on {platform.node()}"
    free_bytes = shutil.disk_usage(folder.path).free
    if free_bytes < MIN_FREE_BYTES:
        return f"{folder.path}: {free_bytes >> 20} MiB left on {platform.node()}"
    return ""


def _run_command(folder: JobFolder, env: Mapping[str, str]) -> int:
    """Run a job's command, with a heartbeat each second. Ends it after its time limit, and returns
    124 then; or once the job is cancelled. Returns its exit code; negative: a signal ended it."""
    task, sessions = folder.task, folder.path / job_files.SESSIONS
    sessions.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **env, MESSAGES_VARIABLE: "1", "PYTHONPATH": python_path()}
    if not task.folder:
        variables["LOOP_SESSIONS"] = str(sessions)
    stdout, stderr = folder.path / job_files.STDOUT, folder.path / job_files.STDERR
    options: dict[str, Any] = {"env": variables, "stdin": DEVNULL, "start_new_session": True}
    options["cwd"] = task.folder or folder.path / job_files.SOURCES
    words = [*COMMAND_DYING_WITH_PARENT, *task.words]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        command = subprocess.Popen(words, stdout=out, stderr=err, **options)
    started, last_beat = time.monotonic(), -1
    try:
        while command.poll() is None and not folder.is_cancelled:
            seconds = time.monotonic() - started
            if int(seconds) > last_beat:
                last_beat = int(seconds)
                (folder.path / job_files.HEARTBEAT).write_text(str(last_beat))
            if task.ttl_s is not None and seconds > task.ttl_s:
                return ExitCode.OVER_BUDGET
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(POLL_S)
    finally:  # End all that it started, too.
        for number, wait_s in ((signal.SIGTERM, COMMAND_END_LIMIT_S), (signal.SIGKILL, None)):
            if command.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(command.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(wait_s)
    return command.returncode


def start_detached(folder: JobFolder) -> None:
    """Start a job in its own process, and return at once. The job survives this process."""
    words = [*COMMAND, "job", "run", str(folder.path)]
    options: dict[str, Any] = {"stdin": DEVNULL, "stdout": DEVNULL, "start_new_session": True}
    options["env"] = {**os.environ, "PYTHONPATH": python_path()}
    with (folder.path / job_files.STDERR).open("wb") as err:
        process = subprocess.Popen(words, stderr=err, **options)
        folder.write_runner(process.pid)  # Counts as running before its interpreter is up.
    threading.Thread(target=process.wait, daemon=True).start()  # Reaps the child: no zombie.


class Slot:
    """A place that runs one job at a time, each in a thread of its own."""

    gpu: bool | None = None  # True: a GPU; False: a processor; None: takes both kinds of jobs.
    host: str = ""  # Machine. Jobs with `alone` need all other slots of this name to be idle.
    uuid: str = ""  # Of the device; empty: not known yet, or a cluster chooses one for each job.
    trouble: LoopError | None = None  # Why the slot takes no further job; None: it takes jobs.
    lost_in_a_row = 0.0  # Number of jobs lost in a row; infinite: the slot gets no further job.
    job: JobFolder | None = None  # The job that it runs now.
    thread: threading.Thread | None = None  # The thread of its last job.

    def run_in_slot(self, job: JobFolder) -> None:
        """Run a job and bring its results into its folder. Ends it when it is cancelled. Raises
        one of `JOB_ERRORS` if it did not end. Sets `trouble` if the next job would fail too."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the slot holds, as a connection. Called once, after its last job."""


def load_executor(name: str) -> Any:
    """The module of an executor, with `slots(width)`. Raises UsageError: unknown or unusable."""
    if name not in EXECUTOR_NAMES:
        hint = did_you_mean(name, EXECUTOR_NAMES) or f"there are {', '.join(EXECUTOR_NAMES)}"
        raise UsageError(f"no executor {name!r}", hint=hint)
    module = importlib.import_module(f"loop.jobs.{name}")
    module.check()
    return module


def run_all(slots: Sequence[Slot], jobs: Sequence[JobFolder]) -> Waiting[None]:
    """Run all jobs that are not done yet until each has ended; its state tells how. Only awaits
    jobs of other processes. A job runs again if its machine failed or it hung, and it has tries
    left. Closing the generator cancels the rest. Raises LoopError if all slots have trouble."""
    pending = {job.id: job for job in jobs if job.state != "done"}
    queue, begun, job_ended = list[JobFolder](), set[str](), threading.Event()
    try:
        while pending:
            running = [slot.job for slot in slots if slot.job]
            for job in [job for job in pending.values() if job not in queue and job not in running]:
                is_begun, state, code = job.id in begun, job.state, job.exit_code
                if is_begun and state not in job_files.ENDED_STATES:
                    state = "failed"  # A full disk may have refused the reason.
                if state == "running":
                    continue
                # The machine failed, a signal ended the job, or it hung.
                has_died = code is not None and (code in REPEATED_EXIT_CODES or code < 0)
                may_repeat = state == "failed" and has_died and job.tries < MOST_TRIES
                if state == "done" or (is_begun and not may_repeat):
                    del pending[job.id]
                    continue
                if is_begun:
                    why = f"it ended with {code}"
                    if job.is_refused:
                        why = last_line(job.path / job_files.STDERR)
                        exclude_device(slots, job.device)
                    remark_once(f"job {job.id} is begun again: {why}")
                elif job.is_refused:  # A person may have fixed the machine since.
                    job.write_tries(0)
                job.reset()
                queue.append(job)
                begun.add(job.id)
            troubles = [slot.trouble for slot in slots if slot.trouble]
            if pending and len(troubles) == len(slots):
                raise troubles[-1]
            _start_jobs(slots, queue, job_ended)
            yield Tick(f"{len(jobs) - len(pending)} of {len(jobs)} jobs done")
            job_ended.wait(LONGEST_WAIT_S)
            job_ended.clear()
    finally:
        for job in pending.values():
            job.cancel()


def _start_jobs(slots: Sequence[Slot], queue: list[JobFolder], job_ended: threading.Event) -> None:
    """Start a job of the queue in each idle slot. A job with `alone` set waits until its host is
    idle, and runs alone there. A slot that lost many jobs gets none if one like it lost fewer."""
    for slot in slots:
        others = [other for other in slots if other.uuid != slot.uuid and other.gpu == slot.gpu]
        losses = [other.lost_in_a_row for other in others if not other.trouble]
        has_better = min(losses, default=math.inf) < slot.lost_in_a_row
        if slot.lost_in_a_row >= MAX_LOST_IN_A_ROW and has_better:
            remark_once(f"device {slot.uuid or slot.host} gets no further job")
            continue
        jobs_on_host = [other.job for other in slots if other.host == slot.host]
        on_host = [job for job in jobs_on_host if job]
        if slot.trouble or slot.job or any(job.task.alone for job in on_host):
            continue
        for job in queue:
            # Without any GPU, jobs for a GPU run on processors.
            needs_gpu = job.task.needs_gpu and any(other.gpu for other in slots)
            # `gpu` is None for a slot that takes both kinds of jobs.
            if slot.gpu in (None, needs_gpu) and not (job.task.alone and on_host):
                queue.remove(job)
                slot.job, name = job, slot.uuid or slot.host
                slot.thread = threading.Thread(
                    target=_run_job, args=[slot, job, job_ended], name=name, daemon=True
                )
                slot.thread.start()
                break
            if job.task.alone:
                break  # No later job may start first, or this one would wait for ever.


def _run_job(slot: Slot, job: JobFolder, job_ended: threading.Event) -> None:
    """Run a job in a slot, and check its results. A job that did not end is reset and refused, with
    the reason in its folder; or on stderr if that fails (a full disk). Counts the slot's losses."""
    tries = job.tries
    try:
        slot.run_in_slot(job)
        if job.state not in job_files.ENDED_STATES:
            raise WorkFailed("the process that ran it died")
        if job.exit_code is not None:
            job.verify_results()  # They may have come from another machine.
        if (job.exit_code or 0) < 0:  # A signal: perhaps the machine's fault.
            slot.lost_in_a_row += 1
        elif slot.lost_in_a_row < MAX_LOST_IN_A_ROW:
            slot.lost_in_a_row = 0
    except JOB_ERRORS as error:
        slot.lost_in_a_row += 1
        try:
            job.reset()
            # A failed start counts as a try, also if it did not reach the machine.
            job.write_tries(max(job.tries, tries + 1))
            job.refuse(str(error))
        except JOB_ERRORS as note_error:
            remark_once(f"job {job.id} failed, and that cannot be noted: {note_error}")
    finally:
        slot.job = None
        job_ended.set()


def exclude_device(slots: Sequence[Slot], device: Where | None) -> None:
    """Give no further job to this device, unless it is the only one of its kind."""
    for slot in slots:
        if device is not None and slot.uuid == device.uuid:
            slot.lost_in_a_row = math.inf


def close_slots(slots: Sequence[Slot]) -> None:
    """Close slots; first wait at most `CLOSE_LIMIT_S` seconds until they have ended their jobs."""

    def close(slot: Slot) -> None:
        if slot.thread is not None:
            slot.thread.join()
        slot.close()

    end = time.monotonic() + CLOSE_LIMIT_S
    threads = [threading.Thread(target=close, args=[slot], daemon=True) for slot in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
