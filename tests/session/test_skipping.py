"""Why a step was skipped is said in plain English, of anybody's pattern."""

import pytest

from loop.model.pattern import Step
from loop.session.skipping import reason
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


def test_a_step_may_say_it_itself() -> None:
    """Whatever its condition is."""
    step = make_step("a", when="build.code == 0", skipped_because="needs a network")
    assert "needs a network" == reason(Step.model_validate(step), VALUES)
