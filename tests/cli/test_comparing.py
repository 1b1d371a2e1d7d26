"""`loop sessions compare` on session folders."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.cli.sessions import compare_sessions
from loop.report.screen import Screen
from loop.session import recorded
from tests.projects import make_project
from tests.store.folders import make_session


def test_recorded_sessions_are_not_compared(tmp_path: Path) -> None:
    """What shows them is named; nor is a session compared with itself, or alone."""
    project = make_project(tmp_path / "project")
    make_session(tmp_path / "sessions", "2026-11-21-120000-quick", status="passed")
    recorded.import_sessions("history", project, Screen(is_quiet=True))
    (name,) = [path.name for path in (tmp_path / "sessions").glob("recorded-*+4")]
    with pytest.raises(LoopError, match="recorded elsewhere") as error:
        compare_sessions((name, "last"), project)
    assert f"loop sessions show {name}" == error.value.hint
    for names in (("last", "last"), ("last",)):
        with pytest.raises(LoopError, match="named"):
            compare_sessions(names, project)
