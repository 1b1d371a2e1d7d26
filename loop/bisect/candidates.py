"""The commits between a good and a bad end, and which of them are the same program.

Commits are the same program that hold the same of all that its builds have read. A commit that nobody has built is
compared on what the builds of others read; as soon as it is built, what it reads itself counts too.
"""

import contextlib
import functools
import json
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop.base.documents import content_hash, load_yaml, parse
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed
from loop.library.definitions import read_file
from loop.library.earlier import upgrade
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.repository import changes, reading
from loop.repository.git import git, read_bytes
from loop.repository.worktree import MissingSubmodule, Worktree, top_of
from loop.workers.bench import Bench

BUILD_LIMIT_S = 600.0
NAMED = 4
"""Files with uncommitted changes that are named; the others are counted."""
GOOD_ENDS = 3
"""Commits of earlier sessions that are tried as a good end."""


class Untestable(Exception):
    """A commit's kernel cannot be built or called: it can be neither good nor bad. The message says why."""


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

    @property
    def ends(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)

    @functools.cached_property
    def held(self) -> list[dict[str, str]]:
        """Path to object: all that the good end holds; of each candidate what differs from the one before."""
        commits = [candidate.commit for candidate in self.ends if candidate.commit != UNCOMMITTED]
        rows = [reading.objects_of_commit(self.top, commits[0]), *reading.changed_objects(self.top, commits)]
        return [*rows, dict(self.edited)] if self.edited else rows

    def before(self, candidate: Candidate) -> Candidate:
        """The good end or candidate before a candidate."""
        return self.ends[self.ends.index(candidate) - 1]

    def path(self, name: str) -> str:
        """A path from the target's folder as one from the top."""
        return os.path.normpath(os.path.join(os.path.relpath(self.folder.resolve(), self.top), name))


def read_line(folder: Path, good: str, bad: str | None) -> Line:
    """The line between two revisions of a target's repository; without `bad` it ends with what is uncommitted.

    Raises LoopError where there is no line.
    """
    if not good:
        raise UsageError("no good revision to begin from", hint="loop bisect --good REV")
    top = top_of(folder)
    if top is None:
        raise UsageError(f"{folder} is not under git, or none of it is committed", hint="git init, and commit it")
    first, last = reading.resolve(top, good), reading.resolve(top, bad or "HEAD")
    uncommitted = (changes(folder, last) if bad is None else None) or {}
    commits = [] if first == last and uncommitted else reading.first_parents(top, good, bad or "HEAD")
    line = Line(folder, top, reading.commit(top, first), tuple(commits))
    if not uncommitted:
        return line
    edited = tuple(reading.objects_of(top, sorted(uncommitted)).items())
    more = f" and {len(edited) - NAMED} more" if len(edited) > NAMED else ""
    subject = f"uncommitted changes: {', '.join(name for name, _ in edited[:NAMED])}{more}"
    tree = content_hash([text for row in edited for text in row])
    checkout = Candidate(commit=UNCOMMITTED, subject=subject, tree=tree)
    return replace(line, candidates=(*line.candidates, checkout), edited=edited)


def lines_from(folder: Path, commits: Iterable[str | None], bad: str | None = None) -> tuple[list[Line], str]:
    """The lines from the first of these commits that can be a good end; why not from the others."""
    lines, why = list[Line](), ""
    for commit in dict.fromkeys(filter(None, commits)):
        try:
            lines.append(read_line(folder, commit, bad))
        except LoopError as error:
            why = why or error.message
        if len(lines) == GOOD_ENDS:
            break
    return lines, why


def merged_lines(line: Line, merge: Candidate, *, joined: bool) -> list[Line]:
    """What a merge of the line brought to the commit before it: each branch from where it left what is good.

    None for a commit that is no merge. Where the line begins on a branch this may be what the main line had.
    `joined`: the first of them alone, and with the merge as its bad end.
    """
    known, lines = (line.before(merge).commit, *line.known), list[Line]()
    for parent in merge.parents if merge.merge else ():
        if not any(reading.is_ancestor(line.top, parent, good) for good in known):
            start = git(line.top, "merge-base", parent, *known).split()[0]
            commits = [*reading.first_parents(line.top, start, parent), *([merge] if joined else [])]
            lines.append(Line(line.folder, line.top, reading.commit(line.top, start), tuple(commits), known))
    return lines[:1] if joined else lines


