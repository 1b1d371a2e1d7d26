"""Keep the GPU or stop it, also as a step of a session: both sides and the break-even."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.cloud.clouds import Watch
from loop.gate.model import PreemptionOutput
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.money import decisions as keeping
from loop.money.decisions import KeepOutput, PivotOutput, StopCost, decide_keep_or_stop
from loop.money.section import decision_lines
from loop.workers.bench import Bench
from tests.fake_cloud import FakeCloud, fake_cloud
from tests.makers import NOON, make_build, make_built, make_card, make_finished, make_machine
from tests.targets import make_context
from tests.two_stage import open_two_stage


def stop_cost(usd: float) -> StopCost:
    """A stop that costs so much."""
    return StopCost(usd=usd, source="as given", waiting="nobody", waiting_usd_per_hour=0.0)


@pytest.mark.parametrize(("hours", "decision"), [(4.0, "keep"), (4.0001, "stop"), (0.0, "keep")])
def test_equal_sides_mean_to_keep(hours: float, decision: str) -> None:
    """With equal costs the machine is kept: a stop has to be worth something."""
    assert decision == decide_keep_or_stop(hours, 0.2, stop_cost(0.8)).decision


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


def measured_stop(*rows: SessionRow) -> StopCost | None:
    """The measured cost of a stop of a GPU at a dollar an hour without a waiting person, from these sessions."""
    return keeping.measured_stop(rows, "cuda", make_card(), 1.0, "nobody")


def test_a_restart_is_what_a_cold_session_took_to_its_first_good_measurement() -> None:
    """Only its steps up to the measurement count; warm, failed, imported and CPU sessions do not."""
    stop = measured_stop(row())
    assert stop is not None
    assert pytest.approx(4 / 60) == stop.usd
    assert "a restart of 4.0 min, measured in 1 cold session on a GPU, without boot" == stop.source
    failed = [StepRun(pattern="p", step=s, status="failed", seconds=1) for s in ("verify", "measure")]
    assert None is measured_stop(row(built=False), row(steps=tuple(failed)), row(device="cpu"), row(recorded=True))


def test_who_waits_is_the_card_s_business_unless_somebody_says() -> None:
    """By default the card decides; nobody waiting costs nothing; an agent without a price is an error."""
    card = make_card()
    by_card = keeping.price_restart(60.0, "as given", card, 0.5)
    assert ("engineer", 36.0, 36.5) == (by_card.waiting, by_card.waiting_usd_per_hour, by_card.usd)
    nobody = keeping.price_restart(60.0, "as given", card, 0.5, "nobody")
    assert ("nobody", 0.0, 0.5) == (nobody.waiting, nobody.waiting_usd_per_hour, nobody.usd)
    with pytest.raises(LoopError, match="no price for an agent"):
        keeping.price_restart(60.0, "as given", card, 0.5, "agent")


def test_a_machine_is_kept_while_a_stop_costs_more_than_the_usual_gap() -> None:
    """It is stopped if the gap or the cost of a restart is unknown."""
    decision, lines = keeping.weigh_leaving(0.7, stop_cost(1.2), 0.5)
    assert "keep" == decision
    assert "B keep it until the next session, as gaps were so far (30 min): $0.35" == lines[1]
    assert "C keep it for 1.7 h, then stop it: at most $2.40" == lines[2]
    assert "stop" == keeping.weigh_leaving(0.7, stop_cost(1.2), 5.0)[0]
    for stop, gap in ((None, None), (stop_cost(0.8), None), (None, 0.1)):
        assert "stop" == keeping.weigh_leaving(0.7, stop, gap)[0]
    assert "unknown" in keeping.weigh_leaving(0.7, None, None)[1][0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench that these decisions do not use."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as opened:
        yield opened


COLD = (
    make_finished("build", pattern="compile", seconds=120.0, output=make_built(make_build())),
    make_finished("verify", seconds=60.0),
    make_finished("measure", seconds=60.0),
)
"""A session that compiled and measured: four minutes."""


def output(bench: Bench, action: str, arguments: dict[str, Any], **fields: Any) -> Any:
    """Output of an action on a machine with an L4."""
    kind = ACTIONS[action]
    machine = make_machine(gpus=("NVIDIA L4",))
    context = make_context(bench, **{"card": make_card(), "machine": machine, "session": "now", **fields})
    return run_to_end(kind.run(context, kind.arguments.model_validate(arguments))).output


def keep(bench: Bench, arguments: dict[str, Any] | None = None, **fields: Any) -> KeepOutput:
    """Whether to keep the GPU."""
    keep_output = output(bench, "session.keep_or_stop", arguments or {}, sessions=(row(device="cpu"),), **fields)
    assert isinstance(keep_output, KeepOutput)
    return keep_output


def test_with_an_estimate_there_is_a_decision(bench: Bench) -> None:
    """Both sides are in the message."""
    message = "Stop it: idle $3.60 against $2.45 for a stop (break-even 3.4 h)."
    assert message == keep(bench, {"idle_hours": 5.0}).message
    nobody = keep(bench, {"idle_hours": 0.05, "waiting": "nobody"})
    assert nobody.expected is not None
    assert ("keep", pytest.approx(4 / 60)) == (nobody.expected.decision, nobody.expected.break_even_hours)


def test_stop_rules_are_held_against_the_session_under_way(bench: Bench, tmp_path: Path) -> None:
    """Four minutes are spent of a budget of one. Without a file, the hint asks for options."""
    pivot_output = output(bench, "session.pivot", {}, finished=COLD, folder=tmp_path)
    assert isinstance(pivot_output, PivotOutput)
    assert pivot_output.pivot is not None
    assert ["budget + 50 %"] == [rule.rule for rule in pivot_output.pivot.rules if rule.holds]
    assert str(tmp_path / "pivot.yaml") in (pivot_output.hint or "")
    shown = decision_lines([make_finished("weigh", action="session.pivot", output=pivot_output)])
    assert "budget + 50 %: met; this session took 4.0 min of 1.0 (400 %)" in shown


def preemption(bench: Bench, watch: Watch | None) -> PreemptionOutput:
    """Output of `session.preemption`."""
    preemption_output = output(bench, "session.preemption", {}, preemption_watch=watch)
    assert isinstance(preemption_output, PreemptionOutput)
    return preemption_output


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """The metadata server of Google's cloud."""
    with fake_cloud("gcp") as server:
        monkeypatch.setenv("LOOP_METADATA_GCP", server.url)
        yield server


def test_a_notice_fails_the_step_that_asks_for_it(bench: Bench, fake: FakeCloud) -> None:
    """Without a notice, the message names the cloud."""
    quiet = preemption(bench, Watch("gcp").start())
    assert (True, "gcp", "gcp is asked every second") == (quiet.ok, quiet.cloud, quiet.message)
    fake.noticed = True
    doomed = preemption(bench, Watch("gcp").start())
    assert (False, "gcp preempts this machine") == (doomed.ok, doomed.notice)
