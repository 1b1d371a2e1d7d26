"""Candidates of a real repository: their order, and groups of commits with the same build inputs."""

import os
from pathlib import Path

import pytest

from loop.base.places import include_folder, state_folder
from loop.base.processes import run_to_end
from loop.bisect.hunt import Bisection, open_worktree
from loop.bisect.trying import Builder, KernelProbe, Untestable, branches_of_merge, read_commits
from loop.library import targets
from loop.library.definitions import find_project
from loop.model.bisect import UNCOMMITTED
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench
from tests.bisect.histories import make_history
from tests.projects import KERNEL, make_project
from tests.repository.test_reading import commit_file as commit
from tests.repository.test_reading import git, put_under_git


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project below the top of its repository; its kernel includes a header that lies beside it."""
    top = tmp_path / "repository"
    folder = make_project(top / "project")
    (top / "common").mkdir()
    (top / "common" / "factor.h").write_text("#define FACTOR 2\n")
    (folder / "scale.c").write_text(f'#include "../common/factor.h"\n{KERNEL}')
    put_under_git(top, "good")
    return folder


def builder(folder: Path, cache: Path, tree: Worktree) -> Builder:
    """A builder of the project's variant, with an empty cache."""
    target = targets.read_target(find_project(folder, folder)).value
    bench = Bench(target, folder, cache, include_folder(), "cpu", 1)
    return Builder(bench, tree, "ours")


def test_what_no_build_reads_makes_no_other_kernel(folder: Path, tmp_path: Path) -> None:
    """Notes, another source and a tolerance do not; a flag, the header beside the folder and the source do."""
    manifest = (folder / "target.yaml").read_text()
    commit(folder, "notes", "x", "README.md")
    commit(folder, "another source", "int unused;", "other.c")
    commit(folder, "a flag", manifest.replace("flags: [", "flags: [-DMORE, "), "target.yaml")
    commit(folder, "flag gone", manifest, "target.yaml")
    commit(folder, "a tolerance", manifest.replace("atol: 1.0e-6", "atol: 1.0e-5"), "target.yaml")
    commit(folder.parent, "the header", "#define FACTOR 3\n", "common/factor.h")
    (folder / "notes.md").write_text("not committed")
    line = read_commits(folder, "HEAD~6", None)
    assert "uncommitted" == line.commits[-1].commit
    with open_worktree(line) as tree:
        builds = builder(folder, tmp_path / "cache", tree)
        for candidate in line.commits:
            run_to_end(builds.build(candidate))
        names = Bisection(line, KernelProbe("latency", builds, (), 0)).problem.programs
    assert [0, 0, 0, 3, 0, 0, 6, 6] == [names.index(name) for name in names]


NOWHERE = ("compiler: gcc", "compiler: gcc-of-tomorrow")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A project with five commits: the second does not build, the fourth has no compiler."""
    folder = make_project(tmp_path / "broken")
    manifest = (folder / "target.yaml").read_text()
    put_under_git(folder, "good")
    commit(folder, "broken", KERNEL.replace("return 0;", "return oops;"), "scale.c")
    commit(folder, "mended", f"{KERNEL}// mended\n", "scale.c")
    commit(folder, "elsewhere", manifest.replace(*NOWHERE), "target.yaml")
    commit(folder, "back", manifest, "target.yaml")
    return folder


def test_a_compiler_that_only_one_commit_asks_for_breaks_that_one(broken: Path, tmp_path: Path) -> None:
    """Other commits still build."""
    line = read_commits(broken, "HEAD~4", "HEAD")
    with open_worktree(line) as tree:
        builds = builder(broken, tmp_path / "cache", tree)
        with pytest.raises(Untestable, match="gcc-of-tomorrow: no such compiler"):
            run_to_end(builds.build(line.commits[3]))
        run_to_end(builds.build(line.commits[4]))


def test_the_uncommitted_tree_is_the_last_candidate(tmp_path: Path) -> None:
    """The candidate's subject lists its files; a clean checkout has no such candidate."""
    folder = tmp_path / "r"
    first, second = make_history(folder, ["a", "b"])
    assert [second] == [candidate.commit for candidate in read_commits(folder, first, None).candidates]
    (folder / "state").write_text("c")
    (folder / "new.h").write_text("new")
    line = read_commits(folder, first, None)
    assert [second, UNCOMMITTED] == [candidate.commit for candidate in line.candidates]
    assert "uncommitted changes: new.h, state" == line.candidates[-1].subject
    assert [UNCOMMITTED] == [candidate.commit for candidate in read_commits(folder, "HEAD", None).candidates]
    assert [second] == [candidate.commit for candidate in read_commits(folder, first, "HEAD").candidates]


def test_a_worktree_that_a_killed_process_of_this_number_left_is_replaced(tmp_path: Path) -> None:
    """In a container, numbers of processes repeat from start to start."""
    commits = make_history(tmp_path / "r", ["a", "b"])
    line = read_commits(tmp_path / "r", commits[0], "HEAD")
    left = state_folder() / "worktrees" / f"bisect-{os.getpid()}"
    left.mkdir(parents=True)
    (left / "state").write_text("of the killed process")
    with open_worktree(line) as tree:
        assert (left, "a") == (tree.root, (tree.target / "state").read_text())


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
    line = read_commits(folder, good, "HEAD")
    assert ["merge"] == [candidate.subject for candidate in line.candidates]
    both = branches_of_merge(line, line.candidates[0], joined=False)
    assert [["main"], ["on the side, too"]] == [[item.subject for item in branch.candidates] for branch in both]
    assert [(good,), (good,)] == [branch.other_good for branch in both]
    (joined,) = branches_of_merge(line, line.candidates[0], joined=True)
    assert ["main", "merge"] == [candidate.subject for candidate in joined.candidates]
    (rest,) = branches_of_merge(joined, joined.candidates[-1], joined=True)
    assert ["on the side, too", "merge"] == [candidate.subject for candidate in rest.candidates]
    assert [] == branches_of_merge(rest, rest.candidates[-1], joined=True)
