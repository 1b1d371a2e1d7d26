"""What an earlier version wrote still opens, resumes, renders and compares: two sessions and a target of 0.1.0.

`stored/` was written on 2026-11-23, before the source was cut into rooms by feature: a session of plan `quick`,
and one of three commands that was killed in its second.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.projects import loop

pytestmark = pytest.mark.slow

STORED = Path(__file__).with_name("stored")
WHOLE, KILLED = "2026-11-23-012218-quick", "2026-11-23-012300-try"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, trusted, with its sessions beside it."""
    shutil.copytree(STORED / "project", tmp_path / "project")
    shutil.copytree(STORED / "sessions", tmp_path / "sessions", dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "project")
    assert 0 == loop("trust", ".").returncode
    return tmp_path / "project"


def test_they_are_listed_and_shown(stored: Path) -> None:
    """With their status, grade and fastest variant; and nothing is said to be damaged."""
    listed = loop("sessions", "list", "--json")
    rows = {row["id"]: row for row in json.loads(listed.stdout)["sessions"]}
    assert {WHOLE: "passed", KILLED: "open"} == {name: row["status"] for name, row in rows.items()}
    assert "" == listed.stderr
    assert "baseline-first/verify" in loop("sessions", "show", WHOLE).stdout


def test_the_report_is_rendered_again(stored: Path) -> None:
    """From the record and its samples, with the same verdict."""
    shown = loop("report", WHOLE)
    assert (0, "") == (shown.returncode, shown.stderr)
    headline = "assed: `ours` is faster than functions:scale on 2 of 2 workloads"
    assert headline in (STORED / "sessions" / WHOLE / "report.md").read_text()
    assert headline in shown.stdout
    assert json.loads(loop("report", WHOLE, "--format", "json").stdout)["id"] == WHOLE


def test_a_killed_one_goes_on_and_stands_beside_the_other(stored: Path) -> None:
    """The finished step is not run again; both are compared, and both count in costs and statistics."""
    (stored / "go").touch()
    resumed = loop("run", "session", "--resume", KILLED)
    assert 0 == resumed.returncode, resumed.stderr
    assert "passed   s1 (0.07 s of 5 s, as before)" in resumed.stderr
    assert "all 3 steps that ran passed" in resumed.stderr
    assert "faster on 2" in loop("sessions", "compare", WHOLE, KILLED).stdout
    assert WHOLE in loop("cost", "show").stdout
    assert 0 == loop("patterns", "stats").returncode
