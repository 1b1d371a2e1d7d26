"""The line between a good and a bad commit, on real repositories."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.repository.reading import commits_between, first_parent_commits, resolve_revision
from tests.repository.test_reading import commit as commit_all
from tests.repository.test_reading import git


def commit(folder: Path, name: str, text: str = "x", file: str = "kernel.cpp") -> str:
    """One more commit; its hash."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return commit_all(folder, name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A main line of four commits, the third of which merges a branch of two."""
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first", "1")
    commit(folder, "second", "2")
    git(folder, "checkout", "-q", "-b", "side")
    commit(folder, "on the side", "a", "side.h")
    commit(folder, "on the side, too", "b", "side.h")
    git(folder, "checkout", "-q", "main")
    commit(folder, "third", "3", "docs/notes.md")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge side", "side")
    commit(folder, "fifth", "5")
    return folder


def test_the_line_goes_by_first_parents(folder: Path) -> None:
    """Oldest first, without `good`; a merge stands for its branch."""
    found = first_parent_commits(folder, "main~3", "main")
    assert ["third", "merge side", "fifth"] == [one.subject for one in found]
    assert [False, True, False] == [one.merge for one in found]
    assert ("t", resolve_revision(folder, "main")) == (found[-1].author, found[-1].commit)
    assert git(folder, "rev-parse", "main^{tree}") == found[-1].tree
    assert {"on the side", "on the side, too", "merge side"} == {
        one.subject for one in commits_between(folder, [found[0].commit], found[1].commit)
    }


@pytest.mark.parametrize(
    ("good", "bad", "said"), [("--all", "main", "--all is no commit"), ("main~1^{tree}", "main", "is no commit")]
)
def test_what_is_no_line_is_refused(folder: Path, good: str, bad: str, said: str) -> None:
    """With the reason."""
    with pytest.raises(LoopError, match=said):
        first_parent_commits(folder, good, bad)
