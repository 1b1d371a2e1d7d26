"""Decisions inside a session: keep the GPU, pivot, and whether the machine is about to go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.processes import run_to_end
from loop.cloud.clouds import Watch
from loop.gate.model import PreemptionOutput
from loop.money.model import KeepOutput, PivotOutput
from loop.money.section import decision_lines
from loop.workers.bench import Bench
from tests.fake_cloud import FakeCloud, fake_cloud
from tests.makers import make_build, make_built, make_card, make_finished, make_machine
from tests.targets import make_context
from tests.two_stage import open_two_stage


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench; none of these decisions starts anything on it."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as made:
        yield made


COLD = (
    make_finished("build", pattern="compile", seconds=120.0, output=make_built(make_build())),
    make_finished("verify", seconds=60.0),
    make_finished("measure", seconds=60.0),
)
"""A session that compiled and measured: four minutes."""


def output(bench: Bench, action: str, arguments: dict[str, Any], **fields: Any) -> Any:
    """What an action finds, on a machine with an L4."""
    kind = ACTIONS[action]
    machine = make_machine(gpus=("NVIDIA L4",))
    context = make_context(bench, **{"card": make_card(), "machine": machine, "session": "now", **fields})
    return run_to_end(kind.run(context, kind.arguments.model_validate(arguments))).output


def keep(bench: Bench, arguments: dict[str, Any] | None = None, **fields: Any) -> KeepOutput:
    """Whether to keep the GPU."""
    found = output(bench, "session.keep_or_stop", arguments or {}, **{"finished": COLD, **fields})
    assert isinstance(found, KeepOutput)
    return found


def test_with_an_estimate_there_is_a_decision(bench: Bench) -> None:
    """Both sides are in the message."""
    said = "Stop it: idle $3.60 against $2.45 for a stop (break-even 3.4 h)."
    assert said == keep(bench, {"idle_hours": 5.0}).message
    nobody = keep(bench, {"idle_hours": 0.05, "waiting": "nobody"})
    assert nobody.expected is not None
    assert ("keep", pytest.approx(4 / 60)) == (nobody.expected.decision, nobody.expected.break_even_hours)


def test_stop_rules_are_held_against_the_session_under_way(bench: Bench, tmp_path: Path) -> None:
    """The plan's budget is a minute; four are spent. Without a file the options are asked for."""
    found = output(bench, "session.pivot", {}, finished=COLD, folder=tmp_path)
    assert isinstance(found, PivotOutput)
    assert found.pivot is not None
    assert ["budget + 50 %"] == [rule.rule for rule in found.pivot.rules if rule.holds]
    assert str(tmp_path / "pivot.yaml") in (found.hint or "")
    shown = decision_lines([make_finished("weigh", action="session.pivot", output=found)])
    assert "budget + 50 %: met; this session took 4.0 min of 1.0 (400 %)" in shown


def preemption(bench: Bench, watch: Watch | None) -> PreemptionOutput:
    """What is said of the machine."""
    found = output(bench, "session.preemption", {}, preemption_watch=watch)
    assert isinstance(found, PreemptionOutput)
    return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """The metadata server of Google's cloud."""
    with fake_cloud("gcp") as server:
        monkeypatch.setenv("LOOP_METADATA_GCP", server.url)
        yield server


def test_a_notice_fails_the_step_that_asks_for_it(bench: Bench, fake: FakeCloud) -> None:
    """And while there is none, the cloud is named."""
    quiet = preemption(bench, Watch("gcp").start())
    assert (True, "gcp", "gcp is asked every second") == (quiet.ok, quiet.cloud, quiet.message)
    fake.noticed = True
    doomed = preemption(bench, Watch("gcp").start())
    assert (False, "gcp preempts this machine") == (doomed.ok, doomed.notice)
