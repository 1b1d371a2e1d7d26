"""A change that was judged, beside what its brief promised."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.model.change import BriefOutput, JudgedOutput
from loop.model.profile import Profile, Promise
from loop.model.verdict import SpeedVerdict
from loop.optimize.candidate import compare_with_promise
from loop.optimize.session_changes import ChangeAtHand
from loop.timing.against_known_good import CompareOutput
from tests.makers import make_finished, make_speed
from tests.optimize.test_brief_page import BRIEF, PROFILE

PROMISE = Promise(advice="stalls", stated=(1.5, 3.0))
PROMISED = PROFILE.model_copy(update={"promise": PROMISE})


def judged(verdict: SpeedVerdict, profile: Profile | None = PROMISED) -> ChangeAtHand:
    """A change that was compared with the incumbent."""
    found = CompareOutput(ok=True, message="", verdicts=(verdict,)).model_dump(mode="json")
    compared = make_finished(
        "compare", action="change.compare", output=JudgedOutput(ok=True, message="", good=True, found=found)
    )
    asked = BriefOutput(ok=True, message="", brief=BRIEF.model_copy(update={"profile": profile}))
    return ChangeAtHand(cast(Any, SimpleNamespace(finished=[compared])), 1, asked, cast(Any, None))


def test_an_outcome_is_the_speed_on_the_workload_that_the_advice_is_about() -> None:
    """With what was promised, so that it can be counted later."""
    found = compare_with_promise(judged(make_speed("B1 S64", ratio=1.2, against="known_good")))
    assert found is not None
    assert (PROMISE, "cpu", "B1 S64", 1.2, "below") == (
        found.promise,
        found.variant,
        found.workload,
        found.actual,
        found.side_of_promise,
    )


@pytest.mark.parametrize(
    "verdict",
    [
        make_speed("B1 S128", against="known_good"),
        make_speed("B1 S64"),
        make_speed("B1 S64", against="known_good", interval=(0.1, 9.0)),
    ],
)
def test_what_was_not_timed_there_is_no_outcome(verdict: SpeedVerdict) -> None:
    """Nor a speed against the baseline, or one that noise made."""
    assert compare_with_promise(judged(verdict)) is None
