"""`--on HOST`: the same command on another machine, an OpenSSH server on a loopback port; cut, killed, stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from loop.jobs import ssh
from loop.store.sessions import SessionFolder, list_sessions
from tests.jobs.sshd import Server, missing
from tests.optimize.test_session import SIZES, SLOW, commit_plan, git
from tests.projects import KERNEL, LOOP, add_commands, loop, make_project
from tests.repository.test_reading import put_under_git

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")]
HOSTS = """format: 1
hosts:
  l4: {{ssh: there, usd_per_hour: 36, stop: "{stop}"}}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A machine with this `loop`, which the user's `hosts.yaml` calls l4."""
    with Server(tmp_path / "there", {"LOOP_WATCH_PREEMPTION": "off"}) as machine:
        machine.install()
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {machine.client}")
        monkeypatch.delenv("LOOP_SESSIONS")
        place = tmp_path / ".config" / "loop"
        place.mkdir(parents=True, exist_ok=True)
        (place / "hosts.yaml").write_text(HOSTS.format(stop=f"touch {tmp_path}/stopped"))
        yield machine


@pytest.fixture
def project(tmp_path: Path, server: Server) -> Path:
    """A trusted project under git. Its plan `quick` is over at once, `long` waits until a file is there."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "hello", ["cat left.txt 2>/dev/null || echo hello"])
    add_commands(folder, "long", [f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"], number=101)
    (folder / ".gitignore").write_text("left.txt\nsessions/\n")
    (folder / "left.txt").write_text("not sent")
    put_under_git(folder)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def begin(project: Path, *words: str) -> "subprocess.Popen[str]":
    """A command that runs beside the test."""
    command = [*LOOP, "run", "session", *words, "--target", str(project), "--on", "l4"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait(done: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def at_work(server: Server) -> list[psutil.Process]:
    """Processes of the plan `long` on the server."""
    processes = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [process for process in processes if str(server.home) in " ".join(process.info["cmdline"])]


def sleeping(server: Server) -> bool:
    """Whether the step of the plan `long` is at work there."""
    try:
        return any("sleep" in child.name() for proc in at_work(server) for child in proc.children(recursive=True))
    except psutil.NoSuchProcess:  # It ended while it was looked at.
        return False


def sessions(project: Path) -> list[SessionFolder]:
    """Sessions on this machine."""
    return list_sessions(project / "sessions")


def test_a_session_on_a_host_is_here_when_it_ends(project: Path, server: Server, tmp_path: Path) -> None:
    """Its folder and report have local paths; it is charged by the host's price; the machine is stopped."""
    done = loop("run", "session", "hello", "--target", str(project), "--on", "l4")
    assert 0 == done.returncode, done.stderr
    (session,) = sessions(project)
    record = session.record()
    assert record is not None
    assert ("passed", str(project), "l4") == (record.status, record.head.target_folder, record.head.host)
    assert ["host/l4"] == [charge.rate for charge in record.bill.charges]
    assert 36 * record.seconds / 3600 == pytest.approx(record.bill.usd)
    assert f"Report: {session.report}" in done.stdout
    next_lines = done.stdout.partition("\nNext: ")[2].splitlines()
    assert next(line for line in next_lines if line.startswith("  loop run session")).endswith("--on l4")
    assert "hello" in "".join(step.message for step in session.finished()), "what git ignores was sent"
    assert [] == server.left()
    assert (tmp_path / "stopped").exists()
    assert 0 == loop("report", "last", "--target", str(project)).returncode
    assert 0 == loop("cost", "show", "--target", str(project), "--json").returncode
    second_run = loop("run", "session", "hello", "--target", str(project), "--on", "l4")
    assert 0 == second_run.returncode, second_run.stderr
    first, second = (session.head().predicted for session in sessions(project))
    assert first is not None
    assert second is not None
    assert second.seconds < first.seconds, "it looks back on those of here"


def test_ctrl_c_leaves_it_at_work_until_it_is_cancelled(project: Path, server: Server) -> None:
    """It says so, with the commands; a cancelled session is here, and can be resumed."""
    client = begin(project, "long")
    wait(lambda: sleeping(server))
    client.send_signal(signal.SIGINT)
    text, _ = client.communicate(timeout=60)
    assert 130 == client.returncode
    assert "still runs on l4, and l4 costs $36.00 an hour" in text
    (job,) = server.left()
    assert f"loop jobs follow {job}" in text
    assert f"loop jobs follow {job} --cancel" in text
    wait(lambda: sleeping(server))  # It sleeps again and again: between two naps no process is there.
    cancelled = loop("jobs", "follow", "--cancel")
    assert 130 == cancelled.returncode, cancelled.stderr
    (session,) = sessions(project)
    assert session.record().status == "aborted"  # type: ignore[union-attr]
    assert f"--resume {session.id} --target {project} --on l4" in cancelled.stdout
    assert [] == server.left()
    assert [] == at_work(server)


