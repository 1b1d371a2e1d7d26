"""Candidates of a real repository: their order, what is the same kernel, what is in no commit."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.bisect.candidates import merged_lines, read_line, with_branches
from loop.model.bisect import UNCOMMITTED
from tests.bisect.histories import make_history
from tests.repository.test_history import commit
from tests.repository.test_reading import git


def test_neighbours_with_one_tree_are_one_kernel(tmp_path: Path) -> None:
    """A change beside the kernel is a candidate with the same tree; it touches nothing."""
    folder = tmp_path / "r"
    first, *_ = make_history(folder, ["a", "b", "b2"])
    (folder / "kernels").mkdir()
    commit(folder, "kernel", "k", "kernels/k.cpp")
    commit(folder, "notes", "n", "notes.md")
    commit(folder, "kernel again", "k2", "kernels/k.cpp")
    found = read_line(folder / "kernels", first, "HEAD")
    assert ["commit 1", "commit 2", "kernel", "notes", "kernel again"] == [one.subject for one in found.candidates]
    assert [False, False, True, False, True] == [one.touches for one in found.candidates]
    assert [0, 0, 0, 1, 1, 2] == found.groups
    assert ("commit 0", first) == (found.good.subject, found.good.commit)


def test_the_uncommitted_tree_is_the_last_candidate(tmp_path: Path) -> None:
    """With its files; without any it is not there."""
    folder = tmp_path / "r"
    first, second = make_history(folder, ["a", "b"])
    assert [second] == [one.commit for one in read_line(folder, first, None).candidates]
    (folder / "state").write_text("c")
    (folder / "new.h").write_text("new")
    found = read_line(folder, first, None)
    assert [second, UNCOMMITTED] == [one.commit for one in found.candidates]
    assert "uncommitted changes: new.h, state" == found.candidates[-1].subject
    assert [0, 1, 2] == found.groups
    assert [UNCOMMITTED] == [one.commit for one in read_line(folder, "HEAD", None).candidates]
    assert [second] == [one.commit for one in read_line(folder, first, "HEAD").candidates]


def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    """Equal ends, no repository, and a merge that is half done."""
    folder = tmp_path / "r"
    make_history(folder, ["a", "b"])
    with pytest.raises(LoopError, match="the same commit"):
        read_line(folder, "HEAD", None)
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(LoopError, match="not under git"):
        read_line(plain, "HEAD", None)
    git(folder, "checkout", "-q", "-b", "other", "HEAD~1")
    commit(folder, "theirs", "c", "state")
    with pytest.raises(Exception, match="merge"):
        git(folder, "merge", "main")
    with pytest.raises(LoopError, match="in the middle of a merge") as caught:
        read_line(folder, "HEAD~1", None)
    assert "git merge --abort" in str(caught.value.hint)


def test_the_branch_of_a_merge_is_a_line_of_its_own(tmp_path: Path) -> None:
    """From where it began; a commit that merges nothing has none."""
    folder = tmp_path / "r"
    first, start = make_history(folder, ["a", "b"])
    git(folder, "checkout", "-q", "-b", "side")
    on_side = [commit(folder, f"side {number}", str(number), "side.h") for number in range(2)]
    git(folder, "checkout", "-q", "main")
    commit(folder, "main", "m", "main.h")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge", "side")
    line = read_line(folder, first, "HEAD")
    (branch,) = merged_lines(line, line.candidates[-1], joined=False)
    assert (start, on_side) == (branch.good.commit, [one.commit for one in branch.candidates])
    assert [] == merged_lines(line, line.candidates[-2], joined=False)
    assert {"main", "side 0", "side 1", "merge"} == {
        one.subject for one in with_branches(line, line.candidates[-2:])
    }
    assert line.candidates[:2] == with_branches(line, line.candidates[:2])


def test_a_line_that_begins_on_a_branch(tmp_path: Path) -> None:
    """It joins the main one at the merge, which then brought what the main line had."""
    folder = tmp_path / "r"
    make_history(folder, ["a"])
    git(folder, "checkout", "-q", "-b", "side")
    good = commit(folder, "on the side", "s", "side.h")
    commit(folder, "on the side, too", "t", "side.h")
    git(folder, "checkout", "-q", "main")
    commit(folder, "main", "m", "main.h")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge", "side")
    line = read_line(folder, good, "HEAD")
    assert ["merge"] == [one.subject for one in line.candidates]
    both = merged_lines(line, line.candidates[0], joined=False)
    assert [["main"], ["on the side, too"]] == [[one.subject for one in branch.candidates] for branch in both]
    assert [(good,), (good,)] == [branch.known for branch in both]
    (joined,) = merged_lines(line, line.candidates[0], joined=True)
    assert ["main", "merge"] == [one.subject for one in joined.candidates]
    (rest,) = merged_lines(joined, joined.candidates[-1], joined=True)
    assert ["on the side, too", "merge"] == [one.subject for one in rest.candidates]
    assert [] == merged_lines(rest, rest.candidates[-1], joined=True)
