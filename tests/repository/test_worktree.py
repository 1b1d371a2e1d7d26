"""Worktrees of loop's own, what is sent of a checkout: nothing of the user's is touched."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loop import __version__
from loop.base.errors import PRINTED_REMARKS, LoopError
from loop.optimize.session_changes import session_worktree
from loop.repository.carried import fetch_session_branches, git_config_to_send, list_files_to_send
from loop.repository.worktree import (
    UNCOMMITTED_MESSAGE,
    copy_worktree,
    find_worktree,
    make_at_commit,
    make_from_checkout,
)
from loop.steps.context import Context, Workshop
from tests.projects import make_project
from tests.repository.test_reading import git, put_under_git


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target below the top of a repository, committed, with a hook that would leave a trace."""
    top = tmp_path / "repository"
    folder = top / "kernels" / "mine"
    folder.mkdir(parents=True)
    (folder / "kernel.cpp").write_text("one\ntwo\n")
    (top / "shared.h").write_text("shared\n")
    (top / ".gitignore").write_text("*.o\nmade.h\n")
    put_under_git(top)
    for name in ("post-checkout", "pre-commit", "post-commit"):
        hook = top / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    return folder


def state(top: Path) -> tuple[str, ...]:
    """Everything of a checkout that must not change."""
    asked = (["status", "--porcelain"], ["stash", "list"], ["branch"], ["rev-parse", "HEAD"], ["diff"])
    return tuple(git(top, *words) for words in asked)


def test_it_holds_the_checkout_as_it_stands(target: Path, tmp_path: Path) -> None:
    """Uncommitted changes, new files and files outside the target come along; what git ignores does not."""
    (target / "kernel.cpp").write_text("one\nTWO\n")
    (target / "new.cpp").write_text("new\n")
    (target / "object.o").write_text("ignored\n")
    (target.parents[1] / "shared.h").write_text("edited\n")
    before = state(target.parents[1])
    made = make_from_checkout(target, tmp_path / "work" / "tree")
    assert "one\nTWO\n" == (made.target / "kernel.cpp").read_text()
    assert "new\n" == (made.target / "new.cpp").read_text()
    assert not (made.target / "object.o").exists()
    assert "" == made.describe_ignored_sources()
    (target / "made.h").touch()
    assert "no commit has made.h, which git ignores" == made.describe_ignored_sources()
    assert "edited\n" == (made.root / "shared.h").read_text()
    assert {} == made.changed_lines()
    assert UNCOMMITTED_MESSAGE == git(made.root, "log", "-1", "--format=%s")
    assert before == state(target.parents[1])
    assert not (tmp_path / "ran").exists()


def test_edits_are_counted_and_become_a_patch(target: Path, tmp_path: Path) -> None:
    """A changed, a new and a removed file; the patch applies to the user's checkout."""
    made = make_from_checkout(target, tmp_path / "tree")
    (made.target / "kernel.cpp").write_text("one\n2\nthree\n")
    (made.target / "more.h").write_bytes(b"\xff\xfe not UTF-8\n")
    (made.root / "shared.h").unlink()
    assert {"kernel.cpp": 3, "more.h": 1, "../../shared.h": 1} == made.changed_lines()
    (tmp_path / "edit.patch").write_bytes(made.patch())
    git(target.parents[1], "apply", "--check", str(tmp_path / "edit.patch"))


def test_a_kept_edit_stands_on_a_branch_of_its_own(target: Path, tmp_path: Path) -> None:
    """The user's branch does not move, the worktree may go, the branch stays."""
    made = make_from_checkout(target, tmp_path / "tree")
    (made.target / "kernel.cpp").write_text("better\n")
    kept = made.commit("better")
    made.point_branch("loop/one")
    made.remove()
    assert kept == git(target, "rev-parse", "loop/one")
    assert "better" == git(target, "show", "loop/one:kernels/mine/kernel.cpp")
    assert "one\ntwo\n" == (target / "kernel.cpp").read_text()
    assert "main" == git(target, "rev-parse", "--abbrev-ref", "HEAD")
    assert not (tmp_path / "tree").exists()
    assert 1 == len(git(target, "worktree", "list").splitlines())
    assert not (tmp_path / "ran").exists()


def test_a_worktree_is_found_again(target: Path, tmp_path: Path) -> None:
    """With its edits; one whose folder has gone is not found, and can be made again."""
    made = make_from_checkout(target, tmp_path / "tree")
    (made.target / "kernel.cpp").write_text("edited\n")
    again = find_worktree(target, tmp_path / "tree")
    assert made == again
    assert again is not None
    assert {"kernel.cpp": 3} == again.changed_lines()
    made.remove()
    assert find_worktree(target, tmp_path / "tree") is None
    assert {} == make_from_checkout(target, tmp_path / "tree").changed_lines()


