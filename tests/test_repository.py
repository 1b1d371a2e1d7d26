"""Reading a real repository: commit, branch, what differs, and nothing changed by looking."""

import subprocess
from pathlib import Path

from loop.repository import revision


def git(folder: Path, *words: str) -> str:
    """Run git as somebody."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def make_repository(folder: Path) -> Path:
    """A repository with one commit on main."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kernel.cpp").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_a_clean_checkout(tmp_path: Path) -> None:
    """Commit and branch, nothing changed."""
    folder = make_repository(tmp_path / "r")
    found = revision(folder)
    assert (git(folder, "rev-parse", "HEAD"), "main", False, ()) == (
        found.commit,
        found.branch,
        found.dirty,
        found.changed,
    )


def test_changed_and_untracked_files_are_named(tmp_path: Path) -> None:
    """Both make a checkout dirty; looking leaves it as it was."""
    folder = make_repository(tmp_path / "r")
    (folder / "kernel.cpp").write_text("two\n")
    (folder / "new.cpp").write_text("three\n")
    before = git(folder, "status", "--porcelain")
    assert (True, ("kernel.cpp", "new.cpp")) == (revision(folder).dirty, revision(folder).changed)
    assert before == git(folder, "status", "--porcelain")


def test_a_detached_head_has_no_branch(tmp_path: Path) -> None:
    """The commit is known all the same."""
    folder = make_repository(tmp_path / "r")
    git(folder, "checkout", "-q", "--detach")
    assert (None, True) == (revision(folder).branch, revision(folder).commit is not None)


def test_a_folder_below_counts_to_its_repository(tmp_path: Path) -> None:
    """A target in a subfolder has its repository's commit."""
    folder = make_repository(tmp_path / "r")
    (folder / "deep").mkdir()
    assert revision(folder).commit == revision(folder / "deep").commit


def test_no_repository_and_no_commit_are_no_error(tmp_path: Path) -> None:
    """Outside git nothing is known; before the first commit everything is new."""
    assert (None, False) == (revision(tmp_path).commit, revision(tmp_path).dirty)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    assert (None, True) == (revision(tmp_path / "empty").commit, revision(tmp_path / "empty").dirty)
