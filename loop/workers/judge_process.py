"""The session's side of the judge process, and the orders by which it times workers."""

import os
import random
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from loop.base.errors import MachineFailure, WorkFailed
from loop.base.processes import Tick, python_path, run, run_to_end
from loop.calls.arena import CALL_COUNT, DONE_ORDER, LEAVE, ORDER, ORDER_KIND, RUN, WORKER_NS
from loop.calls.call import Call
from loop.machine.machine import cores, count_memory_kills
from loop.model.dtypes import Device
from loop.workers import program
from loop.workers.judge_messages import CheckEnvironment, PrepareAnswer, SetTarget
from loop.workers.messages import ObeyOrders, Request
from loop.workers.nursery import PASSIVE_WAITING, Nursery
from loop.workers.program import START_LIMIT_S, Program, Refusal, Worker, WorkerLost

LIFE_CHECK_S = 20e-3
"""After this wait in seconds, check whether the worker still lives, and let the screen update."""
NAP_S = 200e-6
"""After that, sleep this long between polls. The added error is below 1 % of the waiting time."""
EMPTY_ORDERS, EMPTY_CALLS = 40, 200
"""Number of timed orders without a real call, and of empty calls in each."""
CallWay = Literal["c_abi", "python", "kernel"]
"""How a call is made: through C, from Python, or as a kernel in a graph."""


class Orders:
    """Sends timed orders to one worker through shared memory, until the worker leaves this mode."""

    def __init__(self, worker: Worker, limit_s: float, note: str) -> None:
        """`limit_s`: for one order. `note`: what the screen shows meanwhile."""
        self.worker, self.limit_s, self.note = worker, limit_s, note
        self._generator = random.SystemRandom()

    def enter(self, empty_way: str | None = None) -> None:
        """Put the worker into the mode in which it waits for orders. `empty_way`: orders concern
        empty calls made in this way (for floors); None: they concern the staged call."""
        self.worker.send(ObeyOrders(self.worker.arena.control_words[ORDER], empty_way))

    def leave(self) -> Generator[Tick, None, tuple[str, ...]]:
        """Return the worker to normal requests; return its functions that the variant replaced."""
        yield from self.give_order(LEAVE)
        replaced: tuple[str, ...] = yield from self.worker.receive(self.limit_s, self.note)
        return replaced

    def give_order(self, operation: int) -> Generator[Tick, None, float]:
        """Give one order and wait for it; return seconds by the judge's clock. Raises WorkerLost if
        the worker dies or exceeds the limit, Refusal if the call fails. The order's number is
        random, so a variant cannot report an order as done in advance."""
        words, clock_ns = self.worker.arena.control_words, time.perf_counter_ns
        number = self._generator.getrandbits(63) | 1
        bell = self.worker.bell
        words[ORDER_KIND] = operation
        start_ns = clock_ns()
        words[ORDER] = number
        if bell is not None:  # They share a core, so neither can poll.
            bell.wake_worker()
            while not bell.wait_for_worker(LIFE_CHECK_S) or words[DONE_ORDER] != number:
                yield from self._check_worker(clock_ns() - start_ns, number)
            return (clock_ns() - start_ns) / 1e9
        next_check_ns, is_long_wait = start_ns + int(LIFE_CHECK_S * 1e9), False
        while words[DONE_ORDER] != number:
            if clock_ns() > next_check_ns:
                yield from self._check_worker(clock_ns() - start_ns, number)
                next_check_ns, is_long_wait = clock_ns() + int(LIFE_CHECK_S * 1e9), True
            elif is_long_wait:
                time.sleep(NAP_S)
        return (clock_ns() - start_ns) / 1e9

    def _check_worker(self, waited_ns: int, number: int) -> Generator[Tick, None, None]:
        """Check that the worker still lives; raise WorkerLost or Refusal otherwise. After LEAVE,
        the worker replies at once: an answer is no failure if that order is done."""
        yield Tick(self.note)
        has_left = self.worker.has_reply or self.worker.child.code is not None
        words = self.worker.arena.control_words
        if has_left and (words[ORDER_KIND] != LEAVE or words[DONE_ORDER] != number):
            yield from self.worker.receive(self.limit_s, self.note)
            raise WorkerLost("crashed", "it left its orders undone", "")
        if waited_ns / 1e9 > self.limit_s:
            raise self.worker.kill_as_lost("hung", f"no answer for {self.limit_s:g} s: killed")

    @contextmanager
    def keep_off_worker_cores(self) -> Iterator[None]:
        """Context in which this process runs on other cores than the worker, if there are any."""
        all_cores = os.sched_getaffinity(0)
        other_cores = all_cores - {int(core) for core in self.worker.cores.split(",")}
        if other_cores:
            os.sched_setaffinity(0, other_cores)
        try:
            yield
        finally:
            if other_cores:
                os.sched_setaffinity(0, all_cores)


