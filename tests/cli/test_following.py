"""Jobs on another machine: output, costs, results that are brought back, and the machine's end."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.base.documents.sums import write_sealed
from loop.base.errors import MachineFailure, WorkFailed
from loop.base.locks import locked
from loop.cli import hosts
from loop.cli.hosts import _bring_back, keep_or_stop_machine, unfetched_job
from loop.cloud.hosts import Host
from loop.jobs import ssh as noted
from loop.jobs.folder import LOCK, SENT, Job, JobFolder, create_job
from loop.jobs.ssh import Connection, SentJob, Unreachable, tree_in_use_error
from loop.library.definitions import Project
from loop.model import change
from loop.model.campaign import Campaign
from loop.model.record import JobRun
from loop.optimize import briefing
from loop.report.screen import Screen


def make_sent(folder: Path) -> SentJob:
    """A job that was sent to l4."""
    return SentJob(
        host="l4", project=None, sessions=f"{folder}/sessions", root=f"{folder}/code", tree="code-1",
        home="/home/me",
    )  # fmt: skip


def test_lines_are_shown_with_the_paths_of_here(tmp_path: Path) -> None:
    """Whole lines are shown as they come, with local paths and without escapes; each once, over several calls."""
    folder, shown = create_job(Job(id="a", words=("status",))), []
    (folder.path / "stdout").write_bytes(b'shown\n{"a"')
    out, err = io.StringIO(), io.StringIO()
    printed = [(b":", b"in /home/me/.loop/trees/code-1/k.c: \x1b[31mred\nhalf"), (b"1}\n", b" a line")]

    def fetch(source: str, path: Path, *names: str, options: list[str]) -> None:
        shown.append((out.getvalue(), err.getvalue()))
        for name, new in zip(names, printed[len(shown) - 1], strict=True):
            (path / name).write_bytes((path / name).read_bytes() + new)

    def poll(job: str) -> tuple[str, int | None]:
        return ("ended", 0) if shown else ("running", None)

    there = cast(Connection, SimpleNamespace(poll=poll, fetch=fetch))
    assert ("ended", 0) == hosts._tail_output(folder, make_sent(tmp_path), there, Screen(out, err))
    assert ("", f"in {tmp_path}/code/k.c: red\n") == shown[1]
    assert ('{"a":1}\n', "half a line") == (out.getvalue(), err.getvalue().splitlines()[-1])


def test_a_lost_machine_is_named_where_no_terminal_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reason is printed once, because an outage can last hours; then the job's output continues."""
    folder, polls = create_job(Job(id="a", words=("status",))), [0, 0]

    def poll(job: str) -> tuple[str, int | None]:
        if polls and polls.pop() == 0:
            raise Unreachable("l4 does not answer", hint="look at it")
        return "ended", 0

    there = cast(Connection, SimpleNamespace(poll=poll, fetch=lambda *_, **__: None))
    assert ("ended", 0) == hosts._tail_output(folder, make_sent(tmp_path), there, Screen())
    assert 1 == capsys.readouterr().err.count("l4 does not answer; the job goes on there")


def test_a_session_of_here_is_never_replaced(tmp_path: Path) -> None:
    """Only by itself with more lines, as after a resume; other files are not imported."""
    folder, sent = create_job(Job(id="a", words=("status",))), make_sent(tmp_path)
    brought = folder.path / "out" / "sessions"
    for name in ("2026-11-23-120000-quick", ".hidden", "..", "no session"):
        (brought / name).mkdir(parents=True, exist_ok=True)
        (brought / name / "session.json").write_text("theirs")
    (brought / "2026-11-23-120001-link").symlink_to("/etc")
    assert ["2026-11-23-120000-quick"] == [path.name for path in noted.import_job_sessions(folder, sent)]
    assert ["2026-11-23-120000-quick"] == [path.name for path in Path(sent.sessions).iterdir()]
    (brought / "2026-11-23-120000-quick").mkdir(parents=True)
    with pytest.raises(WorkFailed, match="is there already"):
        noted.import_job_sessions(folder, sent)
    (Path(sent.sessions) / "2026-11-23-120000-quick" / "journal.jsonl").write_text("one\n")
    for name, text in (("session.json", "resumed"), ("journal.jsonl", "one\ntwo\n")):
        (brought / "2026-11-23-120000-quick" / name).write_text(text)
    (place,) = noted.import_job_sessions(folder, sent)
    assert "resumed" == (place / "session.json").read_text()


def test_taking_in_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """A repeated import succeeds, also of a session that went on here since; it is never replaced by another."""
    folder, sent = create_job(Job(id="a", words=("status",))), make_sent(tmp_path)
    brought = folder.path / "out" / "sessions" / "2026-11-23-120000-quick"
    for _ in range(2):
        brought.mkdir(parents=True)
        (brought / "journal.jsonl").write_text("one\ntwo\n")
        assert [brought.name] == [place.name for place in noted.import_job_sessions(folder, sent)]
    for lines in ("one\ntwo\nthree\n", "one\ntwo\n", "one\nelse\n"):
        brought.mkdir(parents=True, exist_ok=True)
        (brought / "journal.jsonl").write_text(lines)
        if "two" in lines:
            noted.import_job_sessions(folder, sent)
        else:
            with pytest.raises(WorkFailed, match="went on here meanwhile"):
                noted.import_job_sessions(folder, sent)
    assert (Path(sent.sessions) / brought.name / "journal.jsonl").read_text().endswith("three\n")


