"""The executor `slurm`: each job is an `sbatch` job that runs in its folder on a shared disk.

A job has ended when its folder has an exit code. Slurm is asked only about jobs without one.
"""

import contextlib
import math
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence

from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.jobs.executor import COMMAND, Slot
from loop.jobs.folder import ENDED_STATES, JobFolder

RUN_COMMAND = (*COMMAND, "job", "run")  # Command of a Slurm job; the job's folder follows.
OPTIONS_VARIABLE = "LOOP_SBATCH"  # Environment variable with more sbatch options, such as a partition.
POLL_S, ASK_S, LIMIT_S = 0.1, 1.0, 60.0
"""Seconds between polls of a job's folder; between questions to Slurm; limit for an answer."""
EXIT_CODE_WAIT_S = 5.0  # Seconds to wait for the exit code of a job that left Slurm's list: shared disks are slow.


def check() -> None:
    """Raise UsageError if Slurm's commands are not on the PATH."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        hint = "run on a login node of the cluster, or choose --executor local"
        raise UsageError(f"--executor slurm: no {missing[0]} here", hint=hint)


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` Slurm jobs of this user."""
    listing = SlurmQueue()
    return [SlurmSlot(listing, f"slurm-{number}") for number in range(width)]


class SlurmQueue:
    """The latest answer of `squeue`, shared by all slots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._listed_ids: set[str] = set()
        self.answered_at = 0.0
        """Time of Slurm's last answer, in seconds on the monotonic clock."""

    def is_listed(self, job_id: str) -> bool:
        """True if Slurm's last answer lists this job. Asks once a second; without an answer the old one holds."""
        with self._lock:
            if time.monotonic() - self._asked_at > ASK_S:
                with contextlib.suppress(WorkFailed):
                    self._listed_ids = {*_run_slurm(["squeue", "--me", "--noheader", "--format=%i"]).split()}
                    self.answered_at = time.monotonic()
                self._asked_at = time.monotonic()
            return job_id in self._listed_ids


class SlurmSlot(Slot):
    """Runs one Slurm job at a time. `host` is unique: Slurm itself keeps jobs apart."""

    def __init__(self, queue: SlurmQueue, host: str) -> None:
        self.queue, self.host = queue, host
        self.slurm_id = ""
        """Slurm's number of the current job."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Submit a job and wait for its exit code. Raises WorkFailed if Slurm refuses or drops it."""
        tries = job.tries
        self.slurm_id = _run_slurm(_sbatch_command(job)).partition(";")[0].strip()
        listed_at, is_cancelled = time.monotonic(), False
        while (state := job.state) not in ENDED_STATES:
            if job.is_cancelled and not is_cancelled:
                is_cancelled = True
                with contextlib.suppress(WorkFailed):  # A running job sees its file `cancel`.
                    _run_slurm(["scancel", "--state=PENDING", self.slurm_id])
            elif self.queue.is_listed(self.slurm_id):
                listed_at = time.monotonic()
            elif self.queue.answered_at - listed_at > EXIT_CODE_WAIT_S and state != "running":
                question = f" and never began it: do the nodes share {job.path.parent}?"
                raise WorkFailed(f"its job of Slurm ended{question if job.tries == tries else ''}")
            time.sleep(POLL_S)


def _sbatch_command(job: JobFolder) -> list[str]:
    """The command line that submits a job to Slurm."""
    task = job.task
    options = ["--parsable", f"--output={job.path}/slurm.txt", "--job-name=loop"]
    if task.needs_gpu:
        options.append("--gres=gpu:1")
    if task.alone:
        options.append("--exclusive")
    if task.ttl_s:  # In minutes; one more, so that `loop` ends the job before Slurm does.
        options.append(f"--time={math.ceil(task.ttl_s / 60) + 1}")
    options += shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
    command = shlex.join([*RUN_COMMAND, str(job.path)])
    return ["sbatch", *options, f"--wrap=PYTHONPATH={shlex.quote(python_path())} exec {command}"]


def _run_slurm(command: Sequence[str]) -> str:
    """Output of a Slurm command. Raises WorkFailed if the command fails."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkFailed(f"{command[0]}: {error}", hint="`sinfo` shows the cluster") from error
    if completed.returncode:
        message = f"{command[0]}: {completed.stderr.strip()[:300] or completed.returncode}"
        options_hint = f"{OPTIONS_VARIABLE} holds further options of sbatch"
        raise WorkFailed(message, hint=f"`sinfo` shows the cluster; {options_hint}")
    return completed.stdout
