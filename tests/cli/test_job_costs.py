"""What jobs cost: an hour of a host is paid once, however many jobs share it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.model import change
from loop.model.campaign import Campaign
from loop.model.jobs import JobRun
from loop.optimize import campaign


def ran(began: float, seconds: float, usd: float | None = 0.7, host: str = "l4") -> JobRun:
    """A job on a host with a price."""
    fields = {"id": f"{host}-{began}-{seconds}", "title": "", "state": "done", "tries": 1}
    return JobRun.model_validate({**fields, "host": host, "began": began, "seconds": seconds, "usd_per_hour": usd})


def test_a_budget_in_dollars_counts_the_machines_of_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second of a host once, as the host's bill does; what has no price of its own is this machine's."""
    jobs = [
        ran(0, 3600, 1.0),
        ran(1800, 3600, 1.0),
        ran(0, 60, 1.0),
        ran(0, 3600, 2.0, "h100"),
        ran(0, 9, None, "x"),
    ]
    monkeypatch.setattr(campaign, "workshop_of", lambda context: SimpleNamespace(briefs_folder=tmp_path / "notes"))
    monkeypatch.setattr(change, "jobs_of", lambda finished: jobs)
    task = SimpleNamespace(campaign=Campaign(), usd_per_hour=5.0)
    context = cast(Any, SimpleNamespace(finished=(), task=task, bench=SimpleNamespace(device="cuda")))
    assert pytest.approx(1.5 + 2.0) == campaign.sum_spending(context).usd
