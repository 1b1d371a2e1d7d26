"""What judges a candidate is what it was before: the worktree, builds to beat, loop's own programs."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loop.base.errors import WorkFailed
from loop.optimize import guard as guards
from loop.optimize.guard import TreeGuard, changed, hashes
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


def test_what_judges_is_put_back_and_named(context: Context, tree: Worktree, tmp_path: Path) -> None:
    """The manifest, the reference, the build to beat; a link in the place of a file; a commit of it all."""
    guard, library = TreeGuard.of(context, tree), tmp_path / "builds" / "abc" / "library.so"
    assert [] == guard.put_back()
    manifest, reference = tree.target / "target.yaml", tree.target / "functions.py"
    before = manifest.read_bytes(), reference.read_bytes()
    manifest.write_text("tolerance: any")
    reference.unlink()
    reference.symlink_to(library)
    library.write_bytes(b"slow")
    (tree.target / "torch.py").write_text("a module of one's own")
    git(tree.root, "add", "-A")
    git(tree.root, "commit", "-q", "-m", "mine")
    assert {"functions.py", "library.so", "target.yaml", "torch.py", "a commit in the worktree"} == {
        *guard.put_back()
    }
    assert before == (manifest.read_bytes(), reference.read_bytes())
    assert b"fast" == library.read_bytes()
    assert (guard.head, {}) == (tree.head, tree.changed())
    assert [] == guard.put_back()


def test_bytecode_that_git_ignores_is_taken_away(context: Context, tree: Worktree) -> None:
    """Python would run it in the place of the reference."""
    (tree.target / ".gitignore").write_text("__pycache__\n")
    tree.commit("ignored")
    guard, planted = TreeGuard.of(context, tree), tree.target / "__pycache__" / "functions.cpython-312.pyc"
    noted = hashes(context, tree)
    planted.parent.mkdir()
    planted.write_bytes(b"scale = wrong")
    assert [guards.TREE] == changed(context, tree, noted)
    assert ([planted.name], False) == (guard.put_back(), planted.exists())


def test_what_lies_behind_a_link_is_the_users(context: Context, tree: Worktree, tmp_path: Path) -> None:
    """A proposer may put a link to a folder of the user's in the place of one of the worktree's, or of a build."""
    guard, users, build = TreeGuard.of(context, tree), tmp_path / "users", tmp_path / "builds" / "abc"
    users.mkdir()
    (users / "library.so").write_bytes(b"the user's own")
    (users / "notes").write_text("not in git")
    (build / "library.so").unlink()
    build.rmdir()
    build.symlink_to(users)
    assert {"library.so", "notes"} >= {*guard.put_back()}
    assert (b"the user's own", "not in git") == (
        (users / "library.so").read_bytes(),
        (users / "notes").read_text(),
    )
    assert (b"fast", False) == ((build / "library.so").read_bytes(), build.is_symlink())


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of what stands for `loop`."""
    made = tmp_path / "loop" / "judge.py"
    made.parent.mkdir()
    made.write_text("right = check()")
    monkeypatch.setattr(guards.loop, "__file__", str(made.with_name("__init__.py")))
    return made


def test_what_changes_loop_itself_ends_the_campaign(context: Context, tree: Worktree, program: Path) -> None:
    """Also where the file says that it is as old as before."""
    guard, old = TreeGuard.of(context, tree), program.stat()
    program.write_text("right = True   ")
    os.utime(program, ns=(old.st_atime_ns, old.st_mtime_ns))
    with pytest.raises(WorkFailed, match=r"judge\.py was changed while a candidate was made"):
        guard.put_back()


def test_a_link_to_loop_itself_costs_the_candidate_alone(
    context: Context, tree: Worktree, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file holds is what it was; unless `loop` loaded something while it may have been another."""
    guard = TreeGuard.of(context, tree)
    (tmp_path / "mine.py").hardlink_to(program)
    assert ["judge.py"] == guard.put_back()
    assert [] == TreeGuard.of(context, tree).put_back()
    monkeypatch.setitem(sys.modules, "loop.made_up", guards.loop)
    with pytest.raises(WorkFailed, match=r"judge\.py was changed while a candidate was made"):
        guard.put_back()


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
