"""Trying a commit: its speed beside the good end, its correctness by the gate, or what a command says of it."""

import math
import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from loop.bench import timing
from loop.bench.room import Bench, Side
from loop.bench.verify import Job, verify
from loop.bench.worker import WorkerLost
from loop.bisect.builds import Broken, Builder
from loop.errors import LoopError
from loop.model.bisect import Candidate
from loop.model.measurement import VariantChecks
from loop.model.target import Workload
from loop.processes import Completed, Tick, run
from loop.repository.worktree import Worktree
from loop.rules import compare

OTHER, TRIED = "other", "tried"
SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
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
    """0: the build as it is. From 1 on: another layout of the same code, of both."""


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

    def side(self, candidate: Candidate, name: str, again: int = 0) -> Generator[Tick, None, Side]:
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
        tried = yield from self.side(asked.candidate, TRIED, asked.again)
        yield from self._right(tried)
        other = yield from self.side(asked.against, OTHER, asked.again)
        self.seed += 1
        terms = timing.Terms(asked.count, math.inf, self.seed, segment_s=timing.SHORT_SEGMENT_S)
        try:
            timings = yield from timing.measure(self.bench, [other, tried], self.workloads, terms)
        except LoopError as error:
            raise Broken(error.message) from error
        if timings.wrong:
            side, check = timings.wrong[0]
            raise Broken(f"{side} gave a wrong answer while it was timed: {check.message}")
        return pair_values(timings, self.workloads)

    def _right(self, side: Side) -> Generator[Tick, None, None]:
        assert side.build_id is not None
        if side.build_id not in self.checked:
            self.checked[side.build_id] = yield from self.checks(side, 0)
        failure = self.checked[side.build_id].first_failure
        if failure is not None:
            raise Broken(f"incorrect, so it has no speed: {failure.message}")


def pair_values(timings: timing.Timings, workloads: Sequence[Workload]) -> tuple[float, ...]:
    """One value a pair of processes: the mean over the workloads of log(time tried / time of the other)."""
    logs = [
        compare.log_ratios([s for s in timings.segments if s.workload == one.name], OTHER, TRIED)
        for one in workloads
    ]
    pairs = min((len(one) for one in logs), default=0)
    return tuple(-fmean(one[index] for one in logs) for index in range(pairs))


@dataclass
class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    def tried(self, asked: Question) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        side = yield from self.side(asked.candidate, TRIED)
        values: list[float] = []
        for number in range(asked.count):
            try:
                found = yield from self.checks(side, number)
            except WorkerLost as lost:
                raise Broken(str(lost)) from lost
            if not found.checks:
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
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def tried(self, asked: Question) -> Tries:
        """Exit codes as 1 for good and 0 for bad; or log ratios of both numbers."""
        self.tree.check_out(asked.candidate.commit)
        if self.beside is not None:
            self.beside.check_out(asked.against.commit)
        values = []
        for _ in range(asked.count):
            once = self._judged(asked.candidate) if self.beside is None else self._pair(asked, self.beside)
            values.append((yield from once))
        return tuple(values)

    def _judged(self, candidate: Candidate) -> Generator[Tick, None, float]:
        done = yield from self._run(self.tree.target, candidate)
        if done.code == SKIP:
            raise Broken(f"exit {SKIP}: the command cannot judge it{_last(done)}")
        return float(done.code == 0)

    def _pair(self, asked: Question, beside: Worktree) -> Generator[Tick, None, float]:
        """Both numbers, in a random order, so that no drift hits one side alone."""
        places = [(OTHER, beside.target, asked.against), (TRIED, self.tree.target, asked.candidate)]
        self.draw.shuffle(places)
        found: dict[str, float] = {}
        for name, folder, candidate in places:
            done = yield from self._run(folder, candidate)
            found[name] = number_of(done)
        return math.log(found[TRIED] / found[OTHER])

    def _run(self, folder: Path, candidate: Candidate) -> Generator[Tick, None, Completed]:
        begun = time.monotonic()
        note = f"running the command on {candidate.short}"
        done = yield from run(self.command, cwd=folder, limit_s=self.limit_s, note=note)
        if done.timed_out:
            raise Broken(f"the command was killed after {time.monotonic() - begun:.0f} s, its limit")
        if done.code in (NOT_RUN, NOT_FOUND):
            raise LoopError(
                f"the command cannot be run: exit {done.code}{_last(done)}",
                hint="try it by hand in a checkout of the good commit",
            )
        return done


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
