"""`loop sessions import`: sessions recorded elsewhere, by their raw rows, once."""

import json
from pathlib import Path

import pytest

from loop.store import index
from loop.store.sessions import list_sessions
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


def test_the_shipped_history_becomes_sessions_marked_as_recorded(tmp_path: Path) -> None:
    """In their order, with what they cost; nothing that reads sessions of loop's own takes them for such."""
    done = loop("sessions", "import", "history", "--json")
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout)
    assert (9, [], 1) == (len(said["imported"]), said["already"], said["schema_version"])
    rows = json.loads(loop("sessions", "list", "--json").stdout)["sessions"]
    assert ["recorded"] * 9 == [row["status"] for row in rows]
    assert [(10800.0, 3.6), (1800.0, 26.4)] == [
        (row["seconds"], round(row["usd"], 2)) for row in (rows[0], rows[-1])
    ]
    assert [] == list_sessions(tmp_path / "sessions")
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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("minutes: 30", "minutes: -1", ":5:26: sessions.0.minutes: expected"),
        ("minutes: 30", "minutes: soon", ":5:26: sessions.0.minutes: expected"),
        ("id: Second", "id: first", "expected ids that differ"),
        ("id: Second", "id: ../../etc", ":6:10: sessions.1.id: expected"),
        ("format: 1", "format: 2", ":2:9: format: expected"),
        ("sessions:", "sessions: []\nother:", "expected"),
    ],
)
def test_a_bad_history_is_refused_with_its_place(
    mine: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    """File, line and column; and nothing comes in."""
    mine.write_text(MINE.replace(old, new))
    done = loop("sessions", "import", str(mine))
    assert 2 == done.returncode, done.stderr
    assert said in done.stderr
    assert "mine.yaml:" in done.stderr
    assert not (tmp_path / "sessions").exists()