@dataclass(frozen=True)
class Floors:
    """Times of empty calls in a worker without a variant: no real call can be faster."""

    order_s: float
    """Seconds of an order without calls, subtracted from the judge's time of each sample."""
    call_s_by_way: Mapping[CallWay, float]
    """Way to seconds of one empty call."""

    def minimum_with(self, other: "Floors") -> "Floors":
        """Take the minimum of two measurements of each floor."""
        call_s_by_way = dict(self.call_s_by_way)
        for way, seconds in other.call_s_by_way.items():
            call_s_by_way[way] = min(call_s_by_way.get(way, seconds), seconds)
        return Floors(min(self.order_s, other.order_s), call_s_by_way)


def measure_floors(worker: Worker, device: Device) -> Generator[Tick, None, Floors]:
    """Measure the times of an order without calls and of one empty call made in each way: tenth percentiles,
    as interference only slows orders."""
    timings = yield from time_empty_orders(worker, START_LIMIT_S, "", 0)
    order_s = tenth_percentile([judge_s for judge_s, _ in timings])
    call_s_by_way: dict[CallWay, float] = {}
    ways: tuple[CallWay, ...] = ("c_abi", "python", "kernel")
    for way in ways[: 3 if device == "cuda" else 2]:
        with suppress(Refusal):  # Without a GPU, the first request that needs one reports that.
            timings = yield from time_empty_orders(worker, START_LIMIT_S, way)
            seconds = tenth_percentile([worker_s or judge_s for judge_s, worker_s in timings])
            if way != "kernel":  # A GPU's own clock does not include the order.
                seconds = max(seconds - order_s, 0.0)
            call_s_by_way[way] = seconds / EMPTY_CALLS
    return Floors(order_s, call_s_by_way)


