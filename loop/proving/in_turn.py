"""Controls are timed one after the other in one process of the variant that they err in.

They are not compared with each other: what is asked is whether the gate notices them. A process costs an import of
torch, or a context of a GPU.
"""

import random
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from loop.base.processes import Tick
from loop.model.target import Workload
from loop.timing.round import TimingRound, Untimed, blaming
from loop.timing.samples import Timings
from loop.timing.terms import Shift, Terms
from loop.workers.bench import Bench, Side
from loop.workers.messages import Mistake
from loop.workers.program import START_LIMIT_S
from loop.workers.worker import Worker


def measure(
    bench: Bench, base: Side, sides: Sequence[Side], workload: Workload, terms: Terms
) -> Generator[Tick, None, tuple[Timings, list[Untimed]]]:
    """Time sides that are `base` with a mistake, or without: what was noticed, and which could not be timed.

    Sides for which no time was left have no segments.
    """
    timings, refused, shuffle = Timings(), [], random.Random(terms.seed)
    ends = time.monotonic() + terms.limit_s
    named = {side.name: side for side in sides}
    for number in range(terms.rounds):
        with ExitStack() as stack:
            process = InTurn(
                bench, named, Shift(range(number, number + 1), ends), stack, terms, shuffle, base=base
            )
            yield from process.start()
            yield from process.time([workload], {workload.name: [side.name for side in sides]}, timings)
            timings.rounds += 1
            refused += process.refused
    return timings, refused


@dataclass(eq=False)
class InTurn(TimingRound):
    """One fresh process for all sides. A side that cannot be timed costs the others nothing."""

    base: Side = field(kw_only=True)
    """What every side errs in."""
    refused: list[Untimed] = field(init=False, default_factory=list)

    def open_workers(self) -> dict[str, Worker]:
        """The same process for every side."""
        return dict.fromkeys(self.sides, self.stack.enter_context(self.bench.open(self.base)))

    def mistake_of(self, name: str) -> Mistake | None:
        """Every mistake is still to be made."""
        return self.sides[name].mistake

    def start(self) -> Generator[Tick, None, None]:
        """Wait until the variant has loaded."""
        worker = next(iter(self.workers.values()))
        with blaming(self.base.name, "loading"):
            yield from worker.receive(START_LIMIT_S, f"starting {self.base.name}")
        worker.pause()

    def time_one(
        self, workload: Workload, names: Sequence[str], timings: Timings, to_come: int
    ) -> Generator[Tick, None, int]:
        """Time these sides on one workload, each by itself, until the time is over; rounds that were made: one."""
        for name in names:
            if time.monotonic() >= self.shift.ends:
                break
            try:
                yield from super().time_one(workload, [name], timings, to_come)
            except Untimed as error:
                self.refused.append(error)
                self.calls.pop(name, None)
                if self.workers[name].child.code is not None:
                    self.workers = self.open_workers()
                    yield from self.start()
        return 1
