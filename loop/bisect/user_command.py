"""A command of the user's, run on commits: what its exit code says, and how long it may take."""

import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from loop.base.errors import CannotStart, WorkFailed
from loop.base.processes import Completed, Tick, run
from loop.bisect.builds import Untestable, check_out
from loop.bisect.trying import Prober, Tries
from loop.model.bisect import Candidate
from loop.repository.worktree import Worktree

SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
FIRST_LIMIT_S = 600.0
"""How long the command may take on the good end, unless the user says otherwise."""
TIMES, LEAST_S = 10.0, 10.0
"""On other commits it may take so many times what it took there, and so long in any case."""


@dataclass
class CommandProbe(Prober):
    """What a command says of a commit, run in a worktree that holds it.

    It runs on the good end first: what cannot be run there says nothing of a commit, and what it takes there sets
    the limit for the others. A commit on which it takes longer is skipped.
    """

    command: Sequence[str]
    tree: Worktree
    limit_s: float | None
    """What the user allows; None: by what it takes on the good end."""
    good: Candidate
    first: Completed | None = None
    """What came of it on the good end, until it is asked for."""
    took_s: float | None = None
    """How long that took."""
    workloads = ()

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Exit codes, as 1 for good and 0 for bad."""
        if self.took_s is None:
            yield from self._begin()
        check_out(self.tree, candidate)
        values = []
        for _ in range(count):
            done = None
            if candidate.commit == self.good.commit:
                done, self.first = self.first, None
            done = done or (yield from self._once(candidate))
            if done.timed_out:
                beside = f", {self.took_s:.2g} s on the good end" if self.took_s is not None else ""
                hangs = f"the command hangs: killed after {self._limit:.3g} s{beside}"
                raise Untestable(f"{hangs} (`timeout S COMMAND` makes that bad)")
            if done.code == SKIP:
                raise Untestable(f"exit {SKIP}: the command cannot judge it{_last(done)}")
            values.append(float(done.code == 0))
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
        done = yield from self._once(self.good)
        by_hand = f"git worktree add TRY {self.good.short}; cd TRY; {shlex.join(self.command)}"
        if done.code in (NOT_RUN, NOT_FOUND):
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

    def _once(self, candidate: Candidate) -> Generator[Tick, None, Completed]:
        """As a shell has it, a program that is not there ends with 127, one that may not be run with 126."""
        folder = self.tree.target
        if not folder.is_dir():
            raise Untestable(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=self._limit, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def _last(done: Completed) -> str:
    lines = done.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
