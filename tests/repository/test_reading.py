"""Reading a real repository: commit, branch, what differs, and nothing changed by looking."""

import subprocess
from pathlib import Path

from loop.repository.reading import changed_lines, export_commit, is_revertible, read_revision


def git(folder: Path, *words: str) -> str:
    """Run git as somebody."""
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
    """Make a folder a repository, and commit what it holds; the commit, on main."""
    git(folder, "init", "-q", "-b", "main")
    return commit(folder, message)


def make_repository(folder: Path) -> Path:
    """A repository with one commit on main."""
    folder.mkdir()
    (folder / "kernel.cpp").write_text("one\n")
    put_under_git(folder)
    return folder


def test_changed_and_untracked_files_are_named(tmp_path: Path) -> None:
    """Both make a checkout dirty; looking leaves it as it was."""
    folder = make_repository(tmp_path / "r")
    (folder / "kernel.cpp").write_text("two\n")
    (folder / "new.cpp").write_text("three\n")
    before = git(folder, "status", "--porcelain")
    assert (True, ("kernel.cpp", "new.cpp")) == (read_revision(folder).dirty, read_revision(folder).changed)
    assert before == git(folder, "status", "--porcelain")


def test_a_session_folder_is_no_change(tmp_path: Path) -> None:
    """What `loop` itself writes, committed before or not; a plan of the user's beside it is one."""
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
        assert ["own.yaml"] == [Path(name).name for name in changed_lines(target, then) or ()]
        commit(folder)


def test_no_repository_and_no_commit_are_no_error(tmp_path: Path) -> None:
    """Outside git nothing is known; before the first commit everything is new."""
    assert (None, False) == (read_revision(tmp_path).commit, read_revision(tmp_path).dirty)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    assert (None, True) == (read_revision(tmp_path / "empty").commit, read_revision(tmp_path / "empty").dirty)


def files(folder: Path) -> dict[str, str]:
    """Name and text of every file below a folder, git's own left out."""
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_a_commit_is_written_out_beside_the_checkout(tmp_path: Path) -> None:
    """What was committed, not what is there now; nothing of the user's is touched, the index included."""
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
    """Committed or not; new files are named; what lies outside the folder does not count."""
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
    """Not where a later commit changed the same line, nor where the file was edited since."""
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