def job_on(began: float, seconds: float, usd: float | None = 0.7, host: str = "l4") -> JobRun:
    """A job on a host with a price."""
    fields = {"id": f"{host}-{began}-{seconds}", "title": "", "state": "done", "tries": 1}
    return JobRun.model_validate({**fields, "host": host, "began": began, "seconds": seconds, "usd_per_hour": usd})


def test_a_budget_in_dollars_counts_the_machines_of_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second of a host counts once; a job without a host's price costs this machine's price."""
    jobs = [
        job_on(0, 3600, 1.0),
        job_on(1800, 3600, 1.0),
        job_on(0, 60, 1.0),
        job_on(0, 3600, 2.0, "h100"),
        job_on(0, 9, None, "x"),
    ]
    monkeypatch.setattr(briefing, "workshop_of", lambda context: SimpleNamespace(briefs_folder=tmp_path / "notes"))
    monkeypatch.setattr(change, "jobs_of", lambda finished: jobs)
    task = SimpleNamespace(campaign=Campaign(), usd_per_hour=5.0)
    context = cast(Any, SimpleNamespace(finished=(), task=task, bench=SimpleNamespace(device="cuda")))
    assert pytest.approx(1.5 + 2.0) == briefing.sum_spending(context).usd


class Idle:
    """A machine on which only these jobs run."""

    def __init__(self, host: Host, *running: str) -> None:
        self.host, self.running = host, running

    def list_running(self) -> list[str]:
        return [*self.running]

    def remove(self, *jobs: str) -> None:
        """Remove jobs."""


def make(folder: Path, name: str) -> JobFolder:
    """A job that was sent to l4."""
    job = create_job(Job(id=name, words=("status",)))
    write_sealed(job.path / SENT, make_sent(folder))
    return job


def make_host(folder: Path) -> Host:
    """A machine that costs money until it is stopped."""
    return Host(name="l4", ssh="there", usd_per_hour=1.0, stop=f"touch {folder}/stopped")


def stops_machine(folder: Path, job: JobFolder, *running: str, keep_host: bool = False) -> bool:
    """Whether the machine is stopped once this job is back."""
    there = Idle(make_host(folder), *running)
    sent = make_sent(folder).model_copy(update={"keep_host": keep_host})
    keep_or_stop_machine(job, sent, cast(Connection, there), [], Screen(is_quiet=True))
    return (folder / "stopped").exists()


@pytest.mark.parametrize("keep_host", [False, True])
def test_a_machine_is_kept_if_the_job_says_so(tmp_path: Path, keep_host: bool) -> None:
    """Otherwise it is stopped, because gaps and restarts are unknown."""
    assert keep_host != stops_machine(tmp_path, make(tmp_path, "a"), keep_host=keep_host)


def test_a_machine_is_kept_for_jobs_that_run_or_are_being_sent(tmp_path: Path) -> None:
    """A job that is being sent keeps it; a lost job does not."""
    last, second = make(tmp_path, "last"), make(tmp_path, "other")
    assert not stops_machine(tmp_path, last, "other")
    with locked(second.path / LOCK):
        assert not stops_machine(tmp_path, last)
    assert stops_machine(tmp_path, last)


def test_a_job_that_is_gone_there_is_over_here(tmp_path: Path) -> None:
    """If the job's folder is gone, nothing is brought back, and the machine is stopped."""
    job, remote = make(tmp_path, "gone"), cast(Connection, Idle(make_host(tmp_path)))
    with pytest.raises(MachineFailure, match="its folder is not there any more"):
        _bring_back(job, make_sent(tmp_path), remote, Screen(is_quiet=True), ("gone", None))
    assert (75, True) == (job.exit_code, (tmp_path / "stopped").exists())
    assert [] == [*noted.list_sent_jobs()]


@pytest.mark.parametrize(("tree", "root", "is_away"), [("code-1", "/code", True), ("code-2", "/code", False)])
def test_a_folder_there_is_not_replaced_before_its_branches_are_here(
    tmp_path: Path, tree: str, root: str, is_away: bool
) -> None:
    """An ended job of that checkout is brought back before the folder is replaced."""
    job = make(tmp_path, "a")
    project = Project(tmp_path / "target", tmp_path / "other", bundled=False)
    assert is_away == (unfetched_job(make_host(tmp_path), project.sessions, tree, False) is not None)
    assert "loop jobs follow a" in (tree_in_use_error("l4", job.id).hint or "")


def test_a_stop_that_fails_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message and exit code say it; the job's results are brought back all the same."""
    job, host = make(tmp_path, "back"), make_host(tmp_path)
    broken = host.model_copy(update={"stop": "false"})
    assert 1 == _bring_back(job, make_sent(tmp_path), cast(Connection, Idle(broken)), Screen(), ("gone", 0))
    assert ([], True) == (
        [*noted.list_sent_jobs()],
        "l4 STILL RUNS AND COSTS $1.00 an hour" in capsys.readouterr().err,
    )


def test_a_machine_stays_while_its_results_are_there_alone(tmp_path: Path) -> None:
    """If results cannot be brought back, the machine is not stopped."""

    class Full(Idle):
        def run_script(self, script: str, **values: str) -> None:
            raise WorkFailed("too much", hint="look there")

    job, remote = make(tmp_path, "much"), cast(Connection, Full(make_host(tmp_path)))
    with pytest.raises(WorkFailed, match="too much"):
        _bring_back(job, make_sent(tmp_path), remote, Screen(is_quiet=True), ("ended", 0))
    assert (None, False) == (job.exit_code, (tmp_path / "stopped").exists())
