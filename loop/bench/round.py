"""One round: a fresh process for each side, and values that no process has seen; judged once all is timed."""

import random
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.bench import kin
from loop.bench.arena import MOST_CALLS, Values
from loop.bench.call import Call
from loop.bench.child.control import CAPTURED
from loop.bench.deferral import charged
from loop.bench.limits import LONGEST_S
from loop.bench.orders import Floors
from loop.bench.room import BASELINE, JUDGE_LIMIT_S, Bench, Side
from loop.bench.sampled import Sampled, Setup
from loop.bench.timed_call import TimedCall
from loop.bench.verify import judged
from loop.bench.ways import called
from loop.bench.worker import START_LIMIT_S, Refusal, Worker, WorkerLost
from loop.errors import LoopError
from loop.model.measurement import Check, DeviceReading, Segment
from loop.model.target import Workload
from loop.processes import Tick, kill_group

SEGMENT_S = 10e-3
"""Time filled by one segment of a short workload, where torch has to be started for each process."""
ANSWER_LIMIT_S = LONGEST_S
"""What is timed was verified before: the step's own limit ends what hangs all the same."""
UNFORESEEN = random.SystemRandom()
"""Draws which segment is judged: a seed that is known would tell."""
PROBED_ROUNDS = 3
"""Rounds in which each side is asked whether it remembers values."""
MIN_ROUNDS = 2
"""An interval needs two replicates."""


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
    seconds: float = 0.0
    """What all rounds took, without the start of processes."""
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
    ways: dict[str, str] = field(default_factory=dict)
    """Side to how its calls are made."""
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
        self.workers = self.open_workers()
        self.neighbours: dict[Worker, str] = {}
        """Workers of this and of other rounds, and the names of their sides."""
        self.calls: dict[str, TimedCall] = {}
        """Side to its call of the workload that is timed now."""
        self.evidence: list[Evidence] = []
        self.sensed: DeviceReading | None = None
        """What the GPU's sensors said last."""
        self.probed: set[tuple[str, str]] = set()
        """Sides and workloads that were asked whether they remember values: once in a process."""

    def open_workers(self) -> dict[str, Worker]:
        """A fresh process for each side, by its name."""
        return {name: self.stack.enter_context(self.bench.open(side)) for name, side in self.sides.items()}

    def close(self) -> None:
        """End the processes, all at once: each takes a while."""
        for worker in self.workers.values():
            kill_group(worker.child.process.pid)
        self.stack.close()

    def mistake_of(self, name: str) -> Mapping[str, Any] | None:
        """The mistake that a side's worker has yet to make; None where it has loaded what errs."""
        return None

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
            yield from self.time_one(drawn, open_[workload.name], timings)
        yield from self._judge(timings)
        for _, drawn in fresh:
            yield from self.bench.discard(drawn)

    def time_one(self, workload: Workload, names: Sequence[str], timings: Timings) -> Generator[Tick, None, None]:
        """Time these sides on one workload, turn about."""
        timings.floors = yield from self.bench.floors()
        if BASELINE in names and self.bench.device == "cpu" and "torch" not in timings.floors.call_s:
            with self._turn(BASELINE, workload, timings):  # Torch is there: no other process has to import it.
                timings.floors = yield from self.bench.floor_of_torch(self.workers[BASELINE])
        setup = Setup(self.bench.device, timings.floors.order_s, most_calls(timings, workload))
        values = [Values(Path(one.path).read_bytes()) for one in self.bench.call(workload, "", wide=True).inputs]
        for name in names:
            yield from self._stage(name, workload, values, setup, timings)
        second = {name for name in names if UNFORESEEN.random() < 0.5}
        segments: list[Segment] = []
        order = turns(names, self.shuffle)
        if self.bench.device == "cuda":  # Its clock hardly drifts in a round; other rounds tell more.
            order, second = order[: len(names)], set()
        self.sensed = self.bench.sense()
        for place, name in enumerate(order):
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
            yield from timed.stage(ANSWER_LIMIT_S, self._note(workload), self.mistake_of(name))
            if timed.peak_bytes is not None:
                timings.peaks.setdefault((name, workload.name), []).append(timed.peak_bytes)
            if self.number < PROBED_ROUNDS and (name, workload.name) not in self.probed:
                self.probed.add((name, workload.name))
                fresh_s, again_s = yield from timed.probe()
                if again_s:
                    timings.probes.setdefault((name, workload.name), []).append((fresh_s, again_s))
        self.calls[name] = timed

    def _segment(
        self, name: str, workload: Workload, timings: Timings, *, judged: bool
    ) -> Generator[Tick, None, Segment]:
        """Time one side. One of its two segments is judged, and nobody in the worker knows which."""
        before = self.sensed
        with self._turn(name, workload, timings):
            timed = self.calls[name]
            found = yield from timed.segment(self.terms.segment_s, cold=self.terms.cold, judged=judged)
            stray = self.workers[name].stray()
        after = self.sensed = self.bench.sense()
        if stray or found.stray:
            timings.strays[name] = stray or found.stray
        if found.own:
            timings.own_clock.add(name)
        captured = bool(self.workers[name].arena.words[CAPTURED])
        timings.ways[name] = called(self.sides[name], self.bench.device, captured=captured)
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


