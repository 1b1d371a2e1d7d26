"""A session on a task of another format may end with the verdict of that format's own evaluator, beside ours."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.cli import app
from loop.cli.requests import evaluator_terms
from loop.formats.table import write_as_target
from loop.formats.theirs import Verdict
from loop.model.output import VerifyOutput
from loop.model.record import Finished
from loop.timing.theirs import EvaluatorTerms, TheirsOutput, evaluator_section, pair_verdicts, verdict_row
from tests.formats import tasks
from tests.formats.test_mistakes import task_of
from tests.formats.test_translated import add_utils

EVALUATOR = """import os
import sys

import reference
import submission

with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as log:
    data = reference.generate_input(size=7, seed=1)
    right = bool((submission.custom_kernel(data.clone()) - 2 * data).abs().max() < 0.5)
    print(f"check: {'pass' if right else 'fail'}", file=log)
sys.exit(0 if right else 112)
"""
"""Looser than ours, and without a GPU."""
ANSWER = "def custom_kernel(data):\n    return data + data + 0.1\n"


def verified(**found: tuple[str, ...]) -> Finished:
    output = VerifyOutput(ok=True, message="m", **found).model_dump(mode="json")
    more = {"run": 1, "pattern": "p", "step": "verify", "status": "passed", "seconds": 1.0, "budget_s": 1.0}
    return Finished.model_validate({"message": "m", "action": "kernel.verify", "output": output, **more})


@pytest.mark.parametrize(
    ("found", "ours", "same", "explained"),
    [
        ({"right": ("a",)}, "right", "yes", False),
        ({"wrong": ("a",)}, "wrong", "no", True),
        ({}, "not judged", "", False),
    ],
)
def test_both_stand_side_by_side(found: dict[str, tuple[str, ...]], ours: str, same: str, explained: bool) -> None:
    """A disagreement has what may be behind it; without a verdict of ours there is none."""
    both = pair_verdicts(task_of(), "a", [verified(**found)], Verdict(status="right", speedup=1.5))
    assert ("a", ours, "right, 1.50x", same) == verdict_row(both)
    assert explained is bool(both.causes)
    told = evaluator_section(TheirsOutput(ok=True, message="m", both=(both,)))
    assert told is not None
    assert explained is any("may be behind it" in text for text in told.lines)


def test_an_evaluator_needs_a_task_of_its_format(tmp_path: Path) -> None:
    """For a target of one's own it is refused before anything runs, as is a folder that is not there."""
    folder, _ = write_as_target(tasks.kernelbench(tmp_path))
    assert evaluator_terms(None, tmp_path) is None
    assert EvaluatorTerms(evaluator=str(tmp_path)) == evaluator_terms(tmp_path, folder)
    for evaluator, target in ((tmp_path, tmp_path), (tmp_path, None), (tmp_path / "gone", folder)):
        with pytest.raises(UsageError, match=r"no task of another format|no such folder"):
            evaluator_terms(evaluator, target)


@pytest.mark.slow
def test_a_session_with_both_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has theirs, and why they may let pass what is wrong for us; the exit code is that of ours."""
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path / "sessions"))
    task = tasks.gpumode(tmp_path)
    add_utils(task)
    (tmp_path / "eval.py").write_text(EVALUATOR)
    answer = tmp_path / "off.py"
    answer.write_text(ANSWER)
    assert 0 == CliRunner().invoke(app, ["trust", str(task), str(answer)]).exit_code
    words = ["run", "session", "quick", "--target", str(task), "--variant", str(answer), "--device", "cpu"]
    monkeypatch.setenv("LOOP_EVALUATOR_PYTHON", sys.executable)
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.stdout, done.output
    assert 1 == done.exit_code, done.output
    (report,) = (tmp_path / "sessions").glob("*/report.md")
    text = report.read_text()
    assert "Their verdict" in text
    assert "off: may be behind it: their inputs come from fixed seeds" in text
    (journal,) = (tmp_path / "sessions").glob("*/journal.jsonl")
    steps = [json.loads(one) for one in journal.read_text().splitlines()]
    (both,) = next(one["output"]["both"] for one in steps if one.get("output", {}).get("both"))
    assert ("wrong", "right") == (both["ours"], both["theirs"]["status"])
    assert {"test": {"check": "pass"}, "benchmark": {"check": "pass"}} == both["theirs"]["result"]
