"""Loop's own worktrees, and the files of a checkout that are sent; the user's files stay unchanged."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loop import __version__
from loop.base.errors import PRINTED_REMARKS, LoopError
from loop.optimize.session_changes import session_worktree
from loop.repository import worktree
from loop.repository.worktree import (
    UNCOMMITTED_MESSAGE,
    copy_worktree,
    fetch_session_branches,
    find_worktree,
    git_config_to_send,
    list_files_to_send,
    make_at_commit,
    make_from_checkout,
    require_repository,
)
from loop.steps.context import Context, Workshop
from tests.projects import make_project
from tests.repository.test_reading import git, make_repository, put_under_git


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
    commands = (["status", "--porcelain"], ["stash", "list"], ["branch"], ["rev-parse", "HEAD"], ["diff"])
    return tuple(git(top, *words) for words in commands)


def test_it_holds_the_checkout_as_it_stands(target: Path, tmp_path: Path) -> None:
    """Uncommitted changes, new files and files outside the target are included; ignored files are not."""
    (target / "kernel.cpp").write_text("one\nTWO\n")
    (target / "new.cpp").write_text("new\n")
    (target / "object.o").write_text("ignored\n")
    (target.parents[1] / "shared.h").write_text("edited\n")
    unchanged = state(target.parents[1])
    tree = make_from_checkout(target, tmp_path / "work" / "tree")
    assert "one\nTWO\n" == (tree.target / "kernel.cpp").read_text()
    assert "new\n" == (tree.target / "new.cpp").read_text()
    assert not (tree.target / "object.o").exists()
    assert "" == tree.describe_ignored_sources()
    (target / "made.h").touch()
    assert "no commit has made.h, which git ignores" == tree.describe_ignored_sources()
    assert "edited\n" == (tree.root / "shared.h").read_text()
    assert {} == tree.changed_lines()
    assert UNCOMMITTED_MESSAGE == git(tree.root, "log", "-1", "--format=%s")
    assert unchanged == state(target.parents[1])
    assert not (tmp_path / "ran").exists()


def test_edits_are_counted_and_become_a_patch(target: Path, tmp_path: Path) -> None:
    """A changed, a new and a removed file; the patch applies to the user's checkout."""
    tree = make_from_checkout(target, tmp_path / "tree")
    (tree.target / "kernel.cpp").write_text("one\n2\nthree\n")
    (tree.target / "more.h").write_bytes(b"\xff\xfe not UTF-8\n")
    (tree.root / "shared.h").unlink()
    assert {"kernel.cpp": 3, "more.h": 1, "../../shared.h": 1} == tree.changed_lines()
    (tmp_path / "edit.patch").write_bytes(tree.patch())
    git(target.parents[1], "apply", "--check", str(tmp_path / "edit.patch"))


def test_a_kept_edit_stands_on_a_branch_of_its_own(target: Path, tmp_path: Path) -> None:
    """The user's branch does not move, the worktree may go, the branch stays."""
    tree = make_from_checkout(target, tmp_path / "tree")
    (tree.target / "kernel.cpp").write_text("better\n")
    head = tree.commit("better")
    tree.point_branch("loop/one")
    tree.remove()
    assert head == git(target, "rev-parse", "loop/one")
    assert "better" == git(target, "show", "loop/one:kernels/mine/kernel.cpp")
    assert "one\ntwo\n" == (target / "kernel.cpp").read_text()
    assert "main" == git(target, "rev-parse", "--abbrev-ref", "HEAD")
    assert not (tmp_path / "tree").exists()
    assert 1 == len(git(target, "worktree", "list").splitlines())
    assert not (tmp_path / "ran").exists()


def test_a_worktree_is_found_again(target: Path, tmp_path: Path) -> None:
    """It keeps its edits; one whose folder is gone is not found, and can be made again."""
    tree = make_from_checkout(target, tmp_path / "tree")
    (tree.target / "kernel.cpp").write_text("edited\n")
    second = find_worktree(target, tmp_path / "tree")
    assert tree == second
    assert second is not None
    assert {"kernel.cpp": 3} == second.changed_lines()
    tree.remove()
    assert find_worktree(target, tmp_path / "tree") is None
    assert {} == make_from_checkout(target, tmp_path / "tree").changed_lines()


