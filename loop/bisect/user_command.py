"""A command of the user's, run on commits: what its exit code or its number says, and how long it may take."""

import math
import random
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.errors import CannotStart, WorkFailed
from loop.base.processes import Completed, Tick, run
from loop.bisect.builds import Untestable, check_out
from loop.bisect.trying import OTHER, TRIED, Prober, Question, Tries
from loop.model.bisect import Candidate
from loop.repository.worktree import Worktree

SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
UNRUN = (NOT_RUN, NOT_FOUND)
FIRST_LIMIT_S = 600.0
"""How long the command may take on the good end, unless the user says otherwise."""
TIMES, LEAST_S = 10.0, 10.0
"""On other commits it may take so many times what it took there, and so long in any case."""
Running = Generator[Tick, None, Completed]


@dataclass
class CommandProbe(Prober):
    """What a command says of a commit, run in a worktree that holds it.

    It runs on the good end first: what cannot be run there says nothing of a commit, and what it takes there sets
    the limit for the others. A commit on which it takes longer is skipped.
    """

    command: Sequence[str]
    tree: Worktree
    beside: Worktree | None
    """Another worktree, for what is compared: with a command that prints a number."""
    limit_s: float | None
    """What the user allows; None: by what it takes on the good end."""
    good: Candidate
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    first: Completed | None = None
    """What came of it on the good end, until it is asked for."""
    took_s: float | None = None
    """How long that took."""
    workloads = ()

    def tried(self, asked: Question) -> Tries:
        """Exit codes as 1 for good and 0 for bad; or log ratios of both numbers."""
        if self.took_s is None:
            yield from self._begin()
        check_out(self.tree, asked.candidate)
        if self.beside is not None:
            check_out(self.beside, asked.against)
        values = []
        for _ in range(asked.count):
            once = self._judged(asked.candidate) if self.beside is None else self._pair(asked, self.beside)
            values.append((yield from once))
        return tuple(values)

    @property
    def remark(self) -> str:  # type: ignore[override]
        """What is told beside the answer."""
        return self.tree.lacks()

    @property
    def _limit(self) -> float:
        """Seconds that the command may take now."""
        if self.limit_s is not None:
            return self.limit_s
        return FIRST_LIMIT_S if self.took_s is None else max(LEAST_S, TIMES * self.took_s)

    def _begin(self) -> Generator[Tick, None, None]:
        """Run it on the good end. Raises LoopError where that cannot be done."""
        check_out(self.tree, self.good)
        done = yield from self._once(self.tree.target, self.good)
        by_hand = f"git worktree add TRY {self.good.short}; cd TRY; {shlex.join(self.command)}"
        if done.code in UNRUN:
            raise WorkFailed(
                f"the command cannot be run at the good end, {self.good.short}: exit {done.code}{_last(done)}",
                hint=f"try it by hand: {by_hand}",
            )
        if done.timed_out:
            raise WorkFailed(
                f"the command did not end at the good end, {self.good.short}: killed after {self._limit:g} s",
                hint=f"--probe-limit-s SECONDS, if it takes longer; by hand: {by_hand}",
            )
        self.first, self.took_s = done, done.seconds

    def _judged(self, candidate: Candidate) -> Generator[Tick, None, float]:
        done = yield from self._run(self.tree, candidate)
        if done.timed_out:
            raise Untestable(self._killed())
        if done.code == SKIP:
            raise Untestable(f"exit {SKIP}: the command cannot judge it{_last(done)}")
        return float(done.code == 0)

    def _pair(self, asked: Question, beside: Worktree) -> Generator[Tick, None, float]:
        """Both numbers, in a random order, so that no drift hits one side alone."""
        places = [(OTHER, beside, asked.against), (TRIED, self.tree, asked.candidate)]
        self.draw.shuffle(places)
        numbers: dict[str, float] = {}
        for name, tree, candidate in places:
            done = yield from self._run(tree, candidate)
            if done.timed_out:
                raise Untestable(self._killed())
            numbers[name] = number_of(done)
        return math.log(numbers[TRIED] / numbers[OTHER])

    def _killed(self) -> str:
        beside = f", {self.took_s:.2g} s on the good end" if self.took_s is not None else ""
        return f"the command hangs: killed after {self._limit:.3g} s{beside} (`timeout S COMMAND` makes that bad)"

    def _run(self, tree: Worktree, candidate: Candidate) -> Running:
        """What came of the command; of the first run, where it is of this commit."""
        done, first = None, self.first
        if first is not None and candidate.commit == self.good.commit:
            done, self.first = first, None
        return done or (yield from self._once(tree.target, candidate))

    def _once(self, folder: Path, candidate: Candidate) -> Running:
        """As a shell has it, a program that is not there ends with 127, one that may not be run with 126."""
        if not folder.is_dir():
            raise Untestable(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=self._limit, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def number_of(done: Completed) -> float:
    """The number on the last line that a command printed. Raises Untestable where there is none above zero."""
    if done.code != 0:
        raise Untestable(f"the command ended with {done.how}{_last(done)}")
    lines = done.output.strip().splitlines()
    try:
        value = float(lines[-1].split()[-1]) if lines else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise Untestable(f"the last line is no number above zero: {lines[-1] if lines else 'nothing was printed'}")
    return value


def _last(done: Completed) -> str:
    lines = done.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