def test_a_target_outside_git_is_copied(tmp_path: Path) -> None:
    """Without its sessions, into a repository of its own."""
    folder = tmp_path / "mine"
    (folder / "sessions").mkdir(parents=True)
    (folder / "sessions" / "x").write_text("x")
    (folder / "kernel.cpp").write_text("one\n")
    made = make_from_checkout(folder, tmp_path / "tree")
    assert made.repository is None
    assert not (made.target / "sessions").exists()
    (made.target / "kernel.cpp").write_text("two\n")
    assert {"kernel.cpp": 2} == made.changed_lines()
    assert made == find_worktree(folder, tmp_path / "tree")
    made.revert()
    assert "one\n" == (made.target / "kernel.cpp").read_text()
    assert not (folder / ".git").exists()


def test_a_folder_that_became_another_repositorys_is_not_reset(target: Path, tmp_path: Path) -> None:
    """Whatever became of the worktree, nothing else is thrown away."""
    made = make_from_checkout(target, tmp_path / "repository" / "tree")
    (made.root / ".git").unlink()
    with pytest.raises(LoopError, match=r"no worktree of loop's"):
        made.revert()


def test_what_a_kill_left_of_ours_is_forgotten(target: Path, tmp_path: Path) -> None:
    """Also where git was killed while it made the folder, which leaves a lock; what is the user's stays."""
    ours = tmp_path / "trees"
    for name in ("killed", "locked", "there"):
        make_at_commit(target, ours / name, "HEAD")
    git(target, "worktree", "lock", str(ours / "locked"))
    git(target, "worktree", "add", "-q", "--detach", str(tmp_path / "away"))
    for gone in (ours / "killed", ours / "locked", tmp_path / "away"):
        shutil.rmtree(gone)
    made = make_at_commit(target, ours / "new", "HEAD")
    listed = [line.split()[0] for line in git(target, "worktree", "list").splitlines()[1:]]
    assert {str(ours / "there"), str(ours / "new"), str(tmp_path / "away")} == set(listed)
    made.remove()
    assert str(ours / "new") not in git(target, "worktree", "list")


def test_what_was_never_whole_is_made_again(target: Path, tmp_path: Path) -> None:
    """It has no note of its session: nobody was asked for an edit in it. One that somebody was asked for stays."""
    context = cast(Context, SimpleNamespace(task=SimpleNamespace(folder=target)))
    shop = Workshop(tmp_path / "tree", tmp_path / "session" / "changes", "loop run session --resume last")
    shop.briefs_folder.mkdir(parents=True)
    half = make_from_checkout(target, shop.worktree)
    (half.target / "kernel.cpp").unlink()
    assert session_worktree(context, shop) is None
    assert not shop.worktree.exists()
    whole = make_from_checkout(target, shop.worktree)
    whole.note_owner(shop.briefs_folder.parent)
    assert whole == session_worktree(context, shop)
    old = make_from_checkout(target, tmp_path / "old")
    (shop.briefs_folder / "1-brief.json").write_text(f'{{"folder": "{old.root}"}}')
    assert old == session_worktree(context, replace(shop, worktree=old.root))


