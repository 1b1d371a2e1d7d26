"""Keep the GPU or stop it: both sides, the break-even, and what the history's decisions cost."""

import datetime
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.library.histories import histories
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.money import keep_or_stop as keeping
from loop.money.keep_or_stop import decide
from loop.money.model import KeepOrStop, Restart, StopCost
from tests.makers import NOON, make_build, make_built, make_card, make_finished


def given(low: float, high: float | None = None) -> StopCost:
    """A stop that costs so much."""
    return StopCost(low_usd=low, high_usd=low if high is None else high, source="as given")


def recorded(session: str) -> tuple[str, KeepOrStop]:
    """A decision of the recorded history as it was taken, and what the money says of it."""
    (history,) = histories()
    rows = [row for row in history.model_dump()["decisions"] if row["question"] == "keep GPU"]
    row = next(row for row in rows if row["id"] == session)
    return row["decided"], decide(row["idle_hours"], row["gpu_usd_per_hour"], given(*row["stop_cost_usd"]))


@pytest.mark.parametrize(
    ("session", "idle_usd", "break_even", "decision", "said"),
    [
        ("N+4", 1.0, (4.0, 4.0), "stop", "keep: the money says stop (idle $1.00, stop $0.80, break-even 4.0 h)"),
        ("N+7A", 2.4, (4.0, 6.0), "stop", "says stop"),
        ("N+7G", 1.4, (250.0, 375.0), "keep", "the money agrees"),
    ],
)
def test_decisions_of_the_recorded_history(
    session: str, idle_usd: float, break_even: tuple[float, float], decision: str, said: str
) -> None:
    """Five and twelve idle hours cost more than a stop; seven are nothing beside an engineer who waits."""
    decided, found = recorded(session)
    assert pytest.approx(idle_usd) == found.idle_usd
    assert pytest.approx(break_even) == (found.low.break_even_hours, found.high.break_even_hours)
    assert decision == found.decision
    assert said in keeping.agrees(decided, found)


def test_ends_that_differ_depend() -> None:
    """At one end of the range it is cheaper to stop, at the other to keep."""
    found = decide(5, 0.2, given(0.8, 1.2))
    assert ("stop", "keep", "it depends") == (found.low.decision, found.high.decision, found.decision)
    assert "it depends" in keeping.agrees("keep", found)


@pytest.mark.parametrize(("hours", "said"), [(4.0, "keep"), (4.0001, "stop"), (0.0, "keep")])
def test_equal_sides_mean_to_keep(hours: float, said: str) -> None:
    """A stop has to be worth something: 4 h x $0.20 is what it costs."""
    assert said == decide(hours, 0.2, given(0.8)).decision


def test_with_nobody_waiting_the_break_even_is_the_restart_itself() -> None:
    """Stop once the gap is longer than the restart takes, whatever the rate."""
    stop = keeping.stop_cost(Restart(low_minutes=12, high_minutes=12), 0.7, "nobody", 0.0)
    assert pytest.approx(12 / 60) == decide(1, 0.7, stop).break_even_hours


def test_who_waits_makes_a_stop_dearer() -> None:
    """Minutes x (GPU + engineer)."""
    stop = keeping.stop_cost(Restart(low_minutes=6, high_minutes=12), 1.0, "engineer", 49.0)
    assert pytest.approx((5.0, 10.0)) == (stop.low_usd, stop.high_usd)


def row(name: str = "a", *, hour: float = 0, built: bool = True, **fields: Any) -> SessionRow:
    """A session on a GPU of 30 minutes: environment 60 s, build 120 s, verified in 20 s, measured in 40 s."""
    runs = (
        PatternRun(pattern="environment-validation", status="passed", seconds=60, started=NOON, whole=True),
        PatternRun(pattern="compile", status="passed", seconds=120, started=NOON, whole=True, built=built),
        PatternRun(pattern="baseline-first", status="passed", seconds=900, started=NOON, whole=True),
    )
    seconds = {"verify": 20.0, "controls": 500.0, "measure": 40.0}
    steps = [StepRun(pattern="baseline-first", step=s, status="passed", seconds=t) for s, t in seconds.items()]
    base: dict[str, Any] = {"target": "attention", "plan": "baseline", "device": "cuda", "status": "passed"}
    base |= {
        "started": NOON + datetime.timedelta(hours=hour),
        "seconds": 1800.0,
        "runs": runs,
        "steps": tuple(steps),
    }
    return SessionRow.model_validate({"id": name, **base, "environment": Environment(processor="x"), **fields})


