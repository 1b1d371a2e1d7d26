"""How fast is it? Sides take turns in fresh processes; the process is the replicate, never the iteration.

One round is a fresh process for each side. Within it every workload is timed in the order A B C C B A
(A B B A for two sides), shuffled anew each time, so that drift hits all sides alike.
"""

import random
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from loop.bench.room import Bench, Side
from loop.bench.worker import START_LIMIT_S, Refusal, Worker, WorkerLost
from loop.errors import LoopError
from loop.model.measurement import Segment
from loop.model.target import Workload
from loop.processes import Tick

SEGMENT_S = 10e-3
"""Time filled by one segment of a short workload."""
ANSWER_LIMIT_S = 60.0
PROCESSES_AT_ONCE = 8
FIRST_ROUNDS = 3
MIN_ROUNDS = 2
"""An interval needs two replicates."""


@dataclass(frozen=True)
class Terms:
    """How much is measured."""

    rounds: int
    """Sets of fresh processes, when time allows."""
    limit_s: float
    """No round is begun that would probably end later than this."""
    seed: int
    """Of the order in which sides take turns."""


@dataclass
class Timings:
    """Raw samples, and the memory that first calls took."""

    segments: list[Segment] = field(default_factory=list)
    peaks: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Side and workload to bytes, one a round."""
    own_clock: set[str] = field(default_factory=set)
    """Sides that timed themselves."""
    rounds: int = 0


def measure(
    bench: Bench, sides: Sequence[Side], workloads: Sequence[Workload], terms: Terms
) -> Generator[Tick, None, Timings]:
    """Time the sides turn about. Raises LoopError when one of them crashes, hangs or refuses."""
    for workload in workloads:
        yield from bench.expect(workload)
    timings = Timings()
    shuffle = random.Random(terms.seed)
    begun = time.monotonic()
    for batch in batches(terms.rounds, max(1, PROCESSES_AT_ONCE // len(sides))):
        used = time.monotonic() - begun
        if timings.rounds >= MIN_ROUNDS and used * (1 + len(batch) / timings.rounds) > terms.limit_s:
            break
        yield from _batch(bench, sides, workloads, batch, shuffle, timings)
    return timings


def batches(rounds: int, size: int) -> list[range]:
    """Consecutive groups of rounds, at most `size` in each: few first, to see how long they take."""
    begin = min(size, FIRST_ROUNDS, rounds)
    groups = [range(begin)]
    return groups + [range(first, min(first + size, rounds)) for first in range(begin, rounds, size)]


def _batch(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    batch: Iterable[int],
    shuffle: random.Random,
    timings: Timings,
) -> Generator[Tick, None, None]:
    """Start the processes of several rounds together, for that is most of the cost; then time one by one."""
    with ExitStack() as stack:
        rounds = [Round(bench, sides, number, stack) for number in batch]
        for one in rounds:
            yield from one.start()
        for one in rounds:
            yield from one.time(workloads, shuffle, timings)
            timings.rounds += 1


class Round:
    """A fresh process for each side."""

    def __init__(self, bench: Bench, sides: Sequence[Side], number: int, stack: ExitStack) -> None:
        self.bench, self.sides, self.number = bench, sides, number
        self.workers: dict[str, Worker] = {}
        for side in sides:
            self.workers[side.name] = stack.enter_context(bench.open(side))

    def start(self) -> Generator[Tick, None, None]:
        """Wait until every side has loaded."""
        for name, worker in self.workers.items():
            with blaming(name, "loading"):
                yield from worker.receive(START_LIMIT_S, f"starting {name}")

    def time(
        self, workloads: Sequence[Workload], shuffle: random.Random, timings: Timings
    ) -> Generator[Tick, None, None]:
        """Time every workload once, each side on those of a type it takes."""
        for workload in workloads:
            names = [side.name for side in self.sides if workload.dtype in side.dtypes]
            for name in names:
                yield from self._prepare(name, workload, timings)
            for name in turns(names, shuffle):
                yield from self._segment(name, workload, timings)

    def _prepare(self, name: str, workload: Workload, timings: Timings) -> Generator[Tick, None, None]:
        call = self.bench.call(workload, name).to_json()
        with blaming(name, workload.name):
            reply = yield from self.workers[name].ask(
                "prepare", limit_s=ANSWER_LIMIT_S, note=self._note(workload), call=call
            )
        if reply["peak_bytes"] is not None:
            timings.peaks.setdefault((name, workload.name), []).append(reply["peak_bytes"])

    def _segment(self, name: str, workload: Workload, timings: Timings) -> Generator[Tick, None, None]:
        with blaming(name, workload.name):
            reply = yield from self.workers[name].ask(
                "time",
                limit_s=ANSWER_LIMIT_S,
                note=self._note(workload),
                key=workload.name,
                seconds=SEGMENT_S,
            )
        if reply["own"]:
            timings.own_clock.add(name)
        samples = tuple(reply["samples"])
        timings.segments.append(
            Segment(side=name, workload=workload.name, round=self.number, calls=reply["calls"], seconds=samples)
        )

    def _note(self, workload: Workload) -> str:
        return f"round {self.number + 1}: {workload.name}"


def turns(names: Sequence[str], shuffle: random.Random) -> list[str]:
    """Each name twice: a shuffled order, then the same backwards."""
    order = list(names)
    shuffle.shuffle(order)
    return [*order, *reversed(order)]


class blaming:  # noqa: N801 - reads as a word in a with statement
    """Turns the loss of a worker into an error that names the side and the workload."""

    def __init__(self, side: str, what: str) -> None:
        self.side, self.what = side, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WorkerLost | Refusal):
            raise LoopError(
                f"{self.side} could not be timed on {self.what}: {error}",
                hint=f"`loop kernels verify {self.side}` runs it alone",
                exit_code=1,
            ) from error
