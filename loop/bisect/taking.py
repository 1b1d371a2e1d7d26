"""Trying a commit for what its kernels take: by the compiler's report and its host code, without a GPU."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from loop.base.processes import Tick
from loop.bisect.builds import Builder, Layout, Untestable
from loop.bisect.trying import Question, Tries
from loop.model.bisect import Candidate
from loop.model.measurement import Build
from loop.model.resources import Rise, Taken
from loop.model.target import Workload
from loop.profile.taking import budgets_of, look, rises


@dataclass
class ResourceProbe:
    """Whether a commit's kernels take more than those of the good end, of what the bad end takes more of."""

    builder: Builder
    """Builds for the GPU, by nvcc."""
    emulator: Builder | None
    """Builds for the emulator, whose host code tells its launches; None where there are none."""
    good: Candidate
    bad: Candidate
    calls: Sequence[Workload]
    """Every shape that host code is asked about."""
    looked: dict[tuple[str, bool], Taken] = field(default_factory=dict)
    """Tree of a candidate, and whether its host code was asked, to what its kernels take."""
    rose: tuple[Rise, ...] = ()
    """What the bad end takes more of; nothing until it was tried."""
    hangs = False

    @property
    def remark(self) -> str:
        """What rose, from what to what."""
        return "; ".join(one.text for one in self.rose)

    def tried(self, asked: Question) -> Tries:
        """1 for what takes no more, 0 for what does: a compiler says the same each time."""
        wanted = {one.key for one in (yield from self._wanted())}
        risen = yield from self._risen(asked.candidate, asked.ahead)
        return (0.0 if wanted & {one.key for one in risen} else 1.0,) * asked.count

    def _wanted(self) -> Generator[Tick, None, tuple[Rise, ...]]:
        """What rose at the bad end: spills, or else what lets a multiprocessor hold fewer warps.

        Spills are searched first: nvcc's report tells them, without a build for the emulator.
        """
        if not self.rose:
            emulator, self.emulator = self.emulator, None
            self.rose = tuple(one for one in (yield from self._risen(self.bad, ())) if one.spilled)
            if not self.rose:
                self.emulator = emulator
                self.rose = yield from self._risen(self.bad, ())
        return self.rose

    def _risen(self, candidate: Candidate, ahead: Sequence[Layout]) -> Generator[Tick, None, tuple[Rise, ...]]:
        before = yield from self._taken(self.good, ())
        now = yield from self._taken(candidate, ahead)
        return rises(before, now, budgets_of(self.builder.bench.target, self.builder.variant))

    def _taken(self, candidate: Candidate, ahead: Sequence[Layout]) -> Generator[Tick, None, Taken]:
        key = candidate.tree, self.emulator is not None
        if key not in self.looked:
            made = yield from _built(self.builder, candidate, ahead)
            emulated = (yield from _built(self.emulator, candidate, ahead)) if self.emulator else None
            found = yield from look(self.builder.bench, made, emulated, self.builder.architecture, self.calls)
            if isinstance(found, str):
                raise Untestable(found)
            self.looked[key] = found
        return self.looked[key]


def _built(builder: Builder, candidate: Candidate, ahead: Sequence[Layout]) -> Generator[Tick, None, Build]:
    yield from builder.prepare([(candidate, 0)], ahead)
    return (yield from builder.build(candidate))
