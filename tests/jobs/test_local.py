"""The local executor: a job a slot, one user a GPU; which devices may be compared."""

import threading
import time
from typing import Any

import pytest

from loop.base.errors import WorkFailed
from loop.base.processes import run_to_end
from loop.jobs import executor, local
from loop.jobs.executor import Slot, close_slots, run_all
from loop.jobs.folder import MOST_TRIES, JobFolder
from loop.jobs.local import LocalSlot
from loop.model.record import Where
from loop.steps import spread
from tests.jobs.small import Make, make

__all__ = ["make"]


def slots(gpus: int, processors: int) -> list[LocalSlot]:
    """Slots of a machine with so many GPUs."""
    places = [Where(host="h", device="L4", uuid=f"GPU-{n}") for n in range(gpus)]
    gpu_slots = [LocalSlot(place) for place in places]
    return [*gpu_slots, *(LocalSlot(Where(host="h", uuid="x86")) for _ in range(processors))]


def run_jobs(jobs: list[JobFolder], gpus: int, processors: int) -> None:
    """Run these jobs in this many slots."""
    run_in(slots(gpus, processors), jobs)


def run_in(slots: list[Any], jobs: list[JobFolder]) -> None:
    """Run these jobs in these slots."""
    run_to_end(run_all(slots, jobs))
    close_slots(slots)


def overlaps(first_job: JobFolder, second_job: JobFolder) -> bool:
    """Whether two jobs ran at the same time."""
    first, second = sorted((job.device for job in (first_job, second_job)), key=lambda where: where.began)
    return second.began < first.began + first.seconds


def test_jobs_run_side_by_side_one_a_gpu(make: Make) -> None:
    """Each job sees only its own GPU, and reports it."""
    jobs = [make(f"nap {n}", needs_gpu=True) for n in range(4)]
    run_jobs(jobs, 2, 0)
    uuids = [job.read_answer()["gpu"] for job in jobs]
    assert ["GPU-0", "GPU-0", "GPU-1", "GPU-1"] == sorted(uuids)
    assert uuids == [job.device.uuid for job in jobs]
    for gpu in set(uuids):
        of_gpu = [job for job, uuid in zip(jobs, uuids, strict=True) if uuid == gpu]
        assert not overlaps(*of_gpu)


