"""What sessions teach, as a user sees it: predictions, statistics, the next plan, and lists from the index."""

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
    made = make_project(tmp_path / "project")
    add_commands(made, "try", ["sleep 0.2", "true"])
    assert 0 == loop("trust", str(made)).returncode
    return made


def told(*words: str, code: int = 0) -> dict[str, Any]:
    """What a command prints with `--json`."""
    done = loop(*words, "--json")
    assert code == done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema_version"] in (1, 2, 3, 4)
    return found


def run(folder: Path, count: int = 1) -> None:
    for _ in range(count):
        done = loop("run", "session", "try", "--target", str(folder))
        assert 0 == done.returncode, done.stderr


@pytest.mark.slow
def test_sessions_make_predictions_and_statistics(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six seconds at first, more on a busy machine; after three sessions less; said in the report."""
    where = ("--target", str(folder))
    first = told("run", "session", "try", "--dry-run", *where)
    assert 6.0 <= first["predicted"]["seconds"] + 1e-6
    assert "prior" == first["patterns"][0]["evidence"]
    run(folder, 3)
    monkeypatch.setenv("LOOP_ATTENDED", "1")
    later = told("run", "session", "try", "--dry-run", *where)
    known = later["predicted"]
    assert known["low_s"] < known["seconds"] < min(known["high_s"], first["predicted"]["seconds"] / 2)
    assert known["usd"] > 0
    assert "measured" == later["patterns"][0]["evidence"]
    assert {"s1", "s2"} == set(later["patterns"][0]["step_s"])
    last = sorted((tmp_path / "sessions").iterdir())[-1]
    assert json.loads((last / "session.json").read_text())["predicted"]["seconds"] < 6.0
    text = (last / "report.md").read_text()
    assert "## Predicted and actual" in text
    assert "| The session" in text
    shown = told("patterns", "show", "try", *where)["statistics"]
    assert ("applied", 3, 0, 0) == tuple(shown[name] for name in ("status", "passed", "found", "broken"))
    assert 1.0 == shown["success"]
    words = loop("patterns", "show", "try", *where).stdout
    assert "run 3 times: 3 passed, 0 found something wrong, 0 broke" in " ".join(words.split())


@pytest.mark.slow
def test_the_next_plan(folder: Path) -> None:
    """With objective, chain, time, cost, benefit and why; the command is whole. Nothing runs."""
    found = told("plan", "next", "--target", str(folder))
    assert ("baseline", ["no session has measured speed"]) == (found["plan"], found["why"])
    assert {"objective", "chain", "expected", "predicted", "benefit", "why", "command"} <= set(found)
    assert found["predicted"]["seconds"] > 0
    assert f"loop run session baseline --target {folder}" == found["command"]
    assert not (folder.parent / "sessions").exists()
    done = loop("plan", "next", "--target", str(folder))
    assert "why: no session has measured speed" in done.stdout
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 80 and "loop run session" not in line]


def listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """Rows by id, and what is said below the table."""
    monkeypatch.setenv("LOOP_SESSIONS", str(root))
    err, sessions = io.StringIO(), listing.list_sessions(None)
    sessions.show(Screen(io.StringIO(), err))
    return {row.id: dict(row) for row in sessions.sessions}, err.getvalue()


def test_an_id_is_whole_in_a_list_of_80_columns() -> None:
    """It is copied from there; device and cost give way, and have room beside short ids."""
    facts = {"status": "passed", "grade": "B", "device": "cuda", "seconds": 143.0, "usd": 0.01}
    for name, last in (
        ("2026-11-29-162041-explicit-instantiation", "6.20x"),
        ("2026-11-29-162041-quick", "0.0100"),
    ):
        out, row = io.StringIO(), listing.SessionLine(id=name, fastest="mine 6.20x", **facts)
        listing.SessionList(sessions=(row,)).show(Screen(out, io.StringIO()))
        _, line = out.getvalue().splitlines()
        assert (name, last, True) == (line.split()[0], line.split()[-1], len(line) <= 80)


def test_a_list_names_what_is_damaged_copied_or_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are listed as ever."""
    root = tmp_path / "sessions"
    make_session(root, "good", make_finished(), started=NOON)
    make_session(root, "open", make_finished(), status="")
    make_session(root, "newer")
    (root / "newer" / "session.json").write_text('{"format": 9}')
    shutil.copytree(root / "good", root / "z-good")
    rows, said = listed(root, monkeypatch)
    assert {"good": "passed", "open": "open", "newer": "damaged", "z-good": "damaged"} == {
        name: row["status"] for name, row in rows.items()
    }
    assert 12.0 == rows["good"]["seconds"]
    assert rows["open"]["seconds"] is None
    assert "newer: " in said
    assert "session.json: damaged" in said
    assert "z-good: a copy of session good" in said
