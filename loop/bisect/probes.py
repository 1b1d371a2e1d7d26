"""Trying a commit: its speed beside the good end, its correctness by the gate, or what a command says of it."""

import math
import random
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from loop.bench import timing
from loop.bench.room import Bench, Side
from loop.bench.verify import Job, verify
from loop.bench.worker import WorkerLost
from loop.bisect.builds import Broken, Builder, Layout, check_out
from loop.errors import CannotStart, LoopError
from loop.model.bisect import Candidate
from loop.model.measurement import VariantChecks
from loop.model.target import Workload
from loop.processes import Completed, Tick, run
from loop.repository.worktree import Worktree
from loop.rules import compare

OTHER, TRIED = "other", "tried"
SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
UNRUN = (NOT_RUN, NOT_FOUND)
Tries = Generator[Tick, None, tuple[float, ...]]
"""Yields signs of life, returns the values that were observed. Raises Broken."""


@dataclass(frozen=True)
class Question:
    """One candidate to be tried."""

    candidate: Candidate
    count: int
    """Observations that are wanted."""
    against: Candidate
    """What a latency is held against, in the same pair."""
    again: int = 0
    """0: the build as it is. From 1 on: another layout of the same code."""
    both: bool = False
    """Whether what it is held against has that layout, too."""
    ahead: Sequence[Layout] = ()
    """What may be asked for next, whatever comes of this."""

    @property
    def other(self) -> Layout:
        """What a latency is held against."""
        return self.against, self.again if self.both else 0


class Prober(Protocol):
    """Something that can try a candidate."""

    def tried(self, asked: Question) -> Tries:
        """The observations. Latency: log(its time / that of the other), above 0 is slower; else 1 for good, 0 for
        bad. Raises Broken."""
        ...


@dataclass
class KernelProbe:
    """What both probes of a kernel share: builds, and today's workloads."""

    bench: Bench
    builder: Builder
    workloads: Sequence[Workload]
    seed: int
    checked: dict[str, VariantChecks] = field(default_factory=dict)
    """Build to what the gate found of it."""

    def side(self, name: str, candidate: Candidate, again: int = 0) -> Generator[Tick, None, Side]:
        """A candidate as the bench takes it. Raises Broken where it cannot be built."""
        made = yield from self.builder.build(candidate, again)
        return self.bench.side(self.builder.variant, made).renamed(name)

    def checks(self, side: Side, seed: int, *, enough: bool = True) -> Generator[Tick, None, VariantChecks]:
        """What today's gate says of a side on today's workloads, with fresh values by the seed."""
        wanted = [one.model_copy(update={"seed": one.seed + seed}) for one in self.workloads]
        (found,) = yield from verify(self.bench, [Job(side, wanted, layouts=False, enough=enough)])
        return found


@dataclass
class LatencyProbe(KernelProbe):
    """The speed of a commit's kernel beside that of the good end, in one pair of processes after another."""

    def tried(self, asked: Question) -> Tries:
        """Log ratios, one a pair of processes. A kernel that is wrong has no speed: it is broken here."""
        sides = yield from self.sides(asked)
        self.seed += 1
        terms = timing.Terms(asked.count, math.inf, self.seed, segment_s=timing.SHORT_SEGMENT_S)
        return pair_values((yield from self.timed(sides, terms)), self.workloads)

    def sides(self, asked: Question) -> Generator[Tick, None, list[Side]]:
        """What it is held against and the candidate, built; the candidate is right, whatever its layout."""
        yield from self.builder.prepare([(asked.candidate, asked.again), asked.other], asked.ahead)
        tried = yield from self.side(TRIED, asked.candidate, asked.again)
        if not asked.again:
            yield from self._right(tried)
        return [(yield from self.side(OTHER, *asked.other)), tried]

    def timed(
        self, sides: Sequence[Side], terms: timing.Terms, pending: timing.Pending | None = None
    ) -> Generator[Tick, None, timing.Timings]:
        """Both sides turn about on today's workloads. Raises Broken where one of them cannot be timed."""
        try:
            timings = yield from timing.measure(self.bench, sides, self.workloads, terms, pending)
        except LoopError as error:
            raise Broken(error.message) from error
        if timings.wrong:
            side, check = timings.wrong[0]
            raise Broken(f"{side} gave a wrong answer while it was timed: {check.message}")
        return timings

    def _right(self, side: Side) -> Generator[Tick, None, None]:
        assert side.build_id is not None
        if side.build_id not in self.checked:
            self.checked[side.build_id] = yield from self.checks(side, 0)
        failure = self.checked[side.build_id].first_failure
        if failure is not None:
            raise Broken(f"incorrect, so it has no speed: {failure.message}")


