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
from loop.jobs.folder import ENDED, JobFolder

RUN = (*COMMAND, "job", "run")
"""Command of a Slurm job; the job's folder follows."""
OPTIONS = "LOOP_SBATCH"
"""Environment variable with more sbatch options, such as a partition."""
LOOK_S, ASK_S, LIMIT_S = 0.1, 1.0, 60.0
"""Seconds between polls of a job's folder; between questions to Slurm; limit for an answer."""
SEEN_S = 5.0
"""Seconds to wait for the exit code of a job that left Slurm's list: shared disks are slow."""


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
        self._asked = 0.0
        self._names: set[str] = set()
        self.answered = 0.0
        """Time of Slurm's last answer, in seconds on the monotonic clock."""

    def has(self, name: str) -> bool:
        """True if Slurm's last answer lists this job. If Slurm is silent, its old answer holds."""
        with self._lock:
            if time.monotonic() - self._asked > ASK_S:
                with contextlib.suppress(WorkFailed):
                    self._names = {*_run_slurm(["squeue", "--me", "--noheader", "--format=%i"]).split()}
                    self.answered = time.monotonic()
                self._asked = time.monotonic()
            return name in self._names


class SlurmSlot(Slot):
    """Runs one Slurm job at a time. `host` is unique: Slurm itself keeps jobs apart."""

    def __init__(self, listing: SlurmQueue, host: str) -> None:
        self.listing, self.host = listing, host
        self.name = ""
        """Slurm's number of the current job."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Submit a job and wait for its exit code. Raises WorkFailed if Slurm refuses it."""
        tries = job.tries
        self.name = _run_slurm(_submission(job)).partition(";")[0].strip()
        named_at, is_told = time.monotonic(), False
        while (state := job.state) not in ENDED:
            if job.is_cancelled and not is_told:  # Only a pending job: a running one sees `cancel`.
                is_told = True
                with contextlib.suppress(WorkFailed):
                    _run_slurm(["scancel", "--state=PENDING", self.name])
            elif self.listing.has(self.name):
                named_at = time.monotonic()
            elif self.listing.answered - named_at > SEEN_S and state != "running":
                never = f" and never began it: do the nodes share {job.path.parent}?" if job.tries == tries else ""
                raise WorkFailed(f"its job of Slurm ended{never}")
            time.sleep(LOOK_S)
        if job.exit_code is not None:
            job.verify_results()


def _submission(job: JobFolder) -> list[str]:
    """The sbatch command line for a job."""
    terms = job.task
    options = ["--parsable", f"--output={job.path}/slurm.txt", "--job-name=loop"]
    options += ["--gres=gpu:1"] if terms.needs_gpu else []
    options += ["--exclusive"] if terms.alone else []
    options += [f"--time={math.ceil(terms.ttl_s / 60) + 1}"] if terms.ttl_s else []
    options += shlex.split(os.environ.get(OPTIONS, ""))
    command = f"PYTHONPATH={shlex.quote(python_path())} exec {shlex.join([*RUN, str(job.path)])}"
    return ["sbatch", *options, f"--wrap={command}"]


def _run_slurm(command: Sequence[str]) -> str:
    """Output of a Slurm command. Raises WorkFailed if the command fails."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkFailed(f"{command[0]}: {error}", hint="`sinfo` shows the cluster") from error
    if completed.returncode:
        message = f"{command[0]}: {completed.stderr.strip()[:300] or completed.returncode}"
        raise WorkFailed(message, hint=f"`sinfo` shows the cluster; {OPTIONS} holds further options of sbatch")
    return completed.stdout
