"""What a session says of paths is not believed: a session may come with somebody else's repository."""

from pathlib import Path

import pytest

from loop.base.errors import Untrusted, UsageError
from loop.base.places import WORKTREES, find_project, state_folder
from loop.driving import tools
from loop.driving.tools import WaitingChange, change_brief, change_edit, waiting_session
from loop.library import trust
from loop.model.change import Brief
from loop.optimize.edits import brief_path
from loop.session.run import worktree_path
from loop.store.sessions import CHANGES, SessionFolder
from tests.makers import make_record, make_session_head
from tests.projects import make_project

HEAD = make_session_head()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's that no session may show."""
    path = tmp_path / "home" / "id_rsa"
    path.parent.mkdir()
    path.write_text("secret")
    return path


def asked(tmp_path: Path, secret: Path, file: str) -> WaitingChange:
    """A session whose journal names a folder of the user's and a file, and whose worktree holds links there."""
    top = tmp_path / "worktree"
    top.mkdir()
    (top / "scale.c").write_text("ours")
    (top / "link.c").symlink_to(secret)
    (top / "home").symlink_to(secret.parent)
    words = dict.fromkeys(("variant", "title", "workload", "rule", "resume", "decline"), "x")
    brief = Brief(number=1, profile=None, folder=str(secret.parent), files=(file,), timed=(), **words)
    folder = SessionFolder(tmp_path / "session")
    (folder.path / CHANGES).mkdir(parents=True)
    brief_path(folder.path / CHANGES, brief).write_text("make it faster")
    return WaitingChange(folder, brief, top.resolve(), frozenset({"scale.c"}))


@pytest.mark.parametrize("file", ["id_rsa", "link.c", "home/id_rsa", "../home/id_rsa", "SECRET"])
def test_a_brief_shows_files_of_the_worktree_only(
    tmp_path: Path, secret: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the folder that it names, nothing absolute, nothing above, and nothing through a link."""
    name = file.replace("SECRET", str(secret))
    monkeypatch.setattr(tools, "waiting_session", lambda *_: found)
    found = asked(tmp_path, secret, name)
    if file == "id_rsa":
        answer = change_brief("last", None)
        assert "make it faster" == answer["page"]
        assert "secret" not in str(answer).replace(str(secret.parent), "")
    else:
        with pytest.raises(UsageError, match="no plain file"):
            change_brief("last", None)
        with pytest.raises(UsageError, match="no plain file"):
            change_edit(name, "mine", "last", None)
    assert "secret" == secret.read_text()


def test_a_session_of_a_target_that_nobody_allowed_is_not_read(tmp_path: Path) -> None:
    """Trust comes first; afterwards it is told what the session waits for."""
    here = find_project(make_project(tmp_path / "theirs"), tmp_path)
    folder = SessionFolder(here.sessions / HEAD.id)
    folder.path.mkdir(parents=True)
    folder.write_head(HEAD)
    folder.write_record(make_record(HEAD))
    (folder.path / "journal.jsonl").touch()
    with pytest.raises(Untrusted):
        waiting_session("last", here.target)
    trust.grant(here, trust.definition_hash(here))
    with pytest.raises(UsageError, match="waits for no change"):
        waiting_session("last", here.target)


def test_each_session_has_a_worktree_of_its_own_in_the_folder_of_worktrees(tmp_path: Path) -> None:
    """Whatever it calls itself, and where two of one name began in the same second."""
    folder = SessionFolder(tmp_path / HEAD.id)
    head = HEAD.model_copy(update={"id": "../../home/me/project"})
    assert state_folder() / WORKTREES == worktree_path(head, folder).parent
    one, other = (SessionFolder(tmp_path / name / HEAD.id) for name in ("one", "other"))
    assert worktree_path(HEAD, one) == worktree_path(HEAD, one)
    assert worktree_path(HEAD, one) != worktree_path(HEAD, other)