def test_a_restart_is_what_a_cold_session_took_to_its_first_good_measurement() -> None:
    """Environment, build, verification, measurement; not what else its patterns did."""
    found = keeping.restart_of([row()], "cuda")
    assert found is not None
    assert (4.0, 4.0, ("a",)) == (found.low_minutes, found.high_minutes, found.sessions)


def test_a_warm_session_says_nothing_of_a_restart() -> None:
    """Nor does one whose measurement failed, one on another device, or one that was imported."""
    failed = [StepRun(pattern="p", step=s, status="failed", seconds=1) for s in ("verify", "measure")]
    others = [row(built=False), row(steps=tuple(failed)), row(device="cpu"), row(recorded=True)]
    assert None is keeping.restart_of(others, "cuda")


def test_restarts_of_several_sessions_are_a_range() -> None:
    """Both ends lead to a decision of their own."""
    slow = [run.model_copy(update={"seconds": 3 * run.seconds}) for run in row().runs]
    found = keeping.restart_of([row(), row("b", runs=tuple(slow))], "cuda")
    assert found is not None
    assert (4.0, 10.0) == (found.low_minutes, found.high_minutes)


def test_a_restart_on_another_gpu_is_another_restart() -> None:
    """The last one's counts."""
    h200, l4 = (Environment(processor="x", gpu=name) for name in ("NVIDIA H200", "NVIDIA L4"))
    found = keeping.restart_of([row(environment=h200), row("b", environment=l4)], "cuda")
    assert found is not None
    assert ("b",) == found.sessions


def test_the_session_under_way_measures_its_own_restart() -> None:
    """Where it compiled everything; not from the cache."""
    steps = [
        make_finished("torch", pattern="environment-validation", action="environment.torch", seconds=3.0),
        make_finished("build", pattern="compile", seconds=30.0, output=make_built(make_build())),
        make_finished("verify", seconds=5.0),
        make_finished("controls", seconds=90.0, action="kernel.prove_gate"),
        make_finished("measure", seconds=7.0),
    ]
    assert 45.0 == keeping.own_restart_s(steps)
    steps[1] = make_finished("build", pattern="compile", output=make_built(make_build(cached=True)))
    assert None is keeping.own_restart_s(steps)


def test_who_waits_is_the_card_s_business_unless_somebody_says() -> None:
    """Nobody costs nothing; an agent without a price is an error, not free."""
    card = make_card()
    assert ("engineer", 36.0) == keeping.who_waits(card, None)
    assert ("nobody", 0.0) == keeping.who_waits(card, "nobody")
    with pytest.raises(LoopError, match="no price for an agent"):
        keeping.who_waits(card, "agent")


def test_a_machine_is_kept_while_a_stop_costs_more_than_the_usual_gap() -> None:
    """The ways with their dollars; the decision is that of the money."""
    kept = keeping.leave(0.7, given(0.8, 1.2), 0.5, None)
    assert "keep" == kept.decision
    assert "B keep it until the next session, as gaps were so far (30 min): $0.35" == kept.lines[1]
    assert "C keep it for 1.7 h, then stop it: at most $2.40" == kept.lines[2]
    assert "stop" == keeping.leave(0.7, given(0.8, 1.2), 5.0, None).decision
    assert "stop" == keeping.leave(0.7, given(0.8, 1.2), 1.4, None).decision, "it depends: an idle machine costs"


def test_a_machine_is_stopped_where_nobody_knows_when_it_is_needed() -> None:
    """Nor what a restart costs: that it costs money is all that is known."""
    for stop, gap in ((None, None), (given(0.8), None), (None, 0.1)):
        assert "stop" == keeping.leave(0.7, stop, gap, None).decision
    assert "unknown" in keeping.leave(0.7, None, None, None).lines[0]


def test_a_machine_that_is_needed_is_kept_whatever_the_money_says() -> None:
    """With the planned idle cost, and what a stop would cost."""
    planned = keeping.leave(0.7, given(0.8, 1.2), 0.1, ("16:00", 4.0))
    assert "keep" == planned.decision
    assert "B keep it until 16:00, as planned (4.0 h): $2.80" == planned.lines[1]
    assert "the money says stop" in planned.lines[2]


def test_a_gap_is_the_median_of_the_last() -> None:
    """From the end of a session to the beginning of the next; none where there is one session only."""
    starts = [NOON + datetime.timedelta(hours=hours) for hours in (0, 2, 3, 8)]
    rows = [row(started=start, seconds=3600.0) for start in starts]
    assert 1.0 == keeping.gap_hours(rows[:2])
    assert 2.5 == keeping.gap_hours(rows)
    assert keeping.gap_hours(rows[:1]) is None
