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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from loop.base.errors import WorkFailed
from loop.base.processes import Waiting, kill_trees
from loop.base.stats import MIN_VALUES
from loop.calls.arena import GRAPH_NODES, MOST_CALLS
from loop.calls.call import Call, Refused
from loop.gate.verify import LONGEST_S, call_limit_s, make_check_of
from loop.machine.machine import cores
from loop.model.measurement import DeviceReading, Segment
from loop.model.target import Workload
from loop.model.workloads import is_supported
from loop.timing.samples import Limits, Pending, Timings, charge_deferred_work
from loop.timing.timed_call import SECRET, SegmentSamples, TimedCall
from loop.workers.bench import JUDGE_LIMIT_S, Bench, Side
from loop.workers.judge_messages import Compare
from loop.workers.messages import Computed, Unstage
from loop.workers.program import START_LIMIT_S, Orders, WorkerLost

PROBED_ROUNDS = 3  # Rounds in which each side is tested for cached results.
FIRST_SET_SHARE = 0.45  # Share of the time left for the first set of processes: more has to start.
PROCESSES_AT_ONCE = max(8, min(16, cores()))
FIRST_BATCH = 3
SETS_AT_ONCE_GPU = 2
PROOF_ROUNDS = 4  # Extra rounds for a side without a fast verified call; it may be chance.
ROUNDS_PER_SET_CPU, ROUNDS_PER_SET_GPU = 1, 5
"""Rounds that share processes: on an H200 they start one by one, in 0.2 s; torch takes 3 s."""
GRACE_FACTOR = 3.0  # Shared processes may use so many times the limit for an interval's rounds.


