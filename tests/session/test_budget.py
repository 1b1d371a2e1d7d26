"""`--budget-minutes` and `--max-usd`: a session ends in time to report, and can go on with more."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError, Stopped
from loop.model.record import Started
from loop.session.drive import Bounds, SessionLimits, affordable_seconds
from loop.session.walk import StepBegan
from tests.makers import make_card, make_machine, make_pattern, make_plan, make_session_head
from tests.money.test_charging import card
from tests.projects import add_commands, here, loop, make_project

CARD = """
format: 1
gpu: vm
waiting: engineer
rates:
  - {name: vm, resource: gpu, usd_per_hour: 1.0, source: a test, as_of: 2026-11-01}
  - {name: engineer, resource: engineer, usd_per_hour: 36.0, source: a test, as_of: 2026-11-01}
"""
"""A cent a second."""


def project(tmp_path: Path, *commands: str) -> Path:
    """A trusted project with a plan `try` of these commands, and prices of its own."""
    folder = make_project(tmp_path / "project")
    (folder / "rates.yaml").write_text(CARD)
    add_commands(folder, "try", commands)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def record(tmp_path: Path) -> dict[str, Any]:
    """The record of the last session."""
    return json.loads((sorted((tmp_path / "sessions").iterdir())[-1] / "record.json").read_text())


@pytest.mark.slow
def test_a_step_that_runs_into_the_budget_is_broken_off_and_the_session_reports(tmp_path: Path) -> None:
    """Exit 124; steps that were not reached are named with the reason; without a budget a resume completes."""
    folder = project(tmp_path, "echo x >> one", "test -e go || exec sleep 60", "true")
    slow = folder / "patterns" / "try.yaml"
    slow.write_text(slow.read_text().replace("minutes: 0.1", "minutes: 0.01"))
    loop("trust", str(folder))
    done = loop("run", "session", "try", "--target", str(folder), "--budget-minutes", "0.03")
    assert 124 == done.returncode, done.stderr
    assert "go on, with more or no budget: loop run session --resume" in done.stdout
    stored = record(tmp_path)
    assert ("aborted", "stopped at its budget of 1.8 s") == (stored["status"], stored["reason"])
    assert "step try/s3: the budget did not reach so far" in stored["not_exercised"]
    assert stored["proposal"].startswith("Go on with the session that stopped")
    (folder / "go").touch()
    resumed = loop("run", "session", "--resume", "last", "--target", str(folder))
    assert (0, "x\n") == (resumed.returncode, (folder / "one").read_text())


@pytest.mark.slow
def test_a_step_that_would_not_fit_into_minutes_or_dollars_is_not_begun(tmp_path: Path) -> None:
    """A second costs a cent; the stricter bound counts; money for AI counts against `--max-usd`."""
    folder = project(tmp_path, "true", "echo x >> ran; sleep 3", "true")
    words = ["run", "session", "try", "--target", str(folder)]
    assert 0 == here(*words, "--max-usd", "10", "--budget-minutes", "5")[0]
    assert "budget" not in record(tmp_path)["reason"]
    assert 124 == here(*words, "--max-usd", "0.02")[0]
    stored = record(tmp_path)
    assert "try/s2 takes about " in stored["reason"]
    assert "its budget of $0.02, which lasts for 2 s" in stored["reason"]
    assert stored["bill"]["usd"] <= 0.02
    assert "x\n" == (folder / "ran").read_text()
    journal = (sorted((tmp_path / "sessions").iterdir())[-1] / "journal.jsonl").read_text()
    assert '"step": "s2"' not in journal
    assert 124 == here(*words, "--max-usd", "100", "--budget-minutes", "0.03")[0]
    assert "its budget of 1.8 s" in record(tmp_path)["reason"]
    assert 124 == here(*words, "--max-usd", "1.02", "--ai-usd", "1")[0]
    assert "$1.02, which lasts for 2 s beside $1.0000 of AI" in record(tmp_path)["reason"]


@pytest.mark.parametrize(
    "limits",
    [
        SessionLimits(minutes=0),
        SessionLimits(usd=-1),
        SessionLimits(minutes=math.nan),
        SessionLimits(usd=math.inf),
    ],
)
def test_what_is_no_amount_is_wrong_usage(limits: SessionLimits) -> None:
    """The hint shows a right example."""
    with pytest.raises(LoopError, match="expected a number above 0") as caught:
        limits.check(make_session_head(), make_card())
    assert re.match("--(budget-minutes|max-usd) 10", str(caught.value.hint))


def test_dollars_cannot_bound_a_gpu_without_a_price() -> None:
    """An H200 on a card that charges an L4: refused, instead of counting it as free."""
    head = make_session_head(device="cuda", machine=make_machine(gpus=("NVIDIA H200",)))
    with pytest.raises(LoopError, match="--max-usd 5: what the GPU costs is not known") as caught:
        SessionLimits(usd=5.0).check(head, card())
    assert "rates.yaml" in str(caught.value.hint)
    SessionLimits(minutes=5.0).check(head, card())
    SessionLimits(usd=5.0).check(head, make_card())


def test_a_step_that_would_not_fit_is_refused_with_both_figures() -> None:
    """It takes what was measured, else its share of the 30 s of its pattern; 2 s are kept for the report."""
    plan = make_plan(make_pattern())
    planned = plan.patterns[0].model_copy(update={"step_s": {"verify": 4.0}})
    bounds = Bounds(32, "32 s", plan=plan.model_copy(update={"patterns": (planned,)}))
    pattern, (first, second, *_) = planned.pattern, planned.pattern.steps
    fields = {"run": 1, "pattern": pattern.name, "title": "t", "index": 1, "of": 2, "budget_s": first.budget_s}
    assert ("verify", "measure") == (first.id, second.id)
    bounds.raise_if_over(StepBegan(Started(step=first.id, **fields)), 20)
    with pytest.raises(Stopped) as caught:
        bounds.raise_if_over(StepBegan(Started(step=second.id, **fields)), 20)
    message = "baseline-first/measure takes about 15.0 s (prior), and 10.0 s are left of its budget of 32 s"
    assert (124, message) == (caught.value.exit_code, str(caught.value))


def test_money_lasts_until_its_cost_is_reached() -> None:
    """It holds too if the first minute is charged as a whole."""
    assert 100.0 == pytest.approx(affordable_seconds(1.0, lambda s: s / 100), abs=0.01)
    assert 30.0 == pytest.approx(affordable_seconds(0.9, lambda s: max(s, 60) / 100 + s / 100), abs=0.01)
