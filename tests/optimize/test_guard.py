"""What judges a candidate is what it was before: the worktree and the builds to beat."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loop.base.errors import WorkFailed
from loop.optimize import guard as guards
from loop.optimize.guard import changed, hashes, put_back
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.steps.context import Context
from tests.projects import make_project
from tests.repository.test_reading import git, put_under_git


@pytest.fixture
def tree(tmp_path: Path) -> Worktree:
    """The incumbent of a campaign."""
    folder = make_project(tmp_path / "target")
    put_under_git(folder, "start")
    return worktree.make(folder, tmp_path / "state" / "tree")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A session with one build to beat."""
    build = tmp_path / "builds" / "abc"
    build.mkdir(parents=True)
    (build / "library.so").write_bytes(b"fast")
    found = SimpleNamespace(library=str(build / "library.so"))
    monkeypatch.setattr(guards, "find_id", lambda name, build_id, cache: found)
    monkeypatch.setattr(guards, "SessionChanges", lambda _: SimpleNamespace(start={"ours": "abc"}, incumbents={}))
    return cast(Context, SimpleNamespace(finished=(), bench=SimpleNamespace(cache=tmp_path / "builds")))


def test_a_worktree_is_put_back(context: Context, tree: Worktree, tmp_path: Path) -> None:
    """The manifest, the reference, a new module, a link in the place of a file; a commit of it all."""
    noted, head = hashes(context, tree), tree.head
    assert not put_back(context, tree, head, noted)
    manifest, reference = tree.target / "target.yaml", tree.target / "functions.py"
    before = manifest.read_bytes(), reference.read_bytes()
    manifest.write_text("tolerance: any")
    reference.unlink()
    reference.symlink_to(tmp_path)
    (tree.target / "torch.py").write_text("a module of one's own")
    git(tree.root, "add", "-A")
    git(tree.root, "commit", "-q", "-m", "mine")
    assert put_back(context, tree, head, noted)
    assert before == (manifest.read_bytes(), reference.read_bytes())
    assert (head, {}) == (tree.head, tree.changed())
    assert not put_back(context, tree, head, noted)


def test_a_build_to_beat_that_was_changed_ends_the_campaign(
    context: Context, tree: Worktree, tmp_path: Path
) -> None:
    """Nothing can be held against it."""
    noted = hashes(context, tree)
    (tmp_path / "builds" / "abc" / "library.so").write_bytes(b"slow")
    with pytest.raises(WorkFailed, match="the builds to beat changed"):
        put_back(context, tree, tree.head, noted)


def test_what_changes_while_it_is_judged_has_a_name(context: Context, tree: Worktree, tmp_path: Path) -> None:
    """A kernel runs as the user does; an edit that was handed over is part of what may not change."""
    (tree.target / "scale.c").write_text("edited")
    noted = hashes(context, tree)
    assert [] == changed(context, tree, noted)
    (tmp_path / "builds" / "abc" / "library.so").write_bytes(b"slow")
    assert [guards.BUILDS] == changed(context, tree, noted)
    (tree.target / "scale.c").write_text("edited again")
    assert [guards.TREE, guards.BUILDS] == changed(context, tree, noted)
    assert [] == changed(context, tree, {})  # Of a session that noted nothing.
