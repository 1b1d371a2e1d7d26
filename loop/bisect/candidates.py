"""The commits between a good and a bad end, and which of them are the same kernel."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import UsageError
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
    known: tuple[str, ...] = ()
    """Commits beside the line that are good: what they have is not to blame."""
    innocent: tuple[str, ...] = ()
    """Candidates that are good as well, though they cannot be tried."""

    @property
    def ends(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)

    def before(self, one: Candidate) -> Candidate:
        """The good end or candidate before a candidate."""
        return self.ends[self.ends.index(one) - 1]

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
        raise UsageError(f"{folder} is not under git, or none of it is committed", hint="git init, and commit it")
    refuse_half_done(top)
    places = [os.path.relpath((folder / one).resolve(), top) for one in inside]
    head = history.resolve(top, "HEAD")
    uncommitted = changes(folder, head) if bad is None else {}
    first, last = history.resolve(top, good), history.resolve(top, bad or "HEAD")
    commits = [] if first == last and uncommitted else history.line(top, good, bad or "HEAD")
    found = candidates_of(top, commits, places)
    if uncommitted:
        found.append(_uncommitted(folder, uncommitted))
    return Line(folder, candidate(top, first, places), tuple(found), tuple(places))


def merged_lines(line: Line, merge: Candidate, *, joined: bool) -> list[Line]:
    """What a merge of the line brought to the commit before it: each branch from where it began to its end.

    None for a commit that is no merge. Where the line begins on a branch this may be what the main line had.
    `joined`: the first of them alone, and with the merge as its bad end.
    """
    top = top_of(line.folder)
    if not merge.merge or top is None:
        return []
    known = (line.before(merge).commit, *line.known)
    parents = git(top, "rev-list", "--parents", "-1", merge.commit).split()[1:]
    new = [one for one in parents if not any(history.is_ancestor(top, one, good) for good in known)]
    found = [_branch(line, top, known, one) for one in new]
    return [replace(one, candidates=(*one.candidates, merge)) for one in found[:1]] if joined else found


def _branch(line: Line, top: Path, known: tuple[str, ...], last: str) -> Line:
    """The line to a parent of a merge from where it left what is known to be good."""
    start, places = git(top, "merge-base", last, *known).split()[0], line.places
    commits = candidates_of(top, history.line(top, start, last), places)
    return Line(line.folder, candidate(top, start, places), tuple(commits), places, known)


def earlier(line: Line) -> Line | None:
    """The same line from one commit before its good end, which is good but cannot be tried; None at the first."""
    top = top_of(line.folder)
    parents = git(line.folder, "rev-list", "--parents", "-1", line.good.commit).split()[1:]
    if top is None or not parents:
        return None
    good = candidate(top, parents[0], line.places)
    innocent = (line.good.commit, *line.innocent)
    return replace(line, good=good, candidates=(line.good, *line.candidates), innocent=innocent)


def with_branches(line: Line, run: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A run of the line's commits, oldest first, with all that the merges among them brought."""
    top, committed = top_of(line.folder), [one for one in run if one.commit != UNCOMMITTED]
    if top is None or not any(one.merge for one in committed):
        return tuple(run)
    found = history.between(top, (line.before(run[0]).commit, *line.known), committed[-1].commit)
    return (*candidates_of(top, found, line.places), *run[len(committed) :])


def candidates_of(top: Path, commits: Sequence[Commit], places: Sequence[str]) -> list[Candidate]:
    """Commits as candidates."""
    names = [name for one in commits for name in (one.hash, *one.parents[:1])]
    folders = ["" if place == "." else place for place in places]
    trees = history.trees_of(top, ((name, folder) for name in names for folder in folders))
    whole = {name: content_hash("\0".join(trees[name, folder] for folder in folders)) for name in names}
    return [
        Candidate(
            commit=one.hash,
            subject=one.subject,
            author=one.author,
            when=one.when,
            merge=one.merge,
            touches=not one.parents or whole[one.hash] != whole[one.parents[0]],
            tree=whole[one.hash],
        )
        for one in commits
    ]


def candidate(top: Path, name: str, places: Sequence[str]) -> Candidate:
    """The commit of that name as a candidate."""
    return candidates_of(top, [history.commit(top, name)], places)[0]


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
            raise UsageError(f"{top} is in the middle of {what}", hint=f"finish it, or `{remedy}`")
