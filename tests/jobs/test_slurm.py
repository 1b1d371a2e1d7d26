"""The executor of a Slurm cluster, on one that runs here: limits, requeues, jobs that vanish."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.errors import WorkFailed
from loop.base.processes import run_to_end
from loop.jobs import executor, slurm
from loop.jobs.folder import MOST_TRIES, JobFolder
from tests.jobs.small import Make, make

__all__ = ["make"]
SCRIPT = str(Path(__file__).with_name("slurm.sh"))
MISSING = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
needs_slurm = pytest.mark.skipif(
    bool(MISSING) or os.geteuid() != 0, reason="needs root, and Debian's slurm-wlm and munge"
)


def runs(command: tuple[str, ...]) -> tuple[str, ...]:
    """What a task runs before its job's folder, where a small command stands for `loop`."""
    code = "import sys; from pathlib import Path; from loop.jobs import executor; "
    code += f"executor.COMMAND_DYING_WITH_PARENT = {command!r}; "
    return sys.executable, "-c", f"{code}executor.run_job(executor.JobFolder(Path(sys.argv[1])))"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of this machine; its jobs are small."""
    folder = tmp_path / "slurm"
    subprocess.run(["sh", SCRIPT, "start", str(folder)], check=True, timeout=60)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(slurm, "RUN_COMMAND", runs((sys.executable, "-S", "-P", str(tmp_path / "loop.py"))))
    yield
    subprocess.run(["sh", SCRIPT, "stop", str(folder)], check=True, timeout=60)


def all_done(jobs: list[JobFolder]) -> None:
    """All of them done by Slurm, two at a time."""
    with contextlib.closing(executor.open_executor("slurm", 2)) as runner:
        run_to_end(executor.run_all(runner, jobs))


@needs_slurm
@pytest.mark.slow
def test_jobs_of_a_cluster(make: Make, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of them; one that hangs ends at its limit; one that kills what runs it is begun three times."""
    monkeypatch.setattr(slurm, "EXIT_CODE_WAIT_S", 1.0)
    jobs = [make(f"nap {number}") for number in range(10)]
    all_done(jobs)
    assert [("done", f"nap {n}", 1) for n in range(10)] == [
        (job.state, job.read_answer()["said"], job.tries) for job in jobs
    ]
    hung, dies = make("sleep", ttl_s=0.5), make("die")
    all_done([hung, dies])
    assert [("failed", 124), ("failed", -9)] == [(job.state, job.exit_code) for job in (hung, dies)]
    assert MOST_TRIES == hung.tries


def test_a_job_is_lost_only_by_an_answer_of_slurms(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as `squeue` fails, it may run as well as not."""
    answers = iter([None, None, None, "7\n", "7\n", ""])

    def said(command: list[str]) -> str:
        if (answer := "7\n" if command[0] == "sbatch" else next(answers)) is None:
            raise WorkFailed("squeue: no answer")
        return answer

    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(slurm, "_run_slurm", said)
    for name, seconds in {"EXIT_CODE_WAIT_S": 0.01, "ASK_S": 0.0, "POLL_S": 0.02}.items():
        monkeypatch.setattr(slurm, name, seconds)
    with pytest.raises(WorkFailed, match="its job of Slurm ended and never began it: do the nodes share "):
        slurm.slots(1)[0].run_in_slot(make("go"))
    assert [] == [*answers]


@needs_slurm
@pytest.mark.slow
def test_a_task_that_vanishes_or_is_requeued_costs_a_retry(make: Make, cluster: None) -> None:
    """A task that is killed is begun again by us, one that is requeued by Slurm; a cancelled one is not."""
    jobs = [make(f"once {word}") for word in ("killed", "requeued", "cancelled")]
    runner = executor.open_executor("slurm", 2)
    working = executor.run_all(runner, jobs)
    end = time.monotonic() + 60
    while {"running"} != {job.state for job in jobs[:2]}:
        next(working)
        assert time.monotonic() < end
    names = {job.id: slot.slurm_id for job, slot in runner._running.values() if isinstance(slot, slurm.SlurmSlot)}
    subprocess.run(["scancel", "--signal=KILL", "--full", names[jobs[0].id]], check=True)
    subprocess.run(["scontrol", "requeue", names[jobs[1].id]], check=True)
    runner.cancel(jobs[2])
    for job in jobs[:2]:
        (job.path / "src" / "go").touch()
    run_to_end(working)
    runner.close()
    assert ["done", "done", "cancelled"] == [job.state for job in jobs]
    assert [2, 2] == [job.tries for job in jobs[:2]]
