"""Jobs: they outlive the client that began them, are found again, and end on request."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loop.driving import server as tools
from loop.jobs import executor
from loop.jobs.folder import RUNNER, JobFolder
from tests.driving.clients import SERVER, Agent, drive
from tests.projects import add_commands, loop, make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trusted project whose plan `mine` takes its time."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "mine", ["sleep 120"])
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def begin(project: Path) -> JobFolder:
    """A session that is at work."""
    job = tools.begin_job(["run", "session", "--events", f"--target={project}", "--", "mine"], "run_session")
    end = time.monotonic() + 300
    while (
        not tools.read_state(job).session
        or not (job.path / RUNNER).is_file()
        or "sleep" not in str(psutil.Process(pid(job)).children(recursive=True))
    ):
        assert time.monotonic() < end, tools.read_state(job)
        time.sleep(0.05)
    return job


def pid(job: JobFolder) -> int:
    """The process that runs it."""
    return int((job.path / RUNNER).read_text().split("-")[0])


@pytest.mark.slow
def test_a_cancelled_session_ends_in_good_order(project: Path) -> None:
    """It has a record, can be resumed, and leaves no process."""
    job = begin(project)
    assert "running" == tools.read_state(job).state
    children = psutil.Process(pid(job)).children(recursive=True)

    async def story(agent: Agent) -> None:
        done = await agent.answer("job_cancel", job=job.path.name)
        assert ("ended", 130) == (done["state"], done["exit_code"])
        assert "aborted" == done["result"]["status"]
        assert done["session"] == done["result"]["id"]
        assert f"run_session with resume={done['session']} goes on" in done["next"]

    drive(story)
    assert [] == [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_job_outlives_its_server_and_another_finds_it(project: Path) -> None:
    """The server is killed while a client waits; another server reports the job's end."""

    async def starts(agent: Agent) -> None:
        job = await agent.answer("run_session", plan="mine", target=str(project), wait_s=0)
        assert "running" == job["state"]

    drive(starts, project)
    job = tools.find_job("last")
    assert job.state in tools.UNENDED_STATES
    assert "running" == tools.read_state(job).state
    job.cancel()
    assert "ended" == tools.wait_for_job(job, 30).state


@pytest.mark.slow
def test_a_job_that_is_killed_with_its_keeper_is_lost_and_says_how_to_go_on(project: Path) -> None:
    """Its state is `lost`, without an exit code; the session can be resumed."""
    job = begin(project)
    keeper = psutil.Process(pid(job))
    killed = [keeper, *keeper.children(recursive=True)]
    for process in killed:
        process.kill()
    psutil.wait_procs(killed, timeout=10)
    status = tools.read_state(job)
    assert ("lost", None) == (status.state, status.exit_code)
    assert f"run_session with resume={status.session}" == status.next


@pytest.fixture
def slow_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runner that waits before its first line until a file exists, as on a busy machine."""
    go, python = tmp_path / "go", tmp_path / "python"
    python.write_text(f"#!/bin/sh\nn=0\nwhile [ ! -e {go} ] && [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done\n")
    python.chmod(0o755)
    monkeypatch.setattr(executor, "COMMAND", (str(python),))
    return go


def test_a_job_that_is_slow_to_start_runs_from_its_first_moment(slow_start: Path) -> None:
    """It is `running`, never `lost`, while its process lives."""
    job = tools.begin_job(["status"], "status")
    assert ("running", None) == (tools.read_state(job).state, tools.read_state(job).exit_code)
    slow_start.touch()
    assert "lost" == tools.wait_for_job(job, 50).state  # The runner's stand-in ended without a message.


WAITS = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "job_wait", "arguments": {}}}


CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "nobody", "version": "1"}}
BEGINS = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)


@pytest.mark.slow
def test_the_server_ends_quietly_with_its_client(project: Path) -> None:
    """The server ends in the middle of a call; its job continues."""
    job, pipe, last = begin(project), subprocess.PIPE, json.dumps(WAITS) + "\n"
    with subprocess.Popen(
        [sys.executable, *SERVER], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=project
    ) as server:
        server.stdin.write("".join(json.dumps(message) + "\n" for message in BEGINS) + last)
        server.stdin.flush()
        assert "serverInfo" in server.stdout.readline()
        server.stdout.close()
        server.stdin.close()
        assert 0 == server.wait(30)
        assert "" == server.stderr.read()
    assert job.state in tools.UNENDED_STATES
    job.cancel()
    tools.wait_for_job(job, 30)
