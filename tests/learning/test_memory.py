"""A failure that was seen before: reported at once, with its cure."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import ExitCode
from loop.learning.failures import describe_earlier_failures
from loop.model.index import Environment, FailureSeen, SessionRow, StepRun
from tests.makers import make_row
from tests.projects import add_commands, loop, make_project

COMMAND = 'grep -q ready notes.c || { echo "$PWD/notes.c:7:1: error: nothing is ready" >&2; exit 3; }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose one step fails until `notes.c` says that all is ready."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "look", [COMMAND])
    write(folder, "not yet")
    return folder


def write(folder: Path, text: str) -> None:
    """A source of the target, which a step reads."""
    (folder / "notes.c").write_text(text.replace("not yet", "// soon") + "\n")


def run(folder: Path, code: int) -> str:
    """Output of a session that ends with this code."""
    loop("trust", str(folder))
    done = loop("run", "session", "look", "--target", str(folder))
    assert code == done.returncode, done.stderr
    return done.stderr


def failing(folder: Path) -> str:
    write(folder, "not yet")
    return run(folder, ExitCode.GATE_FAILED)


def ids(tmp_path: Path) -> list[str]:
    """Sessions, oldest first."""
    return sorted(path.name for path in (tmp_path / "sessions").iterdir())


@pytest.mark.slow
def test_a_failure_that_was_seen_before_is_said_when_it_happens(folder: Path, tmp_path: Path) -> None:
    """Screen, events and report name the earlier sessions, and the changed files of the session that cured it."""
    assert "seen before" not in failing(folder)
    done = loop("run", "session", "look", "--target", str(folder), "--events")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (ended,) = [event for event in events if event["happening"] == "StepEnded"]
    lines = [f"seen before: session {ids(tmp_path)[0]}; no session has got past it yet"]
    (failure,) = events[-1]["failures"]
    assert (lines, "look/s1", lines) == (ended["seen_before"], failure["step"], failure["seen_before"])
    assert ["nothing is ready"] == [signature["text"] for signature in failure["signatures"]]
    write(folder, "ready")
    assert "seen before" not in run(folder, ExitCode.OK)
    output = failing(folder)
    _, two, cure, last = ids(tmp_path)
    expected = f"session {two} (and 1 more); cured in session {cure} by other files of the target"
    assert f"seen before: {expected}" in output
    report = (tmp_path / "sessions" / last / "report.md").read_text()
    assert f"Seen before: {expected}" in report.replace("\\", "")


KEY = "0" * 12


def failure(subject: str = "", **fields: Any) -> FailureSeen:
    """A failed build."""
    base = {"text": "broken", "key": KEY, "pattern": "unit", "step": "build", "message": "broken"}
    return FailureSeen.model_validate({**base, "subject": subject, **fields})


def row(name: str, *failures: FailureSeen, status: str = "", **fields: Any) -> SessionRow:
    """A session with that step, failed where there are failures."""
    word = status or ("failed" if failures else "passed")
    step = StepRun.model_validate({"pattern": "unit", "step": "build", "status": word, "seconds": 1.0})
    base = {"variants": ("ours",), "environment": place(), "steps": (step,), "failures": failures, "ground": "g1"}
    return make_row(id=name, **{**base, **fields})


def place(**fields: Any) -> Environment:
    """A processor with a compiler and torch."""
    return Environment.model_validate({"processor": "x", "torch": "2.3", "compiler": "g++ 12", **fields})


def test_the_first_later_session_that_got_past_the_step_is_the_cure() -> None:
    """The message has the changed facts of the environment, commits and files."""
    rows = [
        row("a", failure(), commit="c1"),
        row("b", failure(), commit="c1"),
        row("c", environment=place(torch="2.4", cuda="12.4"), commit="c2", ground="g2"),
        row("d"),
    ]
    changes = "nvcc not there -> 12.4; torch 2.3 -> 2.4; other files of the target; commits c1..c2"
    expected = f"seen before: session b (and 1 more); cured in session c by {changes}"
    assert expected == describe_earlier_failures(rows, KEY)


def test_other_targets_devices_and_fewer_variants_cure_nothing() -> None:
    """Sessions that did not reach the step cure nothing; a variant is cured if only other variants fail."""
    later = [
        row("b", target="u"),
        row("c", device="cuda"),
        row("d", variants=()),
        row("e", steps=()),
        row("f", status="skipped"),
        row("g", recorded=True),
    ]
    text = describe_earlier_failures([row("a", failure()), *later], KEY)
    assert text.endswith("; no session has got past it yet")
    rows = [row("a", failure("ours")), row("b", failure("theirs", key="1" * 12), variants=("ours", "theirs"))]
    assert "; gone in session b, with nothing changed" in describe_earlier_failures(rows, KEY)
    whole = [rows[0], row("b", failure("", key="1" * 12))]
    assert "no session has got past it yet" in describe_earlier_failures(whole, KEY)