def test_a_repository_that_git_refuses_is_told_with_its_words(target: Path) -> None:
    """It may be damaged, or another user's: `git init` alone would be the wrong advice."""
    (target.parents[1] / ".git" / "config").write_text("[core\n")
    with pytest.raises(LoopError, match=r"is not under git, or none of it is committed: git .* bad config line 1"):
        require_repository(target)


def test_a_target_outside_git_is_copied(tmp_path: Path) -> None:
    """The copy is a repository of its own, without sessions."""
    folder = tmp_path / "mine"
    (folder / "sessions").mkdir(parents=True)
    (folder / "sessions" / "x").write_text("x")
    (folder / "kernel.cpp").write_text("one\n")
    tree = make_from_checkout(folder, tmp_path / "tree")
    assert tree.repository is None
    assert not (tree.target / "sessions").exists()
    (tree.target / "kernel.cpp").write_text("two\n")
    assert {"kernel.cpp": 2} == tree.changed_lines()
    assert tree == find_worktree(folder, tmp_path / "tree")
    tree.revert()
    assert "one\n" == (tree.target / "kernel.cpp").read_text()
    assert not (folder / ".git").exists()


def test_a_folder_that_became_another_repositorys_is_not_reset(target: Path, tmp_path: Path) -> None:
    """If the folder is no worktree of loop's any more, nothing is reset."""
    tree = make_from_checkout(target, tmp_path / "repository" / "tree")
    (tree.root / ".git").unlink()
    with pytest.raises(LoopError, match=r"no worktree of loop's"):
        tree.revert()


def test_what_a_kill_left_of_ours_is_forgotten(target: Path, tmp_path: Path) -> None:
    """Also if git was killed while it made the folder and left a lock; the user's worktrees stay."""
    trees = tmp_path / "trees"
    for name in ("killed", "locked", "there"):
        make_at_commit(target, trees / name, "HEAD")
    git(target, "worktree", "lock", str(trees / "locked"))
    git(target, "worktree", "add", "-q", "--detach", str(tmp_path / "away"))
    for gone in (trees / "killed", trees / "locked", tmp_path / "away"):
        shutil.rmtree(gone)
    tree = make_at_commit(target, trees / "new", "HEAD")
    listed = [line.split()[0] for line in git(target, "worktree", "list").splitlines()[1:]]
    assert {str(trees / "there"), str(trees / "new"), str(tmp_path / "away")} == set(listed)
    tree.remove()
    assert str(trees / "new") not in git(target, "worktree", "list")


def test_what_was_never_whole_is_made_again(target: Path, tmp_path: Path) -> None:
    """Without a note of its session, it is made again; one with a note stays."""
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


