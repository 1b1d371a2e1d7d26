"""Tasks that are judged by commands of their own: allowed first, run in a copy, told word for word."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from loop.base.errors import Untrusted, UsageError
from loop.base.processes import finish
from loop.cli import app
from loop.formats import table
from loop.formats.evaluators import EVALUATORS
from loop.formats.theirs import Asked, Verdict, judged
from loop.formats.translated import as_target
from tests.formats import tasks
from tests.formats.test_translated import read

RIGHT = "def double(x):\n    return 2 * x\n"


def theirs(task: Path, answer: Path, limit_s: float = 60.0) -> Verdict:
    """What the task's own commands say."""
    read_task = table.load(task)
    asked = Asked(read_task, answer, None, limit_s=limit_s)
    found: Verdict = finish(judged(asked, EVALUATORS[read_task.format]))
    return found


def written(folder: Path, text: str) -> Path:
    """An answer's file."""
    path = folder / "answer.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "status", "why", "phases"),
    [
        (RIGHT, "right", "", ["compile", "correctness", "performance"]),
        (RIGHT.replace("2", "3"), "wrong", "AssertionError: 2 doubled is 6", ["compile"]),
        ("def double(x:\n", "wrong", "SyntaxError", ["compile"]),
    ],
)
def test_what_commands_say_is_kept(text: str, status: str, why: str, phases: list[str], tmp_path: Path) -> None:
    """Each with what it printed and how it ended; the first that fails is the last. Nothing of theirs changes."""
    task, answer = tasks.arena(tmp_path), written(tmp_path, text)
    before = {path: path.read_bytes() for path in task.rglob("*") if path.is_file()}
    verdict = theirs(task, answer)
    assert (status, phases) == (verdict.status, list(verdict.result))
    assert why in verdict.why
    assert verdict.result["compile"].endswith("exit 0\n" if status == "right" else "exit 1\n")
    assert before == {path: path.read_bytes() for path in task.rglob("*") if path.is_file()}


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """With all that it started, at its own limit."""
    task = tasks.arena(tmp_path)
    config = task / "config.yaml"
    config.write_text(
        config.read_text().replace("[python3 run.py compile]", "[sleep 60]") + "compile_timeout: 1\n"
    )
    verdict = theirs(task, written(tmp_path, RIGHT))
    assert "failed" == verdict.status
    assert "killed after 1" in verdict.why


def test_commands_run_only_once_they_are_allowed(tmp_path: Path) -> None:
    """A changed command, or a changed file of the task, has to be allowed again."""
    task, answer = tasks.arena(tmp_path), written(tmp_path, RIGHT)

    def judge() -> Result:
        return CliRunner().invoke(app, ["targets", "judge", str(task), str(answer), "--json"])

    assert isinstance(judge().exception, Untrusted)
    assert 0 == CliRunner().invoke(app, ["trust", str(task), str(answer)]).exit_code
    (verdict,) = json.loads(judge().stdout)["verdicts"]
    assert ("not judged", "right") == (verdict["ours"], verdict["theirs"]["status"])
    (task / "run.py").write_text("import os\n")
    assert isinstance(judge().exception, Untrusted)


def test_it_is_no_target(tmp_path: Path) -> None:
    """A session on it says why there is none of ours."""
    done = CliRunner().invoke(app, ["kernels", "verify", "--target", str(tasks.arena(tmp_path))])
    assert isinstance(done.exception, UsageError)
    assert "not judged by us" in done.exception.message


def test_a_hard_problem_is_a_target_at_its_first_shape(tmp_path: Path) -> None:
    """Its answer defines Model; its own check looks at all shapes."""
    task, answer = tasks.hard(tmp_path), tmp_path / "mine.py"
    answer.write_text(tasks.KERNELBENCH)
    folder, names = as_target(task, [str(answer)])
    target = read(folder)
    assert (["mine"], "Model") == (list(target.variants), target.variants["mine"].function)  # type: ignore[union-attr]
    assert ("mine",) == names


@pytest.mark.slow
def test_a_hard_problem_has_two_verdicts(tmp_path: Path) -> None:
    """Ours, and what its own programs print."""
    task, right, wrong = tasks.hard(tmp_path), tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(tasks.KERNELBENCH.replace("torch.relu(x)", "x.clamp(min=0)"))
    wrong.write_text(tasks.KERNELBENCH.replace("torch.relu(x)", "1.5 * x"))
    words = [str(task), str(right), str(wrong)]
    assert 0 == CliRunner().invoke(app, ["trust", *words]).exit_code
    done = CliRunner().invoke(app, ["targets", "judge", *words, "--json", "--device", "cpu"])
    found = {one["answer"]: one for one in json.loads(done.stdout)["verdicts"]}
    assert ("right", "wrong") == (found["right"]["ours"], found["wrong"]["ours"])
    assert "PASS" in found["right"]["theirs"]["result"]["correctness"]
    assert "peak_fraction" in found["right"]["theirs"]["result"]["performance"]
    assert "wrong" == found["wrong"]["theirs"]["status"]


@pytest.mark.slow
def test_a_hard_problem_with_a_measure_of_its_own_is_judged_by_its_own_programs(tmp_path: Path) -> None:
    """No error of elements says what cosine similarity allows; these programs have to be allowed first."""
    task, answer = tasks.hard(tmp_path), tmp_path / "mine.py"
    answer.write_text(tasks.KERNELBENCH)
    file = task / "problem.yaml"
    file.write_text(file.read_text().replace("float32: 0.001", "cos_sim: 0.98"))
    words = [str(task), str(answer)]
    assert 0 == CliRunner().invoke(app, ["trust", *words]).exit_code
    (found,) = json.loads(CliRunner().invoke(app, ["targets", "judge", *words, "--json"]).stdout)["verdicts"]
    assert ("not judged", "right") == (found["ours"], found["theirs"]["status"])
