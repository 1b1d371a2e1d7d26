"""What is said of sessions that can go on: the command, whole, so that it can be pasted anywhere."""

import io
from pathlib import Path

import pytest

from loop.cli import sessions as browse
from loop.cli import status as standing
from loop.report.screen import Screen
from loop.store import sessions
from tests.makers import NOON, make_record, make_session_head
from tests.projects import make_project


def make_session(root: Path, target_folder: str, status: str | None) -> str:
    """A session of a target that ended so, or has not ended; its id."""
    folder = sessions.create_session(root, "baseline", NOON)
    head = make_session_head(id=folder.id, target_folder=target_folder)
    folder.write_head(head)
    (folder.path / "journal.jsonl").touch()
    if status is not None:
        folder.write_record(make_record(head, status=status))
    return folder.id


def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str | None, folder: str) -> tuple[str, str, str]:
    """Id of a session, what `loop status` says, and what `loop sessions show` says of it."""
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path / "sessions"))
    name = make_session(tmp_path / "sessions", folder, status)
    target = make_project(tmp_path / "project")
    listed, shown = io.StringIO(), io.StringIO()
    standing.gather_status(target).show(Screen(listed, io.StringIO()))
    browse.show_session(name, target).show(Screen(shown, io.StringIO()))
    return name, listed.getvalue(), shown.getvalue()


@pytest.mark.parametrize("status", [None, "paused", "aborted"])
@pytest.mark.parametrize(("folder", "words"), [("/a b/kernel", " --target '/a b/kernel'"), ("bundled", "")])
def test_the_command_to_go_on_is_whole(
    status: str | None, folder: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the target's folder, quoted where it has to be."""
    name, listed, shown = said(monkeypatch, tmp_path, status, folder)
    command = f"loop run session --resume {name}{words}"
    assert f"{command}\n" in listed
    assert f"go on with: {command}\n" in shown