@pytest.mark.parametrize("known", [True, False])
def test_a_commit_is_the_users_and_says_what_made_it(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Author and committer are whom git knows; loop itself, with a remark, where it knows nobody."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    PRINTED_REMARKS.clear()
    project = make_project(tmp_path / "mine")
    put_under_git(project)
    if known:
        git(project, "config", "user.name", "Ada")
        git(project, "config", "user.email", "ada@example.org")
    tree = make_from_checkout(project, tmp_path / "tree")
    tree.commit("faster", "s-1")
    said = git(project, "log", "-1", "--format=%an <%ae> %cn %(trailers:key=Made-with,valueonly)", tree.head)
    who = "Ada <ada@example.org> Ada" if known else "loop <loop@localhost> loop"
    assert f"{who} loop {__version__} session s-1" == said.strip()
    copy = copy_worktree(tree, tmp_path / "copy")  # Only loop reads its commits: whoever made them.
    assert "loop <loop@localhost>" == git(copy.root, "log", "-1", "--format=%an <%ae>").strip()
    assert known == ("git does not know your name" not in capsys.readouterr().err)


def test_a_branch_that_leads_elsewhere_is_left_alone(target: Path, tmp_path: Path) -> None:
    """The next one has a number; one that stands on the way is moved on."""
    git(target, "branch", "loop/one", git(target, "commit-tree", "HEAD^{tree}", "-m", "mine"))
    made = make_from_checkout(target, tmp_path / "tree")
    (made.target / "kernel.cpp").write_text("better\n")
    made.commit("better")
    assert "loop/one-2" == made.point_branch("loop/one")
    (made.target / "kernel.cpp").write_text("best\n")
    made.commit("best")
    assert "loop/one-2" == made.point_branch("loop/one")
    assert made.head == git(target, "rev-parse", "loop/one-2")


def test_a_lock_of_a_killed_git_is_taken_away(target: Path, tmp_path: Path) -> None:
    """It would keep every later git out."""
    made = make_from_checkout(target, tmp_path / "tree")
    lock = Path(git(made.root, "rev-parse", "--absolute-git-dir")) / "index.lock"
    lock.touch()
    assert find_worktree(target, made.root) is not None
    assert {} == made.changed_lines()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit, an edit, a new file, one that git ignores, and one that was removed."""
    folder = tmp_path / "checkout"
    (folder / "in").mkdir(parents=True)
    for name in ("in/a b.c", "gone.c"):
        (folder / name).write_text("1")
    (folder / ".gitignore").write_text("*.o\n")
    put_under_git(folder)
    for name in ("new.c", "built.o"):
        (folder / name).write_text("2")
    (folder / "gone.c").unlink()
    return folder


def test_the_work_tree_goes_with_its_history(checkout: Path) -> None:
    """As it is now, without what git ignores."""
    names = set(list_files_to_send(checkout))
    assert {".gitignore", "in/a b.c", "new.c"} == {name for name in names if not name.startswith(".git/")}
    assert {".git/HEAD", ".git/index"} <= names


def test_nothing_secret_and_no_program_goes_with_it(checkout: Path) -> None:
    """Hooks, remotes, headers and helpers stay; how files are kept goes."""
    git(checkout, "config", "remote.origin.url", "https://me:token@example.com/a")
    git(checkout, "config", "http.https://example.com/.extraheader", "Authorization: token")
    git(checkout, "config", "credential.helper", "store --file token")
    git(checkout, "config", "core.autocrlf", "input")
    git(checkout, "config", 'filter.a "b.clean', 'tr "a" \\b')
    (checkout / ".git" / "hooks" / "pre-commit").write_text("token")
    (checkout / ".git" / "config.worktree").write_text("token")
    names, text = list_files_to_send(checkout), git_config_to_send(checkout)
    assert not [name for name in names if name.startswith((".git/config", ".git/hooks"))]
    assert "token" not in text
    (checkout / ".git" / "config").write_text(text)
    assert ("input", 'tr "a" \\b') == (
        git(checkout, "config", "core.autocrlf"),
        git(checkout, "config", 'filter.a "b.clean'),
    )


def test_files_of_submodules_go_too(checkout: Path, tmp_path: Path) -> None:
    """As files, without a history of their own; so do those of a repository that git was not told of."""
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(checkout), "below")
    git(checkout, "init", "-q", "other")
    (checkout / "other" / "mine.c").write_text("1")
    names = list_files_to_send(checkout)
    assert {"below/in/a b.c", "other/mine.c"} <= {*names}
    assert not [
        name for name in names if ".git/modules" in name or name.startswith(("below/.git/", "other/.git/"))
    ]


def bundle(checkout: Path, branch: str) -> Path:
    """What another machine made of the checkout: a commit on a branch."""
    other = checkout.parent / "other"
    git(checkout.parent, "clone", "-q", str(checkout), "other")
    git(other, "switch", "-qc", branch)
    (other / "new.c").write_text(branch)
    git(other, "add", ".")
    git(other, "commit", "-qm", "kept")
    git(other, "bundle", "create", "--quiet", "../made", branch)
    return checkout.parent / "made"


def test_branches_of_sessions_come_back(checkout: Path) -> None:
    """And nothing else: the checkout, its own branches and its index stay as they are."""
    before = git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main")
    assert ("loop/session",) == fetch_session_branches(checkout, bundle(checkout, "loop/session"))
    assert "loop/session" == git(checkout, "show", "loop/session:new.c")
    assert before == (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main"))


def test_a_branch_of_the_users_is_never_taken(checkout: Path) -> None:
    """Whatever another machine puts into its bundle."""
    before = git(checkout, "for-each-ref")
    assert () == fetch_session_branches(checkout, bundle(checkout, "mine"))
    assert before == git(checkout, "for-each-ref")
