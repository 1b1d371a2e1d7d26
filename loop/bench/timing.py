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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loop.bench import kin
from loop.bench.arena import Values
from loop.bench.call import Call
from loop.bench.deferral import charged
from loop.bench.machine import cores
from loop.bench.orders import Floors
from loop.bench.room import JUDGE_LIMIT_S, Bench, Side
from loop.bench.sampled import Sampled
from loop.bench.timed_call import Setup, TimedCall
from loop.bench.turn import blaming, undisturbed
from loop.bench.verify import judged
from loop.bench.worker import START_LIMIT_S, Worker
from loop.model.measurement import Check, Segment
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.processes import Tick

SEGMENT_S = 10e-3
"""Time filled by one segment of a short workload, where torch has to be started for each process."""
SHORT_SEGMENT_S = 4e-3
"""The same between our own binaries: their processes start quickly, and more rounds tell more than long
segments."""
ANSWER_LIMIT_S = 60.0
UNFORESEEN = random.SystemRandom()
"""Draws which segment is judged: a seed that is known would tell."""
PROCESSES_AT_ONCE = max(8, min(16, cores()))
FIRST_ROUNDS = 3
PROBED_ROUNDS = 3
"""Rounds in which each side is asked whether it remembers values."""
MIN_ROUNDS = 2
"""An interval needs two replicates."""
KEPT_ON_CPU, KEPT_ON_GPU = 1, 5
"""Rounds that processes are kept for: a GPU opens for one process after the other, in 0.2 s each on an H200, and
importing torch takes 3 s."""


@dataclass(frozen=True)
class Terms:
    """How much is measured, and how."""

    rounds: int
    """Rounds, when time allows."""
    limit_s: float
    """No round is begun that would probably end later than this."""
    seed: int
    """Of the order in which sides take turns, and of the values."""
    segment_s: float = SEGMENT_S
    """Time that one segment fills."""
    cold: bool = False
    """Whether the caches are emptied before each timed call."""
    least: int = MIN_ROUNDS
    """Rounds that are made even when they take longer than `limit_s`."""


@dataclass
class Timings:
    """Raw samples, and what was noticed while they were taken."""

    segments: list[Segment] = field(default_factory=list)
    peaks: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Side and workload to bytes that the first call took, one a round."""
    floors: Floors | None = None
    """What calls that do nothing take here."""
    own_clock: set[str] = field(default_factory=set)
    """Sides that timed themselves."""
    rounds: int = 0
    wrong: list[tuple[str, Check]] = field(default_factory=list)
    """Timed outputs that were wrong, with their side."""
    outputs: int = 0
    """Timed outputs that were judged."""
    probes: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """Side and workload to seconds of a call on values it had not seen, and on values it had just seen."""
    clocks: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Of a GPU: side to pairs of seconds that a sample took by our clock and by the device's."""
    handed: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """Side, workload and round to seconds a call that handing its result over took."""
    readied: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    """Side and workload to seconds that making calls ready took, and how many: they are not timed."""
    strays: dict[str, str] = field(default_factory=dict)
    """Sides that left the cores they were given, and how."""


@dataclass(frozen=True)
class Evidence:
    """What a segment left to be judged."""

    side: str
    workload: Workload
    call: Call
    found: Sampled


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Which sides are still to be timed on which workload, by name; empty when everything is decided."""


class Pace:
    """Whether there is time for another round."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.begun, self.last_s = terms, time.monotonic(), 0.0

    def allows(self, timings: Timings, rounds: int) -> bool:
        """Whether so many more, with processes of their own, will probably end in time."""
        used = time.monotonic() - self.begun
        return timings.rounds < self.terms.least or used * (1 + rounds / timings.rounds) <= self.terms.limit_s

    def allows_more(self, timings: Timings) -> bool:
        """Whether one more will that needs no new process."""
        used = time.monotonic() - self.begun
        return timings.rounds < self.terms.least or used + self.last_s <= self.terms.limit_s