class Untimed(WorkFailed):
    """A side that could not be timed: it crashed, hung or was refused."""

    def __init__(self, side: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.side = side


@contextmanager
def blame_side(side: str, activity: str) -> Iterator[None]:
    """Turn a worker's loss or refusal into an error that names side and workload (or `loading`)."""
    try:
        yield
    except (WorkerLost, Refused) as error:
        # The side may be `v3 known good`.
        hint = f"`loop kernels verify {side.split()[0]}` runs it alone"
        message = f"{side} could not be timed on {activity}: {error}"
        raise Untimed(side, message, hint) from error


class ProcessSet:
    """A fresh process for each side, for one round; on a GPU for a few. Values are new, too."""

    def __init__(
        self, schedule: "Schedule", sides: Sequence[Side], round_numbers: range, stack: ExitStack
    ) -> None:
        """`round_numbers`: of the rounds that share the processes, which `stack` ends."""
        self.bench, self.limits, self.shuffle = schedule.bench, schedule.limits, schedule.shuffle
        self.timings, self.round_numbers, self.stack = schedule.timings, round_numbers, stack
        self.sides = {side.name: side for side in sides}
        start = self.bench.start_worker
        self.workers = {side.name: stack.enter_context(start(side)) for side in sides}
        self.deadline, self.least_rounds, self.round_number = math.inf, 2, round_numbers[0]
        """When the rounds should end (monotonic clock); rounds timed however long they take."""
        self.calls: dict[str, TimedCall] = {}  # Side to its call of the current workload.
        self.started_sides: set[str] = set()  # Sides whose process has made its first call.
        self.evidence: list[tuple[str, Workload, Call, SegmentSamples]] = []
        """Of each segment, what the judge needs to check its output."""
        self.latest_reading: DeviceReading | None = None

    def time_workloads(
        self, workloads: Sequence[Workload], sides_by_workload: Mapping[str, Sequence[str]]
    ) -> Waiting[int]:
        """Time every workload, then judge the outputs; judging meanwhile would disturb the timing.
        `sides_by_workload`: names of the sides. Returns the rounds that timed every workload."""
        # No process has seen these values: primes keep the seeds of sets and of sessions apart.
        seed_shift = 1_000_003 * (self.round_numbers[0] + 1) + 7919 * (self.limits.seed % 65536)
        reseeded = [w.model_copy(update={"seed": w.seed + seed_shift}) for w in workloads]
        for workload in reseeded:
            yield from self.bench.prepare_answer(workload, with_windows=True)
        least_rounds = len(self.round_numbers)
        for index, workload in enumerate(reseeded):
            names = sides_by_workload[workload.name]
            yield from self._stage_workload(workload, names)
            rounds = yield from self._time_rounds(workload, names, len(reseeded) - index)
            least_rounds = min(least_rounds, rounds)
            for name in names:
                with self._running_alone(name, workload):
                    note = self._progress_note(workload)
                    yield from self.workers[name].ask(Unstage(), limit_s=LONGEST_S, note=note)
                    self.calls.pop(name).arena.free_tensors()
        yield from self._judge_outputs()
        for workload in reseeded:
            yield from self.bench.discard_answer(workload)
        return least_rounds

    def _stage_workload(self, workload: Workload, names: Sequence[str]) -> Waiting[None]:
        """Time empty calls, once a session; then have each side map its call's memory, make the
        call once, and test it for cached results: on a CPU side after side, in the first rounds; on
        a GPU together, as its driver makes each wait, and always, else a first round is slower."""
        self.round_number = self.round_numbers[0]
        floors = self.timings.floors = yield from self.bench.measure_floors()
        is_cpu = self.bench.device == "cpu"
        tensors = self.bench.make_call(workload, "", with_windows=True).inputs
        doubled_values = [2 * Path(tensor.path).read_bytes() for tensor in tensors]
        timed = [segment.calls for segment in self.timings.segments_of(workload.name)]
        most_calls = 8 + 4 * max(timed) if timed else MOST_CALLS
        order = self.shuffle.sample(names, len(names))
        for group in [[name] for name in order] if is_cpu else [order]:
            for name in group:
                worker, note = self.workers[name], self._progress_note(workload)
                worker.resume()
                call = self.bench.make_call(workload, name, with_windows=True)
                worker.arena.lay_out(call, doubled_values, most_calls)
                orders = Orders(worker, call_limit_s(self.bench, workload), note)
                side, device = self.sides[name], self.bench.device
                self.calls[name] = TimedCall(call, side, device, orders, floors.order_s)
                self.calls[name].begin_staging()
            for name in group:
                timed_call, start_time = self.calls[name], time.monotonic()
                with self._running_alone(name, workload):
                    # Only this call may compile.
                    yield from timed_call.finish_staging(LONGEST_S, is_alone=is_cpu)
                if name not in self.started_sides:
                    self.started_sides.add(name)
                    self.bench.first_calls_s += time.monotonic() - start_time
            for name in group if not is_cpu or self.round_number < PROBED_ROUNDS else ():
                with self._running_alone(name, workload):
                    if probe := (yield from self.calls[name].probe_memory()):
                        key = name, workload.name
                        self.timings.memory_probes.setdefault(key, []).append(probe)

    def _time_rounds(self, workload: Workload, names: Sequence[str], parts: int) -> Waiting[int]:
        """Time one workload in all rounds that its share of the time allows; returns how many. The
        order is A B C C B A on a CPU; on a GPU, whose clock hardly drifts, each side has one turn.
        Each side is judged in a random turn of one random round: in two, the repeated values would
        tell the worker which these are. `parts`: workloads that share the time, with this one."""
        most_rounds = rounds = len(self.round_numbers)
        start_time, self.latest_reading = time.monotonic(), self.bench.read_sensors()
        judged_rounds = {name: SECRET.randrange(most_rounds) for name in names}
        for index, number in enumerate(self.round_numbers):
            self.round_number = number
            if index == 1:  # The first round has shown how long one takes.
                round_s = max(time.monotonic() - start_time, 1e-6)
                share_s = max(0.0, self.deadline - time.monotonic()) / parts
                fitting_rounds = 1 + int(min(share_s / round_s, most_rounds))
                rounds = min(most_rounds, max(2, self.least_rounds, fitting_rounds))
                for name in names:  # Sides not judged yet are judged in a round that will be timed.
                    if judged_rounds[name] > 0:
                        judged_rounds[name] = 1 + SECRET.randrange(rounds - 1)
            if index == rounds:
                break
            order = self.shuffle.sample(names, len(names))
            turns = (order,) if self.bench.device == "cuda" else (order, order[::-1])
            judged = [name for name in names if judged_rounds[name] == index]
            judged_turns = {name: SECRET.randrange(len(turns)) for name in judged}
            segments = list[Segment]()
            for turn, names_in_turn in enumerate(turns):
                for name in names_in_turn:
                    is_judged = judged_turns.get(name) == turn
                    segment = yield from self._time_segment(name, workload, is_judged=is_judged)
                    segments.append(segment)
            returned_s = self.timings.return_times_s
            self.timings.segments += charge_deferred_work(segments, returned_s)
        return rounds

    @contextmanager
    def _running_alone(self, name: str, workload: Workload) -> Iterator[None]:
        """Let one side run while the others are stopped; errors name the side."""
        worker = self.workers[name]
        worker.resume()
        with blame_side(name, workload.name):
            yield
        worker.pause()

    def _time_segment(self, name: str, workload: Workload, *, is_judged: bool) -> Waiting[Segment]:
        """Time one segment of a side; all else goes to `timings` and `evidence`."""
        before, call, timings = self.latest_reading, self.calls[name], self.timings
        with self._running_alone(name, workload):
            samples = yield from call.take_segment(is_judged=is_judged)
        after = self.latest_reading = self.bench.read_sensors()
        if samples.is_self_timed:
            timings.self_timed_sides.add(name)
        if call.crowding_threads:
            timings.crowding_threads[name] = call.crowding_threads
        is_graph = bool(self.workers[name].arena.control_words[GRAPH_NODES])
        side, key = self.sides[name], (name, workload.name)
        convention = "Python, allocates its result"
        if side.kind == "c_abi":
            convention = "C, writes into a given output"
        if self.bench.device == "cuda":
            way = "CUDA graph of calls" if is_graph else "launch by launch"
            convention = f"{way} from {convention}"
        if side.kind == "command":
            convention = "a program, once a call"
        timings.call_descriptions[name] = convention
        timings.clock_pairs.setdefault(name, []).extend(samples.clock_pairs)
        timings.return_times_s.setdefault((*key, self.round_number), []).extend(samples.return_s)
        if samples.output is not None and not call.is_program:
            judged_sample = samples.seconds[samples.judged_index], samples.calls
            timings.judged_samples.setdefault(key, []).append(judged_sample)
        self.evidence.append((name, workload, call.call, samples))
        is_shared = len(self.round_numbers) > 1
        return Segment(
            side=name,
            workload=workload.name,
            round=self.round_number,
            calls=samples.calls,
            seconds=tuple(samples.seconds),
            waited=tuple(samples.waited_s),
            sensors=(before, after) if before and after else None,
            processes=self.round_numbers[0] if is_shared else None,
        )

    def _judge_outputs(self) -> Waiting[None]:
        """Check the output of each judged segment against the reference, note wrong ones in
        `timings`, and empty `evidence`. Other segments of the side and workload count, too."""
        for side, workload, call, samples in self.evidence:
            if samples.output is None:
                continue
            path = Path(f"{call.output.path}.timed")
            path.write_bytes(samples.output)
            request, note = Compare(call, (str(path),)), self._progress_note(workload)
            finding = yield from self.bench.ask_judge(request, JUDGE_LIMIT_S, note)
            segments = [row[-1] for row in self.evidence if row[:2] == (side, workload)]
            changed = {name for each in segments for name in each.changed_inputs}
            replaced = {name for each in segments for name in each.replaced_names}
            stray_writes = dict.fromkeys(text for each in segments for text in each.stray_writes)
            computed = Computed(
                changed_inputs=tuple(sorted(changed)),
                replaced_functions=tuple(sorted(replaced)),
                depends_on_prefill=any(segment.is_unwritten for segment in segments),
                stray_writes=tuple(stray_writes),
            )
            check = make_check_of(self.sides[side], workload, "contiguous", computed, finding)
            self.timings.checked_outputs += 1
            if not check.passed:
                self.timings.wrong_outputs.append((side, check))
        self.evidence.clear()

    def _progress_note(self, workload: Workload) -> str:
        return f"round {self.round_number + 1}: {workload.name}"


def measure(
    bench: Bench,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    limits: Limits,
    pending: Pending | None = None,
) -> Waiting[Timings]:
    """Time the sides, alternating, until nothing is `pending` (None: all is, in every round), or
    rounds or time are over. Rounds beyond follow for sides whose verified calls were all far
    slower: they are proof, and no samples. Raises LoopError if a side crashes, hangs or refuses."""
    schedule = Schedule(bench, sides, workloads, limits)
    timings, rounds_per_set = schedule.timings, schedule.rounds_per_set
    all_sides = {w.name: [side.name for side in sides if is_supported(side, w)] for w in workloads}
    pending_sides = partial(pending, timings) if pending else lambda: all_sides

    def unproven_sides() -> Mapping[str, Sequence[str]]:
        """By workload: sides whose verified calls were all far slower; wrong ones need no proof."""
        wrong = {(side, check.workload.name) for side, check in timings.wrong_outputs}
        unproven = dict[str, list[str]]()
        for workload, names in all_sides.items():
            right = [name for name in names if (name, workload) not in wrong]
            unproven[workload] = [n for n in right if timings.unproven_times_s(n, workload)]
        return unproven

    # A GPU's driver makes contexts one by one: more sets start no sooner, and may not be needed.
    most_sets = SETS_AT_ONCE_GPU if rounds_per_set > 1 else max(1, PROCESSES_AT_ONCE // len(sides))
    for batch in batches(limits.rounds, most_sets, rounds_per_set):
        if not any(pending_sides().values()):
            break
        is_whole = yield from schedule.time_sets(batch, pending_sides)
        if not is_whole:
            break
    rounds, segments = timings.rounds, list(timings.segments)  # Without those of the proof.
    for number in range(limits.rounds, limits.rounds + PROOF_ROUNDS):
        if not any(unproven_sides().values()):
            break
        schedule.least_rounds = timings.rounds + 1
        yield from schedule.time_sets([range(number, number + 1)], unproven_sides)
    timings.rounds, timings.segments = rounds, segments
    return timings


def batches(rounds: int, most_sets: int, rounds_per_set: int = 1) -> list[list[range]]:
    """All rounds as ranges that share processes, two at least, grouped into batches that start
    together. A batch has at most `most_sets` ranges, the first fewer: it shows what they take."""
    count = max(math.ceil(rounds / rounds_per_set), min(2, rounds))
    bounds = [rounds * index // count for index in range(count + 1)]
    sets = [range(first, end) for first, end in itertools.pairwise(bounds)]
    first_batch = min(most_sets, FIRST_BATCH)
    later_batches = range(first_batch, count, most_sets)
    return [sets[:first_batch]] + [sets[first : first + most_sets] for first in later_batches]


class Schedule:
    """Decides which rounds there is time for, and times them."""

    def __init__(
        self, bench: Bench, sides: Sequence[Side], workloads: Sequence[Workload], limits: Limits
    ) -> None:
        self.bench, self.sides, self.workloads, self.limits = bench, sides, workloads, limits
        self.timings, self.shuffle = Timings(), random.Random(limits.seed)
        self.start_time = time.monotonic()
        self.rounds_per_set = ROUNDS_PER_SET_GPU if bench.device == "cuda" else ROUNDS_PER_SET_CPU
        self.least_rounds, self.last_round_s = limits.least_rounds, 0.0
        """Rounds timed even if time is over; seconds of the last round, or of two in one set."""

    def _is_round_required(self) -> bool:
        """Whether another round is timed even if time is over: as requested, or for an interval."""
        lacks_rounds = self.rounds_per_set > 1 and self.timings.rounds < MIN_VALUES
        is_within_grace = self._elapsed_s < GRACE_FACTOR * self.limits.limit_s
        return (lacks_rounds and is_within_grace) or self.timings.rounds < self.least_rounds

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self.start_time

    def time_sets(
        self, batch: Sequence[range], pending_sides: Callable[[], Mapping[str, Sequence[str]]]
    ) -> Waiting[bool]:
        """Start the sets of a batch together, the costliest part, as many as will probably end in
        time; then time one by one. Returns whether all were. `pending_sides`: the sides to time, by
        workload. Processes end with their last round: each holds hundreds of megabytes of a GPU."""
        set_count = len(batch)
        while set_count and not self._is_round_required():
            # Each counts as two rounds at most: one of more leaves some out if time is short.
            rounds = sum(min(2, len(round_numbers)) for round_numbers in batch[:set_count])
            if self._elapsed_s * (1 + rounds / self.timings.rounds) <= self.limits.limit_s:
                break
            set_count -= 1
        names, timings = set(itertools.chain(*pending_sides().values())), self.timings
        chosen = [side for side in self.sides if side.name in names]
        with ExitStack() as stack:
            sets: list[ProcessSet] = []
            for round_numbers in batch[:set_count]:
                # Random: the process that starts first gets other GPU memory than the rest.
                shuffled = self.shuffle.sample(chosen, len(chosen))
                own_stack = stack.enter_context(ExitStack())
                sets.append(ProcessSet(self, shuffled, round_numbers, own_stack))
            start_limit_s = max(START_LIMIT_S, self.bench.first_call_s)
            for process_set in sets:
                for name, worker in process_set.workers.items():
                    with blame_side(name, "loading"):
                        yield from worker.receive(start_limit_s, f"starting {name}")
                    worker.pause()  # Until its turn.
            for process_set in sets:
                # A side that became pending since, such as a null control, has no process in it.
                all_pending, present = pending_sides(), {*process_set.sides}
                pending = {w: names for w, names in all_pending.items() if {*names} <= present}
                fits = self._elapsed_s + self.last_round_s <= self.limits.limit_s
                if any(pending.values()) and (fits or self._is_round_required()):
                    minimum = MIN_VALUES if self.rounds_per_set > 1 else 0
                    least = max(self.least_rounds, minimum) - timings.rounds
                    # The first set leaves time for another.
                    time_share = 1.0 if timings.rounds else FIRST_SET_SHARE
                    start_time = time.monotonic()
                    left_s = max(0.0, self.limits.limit_s - self._elapsed_s)
                    process_set.deadline = start_time + time_share * left_s
                    process_set.least_rounds = least if timings.rounds else math.ceil(least / 2)
                    workloads = [w for w in self.workloads if pending.get(w.name)]
                    rounds = yield from process_set.time_workloads(workloads, pending)
                    took_s = time.monotonic() - start_time
                    self.last_round_s = took_s * min(2, rounds) / rounds
                    timings.rounds += rounds
                    timings.rounds_s += took_s
                # End all processes at the same time, because each takes a while.
                kill_trees([worker.child.process.pid for worker in process_set.workers.values()])
                process_set.stack.close()
        return set_count == len(batch)
