"""The executor `slurm`: each job is a job of `sbatch`, which runs in its folder on a disk that all nodes share.

The exit code in a job's folder is the truth. Slurm is asked only whether a job without one still waits or runs.
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
from loop.jobs.executor import LOOP, Slot
from loop.jobs.folder import ENDED, JobFolder

RUN = (*LOOP, "job", "run")
"""What a job of Slurm runs; the folder follows."""
OPTIONS = "LOOP_SBATCH"
"""Variable with further options of sbatch, as a partition; sbatch reads its own variables, too."""
LOOK_S, ASK_S, LIMIT_S = 0.1, 1.0, 60.0
"""Seconds between two looks at a job's folder, between two questions to Slurm, and for an answer."""
SEEN_S = 5.0
"""A job that Slurm no longer names may still write its exit code: shared disks tell late."""


def check() -> None:
    """Raises UsageError where there is no Slurm."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        hint = "run on a login node of the cluster, or choose --executor local"
        raise UsageError(f"--executor slurm: no {missing[0]} here", hint=hint)


def slots(width: int) -> list[Slot]:
    """At most `width` jobs of this user at the cluster."""
    listing = Listing()
    return [SlurmSlot(listing, f"slurm-{number}") for number in range(width)]


class Listing:
    """What `squeue` last named, for all slots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0.0
        self._names: set[str] = set()
        self.answered = 0.0
        """When Slurm last answered, on the monotonic clock."""

    def has(self, name: str) -> bool:
        """Whether Slurm named a job when it last answered. Where it does not answer, what it said before holds."""
        with self._lock:
            if time.monotonic() - self._asked > ASK_S:
                with contextlib.suppress(WorkFailed):
                    self._names = {*_said(["squeue", "--me", "--noheader", "--format=%i"]).split()}
                    self.answered = time.monotonic()
                self._asked = time.monotonic()
            return name in self._names


class SlurmSlot(Slot):
    """One job at a time at a cluster. `host`: a name of its own, for Slurm itself keeps jobs apart."""

    def __init__(self, listing: Listing, host: str) -> None:
        self.listing, self.host = listing, host
        self.name = ""
        """Number of its job at Slurm."""

    def do(self, job: JobFolder) -> None:
        """Submit it, and wait for its exit code. Raises WorkFailed where Slurm takes no jobs, or loses it."""
        tries = job.tries
        self.name = _said(_submission(job)).partition(";")[0].strip()
        named_at, is_told = time.monotonic(), False
        while (state := job.state) not in ENDED:
            if job.cancelled and not is_told:  # Where it runs already, whoever runs it ends it in good order.
                is_told = True
                with contextlib.suppress(WorkFailed):
                    _said(["scancel", "--state=PENDING", self.name])
            elif self.listing.has(self.name):
                named_at = time.monotonic()
            elif self.listing.answered - named_at > SEEN_S and state != "running":
                never = f" and never began it: do the nodes share {job.path.parent}?" if job.tries == tries else ""
                raise WorkFailed(f"its job of Slurm ended{never}")
            time.sleep(LOOK_S)
        if job.rc is not None:
            job.check()


def _submission(job: JobFolder) -> list[str]:
    """The command that gives a job to Slurm."""
    terms = job.job
    options = ["--parsable", f"--output={job.path}/slurm.txt", "--job-name=loop"]
    options += ["--gres=gpu:1"] if terms.needs_gpu else []
    options += ["--exclusive"] if terms.alone else []
    options += [f"--time={math.ceil(terms.ttl_s / 60) + 1}"] if terms.ttl_s else []
    options += shlex.split(os.environ.get(OPTIONS, ""))
    command = f"PYTHONPATH={shlex.quote(python_path())} exec {shlex.join([*RUN, str(job.path)])}"
    return ["sbatch", *options, f"--wrap={command}"]


def _said(command: Sequence[str]) -> str:
    """What a command of Slurm's printed. Raises WorkFailed where it fails."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkFailed(f"{command[0]}: {error}", hint="`sinfo` shows the cluster") from error
    if completed.returncode:
        message = f"{command[0]}: {completed.stderr.strip()[:300] or completed.returncode}"
        raise WorkFailed(message, hint=f"`sinfo` shows the cluster; {OPTIONS} holds further options of sbatch")
    return completed.stdout