def measure(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    terms: Terms,
    pending: Pending | None = None,
) -> Generator[Tick, None, Timings]:
    """Time the sides turn about, until nothing is pending, or rounds or time are over.

    Only what is pending is timed, and only its sides are started.
    Raises LoopError when one of the sides crashes, hangs or refuses.
    """
    timings, pace, shuffle = Timings(), Pace(terms), random.Random(terms.seed)
    everything = {w.name: [side.name for side in sides if accepts(side, w)] for w in workloads}

    def still() -> Mapping[str, Sequence[str]]:
        return pending(timings) if pending else everything

    kept = KEPT_ON_GPU if bench.device == "cuda" else KEPT_ON_CPU
    for batch in batches(terms.rounds, max(1, PROCESSES_AT_ONCE // len(sides)), kept):
        wanted = {name for names in still().values() for name in names}
        if not wanted or not pace.allows(timings, sum(map(len, batch))):
            break
        chosen = [side for side in sides if side.name in wanted]
        yield from _batch(bench, chosen, workloads, batch, shuffle, timings, pace, still)
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
        started = [
            (Round(bench, sides, numbers[0], stack.enter_context(ExitStack()), pace.terms, shuffle), numbers)
            for numbers in batch
        ]
        neighbours = {worker: name for one, _ in started for name, worker in one.workers.items()}
        for one, _ in started:
            one.neighbours = neighbours
            yield from one.start()
        for one, numbers in started:
            for number in numbers:
                open_ = still()
                if any(open_.values()) and (number == numbers[0] or pace.allows_more(timings)):
                    yield from _round(one, number, numbers, workloads, open_, timings, pace)
            one.stack.close()


def _round(
    one: "Round",
    number: int,
    numbers: range,
    workloads: Sequence[Workload],
    open_: Mapping[str, Sequence[str]],
    timings: Timings,
    pace: Pace,
) -> Generator[Tick, None, None]:
    """One of the rounds that a set of processes serves."""
    begun, first = time.monotonic(), len(timings.segments)
    one.number = number
    yield from one.time([w for w in workloads if open_.get(w.name)], open_, timings)
    if len(numbers) > 1:
        made = timings.segments[first:]
        timings.segments[first:] = [s.model_copy(update={"processes": numbers[0]}) for s in made]
    timings.rounds += 1
    pace.last_s = time.monotonic() - begun


class Round:
    """A fresh process for each side, and fresh values for each workload."""

    def __init__(
        self,
        bench: Bench,
        sides: Sequence[Side],
        number: int,
        stack: ExitStack,
        terms: Terms,
        shuffle: random.Random,
    ) -> None:
        self.bench, self.number, self.terms, self.shuffle = bench, number, terms, shuffle
        self.stack = stack
        """Closing it ends the processes."""
        self.sides = {side.name: side for side in sides}
        self.workers = {side.name: stack.enter_context(bench.open(side)) for side in sides}
        self.neighbours: dict[Worker, str] = {}
        """Workers of this and of other rounds, and the names of their sides."""
        self.calls: dict[str, TimedCall] = {}
        """Side to its call of the workload that is timed now."""
        self.evidence: list[Evidence] = []

    def start(self) -> Generator[Tick, None, None]:
        """Wait until every side has loaded."""
        for name, worker in self.workers.items():
            with blaming(name, "loading"):
                yield from worker.receive(START_LIMIT_S, f"starting {name}")
            worker.pause()
        kin.end_nameless()

    def time(
        self, workloads: Sequence[Workload], open_: Mapping[str, Sequence[str]], timings: Timings
    ) -> Generator[Tick, None, None]:
        """Time every workload once, then judge what was computed meanwhile: the judge's work would disturb it."""
        fresh = [(workload, fresh_values(workload, self.terms.seed, self.number)) for workload in workloads]
        for _, drawn in fresh:
            yield from self.bench.expect(drawn, wide=True)
        for workload, drawn in fresh:
            yield from self._time(drawn, open_[workload.name], timings)
        yield from self._judge(timings)
        for _, drawn in fresh:
            yield from self.bench.discard(drawn)

    def _time(self, workload: Workload, names: Sequence[str], timings: Timings) -> Generator[Tick, None, None]:
        timings.floors = yield from self.bench.floors()
        setup = Setup(self.bench.device, timings.floors.order_s)
        values = [Values(Path(one.path).read_bytes()) for one in self.bench.call(workload, "", wide=True).inputs]
        for name in names:
            yield from self._stage(name, workload, values, setup, timings)
        second = {name for name in names if UNFORESEEN.random() < 0.5}
        segments: list[Segment] = []
        for place, name in enumerate(turns(names, self.shuffle)):
            looked_at = (place >= len(names)) == (name in second)
            segments.append((yield from self._segment(name, workload, timings, judged=looked_at)))
        timings.segments += charged(segments, timings.handed, self.number)
        for name in names:
            with self._turn(name, workload, timings):
                yield from self.calls.pop(name).forget(ANSWER_LIMIT_S, self._note(workload))

    @contextmanager
    def _turn(self, name: str, workload: Workload, timings: Timings) -> Iterator[None]:
        """While it lasts this side runs, and no other; what becomes of it and of others is said with its name."""
        worker = self.workers[name]
        with undisturbed(worker, name, self.neighbours, timings.strays):
            worker.resume()
            with blaming(name, workload.name):
                yield
            worker.pause()

    def _stage(
        self, name: str, workload: Workload, values: Sequence[Values], setup: Setup, timings: Timings
    ) -> Generator[Tick, None, None]:
        call = self.bench.call(workload, name, wide=True)
        with self._turn(name, workload, timings):
            timed = TimedCall(self.workers[name], call, values, self.sides[name], setup)
            yield from timed.stage(ANSWER_LIMIT_S, self._note(workload))
            if timed.peak_bytes is not None:
                timings.peaks.setdefault((name, workload.name), []).append(timed.peak_bytes)
            if self.number < PROBED_ROUNDS:
                fresh_s, again_s = yield from timed.probe()
                if again_s:
                    timings.probes.setdefault((name, workload.name), []).append((fresh_s, again_s))
        self.calls[name] = timed

    def _segment(
        self, name: str, workload: Workload, timings: Timings, *, judged: bool
    ) -> Generator[Tick, None, Segment]:
        """Time one side. One of its two segments is judged, and nobody in the worker knows which."""
        before = self.bench.sense()
        with self._turn(name, workload, timings):
            timed = self.calls[name]
            found = yield from timed.segment(self.terms.segment_s, cold=self.terms.cold, judged=judged)
            stray = self.workers[name].stray()
        after = self.bench.sense()
        if stray or found.stray:
            timings.strays[name] = stray or found.stray
        if found.own:
            timings.own_clock.add(name)
        timings.clocks.setdefault(name, []).extend(found.clocks)
        timings.readied.setdefault((name, workload.name), []).extend(found.readied)
        timings.handed.setdefault((name, workload.name, self.number), []).extend(found.handed)
        self.evidence.append(Evidence(name, workload, timed.call, found))
        return Segment(
            side=name,
            workload=workload.name,
            round=self.number,
            calls=found.calls,
            seconds=tuple(found.seconds),
            waited=tuple(found.waited),
            sensors=(before, after) if before and after else None,
        )

    def _judge(self, timings: Timings) -> Generator[Tick, None, None]:
        """Hold the timed outputs against the truth."""
        for one in self.evidence:
            same = [
                other.found for other in self.evidence if (other.side, other.workload) == (one.side, one.workload)
            ]
            if one.found.output is None:
                continue
            path = Path(f"{one.call.output.path}.timed")
            path.write_bytes(one.found.output)
            fields = {"call": one.call.to_json(), "outputs": [str(path)]}
            finding = yield from self.bench.judge("compare", JUDGE_LIMIT_S, self._note(one.workload), **fields)
            noticed = {
                "outputs": [str(path)],
                "changed": sorted({name for found in same for name in found.changed}),
                "broken": sorted({name for found in same for name in found.broken}),
                "writes": list(dict.fromkeys(text for found in same for text in found.writes)),
            }
            check = judged(self.sides[one.side], one.workload, "contiguous", noticed, finding)
            timings.outputs += 1
            if not check.passed:
                timings.wrong.append((one.side, check))
        self.evidence.clear()

    def _note(self, workload: Workload) -> str:
        return f"round {self.number + 1}: {workload.name}"


def fresh_values(workload: Workload, seed: int, number: int) -> Workload:
    """The workload with the seed of a round of its own."""
    return workload.model_copy(update={"seed": workload.seed + 1_000_003 * (number + 1) + 7919 * (seed % 65536)})


def turns(names: Sequence[str], shuffle: random.Random) -> list[str]:
    """Each name twice: a shuffled order, then the same backwards."""
    order = list(names)
    shuffle.shuffle(order)
    return [*order, *reversed(order)]
