"""The session's side of the judge process, and the orders by which it times workers."""

import os
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from loop.base.errors import MachineFailure, WorkFailed
from loop.base.processes import Tick
from loop.calls.arena import COUNT, DONE, LEAVE, OP, ORDER, RUN, WORKER_NS
from loop.calls.call import Call
from loop.machine.machine import cores, count_memory_kills
from loop.model.dtypes import Device
from loop.workers.judge_messages import CheckEnvironment, PrepareAnswer, SetTarget
from loop.workers.messages import ObeyOrders, Request
from loop.workers.nursery import PASSIVE_WAITING, Nursery
from loop.workers.program import (
    START_LIMIT_S,
    Program,
    Refusal,
    Worker,
    WorkerLost,
    memory_limit,
    thread_environment,
)

LIFE_CHECK_S = 20e-3
"""After this wait in seconds, check whether the worker still lives, and let the screen update."""
NAP_S = 200e-6
"""After that, sleep this long between polls. The added error is below 1 % of the waiting time."""
EMPTY_ORDERS, EMPTY_CALLS = 40, 200
CallWay = Literal["c_abi", "python", "torch", "kernel"]
"""How a call is made: through C, from Python, as a PyTorch operator, or as a kernel in a graph."""
HOST_WAYS: tuple[CallWay, ...] = ("c_abi", "python")


class Orders:
    """Sends timed orders to one worker through shared memory, until the worker leaves this mode."""

    def __init__(self, worker: Worker, limit_s: float, note: str) -> None:
        self.worker, self.limit_s, self.note = worker, limit_s, note
        self._draw = random.SystemRandom()

    def enter(self, empty: str | None = None) -> None:
        """Put the worker into the mode in which it waits for orders. `empty`: how empty calls are
        made (for floors); None: orders concern the staged call."""
        self.worker.send(ObeyOrders(self.worker.arena.control_words[ORDER], empty))

    def leave(self) -> Generator[Tick, None, tuple[str, ...]]:
        """Return the worker to normal requests; return its functions that the variant replaced."""
        yield from self.give_order(LEAVE)
        broken: tuple[str, ...] = yield from self.worker.receive(self.limit_s, self.note)
        return broken

    def give_order(self, operation: int) -> Generator[Tick, None, float]:
        """Give one order and wait for it; return seconds by the judge's clock. Raises WorkerLost if
        the worker dies or exceeds the limit, Refusal if the call fails."""
        words, clock = self.worker.arena.control_words, time.perf_counter_ns
        number = self._draw.getrandbits(63) | 1
        bell = self.worker.bell
        words[OP] = operation
        begin = clock()
        words[ORDER] = number
        if bell is not None:
            bell.wake_worker()
            while not bell.wait_for_worker(LIFE_CHECK_S) or words[DONE] != number:
                yield from self._check_worker(clock() - begin, number)
            return (clock() - begin) / 1e9
        patience, naps = begin + int(LIFE_CHECK_S * 1e9), False
        while words[DONE] != number:
            if clock() > patience:
                yield from self._check_worker(clock() - begin, number)
                patience, naps = clock() + int(LIFE_CHECK_S * 1e9), True
            elif naps:
                time.sleep(NAP_S)
        return (clock() - begin) / 1e9

    def _check_worker(self, waited_ns: int, number: int) -> Generator[Tick, None, None]:
        """Check that the worker still lives; raise WorkerLost or Refusal otherwise. After LEAVE,
        the worker replies at once: an answer is no failure if that order is done."""
        yield Tick(self.note)
        ended = self.worker.has_reply or self.worker.child.code is not None
        words = self.worker.arena.control_words
        if ended and (words[OP] != LEAVE or words[DONE] != number):
            yield from self.worker.receive(self.limit_s, self.note)
            raise WorkerLost("crashed", "it left its orders undone", "")
        if waited_ns / 1e9 > self.limit_s:
            raise self.worker.kill_as_lost("hung", f"no answer for {self.limit_s:g} s: killed")

    @contextmanager
    def keep_off_worker_cores(self) -> Iterator[None]:
        """Context in which this process keeps off the worker's cores."""
        workers = {int(core) for core in self.worker.cores.split(",") if core}
        own = os.sched_getaffinity(0) if workers else set()
        if own - workers:
            os.sched_setaffinity(0, own - workers)
        try:
            yield
        finally:
            if own - workers:
                os.sched_setaffinity(0, own)


@dataclass(frozen=True)
class Floors:
    """Times of empty calls in a worker without a variant: no real call can be faster."""

    order_s: float
    """Seconds of an order without calls, subtracted from the judge's time of each sample."""
    call_s_by_way: Mapping[CallWay, float]
    """Way to seconds of one empty call. PyTorch's empty call only allocates its result."""

    def minimum_with(self, other: "Floors") -> "Floors":
        """Take the minimum of two measurements of each floor."""
        both = {way: min(self.call_s_by_way.get(way, s), s) for way, s in other.call_s_by_way.items()}
        return Floors(min(self.order_s, other.order_s), {**self.call_s_by_way, **both})


