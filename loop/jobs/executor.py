"""Whoever runs jobs: submit, poll, cancel, collect. And one way to have a list of jobs done, whoever runs them.

A job that is lost is begun again elsewhere, `folder.MOST_TRIES` times in all. Its folder here is the truth: after
a head has died, the next one finds there what had ended.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol

from loop.base.documents import did_you_mean
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.processes import Tick
from loop.base.remarks import remark
from loop.jobs.folder import ENDED, MOST_TRIES, TALK, TRIES, JobFolder, last_line
from loop.jobs.groups import groups
from loop.jobs.running import refuse
from loop.model.jobs import State

REST_S = 0.1
"""Between two looks at jobs, at most: a job that ends is noticed at once where its executor is told."""
AGAIN = frozenset({ExitCode.PAUSED, ExitCode.OVER_BUDGET})
"""Exit codes of a machine that failed, or of a job that hung: it is begun again elsewhere."""
NAMES = {"local": "loop.jobs.local", "ssh": "loop.jobs.ssh", "ray": "loop.jobs.ray", "slurm": "loop.jobs.slurm"}
"""Executor to its module; each has functions `check()` and `opened(width)`."""


class Executor(Protocol):
    """Runs jobs. Their folders are here; what runs elsewhere is brought back into them."""

    def submit(self, job: JobFolder) -> None:
        """Have a job run, some time. Returns at once."""

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """Id to state. Raises LoopError where nobody can be asked any more."""

    def rest(self, seconds: float) -> None:
        """Wait for a job to end, or for so long."""

    def cancel(self, job: JobFolder) -> None:
        """Have a job end. Returns at once."""

    def collect(self, job: JobFolder) -> None:
        """Bring back what a job that has ended made. Raises LoopError where that cannot be had: it is lost."""

    def avoid(self, uuid: str) -> bool:
        """Give a device no further job. False where that cannot be, as it is the only one."""

    def close(self) -> None:
        """End what still runs, and leave nothing behind."""


def check(name: str) -> None:
    """Raise UsageError where there is no such executor, or it cannot work here: before anything is begun."""
    _module(name).check()


def opened(name: str, width: int) -> Executor:
    """The executor of this name; at most `width` jobs run at a time. Raises UsageError where it cannot work."""
    check(name)
    executor: Executor = _module(name).opened(width)
    return executor


def _module(name: str) -> Any:
    import importlib

    if name not in NAMES:
        raise UsageError(
            f"no executor {name!r}", hint=did_you_mean(name, [*NAMES]) or f"there are {', '.join(NAMES)}"
        )
    return importlib.import_module(NAMES[name])


def all_done(executor: Executor, jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
    """Have all of them done, each once; those that have ended before are not run again.

    One that still runs, as where a cluster outlives a head, is waited for: it is not begun beside itself.

    When it is closed, what still runs is ended. A job that could not be done is not `done`: its state says why.
    """
    open_ = {job.id: job for job in jobs if job.state != "done"}
    waiting = dict(open_)
    try:
        while open_:
            states = _begun(executor, waiting)
            states |= executor.poll(
                [job for id_, job in open_.items() if id_ not in waiting and id_ not in states]
            )
            for id_, state in states.items():
                if state in (*ENDED, "lost"):
                    _settle(executor, open_, id_, state)
            yield Tick(f"{len(jobs) - len(open_)} of {len(jobs)} jobs done")
            executor.rest(REST_S)
    finally:
        for job in open_.values():
            executor.cancel(job)


def _begun(executor: Executor, waiting: dict[str, JobFolder]) -> dict[str, State]:
    """Submit those of the jobs found that nobody is at any more, and take them out; those that are done by now."""
    states: dict[str, State] = {}
    for id_, job in tuple(waiting.items()):
        state = job.state
        if state == "running":
            continue
        del waiting[id_]
        if state == "done":
            states[id_] = state
        else:
            if job.refused:  # Since then a person may have mended the machine.
                (job.path / TRIES).unlink(missing_ok=True)
            job.forget()
            executor.submit(job)
    return states


def all_trusted(executor: Executor, jobs: Sequence[JobFolder], group: str = "") -> Generator[Tick, None, None]:
    """The same; what times something runs on devices of one group: this one, else that of most jobs.

    A result of another group is done again elsewhere, and refused where it comes from such a device once more.
    """
    yield from all_done(executor, jobs)
    apart = strangers(jobs, group)
    for uuid, why in apart.items():
        remark(f"device {uuid} is set aside: {why}")
    avoided = {uuid for uuid in apart if executor.avoid(uuid)}
    again = [job for job in jobs if (where := job.where) is not None and where.uuid in avoided]
    for job in again:
        job.forget()
    yield from all_done(executor, again)
    apart = strangers(jobs, group)
    for job in jobs:
        if job.job.times and (where := job.where) is not None and where.uuid in apart:
            job.forget()
            refuse(job, f"{where.host}: {apart[where.uuid]}, and ratios of two kinds of devices are not mixed")


def strangers(jobs: Sequence[JobFolder], group: str = "") -> dict[str, str]:
    """UUID to why a device is set aside: it timed something, and is of another group than this or most jobs."""
    ran = {job.id: where for job in jobs if job.job.times and (where := job.where) is not None}
    by_group = groups(ran.values())
    chosen = group or max(by_group, key=lambda name: len(by_group[name]), default="")
    return {
        device.uuid: f"it is {name}; the others are {chosen}"
        for name, some in by_group.items() if name != chosen for device in some
    }  # fmt: skip


def _settle(executor: Executor, open_: dict[str, JobFolder], id_: str, state: State) -> None:
    """Take a job over that has ended, or have it begun again."""
    job = open_[id_]
    if state in ("done", "failed"):
        try:
            executor.collect(job)
        except LoopError as error:  # What cannot be brought back was not done.
            remark(f"job {id_}: {error.message}")
            job.forget()
            state = "lost"
    if again(job, state):
        remark(f"job {id_} is begun again: {_why(job, state)}")
        if job.refused and (where := job.where) is not None:
            executor.avoid(where.uuid)
        job.forget()
        executor.submit(job)
    else:
        del open_[id_]


def again(job: JobFolder, state: State) -> bool:
    """Whether it ended through no fault of its own. Its tries are counted where it is begun."""
    code = job.rc
    if job.tries > MOST_TRIES + 1 or (job.refused and job.tries >= MOST_TRIES):
        return False  # Not even that could be noted by whoever begins it; or why it is refused is the last word.
    return state == "lost" or (state == "failed" and code is not None and (code in AGAIN or code < 0))


def _why(job: JobFolder, state: State) -> str:
    if state == "lost":
        return "who ran it died"
    return last_line(job.path / TALK) if job.refused else f"it ended with {job.rc}"
