"""How fast is it? Sides take turns in fresh processes; the process is the replicate, never the iteration.

One round is a fresh process for each side, and inputs that no process has seen. Within it every workload is timed
in the order A B C C B A (A B B A for two sides), shuffled anew each time, so that drift hits all sides alike.
Outputs of timed calls are read at once and judged when the round is over.
"""

import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from loop.bench.machine import cores
from loop.bench.room import JUDGE_LIMIT_S, Bench, Side
from loop.bench.verify import judged
from loop.bench.worker import START_LIMIT_S, Refusal, WorkerLost
from loop.errors import LoopError
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
PROCESSES_AT_ONCE = max(8, min(16, cores()))
FIRST_ROUNDS = 3
PROBED_ROUNDS = 3
"""Rounds in which each side is asked whether it remembers values."""
MIN_ROUNDS = 2
"""An interval needs two replicates."""


@dataclass(frozen=True)
class Terms:
    """How much is measured, and how."""

    rounds: int
    """Sets of fresh processes, when time allows."""
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
    own_clock: set[str] = field(default_factory=set)
    """Sides that timed themselves."""
    rounds: int = 0
    wrong: list[tuple[str, Check]] = field(default_factory=list)
    """Timed outputs that were wrong, with their side."""
    outputs: int = 0
    """Timed outputs that were judged."""
    probes: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """Side and workload to seconds of a call on values it had not seen, and on values it had just seen."""
    lags: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Side to pairs of seconds that a request took by our clock and by the worker's."""
    strays: dict[str, str] = field(default_factory=dict)
    """Sides that left the cores they were given, and how."""


Pending = Callable[[Timings], Mapping[str, Sequence[str]]]
"""Which sides are still to be timed on which workload, by name; empty when everything is decided."""


