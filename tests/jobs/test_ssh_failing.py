"""The executor `ssh` with machines that fail, hang or are full: stand-ins, so that no server is needed."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.base.errors import LoopError, MachineFailure, WorkFailed
from loop.base.places import project
from loop.base.processes import finish
from loop.jobs import ssh
from loop.jobs.executor import all_done
from loop.jobs.folder import MOST_TRIES, Job, JobFolder, hashes, prepare
from loop.jobs.hosts import Listed
from loop.jobs.remote import Unreachable
from loop.jobs.ssh import Ssh, SshMachine
from loop.jobs.there import Ready, Seen, There
from loop.library.hosted import VARIABLE, Hosted
from loop.library.trust import definition_hash
from tests.jobs.ssh_jobs import HOST, QUICK, ended, make, wait
from tests.projects import make_project


class Fails:
    """A machine that does not do what it is asked for."""

    def __init__(self, **wrong: LoopError) -> None:
        self.name, self.connection, self.wrong = "l4", SimpleNamespace(listed=HOST), wrong

    def __getattr__(self, word: str) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            if word in self.wrong:
                raise self.wrong[word]
            return {job: Seen("done", 0, b"", b"", False) for job in given[0]} if word == "look" else None

        return asked


def executor_of(monkeypatch: pytest.MonkeyPatch, *machines: Fails) -> Ssh:
    """Jobs on these machines, none of which is waited for long."""
    monkeypatch.setattr(ssh, "AWAY_S", 0.2)
    monkeypatch.setattr(ssh, "LOOK_S", 0.0)
    made = Ssh([], len(machines))
    made._machines = [SshMachine(cast(There, one), [{}]) for one in machines]
    return made


@pytest.mark.parametrize("word", ["submit", "look"])
def test_machines_that_stay_away_end_the_work(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Also where they went away while a job was on its way; nobody waits without a limit."""
    gone = dict.fromkeys((word, "forget"), Unreachable("l4 does not answer", ""))
    working = all_done(executor_of(monkeypatch, Fails(**gone)), [make(word)])
    with pytest.raises(MachineFailure, match="no machine answers any more"):
        finish(working)


def test_a_machine_that_a_person_has_to_mend_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on; where there is none, its own words are told."""
    full = Fails(submit=MachineFailure("the disk of l4 is full", ""))
    executor, jobs = executor_of(monkeypatch, full, Fails()), [make("one"), make("two")]
    for job in jobs:
        executor.submit(job)
    assert {"one": "lost", "two": "done"} == {**executor.poll(jobs)}
    assert "1" == (jobs[0].path / "tries").read_text()
    with pytest.raises(MachineFailure, match="full"):
        finish(all_done(executor_of(monkeypatch, full), [make("three")]))


def test_what_cannot_be_brought_back_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """And begun again, so many times: it does not end the work, nor go on for ever."""
    job = make("four")
    finish(all_done(executor_of(monkeypatch, Fails(collect=WorkFailed("too much"))), [job]))
    assert ("queued", MOST_TRIES + 2) == (job.state, job.tries)


def test_every_target_of_a_job_is_allowed_there(tmp_path: Path) -> None:
    """A probe of a bisection keeps its target below its source."""
    target = make_project(tmp_path / "source" / "today")
    source = target.parent
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    job = prepare(Job(id="probe", words=QUICK, files=hashes(source, files)), source, files)
    told = Hosted.model_validate_json(ssh._told(HOST, job)[VARIABLE])
    assert (definition_hash(project(target, target)),) == told.trusted


def test_one_of_several_that_cannot_take_a_job_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not answer, or its disk is full: the others do all. Where there is none that is the error."""

    def ready(there: There) -> Ready:
        if there.name == "off":
            raise Unreachable("off cannot be reached: Connection refused", "")
        return Ready("/home/me", 1000 if there.name == "full" else 10**6, 0.0)

    monkeypatch.setattr(There, "ready", ready)
    costs = HOST.host.model_copy(update={"stop": "true"})
    hosts = [Listed(name, costs, HOST.path) for name in ("off", "full", "on")]
    executor = Ssh(hosts, 4)
    assert ["on"] == [one.there.name for one in executor._machines]
    executor.close()
    told = capsys.readouterr().err
    for says in ("off cannot be reached: Connection refused", "the disk of full is full"):
        assert f"{says}: the others do its jobs" in told
    assert "on goes on running and costs $0.70 an hour; when all is over: loop hosts stop on" in told
    with pytest.raises(Unreachable, match="off cannot be reached"):
        Ssh(hosts[:2], 4)
    Ssh([Listed("bare", HOST.host, HOST.path)], 1).close()
    assert "bare goes on running and costs $0.70 an hour; stop it yourself" in capsys.readouterr().err


def beside_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch, word: str, *names: str
) -> tuple[Ssh, list[JobFolder], threading.Event]:
    """Two machines with a job each, of which one hangs when it is asked for that, until the event is set."""
    hangs, goes_on = Fails(), threading.Event()
    setattr(hangs, word, lambda *given: goes_on.wait(30))
    executor, jobs = executor_of(monkeypatch, hangs, Fails()), [make(name) for name in names]
    monkeypatch.setattr(ssh, "VISIT_S", 0.3)
    monkeypatch.setattr(ssh, "AWAY_S", 60.0)
    for job in jobs:
        executor.submit(job)
    return executor, jobs, goes_on


def test_a_machine_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are asked at once; what the other has done is known while the one has not answered."""
    executor, jobs, goes_on = beside_one_that_hangs(monkeypatch, "submit", "hangs", "goes")
    assert {"hangs": "running", "goes": "done"} == {**executor.poll(jobs)}
    goes_on.set()
    executor.close()


def test_what_is_brought_back_from_a_machine_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its job's end nor a cancellation is waited for: polls go on, and Ctrl-C is heard between them."""
    begun = time.monotonic()
    executor, jobs, goes_on = beside_one_that_hangs(monkeypatch, "collect", "hung", "went")
    assert {"hung": "running", "went": "done"} == {**executor.poll(jobs)}
    executor.cancel(jobs[0])
    assert {"hung": "running", "went": "done"} == {**executor.poll(jobs)}
    assert time.monotonic() - begun < 10
    goes_on.set()
    assert "done" == wait(executor, jobs[0], ended)
    executor.close()


def test_a_machine_that_goes_away_while_a_job_is_brought_back_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as long as any other; it is brought back at once where the line was only cut."""
    cut = Fails(collect=Unreachable("l4 does not answer", ""))
    executor, job = executor_of(monkeypatch, cut), make("away")
    monkeypatch.setattr(ssh, "AWAY_S", 60.0)
    executor.submit(job)
    executor.poll([job])
    assert "running" == executor.poll([job])[job.id]
    cut.wrong.clear()
    assert "done" == wait(executor, job, ended)
    executor.close()
