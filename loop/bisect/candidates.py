"""The commits between a good and a bad end, and which of them are the same kernel.

Commits are the same kernel that hold the same of all that its builds have read. A commit that nobody has built is
compared on what the builds of others read; as soon as it is built, what it reads itself counts too.
"""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.bisect.builds import Builder
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.repository import changes, history
from loop.repository.git import git, read_bytes
from loop.repository.history import Commit
from loop.repository.worktree import top_of


@dataclass(frozen=True)
class Line:
    """The good end, and everything after it up to the bad one."""

    folder: Path
    """The target's folder, which decides what the kernel is."""
    top: Path
    """The repository's top."""
    good: Candidate
    candidates: tuple[Candidate, ...]
    """Oldest first; the last is the bad end."""
    known: tuple[str, ...] = ()
    """Commits beside the line that are good: what they have is not to blame."""
    edited: tuple[tuple[str, str], ...] = ()
    """Files that are not as committed, by their path from the top, and the objects they would be."""
    whole: bool = False
    """Whether anything in the repository may matter, as to a command; else what is below the folder does."""

    @property
    def inside(self) -> str:
        """The target's folder, from the top."""
        return os.path.relpath(self.folder.resolve(), self.top)

    @property
    def ends(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)

    def before(self, candidate: Candidate) -> Candidate:
        """The good end or candidate before a candidate."""
        return self.ends[self.ends.index(candidate) - 1]


def read_line(folder: Path, good: str, bad: str | None, *, whole: bool = False) -> Line:
    """The line between two revisions of a target's repository; without `bad` it ends with what is uncommitted.

    Raises LoopError where there is no line.
    """
    if not good:
        raise UsageError("no good revision to begin from", hint="loop bisect --good REV")
    top = top_of(folder)
    if top is None:
        raise UsageError(f"{folder} is not under git, or none of it is committed", hint="git init, and commit it")
    head = history.resolve(top, "HEAD")
    uncommitted = (changes(folder, head) if bad is None else None) or {}
    first, last = history.resolve(top, good), history.resolve(top, bad or "HEAD")
    commits = [] if first == last and uncommitted else history.line(top, good, bad or "HEAD")
    every = _candidates(folder, top, [history.commit(top, first), *commits], whole=whole)
    line = Line(folder, top, every[0], tuple(every[1:]), whole=whole)
    if uncommitted:
        edited = history.objects_of(top, sorted(uncommitted))
        last_one = _uncommitted(edited)
        line = replace(line, candidates=(*line.candidates, last_one), edited=tuple(edited.items()))
    return line


def merged_lines(line: Line, merge: Candidate, *, joined: bool) -> list[Line]:
    """What a merge of the line brought to the commit before it: each branch from where it began to its end.

    None for a commit that is no merge. Where the line begins on a branch this may be what the main line had.
    `joined`: the first of them alone, and with the merge as its bad end.
    """
    if not merge.merge:
        return []
    known = (line.before(merge).commit, *line.known)
    parents = history.commit(line.top, merge.commit).parents
    new = [one for one in parents if not any(history.is_ancestor(line.top, one, good) for good in known)]
    lines = [_branch(line, known, one) for one in new]
    return [replace(one, candidates=(*one.candidates, merge)) for one in lines[:1]] if joined else lines


def _branch(line: Line, known: tuple[str, ...], last: str) -> Line:
    """The line to a parent of a merge from where it left what is known to be good."""
    start = git(line.top, "merge-base", last, *known).split()[0]
    commits = [history.commit(line.top, start), *history.line(line.top, start, last)]
    good, *others = _candidates(line.folder, line.top, commits, whole=line.whole)
    return Line(line.folder, line.top, good, tuple(others), known, whole=line.whole)


