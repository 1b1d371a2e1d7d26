"""What a report says of the prediction it began with."""

from loop.learning.prediction import predicted
from loop.model.plan import PlannedPattern, Predicted, ResolvedPlan
from loop.model.record import SessionRecord
from tests.makers import make_bill, make_finished, make_plan, make_record, make_report, make_session_head

KNOWN = Predicted(seconds=10, low_s=8, high_s=13, usd=0.14, low_usd=0.11, high_usd=0.18)
STEPS = (make_finished("verify", seconds=4.0), make_finished("measure", seconds=9.0))


def foreseen(seconds: float = 14.0, usd: float = 0.15) -> SessionRecord:
    """A session that was predicted to take 10 s."""
    plan = make_plan()
    known = {"seconds": 9.0, "low_s": 7.0, "high_s": 12.0, "step_s": {"verify": 3.0}}
    patterns: tuple[PlannedPattern, ...] = (plan.patterns[0].model_copy(update=known),)
    head = make_session_head(plan=ResolvedPlan(plan=plan.plan, patterns=patterns), predicted=KNOWN)
    return make_record(head, seconds=seconds, bill=make_bill(usd=usd))


def test_the_whole_and_each_pattern_stand_beside_what_came() -> None:
    """With whether the interval held."""
    table = predicted(foreseen(), STEPS)
    assert table is not None
    assert [
        ("The session", "10.0 s", "8.0 s to 13.0 s", "14.0 s", "above"),
        ("Its cost", "$0.14", "$0.11 to $0.18", "$0.15", "yes"),
        ("baseline-first", "9.0 s", "7.0 s to 12.0 s", "13.0 s", "above"),
    ] == [tuple(row) for row in table.rows]


def test_a_pattern_that_was_left_half_way_is_not_judged() -> None:
    """Its time is not that of a run."""
    table = predicted(foreseen(seconds=5.0), STEPS[:1])
    assert table is not None
    assert ["below", "yes"] == [row[-1] for row in table.rows]


def test_a_session_of_an_older_version_says_nothing() -> None:
    """No prediction was stored."""
    assert predicted(make_record(), STEPS) is None
    assert "This session stored no prediction" in make_report(make_record(), STEPS)


def test_the_report_says_how_predictions_held() -> None:
    """Below the table."""
    text = make_report(foreseen(), STEPS, calibration="Of the last 9, 7 held.")
    assert "## Predicted and actual" in text
    assert "Of the last 9, 7 held." in text
