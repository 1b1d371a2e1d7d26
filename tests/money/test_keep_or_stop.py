"""Keep the GPU or stop it: both sides, the break-even, and what the history's decisions cost."""

import datetime
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.money import decisions as keeping
from loop.money.decisions import decide_keep_or_stop
from loop.money.model import StopCost
from tests.makers import NOON, make_build, make_built, make_card, make_finished


def given(usd: float) -> StopCost:
    """A stop that costs so much."""
    return StopCost(usd=usd, source="as given")


@pytest.mark.parametrize(("hours", "said"), [(4.0, "keep"), (4.0001, "stop"), (0.0, "keep")])
def test_equal_sides_mean_to_keep(hours: float, said: str) -> None:
    """A stop has to be worth something: 4 h x $0.20 is what it costs."""
    assert said == decide_keep_or_stop(hours, 0.2, given(0.8)).decision


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


def measured(*rows: SessionRow) -> StopCost | None:
    """What a stop of a GPU costs at a dollar an hour while nobody waits, by these sessions."""
    return keeping.measured_stop(rows, "cuda", make_card(), 1.0, "nobody")


def test_a_restart_is_what_a_cold_session_took_to_its_first_good_measurement() -> None:
    """Not what else its patterns did; a warm, failed, imported or CPU session says nothing."""
    stop = measured(row())
    assert stop is not None
    assert pytest.approx(4 / 60) == stop.usd
    assert "a restart of 4.0 min, measured in 1 cold session on a GPU, without boot" == stop.source
    failed = [StepRun(pattern="p", step=s, status="failed", seconds=1) for s in ("verify", "measure")]
    assert None is measured(row(built=False), row(steps=tuple(failed)), row(device="cpu"), row(recorded=True))


def test_the_session_under_way_measures_its_own_restart() -> None:
    """Where it compiled everything; not from the cache."""
    steps = [
        make_finished("torch", pattern="environment-validation", action="environment.torch", seconds=3.0),
        make_finished("build", pattern="compile", seconds=30.0, output=make_built(make_build())),
        make_finished("verify", seconds=5.0),
        make_finished("controls", seconds=90.0, action="kernel.prove_gate"),
        make_finished("measure", seconds=7.0),
    ]
    assert 45.0 == keeping.current_restart_s(steps)
    steps[1] = make_finished("build", pattern="compile", output=make_built(make_build(cached=True)))
    assert None is keeping.current_restart_s(steps)


def test_who_waits_is_the_card_s_business_unless_somebody_says() -> None:
    """Nobody costs nothing; an agent without a price is an error, not free."""
    card = make_card()
    by_card = keeping.price_restart(60.0, "as given", card, 0.5)
    assert ("engineer", 36.0, 36.5) == (by_card.waiting, by_card.waiting_usd_per_hour, by_card.usd)
    nobody = keeping.price_restart(60.0, "as given", card, 0.5, "nobody")
    assert ("nobody", 0.0, 0.5) == (nobody.waiting, nobody.waiting_usd_per_hour, nobody.usd)
    with pytest.raises(LoopError, match="no price for an agent"):
        keeping.price_restart(60.0, "as given", card, 0.5, "agent")


def test_a_machine_is_kept_while_a_stop_costs_more_than_the_usual_gap() -> None:
    """The ways with their dollars; the decision is that of the money."""
    decision, lines = keeping.weigh_leaving(0.7, given(1.2), 0.5, None)
    assert "keep" == decision
    assert "B keep it until the next session, as gaps were so far (30 min): $0.35" == lines[1]
    assert "C keep it for 1.7 h, then stop it: at most $2.40" == lines[2]
    assert "stop" == keeping.weigh_leaving(0.7, given(1.2), 5.0, None)[0]


def test_a_machine_is_stopped_where_nobody_knows_when_it_is_needed() -> None:
    """Nor what a restart costs: that it costs money is all that is known."""
    for stop, gap in ((None, None), (given(0.8), None), (None, 0.1)):
        assert "stop" == keeping.weigh_leaving(0.7, stop, gap, None)[0]
    assert "unknown" in keeping.weigh_leaving(0.7, None, None, None)[1][0]
