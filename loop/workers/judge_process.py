"""The judge: the parent's end of its process, which is started when it is first asked."""

import os
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from loop.base.errors import MachineFailure, WorkFailed
from loop.base.processes import Tick
from loop.calls.arena import COUNT, DONE, LEAVE, OP, ORDER, OWN_NS, RUN
from loop.calls.call import Call
from loop.machine.machine import cores, killed_for_memory
from loop.model.dtypes import Device
from loop.workers.judge_messages import Begin, Examine, Expect
from loop.workers.messages import Obey, Request
from loop.workers.nursery import PATIENT, Nursery
from loop.workers.program import (
    START_LIMIT_S,
    Program,
    Refusal,
    Worker,
    WorkerLost,
    memory_bounds,
    thread_environment,
)

WATCHED_S = 20e-3
"""After so long a wait the judge looks whether the worker still lives, and lets others draw on the screen."""
NAP_S = 200e-6
"""From then on it naps between looks at the memory: this is below one per cent of what it waits for."""
ECHOES, EMPTY_CALLS = 40, 200
Way = Literal["c_abi", "python", "torch", "kernel"]
"""How a call is made: through C, from Python, by an operator of PyTorch, or as a kernel of a CUDA graph."""
ON_HOST: tuple[Way, ...] = ("c_abi", "python")


class Orders:
    """Orders to one worker, from when it begins to obey until it is told to leave."""

    def __init__(self, worker: Worker, limit_s: float, note: str) -> None:
        self.worker, self.limit_s, self.note = worker, limit_s, note
        self._draw = random.SystemRandom()

    def begin(self, empty: str | None = None) -> None:
        """Let the worker wait for orders about the call that it has staged, or about `empty` ones."""
        self.worker.send(Obey(self.worker.arena.words[ORDER], empty))

    def end(self) -> Generator[Tick, None, tuple[str, ...]]:
        """Let it answer requests again; functions of the worker that the variant has replaced."""
        yield from self.give(LEAVE)
        broken: tuple[str, ...] = yield from self.worker.receive(self.limit_s, self.note)
        return broken

    def give(self, op: int) -> Generator[Tick, None, float]:
        """Give an order and wait until it is done; seconds by the judge's clock.

        Raises WorkerLost when the worker dies or does not come back, Refusal when the call fails.
        """
        words, number, clock = self.worker.arena.words, self._draw.getrandbits(63) | 1, time.perf_counter_ns
        bell = self.worker.bell
        words[OP] = op
        begin = clock()
        words[ORDER] = number
        if bell is not None:
            bell.ring()
            while not bell.rung(WATCHED_S) or words[DONE] != number:
                yield from self._look(clock() - begin, number)
            return (clock() - begin) / 1e9
        patience, naps = begin + int(WATCHED_S * 1e9), False
        while words[DONE] != number:
            if clock() > patience:
                yield from self._look(clock() - begin, number)
                patience, naps = clock() + int(WATCHED_S * 1e9), True
            elif naps:
                time.sleep(NAP_S)
        return (clock() - begin) / 1e9

    def _look(self, waited_ns: int, number: int) -> Generator[Tick, None, None]:
        """See whether the worker still lives; raises what became of it.

        An order to leave is done before the reply that follows it: it may have been done since we looked.
        """
        yield Tick(self.note)
        ended = self.worker.has_answered or self.worker.child.code is not None
        words = self.worker.arena.words
        if ended and (words[OP] != LEAVE or words[DONE] != number):
            yield from self.worker.receive(self.limit_s, self.note)
            raise WorkerLost("crashed", "it left its orders undone", "")
        if waited_ns / 1e9 > self.limit_s:
            raise self.worker.lost("hung", f"no answer for {self.limit_s:g} s: killed")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While it lasts the judge leaves the worker's cores to the worker."""
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
    """Times of empty calls, in a worker that has loaded nothing: no real call is shorter."""

    order_s: float
    """Seconds of an empty order. They are subtracted from the judge's time of a sample."""
    call_s: Mapping[Way, float]
    """Seconds of an empty call, by the way it is made. PyTorch's only allocates its result."""

    def at_most(self, other: "Floors") -> "Floors":
        """The shorter of two measurements of each."""
        both = {way: min(self.call_s.get(way, s), s) for way, s in other.call_s.items()}
        return Floors(min(self.order_s, other.order_s), {**self.call_s, **both})


def measure_floors(worker: Worker, device: Device, limit_s: float) -> Generator[Tick, None, Floors]:
    """The floors of this machine: the tenth percentile of many orders, since others can only make them slower."""
    orders = yield from _echo(worker, limit_s, "", 0)
    order_s = tenth_percentile([whole for whole, _ in orders])
    call_s: dict[Way, float] = {}
    for way in ON_HOST:
        call_s[way] = yield from empty_call(worker, way, order_s, limit_s)
    if device == "cuda":
        with suppress(Refusal):  # No GPU: whatever is to run there will say so.
            call_s["kernel"] = yield from empty_call(worker, "kernel", order_s, limit_s)
    return Floors(order_s, call_s)


