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
    "cost keep-or-stop": "--idle-hours 5 --restart-minutes 4",
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
"""Further words that a command needs."""
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
"""Commands that need another machine or files of a recipe; other tests run them."""


def answers(folder: Path, named: list[str]) -> list[str]:
    """Arguments of a right answer to the task if `named` asks for one; its target is trusted."""
    if "ANSWER" not in named:
        return []
    path = folder / "answer.py"
    path.write_text(ANSWER)
    target = write_as_target(folder / "1_Scale.py", [str(path)])[0]
    assert 0 == CliRunner().invoke(app, ["trust", str(target)]).exit_code
    (folder / "checkout").mkdir()
    return [str(path), "--evaluator", str(folder / "checkout"), "--device", "cpu"]


def test_every_command_has_it() -> None:
    """Commands without `--json` are exactly those with a reason in WITHOUT."""
    without = {row.words for row in ALL if "json" not in {parameter.name for parameter in row.parameters}}
    assert set(WITHOUT) == without


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trusted project with two sessions, a plan and a pattern."""
    target = make_project(tmp_path / "project")
    add_commands(target, "mine", ["true"])
    for name in ("passed", "incorrect"):
        make_session(tmp_path / "sessions", name)
    assert 0 == CliRunner().invoke(app, ["trust", str(target)]).exit_code
    return target


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(row.words, marks=pytest.mark.slow if row.words in SLOW else ())
        for row in ALL
        if row.words not in {*WITHOUT, *ELSEWHERE}
    ],
)
@pytest.mark.slow
def test_stdout_is_one_json_value(words: str, project: Path, tmp_path: Path) -> None:
    """The value has the type of the command's table, without further fields."""
    (command,) = [item for item in ALL if item.words == words]
    named = ["PROJECT"] if words == "trust" else WORDS.get(words, "").split()
    if "JOB" in named:
        named = [str(create_job(Job(id="one", words=("kernels", "header", "--json"))).path)]
    if "TASK" in named:
        named = [str(kernelbench(tmp_path)), *answers(tmp_path, named)]
        assert 0 == CliRunner().invoke(app, ["trust", named[0]]).exit_code
    takes_target = "target" in {parameter.name for parameter in command.parameters} and "PROJECT" not in named
    named = [str(project) if word == "PROJECT" else word for word in named]
    target = ["--target", str(project)] if takes_target else []
    arguments = [*words.split(), *named, *target, "--json"]
    text = loop(*arguments).stdout if words == "bisect" else CliRunner().invoke(app, arguments).stdout
    printed, kind = json.loads(text), TypeAdapter(command.json_type)
    assert (words == "bisect") == (printed.pop("error", None) is not None)
    assert printed == kind.dump_python(kind.validate_python(printed), mode="json", by_alias=True)
