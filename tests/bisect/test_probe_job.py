"""A probe of a bisection as a job: what it needs lies in its folder, and what comes back are ratios."""

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from loop.base.documents.sums import write_sealed
from loop.base.processes import Tick, finish
from loop.bisect.candidates import Line, read_line
from loop.bisect.probe_job import ProbeTask, Spread
from loop.bisect.trying import Probed, Question
from loop.jobs import running
from loop.jobs.folder import JobFolder
from loop.library.definitions import read_file
from loop.model.jobs import Where
from loop.model.target import Target
from loop.model.workloads import expand
from tests.bisect.test_command import SLOW, WRONG, bisected, develop
from tests.optimize.test_session import SIZES
from tests.projects import KERNEL, loop, make_project
from tests.repository.test_reading import put_under_git

BROKEN = KERNEL.replace("return 0;", "return oops;")


def one_by_one(jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
    """As an executor with one place for work."""
    for job in jobs:
        yield Tick(job.id)
        running.run(job)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    """Commits of a small kernel: the second is slow, the third does not build, the fourth is wrong."""
    folder = make_project(tmp_path_factory.mktemp("jobs") / "project")
    (folder / "target.yaml").write_text((folder / "target.yaml").read_text().replace(*SIZES))
    put_under_git(folder, "good")
    develop(folder, {1: SLOW, 2: BROKEN, 3: WRONG}, 6)
    return read_line(folder, "HEAD~6", "HEAD")


def spread(line: Line, staging: Path, **fields: object) -> Spread:
    """The probes of a search, run in turn."""
    target = read_file(line.folder / "target.yaml", Target).value
    workloads = tuple(expand(target, ["small"], "float32"))
    terms = {"variant": "ours", "metric": "latency", "device": "cpu", "threads": 1, "seed": 3, **fields}
    ends = {"candidate": line.ends[-1], "against": line.good, "count": 0}
    task = ProbeTask.model_validate({**terms, **ends, "workloads": workloads}, strict=False)
    return Spread(one_by_one, line.folder, staging, task, workloads)


def asked(line: Line, number: int, count: int = 3) -> Question:
    """A commit beside the good end."""
    return Question(line.ends[number], count, line.good)


@pytest.mark.slow
def test_a_wrong_commit_is_told_by_a_job(line: Line, tmp_path: Path) -> None:
    """1 for right and 0 for wrong, as on one machine."""
    (found,) = finish(spread(line, tmp_path, metric="correctness").many([asked(line, 4, 2)]))
    assert ("measured", (0.0, 0.0)) == (found.status, found.values)


def test_a_job_without_an_answer_says_nothing_of_its_commit(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost, whatever became of the machine; the next job of the same question is another one."""

    def gone(jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
        yield Tick("gone")
        for job in jobs:
            (job.path / "rc").write_text("-9")

    made = spread(line, tmp_path)
    monkeypatch.setattr(made, "run", gone)
    found: list[Probed] = finish(made.many([asked(line, 1), asked(line, 1)]))
    assert ["lost", "lost"] == [one.status for one in found]
    assert found[0].reason != found[1].reason


def test_ratios_of_another_kind_of_device_are_not_taken(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer says which devices a search is about; the commit is asked for again elsewhere."""

    def mixed(jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
        yield Tick("mixed")
        for job, device in zip(jobs, ("L4", "H100", "L4"), strict=True):
            write_sealed(job.path / "where.json", Where(host="h", device=device))
            (job.path / "stdout").write_text('{"status": "measured", "values": [0.01]}')
            (job.path / "rc").write_text("0")

    made = spread(line, tmp_path)
    monkeypatch.setattr(made, "run", mixed)
    found = finish(made.many([asked(line, 1), asked(line, 2), asked(line, 3)]))
    assert ["measured", "lost", "measured"] == [one.status for one in found]
    assert "H100" in found[1].reason


def test_what_a_job_needs_lies_in_its_folder(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commits, today's target and the task: no repository."""
    seen: list[JobFolder] = []

    def look(jobs: Sequence[JobFolder]) -> Generator[Tick, None, None]:
        seen.extend(jobs)
        yield Tick("looked")

    made = spread(line, tmp_path)
    monkeypatch.setattr(made, "run", look)
    finish(made.many([asked(line, 1)]))
    job = seen[0].job
    folders = {line.good.commit, line.ends[1].commit, "today", "probes"}
    assert folders == {name.partition("/")[0] for name in job.files}
    assert not any(".git/" in name for name in job.files)
    assert (job.alone, job.needs_gpu) == (True, False)


@pytest.mark.slow
def test_a_search_by_an_executor_names_the_commit_of_one_machine(line: Line) -> None:
    """The gate is a job, each probe is one, and the answer has the same form."""
    assert 0 == loop("trust", str(line.folder)).returncode
    ends = ("--good", line.good.commit, "--bad", line.ends[2].commit, "--target", str(line.folder))
    code, found = bisected(line.folder, *ends, "--threads", "1", "--executor", "local", "--width", "3")
    assert (0, "culprit", [line.ends[2].commit]) == (
        code,
        found["outcome"],
        [one["commit"] for one in found["culprits"]],
    )
    assert found["ratio"] < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--metric", "resources"), ("--probe", "exit", "--", "true")])
def test_what_no_job_can_tell_is_refused(line: Line, words: tuple[str, ...]) -> None:
    """Before anything is begun."""
    ends = ("--good", line.good.commit, "--target", str(line.folder), "--executor", "local")
    assert 0 == loop("trust", str(line.folder)).returncode
    code, found = bisected(line.folder, *ends, *words)
    assert (2, "refused") == (code, found["outcome"])
