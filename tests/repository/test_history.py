"""The line between a good and a bad commit, on real repositories."""

import re
import subprocess
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.repository.reading import between, line, resolve, trees_of
from loop.repository.reading import commit as commit_of
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
    found = line(folder, "main~3", "main")
    assert ["third", "merge side", "fifth"] == [one.subject for one in found]
    assert [False, True, False] == [one.merge for one in found]
    assert ("t", resolve(folder, "main")) == (found[-1].author, found[-1].commit)
    assert {"on the side", "on the side, too", "merge side"} == {
        one.subject for one in between(folder, [found[0].commit], found[1].commit)
    }


def test_trees_tell_what_is_the_same(folder: Path) -> None:
    """By the folder in question."""
    third, merge, fifth = line(folder, "main~3", "main")
    asked = ("main~3", third.commit, merge.commit, fifth.commit)
    docs, whole = trees_of(folder, "docs", asked), trees_of(folder, "", asked)
    assert docs[third.commit] == docs[fifth.commit] != ""
    assert whole[merge.commit] != whole[fifth.commit]
    assert "" == docs["main~3"]
    assert git(folder, "rev-parse", "main~3^{tree}") == whole["main~3"]


@pytest.mark.parametrize(
    ("good", "bad", "said"), [("--all", "main", "--all is no commit"), ("main~1^{tree}", "main", "is no commit")]
)
def test_what_is_no_line_is_refused(folder: Path, good: str, bad: str, said: str) -> None:
    """With the reason."""
    with pytest.raises(LoopError, match=said):
        line(folder, good, bad)


def test_commits_are_read_as_git_shows_them(folder: Path) -> None:
    """Declared and undeclared Latin-1, the mailmap, control characters in a name, and a date that is none."""
    git(folder, "config", "i18n.commitEncoding", "ISO-8859-1")
    (folder / ".mailmap").write_text("Ada L <ada@example.org> <t@example.org>\n")
    where, text = ["-C", str(folder)], "größer".encode("latin-1")
    author = ["-c", "user.name=J\udcf6rg", "-c", "user.email=j@example.org"]
    subprocess.run(["git", *where, *author, "commit", "-q", "--allow-empty", "-F", "-"], input=text, check=True)
    git(folder, "config", "--unset", "i18n.commitEncoding")
    head = git(folder, "cat-file", "commit", "HEAD~1").partition("\n\n")[0].encode()
    odd = re.sub(rb"(?m)^author .*$", lambda _: b"author J\x1f\x1b[31mrg <j@example.org> 99999999999 +0000", head)
    made = subprocess.run(
        ["git", *where, "hash-object", "-t", "commit", "-w", "--stdin", "--literally"],
        input=odd + b"\n\n" + text,
        capture_output=True,
        check=True,
    ).stdout
    declared, undeclared = (one.strip() for one in ("HEAD", made.decode()))
    assert ("größer", "Jörg") == (commit_of(folder, declared).subject, commit_of(folder, declared).author)
    assert ("größer", "J rg") == (commit_of(folder, undeclared).subject, commit_of(folder, undeclared).author)
    assert "Ada L" == commit_of(folder, "HEAD~1").author
