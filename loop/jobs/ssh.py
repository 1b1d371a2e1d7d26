"""The executor `ssh`: jobs on machines of `hosts.yaml`, one at a time on each of their GPUs.

A lost connection is reopened. If a machine stays away, other machines run its jobs. When it answers
again, its old jobs are ended, and it takes new ones.
"""

import contextlib
import os
import time
from pathlib import Path

from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.base.places import MANIFEST, Project
from loop.jobs import hosts as host_list
from loop.jobs.executor import MIN_FREE_BYTES, Slot
from loop.jobs.folder import EXIT_CODE, SOURCES, STDERR, STDOUT, TRIES, JobFolder
from loop.jobs.hosts import HostEntry
from loop.jobs.remote import Unreachable, retry_unreachable
from loop.jobs.remote_jobs import RemoteJobs
from loop.library.hosted import HOSTS_FILE
from loop.library.trust import definition_hash

HOSTS_VARIABLE = "LOOP_HOSTS"
"""Environment variable: names of machines, comma-separated; unset: all of the user's."""
AWAY_LIMIT_S = 120.0
"""Seconds without an answer after which a machine loses its jobs."""
POLL_S = 0.3
REMOVE_LIMIT_S = 30.0
"""Seconds that a machine has to answer when its last jobs are removed."""


def check() -> None:
    """Raise UsageError if no machine is named, or a name is unknown."""
    _choose_hosts()


def _choose_hosts() -> list[HostEntry]:
    """The machines that LOOP_HOSTS names, by default all of the user's. Raises UsageError if there are none."""
    entries = host_list.read_hosts(None)
    names = list(filter(None, os.environ.get(HOSTS_VARIABLE, "").split(","))) or [*entries]
    if not names:
        raise UsageError(f"--executor ssh: no hosts: there is no {HOSTS_FILE}", hint="loop hosts --help")
    return [host_list.choose_host(entries, name) for name in dict.fromkeys(names)]


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs of the chosen machines (see `HOSTS_VARIABLE`). Skips a machine that does not
    answer or has a full disk; raises MachineFailure if all are skipped."""
    usable: list[Slot] = []
    failures: list[MachineFailure] = []
    for entry in _choose_hosts():
        if len(usable) == width:
            break
        try:
            with RemoteJobs(entry) as connection:
                _, free_kb = connection.check_ready()
                if free_kb << 10 < MIN_FREE_BYTES:
                    raise connection.disk_full_error()
        except MachineFailure as error:
            failures.append(error)
            continue
        gpus = entry.host.gpus or (None,)
        usable += [SshSlot(entry, gpu) for gpu in gpus[: width - len(usable)]]
        if entry.host.stop or entry.cost_text:
            cost = f", and costs {entry.cost_text}" if entry.cost_text else ""
            advice = f"loop hosts stop {entry.name}" if entry.host.stop else "stop it yourself"
            remark_once(f"{entry.name} goes on running when all is over{cost}; then: {advice}")
    if failures and not usable:
        raise failures[0]
    for failure in failures:
        remark_once(f"{failure.message}: the others do its jobs")
    return usable


class SshSlot(Slot):
    """One GPU of a machine, over its own connection. `number`: GPU index; None: any GPU."""

    def __init__(self, host: HostEntry, number: int | None = None) -> None:
        self.host, self.connection = host.name, RemoteJobs(host)
        self.gpus = None if number is None else (number,)
        self.stale_jobs: set[str] = set()
        """Ids of jobs on the machine that nothing here waits for any longer."""

    def run_in_slot(self, job: JobFolder) -> None:
        """Send a job, poll until it ends, and fetch its results. Errors of its machine also set `trouble`."""
        connection, is_cancelled = self.connection, False
        try:
            retry_unreachable(self._remove_stale_jobs, AWAY_LIMIT_S)
            self.stale_jobs.add(job.id)
            retry_unreachable(lambda: connection.submit(job, trusted_hashes(job), self.gpus), AWAY_LIMIT_S)
            while True:
                state = retry_unreachable(lambda: connection.poll(job.id), AWAY_LIMIT_S).state
                if state not in ("queued", "running"):
                    break
                if job.is_cancelled and not is_cancelled:
                    retry_unreachable(lambda: connection.cancel(job.id), AWAY_LIMIT_S)
                    is_cancelled = True
                time.sleep(POLL_S)
            if state == "lost":
                raise WorkFailed(f"the process that ran it on {self.host} died")
            files = (STDOUT, STDERR, EXIT_CODE, TRIES)
            retry_unreachable(lambda: connection.fetch_results(job, *files), AWAY_LIMIT_S)
        except (MachineFailure, UsageError) as error:  # A person has to fix it, or it is away.
            reason = f"{self.host} stays away" if isinstance(error, Unreachable) else error.message
            remark_once(f"{reason}: its jobs are done elsewhere")
            self.trouble = error
            raise
        self.uuid = job.device.uuid if job.device else ""

    def _remove_stale_jobs(self) -> None:
        """End the stale jobs on the machine and remove their folders."""
        if self.stale_jobs:
            self.connection.remove(*self.stale_jobs)
            self.stale_jobs.clear()

    def try_recovery(self) -> bool:
        """True if the machine answers again after it was away."""
        if isinstance(self.trouble, Unreachable):
            with contextlib.suppress(LoopError):
                self._remove_stale_jobs()
                self.trouble = None
        return self.trouble is None

    def close(self) -> None:
        """End and remove the jobs still there (one try if it has trouble); close the connection."""
        with self.connection, contextlib.suppress(LoopError):
            retry_unreachable(self._remove_stale_jobs, 0.0 if self.trouble else REMOVE_LIMIT_S)


def trusted_hashes(job: JobFolder) -> tuple[str, ...]:
    """Hashes of the definitions of all targets among a job's input files: its user trusts them."""
    manifests = [job.path / SOURCES / name for name in job.task.files if Path(name).name == MANIFEST]
    return tuple(definition_hash(Project(path.parent, path.parent, bundled=False)) for path in manifests)
