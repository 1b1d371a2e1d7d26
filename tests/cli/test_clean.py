"""`loop clean`: what nobody needs goes, what somebody edited stays, what is not ours is not touched."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.base.locks import locked
from loop.base.places import state_folder
from loop.cli import clean
from loop.model.record import Opened
from loop.report.screen import Screen
from loop.repository import worktree
from loop.repository.git import git
from loop.store.sessions import LOCK
from tests.projects import make_project
from tests.store.folders import make_session

OPENED = Opened(pid=1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A target under git."""
    made = make_project(tmp_path / "project")
    git(made, "init", "--quiet")
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "-m", "all")
    return made


def made_for(project: Path, session: Path, name: str = "s-01234567") -> Path:
    """A worktree that says whose it is."""
    root = state_folder() / "worktrees" / name
    worktree.make_from_checkout(project, root).note_owner(session)
    return root


def run(*names: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and what `--json` prints, by name."""
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    code = clean.clean(names, screen=screen, as_json=True, **options)
    return code, {row["name"]: row for row in json.loads(out.getvalue())["found"]}


def test_one_whose_session_is_gone_is_left_over(project: Path, tmp_path: Path) -> None:
    """It is listed, then removed, with git's note of it."""
    root = made_for(project, tmp_path / "sessions" / "s")
    assert (0, "left over", "") == (run()[0], *(run()[1][root.name][k] for k in ("state", "loses")))
    code, rows = run(yes=True)
    assert (0, True, False) == (code, rows[root.name]["removed"], root.exists())
    assert str(root) not in git(project, "worktree", "list")


def test_one_with_an_edit_stays(project: Path, tmp_path: Path) -> None:
    """Until it is named; new files are edits. Where it is, how much there is, and the command are said."""
    root = made_for(project, tmp_path / "sessions" / "s")
    (root / "scale.c").write_text("int x;\n")
    (root / "new.c").write_text("int y;\n")
    code, rows = run(yes=True)
    assert (1, False) == (code, rows[root.name]["removed"])
    assert rows[root.name]["loses"].startswith("edits: 2 files, ")
    assert (root / "new.c").is_file()
    err = io.StringIO()
    clean.clean(yes=True, screen=Screen(io.StringIO(), err))
    assert "stays: edits: 2 files, " in err.getvalue()
    assert f"in {root}\nlook at them first; to lose them: loop clean {root.name}\n" in err.getvalue()
    assert (0, True) == (run(root.name, yes=True)[0], not root.exists())


def test_one_of_a_session_that_runs(project: Path, tmp_path: Path) -> None:
    """It is in use, also when it is named; one that waits is refused with the command that ends its session."""
    session = make_session(tmp_path / "sessions", "s", OPENED, status="passed")
    root = made_for(project, session.path)
    with locked(session.path / LOCK):
        assert "in use" == run(yes=True)[1][root.name]["state"]
        with pytest.raises(LoopError, match="in use"):
            run(root.name, yes=True)
    make_session(tmp_path / "sessions", "t", OPENED, status="paused")
    waits = made_for(project, tmp_path / "sessions" / "t", "t-01234567")
    with pytest.raises(LoopError, match="a session waits") as told:
        run(waits.name, yes=True)
    assert "--resume t --decline" in (told.value.hint or "")
    assert root.exists()


def test_bisections(project: Path) -> None:
    """One of a process that runs is in use; one of a process that is gone is left over."""
    for pid in (os.getpid(), 2**22 + 1):
        worktree.make_from_checkout(project, state_folder() / "worktrees" / f"bisect-{pid}-0")
    _, rows = run(yes=True)
    assert ["in use", "left over"] == [rows[f"bisect-{pid}-0"]["state"] for pid in (os.getpid(), 2**22 + 1)]
    assert [f"bisect-{os.getpid()}-0"] == os.listdir(state_folder() / "worktrees")


def test_without_a_yes_nothing_goes(project: Path, tmp_path: Path) -> None:
    """What would go is listed, with the command; where nobody can answer, that is all."""
    root = made_for(project, tmp_path / "sessions" / "s")
    out, err = io.StringIO(), io.StringIO()
    assert 0 == clean.clean(screen=Screen(out, err))
    assert root.name in out.getvalue()
    assert "nothing was removed; to do it: add --yes\n" == err.getvalue()
    assert root.is_dir()


def test_the_cache(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds is said with its size, and goes when that is asked for; worktrees stay."""
    monkeypatch.setenv("LOOP_CACHE", str(tmp_path / "cache"))
    root = made_for(project, tmp_path / "sessions" / "s")
    build = tmp_path / "cache" / "builds" / "new" / "kernel.so"
    build.parent.mkdir(parents=True)
    build.write_bytes(b"x" * 1_000_000)
    assert ["compiled kernels: 1.0 MB"] == [row["why"] for row in run(cache=True)[1].values()]
    assert run(cache=True, yes=True)[1]["builds"]["removed"]
    assert ([], True) == (os.listdir(tmp_path / "cache"), root.exists())
