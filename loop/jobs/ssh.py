"""The executor `ssh`: jobs on machines of `hosts.yaml`, one at a time on each of their GPUs.

A lost connection is reopened. If a machine stays away, other machines run its jobs. When it answers
again, its old jobs are ended, and it takes new ones.
"""

import contextlib
import datetime
import os
import time

from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.base.places import MANIFEST, Project
from loop.jobs import hosts as host_list
from loop.jobs.executor import LEAST_BYTES, Slot
from loop.jobs.folder import OUT, RC, SRC, STDERR, TRIES, JobFolder
from loop.jobs.hosts import ListedHost
from loop.jobs.remote import Unreachable, retry_unreachable
from loop.jobs.there import RemoteJobs
from loop.library.hosted import HOSTS_FILE, SENDER_VARIABLE, Sender
from loop.library.trust import definition_hash
from loop.machine.gpus import VISIBLE

CHOSEN = "LOOP_HOSTS"
"""Environment variable: names or labels of machines, comma-separated; unset: all of the user's."""
AWAY_S = 120.0
"""Seconds without an answer after which a machine loses its jobs."""
POLL_S = 0.3
LEAVES_S = 30.0
"""Seconds that a machine has to answer when its last jobs are removed."""


def check() -> None:
    """Raise UsageError if no machine is named, or a name is unknown."""
    _choose_hosts()


def _choose_hosts() -> list[ListedHost]:
    """The machines LOOP_HOSTS names, by default all of the user's. Raises UsageError if none."""
    listed = host_list.read_hosts(None)
    words = [word for word in os.environ.get(CHOSEN, "").split(",") if word]
    host_by_name: dict[str, ListedHost] = {}
    for word in words or listed:
        host_by_name |= {host.name: host for host in host_list.choose_hosts(listed, word)}
    if not host_by_name:
        raise UsageError(f"--executor ssh: no hosts: there is no {HOSTS_FILE}", hint="loop hosts --help")
    return [*host_by_name.values()]


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs of the chosen machines (see `CHOSEN`). Skips a machine that does not answer
    or has a full disk. Raises MachineFailure if none is left."""
    usable: list[Slot] = []
    unfit: list[MachineFailure] = []
    for host in _choose_hosts():
        if len(usable) == width:
            break
        try:
            with RemoteJobs(host) as there:
                _, free_kb = there.check_ready()
                if free_kb << 10 < LEAST_BYTES:
                    raise there.disk_full_error()
        except MachineFailure as error:
            unfit.append(error)
            continue
        gpus = host.host.gpus or (None,)
        usable += [SshSlot(host, gpu) for gpu in gpus[: width - len(usable)]]
        prices, stops = host.host.prices, host.host.stop is not None
        if stops or prices:
            costs = f", and costs ${prices.usd_and_terms(None)[0]:.2f} an hour" if prices else ""
            end = f"loop hosts stop {host.name}" if stops else "stop it yourself"
            remark_once(f"{host.name} goes on running when all is over{costs}; then: {end}")
    if unfit and not usable:
        raise unfit[0]
    for failure in unfit:
        remark_once(f"{failure.message}: the others do its jobs")
    return usable


class SshSlot(Slot):
    """One GPU of a machine, over its own connection. `number`: GPU index; None: any GPU."""

    def __init__(self, host: ListedHost, number: int | None = None) -> None:
        self.listed, self.host, self.gpu_index = host, host.name, number
        self.there = RemoteJobs(host)
        self.stale_jobs: set[str] = set()
        """Ids of jobs on the machine that nothing here waits for, to be removed."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Send a job, poll until it ends, and fetch its results. Its machine's errors set `trouble`."""
        there, variables, is_cancelled = self.there, job_environment(self.listed, job), False
        if self.gpu_index is not None:
            variables[VISIBLE] = str(self.gpu_index)
        try:
            retry_unreachable(self._remove_stale_jobs, AWAY_S)
            self.stale_jobs.add(job.id)
            retry_unreachable(lambda: there.submit(job, variables), AWAY_S)
            while True:
                state = retry_unreachable(lambda: there.poll(job.id), AWAY_S).state
                if state not in ("queued", "running"):
                    break
                if job.is_cancelled and not is_cancelled:
                    retry_unreachable(lambda: there.cancel(job.id), AWAY_S)
                    is_cancelled = True
                time.sleep(POLL_S)
            if state == "lost":
                raise WorkFailed(f"the process that ran it on {self.host} died")
            files = (OUT, STDERR, RC, TRIES)
            retry_unreachable(lambda: there.fetch_results(job, *files), AWAY_S)
        except (MachineFailure, UsageError) as error:  # A person has to fix it, or it is away.
            why = f"{self.host} stays away" if isinstance(error, Unreachable) else error.message
            remark_once(f"{why}: its jobs are done elsewhere")
            self.trouble = error
            raise
        self.uuid = job.device.uuid if job.device else ""

    def _remove_stale_jobs(self) -> None:
        if self.stale_jobs:
            self.there.remove(*self.stale_jobs)
            self.stale_jobs.clear()

    def try_recovery(self) -> bool:
        """True if the machine answers again after it was away."""
        if isinstance(self.trouble, Unreachable):
            with contextlib.suppress(LoopError):
                self._remove_stale_jobs()
                self.trouble = None
        return self.trouble is None

    def close(self) -> None:
        """End and remove the jobs that are still there, then close the connection."""
        with self.there, contextlib.suppress(LoopError):
            retry_unreachable(self._remove_stale_jobs, 0.0 if self.trouble else LEAVES_S)


def job_environment(host: ListedHost, job: JobFolder) -> dict[str, str]:
    """Environment variables of a job: the machine's price, and the targets the user trusts. The trusted targets
    are those in the job's input files, by the hash of their definitions."""
    trusted: list[str] = []
    for name in job.task.files:
        path = job.path / SRC / name
        if path.name == MANIFEST:
            trusted.append(definition_hash(Project(path.parent, path.parent, bundled=False)))
    today = datetime.datetime.now(datetime.UTC).date()
    sender = Sender(name=host.name, prices=host.host.prices, as_of=today, trusted=tuple(trusted))
    return {SENDER_VARIABLE: sender.to_json_text()}
