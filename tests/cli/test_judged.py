"""Both verdicts on an answer to a task of another format stand side by side."""

import io

import pytest

from loop.cli.tasks import JudgedAnswer, TwoVerdicts
from loop.formats.theirs import Verdict
from loop.model.output import VerifyOutput
from loop.model.record import Finished
from loop.report.screen import Screen
from tests.formats.test_mistakes import task_of


def verified(**names: tuple[str, ...]) -> Finished:
    output = VerifyOutput(ok=True, message="m", **names).model_dump(mode="json")
    fields = {"run": 1, "pattern": "p", "step": "verify", "status": "passed", "seconds": 1.0, "budget_s": 1.0}
    return Finished.model_validate({"message": "m", "action": "kernel.verify", "output": output, **fields})


@pytest.mark.parametrize(
    ("names", "ours", "same", "explained"),
    [
        ({"right": ("a",)}, "right", "yes", False),
        ({"wrong": ("a",)}, "wrong", "no", True),
        ({}, "not judged", "", False),
    ],
)
def test_both_stand_side_by_side(names: dict[str, tuple[str, ...]], ours: str, same: str, explained: bool) -> None:
    """A disagreement lists possible causes. Without a verdict of ours there is no disagreement."""
    both = JudgedAnswer.from_steps(task_of(), "a", [verified(**names)], Verdict(status="right", speedup=1.5))
    assert explained is bool(both.causes)
    out = io.StringIO()
    TwoVerdicts(task="t", format="f", verdicts=(both,)).show(Screen(out))
    row = out.getvalue().splitlines()[1]
    assert ["a", *f"{ours} right, 1.50x {same}".split()] == row.split()
    assert explained is ("may be behind it" in out.getvalue())
