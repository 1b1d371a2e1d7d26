"""The example workflow: it needs no secret, pins its actions, and calls existing commands."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import typer.main
import yaml

from loop.cli import app
from tests.conftest import ROOT

PATH = ROOT / "docs" / "ci" / "loop.yml"
TEXT = PATH.read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def commands() -> list[list[str]]:
    """Every call of `loop` in it, as words."""
    lines = [line.strip() for step in STEPS for line in step.get("run", "").splitlines()]
    return [shlex.split(re.split(r" [>|] ?", line)[0]) for line in lines if line.startswith("loop ")]


def test_it_is_a_workflow_without_secrets() -> None:
    """YAML reads `on` as true; the job of a stranger's code may only read; no script quotes it."""
    assert {"pull_request", "push"} == set(WORKFLOW[True])
    assert ["session", "comment"] == list(WORKFLOW["jobs"])
    assert [] == [step for step in STEPS if ("uses" in step) == ("run" in step)]
    assert "secrets." not in TEXT
    assert {"contents": "read"} == WORKFLOW["permissions"]
    assert "permissions" not in WORKFLOW["jobs"]["session"]
    assert [] == [step["run"] for step in STEPS if "${{" in step.get("run", "")]


def test_its_commands_exist_with_their_options() -> None:
    """Each option of the workflow's commands exists."""
    calls = commands()
    assert 5 == len(calls)
    for words in calls:
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while hasattr(command, "commands"):
            command, rest = command.get_command(None, rest[0]), rest[1:]
        flags = {name for option in command.params for name in option.opts}
        assert set() == {word for word in rest if word.startswith("--")} - flags


def test_a_run_leaves_the_checkout_as_the_commit_has_it(tmp_path: Path) -> None:
    """The scripts of the workflow leave no uncommitted file, which would prevent a bisection. They run with a fake
    `loop` that records `git status`."""
    fake = tmp_path / "bin" / "loop"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ngit status --porcelain >> "$SEEN"\necho "{}"\n')
    fake.with_name("jq").write_text("#!/bin/sh\ncat > /dev/null\ndate +%N\n")
    for program in fake.parent.iterdir():
        program.chmod(0o755)
    checkout, status_log = tmp_path / "checkout", tmp_path / "seen"
    subprocess.run(["git", "init", "-q", checkout], check=True)
    env = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "SEEN": str(status_log), "TARGET": "."}
    env |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    for step in (
        step for step in WORKFLOW["jobs"]["session"]["steps"] if step.get("name") in ("Session", "Summary")
    ):
        subprocess.run(["bash", "-e", "-c", step["run"]], cwd=checkout, env=env, check=True)
    assert "" == status_log.read_text()
    assert (checkout / ".loop" / "comment.md").is_file()
