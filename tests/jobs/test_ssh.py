"""The executor `ssh`: jobs there, cut off, killed and brought back, each once."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.errors import UsageError, WorkFailed
from loop.base.locks import LockHeld
from loop.cloud.hosts import Host
from loop.jobs import ssh
from loop.jobs.executor import close_slots, run_all
from loop.jobs.folder import HEARTBEAT, RUNNER, Job, JobFolder, content_hashes, create_job
from loop.jobs.ssh import Connection, SshSlot
from tests.jobs.ssh_jobs import HOST, LONG, QUICK, make, run_in
from tests.jobs.sshd import Server, missing
from tests.projects import make_project

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A machine with this `loop`."""
    with Server(tmp_path_factory.mktemp("machine")) as host:
        host.install()
        yield host


@pytest.fixture
def machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same, which ssh calls `there`."""
    monkeypatch.setenv("LOOP_SSH", f"ssh -F {server.client}")
    return server


@pytest.mark.slow
def test_a_part_of_a_step_runs_there(machine: Server, tmp_path: Path) -> None:
    """With the target's files, whose definitions are allowed there since they are here."""
    target = make_project(tmp_path / "project")
    words = ("run", "step", "kernel.build", "--json", "--target=.", "--device=cpu", "--variant=ours")
    files = sorted(path for path in target.iterdir())
    job = create_job(Job(id="part", words=words, files=content_hashes(target, files)), target, files)
    run_in([SshSlot(HOST)], job)
    (step,) = job.read_answer()["steps"]
    assert ("passed", "l4") == (step["status"], job.run_record.host)
    assert 0.7 == job.run_record.usd_per_hour


@pytest.mark.slow
def test_a_cut_line_loses_nothing(machine: Server) -> None:
    """While connections are cut all the time, every job ends once."""
    jobs = [make(f"cut{number}") for number in range(4)]
    over = threading.Event()

    def cut() -> None:
        while not over.wait(1.0):
            machine.cut()

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        run_in([SshSlot(HOST), SshSlot(HOST)], *jobs)
    finally:
        over.set()
        thread.join()
    assert {"done"} == {job.state for job in jobs}
    assert [] == machine.left()


@pytest.mark.slow
def test_a_job_ends_at_its_limit_and_when_it_is_cancelled(machine: Server) -> None:
    """The watchdog there ends it at its limit; a message from here cancels it."""
    slots = [SshSlot(HOST), SshSlot(HOST)]
    limited, cancelled = make("limited", *LONG, ttl_s=1.0), make("cancelled", *LONG)
    for _ in run_all(slots, [limited, cancelled]):
        if limited.exit_code is not None:
            cancelled.cancel()
    close_slots(slots)
    assert (("failed", 124), "cancelled") == ((limited.state, limited.exit_code), cancelled.state)
    assert [] == machine.left()


def test_another_loop_there_is_refused(machine: Server) -> None:
    """Another version there, or none, is refused before anything is sent."""
    digest = machine.home / ssh.DIGEST
    for text, says in (("0" * 32, "l4 has another loop"), ("", "l4 has no loop")):
        digest.write_text(text)
        with Connection(HOST) as there, pytest.raises(UsageError) as wrong:
            there.check_ready()
        assert (says, "loop hosts setup l4") == (wrong.value.message, wrong.value.hint)
    digest.write_text(ssh.hash_package(ssh.list_package_files()))


def test_a_folder_in_which_a_job_runs_is_not_replaced(machine: Server, tmp_path: Path) -> None:
    """It is not replaced while any job runs there, whoever sent it."""
    job = JobFolder(machine.home / ssh.LOOP_FOLDER / "jobs" / "at-work")
    job.path.mkdir(parents=True)
    (job.path / "tree").write_text("shared")
    (tmp_path / "a").write_text("a")
    with Connection(HOST) as there:
        there.send_tree("shared", tmp_path, ["a"])
        job.write_runner(os.getpid())
        with pytest.raises(LockHeld, match="l4: held by job at-work of this project"):
            there.send_tree("shared", tmp_path, ["a"])
        assert ["at-work"] == there.list_running()
        (job.path / RUNNER).unlink()
        there.remove("at-work")


@pytest.mark.slow
def test_two_machines_share_the_jobs_and_one_is_lost(
    machine: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other machine runs its jobs. Closing the executor ends the jobs that it had begun, once it answers."""
    monkeypatch.setattr(ssh, "AWAY_LIMIT_S", 2.0)
    with Server(tmp_path / "second") as second:
        second.install()
        config = tmp_path / "ssh_config"
        config.write_text(machine.called("first") + second.called("second"))
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {config}")
        slots = [SshSlot(Host(name=name, ssh=name)) for name in ("first", "second")]
        both = [make("one", *LONG), make("other", *LONG)]
        jobs = [make(f"two{number}", *QUICK) for number in range(4)]
        begun = [second.home / ssh.LOOP_FOLDER / "jobs" / job.id / HEARTBEAT for job in both]
        lost = None
        for _ in run_all(slots, [*both, *jobs]):
            if lost is None and any(path.exists() for path in begun):
                lost, ends = both if begun[0].exists() else both[::-1]
                second.stop()
                ends.cancel()
            if lost is not None and {"done"} == {job.state for job in jobs}:
                lost.cancel()  # It was begun again on the other.
        assert {"first"} == {job.device.host for job in jobs if job.device}
        assert ["cancelled", "cancelled"] == [job.state for job in both]
        second.start()
        close_slots(slots)
        assert [] == second.left()
    assert [] == machine.left()


def test_old_sources_are_never_taken_for_those_that_were_sent(machine: Server, tmp_path: Path) -> None:
    """If files cannot be put in place, the call fails; otherwise they replace all older ones."""
    trees = machine.home / ssh.LOOP_FOLDER / "trees"
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with Connection(HOST) as connection:
        connection.send_tree("code", tmp_path, ["a"])
        connection.send_tree("code", tmp_path, ["b"])
        assert ["b"] == [path.name for path in (trees / "code").iterdir()]
        run = connection.run_script
        connection.run_script = lambda script, **options: run(f"mv() {{ false; }}\n{script}", **options)  # type: ignore[method-assign]
        with pytest.raises(WorkFailed):
            connection.send_tree("code", tmp_path, ["a"])
        with pytest.raises(WorkFailed):
            connection.send_tree("no/such", tmp_path, ["a"])
