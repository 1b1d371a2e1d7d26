"""The executor `ssh` with machines that fail, hang or are full: stand-ins, so that no server is needed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from loop.base.errors import LoopError, MachineFailure
from loop.jobs import ssh
from loop.jobs.executor import run_all
from loop.jobs.folder import Job, JobFolder, content_hashes, create_job
from loop.jobs.ssh import Connection, SshSlot, Unreachable
from loop.library.definitions import find_project
from loop.library.trust import definition_hash
from tests.jobs.ssh_jobs import HOST, QUICK, make, run_in
from tests.projects import make_project


class Fails:
    """A machine on which these calls fail."""

    def __init__(self, **wrong: LoopError) -> None:
        self.wrong = wrong

    def __enter__(self) -> None:
        """Open nothing."""

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def __getattr__(self, word: str) -> Callable[..., Any]:
        def asked(*arguments: Any, **_options: Any) -> Any:
            if word in self.wrong:
                raise self.wrong[word]
            if word == "fetch_results":
                (arguments[0].path / "rc").write_text("0")
            return ("ended", 0) if word == "poll" else None

        return asked


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is waited for long."""
    monkeypatch.setattr(ssh, "AWAY_LIMIT_S", 0.2)
    monkeypatch.setattr(ssh, "POLL_S", 0.0)
    monkeypatch.setattr(ssh, "REMOVE_LIMIT_S", 0.0)
    monkeypatch.setattr(JobFolder, "verify_results", lambda job: None)


def slots_of(*machines: Fails) -> list[SshSlot]:
    slots = [SshSlot(HOST) for _ in machines]
    for slot, machine in zip(slots, machines, strict=True):
        slot.connection = cast(Connection, machine)
    return slots


@pytest.mark.parametrize("word", ["submit", "poll"])
def test_machines_that_stay_away_end_the_work(word: str) -> None:
    """Waiting has a limit, also if machines disappear while a job is sent."""
    gone = dict.fromkeys((word, "remove"), Unreachable("l4 does not answer", ""))
    with pytest.raises(MachineFailure, match="l4 does"):
        run_in(slots_of(Fails(**gone)), make(word))


def test_a_machine_that_a_person_has_to_mend_is_set_aside() -> None:
    """Others continue; if all are set aside, the machine's own message is shown."""
    full = Fails(submit=MachineFailure("the disk of l4 is full", ""))
    jobs = [make("one"), make("two")]
    run_in(slots_of(full, Fails()), *jobs)
    assert ["done", "done"] == [job.state for job in jobs]
    assert 2 >= sum(job.tries for job in jobs)
    with pytest.raises(MachineFailure, match="full"):
        run_in(slots_of(full), make("three"))


def test_every_target_of_a_job_is_allowed_there(tmp_path: Path) -> None:
    """A probe of a bisection keeps its target below its source."""
    target = make_project(tmp_path / "source" / "today")
    source, machine, trusted = target.parent, Fails(), []
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    job = create_job(Job(id="probe", words=QUICK, files=content_hashes(source, files)), source, files)
    machine.submit = lambda job, hashes, gpus: trusted.append(hashes)  # type: ignore[attr-defined]
    run_in(slots_of(machine), job)
    assert [(definition_hash(find_project(target, target)),)] == trusted


def test_one_of_several_that_cannot_take_a_job_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that is unreachable or full is left out; if all are, its error is raised."""

    def ready(there: Connection) -> tuple[str, int]:
        if there.name == "off":
            raise Unreachable("off cannot be reached: Connection refused", "")
        return "/home/me", 1000 if there.name == "full" else 10**6

    monkeypatch.setattr(Connection, "check_ready", ready)
    hosts = [HOST.model_copy(update={"stop": "true", "name": name}) for name in ("off", "full", "on")]
    monkeypatch.setattr(ssh, "check", lambda: hosts)
    assert ["on", "on"] == [slot.host for slot in ssh.slots(4)]
    assert "on goes on running when all is over, and costs $0.70 an hour; then: loop" in capsys.readouterr().err
    hosts.pop()
    with pytest.raises(Unreachable, match="off cannot be reached"):
        ssh.slots(4)


def test_a_job_is_brought_back_once_a_cut_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not started again, and its results are complete."""
    cut = Fails(fetch_results=Unreachable("l4 does not answer", ""))
    job, began = make("away"), time.monotonic()
    monkeypatch.setattr(ssh, "AWAY_LIMIT_S", 60.0)
    for _ in run_all(slots_of(cut), [job]):
        if time.monotonic() - began > 0.3:
            cut.wrong.clear()
        else:
            assert job.state not in ("done", "failed")
    assert ("done", 0) == (job.state, job.tries)


@pytest.mark.parametrize("answer", ["", "runn", "running -", "done 0", "running 1x"])
def test_a_damaged_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """It counts as no answer; a whole one gives the state and the exit code."""
    answers = [[answer, ""], ["lost 1", ""]]
    monkeypatch.setattr(Connection, "run_script", lambda *_, **__: answers.pop(0))
    monkeypatch.setattr(ssh, "RETRY_S", 0.0)
    assert ("ended", 1) == ssh.retry_unreachable(lambda: Connection(HOST).poll("a"))
