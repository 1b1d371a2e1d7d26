"""`loop sessions compare` on session folders."""

import datetime
import io
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.base.screen import Screen
from loop.cli import comparing as comparison
from loop.model.record import Revision
from loop.session import recorded
from loop.store import sessions
from loop.store.journal import Journal
from tests.makers import (
    NOON,
    make_finished,
    make_machine,
    make_measured,
    make_measurement,
    make_record,
    make_session_head,
    make_speed,
)
from tests.projects import make_project
from tests.repository.test_reading import git


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A target under git with two commits, and no session."""
    folder = make_project(tmp_path / "project")
    git(folder, "init", "-q", "-b", "main")
    for text in ("first", "second"):
        (folder / "note.txt").write_text(f"{text}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"{text} version")
    return folder


def add(project: Path, day: int = 0, ratio: float = 1.5, commit: str = "HEAD", **machine: Any) -> str:
    """A session that measured `ours` on one workload; its id."""
    began = NOON + datetime.timedelta(days=day)
    folder = sessions.create(project.parent / "sessions", "quick", began)
    revision = Revision(commit=git(project, "rev-parse", commit).strip())
    names = {"id": folder.id, "started": began, "target": "scaling", "variants": ("ours",), "baseline": "lib"}
    head = make_session_head(**names, revision=revision, machine=make_machine(**machine))
    folder.write_head(head)
    measured = make_measured(make_measurement("w", ratio, variant="ours"))
    journal = Journal(folder.path / "journal.jsonl")
    journal.append(make_finished("measure", output=measured))
    journal.close()
    folder.write_record(make_record(head, [make_speed("w", "faster", ratio, variant="ours")]))
    return folder.id


def told(project: Path, *names: str, **ways: bool) -> str:
    """What `compare` says."""
    out = io.StringIO()
    ways = {"as_json": False, **ways}
    comparison.compare_sessions(names, project, Screen(out, io.StringIO()), **ways)
    return out.getvalue()


def test_two_sessions_of_one_day(project: Path) -> None:
    """Named from the end; ratios and commits."""
    add(project, ratio=1.5, commit="HEAD~1")
    add(project, ratio=1.8)
    text = told(project, "last~1", "last")
    for words in ("1.20x higher", "commit: A"):
        assert words in text
    assert "Not compared" not in text
    assert [] == [line for line in text.splitlines() if len(line) > 80]


def test_recorded_sessions_are_not_compared(project: Path) -> None:
    """What shows them is named."""
    add(project)
    recorded.import_sessions("history", project, Screen(io.StringIO(), io.StringIO()), as_json=False)
    (name,) = [path.name for path in (project.parent / "sessions").glob("recorded-*+4")]
    with pytest.raises(LoopError, match="recorded elsewhere") as error:
        told(project, name, "last")
    assert f"loop sessions show {name}" == error.value.hint
