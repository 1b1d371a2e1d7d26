"""Reading a real repository: commit, branch and changes, without changing it."""

import os
import subprocess
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.repository.worktree import (
    add_new_files,
    changed_lines,
    export_commit,
    first_parent_commits,
    is_revertible,
    read_revision,
    resolve_revision,
)


def git(folder: Path, *words: str) -> str:
    """Run git with a test's identity."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def commit(folder: Path, message: str = "next") -> str:
    """Commit everything; the new commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def put_under_git(folder: Path, message: str = "first") -> str:
    """Make a folder a repository with one commit on main; return the commit."""
    git(folder, "init", "-q", "-b", "main")
    return commit(folder, message)


def make_repository(folder: Path) -> Path:
    """A repository with one commit on main."""
    folder.mkdir()
    (folder / "kernel.cpp").write_text("one\n")
    put_under_git(folder)
    return folder


def test_changed_and_untracked_files_are_named(tmp_path: Path) -> None:
    """Both make a checkout dirty; reading changes nothing."""
    folder = make_repository(tmp_path / "r")
    (folder / "kernel.cpp").write_text("two\n")
    (folder / "new.cpp").write_text("three\n")
    before = git(folder, "status", "--porcelain")
    assert (True, ("kernel.cpp", "new.cpp")) == (read_revision(folder).dirty, read_revision(folder).changed)
    assert before == git(folder, "status", "--porcelain")


def test_a_new_file_beside_the_target_is_no_change_of_it(tmp_path: Path) -> None:
    """No build of the target reads it; an edit of a committed file may be read from anywhere."""
    target = make_repository(tmp_path / "r") / "target"
    target.mkdir()
    (target.parent / "notes.md").write_text("untracked\n")
    assert (False, ()) == (read_revision(target).dirty, read_revision(target).changed)
    (target / "new.h").write_text("untracked\n")
    (target.parent / "kernel.cpp").write_text("two\n")
    assert ("kernel.cpp", "target/") == read_revision(target).changed


def test_a_new_file_elsewhere_that_a_build_read_is_a_change(tmp_path: Path) -> None:
    """Ignored files, files outside the checkout and files that no build read are no change. A submodule's new file
    is one. A name that is no UTF-8 text can be stored."""
    target = make_repository(tmp_path / "r") / "target"
    (target / "deep").mkdir(parents=True)
    (target / "kernel.cpp").write_text("committed\n")
    (target.parent / ".gitignore").write_text("*.o\n")
    commit(target.parent)
    put_under_git(make_repository(tmp_path / "r" / "submodule"))
    odd_name = os.fsdecode(b"\xff.h")
    places = ("", "", "", "..", "target/deep", "submodule", "")
    names = ("a [1].h", "unread.h", "ignored.o", "outside.h", "new.h", "s.h", odd_name)
    for place, name in zip(places, names, strict=True):
        (target.parent / place / name).write_text("new\n")
    read = ("../a [1].h", "../ignored.o", "../../outside.h", "kernel.cpp", "deep/new.h", "../submodule/s.h")
    files = [target / name for name in (*read, "../gone.h", f"../{odd_name}")]
    revision = add_new_files(read_revision(target), target, files)
    assert (True, ("target/deep/", "a [1].h", "\ufffd.h", "submodule/s.h")) == (revision.dirty, revision.changed)
    clean = read_revision(tmp_path)
    assert clean == add_new_files(clean, tmp_path, [target / "kernel.cpp"])


def test_a_damaged_object_is_named_with_the_next_step(tmp_path: Path) -> None:
    """A search ends there: what git says, where, and how the user finds what else is damaged."""
    folder = make_repository(tmp_path / "r")
    commits = [git(folder, "rev-parse", "HEAD"), commit(folder), commit(folder, "third")]
    path = folder / ".git" / "objects" / commits[1][:2] / commits[1][2:]
    path.chmod(0o600)
    path.write_bytes(b"")
    with pytest.raises(LoopError, match=f"git rev-list in {folder}: error: object file .* is empty") as caught:
        first_parent_commits(folder, commits[0], commits[2])
    assert "git fsck" in str(caught.value.hint)


def test_a_session_folder_is_no_change(tmp_path: Path) -> None:
    """Files that `loop` writes are no change; a plan of the user's beside them is one."""
    folder = make_repository(tmp_path / "r")
    for target in (folder, folder / "mine"):
        session = target / "sessions" / "2026-11-29-114558-quick"
        (session / "deep").mkdir(parents=True)
        (session / "journal.jsonl").write_text("kept\n")
        then = commit(folder)
        (session / "journal.jsonl").write_text("changed\n")
        (session / "deep" / "report.md").write_text("new\n")
        assert (False, ()) == (read_revision(folder).dirty, read_revision(folder).changed)
        assert {} == changed_lines(target, then)
        (target / "sessions" / "plans").mkdir()
        (target / "sessions" / "plans" / "own.yaml").write_text("name: own\n")
        assert read_revision(folder).dirty
        assert ["own.yaml"] == [Path(name).name for name in changed_lines(target, then)]
        commit(folder)


