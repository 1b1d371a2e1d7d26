"""`loop sessions import`: sessions recorded elsewhere, by their raw rows, once."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.store import index
from loop.store.sessions import every
from tests.projects import loop

MINE = """
format: 1
source: my own notes
sessions:
  - {id: first, minutes: 30, gpu_usd: 0.5, outcome: a baseline}
  - {id: Second, minutes: 10, outcome: failure}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A history of one's own."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def listed() -> list[dict[str, Any]]:
    """What `loop sessions list` says."""
    found: list[dict[str, Any]] = json.loads(loop("sessions", "list", "--json").stdout)["sessions"]
    return found


def test_the_shipped_history_becomes_sessions_marked_as_recorded(tmp_path: Path) -> None:
    """In their order, with what they cost; nothing that reads sessions of loop's own takes them for such."""
    done = loop("sessions", "import", "history", "--json")
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout)
    assert (9, [], 1) == (len(said["imported"]), said["already"], said["schema_version"])
    rows = listed()
    assert ["recorded"] * 9 == [row["status"] for row in rows]
    assert [(10800.0, 3.6), (1800.0, 26.4)] == [
        (row["seconds"], round(row["usd"], 2)) for row in (rows[0], rows[-1])
    ]
    assert [] == every(tmp_path / "sessions")
    found = index.rows(tmp_path / "sessions")
    assert {None} == {row.started for row in found}


def test_a_second_import_changes_nothing(mine: Path, tmp_path: Path) -> None:
    """Nor does one of the same rows in a file that looks otherwise."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    before = {path: path.read_bytes() for path in (tmp_path / "sessions").rglob("*.json")}
    mine.write_text(f"# a comment\n{MINE}")
    done = loop("sessions", "import", str(mine))
    assert (0, True) == (done.returncode, "0 sessions imported, 2 were there" in done.stderr), done.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "sessions").rglob("*.json")}


@pytest.mark.slow
def test_a_recorded_session_is_shown_by_its_rows() -> None:
    """Found by the beginning of its id as well."""
    assert 0 == loop("sessions", "import", "history").returncode
    name = next(row["id"] for row in listed() if row["id"].endswith("n+7g"))
    done = loop("sessions", "show", name)
    assert 0 == done.returncode, done.stderr
    assert "recorded elsewhere as N+7G, number 9, October 2025" in done.stdout
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 80]
    shown = json.loads(loop("sessions", "show", name, "--json").stdout)
    assert 1.4 == shown["recorded"]["row"]["gpu_usd"]
    several = loop("sessions", "show", "recorded-")
    assert (2, True) == (several.returncode, "9 sessions begin so" in several.stderr)