def empty_call(worker: Worker, way: Way, order_s: float, limit_s: float) -> Generator[Tick, None, float]:
    """Seconds of a call that does nothing, in a worker that can make it; raises Refusal where none can be made."""
    pairs = yield from _echo(worker, limit_s, way, EMPTY_CALLS)
    whole = tenth_percentile([own or whole for whole, own in pairs])
    return (whole if way == "kernel" else max(whole - order_s, 0.0)) / EMPTY_CALLS


def lag_of(worker: Worker, limit_s: float) -> Generator[Tick, None, float]:
    """Seconds that a sample takes longer by the judge's clock than by a GPU's, where nothing lies: the third
    quartile. Raises Refusal where there is no GPU.

    Where others work on the GPU, or the host is busy, that is several times what it is on a quiet machine.
    """
    pairs = yield from _echo(worker, limit_s, "kernel", EMPTY_CALLS)
    return sorted(whole - own for whole, own in pairs)[3 * len(pairs) // 4]


def tenth_percentile(times: Sequence[float]) -> float:
    """The time that a tenth of them stay below."""
    return sorted(times)[len(times) // 10]


def _echo(
    worker: Worker, limit_s: float, way: str, calls: int
) -> Generator[Tick, None, list[tuple[float, float]]]:
    """Seconds of orders of so many empty calls: by the judge's clock, and by one that belongs to them, or 0."""
    orders, words = Orders(worker, limit_s, "timing empty calls"), worker.arena.words
    orders.begin(way)
    words[COUNT] = calls
    with orders.aside():
        pairs = []
        for _ in range(ECHOES):
            whole = yield from orders.give(RUN)
            pairs.append((whole, words[OWN_NS] / 1e9))
    yield from orders.end()
    return pairs


UNTIMED = {**PATIENT, "THP_MEM_ALLOC_ENABLE": "1"}
"""Of programs that nobody times: PyTorch asks for huge pages, so large tensors cost about a hundredth of the page
faults. Workers keep the memory that users have."""
R = TypeVar("R")


class Unjudged(WorkFailed):
    """One workload cannot be judged: the reference raises there, or overflows. Others may be."""


@dataclass
class JudgeProcess:
    """One judge for all benches of a session: it judges one target at a time."""

    target: Begin | None = None
    """What it judges now."""
    known: dict[str, tuple[Expect, Call]] = field(default_factory=dict)
    """Calls whose answer it knows, by key: the request, and the call with all tensors."""
    device: Device = "cuda"
    """On a CPU it is bound to the memory that there is. A GPU's driver maps more than it uses."""
    nursery: Nursery | None = None
    """It forks the judge, where there is one: torch is imported once for judge and workers."""
    _program: Program | None = None
    _killed: int = 0
    """Number of processes that the system had killed before for want of memory."""

    def knows(self, target: Begin, key: str) -> tuple[Expect, Call] | None:
        """What was asked of a call of this target, and the call; None where it does not know the answer."""
        return self.known.get(key) if self.target == target else None

    def warm_up(self) -> None:
        """Start it, or what will fork it: torch is imported while something else is done."""
        if self.nursery is None:
            self.program()
        else:
            self.nursery.warm_up()

    def program(self) -> Program:
        """Its process."""
        if self._program is None:
            environment = {**thread_environment(cores()), **UNTIMED, **memory_bounds(self.device)}
            self._killed = killed_for_memory()
            self._program = Program("loop.workers.judge_program", environment=environment, nursery=self.nursery)
        return self._program

    def dismiss(self) -> None:
        """End it; the next request starts a new one."""
        if self._program is not None:
            self._program.close()
        self._program, self.target = None, None
        self.known.clear()

    def judge(self, target: Begin, request: Request[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """The reply to a request about a target; it forgets any other one."""
        if self.target != target:
            self.known.clear()
            yield from self.ask(target, START_LIMIT_S, "importing torch")
            self.target = target
        return (yield from self.ask(request, limit_s, note))

    def ask(self, request: Request[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """The reply to a request. Raises WorkFailed where it is refused, or the process dies.

        MachineFailure where the system killed it for want of memory.
        """
        try:
            return (yield from self.program().ask(request, limit_s=limit_s, note=note))
        except WorkerLost as lost:
            self.dismiss()
            message = f"{note}: the judging process was lost: {lost.how}"
            if lost.kind == "crashed" and killed_for_memory() > self._killed:
                hint = "free some, or take fewer variants or a smaller workload"
                raise MachineFailure(f"{message}: memory ran out", hint) from lost
            last = lost.errors.strip().rpartition("\n")[2]
            raise WorkFailed(message, hint=last or None) from lost
        except Refusal as refusal:
            examined = isinstance(request, Examine)
            hint = "see `loop doctor`" if examined else "look at that function of the target's"
            failed = Unjudged if refusal.cause == "raised" and not examined else WorkFailed
            raise failed(str(refusal), hint=hint) from refusal