def with_branches(line: Line, run: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A run of the line's commits, oldest first, with all that the merges among them brought."""
    committed = [candidate for candidate in run if candidate.commit != UNCOMMITTED]
    if not any(candidate.merge for candidate in committed):
        return tuple(run)
    brought = history.between(line.top, (line.before(run[0]).commit, *line.known), committed[-1].commit)
    return (*_candidates(line.folder, line.top, brought, whole=line.whole), *run[len(committed) :])


def _candidates(folder: Path, top: Path, commits: Sequence[Commit], *, whole: bool) -> list[Candidate]:
    """Commits as candidates."""
    inside = os.path.relpath(folder.resolve(), top)
    place = "" if inside == "." else inside
    names = [name for commit in commits for name in (commit.hash, *commit.parents[:1])]
    trees = history.trees_of(top, place, names)
    whole_trees = history.trees_of(top, "", names) if whole and place else trees
    return [
        Candidate(
            commit=commit.hash,
            subject=commit.subject,
            author=commit.author,
            when=commit.when,
            merge=commit.merge,
            touches=not commit.parents or trees[commit.hash] != trees[commit.parents[0]],
            tree=content_hash(whole_trees[commit.hash]),
        )
        for commit in commits
    ]


NAMED = 4
"""Files with uncommitted changes that are named; the others are counted."""


def _uncommitted(edited: Mapping[str, str]) -> Candidate:
    """What is in the checkout alone: files and the objects they would be."""
    names = list(edited)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    subject = f"uncommitted changes: {', '.join(names[:NAMED])}{more}"
    return Candidate(
        commit=UNCOMMITTED, subject=subject, tree=content_hash([text for row in edited.items() for text in row])
    )


Held = dict[str, str]
"""Path from the repository's top to the object that a commit has there."""


def kernels(line: Line, builder: Builder) -> tuple[str, ...]:
    """Of the good end and each candidate the name of its kernel.

    Until something was built, and of a commit that does not build, that is the folder's tree.
    """
    if not builder.read or builder.untold:
        return tuple(candidate.tree for candidate in line.ends)
    held, names = Held(), list[str]()
    manifest = _path(line, MANIFEST)
    counts = {manifest, *_with_folders(_path(line, name) for name in builder.read)}
    for candidate, changed in zip(line.ends, _changes(line), strict=True):
        held |= {path: changed[path] for path in changed.keys() & counts}
        blob = held.get(manifest, "")
        recipe = builder.recipe_of(functools.partial(_text, line, candidate.commit, blob), blob) if blob else ""
        rest = sorted((path, what) for path, what in held.items() if what and path != manifest)
        name = content_hash([recipe, *(text for row in rest for text in row)])
        names.append(candidate.tree if builder.fails(candidate) else name)
    return tuple(names)


def _path(line: Line, name: str) -> str:
    """From the top, of a file that is named from the target's folder."""
    return os.path.normpath(os.path.join(line.inside, name))


def _with_folders(paths: Iterable[str]) -> set[str]:
    """Paths and all folders that they lie in: one of these may be a submodule, or a link."""
    whole: set[str] = set()
    for path in paths:
        while path not in whole and path not in ("", "/"):
            whole.add(path)
            path = os.path.dirname(path)
    return whole


def sources(line: Line, builder: Builder) -> list[str]:
    """Files of the target's folder that its kernel is built from, as the good end has them."""
    there = _committed(line.top, (line.good.commit,))[0]
    return sorted(name for name in builder.read if _path(line, name) in there)


def _text(line: Line, commit: str, blob: str) -> bytes:
    """The manifest at a commit."""
    if commit == UNCOMMITTED and (line.folder / MANIFEST).is_file():
        return (line.folder / MANIFEST).read_bytes()
    return read_bytes(line.top, "cat-file", "blob", blob)


def _changes(line: Line) -> Iterable[Mapping[str, str]]:
    """What the good end holds, and what each candidate has in its place."""
    committed = tuple(candidate.commit for candidate in line.ends if candidate.commit != UNCOMMITTED)
    changes = _committed(line.top, committed)
    return changes if len(committed) == len(line.ends) else (*changes, dict(line.edited))


@functools.lru_cache(8)
def _committed(top: Path, commits: tuple[str, ...]) -> tuple[Mapping[str, str], ...]:
    return history.held(top, commits[0]), *history.changes(top, commits)
