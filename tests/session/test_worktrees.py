"""Each session edits in a worktree of its own."""

from pathlib import Path

from loop.base.places import WORKTREES, state_folder
from loop.session.run import worktree_path
from loop.store.sessions import SessionFolder
from tests.makers import make_session_head

HEAD = make_session_head()


def test_each_session_has_a_worktree_of_its_own_in_the_folder_of_worktrees(tmp_path: Path) -> None:
    """Whatever it calls itself, and where two of one name began in the same second."""
    folder = SessionFolder(tmp_path / HEAD.id)
    head = HEAD.model_copy(update={"id": "../../home/me/project"})
    assert state_folder() / WORKTREES == worktree_path(head, folder).parent
    one, other = (SessionFolder(tmp_path / name / HEAD.id) for name in ("one", "other"))
    assert worktree_path(HEAD, one) == worktree_path(HEAD, one)
    assert worktree_path(HEAD, one) != worktree_path(HEAD, other)
