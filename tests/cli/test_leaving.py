"""What becomes of a rented machine after its last job."""

import time
from pathlib import Path
from typing import cast

import pytest

from loop.base.documents.sums import write_sealed
from loop.base.errors import MachineFailure, WorkFailed
from loop.base.locks import locked
from loop.base.places import Project
from loop.cli.on_host import _bring_back, keep_or_stop_machine, unfetched_job
from loop.jobs import remote_jobs as noted
from loop.jobs.folder import LOCK, SENT, Job, JobFolder, create_job
from loop.jobs.hosts import Host, HostEntry
from loop.jobs.remote_jobs import PollResult, RemoteJobs, TreeInUse
from loop.report.screen import Screen
from tests.cli.test_following import make_sent


class Idle:
    """A machine on which nothing runs."""

    queued: tuple[str, ...] = ()
    """Jobs that begin there."""

    def __init__(self, entry: HostEntry) -> None:
        self.entry = entry

    def list_running(self) -> list[str]:
        """Jobs there."""
        return []

    def poll(self, job: str) -> PollResult:
        """Where a job stands."""
        return PollResult("queued" if job in self.queued else "lost", None, b"", b"", has_more=False)

    def remove(self, *jobs: str) -> None:
        """Remove jobs."""


def make(folder: Path, name: str) -> JobFolder:
    """A job that was sent to l4."""
    job = create_job(Job(id=name, words=("status",)))
    write_sealed(job.path / SENT, make_sent(folder))
    return job


def make_host(folder: Path) -> HostEntry:
    """A machine that costs money until it is stopped."""
    return HostEntry(
        "l4", Host(ssh="there", usd_per_hour=1.0, stop=f"touch {folder}/stopped"), folder / "hosts.yaml"
    )


def stopped(folder: Path, job: JobFolder, keep_until: float | None = None, *queued: str) -> bool:
    """Whether the machine is stopped once this job is back."""
    there = Idle(make_host(folder))
    there.queued = queued
    sent = make_sent(folder).model_copy(update={"keep_until": keep_until})
    keep_or_stop_machine(job, sent, cast(RemoteJobs, there), [], Screen(is_quiet=True))
    return (folder / "stopped").exists()


@pytest.mark.parametrize(("seconds", "is_stopped"), [(3600, False), (-1, True)])
def test_a_machine_is_kept_until_the_planned_time(tmp_path: Path, seconds: float, is_stopped: bool) -> None:
    """No longer: a plan that has passed says nothing of the hours to come."""
    assert is_stopped == stopped(tmp_path, make(tmp_path, "a"), time.time() + seconds)


def test_a_machine_is_kept_for_jobs_that_begin_or_are_being_sent(tmp_path: Path) -> None:
    """Not for one that is lost: nothing will ever come of it."""
    last, other = make(tmp_path, "last"), make(tmp_path, "other")
    assert not stopped(tmp_path, last, None, "other")
    with locked(other.path / LOCK):
        assert not stopped(tmp_path, last)
    assert stopped(tmp_path, last)


def test_a_job_that_is_gone_there_is_over_here(tmp_path: Path) -> None:
    """As where the machine was made anew: nothing is brought back, and the machine is stopped."""
    job, there = make(tmp_path, "gone"), cast(RemoteJobs, Idle(make_host(tmp_path)))
    seen = PollResult("lost", None, b"", b"", has_more=False, is_gone=True)
    with pytest.raises(MachineFailure, match="its folder is not there any more"):
        _bring_back(job, make_sent(tmp_path), there, seen, Screen(is_quiet=True))
    assert (75, True) == (job.exit_code, (tmp_path / "stopped").exists())
    assert [] == [*noted.list_sent_jobs()]


@pytest.mark.parametrize(("tree", "root", "is_away"), [("code-1", "/code", True), ("code-2", "/code", False)])
def test_a_folder_there_is_not_replaced_before_its_branches_are_here(
    tmp_path: Path, tree: str, root: str, is_away: bool
) -> None:
    """A job of that checkout which ended and was not brought back comes first."""
    job = make(tmp_path, "a")
    project = Project(tmp_path / "target", tmp_path / "other", bundled=False)
    assert is_away == (unfetched_job(make_host(tmp_path), project.sessions, tree, None) is not None)
    assert "loop jobs follow a" in (TreeInUse("l4", job.id).hint or "")


def test_a_stop_that_fails_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loudly, and by the exit code; the job is back all the same."""
    job, seen = make(tmp_path, "back"), PollResult("done", 0, b"", b"", has_more=False, is_gone=True)
    host = make_host(tmp_path)
    broken = HostEntry("l4", host.host.model_copy(update={"stop": "false"}), host.path)
    assert 1 == _bring_back(job, make_sent(tmp_path), cast(RemoteJobs, Idle(broken)), seen, Screen())
    assert ([], True) == (
        [*noted.list_sent_jobs()],
        "l4 STILL RUNS AND COSTS $1.00 an hour" in capsys.readouterr().err,
    )


def test_a_machine_stays_while_its_results_are_there_alone(tmp_path: Path) -> None:
    """Stopping may take them away; it is said that it costs on."""

    class Full(Idle):
        def bundle_branches(self, job: str, tree: str) -> None:
            raise WorkFailed("too much", hint="look there")

    job, seen = make(tmp_path, "much"), PollResult("done", 0, b"", b"", has_more=False)
    there = cast(RemoteJobs, Full(make_host(tmp_path)))
    with pytest.raises(WorkFailed, match="too much"):
        _bring_back(job, make_sent(tmp_path), there, seen, Screen(is_quiet=True))
    assert (None, False) == (job.exit_code, (tmp_path / "stopped").exists())
