"""Why a step was skipped is said in plain English, of anybody's pattern."""

import pytest

from loop.base.screen import Screen
from loop.model.plan import Step
from loop.session.drive import Show
from loop.session.walk import StepEnded, reason
from tests.makers import make_finished
from tests.session.walks import make_step

VALUES = {
    "device": "cpu",
    "passed": False,
    "failed": False,
    "session": {"wrong": True, "speedup": None},
    "build": {"good": False, "code": 1},
    "brief": {"edited": False},
    "verify": {"right": [], "wrong": []},
}


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("device == 'cpu'", ""),
        ("device == 'cuda'", "needs a GPU"),
        ("device == 'cuda' and brief.edited", "needs a GPU"),
        ("device == 'cpu' and brief.edited and build.good", "nothing was edited"),
        ("build.good", "step build did not pass"),
        ("verify.right != []", "no correct variant"),
        ("not session.wrong", "a variant is wrong"),
        ("not not passed", "an earlier step failed"),
        ("load.ok", "step load did not run"),
        ("build.code == 0", "only when build.code == 0"),
        ("session.speedup is not none", "only when session.speedup is not none"),
    ],
)
def test_the_reason_is_the_first_part_that_does_not_hold(when: str, said: str) -> None:
    """Common forms in words, any other as the pattern has it; empty where the step is to be done."""
    assert said == reason(Step.model_validate(make_step("a", when=when)), VALUES)


def test_a_reason_has_one_line_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds of a campaign repeat their steps: what did not run, and why, is no news in the next one."""
    show = Show(Screen())
    for number in (1, 2):
        for step, why in (
            ("build", "nothing was edited"),
            ("sanitize", "needs a GPU"),
            ("load", "nothing was edited"),
        ):
            skipped = {"status": "skipped", "message": f"skipped: {why}", "skipped_because": why}
            show.event(StepEnded(make_finished(step, run=number, **skipped)))
        show.event(StepEnded(make_finished("brief", run=number)))
    said = capsys.readouterr().err
    assert [1, 1, 0, 2] == [said.count(f" {step} (") for step in ("build", "sanitize", "load", "brief")]
