"""The executor `slurm`: each job is an `sbatch` job that runs in its folder on a shared disk.

A job has ended when its folder has an exit code. It was lost if `sbatch --wait` ends without one.
"""

import math
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from subprocess import DEVNULL
from typing import Any

from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import output_of, python_path
from loop.jobs.executor import COMMAND, OWN_SESSION, Slot
from loop.jobs.folder import ENDED_STATES, JobFolder

RUN_COMMAND = (*COMMAND, "job", "run")  # Command of a Slurm job; the job's folder follows.
OPTIONS_VARIABLE = "LOOP_SBATCH"  # Environment variable: more sbatch options, as for a partition.
POLL_S, LIMIT_S = 0.1, 60.0  # Seconds between polls of a job's folder; limit for `scancel`.
EXIT_CODE_WAIT_S = 5.0  # Seconds to wait for the exit code of an ended job: shared disks are slow.


def check() -> None:
    """Raise UsageError if Slurm's commands are not on the PATH."""
    missing = [name for name in ("sbatch", "scancel") if shutil.which(name) is None]
    if missing:
        hint = "run on a login node of the cluster, or choose --executor local"
        raise UsageError(f"--executor slurm: no {missing[0]} here", hint=hint)


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` Slurm jobs of this user."""
    return [SlurmSlot(f"slurm-{number}") for number in range(width)]


class SlurmSlot(Slot):
    """Runs one Slurm job at a time. `host` is unique: Slurm itself keeps jobs apart."""

    def __init__(self, host: str) -> None:
        self.host = host

    def run_in_slot(self, job: JobFolder) -> None:
        """Submit a job and wait for its end. Raises WorkFailed if Slurm refuses or drops it."""
        task, tries, is_cancelled, ended_at = job.task, job.tries, False, math.inf
        options = ["--wait", f"--output={job.path}/slurm.txt", f"--job-name=loop-{job.id}"]
        options += ["--gres=gpu:1"] if task.needs_gpu else []
        options += ["--exclusive"] if task.alone else []
        if task.ttl_s:  # In minutes; one more, so that `loop` ends the job before Slurm does.
            options.append(f"--time={math.ceil(task.ttl_s / 60) + 1}")
        options += shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
        command = shlex.join([*RUN_COMMAND, str(job.path)])
        options.append(f"--wrap=PYTHONPATH={shlex.quote(python_path())} exec {command}")
        cancel = ["scancel", "--state=PENDING", f"--name=loop-{job.id}"]
        quiet: dict[str, Any] = {"stdin": DEVNULL, "stdout": DEVNULL, **OWN_SESSION}
        with tempfile.TemporaryFile("w+") as errors:
            sbatch = subprocess.Popen(["sbatch", *options], stderr=errors, **quiet)
            try:
                while (state := job.state) not in ENDED_STATES:
                    if job.is_cancelled and not is_cancelled:  # A job that runs sees `cancel`.
                        is_cancelled = True
                        output_of(cancel, limit_s=LIMIT_S)
                    if sbatch.poll() is not None:
                        ended_at = min(ended_at, time.monotonic())
                    if time.monotonic() - ended_at > EXIT_CODE_WAIT_S and state != "running":
                        errors.seek(0)
                        why = "its job of Slurm ended"
                        if job.tries == tries:
                            why = f"{why} and never began it: do the nodes share {job.path.parent}?"
                        hint = f"`sinfo` shows the cluster; {OPTIONS_VARIABLE}: options of sbatch"
                        raise WorkFailed(errors.read().strip()[-300:] or why, hint=hint)
                    time.sleep(POLL_S)
            finally:
                sbatch.kill()
                sbatch.wait()
