"""How fast is it? Sides take turns in fresh processes; the process is the replicate, not the call.

One round is a fresh process for each side, with inputs that no process has seen. On a GPU, where
starting takes longer than timing, a few rounds share processes. Within a round every workload is
timed in the order A B C C B A (A B B A for two sides), reshuffled each time, so that drift affects
all sides alike. Outputs of timed calls are copied at once, and judged after the round.
"""

import itertools
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loop.base.errors import WorkFailed
from loop.base.processes import Tick, kill_group
from loop.base.stats import MIN_VALUES
from loop.calls.arena import CAPTURED, MOST_CALLS, InputValues
from loop.calls.call import Call
from loop.gate.verify import LONGEST_S, call_limit_s, check_of
from loop.machine.machine import cores
from loop.model.causes import Cause
from loop.model.measurement import BASELINE, DeviceReading, Segment
from loop.model.target import Workload
from loop.model.workloads import is_supported
from loop.timing.samples import JudgedSample, Pending, Terms, Timings, charge_deferred_work, describe_calls
from loop.timing.timed_call import SECRET, SegmentSamples, TimedCall
from loop.workers.bench import JUDGE_LIMIT_S, Bench, Side
from loop.workers.judge_messages import Compare
from loop.workers.messages import Computed
from loop.workers.program import START_LIMIT_S, Refusal, Worker, WorkerLost

PROBED_ROUNDS = 3
"""Rounds in which each side is tested for cached results."""
FIRST_SET_SHARE = 0.45
"""Share of the remaining time for the first set of shared processes: it has more to start."""
PROCESSES_AT_ONCE = max(8, min(16, cores()))
FIRST_BATCH = 3
PROOF_ROUNDS = 4
"""Extra rounds for a side without a fast verified call, by chance or because it computes none."""
ROUNDS_PER_SET_CPU, ROUNDS_PER_SET_GPU = 1, 5
"""Rounds that share processes: on an H200 they start one by one, in 0.2 s; torch takes 3 s."""
GRACE_FACTOR = 3.0
"""Shared processes may use this many times the limit for the rounds that an interval needs."""


