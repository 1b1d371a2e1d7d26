"""Jobs of the executor `ssh`, and how its tests run them."""

from loop.base.processes import run_to_end
from loop.cloud.hosts import Host
from loop.jobs.executor import close_slots, run_all
from loop.jobs.folder import Job, JobFolder, create_job
from loop.jobs.ssh import SshSlot

HOST = Host(name="l4", ssh="there", gpus=(0, 1), usd_per_hour=0.7)
QUICK = ("patterns", "schema", "pattern")  # A command that prints a page and ends.
LONG = ("run", "step", "command.run", '--with={"run": "sleep 60"}')  # A job that runs until it is ended.


def make(name: str, *words: str, **fields: float) -> JobFolder:
    return create_job(Job(id=name, words=words or QUICK, **fields))  # type: ignore[arg-type]


def run_in(slots: list[SshSlot], *jobs: JobFolder) -> None:
    """Run these jobs in these slots to their end."""
    try:
        run_to_end(run_all(slots, jobs))
    finally:
        close_slots(slots)