def measure(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    terms: Terms,
    pending: Pending | None = None,
) -> Generator[Tick, None, Timings]:
    """Time the sides turn about, until nothing is pending, or rounds or time are over.

    Raises LoopError when one of the sides crashes, hangs or refuses.
    """
    timings = Timings()
    shuffle = random.Random(terms.seed)
    everything = {w.name: [side.name for side in sides if accepts(side, w)] for w in workloads}
    begun = time.monotonic()
    for batch in batches(terms.rounds, max(1, PROCESSES_AT_ONCE // len(sides))):
        used = time.monotonic() - begun
        if timings.rounds >= terms.least and used * (1 + len(batch) / timings.rounds) > terms.limit_s:
            break
        open_ = pending(timings) if pending and timings.rounds else everything
        if not any(open_.values()):
            break
        yield from _batch(bench, sides, workloads, batch, shuffle, timings, terms, open_)
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
    terms: Terms,
    open_: Mapping[str, Sequence[str]],
) -> Generator[Tick, None, None]:
    """Start the processes of several rounds together, for that is most of the cost; then time one by one.

    Those of a round end with it: each holds hundreds of megabytes of a GPU from its first call on.
    """
    with ExitStack() as stack:
        rounds = [
            Round(bench, sides, number, stack.enter_context(ExitStack()), terms, shuffle) for number in batch
        ]
        for one in rounds:
            yield from one.start()
        for one in rounds:
            yield from one.time([w for w in workloads if open_.get(w.name)], open_, timings)
            one.stack.close()
            timings.rounds += 1


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
        self.evidence: list[tuple[str, Workload, dict[str, Any]]] = []

    def start(self) -> Generator[Tick, None, None]:
        """Wait until every side has loaded."""
        for name, worker in self.workers.items():
            with blaming(name, "loading"):
                yield from worker.receive(START_LIMIT_S, f"starting {name}")
            worker.pause()

    def time(
        self, workloads: Sequence[Workload], open_: Mapping[str, Sequence[str]], timings: Timings
    ) -> Generator[Tick, None, None]:
        """Time every workload once, then judge what was computed meanwhile."""
        fresh = [(workload, fresh_values(workload, self.terms.seed, self.number)) for workload in workloads]
        for _, drawn in fresh:
            yield from self.bench.expect(drawn, wide=True)
        for workload, drawn in fresh:
            names = open_[workload.name]
            for name in names:
                yield from self._prepare(name, drawn, timings)
            second = {name for name in names if self.shuffle.random() < 0.5}
            for place, name in enumerate(turns(names, self.shuffle)):
                looked_at = (place >= len(names)) == (name in second)
                yield from self._segment(name, drawn, place, timings, judged=looked_at)
            for name in names:
                yield from self._ask(name, drawn, "forget", key=self._key(drawn, name))
        self._look_round(timings)
        yield from self._judge(timings)
        for _, drawn in fresh:
            yield from self.bench.discard(drawn)

    def _key(self, workload: Workload, name: str) -> str:
        return self.bench.call(workload, name).key

    def _ask(self, name: str, workload: Workload, do: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        """One request to a side; between its requests it stands still, and disturbs nobody."""
        worker = self.workers[name]
        worker.resume()
        with blaming(name, workload.name):
            reply = yield from worker.ask(do, limit_s=ANSWER_LIMIT_S, note=self._note(workload), **fields)
        worker.pause()
        return reply

    def _prepare(self, name: str, workload: Workload, timings: Timings) -> Generator[Tick, None, None]:
        call = self.bench.call(workload, name, wide=True).to_json()
        fields = {"call": call, "seed": workload.seed, "probe": self.number < PROBED_ROUNDS}
        reply = yield from self._ask(name, workload, "prepare", **fields)
        if reply["peak_bytes"] is not None:
            timings.peaks.setdefault((name, workload.name), []).append(reply["peak_bytes"])
        if reply["again_s"]:
            probes = timings.probes.setdefault((name, workload.name), [])
            probes.append((reply["fresh_s"], reply["again_s"]))

    def _segment(
        self, name: str, workload: Workload, place: int, timings: Timings, *, judged: bool
    ) -> Generator[Tick, None, None]:
        """Time one side. One of its two segments is judged, and nobody in the worker knows which."""
        call = self.bench.call(workload, name, wide=True)
        output = f"{call.output.path}.{self.number}.{place}"
        fields = {"key": call.key, "seconds": self.terms.segment_s, "cold": self.terms.cold, "judged": judged}
        before, begun = self.bench.sense(), time.perf_counter()
        reply = yield from self._ask(name, workload, "time", output=output, **fields)
        timings.lags.setdefault(name, []).append((time.perf_counter() - begun, reply["elapsed"]))
        after = self.bench.sense()
        if reply["own"]:
            timings.own_clock.add(name)
        outputs = [output] if judged else []
        self.evidence.append((name, workload, {**reply, "call": call.to_json(), "outputs": outputs}))
        timings.segments.append(
            Segment(
                side=name,
                workload=workload.name,
                round=self.number,
                calls=reply["calls"],
                seconds=tuple(reply["samples"]),
                sensors=(before, after) if before and after else None,
            )
        )

    def _look_round(self, timings: Timings) -> None:
        for name, worker in self.workers.items():
            stray = worker.stray()
            if stray:
                timings.strays[name] = stray

    def _judge(self, timings: Timings) -> Generator[Tick, None, None]:
        """Hold the timed outputs against the truth, once timing is over: the judge's work would disturb it."""
        for name, workload, reply in self.evidence:
            noticed = [other for one, place, other in self.evidence if (one, place) == (name, workload)]
            reply |= {word: sorted({x for n in noticed for x in n[word]}) for word in ("changed", "broken")}
            if not reply["outputs"]:
                continue
            fields = {"call": reply["call"], "outputs": reply["outputs"]}
            finding = yield from self.bench.judge("compare", JUDGE_LIMIT_S, self._note(workload), **fields)
            check = judged(self.sides[name], workload, "contiguous", reply, finding)
            timings.outputs += 1
            if not check.passed:
                timings.wrong.append((name, check))
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
                hint=f"`loop kernels verify {self.side.split()[0]}` runs it alone",
                exit_code=1,
            ) from error
