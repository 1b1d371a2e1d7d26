"""The commits between a good and a bad end, and which of them build the same program.

Two commits are the same program if their builds have one id, which covers all files that a build reads and all
that the manifest says of it. A commit that was not built yet counts as a program of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Waiting
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed
from loop.library.definitions import read_file
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.repository import reading
from loop.repository.reading import changed_lines, git
from loop.repository.worktree import MissingSubmodule, Worktree, require_repository
from loop.workers.bench import Bench

BUILD_LIMIT_S = 600.0
MOST_NAMED_FILES = 4  # Most files with uncommitted changes that a message names; it counts the others.


class Untestable(Exception):
    """A commit's kernel cannot be built or called: it can be neither good nor bad. The message says why."""


@dataclass(frozen=True)
class CommitLine:
    """The good end, and all later commits up to the bad end."""

    folder: Path  # The target's folder: contains the manifest and the kernel.
    top: Path  # The repository's top.
    good: Candidate
    candidates: tuple[Candidate, ...]  # Oldest first; the last is the bad end.
    other_good: tuple[str, ...] = ()
    """Other good commits, not on the line: their ancestors are not searched."""

    @property
    def commits(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)


def read_commits(folder: Path, good: str, bad: str | None) -> CommitLine:
    """The commits from `good` to `bad`, along first parents. If `bad` is None: to `HEAD`, and to
    uncommitted changes, if any. Raises LoopError if there is nothing to search."""
    if not good:
        raise UsageError("no good revision to begin from", hint="loop bisect --good REV")
    top = require_repository(folder)
    good_commit, bad_commit = reading.resolve_revision(top, good), reading.resolve_revision(top, bad or "HEAD")
    uncommitted = changed_lines(folder, bad_commit) if bad is None else {}
    commits: Sequence[Candidate] = ()
    if good_commit != bad_commit or not uncommitted:  # Raises if they are equal: nothing to search.
        commits = reading.first_parent_commits(top, good, bad or "HEAD")
    line = CommitLine(folder, top, reading.read_commit(top, good_commit), tuple(commits))
    if not uncommitted:
        return line
    names = sorted(uncommitted)
    subject = f"uncommitted changes: {', '.join(names[:MOST_NAMED_FILES])}"
    if len(names) > MOST_NAMED_FILES:
        subject += f" and {len(names) - MOST_NAMED_FILES} more"
    checkout = Candidate(commit=UNCOMMITTED, subject=subject, tree=UNCOMMITTED)
    return replace(line, candidates=(*line.candidates, checkout))


def branches_of_merge(line: CommitLine, merge: Candidate, *, joined: bool) -> list[CommitLine]:
    """The branches that a merge joined to the line, from where each left the good commits; empty for no merge.
    One may be the main line, if the good end lies on a branch. `joined`: only the first branch, with the merge
    as its bad end, because a failure may need both sides."""
    before_merge = line.commits[line.commits.index(merge) - 1]
    good_commits = (before_merge.commit, *line.other_good)
    branches: list[CommitLine] = []
    for parent in merge.parents if merge.merge else ():
        if any(reading.is_ancestor(line.top, parent, good) for good in good_commits):
            continue
        start = git(line.top, "merge-base", parent, *good_commits).split()[0]
        commits = reading.first_parent_commits(line.top, start, parent)
        candidates = (*commits, merge) if joined else tuple(commits)
        good = reading.read_commit(line.top, start)
        branches.append(CommitLine(line.folder, line.top, good, candidates, good_commits))
    return branches[:1] if joined else branches


def check_out(tree: Worktree, candidate: Candidate) -> None:
    """Check out a candidate in a worktree. Raises Untestable if a submodule is missing."""
    try:
        tree.check_out(candidate.commit)
    except MissingSubmodule as missing:
        raise Untestable(f"{missing.message}: {missing.hint}") from missing


