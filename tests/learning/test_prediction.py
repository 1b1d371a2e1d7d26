"""Predictions: similar sessions count, recent ones more, outliers little."""

import pytest

from loop.learning.prediction import predict_pattern, predict_session
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.model.plan import Pattern, Predicted
from tests.makers import NOON, make_pattern, make_row

ONE = make_pattern("one", estimate={"minutes": 1.0})
TWO = make_pattern("two", estimate={"minutes": 2.0})


def row(number: int = 0, **seconds: float) -> SessionRow:
    """A session with a run of each of these patterns."""
    runs = [
        PatternRun(pattern=name, status="passed", seconds=took, started=NOON, whole=True)
        for name, took in seconds.items()
    ]
    steps = [
        StepRun(pattern=name, step=step, status="passed", seconds=took * part)
        for name, took in seconds.items()
        for step, part in (("verify", 0.25), ("measure", 0.75))
    ]
    return make_row(
        number,
        variants=("cpu",),
        workloads=("w",),
        ground="files",
        complete=True,
        environment=Environment(processor="x", torch="2.4"),
        runs=runs,
        steps=steps,
    )


def changed_row(of: SessionRow, **fields: object) -> SessionRow:
    """The same session, but for these."""
    return of.model_copy(update=fields)


def predicted(rows: list[SessionRow], *patterns: Pattern, now: SessionRow | None = None) -> Predicted:
    """The prediction of a session of these patterns, at 100 dollars an hour and 0.9 at least."""
    durations = [predict_pattern(pattern, rows, now or row())[0] for pattern in patterns]
    return predict_session(durations, rows, 100.0, 0.9)


def seconds(rows: list[SessionRow], now: SessionRow | None = None) -> float:
    """The predicted seconds of pattern `one`."""
    return predicted(rows, ONE, now=now).seconds


def test_at_first_the_authors_are_believed_then_the_sessions() -> None:
    """Within a wide interval at first; one session is enough to leave an estimate off by six."""
    prediction = predicted([], ONE, TWO)
    assert pytest.approx(180.0) == prediction.seconds
    assert prediction.low_s < 60 < 540 < prediction.high_s
    assert 10.0 < seconds([row(one=10.0)]) < 12.0
    assert pytest.approx(10.0, rel=0.02) == seconds([row(n, one=10.0) for n in range(8)])


def test_a_pattern_that_had_nothing_to_do_is_predicted_again() -> None:
    """Also where `loop` itself takes far longer than all of its steps."""
    rows = [row(one=0.0).model_copy(update={"complete": True, "own_seconds": 5.0})]
    prediction = predicted(rows, ONE)
    assert 5.0 < prediction.low_s < prediction.high_s


def test_another_place_and_half_a_run_say_less() -> None:
    """Two machines in turns are both predicted; half a run leaves the author's estimate."""
    slow = Environment(processor="slow", torch="2.4")
    rows = [row(n, one=10.0) if n % 2 else changed_row(row(n, one=30.0), environment=slow) for n in range(12)]
    assert seconds(rows) < 15.0
    assert seconds(rows, changed_row(row(), environment=slow)) > 20.0
    half = PatternRun(pattern="one", status="aborted", seconds=1.0, started=NOON, whole=False)
    assert pytest.approx(60.0) == seconds([changed_row(row(), runs=(half,))])


def test_a_cold_cache_is_expected_where_files_have_changed() -> None:
    """And a warm one where they have not."""
    built = PatternRun(pattern="one", status="passed", seconds=40.0, started=NOON, whole=True, built=True)
    warm = built.model_copy(update={"seconds": 4.0, "built": False})
    rows = [changed_row(row(n), runs=(warm if n % 2 else built,), ground=f"files {n // 2}") for n in range(8)]
    assert pytest.approx(4.0, rel=0.2) == seconds(rows, changed_row(row(), ground="files 3"))
    assert pytest.approx(40.0, rel=0.2) == seconds(rows, changed_row(row(), ground="files 4"))


def test_cost_is_time_at_the_rates() -> None:
    """Cost is never below the minimum charge."""
    prediction = predicted([row(n, one=36.0) for n in range(9)], ONE)
    assert pytest.approx(1.0, rel=0.01) == prediction.usd
    assert prediction.low_usd == pytest.approx(max(0.9, prediction.low_s / 36.0))
    assert pytest.approx(prediction.high_s / 36.0) == prediction.high_usd
