"""`--json` on every command: one JSON value on stdout, all talk on stderr."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from loop.cli import ALL, app
from loop.formats.table import write_as_target
from loop.jobs.folder import Job, create_job
from tests.formats.tasks import ANSWER, kernelbench
from tests.projects import add_commands, loop, make_project
from tests.session.test_command import make_session

WITHOUT = {
    "patterns schema": "what it prints is JSON",
    "mcp": "it answers in JSON until its client closes",
    "jobs follow": "it prints what the job's command prints",
}
"""Commands that have no `--json`, and why."""
WORDS = {
    "cost keep-or-stop": "--idle-hours 5 --gpu-usd-per-hour 1 --stop-cost-usd 1",
    "catalog build": "--out pages",
    "init": "mine --from torch:sin --like input=N",
    "job run": "JOB",
    "optimize": "PROJECT --dry-run",
    "patterns show": "baseline-first",
    "run pattern": "mine --dry-run",
    "run step": "session.audit",
    "run session": "mine --dry-run",
    "sessions compare": "last~1 last",
    "sessions import": "history",
    "sessions show": "last",
    "targets audit": "TASK",
    "targets inspect": "TASK",
    "targets judge": "TASK ANSWER",
    "trust": "PROJECT",
}
"""What a command needs besides `--target` and `--json`."""
SLOW = (
    "bisect",
    "doctor",
    "kernels check",
    "kernels measure",
    "kernels prove-gate",
    "kernels resources",
    "kernels verify",
    "targets audit",
    "targets judge",
)
"""They start processes, for seconds; `bisect` has no good revision here: its answer holds an error, too."""
ELSEWHERE = ("hosts setup", "hosts stop")
"""They need what a recipe left, or another machine: tests of other rooms have them."""


def answers(folder: Path, named: list[str]) -> list[str]:
    """A right answer to the task, where one is asked for; its target is allowed."""
    if "ANSWER" not in named:
        return []
    path = folder / "answer.py"
    path.write_text(ANSWER)
    made = write_as_target(folder / "1_Scale.py", [str(path)])[0]
    assert 0 == CliRunner().invoke(app, ["trust", str(made)]).exit_code
    (folder / "checkout").mkdir()
    return [str(path), "--evaluator", str(folder / "checkout"), "--device", "cpu"]


def test_every_command_has_it() -> None:
    """Save for those with a reason."""
    without = {one.words for one in ALL if "json" not in {parameter.name for parameter in one.parameters}}
    assert set(WITHOUT) == without


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trusted project with two sessions, a plan and a pattern."""
    made = make_project(tmp_path / "project")
    add_commands(made, "mine", ["true"])
    for name in ("passed", "incorrect"):
        make_session(tmp_path / "sessions", name)
    assert 0 == CliRunner().invoke(app, ["trust", str(made)]).exit_code
    return made


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(one.words, marks=pytest.mark.slow if one.words in SLOW else ())
        for one in ALL
        if one.words not in {*WITHOUT, *ELSEWHERE}
    ],
)
@pytest.mark.slow
def test_stdout_is_one_json_value(words: str, project: Path, tmp_path: Path) -> None:
    """Of the type that the table names, no field more or less; whatever a command says besides is on stderr."""
    (command,) = [one for one in ALL if one.words == words]
    named = ["PROJECT"] if words == "trust" else WORDS.get(words, "").split()
    if "JOB" in named:
        named = [str(create_job(Job(id="one", words=("kernels", "header", "--json"))).path)]
    if "TASK" in named:
        named = [str(kernelbench(tmp_path)), *answers(tmp_path, named)]
        assert 0 == CliRunner().invoke(app, ["trust", named[0]]).exit_code
    takes_target = "target" in {one.name for one in command.parameters} and "PROJECT" not in named
    named = [str(project) if one == "PROJECT" else one for one in named]
    target = ["--target", str(project)] if takes_target else []
    asked = [*words.split(), *named, *target, "--json"]
    text = loop(*asked).stdout if words == "bisect" else CliRunner().invoke(app, asked).stdout
    printed, kind = json.loads(text), TypeAdapter(command.json_type)
    assert (words == "bisect") == (printed.pop("error", None) is not None)
    assert printed == kind.dump_python(kind.validate_python(printed), mode="json", by_alias=True)
