"""Jobs of the executor `ssh`, and how its tests wait for them."""

import time
from collections.abc import Callable

from loop.cloud.hosts import Host
from loop.jobs.executor import Executor
from loop.jobs.folder import Job, JobFolder, create_job
from loop.jobs.ssh import SshSlot
from loop.model.record import State

HOST = Host(name="l4", ssh="there", gpus=(0, 1), usd_per_hour=0.7)
QUICK = ("patterns", "schema", "pattern")  # A command that prints a page and ends.
LONG = ("run", "step", "command.run", '--with={"run": "sleep 60"}')  # A job that runs until it is ended.


def opened(*hosts: Host) -> Executor:
    """An executor with a slot on each machine."""
    return Executor([SshSlot(host) for host in hosts])


def make(name: str, *words: str, **fields: float) -> JobFolder:
    return create_job(Job(id=name, words=words or QUICK, **fields))  # type: ignore[arg-type]


def wait(executor: Executor, job: JobFolder, done: Callable[[State], bool]) -> State:
    """Poll until a state is right."""
    end = time.monotonic() + 60
    while not done(state := executor.state(job)):
        assert time.monotonic() < end, state
        time.sleep(0.05)
    return state


def ended(state: State) -> bool:
    """Whether the job is over."""
    return state not in ("queued", "running")
