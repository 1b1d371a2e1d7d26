"""`loop status`: what runs, what waits, what is left, the GPU, and what comes next, from real folders."""

import datetime
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from loop.base.locks import locked
from loop.cli import status
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.model.record import Opened, Started
from loop.report.screen import Screen
from loop.store.sessions import LOCK
from tests.makers import NOON, make_card, make_finished, make_pattern, make_plan
from tests.projects import KERNEL, loop, make_project
from tests.store.folders import make_session

OPENED = Opened(pid=1)
STARTED = Started(
    run=1, pattern="baseline-first", step="measure", title="Time it", index=2, of=2, budget_s=10.0, attempt=1
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A target without sessions."""
    return make_project(tmp_path / "project")


def said(project: Path) -> str:
    """What `loop status` prints."""
    out = io.StringIO()
    status.gather_status(project).show(Screen(out, io.StringIO()))
    return out.getvalue()


def fields(project: Path) -> dict[str, Any]:
    """What `--json` prints."""
    return status.gather_status(project).model_dump(mode="json")


def test_a_project_without_sessions(project: Path) -> None:
    """Nothing runs, and what comes next is said all the same."""
    found = fields(project)
    assert (4, [], [], 0) == (found["schema_version"], found["running"], found["waiting"], found["sessions"])
    assert found["milestone"]["command"].startswith("loop run session")


def test_a_session_that_runs(project: Path, tmp_path: Path) -> None:
    """Its step, since when, how many steps, its budget and its cost so far; it does not wait."""
    plan = make_plan(make_pattern())
    root = tmp_path / "sessions"
    folder = make_session(root, "busy", OPENED, make_finished(), STARTED, status="", plan=plan, target="scaling")
    folder.write_head(folder.head().model_copy(update={"attended": True}))
    with locked(folder.path / LOCK):
        (run,) = fields(project)["running"]
        text = said(project)
    assert ("busy", "baseline-first/measure", "Time it", 1, 2) == tuple(
        run[name] for name in ("id", "step", "title", "done", "of")
    )
    assert (60.0, 10.0) == (run["budget_s"], run["step_budget_s"])
    assert run["usd"] > 0
    assert run["since"] is not None
    assert "busy runs, at baseline-first/measure" in text
    assert "--resume busy" not in text


def test_a_damaged_session_does_not_stop_it(project: Path, tmp_path: Path) -> None:
    """It is named among what a person may look at."""
    folder = make_session(tmp_path / "sessions", "torn", OPENED, STARTED, status="")
    (folder.path / "session.json").write_text("{")
    found = fields(project)
    assert any("torn" in left for left in found["left"])


def test_a_definition_with_a_mistake_hides_no_session(project: Path, tmp_path: Path) -> None:
    """The mistake stands where the milestone would."""
    make_session(tmp_path / "sessions", "dead", OPENED, STARTED, status="")
    (project / "patterns").mkdir()
    (project / "patterns" / "mine.yaml").write_text("format: 1\nname: 3\n")
    found = fields(project)
    assert ["dead"] == [one["id"] for one in found["waiting"]]
    assert None is found["milestone"]
    assert "mine.yaml" in found["no_milestone"]


def make_gpu_row(number: int, hours: float) -> SessionRow:
    """A cold session on an L4 that began so many hours after noon and took six minutes."""
    steps = tuple(
        StepRun(pattern="baseline-first", step=name, status="passed", seconds=60) for name in ("verify", "measure")
    )
    run = PatternRun(pattern="build", status="passed", seconds=120, started=NOON, whole=True, built=True)
    return SessionRow(
        id=f"s{number}",
        started=NOON + datetime.timedelta(hours=hours),
        target="scaling",
        plan="baseline",
        device="cuda",
        status="passed",
        seconds=360.0,
        environment=Environment(processor="x", gpu="NVIDIA L4"),
        runs=(run,),
        steps=steps,
    )


@pytest.mark.parametrize(("hours", "decision"), [(0.5, "keep"), (30.0, "stop")])
def test_keep_or_stop_by_how_long_it_has_stood(
    project: Path, monkeypatch: pytest.MonkeyPatch, hours: float, decision: str
) -> None:
    """A restart of 4 minutes costs $2.45 of an engineer and an L4: 3.4 idle hours of the GPU."""
    monkeypatch.setattr(status.index, "rows", lambda root, **which: [make_gpu_row(1, 0.0)])
    monkeypatch.setattr(status, "rates", lambda here: make_card())
    now = NOON + datetime.timedelta(hours=hours, seconds=360)
    gpu = status.gather_status(project, now).gpu
    assert decision == gpu["decision"]
    assert "NVIDIA L4" in gpu["why"]
    assert f"${0.72 * hours:.2f}" in gpu["why"]


@pytest.mark.slow
def test_wrong_stays_wrong_through_real_sessions(project: Path) -> None:
    """Another plan on the same sources does not cure it; a mended kernel and the advised command do."""
    manifest, source = project / "target.yaml", project / "scale.c"
    manifest.write_text(manifest.read_text().replace("variants:", "  edges: [{N: 1, M: 3}]\nvariants:"))
    source.write_text(KERNEL.replace("i < n; i++", "i < n - n % 5 % 4; i++"))  # Wrong where 5 does not divide it.
    where = ("--target", str(project))
    trust_allowed = loop("trust", str(project))
    assert 0 == trust_allowed.returncode, trust_allowed.stderr

    def wrong_after(*words: str) -> tuple[int, list[str], str]:
        code = loop("run", "session", *words).returncode
        found = json.loads(loop("status", *where, "--json").stdout)
        assert not found["milestone"]["wrong"] or "nothing is wrong" not in loop("status", *where).stdout.replace(
            "\n", " "
        )
        return code, found["milestone"]["wrong"], found["milestone"]["command"]

    code, (first,), advised = wrong_after("baseline", *where, "--seed", "7")
    assert (1, True) == (code, "ours was wrong in" in first)
    assert "--variant ours --target" in advised.replace(" --seed 7", "")
    _, still, _ = wrong_after("quick", *where)
    assert still
    source.write_text(KERNEL)
    code, mended, _ = wrong_after(*shlex.split(advised)[3:])
    assert (0, []) == (code, mended)
