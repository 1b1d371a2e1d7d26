"""A job's folder: one `loop` command that any machine can run, with its state in files."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loop.base.errors import UsageError, WorkFailed
from loop.cli.runs import make_campaign
from loop.jobs import executor
from loop.jobs import folder as jobs
from loop.jobs.folder import JobFolder
from tests.jobs.small import Make, make

__all__ = ["make"]


@pytest.mark.parametrize(
    ("word", "code", "state"),
    [("go", 0, "done"), ("fail", 1, "done"), ("wrong", 2, "failed"), ("die", -9, "failed")],
)
def test_a_job_ends_as_its_command_does(make: Make, word: str, code: int, state: str) -> None:
    """A failed gate is a result; wrong usage and a crash are not."""
    job = make(word)
    assert "queued" == job.state
    assert code == executor.run_job(job)
    assert (code, state) == (job.exit_code, job.state)
    assert (word, "a") == (job.read_answer()["said"], job.read_answer()["source"])
    job.verify_results()


def started(job: JobFolder) -> threading.Thread:
    """The job at work in a thread, as an executor runs it."""
    thread = threading.Thread(target=executor.run_job, args=[job])
    thread.start()
    end = time.monotonic() + 30
    while not jobs.read_text(job.path / "stdout"):
        assert time.monotonic() < end
        time.sleep(0.01)
    return thread


def test_a_job_ends_when_it_is_cancelled(make: Make) -> None:
    """A file cancels it, so anybody who shares the folder can."""
    job = make("sleep")
    thread = started(job)
    assert "running" == job.state
    job.cancel()
    thread.join(10)
    assert ("cancelled", -signal.SIGTERM) == (job.state, job.exit_code)


def test_a_job_ends_at_its_limit(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ignores the request to end is killed."""
    monkeypatch.setattr(executor, "COMMAND_END_LIMIT_S", 0.1)
    job = make("stubborn", ttl_s=0.2)
    assert 124 == executor.run_job(job)
    assert "failed" == job.state


@pytest.mark.slow
def test_a_job_whose_runner_is_killed_is_lost_and_its_command_ends(make: Make, tmp_path: Path) -> None:
    """A lost job has no exit code; it is started three times at most."""
    job = make("sleep")
    runs = "executor.COMMAND_DYING_WITH_PARENT = tuple(sys.argv[2:]); "
    runs += "executor.run_job(executor.JobFolder(Path(sys.argv[1])))"
    code = f"import sys; from pathlib import Path; from loop.jobs import executor; {runs}"
    for _ in range(jobs.MOST_TRIES):
        (job.path / "stdout").unlink(missing_ok=True)
        runner = subprocess.Popen([sys.executable, "-c", code, str(job.path), *executor.COMMAND_DYING_WITH_PARENT])
        while not jobs.read_text(job.path / "stdout"):
            assert runner.poll() is None
            time.sleep(0.01)
        runner.kill()
        runner.wait()
        assert "lost" == job.state
    assert 125 == executor.run_job(job)
    assert "begun 3 times" in jobs.last_line(job.path / "stderr")


def test_a_source_that_differs_is_refused_before_it_runs(make: Make) -> None:
    """A torn copy, or a folder that is not the one that was written to."""
    job = make("go")
    (job.path / "src" / "a.txt").write_text("b")
    assert 75 == executor.run_job(job)
    assert "not what was submitted" in jobs.last_line(job.path / "stderr")
    with pytest.raises(WorkFailed, match="no machine could do it"):
        job.read_answer()


@pytest.mark.parametrize(("age_s", "state"), [(1.0, "running"), (3600.0, "lost")])
def test_a_runner_of_another_machine_is_known_by_its_heartbeat(make: Make, age_s: float, state: str) -> None:
    """Process numbers of another machine mean nothing here, so its heartbeat counts."""
    job = make("go")
    (job.path / "pid").write_text("1-1 another-system pid:[1]")
    (job.path / "heartbeat").write_text("7")
    for name in ("pid", "heartbeat"):
        os.utime(job.path / name, (time.time() - age_s, time.time() - age_s))
    assert state == job.state


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rya", "no executor 'rya'"),
        ("slurm", "no sbatch here"),
        ("ssh", "there is no hosts.yaml"),
        ("ray", "needs the package `ray`"),
    ],
)
def test_an_executor_that_is_not_there_is_refused_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    """It is refused even if the command would have no job for it."""
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(UsageError, match=says):
        make_campaign(executor=name, width=2)


def test_what_came_back_is_compared_with_what_was_made(make: Make) -> None:
    """They are compared by the manifest, which is written before the exit code."""
    job = make("go")
    executor.run_job(job)
    (job.path / "out" / "sessions" / "made.txt").write_text("other")
    with pytest.raises(WorkFailed, match=r"sessions/made\.txt is not what the job made"):
        job.verify_results()


def test_a_job_that_has_ended_is_not_run_again(make: Make) -> None:
    """A second submission of the same work gets the stored result."""
    job = make("go")
    executor.run_job(job)
    (job.path / "src" / "a.txt").write_text("b")
    assert 0 == executor.run_job(make("go"))
    assert "a" == job.read_answer()["source"]


def test_a_full_disk_is_said_before_a_job_begins(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the free bytes; the exit code is that of a machine's failure."""
    monkeypatch.setattr(executor, "MIN_FREE_BYTES", 1 << 62)
    job = make("go")
    assert 75 == executor.run_job(job)
    assert "MiB left" in jobs.last_line(job.path / "stderr")
