"""Minutes and dollars that a session may take: what fits, what does not, and how long money lasts."""

import pytest

from loop.base.errors import Stopped
from loop.session.bounds import Bounds, affordable_seconds, expected_seconds_by_step
from loop.session.walk import StepDue
from tests.makers import make_pattern, make_plan

KNOWN = {("p", "quick"): (5.0, "measured"), ("p", "slow"): (50.0, "prior")}


def test_a_step_that_would_not_fit_is_refused_with_both_figures() -> None:
    """60 s with 2 s kept for the report: 28 s are left after 30."""
    bounds = Bounds(60, "1 min", expected_by_step=KNOWN)
    bounds.raise_if_over(StepDue("p", "quick"), 30)
    with pytest.raises(Stopped) as caught:
        bounds.raise_if_over(StepDue("p", "slow"), 30)
    said = "p/slow takes about 50.0 s (prior), and 28.0 s are left of its budget of 1 min"
    assert (124, said) == (caught.value.exit_code, str(caught.value))


def test_money_lasts_until_its_cost_is_reached() -> None:
    """Also where the first minute is charged as a whole."""
    assert 100.0 == pytest.approx(affordable_seconds(1.0, lambda s: s / 100), abs=0.01)
    assert 30.0 == pytest.approx(affordable_seconds(0.9, lambda s: max(s, 60) / 100 + s / 100), abs=0.01)


def test_a_step_takes_what_was_predicted_else_its_share_of_its_pattern() -> None:
    """Budgets share out the 30 s of the pattern: 10 to 10."""
    plan = make_plan(make_pattern())
    known = plan.patterns[0].model_copy(update={"step_s": {"verify": 4.0}})
    expected = expected_seconds_by_step(plan.model_copy(update={"patterns": (known,)}))
    assert (4.0, "measured") == expected[("baseline-first", "verify")]
    assert (15.0, "prior") == expected[("baseline-first", "measure")]
