"""`loop sessions import`: sessions recorded elsewhere, by their raw rows, once."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.store import index
from loop.store.sessions import every
from tests.projects import loop
from tests.store.folders import rewrite

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
    assert [("environment-validation", 180.0)] == [(r.pattern, r.seconds) for row in found for r in row.runs]


def test_a_second_import_changes_nothing(mine: Path, tmp_path: Path) -> None:
    """Nor does one of the same rows in a file that looks otherwise."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sessions").rglob("*.json")}
    mine.write_text(f"# a comment\n{MINE}")
    done = loop("sessions", "import", str(mine))
    assert (0, True) == (done.returncode, "0 sessions imported, 2 were there" in done.stderr), done.stderr
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "sessions").rglob("*.json")}


@pytest.mark.slow
def test_an_import_adds_what_rows_say_more(mine: Path, tmp_path: Path) -> None:
    """The patterns that a session applied; its figures stay."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    mine.write_text(MINE.replace("outcome: a baseline", "outcome: a baseline, applied: [baseline-first]"))
    done = loop("sessions", "import", str(mine))
    assert (0, True) == (done.returncode, "0 sessions imported, 2 were there" in done.stderr), done.stderr
    assert ["baseline-first"] == json.loads(loop("sessions", "show", "first", "--json").stdout)["recorded"]["row"][
        "applied"
    ]


@pytest.mark.slow
def test_other_rows_under_the_same_ids_are_refused(mine: Path, tmp_path: Path) -> None:
    """Before anything is written: a new row beside a changed one does not come in either."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    mine.write_text(MINE.replace("minutes: 30", "minutes: 31") + "  - {id: third, minutes: 1, outcome: x}\n")
    done = loop("sessions", "import", str(mine))
    assert 2 == done.returncode
    assert "with other rows than first has in this file" in done.stderr
    assert "give the history another `source`" in done.stderr
    assert 2 == len(listed())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("minutes: 30", "minutes: -1", ":5:26: sessions.0.minutes: expected"),
        ("minutes: 30", "minutes: soon", ":5:26: sessions.0.minutes: expected"),
        ("id: Second", "id: first", ":6:10: sessions.1.id: expected ids that differ"),
        ("id: Second", "id: ../../etc", ":6:10: sessions.1.id: expected"),
        ("format: 1", "format: 2", ":2:9: format: expected"),
        ("source: my own notes", "source: x\nsteps: {third: []}", "steps.third: expected one of the sessions"),
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


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With what could be imported."""
    done = loop("sessions", "import", "nothing.yaml")
    assert 2 == done.returncode
    assert "nothing.yaml: no such file" in done.stderr
    assert "loop sessions import history" in done.stderr


def test_a_store_that_cannot_be_written_is_said(mine: Path, tmp_path: Path) -> None:
    """No traceback; a file stands where the folder would be, which stops even root."""
    (tmp_path / "sessions").write_text("")
    done = loop("sessions", "import", str(mine))
    assert 2 == done.returncode, done.stderr
    assert "cannot be written" in done.stderr
    assert "LOOP_SESSIONS" in done.stderr


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


@pytest.mark.slow
def test_a_recorded_session_is_found_by_what_its_report_calls_it(mine: Path, tmp_path: Path) -> None:
    """Where two histories use the name, both are offered."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    assert loop("sessions", "show", "SECOND").stdout.startswith("recorded-")
    mine.write_text(MINE.replace("my own notes", "other notes"))
    assert 0 == loop("sessions", "import", str(mine)).returncode
    both = loop("sessions", "show", "first")
    assert (2, True) == (both.returncode, "2 sessions are called so" in both.stderr)


@pytest.mark.slow
def test_a_recorded_session_of_another_format_is_named(mine: Path, tmp_path: Path) -> None:
    """It is listed as damaged, and the others are there."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    path = next((tmp_path / "sessions").glob("recorded-*-first")) / "recorded.json"
    rewrite(path, lambda text: text.replace('"format": 1', '"format": 0'))
    assert ["damaged", "recorded"] == sorted(row["status"] for row in listed())
    done = loop("sessions", "show", path.parent.name)
    assert (1, True) == (done.returncode, "of another format" in done.stderr)
    again = loop("sessions", "import", str(mine))
    assert (1, True) == (again.returncode, "recorded.json: damaged, or of another format" in again.stderr)