def with_branches(line: Line, run: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A run of the line's commits, oldest first, with all that the merges among them brought."""
    committed = [candidate for candidate in run if candidate.commit != UNCOMMITTED]
    if not any(candidate.merge for candidate in committed):
        return tuple(run)
    known = (line.before(run[0]).commit, *line.known)
    return (*reading.commits_between(line.top, known, committed[-1].commit), *run[len(committed) :])


def check_out(tree: Worktree, candidate: Candidate) -> None:
    """Let a worktree hold a candidate. Raises Untestable where a submodule of it is not there."""
    try:
        tree.check_out(candidate.commit)
    except MissingSubmodule as gone:
        raise Untestable(f"{gone.message}: {gone.hint}") from gone


@dataclass
class Builder:
    """Builds of one variant through history."""

    bench: Bench
    """The target as it is today, in the user's checkout."""
    tree: Worktree
    """Where commits are checked out."""
    variant: str
    emulated: bool = False
    """Whether it is built to run under the emulator."""
    builds: dict[str, Build | str] = field(default_factory=dict)
    """Tree of a candidate to its build, or to why there is none."""
    read: set[str] = field(default_factory=set)
    """Files that builds have looked for, by their path from the target's folder."""
    recipes: dict[str, str] = field(default_factory=dict)
    """A manifest's object to what it says of the build."""

    def build(self, candidate: Candidate) -> Generator[Tick, None, Build]:
        """The build of a candidate. Raises Untestable where there is none."""
        if candidate.tree not in self.builds:
            try:
                self.builds[candidate.tree] = yield from self._compile(candidate)
            except Untestable as why:
                self.builds[candidate.tree] = str(why)
        result = self.builds[candidate.tree]
        if isinstance(result, str):
            raise Untestable(result)
        return result

    def _compile(self, candidate: Candidate) -> Generator[Tick, None, Build]:
        bench, folder, lacks = self.bench, self.bench.folder, ""
        if candidate.commit != UNCOMMITTED:
            check_out(self.tree, candidate)
            folder, lacks = self.tree.target, self.tree.lacks()
        variant = self._variant_in(folder)
        places = {"cache": bench.cache, "include": bench.include}
        try:
            result = yield from build.build(self.variant, variant, folder, limit_s=BUILD_LIMIT_S, **places)
        except BuildFailed as failed:
            today = bench.target.variants[self.variant]
            recipe = (
                (today.emulation if self.emulated else today.build) if isinstance(today, CAbiVariant) else None
            )
            # Where today's compiler is missing nothing can be built; another one is a commit's own affair.
            is_todays = recipe and isinstance(variant, CAbiVariant) and variant.build.compiler == recipe.compiler
            if failed.no_compiler and is_todays:
                raise WorkFailed(failed.message, failed.hint) from failed
            raise Untestable("; ".join(filter(None, (f"does not build: {failed.message}", lacks)))) from failed
        names = build.files_read(variant, folder, **places)
        if names is None:
            raise Untestable("its files change while it is built")
        for name in names:  # Of links also where they lead.
            path, place = os.path.normpath(folder / name), os.path.realpath(folder / name)
            self.read |= {os.path.relpath(path, folder), os.path.relpath(place, os.path.realpath(folder))}
        return result

    def _variant_in(self, folder: Path) -> Buildable:
        """The variant as the manifest in a folder builds it."""
        if not (folder / MANIFEST).is_file():
            raise Untestable(f"it has no {MANIFEST}")
        try:
            target = read_file(folder / MANIFEST, Target).value
        except LoopError as error:
            raise Untestable(f"its {MANIFEST} cannot be read: {error.message.splitlines()[0]}") from error
        variant = target.variants.get(self.variant)
        if not isinstance(variant, Buildable):
            raise Untestable(f"it has no variant {self.variant} that is built")
        if self.emulated:
            if self.variant not in target.emulated:
                raise Untestable(f"its {self.variant} cannot be emulated")
            return target.emulation(self.variant)
        if variant.device not in (self.bench.device, "any"):
            raise Untestable(f"its {self.variant} runs on {variant.device}")
        if isinstance(variant, PythonVariant):
            return variant
        return target.compiled(self.variant, self.bench.architecture)

    def recipe(self, line: Line, manifest: str) -> str:
        """What a manifest, known by its object, says of the build; the object where it cannot be read."""
        if manifest and manifest not in self.recipes:
            self.recipes[manifest] = manifest
            is_edited = manifest in dict(line.edited).values()  # Then git does not have it.
            content = (
                (line.folder / MANIFEST).read_bytes()
                if is_edited
                else read_bytes(line.top, "cat-file", "blob", manifest)
            )
            with contextlib.suppress(LoopError, KeyError):
                document = load_yaml(content.decode(errors="replace"))
                target = parse(Target, replace(document, data=upgrade(Target, document.data)))
                terms = target.model_dump(mode="json", include={"tuning", "devices"})
                variant = target.variants[self.variant].model_dump(mode="json", exclude={"title"})
                self.recipes[manifest] = json.dumps([terms, variant], sort_keys=True)
        return self.recipes.get(manifest, "")


def program_names(line: Line, builder: Builder | None) -> tuple[str, ...]:
    """Of the good end and each candidate the name of its program.

    That is the repository's tree where nobody builds it, until something was built, and of what does not build.
    """
    if builder is None or not builder.read:
        return tuple(candidate.tree for candidate in line.ends)
    manifest, counts = line.path(MANIFEST), set[str]()
    for name in (MANIFEST, *builder.read):  # And all folders that it lies in: a submodule, or a link.
        path = line.path(name)
        while path not in counts and path not in ("", "/"):
            counts.add(path)
            path = os.path.dirname(path)
    held, names = dict[str, str](), list[str]()
    for candidate, changed in zip(line.ends, line.held, strict=True):
        held |= {path: changed[path] for path in changed.keys() & counts}
        recipe = builder.recipe(line, held.get(manifest, ""))
        rest = sorted((path, what) for path, what in held.items() if what and path != manifest)
        name = content_hash([recipe, *(text for row in rest for text in row)])
        names.append(candidate.tree if isinstance(builder.builds.get(candidate.tree), str) else name)
    return tuple(names)


def sources(line: Line, builder: Builder) -> list[str]:
    """Files of the target's folder that its kernel is built from, as the good end has them."""
    return sorted(name for name in builder.read if line.path(name) in line.held[0])
