"""The first screen of a report: what a reader sees before anything is unfolded."""

import re

from loop.session.first_screen import variants
from tests.makers import (
    make_check,
    make_finished,
    make_measured,
    make_measurement,
    make_no_speed,
    make_record,
    make_report,
    make_session_head,
    make_speed,
    make_verify,
)
from tests.session.test_report_page import FOLDS


def unfolded(text: str) -> list[str]:
    """The lines of a report that no fold holds."""
    shown, depth = [], 0
    for line in text.splitlines():
        depth += line == "<details>"
        shown += [] if depth else [line]
        depth -= line == "</details>"
    return shown


STEPS = [
    make_finished(output=make_verify(make_check("a"), make_check("b"))),
    make_finished("measure", output=make_measured(make_measurement("a"), make_measurement("b", 0.8))),
]
JUDGED = (make_speed("a"), make_speed("b", "slower", 0.8), make_speed("a", "same", 1.0, against="known_good"))


def test_the_first_screen_holds_verdict_variants_next_step_and_cost() -> None:
    """In sixty lines; everything else is folded."""
    text = make_report(make_record(verdicts=JUDGED, not_exercised=("x: no GPU", "y", "z")), STEPS)
    shown = unfolded(text)
    assert 60 >= len(shown)
    assert "**Next:** Go on." == shown[4]
    assert [] == [line for line in shown if line.startswith("## ")]
    assert "- Time: 12.0 s of 60.0 s planned." in shown
    said = "- Cost: nothing was billed; 12.0 s of this machine. ROI not measurable yet: nothing was billed."
    assert said in shown
    assert "- Not exercised: x: no GPU; y; and 1 more, which the report lists." in shown
    assert list(FOLDS) == re.findall("(?m)^<summary>(.*)</summary>$", text)


def test_what_is_wrong_comes_first_and_has_no_speed() -> None:
    """A variant of which nothing was judged has no row."""
    head = make_session_head(variants=("cpu", "eager", "other"), emulated=())
    wrong = make_finished("verify", run=2, output=make_verify(make_check("a", right=False), variant="eager"))
    found = make_record(head, verdicts=(*JUDGED, make_no_speed("a", variant="eager")))
    made = variants(found, [*STEPS, wrong])
    assert made is not None
    assert [("eager", "-", "-", "incorrect: 1 of 1 check failed"), "cpu"] == [made.rows[0], made.rows[1][0]]
    assert 2 == len(made.rows)
