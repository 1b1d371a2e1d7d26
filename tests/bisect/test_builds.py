"""Builds of commits, and what cannot be built."""

from pathlib import Path

import pytest

from loop.base.places import include_folder, project
from loop.base.processes import finish
from loop.bisect.candidates import Builder, Untestable, read_line
from loop.bisect.hunt import own_tree
from loop.library import targets
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench
from tests.projects import KERNEL, make_project
from tests.repository.test_history import commit
from tests.repository.test_reading import put_under_git

NOWHERE = ("compiler: gcc", "compiler: gcc-of-tomorrow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with five commits: the second does not build, the fourth has no compiler."""
    folder = make_project(tmp_path / "project")
    manifest = (folder / "target.yaml").read_text()
    put_under_git(folder, "good")
    commit(folder, "broken", KERNEL.replace("return 0;", "return oops;"), "scale.c")
    commit(folder, "mended", f"{KERNEL}// mended\n", "scale.c")
    commit(folder, "elsewhere", manifest.replace(*NOWHERE), "target.yaml")
    commit(folder, "back", manifest, "target.yaml")
    return folder


def builder(folder: Path, cache: Path, tree: Worktree) -> Builder:
    """Of the project's variant, with nothing in its cache."""
    target = targets.target(project(folder, folder)).value
    bench = Bench(target, folder, cache, include_folder(), "cpu", 1)
    return Builder(bench, tree, "ours")


def test_a_compiler_that_only_one_commit_asks_for_breaks_that_one(folder: Path, tmp_path: Path) -> None:
    """It says nothing of the others."""
    line = read_line(folder, "HEAD~4", "HEAD")
    with own_tree(line) as tree:
        found = builder(folder, tmp_path / "cache", tree)
        with pytest.raises(Untestable, match="gcc-of-tomorrow: no such compiler"):
            finish(found.build(line.ends[3]))
        finish(found.build(line.ends[4]))