def pair_values(timings: timing.Timings, workloads: Sequence[Workload]) -> tuple[float, ...]:
    """One value a pair of processes: the mean over the workloads of log(time tried / time of the other)."""
    return tuple(fmean(values) for values in zip(*(logs_of(timings, one) for one in workloads), strict=False))


def logs_of(timings: timing.Timings, workload: Workload) -> list[float]:
    """One log(time tried / time of the other) a pair of processes, of a workload."""
    segments = [one for one in timings.segments if one.workload == workload.name]
    return [-value for value in compare.log_ratios(segments, OTHER, TRIED)]


@dataclass
class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    def tried(self, asked: Question) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        yield from self.builder.prepare([(asked.candidate, 0)], asked.ahead)
        side = yield from self.side(TRIED, asked.candidate)
        values: list[float] = []
        for number in range(asked.count):
            try:
                found = yield from self.checks(side, number)
            except WorkerLost as lost:
                raise Broken(str(lost)) from lost
            if all(check.status == "unsupported" for check in found.checks):
                raise Broken(f"takes none of these workloads: {', '.join(one.name for one in self.workloads)}")
            values.append(0.0 if found.first_failure else 1.0)
        return tuple(values)


@dataclass
class CommandProbe:
    """What a command of the user's says of a commit, run in a worktree that holds it."""

    command: Sequence[str]
    tree: Worktree
    beside: Worktree | None
    """Another worktree, for what is compared: with a command that prints a number."""
    limit_s: float
    good: Candidate
    """The good end: where the command cannot be run there, it is the command that is wrong."""
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    runs: bool = False
    """It has run at the good end, or somewhere."""

    def tried(self, asked: Question) -> Tries:
        """Exit codes as 1 for good and 0 for bad; or log ratios of both numbers."""
        check_out(self.tree, asked.candidate)
        if self.beside is not None:
            check_out(self.beside, asked.against)
        values = []
        for _ in range(asked.count):
            once = self._judged(asked.candidate) if self.beside is None else self._pair(asked, self.beside)
            values.append((yield from once))
        return tuple(values)

    def _judged(self, candidate: Candidate) -> Generator[Tick, None, float]:
        done = yield from self._run(self.tree, candidate)
        if done.code == SKIP:
            raise Broken(f"exit {SKIP}: the command cannot judge it{_last(done)}")
        return float(done.code == 0)

    def _pair(self, asked: Question, beside: Worktree) -> Generator[Tick, None, float]:
        """Both numbers, in a random order, so that no drift hits one side alone."""
        places = [(OTHER, beside, asked.against), (TRIED, self.tree, asked.candidate)]
        self.draw.shuffle(places)
        found: dict[str, float] = {}
        for name, tree, candidate in places:
            done = yield from self._run(tree, candidate)
            found[name] = number_of(done)
        return math.log(found[TRIED] / found[OTHER])

    def _run(self, tree: Worktree, candidate: Candidate) -> Generator[Tick, None, Completed]:
        """What came of the command. 126 and 127 are results like others, if it can be run at the good end."""
        done = yield from self._once(tree.target, candidate)
        if done.timed_out:
            raise Broken(f"the command was killed after {self.limit_s:g} s, its limit")
        if done.code in UNRUN and not self.runs:
            yield from self._must_run(tree, candidate, done)
        self.runs = True
        return done

    def _must_run(self, tree: Worktree, candidate: Candidate, done: Completed) -> Generator[Tick, None, None]:
        """Raises LoopError where the command cannot be run at the good end either."""
        if candidate.commit != self.good.commit:
            check_out(tree, self.good)
            done = yield from self._once(tree.target, self.good)
            check_out(tree, candidate)
        if done.code in UNRUN:
            raise LoopError(
                f"the command cannot be run at the good end, {self.good.short}: exit {done.code}{_last(done)}",
                hint=f"try it by hand: git worktree add TRY {self.good.short}; cd TRY; {shlex.join(self.command)}",
            )

    def _once(self, folder: Path, candidate: Candidate) -> Generator[Tick, None, Completed]:
        """As a shell has it, a program that is not there ends with 127, one that may not be run with 126."""
        if not folder.is_dir():
            raise Broken(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=self.limit_s, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def number_of(done: Completed) -> float:
    """The number on the last line that a command printed. Raises Broken where there is none above zero."""
    if done.code != 0:
        raise Broken(f"the command ended with {done.how}{_last(done)}")
    lines = done.output.strip().splitlines()
    try:
        value = float(lines[-1].split()[-1]) if lines else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise Broken(f"the last line is no number above zero: {lines[-1] if lines else 'nothing was printed'}")
    return value


def _last(done: Completed) -> str:
    lines = done.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
