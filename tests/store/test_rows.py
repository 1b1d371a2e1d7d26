"""What the row of a session says of its runs."""

import pytest

from loop.model.record import Finished, Line
from loop.store.rows import row
from tests.makers import NOON, make_finished, make_measured, make_measurement, make_session_head, make_verify

UNSURE = make_measured(make_measurement("w", 1.0))
FASTER = make_measured(make_measurement("w", 1.5), make_measurement("v", 1.0))
SEARCHED = {"ok": True, "message": "", "answer": None}
KEPT = {"ok": True, "message": "", "kept": False, "tried": {"number": 1}}


@pytest.mark.parametrize(
    ("steps", "success"),
    [
        ([make_finished("verify", output=make_verify())], True),
        ([make_finished("measure", output=FASTER)], True),
        ([make_finished("measure", output=UNSURE)], None),
        ([make_finished("verify", output=make_verify()), make_finished("measure", status="skipped")], None),
        ([make_finished("measure", output=UNSURE), make_finished("verify", status="failed")], False),
        ([make_finished("search", action="bisect.search", output=SEARCHED)], None),
        ([make_finished("decide", action="change.decide", output=KEPT)], True),
        ([make_finished("decide", action="change.decide", status="skipped")], None),
    ],
)
def test_a_run_counts_where_its_question_was_answered(steps: list[Finished], success: bool | None) -> None:
    """Passing is not enough: a speed that stayed inconclusive says nothing of the pattern."""
    lines = [Line(seq=place, at=NOON, event=step) for place, step in enumerate(steps, start=1)]
    (run,) = row(make_session_head(), None, lines).runs
    assert success is run.success
