"""A cloud takes the machine away while a session runs: real processes; `tests.faults` does it often."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cloud import fake_cloud, servers
from tests.projects import add_commands, loop, make_project

COMMANDS = ("echo one; sleep 0.2", "echo two; sleep 0.2; echo done", "echo three; sleep 1.5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trusted project with a plan `try` of three commands."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", COMMANDS)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A session that watches for a preemption."""
    return loop(
        "run", "session", *words, "--target", str(folder), **{"LOOP_WATCH_PREEMPTION": "auto", **environment}
    )


def last(tmp_path: Path) -> Path:
    return sorted((tmp_path / "sessions").iterdir())[-1]


def what_matters(session: Path) -> dict[str, Any]:
    """A record without its times, its name and the age of the machine's prices."""
    record = json.loads((session / "record.json").read_text())
    compared = ("status", "reason", "verdicts", "not_exercised", "grade")
    steps = {
        (line["run"], line["pattern"], line["step"]): (
            line["status"],
            re.sub(r"cached|compiled in [\d.]+ s", "built", line["message"]),
            line["output"].get("output"),
        )
        for line in map(json.loads, (session / "journal.jsonl").read_text().splitlines())
        if line["event"] == "finished"
    }
    return {**{name: record[name] for name in compared}, "steps": steps}


@pytest.mark.slow
def test_nothing_of_a_preempted_step_lives_on(tmp_path: Path) -> None:
    """The step's processes end before the session; record and report say that it is paused, and why."""
    folder, flag = make_project(tmp_path / "project"), tmp_path / "notice"
    add_commands(folder, "try", [f"echo $$ > {tmp_path}/pid; touch {flag}; sleep 60"])
    assert 0 == loop("trust", str(folder)).returncode
    with fake_cloud("gcp", flag=flag) as fake:
        done = run(folder, "try", **servers(fake))
    session = last(tmp_path)
    assert 75 == done.returncode, done.stderr
    assert "paused: gcp" in done.stdout
    assert f"loop run session --resume {session.name}" in done.stdout
    assert "is paused: gcp" in (session / "report.md").read_text()
    assert "paused" == json.loads((session / "record.json").read_text())["status"]
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    steps = what_matters(session)["steps"]
    assert {(1, "try", "s1"): ("paused", "gcp preempts this machine", None)} == steps


@pytest.mark.slow
def test_a_metadata_server_that_hangs_neither_stops_nor_delays_a_session(folder: Path, tmp_path: Path) -> None:
    """The session passes, and says that no notice was watched for if it should have been."""
    with fake_cloud("gcp", trouble="hang") as fake:
        done = run(folder, "try", **servers(fake), LOOP_WATCH_PREEMPTION="gcp")
    assert 0 == done.returncode, done.stderr
    assert "preemption watch of gcp: " in (last(tmp_path) / "report.md").read_text()


@pytest.mark.slow
def test_a_session_that_is_resumed_on_a_doomed_machine_pauses_again(folder: Path, tmp_path: Path) -> None:
    """Its next step is not begun, or is interrupted."""
    with fake_cloud("aws", noticed=True) as fake:
        assert 75 == run(folder, "try", **servers(fake)).returncode
        assert 75 == run(folder, "--resume", "last", **servers(fake)).returncode
    assert 0 == run(folder, "--resume", "last", LOOP_WATCH_PREEMPTION="off").returncode
