"""Each commit's kernel, built by its own recipe in a worktree of loop's own."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.errors import LoopError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import Buildable
from loop.builds.compiler_errors import BuildFailed
from loop.library.definitions import read_file
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.repository.submodules import MissingSubmodule
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench

TIMES, LEAST_S = 10.0, 30.0
"""A build may take so many times as long as the longest before it, and so long in any case."""


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
    """Object of a manifest to what it says of the build."""

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
        folder = self._place(candidate)
        variant = self._recipe(folder)
        took = max((library.seconds for library in self.made.values()), default=math.inf)
        try:
            library = yield from build.build(
                self.variant,
                variant,
                folder,
                cache=self.bench.cache,
                include=self.bench.include,
                limit_s=min(self.limit_s, max(LEAST_S, TIMES * took)),
            )
        except BuildFailed as failed:
            if (
                failed.no_compiler
                and isinstance(variant, CAbiVariant)
                and variant.build.compiler == self._compiler
            ):
                raise WorkFailed(failed.message, failed.hint) from failed
            lacks = self.tree.lacks() if candidate.commit != UNCOMMITTED else ""
            raise Untestable("; ".join(filter(None, (f"does not build: {failed.message}", lacks)))) from failed
        self.compiled += not library.cached
        self._note(variant, folder)
        return library

    def _note(self, variant: Buildable, folder: Path) -> None:
        """Remember what a build read; of links also where they lead."""
        names = build.files_read(variant, folder, cache=self.bench.cache, include=self.bench.include)
        self.untold = self.untold or names is None
        top = os.path.realpath(os.path.join(folder, os.path.relpath(".", self.inside)))
        for name in names or ():
            path, place = os.path.normpath(folder / name), os.path.realpath(folder / name)
            beside = os.path.relpath(place, os.path.realpath(folder))
            self.read |= {os.path.relpath(path, folder), beside}
            self.outside |= beside.startswith("..") and place.startswith(f"{top}/") and os.path.isfile(place)

    def _key(self, candidate: Candidate) -> str:
        """What tells builds apart: the folder's tree, or the commit where files beside the folder count."""
        return candidate.commit if self.outside else candidate.tree

    def fails(self, candidate: Candidate) -> bool:
        """Whether it was tried and has no build."""
        return self._key(candidate) in self.broken

    def recipe_of(self, manifest: Callable[[], bytes], blob: str) -> str:
        """What a manifest says of the build; for one that cannot be read, its own name `blob`."""
        if blob not in self.recipes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / MANIFEST
                path.write_bytes(manifest())
                try:
                    target = read_file(path, Target).value
                    terms = target.model_dump(mode="json", include={"tuning", "devices"})
                    variant = target.variants[self.variant].model_dump(mode="json", exclude={"title"})
                    self.recipes[blob] = json.dumps([terms, variant], sort_keys=True)
                except (LoopError, KeyError):
                    self.recipes[blob] = blob
        return self.recipes[blob]

    def _place(self, candidate: Candidate) -> Path:
        """The target's folder as the candidate has it."""
        if candidate.commit == UNCOMMITTED:
            return self.bench.folder
        check_out(self.tree, candidate)
        return self.tree.target

    @property
    def _compiler(self) -> str | None:
        """Today's: where it is missing nothing can be built; another one is a commit's own affair."""
        today = self.bench.target.variants[self.variant]
        recipe = (today.emulation if self.emulated else today.build) if isinstance(today, CAbiVariant) else None
        return recipe.compiler if recipe else None

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
