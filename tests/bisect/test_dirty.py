"""Dirty checkouts are byte-identical after a search: files, index, HEAD, refs and stash. No hook runs."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from loop.bisect.command import BisectRequest, run_bisect
from loop.bisect.trying import read_commits
from loop.model.bisect import UNCOMMITTED
from loop.report.screen import Screen
from tests.bisect.histories import make_history
from tests.repository.test_reading import commit_file as commit
from tests.repository.test_reading import git

HOOKS = ("post-checkout", "pre-commit", "post-commit", "post-merge", "post-index-change", "reference-transaction")
COUNT = 8


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Path to mode and content hash (for links: target) of every file of a folder, .git included."""
    files = {}
    for path in sorted(folder.rglob("*")):
        text = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        files[str(path.relative_to(folder))] = path.lstat().st_mode, hashlib.sha256(text).hexdigest()
    return files


def staged(folder: Path) -> None:
    """One file staged, and changed again."""
    (folder / "staged").write_text("staged")
    git(folder, "add", "staged")
    (folder / "staged").write_text("and changed")


def unstaged(folder: Path) -> None:
    """A tracked file changed, and another one only touched, so that git would like to refresh its index."""
    (folder / "state").write_text("unstaged")
    os.utime(folder / "kept", (1, 1))


def untracked(folder: Path) -> None:
    """New files, with names that git quotes."""
    (folder / "new folder").mkdir()
    (folder / "new folder" / 'a "näme"\twith tab').write_text("new")


def ignored(folder: Path) -> None:
    """Files that git does not see."""
    (folder / ".gitignore").write_text("*.o\nbuild/\n")
    (folder / "build").mkdir()
    (folder / "build" / "kernel.o").write_bytes(b"\0object")


def deleted(folder: Path) -> None:
    """Gone from the folder, and another one from the index alone."""
    (folder / "gone").unlink()
    git(folder, "rm", "-q", "--cached", "unlisted")


def renamed(folder: Path) -> None:
    """A file under another name."""
    git(folder, "mv", "moved", "moved away")


def stashed(folder: Path) -> None:
    """A stashed change."""
    (folder / "stashed").write_text("aside")
    git(folder, "stash", "push", "-q", "--include-untracked", "--", "stashed")


def bisecting(folder: Path) -> None:
    """A search of git's own under way."""
    git(folder, "bisect", "start", "HEAD", "HEAD~3", "--no-checkout")


SPOILS = (stashed, staged, unstaged, untracked, ignored, deleted, renamed, bisecting)
FILES = ("kept", "gone", "unlisted", "moved")


def make_repository(folder: Path, marks: Path) -> list[str]:
    """A history that is dirty in each way that git knows. Its hooks and its file system monitor mark."""
    hashes = make_history(folder, ["0"])
    for name in FILES:
        (folder / name).write_text(name)
    hashes += [commit(folder, f"commit {number}", str(number), "state") for number in range(1, COUNT)]
    for spoil in SPOILS:
        spoil(folder)
    git(folder, "checkout", "-q", "--detach")
    hooks = folder / ".git/own hooks"
    hooks.mkdir()
    for name in (*HOOKS, "fsmonitor"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marks}-{name}\n")
        (hooks / name).chmod(0o755)
    git(folder, "config", "core.hooksPath", str(hooks))
    git(folder, "config", "core.fsmonitor", str(hooks / "fsmonitor"))
    git(folder, "config", "submodule.recurse", "true")
    return hashes


def test_a_dirty_checkout_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every byte stays, also in .git; uncommitted changes are no candidate."""
    folder, culprit = tmp_path / "r", 3
    hashes = make_repository(folder, tmp_path / "mark")
    unchanged = contents(folder)
    script = f"test $(cat state) -lt {culprit}"
    request = BisectRequest(
        good=hashes[0], bad=hashes[-1], probe="exit", command=("sh", "-c", script), target=folder, json=True
    )
    assert 0 == run_bisect(request, Screen(is_quiet=True))
    answer = json.loads(capsys.readouterr().out)
    assert [hashes[culprit]] == [item["commit"] for item in answer["culprits"]], answer["why"]
    assert unchanged == contents(folder)
    assert [] == list(tmp_path.glob("mark-*"))
    assert not (folder / ".git" / "worktrees").exists()
    assert 1 == len(git(folder, "worktree", "list").splitlines())


def test_what_is_uncommitted_is_read_without_a_trace(tmp_path: Path) -> None:
    """As a search in kernels does it: the line ends with the checkout. Only times in git's index may change."""
    folder = tmp_path / "r"
    make_repository(folder, tmp_path / "mark")
    unchanged = {**contents(folder), ".git/index": None}
    line = read_commits(folder, "HEAD~2", None)
    assert UNCOMMITTED == line.candidates[-1].commit
    assert unchanged == {**contents(folder), ".git/index": None}
    assert [] == list(tmp_path.glob("mark-*"))
