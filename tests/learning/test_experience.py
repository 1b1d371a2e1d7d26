"""What runs of a pattern took, cost and found."""

import pytest

from loop.learning.statistics import Run, answered, experience
from loop.model.index import Environment, FailureSeen, PatternRun, SessionRow
from tests.makers import NOON


def session(number: int, seconds: float, *, found: bool = False, signature: str = "wrong") -> SessionRow:
    """A session of 100 s and $1, of which a pattern took so many; 5 to 20 s were predicted."""
    run = PatternRun(
        pattern="gate", status="failed" if found else "passed", seconds=seconds, started=NOON, whole=True,
        predicted_s=(5.0, 10.0, 20.0), found=found,
    )  # fmt: skip
    failure = FailureSeen(signature=signature, pattern="gate", step="verify", message=f"{signature} by 3")
    return SessionRow(
        id=f"s{number}", started=NOON, target="t", plan="p", device="cpu", status="passed", seconds=100, usd=1,
        environment=Environment(processor="x"), runs=(run,), failures=(failure,) if found else (),
    )  # fmt: skip


def runs(*rows: SessionRow) -> list[Run]:
    """The runs of the pattern."""
    return answered(rows)["gate"]


def test_time_and_cost_are_summed_up() -> None:
    """The cost is the share of the session's time."""
    found = experience(runs(session(1, 10), session(2, 30)))
    assert pytest.approx((40 / 60, 0.4)) == (found.minutes, found.usd)


def test_predicted_times_are_held_against_actual_ones() -> None:
    """Two of three were inside."""
    held = experience(runs(session(1, 10), session(2, 15), session(3, 30))).held
    assert held is not None
    assert (3, 2) == (held.count, held.inside)


def test_what_was_found_is_named_once() -> None:
    """With the last session that found it, the newest first."""
    rows = [session(1, 1, found=True), session(2, 1, found=True, signature="slow"), session(3, 1, found=True)]
    found = experience(runs(*rows)).found
    assert [("s3", "verify", "wrong"), ("s2", "verify", "slow")] == [(f.session, f.step, f.text) for f in found]


def test_a_run_without_a_prediction_has_no_outcome() -> None:
    """As in sessions of older versions."""
    row = session(1, 10)
    old = row.model_copy(update={"runs": (row.runs[0].model_copy(update={"predicted_s": None}),)})
    assert experience(runs(old)).held is None
