"""How fast is it? Sides take turns in fresh processes; the process is the replicate, never the iteration.

One round is a fresh process for each side, and inputs that no process has seen. On a GPU, where starting takes
longer than timing, processes are kept for a few rounds. Within a round every workload is timed in the order
A B C C B A (A B B A for two sides), shuffled anew each time, so that drift hits all sides alike.
Outputs of timed calls are read at once and judged when the round is over.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from loop.base.processes import Tick
from loop.base.stats import FEWEST
from loop.machine.machine import cores
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.timing.round import TimingRound
from loop.timing.samples import Timings
from loop.timing.terms import Pending, Shift, Terms
from loop.workers.bench import Bench, Side

FIRST_SHARE = 0.45
"""Of the time that is left, for the first set of processes that are kept: the next has less to begin."""
PROCESSES_AT_ONCE = max(8, min(16, cores()))
FIRST_ROUNDS = 3
MORE_ROUNDS = 4
"""Rounds that are made for a side of which no quick call was judged, by chance or because it computes none."""
KEPT_ON_CPU, KEPT_ON_GPU = 1, 5
"""Rounds that processes are kept for: a GPU opens for one process after the other, in 0.2 s each on an H200, and
importing torch takes 3 s."""


GRACE = 3.0
"""Where processes are kept, so many times the limit may be used for the fewest rounds that give an interval."""


class Pace:
    """Whether there is time for another round. `kept`: whether processes serve several."""

    def __init__(self, terms: Terms, *, kept: bool = False) -> None:
        self.terms, self.begun, self.last_s, self.kept = terms, time.monotonic(), 0.0, kept

    def _due(self, timings: Timings, used: float) -> bool:
        """Whether another round is made though the time is over."""
        few = self.kept and timings.rounds < FEWEST and used < GRACE * self.terms.limit_s
        return few or timings.rounds < self.terms.least

    def fitting(self, timings: Timings, batch: Sequence[range]) -> Sequence[range]:
        """As many of these sets of rounds as will probably end in time; of processes that are kept, two rounds."""
        used = time.monotonic() - self.begun
        for count in range(len(batch), 0, -1):
            rounds = sum(min(2, len(numbers)) for numbers in batch[:count])
            if self._due(timings, used) or used * (1 + rounds / timings.rounds) <= self.terms.limit_s:
                return batch[:count]
        return ()

    def allows_more(self, timings: Timings) -> bool:
        """Whether another round that needs no new process will probably end in time."""
        used = time.monotonic() - self.begun
        return self._due(timings, used) or used + self.last_s <= self.terms.limit_s

    def shift(self, numbers: range, timings: Timings) -> Shift:
        """The rounds of the next set of processes; the first leaves time for another."""
        now, share = time.monotonic(), 1.0 if timings.rounds else FIRST_SHARE
        left_s = max(0.0, self.begun + self.terms.limit_s - now)
        wanted = max(self.terms.least, FEWEST if self.kept else 0) - timings.rounds
        return Shift(numbers, now + share * left_s, wanted if timings.rounds else math.ceil(wanted / 2))


def measure(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    terms: Terms,
    pending: Pending | None = None,
) -> Generator[Tick, None, Timings]:
    """Time the sides turn about, until nothing is pending, or rounds or time are over.

    Only what is pending is timed, and only its sides are started. At last a few more rounds are made, whatever
    they take, for sides whose judged calls were all far slower than the others. They vouch for a time, and are no
    part of it. Raises LoopError when one of the sides crashes, hangs or refuses.
    """
    kept = KEPT_ON_GPU if bench.device == "cuda" else KEPT_ON_CPU
    timings, pace, shuffle = Timings(), Pace(terms, kept=kept > 1), random.Random(terms.seed)
    everything = {w.name: [side.name for side in sides if accepts(side, w)] for w in workloads}

    def still() -> Mapping[str, Sequence[str]]:
        return pending(timings) if pending else everything

    def unproven() -> Mapping[str, Sequence[str]]:
        wrong = {(side, check.workload.name) for side, check in timings.wrong}
        return {
            place: [name for name in names if (name, place) not in wrong and timings.unproven(name, place)]
            for place, names in everything.items()
        }

    def wanted(open_: Mapping[str, Sequence[str]]) -> list[Side]:
        names = {name for some in open_.values() for name in some}
        return [side for side in sides if side.name in names]

    for batch in batches(terms.rounds, max(1, PROCESSES_AT_ONCE // len(sides)), kept):
        chosen, fitting = wanted(still()), pace.fitting(timings, batch)
        if not chosen or not fitting:
            break
        yield from _batch(bench, chosen, workloads, fitting, shuffle, timings, pace, still)
        if len(fitting) < len(batch):
            break
    rounds, segments = timings.rounds, list(timings.segments)
    for number in range(terms.rounds, terms.rounds + MORE_ROUNDS):
        chosen = wanted(unproven())
        if not chosen:
            break
        pace = Pace(replace(terms, least=timings.rounds + 1))
        yield from _batch(bench, chosen, workloads, [range(number, number + 1)], shuffle, timings, pace, unproven)
    timings.rounds, timings.segments = rounds, segments
    return timings


def batches(rounds: int, size: int, kept: int = 1) -> list[list[range]]:
    """All rounds, grouped by the processes that they share, and these by what starts together.

    At most `kept` rounds share processes, and never all: there are two sets at least. At most `size` sets start
    together: few first, to see how long they take.
    """
    count = max(math.ceil(rounds / kept), min(2, rounds))
    edges = [rounds * number // count for number in range(count + 1)]
    sets = [range(first, end) for first, end in itertools.pairwise(edges)]
    begin = min(size, FIRST_ROUNDS if kept == 1 else 2)
    return [sets[:begin]] + [sets[first : first + size] for first in range(begin, count, size)]


def _batch(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    batch: Sequence[range],
    shuffle: random.Random,
    timings: Timings,
    pace: Pace,
    still: Callable[[], Mapping[str, Sequence[str]]],
) -> Generator[Tick, None, None]:
    """Start the processes of several rounds together, for that is most of the cost; then time one by one.

    They end with the last round they serve: each holds hundreds of megabytes of a GPU from its first call on.
    """
    with ExitStack() as stack:
        sets = []
        for numbers in batch:  # What starts first gets other memory of a GPU: each side should be it at times.
            named = {side.name: side for side in shuffle.sample(sides, len(sides))}
            closing = stack.enter_context(ExitStack())
            sets.append(TimingRound(bench, named, Shift(numbers), closing, pace.terms, shuffle))
        for group in sets:
            yield from group.start()
        for group in sets:
            open_, begun = still(), time.monotonic()
            if any(open_.values()) and pace.allows_more(timings):
                group.shift = pace.shift(group.shift.numbers, timings)
                rounds = yield from group.time([w for w in workloads if open_.get(w.name)], open_, timings)
                took = time.monotonic() - begun
                pace.last_s = took * min(2, rounds) / rounds
                timings.rounds, timings.seconds = timings.rounds + rounds, timings.seconds + took
            group.close()
