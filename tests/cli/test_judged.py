"""Both verdicts on an answer to a task of another format stand side by side."""

import pytest

from loop.cli.tasks import TwoVerdicts, judge_answer
from loop.formats.theirs import Verdict
from loop.model.output import VerifyOutput
from loop.model.record import Finished
from tests.formats.test_mistakes import task_of


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
    both = judge_answer(task_of(), "a", [verified(**found)], Verdict(status="right", speedup=1.5))
    assert ("a", ours, "right, 1.50x", same) == both.row
    assert explained is bool(both.causes)
    told = TwoVerdicts(task="t", format="f", verdicts=(both,)).reason_lines
    assert explained is any("may be behind it" in text for text in told)