def measure_worker_floors(worker: Worker, device: Device, limit_s: float) -> Generator[Tick, None, Floors]:
    """Measure the floors of this machine. Takes the tenth percentile of many orders, because
    interference can only make orders slower."""
    orders = yield from _time_empty_orders(worker, limit_s, "", 0)
    order_s = tenth_percentile([whole for whole, _ in orders])
    call_s: dict[CallWay, float] = {}
    for way in HOST_WAYS:
        call_s[way] = yield from time_empty_call(worker, way, order_s, limit_s)
    if device == "cuda":
        with suppress(Refusal):  # Without a GPU, the first request that needs one reports that.
            call_s["kernel"] = yield from time_empty_call(worker, "kernel", order_s, limit_s)
    return Floors(order_s, call_s)


def time_empty_call(worker: Worker, way: CallWay, order_s: float, limit_s: float) -> Generator[Tick, None, float]:
    """Seconds of one empty call in this worker. Raises Refusal if it cannot make such calls."""
    pairs = yield from _time_empty_orders(worker, limit_s, way, EMPTY_CALLS)
    whole = tenth_percentile([own or whole for whole, own in pairs])
    return (whole if way == "kernel" else max(whole - order_s, 0.0)) / EMPTY_CALLS


def measure_lag_s(worker: Worker, limit_s: float) -> Generator[Tick, None, float]:
    """Seconds by which the judge's clock exceeds the GPU's for one sample of empty kernels: third
    quartile. Raises Refusal without a GPU. On a GPU shared with others, or a busy host, the lag is
    several times that of a quiet machine."""
    pairs = yield from _time_empty_orders(worker, limit_s, "kernel", EMPTY_CALLS)
    return sorted(whole - own for whole, own in pairs)[3 * len(pairs) // 4]


def tenth_percentile(times: Sequence[float]) -> float:
    """The value that a tenth of the times stay below."""
    return sorted(times)[len(times) // 10]


def _time_empty_orders(
    worker: Worker, limit_s: float, way: str, call_count: int
) -> Generator[Tick, None, list[tuple[float, float]]]:
    """Time orders of `calls` empty calls. Each pair: seconds by the judge's clock, and by the
    worker's own clock (a GPU's), 0 if it has none."""
    orders, words = Orders(worker, limit_s, "timing empty calls"), worker.arena.control_words
    orders.enter(way)
    words[COUNT] = call_count
    with orders.keep_off_worker_cores():
        pairs = []
        for _ in range(EMPTY_ORDERS):
            whole = yield from orders.give_order(RUN)
            pairs.append((whole, words[WORKER_NS] / 1e9))
    yield from orders.leave()
    return pairs


UNTIMED_ENVIRONMENT = {**PASSIVE_WAITING, "THP_MEM_ALLOC_ENABLE": "1"}
"""Environment of processes that are never timed: with huge pages, PyTorch has about 1 % of the page
faults. Workers keep the user's default, because they are timed."""
R = TypeVar("R")


class Unjudged(WorkFailed):
    """This workload cannot be judged, as the reference raises or overflows. Others may be fine."""


@dataclass
class JudgeProcess:
    """One judge process for all benches of a session. It holds one target at a time."""

    target: SetTarget | None = None
    """The current target."""
    answered_calls: dict[str, tuple[PrepareAnswer, Call]] = field(default_factory=dict)
    """Call key to the request and the call with all tensors, for answers that the judge holds."""
    device: Device = "cuda"
    """On `cpu` the process gets a memory limit, on `cuda` none: the driver maps much."""
    nursery: Nursery | None = None
    """Process that forks the judge with torch imported; None: start it directly."""
    _program: Program | None = None
    _earlier_kills: int = 0
    """Processes that the system had already killed for lack of memory."""

    def find_answered(self, target: SetTarget, key: str) -> tuple[PrepareAnswer, Call] | None:
        """The earlier request and call for this key; None if the judge holds no answer."""
        return self.answered_calls.get(key) if self.target == target else None

    def warm_up(self) -> None:
        """Start the judge or the nursery, so that torch is imported in the background."""
        if self.nursery is None:
            self.start_program()
        else:
            self.nursery.warm_up()

    def start_program(self) -> Program:
        """The running process; starts one if necessary."""
        if self._program is None:
            environment = {**thread_environment(cores()), **UNTIMED_ENVIRONMENT, **memory_limit(self.device)}
            self._earlier_kills = count_memory_kills()
            self._program = Program("loop.workers.judge_program", environment=environment, nursery=self.nursery)
        return self._program

    def end(self) -> None:
        """End the process. The next request starts a new one."""
        if self._program is not None:
            self._program.close()
        self._program, self.target = None, None
        self.answered_calls.clear()

    def ask_about(
        self, target: SetTarget, request: Request[R], limit_s: float, note: str
    ) -> Generator[Tick, None, R]:
        """Send a request about `target`, after switching the judge to that target if necessary."""
        if self.target != target:
            self.answered_calls.clear()
            yield from self.ask(target, START_LIMIT_S, "importing torch")
            self.target = target
        return (yield from self.ask(request, limit_s, note))

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
            last = lost.errors.strip().rpartition("\n")[2]
            raise WorkFailed(message, hint=last or None) from lost
        except Refusal as refusal:
            examined = isinstance(request, CheckEnvironment)
            hint = "see `loop doctor`" if examined else "look at that function of the target's"
            failed = Unjudged if refusal.cause == "raised" and not examined else WorkFailed
            raise failed(str(refusal), hint=hint) from refusal
