"""How a call of a variant is made, whatever kind of variant computes it.

A loaded variant makes a call ready in two ways:

- `prepare` for a check: inputs in memory of the worker's own, with guard zones around them (`memory`).
- `stage` for timing: inputs and outputs in the memory that the judge shares with the worker (`arena`, `orders`).

`compiled`, `external` and `torch_call` hold both for each kind of variant, `cuda` for compiled ones on a GPU.
"""

import ctypes
import functools
import mmap
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from loop.calls.call import Call
from loop.calls.memory import Guard, Guarded, MakeMemory, Unguarded

Run = Callable[[], Any]
Windows = Sequence[Sequence[int]]
"""Where the windows of each call begin: for each call one offset an input, in elements."""


class Prepared(ABC):
    """A call with its inputs in memory, ready to be made again and again."""

    timed_apart = False
    """Whether it times itself and has no windows."""

    def __init__(self, call: Call, guarded: Unguarded) -> None:
        """`guarded`: its tensors, with what stands around them."""
        self.call, self.guarded = call, guarded

    @abstractmethod
    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as a function; None: the windows whose answer the judge knows."""

    def jumble(self, draw: random.Random) -> None:
        """Put unknown values at every address, for a call whose output is not looked at."""

    @abstractmethod
    def refill(self, call: Call) -> None:
        """Take the values of another call's files, at the same addresses."""

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows; or a guard's contents."""

    @abstractmethod
    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    @abstractmethod
    def changed(self) -> list[str]:
        """Names of inputs that do not hold their values any more."""


class GuardedCall(Prepared):
    """A call whose inputs lie in memory of ours."""

    guarded: Guarded

    def __init__(self, call: Call, layout: str, make: MakeMemory, guard: type[Guarded] = Guarded) -> None:
        super().__init__(call, guard(call, layout, make))
        self.layout = layout

    def refill(self, call: Call) -> None:
        """Take the values of another call's files, at the same addresses."""
        self.call = call
        self.guarded.fill(call)

    def jumble(self, draw: random.Random) -> None:
        """Put unknown values at every address."""
        for memory, tensor in zip(self.guarded.inputs, self.call.inputs, strict=True):
            if memory.size:
                memory.rotate(draw.randrange(memory.size // tensor.item) * tensor.item)

    def changed(self) -> list[str]:
        """Names of inputs that do not hold their values any more."""
        fixed = (n for n in range(len(self.call.inputs)) if n not in self.call.updated)
        return [self.call.inputs[n].name for n in fixed if self.guarded.changed(n)]


class Stage(ABC):
    """A call in the shared memory, ready to be made again and again on windows of its inputs."""

    captured = False
    """Whether a graph holds the calls that were made ready last."""
    strays: Sequence[str] = ()
    """Writes outside of tensors in memory of its own, a sentence each."""

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Make ready for these calls: nothing of it is timed."""

    @abstractmethod
    def run(self, count: int) -> int:
        """Make the calls; nanoseconds by a clock that belongs to them, such as a GPU's, or 0.

        `count`: how many calls; on a GPU how often all calls that were made ready are replayed.
        """

    def settle(self) -> None:
        """Have the result of each call be there, on the device: work that was left for later is done now."""

    def give(self) -> None:
        """Put the result of each call into its slot."""

    def close(self) -> None:
        """Let go of the memory."""


class Nothing(Stage):
    """Calls that do nothing: what an order, and a call itself, cost."""

    def __init__(self, run: Run | None = None) -> None:
        self.calls = run

    def run(self, count: int) -> int:
        """Make the calls, one after the other, as any other stage does."""
        if self.calls is not None:
            for run in [self.calls] * count:
                run()
        return 0


class Places:
    """Where the tensors of a call lie in the shared memory."""

    WARMED_BYTES = 32 << 20
    """The judge wrote the memory last, on another core. Up to this size it is brought into the worker's caches
    before it is timed; what is larger fits into none of them."""

    def __init__(
        self, memory: mmap.mmap, call: Call, inputs: Sequence[int], slots: Sequence[int], turns: Sequence[int]
    ) -> None:
        """`inputs`, `slots`: where inputs and outputs begin, in bytes; `turns`: bytes by which inputs are
        rotated."""
        self.memory, self.inputs, self.slots, self.turns = memory, inputs, slots, turns
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.pool_bytes = [tensor.pool_size for tensor in call.inputs]
        self.slot_bytes = call.output.size

    def origin(self, n: int) -> bytes:
        """The values of an input as they were before they were rotated."""
        begin, size, turn = self.inputs[n], self.pool_bytes[n], self.turns[n]
        return self.memory[begin + size - turn : begin + size] + self.memory[begin : begin + size - turn]

    def warm(self, slots: int) -> None:
        """Bring inputs and that many slots into the caches here, the slots as memory that was written last."""
        if sum(self.pool_bytes) + slots * self.slot_bytes > self.WARMED_BYTES:
            return
        scratch = ctypes.create_string_buffer(max([*self.pool_bytes, self.slot_bytes, 1]))
        for offset, size in zip(self.inputs, self.pool_bytes, strict=True):
            ctypes.memmove(scratch, self.base + offset, size)
        for offset in self.slots[:slots]:
            ctypes.memmove(scratch, self.base + offset, self.slot_bytes)
            ctypes.memmove(self.base + offset, scratch, self.slot_bytes)


class HostStage(Stage):
    """Calls on the host, one after the other."""

    CALIBRATIONS = 9

    def __init__(self, places: Places, slow: float) -> None:
        """`slow`: share of its time by which each call is made longer on purpose."""
        self.places, self.slow, self.extra_ns = places, slow, 0
        self.runs: list[Run] = []

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Point each call to its windows."""
        self.point(windows)
        if self.slow and not self.extra_ns:
            times = []
            for _ in range(self.CALIBRATIONS):
                begin = perf_counter_ns()
                self.runs[0]()
                times.append(perf_counter_ns() - begin)
            self.extra_ns = int(self.slow * sorted(times)[self.CALIBRATIONS // 2])
        flush_caches() if cold else self.places.warm(len(windows))

    def run(self, count: int) -> int:
        """Make the calls."""
        if not self.extra_ns:
            self.make(self.runs[:count])
            return 0
        for run in self.runs[:count]:
            self.make([run])
            end = perf_counter_ns() + self.extra_ns
            while perf_counter_ns() < end:
                pass
        return 0

    @abstractmethod
    def point(self, windows: Windows) -> None:
        """Have each of the runs make its call on its windows."""

    def make(self, runs: Sequence[Run]) -> None:
        """Make some calls."""
        for run in runs:
            run()


class Loaded(Protocol):
    """A variant ready to take calls."""

    @property
    def device(self) -> str:
        """Where it computes: `cpu` or `cuda`."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory, laid out as `loop.calls.tensors.strides_of` says."""

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Take a call's place in the shared memory; `slow`: share of its time by which calls are made longer."""


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DEFAULT_CACHE_BYTES = 64 << 20
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@functools.cache
def last_level_bytes() -> int:
    """Size of the largest cache that the system names; 64 MiB where it names none."""
    texts = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    sizes = (int(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else int(text) for text in texts)
    return max(sizes, default=DEFAULT_CACHE_BYTES)


@functools.cache
def _scratch() -> Any:
    return ctypes.create_string_buffer(2 * last_level_bytes())


def flush_caches() -> None:
    """Write twice as much memory as the largest cache holds: what was there before is gone."""
    ctypes.memset(_scratch(), 1, len(_scratch()))