class Untimed(WorkFailed):
    """A side that could not be timed: it crashed, hung or was refused."""

    def __init__(self, side: str, cause: Cause, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.side, self.cause = side, cause
        """The side's name, and the cause."""


@contextmanager
def blame_side(side: str, what: str) -> Iterator[None]:
    """Turn the loss of a worker into an error that names the side and the workload."""
    try:
        yield
    except (WorkerLost, Refusal) as error:
        message = f"{side} could not be timed on {what}: {error}"
        raise Untimed(
            side, error.cause, message, f"`loop kernels verify {side.split()[0]}` runs it alone"
        ) from error


class SegmentEvidence(NamedTuple):
    """What the judge needs to check a segment's output."""

    side: str
    workload: Workload
    call: Call
    samples: SegmentSamples


@dataclass(eq=False)
class ProcessSet:
    """A fresh process for each side, fresh values for each workload; on a GPU for a few rounds."""

    bench: Bench
    sides: Mapping[str, Side]
    """Name to side."""
    round_numbers: range
    """Numbers of the rounds that share the processes. Fewer are timed if time is short."""
    stack: ExitStack
    """Closing it ends the processes."""
    terms: Terms
    shuffle: random.Random
    deadline: float = math.inf
    """Deadline by the monotonic clock."""
    least_rounds: int = 2
    """Rounds that are timed however long they take."""
    round_number: int = field(init=False, default=0)
    """Number of the current round."""
    workers: dict[str, Worker] = field(init=False)
    calls: dict[str, TimedCall] = field(init=False, default_factory=dict)
    """Side to its call of the current workload."""
    started_sides: set[str] = field(init=False, default_factory=set)
    """Sides whose process has made its first call."""
    evidence: list[SegmentEvidence] = field(init=False, default_factory=list)
    latest_reading: DeviceReading | None = field(init=False, default=None)
    """Latest reading of the GPU's sensors."""
    probed_calls: set[tuple[str, str]] = field(init=False, default_factory=set)
    """Sides and workloads tested for cached results: once a process."""

    def __post_init__(self) -> None:
        self.workers = {
            n: self.stack.enter_context(self.bench.start_worker(side)) for n, side in self.sides.items()
        }

    def close(self) -> None:
        """End all processes at the same time, because each takes a while."""
        for worker in self.workers.values():
            kill_group(worker.child.process.pid)
        self.stack.close()

    def wait_until_loaded(self) -> Generator[Tick, None, None]:
        """Wait until every side has loaded."""
        for name, worker in self.workers.items():
            with blame_side(name, "loading"):
                yield from worker.receive(START_LIMIT_S, f"starting {name}")
            worker.pause()

    def time_workloads(
        self, workloads: Sequence[Workload], open_: Mapping[str, Sequence[str]], timings: Timings
    ) -> Generator[Tick, None, int]:
        """Time every workload, then judge the outputs; judging meanwhile would disturb the timing.

        `open_`: the sides to time, by workload. Returns the rounds that every workload got.
        """
        more = 1_000_003 * (self.round_numbers[0] + 1) + 7919 * (self.terms.seed % 65536)
        fresh = [workload.model_copy(update={"seed": workload.seed + more}) for workload in workloads]
        for workload in fresh:
            yield from self.bench.prepare_answer(workload, with_windows=True)
        rounds = len(self.round_numbers)
        for place, workload in enumerate(fresh):
            names = open_[workload.name]
            yield from self._stage_workload(workload, names, timings)
            rounds = min(rounds, (yield from self._time_rounds(workload, names, timings, len(fresh) - place)))
            for name in names:
                with self._running_alone(name, workload):
                    yield from self.calls.pop(name).forget(LONGEST_S, self._progress_note(workload))
        yield from self._judge_outputs(timings)
        for workload in fresh:
            yield from self.bench.discard_answer(workload)
        return rounds

    def _stage_workload(
        self, workload: Workload, names: Sequence[str], timings: Timings
    ) -> Generator[Tick, None, None]:
        """Have each side map its call's memory and make the call once; test for cached results.

        On a GPU all do so at once, before timing: its driver makes each wait; the host has enough
        cores.
        """
        self.round_number = self.round_numbers[0]
        timings.floors = yield from self.bench.measure_floors()
        if BASELINE in names and self.bench.device == "cpu" and "torch" not in timings.floors.call_s_by_way:
            with self._running_alone(BASELINE, workload):  # The baseline has already imported torch.
                timings.floors = yield from self.bench.add_torch_floor(self.workers[BASELINE])
        tensors = self.bench.make_call(workload, "", with_windows=True).inputs
        values = [InputValues(Path(tensor.path).read_bytes()) for tensor in tensors]
        order = self.shuffle.sample(names, len(names))
        together = self.bench.device == "cuda"
        for name in order if together else ():
            self.workers[name].resume()
            self._begin_staging(name, workload, values, timings)
        for name in order:
            with self._running_alone(name, workload):
                if not together:
                    self._begin_staging(name, workload, values, timings)
                yield from self._finish_staging(name, workload, timings)
                if not together:
                    yield from self._probe_memory(name, workload, timings)
        for name in order if together else ():
            with self._running_alone(name, workload):
                yield from self._probe_memory(name, workload, timings)

    def _begin_staging(self, name: str, workload: Workload, values: list[InputValues], timings: Timings) -> None:
        """Have a side map the call's memory, with room for several times the calls timed so far."""
        calls = [segment.calls for segment in timings.segments_of(workload.name)]
        timed = self.calls[name] = TimedCall(
            self.workers[name], self.bench.make_call(workload, name, with_windows=True), values, self.sides[name],
            self.bench.device, floor_s=timings.floors.order_s if timings.floors else 0.0,
            most_calls=8 + 4 * max(calls) if calls else MOST_CALLS,
        )  # fmt: skip
        timed.begin_stage()

    def _finish_staging(self, name: str, workload: Workload, timings: Timings) -> Generator[Tick, None, None]:
        timed, begun = self.calls[name], time.monotonic()
        yield from timed.staged(LONGEST_S, self._progress_note(workload), alone=self.bench.device == "cpu")
        timed.orders.limit_s = call_limit_s(self.bench, workload)  # Only the first call may compile.
        if name not in self.started_sides:
            self.started_sides.add(name)
            self.bench.first_calls_s += time.monotonic() - begun
        if timed.peak_bytes is not None:
            timings.peak_bytes.setdefault((name, workload.name), []).append(timed.peak_bytes)

    def _probe_memory(self, name: str, workload: Workload, timings: Timings) -> Generator[Tick, None, None]:
        """Test once a set of processes whether a side caches results for values it has seen.

        A CPU is tested in the first rounds only. A GPU's every set is: else its first round is 5 %
        slower.
        """
        late = self.round_number >= PROBED_ROUNDS and self.bench.device == "cpu"
        if late or (name, workload.name) in self.probed_calls:
            return
        self.probed_calls.add((name, workload.name))
        if probed := (yield from self.calls[name].probe()):
            timings.memory_probes.setdefault((name, workload.name), []).append(probed)

    def _time_rounds(
        self, workload: Workload, names: Sequence[str], timings: Timings, to_come: int
    ) -> Generator[Tick, None, int]:
        """The rounds of one workload, sides alternating; returns how many were timed.

        `to_come`: workloads left, this one included. One random segment a side is judged. With two,
        the repeated values would tell the worker which segments they are.
        """
        turn = 1 if self.bench.device == "cuda" else 2
        """Segments of a side in a round: a GPU's clock hardly drifts, and more rounds tell more."""
        rounds, begun, self.latest_reading = len(self.round_numbers), time.monotonic(), self.bench.read_sensors()
        judged = {name: SECRET.randrange(turn * rounds) for name in names}
        for done, number in enumerate(self.round_numbers):
            self.round_number = number
            if done == 1:  # Fit the rounds to the workload's time, by the first.
                share_s, round_s = max(0.0, self.deadline - time.monotonic()) / to_come, time.monotonic() - begun
                more = min(share_s / max(round_s, 1e-6), len(self.round_numbers))
                rounds = min(len(self.round_numbers), max(2, self.least_rounds, 1 + int(more)))
                later = {name for name, at in judged.items() if at >= turn}
                judged |= {name: turn + SECRET.randrange(turn * (rounds - 1)) for name in later}
            if done == rounds:
                break
            segments: list[Segment] = []
            order = self.shuffle.sample(names, len(names))
            for place, name in enumerate([*order, *reversed(order)][: turn * len(names)]):
                at = turn * done + place // len(names)
                segments.append(
                    (yield from self._time_segment(name, workload, timings, judged=at == judged[name]))
                )
            timings.segments += charge_deferred_work(segments, timings.return_times_s, self.round_number)
        return rounds

    @contextmanager
    def _running_alone(self, name: str, workload: Workload) -> Iterator[None]:
        """Let one side run while the others are stopped; errors name the side."""
        worker = self.workers[name]
        worker.resume()
        with blame_side(name, workload.name):
            yield
        worker.pause()

    def _time_segment(
        self, name: str, workload: Workload, timings: Timings, *, judged: bool
    ) -> Generator[Tick, None, Segment]:
        before = self.latest_reading
        with self._running_alone(name, workload):
            timed = self.calls[name]
            sampled = yield from timed.segment(self.terms.segment_s, judged=judged)
        after = self.latest_reading = self.bench.read_sensors()
        if sampled.own:
            timings.self_timed_sides.add(name)
        captured = bool(self.workers[name].arena.control_words[CAPTURED])
        timings.call_descriptions[name] = describe_calls(self.sides[name], self.bench.device, captured=captured)
        timings.clock_pairs.setdefault(name, []).extend(sampled.clocks)
        timings.return_times_s.setdefault((name, workload.name, self.round_number), []).extend(sampled.handed)
        if sampled.output is not None and not timed.is_program:
            proof = JudgedSample(sampled.seconds[sampled.known], sampled.calls)
            timings.judged_samples.setdefault((name, workload.name), []).append(proof)
        self.evidence.append(SegmentEvidence(name, workload, timed.call, sampled))
        return Segment(
            side=name,
            workload=workload.name,
            round=self.round_number,
            calls=sampled.calls,
            seconds=tuple(sampled.seconds),
            waited=tuple(sampled.waited),
            sensors=(before, after) if before and after else None,
            processes=self.round_numbers[0] if len(self.round_numbers) > 1 else None,
        )

    def _judge_outputs(self, timings: Timings) -> Generator[Tick, None, None]:
        """Check the timed outputs against the reference, each with all segments of its side."""
        for side, workload, call, sampled in self.evidence:
            if sampled.output is None:
                continue
            same = [each.samples for each in self.evidence if (each.side, each.workload) == (side, workload)]
            path = Path(f"{call.output.path}.timed")
            path.write_bytes(sampled.output)
            finding = yield from self.bench.ask_judge(
                Compare(call, (str(path),)), JUDGE_LIMIT_S, self._progress_note(workload)
            )
            noticed = Computed(
                output_files=(str(path),),
                changed_inputs=tuple(sorted({name for sampled in same for name in sampled.changed})),
                replaced_functions=tuple(sorted({name for sampled in same for name in sampled.broken})),
                depends_on_prefill=any(sampled.unwritten for sampled in same),
                stray_writes=tuple(dict.fromkeys(text for sampled in same for text in sampled.writes)),
            )
            check = check_of(self.sides[side], workload, "contiguous", noticed, finding)
            timings.checked_outputs += 1
            if not check.passed:
                timings.wrong_outputs.append((side, check))
        self.evidence.clear()

    def _progress_note(self, workload: Workload) -> str:
        return f"round {self.round_number + 1}: {workload.name}"


def measure(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    terms: Terms,
    pending: Pending | None = None,
) -> Generator[Tick, None, Timings]:
    """Time the sides, alternating, until nothing is pending, or rounds or time are over.

    `pending`: what is still to be timed; None: everything, in every round. Extra rounds follow,
    even beyond the limit, for sides whose verified calls were all far slower: they are proof, and
    no samples. Raises LoopError if a side crashes, hangs or refuses.
    """
    kept = ROUNDS_PER_SET_GPU if bench.device == "cuda" else ROUNDS_PER_SET_CPU
    schedule = Schedule(bench, sides, workloads, terms, kept > 1)
    timings = schedule.timings
    everything = {w.name: [side.name for side in sides if is_supported(side, w)] for w in workloads}

    def still() -> Mapping[str, Sequence[str]]:
        return pending(timings) if pending else everything

    def unproven() -> Mapping[str, Sequence[str]]:
        wrong = {(side, check.workload.name) for side, check in timings.wrong_outputs}
        return {
            place: [name for name in names if (name, place) not in wrong and timings.unproven_times_s(name, place)]
            for place, names in everything.items()
        }

    for batch in batches(terms.rounds, max(1, PROCESSES_AT_ONCE // len(sides)), kept):
        fitting = schedule.sets_that_fit(batch)
        if not any(still().values()) or not fitting:
            break
        yield from schedule.time_sets(fitting, still)
        if len(fitting) < len(batch):
            break
    rounds, segments = timings.rounds, list(timings.segments)
    for number in range(terms.rounds, terms.rounds + PROOF_ROUNDS):
        if not any(unproven().values()):
            break
        schedule.least_rounds = timings.rounds + 1
        yield from schedule.time_sets([range(number, number + 1)], unproven)
    timings.rounds, timings.segments = rounds, segments
    return timings


def batches(rounds: int, size: int, kept: int = 1) -> list[list[range]]:
    """All rounds as ranges that share processes, grouped into batches that start together.

    At most `kept` rounds share processes, and at least two sets exist. A batch has at most `size`
    sets; the first has fewer, to see how long they take.
    """
    count = max(math.ceil(rounds / kept), min(2, rounds))
    edges = [rounds * number // count for number in range(count + 1)]
    sets = [range(first, end) for first, end in itertools.pairwise(edges)]
    begin = min(size, FIRST_BATCH if kept == 1 else 2)
    return [sets[:begin]] + [sets[first : first + size] for first in range(begin, count, size)]


class Schedule:
    """Which rounds there is time for. `kept`: whether several rounds share processes."""

    def __init__(
        self,
        bench: Bench,
        sides: Sequence[Side],
        workloads: Sequence[Workload],
        terms: Terms,
        shares_processes: bool,
    ) -> None:
        self.bench, self.sides, self.workloads, self.terms, self.kept = (
            bench,
            sides,
            workloads,
            terms,
            shares_processes,
        )
        self.timings, self.shuffle = Timings(), random.Random(terms.seed)
        self.least_rounds, self.begun, self.last_round_s = terms.least_rounds, time.monotonic(), 0.0
        """Rounds timed even if time is over; start time; seconds of the last round (two if
        shared)."""

    def _is_round_required(self) -> bool:
        few = (
            self.kept and self.timings.rounds < MIN_VALUES and self._elapsed_s < GRACE_FACTOR * self.terms.limit_s
        )
        return few or self.timings.rounds < self.least_rounds

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self.begun

    def sets_that_fit(self, batch: Sequence[range]) -> Sequence[range]:
        """The sets of rounds that will probably end in time; counting at most two rounds a set."""
        for count in range(len(batch), 0, -1):
            rounds = sum(min(2, len(numbers)) for numbers in batch[:count])
            if (
                self._is_round_required()
                or self._elapsed_s * (1 + rounds / self.timings.rounds) <= self.terms.limit_s
            ):
                return batch[:count]
        return ()

    def time_sets(
        self, batch: Sequence[range], still: Callable[[], Mapping[str, Sequence[str]]]
    ) -> Generator[Tick, None, None]:
        """Start the processes of several rounds together, the costliest part; then time one by one.

        `still`: the sides to time, by workload. Processes end with their last round, because each
        holds hundreds of megabytes of a GPU from its first call on.
        """
        names = {name for some in still().values() for name in some}
        chosen = [side for side in self.sides if side.name in names]
        with ExitStack() as stack:
            rounds: list[ProcessSet] = []
            for numbers in batch:  # Random: the first process gets other GPU memory.
                named = {side.name: side for side in self.shuffle.sample(chosen, len(chosen))}
                closing = stack.enter_context(ExitStack())
                rounds.append(ProcessSet(self.bench, named, numbers, closing, self.terms, self.shuffle))
            for started in rounds:
                yield from started.wait_until_loaded()
            for started in rounds:
                open_ = still()
                if any(open_.values()) and (
                    self._is_round_required() or self._elapsed_s + self.last_round_s <= self.terms.limit_s
                ):
                    yield from self._time_set(started, open_)
                started.close()

    def _time_set(self, started: ProcessSet, open_: Mapping[str, Sequence[str]]) -> Generator[Tick, None, None]:
        """Time a started round; the first set of shared processes leaves time for another."""
        timings, start_time = self.timings, time.monotonic()
        wanted = max(self.least_rounds, MIN_VALUES if self.kept else 0) - timings.rounds
        share = 1.0 if timings.rounds else FIRST_SET_SHARE
        started.deadline = start_time + share * max(0.0, self.terms.limit_s - self._elapsed_s)
        started.least_rounds = wanted if timings.rounds else math.ceil(wanted / 2)
        rounds = yield from started.time_workloads(
            [w for w in self.workloads if open_.get(w.name)], open_, timings
        )
        took_s = time.monotonic() - start_time
        self.last_round_s = took_s * min(2, rounds) / rounds
        timings.rounds, timings.rounds_s = timings.rounds + rounds, timings.rounds_s + took_s
