"""The commits between a good and a bad end, and which of them are the same kernel."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.documents import content_hash
from loop.errors import LoopError
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.repository import changes, history
from loop.repository.git import git
from loop.repository.history import Commit
from loop.repository.worktree import top_of


@dataclass(frozen=True)
class Line:
    """The good end, and everything after it up to the bad one."""

    folder: Path
    """The target's folder."""
    good: Candidate
    candidates: tuple[Candidate, ...]
    """Oldest first; the last is the bad end."""
    places: tuple[str, ...] = (".",)
    """Folders that decide what the kernel is, from the repository's top."""

    @property
    def ends(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)

    @property
    def groups(self) -> list[int]:
        """For the good end and each candidate the number of its kernel: neighbours with one tree share it."""
        numbers = [0]
        for before, now in zip(self.ends, self.candidates, strict=False):
            numbers.append(numbers[-1] + (before.tree != now.tree))
        return numbers


def read_line(folder: Path, good: str, bad: str | None, inside: Sequence[str] = (".",)) -> Line:
    """The line between two revisions of a target's repository; without `bad` it ends with what is uncommitted.

    `inside`: folders of the repository, from the target's, that decide what the kernel is. Raises LoopError where
    there is no line, or the repository is in the middle of something.
    """
    top = top_of(folder)
    if top is None:
        raise LoopError(f"{folder} is not under git, or none of it is committed", hint="git init, and commit it")
    refuse_half_done(top)
    places = [os.path.relpath((folder / one).resolve(), top) for one in inside]
    head = history.resolve(top, "HEAD")
    uncommitted = changes(folder, head) if bad is None else {}
    first, last = history.resolve(top, good), history.resolve(top, bad or "HEAD")
    commits = [] if first == last and uncommitted else history.line(top, good, bad or "HEAD")
    found = [candidate(top, one, places) for one in commits]
    if uncommitted:
        found.append(_uncommitted(folder, uncommitted))
    start = Candidate(commit=first, subject=subject_of(top, first), tree=tree_of(top, first, places))
    return Line(folder, start, tuple(found), tuple(places))


def merged_line(line: Line, merge: Candidate) -> Line | None:
    """What a merge brought in, from where its branch began to its end; None for a commit that is no merge."""
    top = top_of(line.folder)
    if not merge.merge or top is None:
        return None
    first, second = (history.resolve(top, f"{merge.commit}^{number}") for number in (1, 2))
    start = git(top, "merge-base", first, second).strip()
    if start == second:
        return None
    commits = history.line(top, start, second)
    places = line.places
    good = Candidate(commit=start, subject=subject_of(top, start), tree=tree_of(top, start, places))
    return Line(line.folder, good, tuple(candidate(top, one, places) for one in commits), places)


def candidate(top: Path, commit: Commit, places: Sequence[str]) -> Candidate:
    """A commit as a candidate."""
    before = commit.parents[0] if commit.parents else ""
    tree = tree_of(top, commit.hash, places)
    return Candidate(
        commit=commit.hash,
        subject=commit.subject,
        author=commit.author,
        when=commit.when,
        merge=commit.merge,
        touches=not before or tree != tree_of(top, before, places),
        tree=tree,
    )


def tree_of(top: Path, commit: str, places: Sequence[str]) -> str:
    """Hash of everything that the kernel is built from at a commit."""
    trees = [history.tree_of(top, commit, "" if place == "." else place) for place in places]
    return content_hash("\0".join(trees))


def subject_of(top: Path, commit: str) -> str:
    """First line of a commit's message."""
    return git(top, "log", "-1", "--format=%s", commit).strip()


def _uncommitted(folder: Path, files: dict[str, int]) -> Candidate:
    """What is in the checkout alone; its tree is the files' contents."""
    contents = []
    for name in sorted(files):
        path = top_path(folder, name)
        contents.append(f"{name}\0{content_hash(path.read_bytes()) if path.is_file() else ''}")
    subject = f"uncommitted changes: {', '.join(sorted(files))}"
    return Candidate(commit=UNCOMMITTED, subject=subject, tree=content_hash("\0".join(contents)))


def top_path(folder: Path, name: str) -> Path:
    """A file that git names from its repository's top."""
    top = top_of(folder)
    assert top is not None
    return top / name


HALF_DONE = {
    "MERGE_HEAD": ("a merge", "git merge --abort"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --abort"),
    "REVERT_HEAD": ("a revert", "git revert --abort"),
    "rebase-merge": ("a rebase", "git rebase --abort"),
    "rebase-apply": ("a rebase", "git rebase --abort"),
}
"""What git leaves in its folder in the middle of something: what that is, and how to end it."""


def refuse_half_done(top: Path) -> None:
    """Raises LoopError in the middle of a merge or a rebase: what is in the checkout is nobody's version."""
    for name, (what, remedy) in HALF_DONE.items():
        place = Path(git(top, "rev-parse", "--git-path", name).strip())
        if (place if place.is_absolute() else top / place).exists():
            raise LoopError(f"{top} is in the middle of {what}", hint=f"finish it, or `{remedy}`")