def test_no_repository_and_no_commit_are_no_error(tmp_path: Path) -> None:
    """Outside git the revision is unknown; before the first commit all files are new."""
    assert (None, False) == (read_revision(tmp_path).commit, read_revision(tmp_path).dirty)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    assert (None, True) == (read_revision(tmp_path / "empty").commit, read_revision(tmp_path / "empty").dirty)


def files(folder: Path) -> dict[str, str]:
    """Path and text of every file below a folder, without .git."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_a_commit_is_written_out_beside_the_checkout(tmp_path: Path) -> None:
    """The commit's files are written, not the current ones; checkout and index stay as they are."""
    folder = make_repository(tmp_path / "r")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "tile.h").write_text("tile\n")
    then = commit(folder)
    (folder / "kernel.cpp").write_text("two\n")
    (folder / "new.cpp").write_text("three\n")
    git(folder, "add", "kernel.cpp")
    before = (files(folder), git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD"))
    into = tmp_path / "into"
    into.mkdir()
    assert into == export_commit(folder, then, into)
    assert {"kernel.cpp": "one\n", "deep/er/tile.h": "tile\n"} == files(into)
    assert before == (files(folder), git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD"))


def test_changes_since_a_commit_are_counted_in_lines(tmp_path: Path) -> None:
    """Committed and uncommitted lines count; new files are named; files outside the folder do not count."""
    folder = make_repository(tmp_path / "r")
    (folder / "mine").mkdir()
    (folder / "mine" / "a.cpp").write_text("one\ntwo\n")
    (folder / "mine" / "gone.cpp").write_text("one\n")
    then = commit(folder)
    (folder / "mine" / "a.cpp").write_text("one\n2\nthree\n")
    (folder / "mine" / "gone.cpp").unlink()
    commit(folder)
    (folder / "mine" / "b.cpp").write_text("not committed\n")
    (folder / "kernel.cpp").write_text("elsewhere\n")
    expected = {"mine/a.cpp": 3, "mine/gone.cpp": 1, "mine/b.cpp": 0}
    assert expected == changed_lines(folder / "mine", then)
    assert {**expected, "kernel.cpp": 2} == changed_lines(folder, then)


def test_a_commit_is_taken_back_where_git_revert_would_do_it(tmp_path: Path) -> None:
    """It is not reverted if a later commit or an edit changed the same lines."""
    folder = make_repository(tmp_path / "r")
    (folder / "kernel.cpp").write_text("two\n")
    second = commit(folder)
    assert is_revertible(folder, second[:12])
    (folder / "other.cpp").write_text("x\n")
    commit(folder)
    assert is_revertible(folder, second)
    (folder / "kernel.cpp").write_text("two\nmore\n")
    assert not is_revertible(folder, second)
    commit(folder)
    (folder / "kernel.cpp").write_text("three\n")
    commit(folder)
    assert not is_revertible(folder, second)
    assert not is_revertible(folder, "0" * 40)


def commit_file(folder: Path, name: str, text: str = "x", file: str = "kernel.cpp") -> str:
    """One more commit; its hash."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return commit(folder, name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A main line of four commits, the third of which merges a branch of two."""
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit_file(folder, "first", "1")
    commit_file(folder, "second", "2")
    git(folder, "checkout", "-q", "-b", "side")
    commit_file(folder, "on the side", "a", "side.h")
    commit_file(folder, "on the side, too", "b", "side.h")
    git(folder, "checkout", "-q", "main")
    commit_file(folder, "third", "3", "docs/notes.md")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge side", "side")
    commit_file(folder, "fifth", "5")
    return folder


def test_the_line_goes_by_first_parents(folder: Path) -> None:
    """Oldest first, without `good`; a merge is one entry for its branch."""
    commits = first_parent_commits(folder, "main~3", "main")
    assert ["third", "merge side", "fifth"] == [item.subject for item in commits]
    assert [False, True, False] == [item.merge for item in commits]
    assert ("t", resolve_revision(folder, "main")) == (commits[-1].author, commits[-1].commit)
    assert git(folder, "rev-parse", "main^{tree}") == commits[-1].tree


@pytest.mark.parametrize(
    ("good", "bad", "text"), [("--all", "main", "--all is no commit"), ("main~1^{tree}", "main", "is no commit")]
)
def test_what_is_no_line_is_refused(folder: Path, good: str, bad: str, text: str) -> None:
    """The message has the reason."""
    with pytest.raises(LoopError, match=text):
        first_parent_commits(folder, good, bad)