@dataclass
class Builder:
    """Builds one variant at any commit, and caches the builds."""

    bench: Bench  # Today's target, in the user's checkout.
    worktree: Worktree  # The worktree for commits.
    variant: str
    emulated: bool = False  # Whether to build for the emulator.
    build_by_tree: dict[str, Build | str] = field(default_factory=dict)
    """Tree hash of a candidate to its build, or to the reason for its failure."""

    def build(self, candidate: Candidate, *, compiles: bool = True) -> Waiting[Build]:
        """The build of a candidate; each tree is tried once. Raises Untestable if it does not build. Without
        `compiles` only from the cache: raises Untestable if it is not there."""
        if candidate.tree not in self.build_by_tree:
            try:
                self.build_by_tree[candidate.tree] = yield from self._compile(candidate, compiles)
            except Untestable as untestable:
                if not compiles:
                    raise
                self.build_by_tree[candidate.tree] = str(untestable)
        build_or_reason = self.build_by_tree[candidate.tree]
        if isinstance(build_or_reason, str):
            raise Untestable(build_or_reason)
        return build_or_reason

    def _compile(self, candidate: Candidate, compiles: bool) -> Waiting[Build]:
        """Build a candidate as `build`. Raises Untestable; WorkFailed without today's compiler."""
        bench, folder, warning = self.bench, self.bench.folder, ""
        if candidate.commit != UNCOMMITTED:
            check_out(self.worktree, candidate)
            folder, warning = self.worktree.target, self.worktree.describe_empty_submodules()
            warning = warning or self.worktree.describe_ignored_sources()
        variant = self._variant_in(folder)
        places = {"cache": bench.cache, "include": bench.include}
        needs_compiler = None if compiles or isinstance(variant, PythonVariant) else variant
        if needs_compiler and not build.find_build(self.variant, needs_compiler, folder, **places):
            raise Untestable("it was not built yet")
        try:
            return (yield from build.build(self.variant, variant, folder, limit_s=BUILD_LIMIT_S, **places))
        except BuildFailed as failure:
            # Another missing compiler than today's concerns this commit alone.
            if failure.no_compiler and self._compiler_in(folder) == self._compiler_in(bench.folder):
                raise WorkFailed(failure.message, failure.hint) from failure
            raise Untestable(f"does not build: {failure.message}{f'; {warning}' if warning else ''}") from failure

    def _compiler_in(self, folder: Path) -> str:
        """The compiler of the variant as the manifest in this folder defines it; empty for Python."""
        variant = self._variant_in(folder)
        return variant.build.compiler if isinstance(variant, CAbiVariant) else ""

    def _variant_in(self, folder: Path) -> Buildable:
        """The variant as the manifest in this folder defines it. Raises Untestable without one to build."""
        if not (folder / MANIFEST).is_file():
            raise Untestable(f"it has no {MANIFEST}")
        try:
            target = read_file(folder / MANIFEST, Target).value
        except LoopError as error:
            raise Untestable(f"its {MANIFEST} cannot be read: {error.message.splitlines()[0]}") from error
        variant, device = target.variants.get(self.variant), self.bench.device
        if self.emulated and self.variant in target.emulated_variants:
            return target.emulated_variant(self.variant)
        if not self.emulated and getattr(variant, "device", "") in (device, "any"):
            if isinstance(variant, PythonVariant):
                return variant
            if isinstance(variant, CAbiVariant):
                return target.compiled_variant(self.variant, self.bench.architecture)
        purpose = "the emulator" if self.emulated else device
        raise Untestable(f"it has no variant {self.variant} that is built for {purpose}")


def name_programs(line: CommitLine, builder: Builder | None) -> tuple[str, ...]:
    """A name for the program of the good end and of each candidate; equal names, equal programs. The id of its
    build; before a build, or if it fails, the hash of all files."""
    builds = [builder.build_by_tree.get(candidate.tree) if builder else None for candidate in line.commits]
    named = zip(line.commits, builds, strict=True)
    return tuple(build.build_id if isinstance(build, Build) else candidate.tree for candidate, build in named)