def test_two_executors_share_a_gpu(make: Make) -> None:
    """The lock on its UUID lets one job in at a time."""
    jobs = [make(f"nap {n}", needs_gpu=True) for n in range(2)]
    threads = [threading.Thread(target=run_jobs, args=[[job], 1, 0]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {"done"} == {job.state for job in jobs}
    assert not overlaps(*jobs)


def test_a_job_that_has_to_be_alone_runs_alone(make: Make) -> None:
    """Others wait for it, and it for them: calls from the host nearly double in time beside others."""
    jobs = [make("nap 0"), make("nap 1", alone=True), make("nap 2"), make("nap 3")]
    run_jobs(jobs, 0, 3)
    assert not [job.id for job in jobs if job is not jobs[1] and overlaps(job, jobs[1])]
    assert overlaps(jobs[2], jobs[3])


def test_a_job_that_kills_what_runs_it_is_begun_three_times(make: Make) -> None:
    """It is given up after three tries; other jobs complete; the next process does not retry it."""
    jobs = [make("die"), make("go")]
    run_jobs(jobs, 0, 1)
    assert ["failed", "done"] == [job.state for job in jobs]
    assert (MOST_TRIES, 1) == (jobs[0].tries, jobs[1].tries)
    run_jobs(jobs, 0, 1)
    assert ("failed", 125) == (jobs[0].state, jobs[0].exit_code)


def test_a_job_that_no_machine_can_begin_says_why_and_is_tried_again_by_the_next_head(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals do not count as failed runs, because the missing tool may be installed later."""
    job = make("go", programs=("no-such-compiler",))
    run_jobs([job], 0, 1)
    with pytest.raises(WorkFailed, match="no machine could do it: no no-such-compiler on "):
        job.read_answer()
    monkeypatch.setattr("loop.jobs.executor.shutil.which", str)
    run_jobs([job], 0, 1)
    assert ("done", 1) == (job.state, job.tries)


def test_a_gpu_that_loses_job_after_job_is_set_aside(make: Make) -> None:
    """The other one does the work, so that a broken GPU costs retries and no result."""
    jobs = [make(f"dies-on GPU-0 {n}", needs_gpu=True) for n in range(4)]
    run_jobs(jobs, 2, 0)
    assert {"done"} == {job.state for job in jobs}
    assert {"GPU-1"} == {job.device.uuid for job in jobs}


def test_a_machine_that_never_brought_a_job_to_its_end_is_set_aside(make: Make) -> None:
    """Its device has no name yet. It fails quickly, and would take most jobs until they are given up."""
    taken = []

    class Broken(Slot):
        gpu, host = False, "broken"

        def run_in_slot(self, job: JobFolder) -> None:
            taken.append(job)
            raise WorkFailed("the process that ran it on broken died")

    jobs = [make(f"nap {number}") for number in range(6)]
    run_in([Broken(), *slots(0, 1)], jobs)
    assert {"done"} == {job.state for job in jobs}
    assert executor.MAX_LOST_IN_A_ROW >= len(taken)


def test_a_damaged_count_of_tries_is_no_bug(make: Make) -> None:
    """The job is begun anew."""
    job = make("go")
    job.write_tries(1)
    (job.path / "tries").write_text("q")
    assert 0 == executor.run_job(job)
    assert 1 == job.tries


def test_a_job_that_still_runs_is_waited_for(make: Make) -> None:
    """The next head waits for it; its files stay, and it is not started twice."""
    job = make("once running")
    first = threading.Thread(target=run_jobs, args=[[job], 0, 1])
    first.start()
    while not (job.path / "out" / "sessions" / "made.txt").is_file():
        time.sleep(0.01)
    working = run_all(slots(0, 1), [job])
    for _ in range(3):
        next(working)
    (job.path / "src" / "go").touch()
    job.cancel()  # The first head's own end reaches it only now.
    run_to_end(working)
    first.join(60)
    assert ("done", 2) == (job.state, job.tries)


def test_closing_ends_what_runs(make: Make) -> None:
    """Ctrl-C ends running jobs, and waiting ones are not started."""
    jobs = [make("sleep"), make("go")]
    places = slots(0, 1)
    working = run_all(places, jobs)
    while "running" != jobs[0].state or not (jobs[0].path / "stdout").is_file():
        next(working)
    working.close()
    close_slots(places)
    assert ["cancelled", "cancelled"] == [job.state for job in jobs]


def test_a_slot_outlives_what_its_jobs_run_into(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job is done even if the disk is too full to note the reason."""
    jobs = [make("go"), make("nap 1")]
    runs = executor.run_job

    def full(*_: object) -> int:
        raise OSError("No space left on device")

    def run(job: JobFolder, *arguments: Any) -> int:
        if job == jobs[0]:
            raise RuntimeError("no more threads")
        return runs(job, *arguments)

    monkeypatch.setattr(local, "run_job", run)
    monkeypatch.setattr(JobFolder, "refuse", full)
    run_jobs(jobs, 0, 1)
    assert [None, 0] == [job.exit_code for job in jobs]


@pytest.mark.slow
def test_what_is_timed_stays_within_one_group(make: Make) -> None:
    """A result from another group of devices is repeated, or refused without a device of the group."""
    two = slots(2, 0)
    two[1].where = two[1].where.model_copy(update={"driver": "535"})
    jobs = [make(f"nap {number}", needs_gpu=True, times=True) for number in range(4)]
    run_to_end(spread.run_all_comparable(two, jobs, wanted := two[0].where.group))
    assert {("GPU-0", "done")} == {(job.device.uuid, job.state) for job in jobs if job.device}
    assert [] == spread.find_incomparable(jobs, wanted)
    last = make("nap last", needs_gpu=True, times=True)
    run_to_end(spread.run_all_comparable([LocalSlot(two[1].where)], [last], wanted))
    assert "failed" == last.state
    with pytest.raises(WorkFailed, match="ratios of two kinds of devices are not mixed"):
        last.read_answer()


def test_a_machine_without_the_compiler_costs_a_retry_elsewhere(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its answer would be that a variant does not build, which is a wrong one; it gets no further job."""
    there = {"GPU-0": [], "GPU-1": ["nvcc"]}

    def which(name: str) -> str | None:
        return name if name in there[threading.current_thread().name] else None

    monkeypatch.setattr("loop.jobs.executor.shutil.which", which)
    jobs = [make(f"nap {number}", needs_gpu=True, programs=("nvcc",)) for number in range(4)]
    run_jobs(jobs, 2, 0)  # Each is a machine of its own.
    assert {("GPU-1", "done")} == {(job.device.uuid, job.state) for job in jobs if job.device}
    assert "is begun again: no nvcc on " in capsys.readouterr().err