def most_calls(timings: Timings, workload: Workload) -> int:
    """Calls that a sample of a workload may come to, by those that were taken: each needs memory."""
    taken = [segment.calls for segment in timings.segments if segment.workload == workload.name]
    return 8 + 4 * max(taken) if taken else MOST_CALLS


def fresh_values(workload: Workload, seed: int, number: int) -> Workload:
    """The workload with the seed of a round of its own."""
    return workload.model_copy(update={"seed": workload.seed + 1_000_003 * (number + 1) + 7919 * (seed % 65536)})


def turns(names: Sequence[str], shuffle: random.Random) -> list[str]:
    """Each name twice: a shuffled order, then the same backwards."""
    order = list(names)
    shuffle.shuffle(order)
    return [*order, *reversed(order)]


class Untimed(LoopError):
    """A side that could not be timed: it crashed, hung or was refused."""

    def __init__(self, side: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=1)
        self.side = side
        """Its name."""


@contextmanager
def undisturbed(
    worker: Worker, name: str, neighbours: Mapping[Worker, str], strays: dict[str, str]
) -> Iterator[None]:
    """While it lasts one side runs. What is done meanwhile to those that stand still, and to us, is said of it.

    Raises Untimed when one of them was killed: there is nothing left to compare with.
    """
    mine = kin.own_terms()
    yield
    others = {one: side for one, side in neighbours.items() if one is not worker and one.is_paused}
    for other, side in others.items():
        done = other.kin.meddled()
        if done == kin.KILLED and other.child.code != -signal.SIGKILL:
            continue  # By its own fault: any other signal waits until it goes on.
        if done:
            if done == kin.KILLED:
                message = f"the process of {side} was killed while {name} ran"
                raise Untimed(name, message, f"`loop kernels verify {name.split()[0]}` runs it alone")
            strays.setdefault(name, f"while it ran, the process of {side} was {done}")
        if runs := other.kin.awake():
            strays.setdefault(side, f"{runs} while another side is timed")
    if kin.end_nameless():
        strays.setdefault(name, "a process that it started hides where it comes from")
    if kin.restore(mine):
        strays.setdefault(name, "while it ran, loop's own process was given other cores or another priority")


class blaming:  # noqa: N801 - reads as a word in a with statement
    """Turns the loss of a worker into an error that names the side and the workload."""

    def __init__(self, side: str, what: str) -> None:
        self.side, self.what = side, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WorkerLost | Refusal):
            message = f"{self.side} could not be timed on {self.what}: {error}"
            hint = f"`loop kernels verify {self.side.split()[0]}` runs it alone"
            raise Untimed(self.side, message, hint) from error
