"""Each commit's kernel, built by its own recipe in a worktree of loop's own."""

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from loop.bench import build
from loop.bench.room import Bench
from loop.documents import write_atomic
from loop.errors import LoopError
from loop.library.definitions import read_file
from loop.model.bisect import UNCOMMITTED, Candidate
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, Target
from loop.places import MANIFEST
from loop.processes import Tick
from loop.repository.worktree import Worktree

STEP = 16
"""Bytes: functions begin at multiples of this."""


class Broken(Exception):
    """A commit's kernel cannot be built or called: it can be neither good nor bad. The message says why."""


@dataclass
class Builder:
    """Builds of one variant through history."""

    bench: Bench
    """The target as it is today, in the user's checkout."""
    tree: Worktree
    """Where commits are checked out."""
    variant: str
    limit_s: float
    """A compiler that takes longer is killed."""
    made: dict[tuple[str, int], Build] = field(default_factory=dict)
    """Tree of a candidate, and which layout of it, to its build."""
    compiled: int = 0
    """How many were not in the cache."""

    def build(self, candidate: Candidate, again: int = 0) -> Generator[Tick, None, Build]:
        """The build of a candidate; `again`: with its code in another place. Raises Broken where there is none."""
        key = (candidate.tree, again)
        if key in self.made:
            return self.made[key]
        folder = self._place(candidate)
        variant = self._moved(self._recipe(folder), again)
        try:
            made = yield from build.build(
                self.variant,
                variant,
                folder,
                cache=self.bench.cache,
                include=self.bench.include,
                limit_s=self.limit_s,
            )
        except build.BuildFailed as failed:
            if failed.no_compiler:
                raise LoopError(failed.message, failed.hint) from failed
            raise Broken(f"does not build: {failed.message}") from failed
        self.compiled += not made.cached
        self.made[key] = made
        return made

    def _place(self, candidate: Candidate) -> Path:
        """The target's folder as the candidate has it."""
        if candidate.commit == UNCOMMITTED:
            return self.bench.folder
        self.tree.check_out(candidate.commit)
        return self.tree.target

    def _recipe(self, folder: Path) -> CAbiVariant:
        """The variant as that commit's own manifest builds it."""
        if not (folder / MANIFEST).is_file():
            raise Broken(f"it has no {MANIFEST}")
        try:
            target = read_file(folder / MANIFEST, Target).value
        except LoopError as error:
            raise Broken(f"its {MANIFEST} cannot be read: {error.message.splitlines()[0]}") from error
        variant = target.variants.get(self.variant)
        if not isinstance(variant, CAbiVariant):
            raise Broken(f"it has no compiled variant {self.variant}")
        if variant.device != self.bench.device:
            raise Broken(f"its {self.variant} runs on {variant.device}")
        return target.compiled(self.variant, self.bench.architecture)

    def _moved(self, variant: CAbiVariant, again: int) -> CAbiVariant:
        """The variant with its code so many bytes further on: one binary is one sample of where functions lie."""
        if not again:
            return variant
        place = self.bench.cache / "layouts" / f"layout-{again}.h"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, f'__asm__(".text\\n.skip {STEP * (1 + again * 7 % 61)}, 0x90\\n");\n')
        flags = (*variant.build.flags, "-include", str(place))
        return variant.model_copy(update={"build": variant.build.model_copy(update={"flags": flags})})
