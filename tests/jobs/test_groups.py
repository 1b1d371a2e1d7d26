"""Which devices may be compared, which are set aside, and the picture of what each did."""

import contextlib
import threading
from pathlib import Path

import pytest

from loop.base.errors import WorkFailed
from loop.base.processes import run_to_end
from loop.jobs import executor
from loop.jobs.executor import Executor
from tests.jobs.small import Make, make
from tests.jobs.test_local import slots

__all__ = ["make"]


@pytest.mark.slow
def test_what_is_timed_stays_within_one_group(make: Make, tmp_path: Path) -> None:
    """Of the group that is named; what another did is done again, and refused where there is no other device."""
    two = slots(2, 0, tmp_path)
    two[1].where = two[1].where.model_copy(update={"driver": "535"})
    jobs = [make(f"nap {number}", needs_gpu=True, times=True) for number in range(4)]
    with contextlib.closing(Executor(two)) as runner:
        run_to_end(executor.run_all_comparable(runner, jobs, wanted := two[0].where.group))
    assert {("GPU-0", "done")} == {(job.device.uuid, job.state) for job in jobs if job.device}
    assert [] == executor.find_incomparable(jobs, wanted)
    last = make("nap last", needs_gpu=True, times=True)
    with contextlib.closing(Executor(two[1:])) as runner:
        run_to_end(executor.run_all_comparable(runner, [last], wanted))
    assert "failed" == last.state
    with pytest.raises(WorkFailed, match="ratios of two kinds of devices are not mixed"):
        last.read_answer()


def test_a_machine_without_the_compiler_costs_a_retry_elsewhere(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its answer would be that a variant does not build, which is a wrong one; it gets no further job."""
    there = {"GPU-0": [], "GPU-1": ["nvcc"]}

    def which(name: str) -> str | None:
        return name if name in there[threading.current_thread().name] else None

    monkeypatch.setattr("loop.jobs.executor.shutil.which", which)
    jobs = [make(f"nap {number}", needs_gpu=True, programs=("nvcc",)) for number in range(4)]
    with contextlib.closing(Executor(slots(2, 0, tmp_path))) as runner:  # Each is a machine of its own.
        run_to_end(executor.run_all(runner, jobs))
    assert {("GPU-1", "done")} == {(job.device.uuid, job.state) for job in jobs if job.device}
    assert "is begun again: no nvcc on " in capsys.readouterr().err
