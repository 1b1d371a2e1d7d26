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
    with Server(tmp_path / "there", {"LOOP_WATCH_PREEMPTION": "off"}) as made:
        made.install()
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {made.client}")
        monkeypatch.delenv("LOOP_SESSIONS")
        place = tmp_path / ".config" / "loop"
        place.mkdir(parents=True, exist_ok=True)
        (place / "hosts.yaml").write_text(HOSTS.format(stop=f"touch {tmp_path}/stopped"))
        yield made


@pytest.fixture
def project(tmp_path: Path, server: Server) -> Path:
    """A trusted project under git. Its plan `quick` is over at once, `long` waits until a file is there."""
    made = make_project(tmp_path / "project")
    add_commands(made, "hello", ["cat left.txt 2>/dev/null || echo hello"])
    add_commands(made, "long", [f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"], number=101)
    (made / ".gitignore").write_text("left.txt\nsessions/\n")
    (made / "left.txt").write_text("not sent")
    put_under_git(made)
    assert 0 == loop("trust", str(made)).returncode
    return made


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
    """What runs there of the plan `long`."""
    found = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"]]
    return [one for one in found if str(server.home) in " ".join(one.info["cmdline"])]


def sleeping(server: Server) -> bool:
    """Whether the step of the plan `long` is at work there."""
    try:
        return any("sleep" in child.name() for one in at_work(server) for child in one.children(recursive=True))
    except psutil.NoSuchProcess:  # It ended while it was looked at.
        return False


def sessions(project: Path) -> list[SessionFolder]:
    """What is here."""
    return list_sessions(project / "sessions")


def test_a_session_on_a_host_is_here_when_it_ends(project: Path, server: Server, tmp_path: Path) -> None:
    """Its folder and its report, by the paths of here; charged by the host's price; the machine is stopped."""
    done = loop("run", "session", "hello", "--target", str(project), "--on", "l4")
    assert 0 == done.returncode, done.stderr
    (session,) = sessions(project)
    record = session.record()
    assert record is not None
    assert ("passed", str(project), "l4") == (record.status, record.head.target_folder, record.head.host)
    assert ["host/l4"] == [one.rate for one in record.bill.charges]
    assert 36 * record.seconds / 3600 == pytest.approx(record.bill.usd)
    assert f"Report: {session.report}" in done.stdout
    after = done.stdout.partition("\nNext: ")[2].splitlines()
    assert next(line for line in after if line.startswith("  loop run session")).endswith("--on l4")
    assert "hello" in "".join(step.message for step in session.finished()), "what git ignores was sent"
    assert [] == server.left()
    assert (tmp_path / "stopped").exists()
    assert 0 == loop("report", "last", "--target", str(project)).returncode
    assert 0 == loop("cost", "show", "--target", str(project), "--json").returncode
    again = loop("run", "session", "hello", "--target", str(project), "--on", "l4")
    assert 0 == again.returncode, again.stderr
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
    """The client stands still while every connection is cut and the job ends; then it goes on by itself."""
    client = begin(project, "long")
    wait(lambda: sleeping(server))
    ours = [psutil.Process(client.pid), *psutil.Process(client.pid).children(recursive=True)]
    for process in ours:
        process.suspend()
    server.cut()
    (tmp_path / "go").touch()
    wait(lambda: not sleeping(server))
    for process in reversed(ours):
        process.resume()
    server.cut()
    said, _ = client.communicate(timeout=120)
    assert 0 == client.returncode, said
    assert ["passed"] == [one.record().status for one in sessions(project)]  # type: ignore[union-attr]
    assert [] == server.left()


def test_what_is_killed_there_is_resumed(project: Path, server: Server, tmp_path: Path) -> None:
    """As by a machine that is started again: the job is lost, its session is here, and it goes on there."""
    client = begin(project, "long")
    wait(lambda: sleeping(server))
    for process in at_work(server):
        for one in (*process.children(recursive=True), process):
            with_no_error(one.kill)
    said, _ = client.communicate(timeout=120)
    assert 75 == client.returncode, said
    (session,) = sessions(project)
    assert f"loop run session --resume {session.id} --target {project} --on l4" in said
    (tmp_path / "go").touch()
    resumed = begin(project, "--resume", "last")
    said, _ = resumed.communicate(timeout=120)
    assert 0 == resumed.returncode, said
    assert [(session.id, "passed")] == [
        (one.id, one.record().status)  # type: ignore[union-attr]
        for one in sessions(project)
    ]


def with_no_error(call: Callable[[], None]) -> None:
    """Do it unless the process is gone."""
    try:
        call()
    except psutil.NoSuchProcess:
        return


def test_a_machine_that_is_off_is_started(project: Path, server: Server, tmp_path: Path) -> None:
    """By its `start:`, when nobody answers there; then it is waited for."""
    server.stop()
    place = tmp_path / ".config" / "loop" / "hosts.yaml"
    place.write_text(f"format: 1\nhosts: {{l4: {{ssh: there, start: touch {tmp_path}/begun}}}}\n")
    client = begin(project, "hello")
    wait((tmp_path / "begun").exists)
    server.start()
    said, _ = client.communicate(timeout=120)
    assert 0 == client.returncode, said
    assert f"l4 does not answer; starting it: touch {tmp_path}/begun" in said
    assert ["passed"] == [one.record().status for one in sessions(project)]  # type: ignore[union-attr]


def test_what_a_campaign_keeps_there_is_a_branch_here(tmp_path: Path, server: Server) -> None:
    """With its commit, beside the session; the checkout stays as it is."""
    made = make_project(tmp_path / "slow", SLOW)
    (made / "target.yaml").write_text((made / "target.yaml").read_text().replace(*SIZES))
    commit_plan(made)
    (made / "fast.c").write_text(KERNEL)
    assert 0 == loop("trust", str(made)).returncode
    words = ["--proposer", "cp {workdir}/fast.c {workdir}/scale.c", "--max-candidates", "1", "--plan", "improve"]
    done = loop("optimize", str(made), *words, "--on", "l4")
    (session,) = sessions(made)
    branch = f"loop/{session.id}"
    assert f"branches from l4: {branch}" in done.stderr, done.stderr
    assert KERNEL.strip() == git(made, "show", f"{branch}:scale.c")
    assert SLOW == (made / "scale.c").read_text()


def test_a_machine_is_set_up_by_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`loop` is in an environment of its own there, and sees the packages of the interpreter that is named."""
    import sys

    with Server(tmp_path / "there") as made:
        monkeypatch.setenv("LOOP_SSH", f"ssh -F {made.client}")
        place = tmp_path / ".config" / "loop"
        place.mkdir(parents=True)
        (place / "hosts.yaml").write_text(f"format: 1\nhosts: {{l4: {{ssh: there, python: {sys.executable}}}}}\n")
        done = loop("hosts", "setup", "l4", "--json")
        assert 0 == done.returncode, done.stderr
        assert ["l4"] == [one["name"] for one in json.loads(done.stdout)["hosts"]]
        python = made.home / ssh.PYTHON
        where = subprocess.run(
            [python, "-P", "-c", "import loop, torch; print(loop.__file__)"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": os.environ["PATH"]},
        ).stdout
        assert str(made.home) in where
        assert ssh.hash_package(ssh.list_package_files()) == (made.home / ssh.DIGEST).read_text()
