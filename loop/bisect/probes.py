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

GOOD, TRIED = "good", "tried"
SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
Tries = Generator[Tick, None, tuple[float, ...]]
"""Yields signs of life, returns the values that were observed. Raises Broken."""


class Prober(Protocol):
    """Something that can try a candidate."""

    def tried(self, candidate: Candidate, count: int) -> Tries:
        """So many observations of a candidate."""
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

    def side(self, candidate: Candidate, name: str) -> Generator[Tick, None, Side]:
        """A candidate as the bench takes it. Raises Broken where it cannot be built."""
        made = yield from self.builder.build(candidate)
        return self.bench.side(self.builder.variant, made).renamed(name)

    def checks(self, side: Side, seed: int, *, enough: bool = True) -> Generator[Tick, None, VariantChecks]:
        """What today's gate says of a side on today's workloads, with fresh values by the seed."""
        wanted = [one.model_copy(update={"seed": one.seed + seed}) for one in self.workloads]
        (found,) = yield from verify(self.bench, [Job(side, wanted, layouts=False, enough=enough)])
        return found


@dataclass
class LatencyProbe(KernelProbe):
    """The speed of a commit's kernel beside that of the good end, in one pair of processes after another."""

    good: Candidate | None = None

    def tried(self, candidate: Candidate, count: int) -> Tries:
        """Log ratios of the good end's time to the candidate's, one a pair: below 0 it is slower.

        A kernel that is wrong has no speed: it is broken here.
        """
        assert self.good is not None
        tried = yield from self.side(candidate, TRIED)
        yield from self._right(tried)
        good = yield from self.side(self.good, GOOD)
        self.seed += 1
        terms = timing.Terms(count, math.inf, self.seed, segment_s=timing.SHORT_SEGMENT_S)
        try:
            timings = yield from timing.measure(self.bench, [good, tried], self.workloads, terms)
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
    """One value a pair of processes: the mean over the workloads of their log ratios."""
    logs = [
        compare.log_ratios([s for s in timings.segments if s.workload == one.name], GOOD, TRIED)
        for one in workloads
    ]
    pairs = min((len(one) for one in logs), default=0)
    return tuple(fmean(one[index] for one in logs) for index in range(pairs))


@dataclass
class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    def tried(self, candidate: Candidate, count: int) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        side = yield from self.side(candidate, TRIED)
        values: list[float] = []
        for number in range(count):
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
    """Another worktree, which holds the good end: for a command that prints a number."""
    good: Candidate
    limit_s: float
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def tried(self, candidate: Candidate, count: int) -> Tries:
        """Exit codes as 1 for good and 0 for bad; or log ratios of the good end's number to the candidate's."""
        self.tree.check_out(candidate.commit)
        if self.beside is None:
            values = []
            for _ in range(count):
                values.append((yield from self._judged(candidate)))
            return tuple(values)
        self.beside.check_out(self.good.commit)
        logs = []
        for _ in range(count):
            logs.append((yield from self._pair(candidate)))
        return tuple(logs)

    def _judged(self, candidate: Candidate) -> Generator[Tick, None, float]:
        done = yield from self._run(self.tree.target, candidate)
        if done.code == SKIP:
            raise Broken(f"exit {SKIP}: the command cannot judge it{_last(done)}")
        return float(done.code == 0)

    def _pair(self, candidate: Candidate) -> Generator[Tick, None, float]:
        """Both numbers, in a random order, so that no drift hits one side alone."""
        assert self.beside is not None
        places = [(GOOD, self.beside.target), (TRIED, self.tree.target)]
        self.draw.shuffle(places)
        found: dict[str, float] = {}
        for name, folder in places:
            done = yield from self._run(folder, candidate)
            found[name] = number_of(done)
        return math.log(found[GOOD] / found[TRIED])

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