def test_a_closed_laptop_and_a_cut_line_lose_nothing(project: Path, server: Server, tmp_path: Path) -> None:
    """The client is suspended while connections are cut and the job ends; then it continues by itself."""
    client = begin(project, "long")
    wait(lambda: sleeping(server))
    clients = [psutil.Process(client.pid), *psutil.Process(client.pid).children(recursive=True)]
    for process in clients:
        process.suspend()
    server.cut()
    (tmp_path / "go").touch()
    wait(lambda: not sleeping(server))
    for process in reversed(clients):
        process.resume()
    server.cut()
    output, _ = client.communicate(timeout=120)
    assert 0 == client.returncode, output
    assert ["passed"] == [session.record().status for session in sessions(project)]  # type: ignore[union-attr]
    assert [] == server.left()


def test_what_is_killed_there_is_resumed(project: Path, server: Server, tmp_path: Path) -> None:
    """The job is lost; its session is brought back, and can be resumed on the host."""
    client = begin(project, "long")
    wait(lambda: sleeping(server))
    for process in at_work(server):
        for child in (*process.children(recursive=True), process):
            with_no_error(child.kill)
    output, _ = client.communicate(timeout=120)
    assert 75 == client.returncode, output
    (session,) = sessions(project)
    assert f"loop run session --resume {session.id} --target {project} --on l4" in output
    (tmp_path / "go").touch()
    resumed = begin(project, "--resume", "last")
    output, _ = resumed.communicate(timeout=120)
    assert 0 == resumed.returncode, output
    assert [(session.id, "passed")] == [
        (item.id, item.record().status)  # type: ignore[union-attr]
        for item in sessions(project)
    ]


def with_no_error(call: Callable[[], None]) -> None:
    """Do it unless the process is gone."""
    try:
        call()
    except psutil.NoSuchProcess:
        return


def test_a_machine_that_is_off_is_started(project: Path, server: Server, tmp_path: Path) -> None:
    """If the host does not answer, its `start:` command runs, and `loop` waits for it."""
    server.stop()
    place = tmp_path / ".config" / "loop" / "hosts.yaml"
    place.write_text(f"format: 1\nhosts: {{l4: {{ssh: there, start: touch {tmp_path}/begun}}}}\n")
    client = begin(project, "hello")
    wait((tmp_path / "begun").exists)
    server.start()
    output, _ = client.communicate(timeout=120)
    assert 0 == client.returncode, output
    assert f"l4 does not answer; starting it: touch {tmp_path}/begun" in output
    assert ["passed"] == [session.record().status for session in sessions(project)]  # type: ignore[union-attr]


def test_what_a_campaign_keeps_there_is_a_branch_here(tmp_path: Path, server: Server) -> None:
    """The kept commit becomes a local branch; the checkout stays as it is."""
    folder = make_project(tmp_path / "slow", SLOW)
    (folder / "target.yaml").write_text((folder / "target.yaml").read_text().replace(*SIZES))
    commit_plan(folder)
    (folder / "fast.c").write_text(KERNEL)
    assert 0 == loop("trust", str(folder)).returncode
    words = ["--proposer", "cp {workdir}/fast.c {workdir}/scale.c", "--max-candidates", "1", "--plan", "improve"]
    done = loop("optimize", str(folder), *words, "--on", "l4")
    (session,) = sessions(folder)
    branch = f"loop/{session.id}"
    assert f"branches from l4: {branch}" in done.stderr, done.stderr
    assert KERNEL.strip() == git(folder, "show", f"{branch}:scale.c")
    assert SLOW == (folder / "scale.c").read_text()


def test_a_machine_is_set_up_by_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`loop` is in an environment of its own there, and sees the packages of the interpreter that is named."""
    import sys

    with Server(tmp_path / "there") as machine:
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {machine.client}")
        place = tmp_path / ".config" / "loop"
        place.mkdir(parents=True)
        (place / "hosts.yaml").write_text(f"format: 1\nhosts: {{l4: {{ssh: there, python: {sys.executable}}}}}\n")
        done = loop("hosts", "setup", "l4", "--json")
        assert 0 == done.returncode, done.stderr
        assert ["l4"] == [host["name"] for host in json.loads(done.stdout)["hosts"]]
        python = machine.home / ssh.PYTHON
        imported = subprocess.run(
            [python, "-P", "-c", "import loop, torch; print(loop.__file__)"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": os.environ["PATH"]},
        ).stdout
        assert str(machine.home) in imported
        assert ssh.hash_package(ssh.list_package_files()) == (machine.home / ssh.DIGEST).read_text()
