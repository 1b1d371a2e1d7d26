"""The audit of a session's own promises: never silent, and honest about its estimates."""

from loop.steps.cadence import audit
from tests.makers import make_finished


def test_the_longest_silence_of_any_step_counts() -> None:
    """Not the sum, not the last."""
    records = [make_finished(step, longest_silence_s=s) for step, s in (("a", 3.0), ("b", 12.0), ("c", 1.0))]
    assert 12.0 == audit(records)[1]


def test_steps_over_their_budget_are_named() -> None:
    """Exactly on budget is within it."""
    took = (("a", 9.9), ("b", 10.0), ("c", 10.1))
    records = [make_finished(step, seconds=seconds, budget_s=10.0) for step, seconds in took]
    assert ("baseline-first/c",) == audit(records)[2]


def test_estimate_stands_beside_actual() -> None:
    """Every step that ran, by pattern and step."""
    steps = audit([make_finished("a", seconds=2.0, budget_s=5.0, longest_silence_s=0.5)])[0]
    found = [(one.step, one.budget_s, one.seconds, one.longest_silence_s) for one in steps]
    assert [("baseline-first/a", 5.0, 2.0, 0.5)] == found


def test_steps_that_did_not_run_are_not_audited() -> None:
    """Skipped, aborted and paused steps made no promise."""
    statuses = ("skipped", "aborted", "paused", "failed", "passed")
    records = [make_finished(s, status=s, seconds=99.0, budget_s=1.0, longest_silence_s=99.0) for s in statuses]
    steps, _, late = audit(records)
    assert ["baseline-first/failed", "baseline-first/passed"] == [one.step for one in steps]
    assert ("baseline-first/failed", "baseline-first/passed") == late


def test_a_session_without_steps_has_no_silence() -> None:
    """Nothing ran, nothing was late."""
    assert ((), 0.0, ()) == audit([])
