"""Candidates of a real repository: their order, what is the same kernel, what is in no commit."""

from pathlib import Path

from loop.bisect.candidates import branches_of_merge, read_line
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
    assert [UNCOMMITTED] == [one.commit for one in read_line(folder, "HEAD", None).candidates]
    assert [second] == [one.commit for one in read_line(folder, first, "HEAD").candidates]


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
    both = branches_of_merge(line, line.candidates[0], joined=False)
    assert [["main"], ["on the side, too"]] == [[one.subject for one in branch.candidates] for branch in both]
    assert [(good,), (good,)] == [branch.other_good for branch in both]
    (joined,) = branches_of_merge(line, line.candidates[0], joined=True)
    assert ["main", "merge"] == [one.subject for one in joined.candidates]
    (rest,) = branches_of_merge(joined, joined.candidates[-1], joined=True)
    assert ["on the side, too", "merge"] == [one.subject for one in rest.candidates]
    assert [] == branches_of_merge(rest, rest.candidates[-1], joined=True)
