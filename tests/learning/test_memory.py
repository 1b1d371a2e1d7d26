"""A failure that comes back: said at once, with what cured it."""

import json
from pathlib import Path

import pytest

from loop.base.errors import ExitCode
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
    """A session that ends with a code; what it said."""
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
    """On the screen, for agents and in the report: where, and which files had changed when it was gone."""
    assert "seen before" not in failing(folder)
    done = loop("run", "session", "look", "--target", str(folder), "--events")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (ended,) = [event for event in events if event["happening"] == "StepEnded"]
    seen = [f"seen before: session {ids(tmp_path)[0]}; no session has got past it yet"]
    (failure,) = events[-1]["failures"]
    assert (seen, "look/s1", seen) == (ended["seen_before"], failure["step"], failure["seen_before"])
    assert ["nothing is ready"] == [signature["text"] for signature in failure["signatures"]]
    write(folder, "ready")
    assert "seen before" not in run(folder, ExitCode.OK)
    said = failing(folder)
    _, two, cure, last = ids(tmp_path)
    expected = f"session {two} (and 1 more); cured in session {cure} by other files of the target"
    assert f"seen before: {expected}" in said
    report = (tmp_path / "sessions" / last / "report.md").read_text()
    assert f"Seen before: {expected}" in report.replace("\\", "")
