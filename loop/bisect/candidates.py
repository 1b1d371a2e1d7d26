"""The commits between a good and a bad end, and which of them are the same kernel.

Commits are the same kernel that hold the same of all that its builds have read. A commit that nobody has built is
compared on what the builds of others read; as soon as it is built, what it reads itself counts too.
"""

import functools
import json
import math
import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed
from loop.library.definitions import read_file
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.repository import changes, reading
from loop.repository.git import git, read_bytes
from loop.repository.worktree import MissingSubmodule, Worktree, top_of
from loop.workers.bench import Bench

TIMES, LEAST_S = 10.0, 30.0
"""A build may take so many times as long as the longest before it, and so long in any case."""
NAMED = 4
"""Files with uncommitted changes that are named; the others are counted."""


class Untestable(Exception):
    """A commit's kernel cannot be built or called: it can be neither good nor bad. The message says why."""


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
    limit_s: float
    """A compiler that takes longer is killed; once something is built, sooner."""
    good: Candidate | None = None
    """The good end: it is built first, and what it takes limits the others."""
    emulated: bool = False
    """Whether it is built to run under the emulator."""
    made: dict[str, Build] = field(default_factory=dict)
    """Tree of a candidate to its build."""
    broken: dict[str, str] = field(default_factory=dict)
    """The same, to why there is none."""
    compiled: int = 0
    """How many were not in the cache."""
    read: set[str] = field(default_factory=set)
    """Files that builds have looked for, by their path from the target's folder."""
    inside: str = "."
    """The target's folder, from the repository's top."""
    outside: bool = False
    """Whether some of them lie beside that folder, in the repository."""
    untold: bool = False
    """Whether a build may rest on more than these."""
    recipes: dict[str, str] = field(default_factory=dict)
    """Text of a manifest to what it says of the build."""

    def build(self, candidate: Candidate) -> Generator[Tick, None, Build]:
        """The build of a candidate. Raises Untestable where there is none."""
        yield from self.prepare([candidate])
        key = self._key(candidate)
        if key in self.broken:
            raise Untestable(self.broken[key])
        return self.made[key]

    def prepare(self, candidates: Sequence[Candidate]) -> Generator[Tick, None, None]:
        """Build what was not tried yet, the good end before anything else; what does not build is noted."""
        first = [self.good] if self.good is not None and not self.made else []
        for candidate in [*first, *candidates]:
            key = self._key(candidate)
            if key not in self.made and key not in self.broken:
                try:
                    made = yield from self._compile(candidate)
                    self.made[self._key(candidate)] = made
                except Untestable as untestable:
                    self.broken[self._key(candidate)] = str(untestable)

    def _compile(self, candidate: Candidate) -> Generator[Tick, None, Build]:
        folder, bench = self.bench.folder, self.bench
        if candidate.commit != UNCOMMITTED:
            check_out(self.tree, candidate)
            folder = self.tree.target
        variant = self._recipe(folder)
        took = max((library.seconds for library in self.made.values()), default=math.inf)
        limit_s, places = (
            min(self.limit_s, max(LEAST_S, TIMES * took)),
            {"cache": bench.cache, "include": bench.include},
        )
        try:
            library = yield from build.build(self.variant, variant, folder, limit_s=limit_s, **places)
        except BuildFailed as failed:
            today = bench.target.variants[self.variant]
            recipe = (
                (today.emulation if self.emulated else today.build) if isinstance(today, CAbiVariant) else None
            )
            # Where today's compiler is missing nothing can be built; another one is a commit's own affair.
            is_todays = recipe and isinstance(variant, CAbiVariant) and variant.build.compiler == recipe.compiler
            if failed.no_compiler and is_todays:
                raise WorkFailed(failed.message, failed.hint) from failed
            lacks = self.tree.lacks() if candidate.commit != UNCOMMITTED else ""
            raise Untestable("; ".join(filter(None, (f"does not build: {failed.message}", lacks)))) from failed
        self.compiled += not library.cached
        names = build.files_read(variant, folder, **places)
        self.untold = self.untold or names is None
        top = os.path.realpath(os.path.join(folder, os.path.relpath(".", self.inside)))
        for name in names or ():  # Of links also where they lead.
            path, place = os.path.normpath(folder / name), os.path.realpath(folder / name)
            beside = os.path.relpath(place, os.path.realpath(folder))
            self.read |= {os.path.relpath(path, folder), beside}
            self.outside |= beside.startswith("..") and place.startswith(f"{top}/") and os.path.isfile(place)
        return library

    def _key(self, candidate: Candidate) -> str:
        """What tells builds apart: the folder's tree, or the commit where files beside the folder count."""
        return candidate.commit if self.outside else candidate.tree

    def fails(self, candidate: Candidate) -> bool:
        """Whether it was tried and has no build."""
        return self._key(candidate) in self.broken

    def recipe_of(self, manifest: bytes) -> str:
        """What a manifest says of the build; of one that cannot be read, a hash of its text."""
        text = manifest.decode(errors="replace")
        if text not in self.recipes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / MANIFEST
                path.write_bytes(manifest)
                try:
                    target = read_file(path, Target).value
                    terms = target.model_dump(mode="json", include={"tuning", "devices"})
                    variant = target.variants[self.variant].model_dump(mode="json", exclude={"title"})
                    self.recipes[text] = json.dumps([terms, variant], sort_keys=True)
                except (LoopError, KeyError):
                    self.recipes[text] = content_hash(manifest)
        return self.recipes[text]

    def _recipe(self, folder: Path) -> Buildable:
        """The variant as that commit's own manifest builds it."""
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
    head = reading.resolve(top, "HEAD")
    uncommitted = (changes(folder, head) if bad is None else None) or {}
    first, last = reading.resolve(top, good), reading.resolve(top, bad or "HEAD")
    commits = [] if first == last and uncommitted else reading.line(top, good, bad or "HEAD")
    every = _candidates(folder, top, [reading.commit(top, first), *commits], whole=whole)
    line = Line(folder, top, every[0], tuple(every[1:]), whole=whole)
    if not uncommitted:
        return line
    edited = reading.objects_of(top, sorted(uncommitted))
    names = list(edited)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    subject = f"uncommitted changes: {', '.join(names[:NAMED])}{more}"
    tree = content_hash([text for row in edited.items() for text in row])
    last_one = Candidate(commit=UNCOMMITTED, subject=subject, tree=tree)
    return replace(line, candidates=(*line.candidates, last_one), edited=tuple(edited.items()))


