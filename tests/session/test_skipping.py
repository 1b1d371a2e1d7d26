"""Why a step was skipped is said in plain English, of anybody's pattern."""

import pytest

from loop.base.screen import Screen
from loop.session.drive import Show
from loop.session.walk import StepEnded
from tests.makers import make_finished


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
