"""Learning from sessions by commands: predictions, statistics, the next plan, and lists from the index."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loop.cli import sessions as listing
from loop.report.screen import Screen
from tests.makers import NOON, make_finished
from tests.projects import add_commands, loop, make_project
from tests.store.folders import make_session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trusted project with a plan `try` of two quick commands."""
    target = make_project(tmp_path / "project")
    add_commands(target, "try", ["sleep 0.2", "true"])
    assert 0 == loop("trust", str(target)).returncode
    return target


def reply_of(*words: str, code: int = 0) -> dict[str, Any]:
    """Reply of a command with `--json`."""
    done = loop(*words, "--json")
    assert code == done.returncode, done.stderr
    reply: dict[str, Any] = json.loads(done.stdout)
    assert reply["schema_version"] in (1, 2, 3, 4)
    return reply


def run(folder: Path, count: int = 1) -> None:
    for _ in range(count):
        done = loop("run", "session", "try", "--target", str(folder))
        assert 0 == done.returncode, done.stderr


@pytest.mark.slow
def test_sessions_make_predictions(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authors' six seconds at first; after three sessions less; the report compares them."""
    target_words = ("--target", str(folder))
    first = reply_of("run", "session", "try", "--dry-run", *target_words)
    assert 6.0 <= first["predicted"]["seconds"] + 1e-6
    assert "prior" == first["patterns"][0]["evidence"]
    run(folder, 3)
    monkeypatch.setenv("LOOP_ATTENDED", "1")
    later = reply_of("run", "session", "try", "--dry-run", *target_words)
    predicted = later["predicted"]
    assert predicted["low_s"] < predicted["seconds"] < min(predicted["high_s"], first["predicted"]["seconds"] / 2)
    assert predicted["usd"] > 0
    assert "measured" == later["patterns"][0]["evidence"]
    assert {"s1", "s2"} == set(later["patterns"][0]["step_s"])
    last = sorted((tmp_path / "sessions").iterdir())[-1]
    assert json.loads((last / "session.json").read_text())["predicted"]["seconds"] < 6.0
    text = (last / "report.md").read_text()
    assert "## Predicted and actual" in text
    assert "| The session" in text


@pytest.mark.slow
def test_plan_next_proposes_a_whole_command(folder: Path) -> None:
    """The reply has objective, chain, time, cost, reason and a whole command; nothing runs."""
    proposal = reply_of("plan", "next", "--target", str(folder))
    assert ("baseline", ["no session has measured speed"]) == (proposal["plan"], proposal["why"])
    assert {"objective", "chain", "expected", "predicted", "why", "command"} <= set(proposal)
    assert proposal["predicted"]["seconds"] > 0
    assert f"loop run session baseline --target {folder}" == proposal["command"]
    assert not (folder.parent / "sessions").exists()
    done = loop("plan", "next", "--target", str(folder))
    assert "why: no session has measured speed" in done.stdout
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 80 and "loop run session" not in line]


def listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """Rows by id, and the remarks below the table."""
    monkeypatch.setenv("LOOP_SESSIONS", str(root))
    err, sessions = io.StringIO(), listing.list_sessions(None)
    sessions.show(Screen(io.StringIO(), err))
    return {row.id: dict(row) for row in sessions.sessions}, err.getvalue()


def test_an_id_is_whole_in_a_list_of_80_columns() -> None:
    """Users copy ids from the list."""
    facts = {"status": "passed", "grade": "B", "device": "cuda", "seconds": 143.0, "usd": 0.01}
    name = "2026-11-29-162041-explicit-instantiation"
    out, row = io.StringIO(), listing.SessionLine(id=name, fastest="mine 6.20x", **facts)
    listing.SessionList(sessions=(row,)).show(Screen(out, io.StringIO()))
    _, line = out.getvalue().splitlines()
    assert (name, "6.20x", True) == (line.split()[0], line.split()[-1], len(line) <= 80)


def test_a_list_names_what_is_damaged_copied_or_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole sessions are listed as always."""
    root = tmp_path / "sessions"
    make_session(root, "good", make_finished(), started=NOON)
    make_session(root, "open", make_finished(), status="")
    make_session(root, "newer")
    (root / "newer" / "session.json").write_text('{"format": 9}')
    shutil.copytree(root / "good", root / "z-good")
    rows, remarks = listed(root, monkeypatch)
    assert {"good": "passed", "open": "open", "newer": "damaged", "z-good": "damaged"} == {
        name: row["status"] for name, row in rows.items()
    }
    assert 12.0 == rows["good"]["seconds"]
    assert rows["open"]["seconds"] is None
    assert "newer: " in remarks
    assert "session.json: damaged" in remarks
    assert "z-good: a copy of session good" in remarks
