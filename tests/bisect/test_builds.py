"""Builds of commits: several side by side, what may be asked for next among them, and what cannot be built."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.base.places import include_folder, project
from loop.base.processes import finish
from loop.bisect.builds import Builder, Untestable
from loop.bisect.candidates import read_line
from loop.bisect.kernels import own_tree
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


def builder(folder: Path, cache: Path, trees: Sequence[Worktree]) -> Builder:
    """Of the project's variant, with nothing in its cache."""
    target = targets.target(project(folder, folder)).value
    bench = Bench(target, folder, cache, include_folder(), "cpu", 1)
    return Builder(bench, trees, "ours", 60.0)


@pytest.mark.slow
def test_what_may_be_asked_for_next_is_built_beside(folder: Path, tmp_path: Path) -> None:
    """One that does not build is told when it is asked for; nothing is compiled where all is there."""
    line = read_line(folder, "HEAD~4", "HEAD")
    good, broken, mended = line.ends[:3]
    with own_tree(line, "one") as one, own_tree(line, "two") as two:
        found = builder(folder, tmp_path / "cache", [one, two])
        finish(found.prepare([good], [broken, mended]))
        assert ({good.tree}, 1) == (set(found.made), found.compiled)
        with pytest.raises(Untestable, match=r"does not build: scale\.c"):
            finish(found.build(broken))
        finish(found.prepare([good], [mended]))
        assert {good.tree} == set(found.made)
        assert "ours" == finish(found.build(mended)).variant
        assert found.compiled == 2


def test_a_compiler_that_only_one_commit_asks_for_breaks_that_one(folder: Path, tmp_path: Path) -> None:
    """It says nothing of the others."""
    line = read_line(folder, "HEAD~4", "HEAD")
    with own_tree(line, "one") as tree:
        found = builder(folder, tmp_path / "cache", [tree])
        with pytest.raises(Untestable, match="gcc-of-tomorrow: no such compiler"):
            finish(found.build(line.ends[3]))
        finish(found.build(line.ends[4]))


@pytest.mark.slow
def test_commits_with_one_tree_share_a_build(folder: Path, tmp_path: Path) -> None:
    """Two commits with one tree are one kernel."""
    line = read_line(folder, "HEAD~4", "HEAD")
    mended, _, back = line.ends[2:]
    assert mended.tree == back.tree
    with own_tree(line, "one") as tree:
        found = builder(folder, tmp_path / "cache", [tree])
        first = finish(found.build(mended))
        assert first == finish(found.build(back))
        assert found.compiled == 1


def test_a_build_that_hangs_is_given_up_by_what_the_good_one_took(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The good end is built first, whatever is asked for; a compiler that never ends breaks its commit alone."""
    monkeypatch.setattr("loop.bisect.builds.LEAST_S", 0.5)
    monkeypatch.setattr("loop.bisect.builds.TIMES", 2.0)
    compiler = tmp_path / "slow-cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *" -M "*) ;; *-DHANG*) sleep 1000 & wait;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    manifest = (folder / "target.yaml").read_text().replace("compiler: gcc", f"compiler: {compiler}")
    commit(folder, "quick", manifest, "target.yaml")
    commit(folder, "hangs", manifest.replace("flags: [", "flags: [-DHANG, "), "target.yaml")
    line = read_line(folder, "HEAD~1", "HEAD")
    with own_tree(line, "one") as tree:
        found = builder(folder, tmp_path / "cache", [tree])
        found.good = line.good
        with pytest.raises(Untestable, match="does not build: the compiler was"):
            finish(found.build(line.ends[1]))
        assert {line.good.tree} == set(found.made)