def tenth_percentile(times: Sequence[float]) -> float:
    """The value that a tenth of the times stay below."""
    return sorted(times)[len(times) // 10]


def time_empty_orders(
    worker: Worker, limit_s: float, way: str, call_count: int = EMPTY_CALLS
) -> Generator[Tick, None, list[tuple[float, float]]]:
    """Time EMPTY_ORDERS orders of `call_count` calls that do nothing. Each pair: seconds of an order by the
    judge's clock, and by the GPU's clock (0 without one). `way`: how they are called (a `CallWay`); empty
    for orders without calls. Raises Refusal if the way needs a GPU and there is none."""
    orders, words = Orders(worker, limit_s, "timing empty calls"), worker.arena.control_words
    orders.enter(way)
    words[CALL_COUNT] = call_count
    with orders.keep_off_worker_cores():
        timings = []
        for _ in range(EMPTY_ORDERS):
            judge_s = yield from orders.give_order(RUN)
            timings.append((judge_s, words[WORKER_NS] / 1e9))
    yield from orders.leave()
    return timings


UNTIMED_ENVIRONMENT = {**PASSIVE_WAITING, "THP_MEM_ALLOC_ENABLE": "1"}
"""Environment of processes that are never timed: with huge pages, PyTorch has about 1 % of the page
faults. Workers keep the user's default, because they are timed."""


def run_untimed(
    module: str, terms: str, *, limit_s: float, device: Device = "cpu", folder: Path | None = None
) -> str:
    """Run `python -m MODULE TERMS RESULT`, where TERMS is a file that holds `terms`. Returns what the program
    wrote into RESULT. `folder`: where it runs; None: an empty one. Raises WorkFailed if it writes nothing."""
    with tempfile.TemporaryDirectory(prefix="loop-", ignore_cleanup_errors=True) as scratch:
        terms_file, result_file = Path(scratch) / "terms.json", Path(scratch) / "result.json"
        terms_file.write_text(terms)
        completed = run_to_end(
            run(
                [sys.executable, "-m", module, str(terms_file), str(result_file)],
                limit_s=limit_s,
                cwd=folder or Path(scratch),
                env={
                    "PYTHONPATH": python_path(),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TORCH_COMPILE_DISABLE": "1",
                    **UNTIMED_ENVIRONMENT,
                    **program.memory_limit(device),
                },
            )
        )
        if not result_file.is_file():
            last_line = (completed.errors.strip().splitlines() or [completed.ending])[-1]
            raise WorkFailed(f"a process ended without a result: {last_line}")
        return result_file.read_text()


R = TypeVar("R")


class Unjudged(WorkFailed):
    """This workload cannot be judged, as the reference raises or overflows. Others may be fine."""


@dataclass
class JudgeProcess:
    """One judge process for all benches of a session. It holds one target at a time."""

    target: SetTarget | None = None
    """The current target."""
    answers: dict[str, tuple[PrepareAnswer, Call]] = field(default_factory=dict)
    """Call key to the request for an answer that the judge holds, and the call with all its tensors."""
    device: Device = "cuda"
    """On `cpu` the process gets a memory limit, on `cuda` none: the driver maps much."""
    nursery: Nursery | None = None
    """Process that forks the judge with torch imported; None: start it directly."""
    _program: Program | None = None
    _earlier_kills: int = 0
    """Processes that the system had already killed for lack of memory."""

    def find_answered(self, target: SetTarget, key: str) -> tuple[PrepareAnswer, Call] | None:
        """The entry of `answers` for a call; None if the judge holds no such answer of `target`."""
        return self.answers.get(key) if self.target == target else None

    def warm_up(self) -> None:
        """Start the judge, or the nursery if it has one, so that torch is imported in the background."""
        if self.nursery is None:
            self.start_program()
        else:
            self.nursery.warm_up()

    def start_program(self) -> Program:
        """The running process; starts one if necessary."""
        if self._program is None:
            environment = {**program.thread_environment(cores()), **UNTIMED_ENVIRONMENT}
            environment |= program.memory_limit(self.device)
            self._earlier_kills = count_memory_kills()
            self._program = Program("loop.workers.judge_program", environment=environment, nursery=self.nursery)
        return self._program

    def end(self) -> None:
        """End the process. The next request starts a new one."""
        if self._program is not None:
            self._program.close()
        self._program, self.target = None, None
        self.answers.clear()

    def set_target(self, target: SetTarget) -> Generator[Tick, None, None]:
        """Switch the judge to another target; it forgets all answers."""
        self.answers.clear()
        yield from self.ask(target, START_LIMIT_S, "importing torch")
        self.target = target

    def ask(self, request: Request[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """Send a request and return the reply. Raises WorkFailed if it is refused or the process
        dies. Raises MachineFailure if the system killed the process for lack of memory."""
        try:
            return (yield from self.start_program().ask(request, limit_s=limit_s, note=note))
        except WorkerLost as lost:
            self.end()
            message = f"{note}: the judging process was lost: {lost.reason}"
            if lost.kind == "crashed" and count_memory_kills() > self._earlier_kills:
                hint = "free some, or take fewer variants or a smaller workload"
                raise MachineFailure(f"{message}: memory ran out", hint) from lost
            last_line = lost.errors.strip().rpartition("\n")[2]
            raise WorkFailed(message, hint=last_line or None) from lost
        except Refusal as refusal:
            if isinstance(request, CheckEnvironment):
                raise WorkFailed(str(refusal), hint="see `loop doctor`") from refusal
            failure = Unjudged if refusal.cause == "raised" else WorkFailed
            # Errors of the target's functions name their workload; others, as for want of memory, do not.
            message = f"{note}: {refusal}" if refusal.reply.code else str(refusal)
            raise failure(message, hint="look at that function of the target's") from refusal