def merged_lines(line: Line, merge: Candidate, *, joined: bool) -> list[Line]:
    """What a merge of the line brought to the commit before it: each branch from where it left what is good.

    None for a commit that is no merge. Where the line begins on a branch this may be what the main line had.
    `joined`: the first of them alone, and with the merge as its bad end.
    """
    if not merge.merge:
        return []
    known, lines = (line.before(merge).commit, *line.known), []
    for parent in reading.commit(line.top, merge.commit).parents:
        if not any(reading.is_ancestor(line.top, parent, good) for good in known):
            start = git(line.top, "merge-base", parent, *known).split()[0]
            commits = [reading.commit(line.top, start), *reading.line(line.top, start, parent)]
            good, *others = _candidates(line.folder, line.top, commits, whole=line.whole)
            others += [merge] if joined else []
            lines.append(Line(line.folder, line.top, good, tuple(others), known, whole=line.whole))
    return lines[:1] if joined else lines


def with_branches(line: Line, run: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A run of the line's commits, oldest first, with all that the merges among them brought."""
    committed = [candidate for candidate in run if candidate.commit != UNCOMMITTED]
    if not any(candidate.merge for candidate in committed):
        return tuple(run)
    brought = reading.between(line.top, (line.before(run[0]).commit, *line.known), committed[-1].commit)
    return (*_candidates(line.folder, line.top, brought, whole=line.whole), *run[len(committed) :])


def _candidates(folder: Path, top: Path, commits: Sequence[Candidate], *, whole: bool) -> list[Candidate]:
    """Commits with what the kernel is built from at each of them."""
    inside = os.path.relpath(folder.resolve(), top)
    place = "" if inside == "." else inside
    names = [name for commit in commits for name in (commit.commit, *commit.parents[:1])]
    trees = reading.trees_of(top, place, names)
    whole_trees = reading.trees_of(top, "", names) if whole and place else trees
    candidates = []
    for commit in commits:
        touches = not commit.parents or trees[commit.commit] != trees[commit.parents[0]]
        tree = content_hash(whole_trees[commit.commit])
        candidates.append(commit.model_copy(update={"touches": touches, "tree": tree}))
    return candidates


Held = dict[str, str]
"""Path from the repository's top to the object that a commit has there."""


def kernels(line: Line, builder: Builder) -> tuple[str, ...]:
    """Of the good end and each candidate the name of its kernel.

    Until something was built, and of a commit that does not build, that is the folder's tree.
    """
    if not builder.read or builder.untold:
        return tuple(candidate.tree for candidate in line.ends)
    committed = tuple(candidate.commit for candidate in line.ends if candidate.commit != UNCOMMITTED)
    changes = [*_changes(line.top, committed), *([dict(line.edited)] if line.edited else [])]
    manifest, counts = os.path.normpath(os.path.join(line.inside, MANIFEST)), set[str]()
    for name in (MANIFEST, *builder.read):  # And all folders that it lies in: a submodule, or a link.
        path = os.path.normpath(os.path.join(line.inside, name))
        while path not in counts and path not in ("", "/"):
            counts.add(path)
            path = os.path.dirname(path)
    held, names = Held(), list[str]()
    for candidate, changed in zip(line.ends, changes, strict=True):
        held |= {path: changed[path] for path in changed.keys() & counts}
        blob, recipe = held.get(manifest, ""), ""
        if candidate.commit == UNCOMMITTED and (line.folder / MANIFEST).is_file():
            recipe = builder.recipe_of((line.folder / MANIFEST).read_bytes())
        elif blob:
            recipe = builder.recipe_of(_blob(line.top, blob))
        rest = sorted((path, what) for path, what in held.items() if what and path != manifest)
        name = content_hash([recipe, *(text for row in rest for text in row)])
        names.append(candidate.tree if builder.fails(candidate) else name)
    return tuple(names)


@functools.lru_cache(256)
def _blob(top: Path, blob: str) -> bytes:
    return read_bytes(top, "cat-file", "blob", blob)


@functools.lru_cache(8)
def _changes(top: Path, commits: tuple[str, ...]) -> tuple[Mapping[str, str], ...]:
    """What the first commit holds, and what each other one has in its place."""
    return reading.held(top, commits[0]), *reading.changed_objects(top, commits)


def sources(line: Line, builder: Builder) -> list[str]:
    """Files of the target's folder that its kernel is built from, as the good end has them."""
    there = _changes(line.top, (line.good.commit,))[0]
    return sorted(name for name in builder.read if os.path.normpath(os.path.join(line.inside, name)) in there)
