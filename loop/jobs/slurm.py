"""The executor `slurm`: jobs as tasks of an array, which run in their folders on a disk that all nodes share.

A job's `rc` is the truth. Slurm is asked only whether a job without one still waits or runs.
"""

import contextlib
import math
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loop.base.documents import write_atomic
from loop.base.errors import UsageError, WorkFailed
from loop.base.processes import python_path
from loop.base.remarks import remark
from loop.jobs.folder import CANCEL, TRIES, JobFolder, jobs_folder
from loop.jobs.running import LOOP
from loop.model.jobs import State

RUN = (*LOOP, "job", "run")
"""What a task runs; the job's folder follows."""
OPTIONS = "LOOP_SBATCH"
"""Variable with further options of sbatch, as a partition; sbatch reads its own variables, too."""
ASK_S, LIMIT_S = 1.0, 60.0
SEEN_S = 5.0
"""A task that Slurm no longer names may still write its exit code: disks that are shared tell late."""
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "PREEMPTED")


@dataclass
class SlurmTask:
    """A job at Slurm."""

    name: str
    """Number of the array and of the task in it: `12_3`."""
    tries: int
    """How often it had been begun before."""
    seen_at: float
    """When Slurm last named it."""


def check() -> None:
    """Raises UsageError where there is no Slurm."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        hint = "run on a login node of the cluster, or choose --executor local"
        raise UsageError(f"--executor slurm: no {missing[0]} here", hint=hint)


def opened(width: int) -> "Slurm":
    """Jobs of this user at the cluster."""
    return Slurm(width)


class Slurm:
    """Arrays of jobs; at most `width` of each run at a time."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._new: list[JobFolder] = []
        self._tasks: dict[str, SlurmTask] = {}
        self._named: dict[str, str] = {}
        """Task to its state, as Slurm last said."""
        self._asked = 0.0
        self._answered = 0.0
        """When Slurm last said what it knows."""
        self._told = False

    def submit(self, job: JobFolder) -> None:
        """Keep it for the next array."""
        self._new.append(job)

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """Submit what is new, then look. Raises WorkFailed where Slurm takes no jobs."""
        for alike in self._kinds():
            self._begin(alike)
        self._new.clear()
        if time.monotonic() - self._asked > ASK_S:
            self._ask()
        return {job.id: self._state(job) for job in jobs}

    def rest(self, seconds: float) -> None:
        """Nobody tells of an end: it is looked for."""
        time.sleep(seconds)

    def _kinds(self) -> list[list[JobFolder]]:
        """The new jobs, those together that ask for the same."""
        kinds: dict[tuple[object, ...], list[JobFolder]] = {}
        for job in self._new:
            terms = job.job
            kinds.setdefault((terms.needs_gpu, terms.alone, terms.ttl_s), []).append(job)
        return list(kinds.values())

    def _begin(self, jobs: Sequence[JobFolder]) -> None:
        """One array for jobs that ask for the same."""
        terms = jobs[0].job
        place = jobs_folder() / f".slurm-{time.time_ns()}"
        place.mkdir(parents=True)
        (place / "jobs").write_text("".join(f"{job.path}\n" for job in jobs))
        line = f'"$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(place / "jobs"))})"'
        path = shlex.quote(python_path())
        (place / "run.sh").write_text(f"#!/bin/sh\nexport PYTHONPATH={path}\nexec {shlex.join(RUN)} {line}\n")
        options = [f"--array=0-{len(jobs) - 1}%{self.width}", f"--output={place}/%a.txt", "--job-name=loop"]
        options += ["--gres=gpu:1"] if terms.needs_gpu else []
        options += ["--exclusive"] if terms.alone else []
        options += [f"--time={math.ceil(terms.ttl_s / 60) + 1}"] if terms.ttl_s else []
        options += shlex.split(os.environ.get(OPTIONS, ""))
        number = _said(["sbatch", "--parsable", *options, str(place / "run.sh")]).partition(";")[0].strip()
        for index, job in enumerate(jobs):
            self._tasks[job.id] = SlurmTask(f"{number}_{index}", job.tries, time.monotonic())

    def _ask(self) -> None:
        """What Slurm knows of our tasks; where it does not answer, what it knew before."""
        with contextlib.suppress(WorkFailed):
            lines = _said(["squeue", "--me", "--noheader", "--array", "--format=%i %T"]).splitlines()
            self._named = dict(line.split()[:2] for line in lines if len(line.split()) > 1)
            self._answered = now = time.monotonic()
            for task in self._tasks.values():
                task.seen_at = now if task.name in self._named else task.seen_at
        self._asked = time.monotonic()

    def _state(self, job: JobFolder) -> State:
        task = self._tasks.get(job.id)
        if job.rc is not None or task is None:
            return job.state
        known = self._named.get(task.name)
        if known is not None or self._answered - task.seen_at < SEEN_S:
            return "queued" if known in WAITS else "running"
        if job.state == "running":
            return "running"  # By a task that a head before this one submitted.
        if (job.path / CANCEL).exists():
            return "cancelled"
        if job.tries == task.tries:  # It was never begun: that counts as a try, or it would be tried for ever.
            write_atomic(job.path / TRIES, str(task.tries + 1))
            if not self._told:
                remark(f"a task of Slurm ended and never began its job: do the nodes share {job.path.parent}?")
            self._told = True
        return "lost"

    def cancel(self, job: JobFolder) -> None:
        """Take it back where it waits; where it runs, whoever runs it ends it in good order."""
        job.cancel()
        task = self._tasks.get(job.id)
        if task is not None:
            with contextlib.suppress(WorkFailed):
                _said(["scancel", "--state=PENDING", task.name])

    def collect(self, job: JobFolder) -> None:
        """It is here already, by the disk that is shared. Raises WorkFailed for what did not arrive."""
        job.check()

    def avoid(self, uuid: str) -> bool:
        """Which GPU a task gets is Slurm's to say."""
        return False

    def close(self) -> None:
        """Nothing is kept open: what was cancelled ends by itself."""


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