@pytest.mark.parametrize("has_identity", [True, False])
def test_a_commit_is_the_users_and_says_what_made_it(
    has_identity: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Author and committer are git's user; without one they are loop. A trailer names loop and the session."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    PRINTED_REMARKS.clear()
    project = make_project(tmp_path / "mine")
    put_under_git(project)
    if has_identity:
        git(project, "config", "user.name", "Ada")
        git(project, "config", "user.email", "ada@example.org")
    tree = make_from_checkout(project, tmp_path / "tree")
    tree.commit("faster", "s-1")
    line = git(project, "log", "-1", "--format=%an <%ae> %cn %(trailers:key=Made-with,valueonly)", tree.head)
    people = "Ada <ada@example.org> Ada" if has_identity else "loop <loop@localhost> loop"
    assert f"{people} loop {__version__} session s-1" == line.strip()
    copy = copy_worktree(tree, tmp_path / "copy")  # Its author is always loop, because only loop reads it.
    assert "loop <loop@localhost>" == git(copy.root, "log", "-1", "--format=%an <%ae>").strip()
    assert has_identity == ("git does not know your name" not in capsys.readouterr().err)


def test_a_branch_that_leads_elsewhere_is_left_alone(target: Path, tmp_path: Path) -> None:
    """The next branch gets a number; a branch on the same line of commits is moved."""
    git(target, "branch", "loop/one", git(target, "commit-tree", "HEAD^{tree}", "-m", "mine"))
    tree = make_from_checkout(target, tmp_path / "tree")
    (tree.target / "kernel.cpp").write_text("better\n")
    tree.commit("better")
    assert "loop/one-2" == tree.point_branch("loop/one")
    (tree.target / "kernel.cpp").write_text("best\n")
    tree.commit("best")
    assert "loop/one-2" == tree.point_branch("loop/one")
    assert tree.head == git(target, "rev-parse", "loop/one-2")


def test_a_lock_of_a_killed_git_is_taken_away(target: Path, tmp_path: Path) -> None:
    """It would keep every later git out."""
    tree = make_from_checkout(target, tmp_path / "tree")
    lock = Path(git(tree.root, "rev-parse", "--absolute-git-dir")) / "index.lock"
    lock.touch()
    assert find_worktree(target, tree.root) is not None
    assert {} == tree.changed_lines()


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
    """The current files are sent, without ignored ones."""
    names = set(list_files_to_send(checkout))
    assert {".gitignore", "in/a b.c", "new.c"} == {name for name in names if not name.startswith(".git/")}
    assert {".git/HEAD", ".git/index"} <= names


def test_nothing_secret_and_no_program_goes_with_it(checkout: Path) -> None:
    """Hooks, remotes, headers and helpers are not sent; settings of file storage are."""
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
    """They are sent as files without a history; so are those of nested repositories."""
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(checkout), "below")
    git(checkout, "init", "-q", "other")
    (checkout / "other" / "mine.c").write_text("1")
    names = list_files_to_send(checkout)
    assert {"below/in/a b.c", "other/mine.c"} <= {*names}
    assert not [
        name for name in names if ".git/modules" in name or name.startswith(("below/.git/", "other/.git/"))
    ]


def bundle(checkout: Path, branch: str) -> Path:
    """A bundle from another machine: a commit on a branch."""
    clone = checkout.parent / "other"
    git(checkout.parent, "clone", "-q", str(checkout), "other")
    git(clone, "switch", "-qc", branch)
    (clone / "new.c").write_text(branch)
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "kept")
    git(clone, "bundle", "create", "--quiet", "../made", branch)
    return checkout.parent / "made"


def test_branches_of_sessions_come_back(checkout: Path) -> None:
    """Checkout, other branches and index stay as they are."""
    before = git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main")
    assert ("loop/session",) == fetch_session_branches(checkout, bundle(checkout, "loop/session"))
    assert "loop/session" == git(checkout, "show", "loop/session:new.c")
    assert before == (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main"))


def test_a_branch_of_the_users_is_never_taken(checkout: Path) -> None:
    """A bundle cannot change a branch of the user."""
    before = git(checkout, "for-each-ref")
    assert () == fetch_session_branches(checkout, bundle(checkout, "mine"))
    assert before == git(checkout, "for-each-ref")


def test_a_history_with_an_object_that_fsck_dislikes_is_read(tmp_path: Path) -> None:
    """Old programs wrote file modes with a zero in front; only bundles of other machines are checked."""
    source = make_repository(tmp_path / "source")
    blob = git(source, "hash-object", "-w", "kernel.cpp")
    content = b"0100644 kernel.cpp\0" + bytes.fromhex(blob)
    words = ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    padded = subprocess.run(words, cwd=source, input=content, capture_output=True, check=True)
    git(source, "reset", "-q", "--hard", git(source, "commit-tree", "-m", "old", padded.stdout.decode().strip()))
    worktree.git(tmp_path, "clone", "-q", "--no-local", str(source), "copy")
    assert "one" == worktree.git(tmp_path / "copy", "show", "HEAD:kernel.cpp").strip()
