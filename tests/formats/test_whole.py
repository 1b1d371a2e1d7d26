"""Tasks of other formats from path to verdict, by real processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loop.cli import app
from loop.formats.table import write_as_target
from tests.formats import tasks
from tests.formats.test_translated import GPUMODE_ANSWER, PASSED, add_utils

pytestmark = pytest.mark.slow


def judge(task: Path, *answers: Path, options: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Exit code of `loop targets judge`, and the verdicts by answer."""
    folder, _ = write_as_target(task, [str(answer) for answer in answers])
    assert 0 == CliRunner().invoke(app, ["trust", str(folder)]).exit_code
    words = ["targets", "judge", str(task), *map(str, answers), "--evaluator", str(task.parent), "--json"]
    done = CliRunner().invoke(app, [*words, "--device", "cpu", *options])
    assert done.stdout, done.output
    return done.exit_code, {verdict["answer"]: verdict for verdict in json.loads(done.stdout)["verdicts"]}


def test_answers_to_kernelbench_are_judged(tmp_path: Path) -> None:
    """A right answer is right, a wrong one wrong; without a GPU the evaluator's verdict is not available."""
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(tasks.ANSWER)
    wrong.write_text(tasks.ANSWER.replace("min=0", "min=0.1"))
    code, verdicts = judge(tasks.kernelbench(tmp_path), right, wrong)
    assert (1, "right", "wrong") == (code, verdicts["right"]["ours"], verdicts["wrong"]["ours"])
    assert "not available" == verdicts["right"]["theirs"]["status"]


SLOW = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(3):
            x = nn.functional.gelu(x) * 1.1
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.randn(128, 1024)]

def get_init_inputs():
    return []
"""
REMEMBERS = """import torch
from torch import nn

SEEN = {}

class ModelNew(nn.Module):
    def forward(self, x):
        key = x[0, 0].item(), x[-1, -1].item()
        if key not in SEEN:
            y = x
            for _ in range(3):
                y = nn.functional.gelu(y) * 1.1
            SEEN[key] = torch.softmax(y, dim=1)
        return SEEN[key].clone()
"""


def test_an_answer_that_keeps_what_it_gave_to_values_has_no_speed(tmp_path: Path) -> None:
    """A generator has few sets of values: some of them are met for the first time while they are timed."""
    task, answer = tmp_path / "1_Slow.py", tmp_path / "remembers.py"
    task.write_text(SLOW)
    answer.write_text(REMEMBERS)
    _, verdicts = judge(task, answer, options=("--measure", "--threads", "1"))
    assert "it remembers results" in verdicts["remembers"]["ours_why"]
    assert verdicts["remembers"]["ratio"] is None


def test_an_answer_that_edits_its_task_while_it_is_judged_makes_nothing_right(tmp_path: Path) -> None:
    """The message names the file, and no other answer profits from it."""
    task, answer, wrong = tasks.kernelbench(tmp_path), tmp_path / "edits.py", tmp_path / "wrong.py"
    answer.write_text(f"{tasks.ANSWER}\nopen({str(task)!r}, 'a').write('# edited')\n")
    wrong.write_text(tasks.ANSWER.replace("min=0", "min=0.1"))
    code, verdicts = judge(task, answer, wrong)
    assert (1, {"edits", "wrong"}) == (code, set(verdicts))
    assert not {"right"} & {verdict["ours"] for verdict in verdicts.values()}
    assert all("task.py while it was judged" in verdict["ours_why"] for verdict in verdicts.values()), verdicts


def test_a_reference_that_draws_random_numbers_judges_nothing(tmp_path: Path) -> None:
    """Even with the same draws in each call, an answer could draw differently, so nothing is judged."""
    task, answer = tmp_path / "drop.py", tmp_path / "answer.py"
    task.write_text(SLOW.replace("torch.softmax(x, dim=1)", "nn.functional.dropout(x, 0.1, training=True)"))
    answer.write_text(task.read_text().replace("class Model(", "class ModelNew("))
    folder, _ = write_as_target(task, [str(answer)])
    assert 0 == CliRunner().invoke(app, ["trust", str(folder)]).exit_code
    done = CliRunner().invoke(app, ["targets", "judge", str(task), str(answer), "--device", "cpu"])
    assert "the reference is not deterministic" in done.output
    assert 0 != done.exit_code


def test_answers_to_gpumode_are_judged(tmp_path: Path) -> None:
    """An answer that writes to the passed output changes no input; one that is off is wrong."""
    task = tasks.gpumode(tmp_path, reference=PASSED)
    add_utils(task)
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(GPUMODE_ANSWER)
    wrong.write_text(GPUMODE_ANSWER.replace("x + x", "x"))
    code, verdicts = judge(task, right, wrong)
    assert (1, "right", "wrong") == (code, verdicts["right"]["ours"], verdicts["wrong"]["ours"])
