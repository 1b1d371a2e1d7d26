"""Calls that are timed on the host: a compiled variant, and a program of its own. No torch."""

import ctypes
import functools
import mmap
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from loop.calls.call import Call
from loop.calls.external import ExternalCall
from loop.calls.orders import Stage, Windows
from loop.calls.refusal import Refused

FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
DEFAULT_BYTES = 64 << 20
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@functools.cache
def last_level_bytes() -> int:
    """Size of the largest cache that the system names; 64 MiB where it names none."""
    sizes = [_size(path.read_text().strip()) for path in FOLDER.glob("index*/size")]
    return max(sizes, default=DEFAULT_BYTES)


def _size(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else int(text)


@functools.cache
def _scratch() -> tuple[Any, int]:
    size = 2 * last_level_bytes()
    return ctypes.create_string_buffer(size), size


def flush_caches() -> None:
    """Write twice as much memory as the largest cache holds: what was there before is gone."""
    memory, size = _scratch()
    ctypes.memset(memory, 1, size)


WARMED_BYTES = 32 << 20
"""The judge wrote the memory last, on another core. Up to this size it is brought into the caches there before it
is timed; what is larger fits into none of them."""
CALIBRATIONS = 9


class Places:
    """Where the tensors of a call lie in the shared memory."""

    def __init__(
        self, memory: mmap.mmap, call: Call, inputs: Sequence[int], slots: Sequence[int], turns: Sequence[int]
    ) -> None:
        self.memory, self.inputs, self.slots, self.turns = memory, inputs, slots, turns
        """Where inputs and outputs begin; bytes by which each input is rotated now."""
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.pool_bytes = [tensor.pool_size for tensor in call.inputs]
        self.slot_bytes = call.output.size

    def origin(self, n: int) -> bytes:
        """The values of an input as they were before they were rotated."""
        begin, size, turn = self.inputs[n], self.pool_bytes[n], self.turns[n]
        return self.memory[begin + size - turn : begin + size] + self.memory[begin : begin + size - turn]

    def warm(self, slots: int) -> None:
        """Bring pools and as many slots into the caches here, the slots as something that was written last."""
        if sum(self.pool_bytes) + slots * self.slot_bytes > WARMED_BYTES:
            return
        scratch = ctypes.create_string_buffer(max([*self.pool_bytes, self.slot_bytes, 1]))
        for offset, size in zip(self.inputs, self.pool_bytes, strict=True):
            ctypes.memmove(scratch, self.base + offset, size)
        for offset in self.slots[:slots]:
            ctypes.memmove(scratch, self.base + offset, self.slot_bytes)
            ctypes.memmove(self.base + offset, scratch, self.slot_bytes)


class HostStage(Stage):
    """Calls on the host, one after the other.

    `slow`: share of its time by which each is made longer on purpose.
    """

    def __init__(self, places: Places, slow: float) -> None:
        self.places, self.slow, self.extra_ns = places, slow, 0
        self.runs: list[Callable[[], Any]] = []

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Point each call to its windows."""
        self.point(windows)
        if self.slow and not self.extra_ns:
            self.extra_ns = share_of(self.slow, self.runs[0])
        flush_caches() if cold else self.places.warm(len(windows))

    def run(self, count: int) -> int:
        """Make the calls."""
        if not self.extra_ns:
            self.make(self.runs[:count])
            return 0
        for run in self.runs[:count]:
            self.make([run])
            idle(self.extra_ns)
        return 0

    @abstractmethod
    def point(self, windows: Windows) -> None:
        """Have each of the runs make its call on its windows."""

    def make(self, runs: Sequence[Callable[[], Any]]) -> None:
        """Make some calls."""
        for run in runs:
            run()


class CompiledStage(HostStage):
    """A compiled variant's call on the host: its tensors lie in the shared memory, the output in its slot."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        super().__init__(places, slow)
        self.call = call
        self.windows: Windows = ()
        self.items = [tensor.item for tensor in call.inputs]
        self.arrays = [call.c_inputs([0] * len(call.inputs)) for _ in places.slots]
        self.numbers = call.c_numbers()
        self.runs = [
            partial(invoke, array, call.c_output(places.base + slot), self.numbers, None)
            for array, slot in zip(self.arrays, places.slots, strict=True)
        ]

    def point(self, windows: Windows) -> None:
        """Write addresses into what the entry is given."""
        places, self.windows = self.places, windows
        for array, offsets in zip(self.arrays, windows, strict=False):
            for tensor, base, offset, item in zip(array, places.inputs, offsets, self.items, strict=True):
                tensor.data = places.base + base + offset * item

    def give(self) -> None:
        """Copy inputs that were changed in place into the slot of their call."""
        for slot, window in zip(self.places.slots, self.windows, strict=False):
            for one, number in zip(self.call.parts, self.call.updates, strict=False):
                if number >= 0:
                    begin = self.places.inputs[number] + window[number] * self.items[number]
                    ctypes.memmove(self.places.base + slot + one.offset, self.places.base + begin, one.size)


def share_of(share: float, run: Callable[[], object]) -> int:
    """A share of the time that a call takes, in nanoseconds."""
    taken = []
    for _ in range(CALIBRATIONS):
        begin = perf_counter_ns()
        run()
        taken.append(perf_counter_ns() - begin)
    return int(share * sorted(taken)[CALIBRATIONS // 2])


def idle(nanoseconds: int) -> None:
    """Do nothing for so long."""
    end = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < end:
        pass


class ProgramStage(Stage):
    """A call of a program of its own, which may time itself: its tensors are files, which hold what is known."""

    def __init__(self, prepared: ExternalCall, places: Places) -> None:
        self.prepared, self.places = prepared, places

    def run(self, count: int) -> int:
        """Run the program once; nanoseconds as it says, at least 1; 0 where it says nothing."""
        self.prepared.run()
        seconds = self.prepared.seconds
        return 0 if seconds is None else max(1, round(seconds * 1e9))

    def give(self) -> None:
        """Bring its output file into the slot."""
        if self.prepared.changed():
            raise Refused(f"changed its input {', '.join(self.prepared.changed())}", "changed input")
        data = self.prepared.output()
        begin = self.places.slots[0]
        self.places.memory[begin : begin + len(data)] = data
