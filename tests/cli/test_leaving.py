"""What becomes of a rented machine after its last job."""

import time
from pathlib import Path
from typing import cast

import pytest

from loop.base.screen import Screen
from loop.cli.leaving import leave
from loop.jobs import sent as noted
from loop.jobs.folder import Job, JobFolder, prepare
from loop.jobs.hosts import Host, Listed
from loop.jobs.there import There
from tests.cli.test_following import make_sent


class Idle:
    """A machine on which nothing runs."""

    def running(self) -> list[str]:
        """Jobs there."""
        return []


def make(folder: Path, name: str) -> JobFolder:
    """A job that was sent to l4."""
    job = prepare(Job(id=name, words=("status",)))
    noted.write(job, make_sent(folder))
    return job


def stopped(folder: Path, job: JobFolder, keep_until: float | None) -> bool:
    """Whether the machine is stopped once this job is back."""
    host = Listed("l4", Host(ssh="there", usd_per_hour=1.0, stop=f"touch {folder}/stopped"), folder / "hosts.yaml")
    sent = make_sent(folder).model_copy(update={"keep_until": keep_until})
    leave(job, sent, host, cast(There, Idle()), [], Screen(quiet=True))
    return (folder / "stopped").exists()


@pytest.mark.parametrize(("seconds", "is_stopped"), [(3600, False), (-1, True)])
def test_a_machine_is_kept_until_the_planned_time(tmp_path: Path, seconds: float, is_stopped: bool) -> None:
    """No longer: a plan that has passed says nothing of the hours to come."""
    assert is_stopped == stopped(tmp_path, make(tmp_path, "a"), time.time() + seconds)
