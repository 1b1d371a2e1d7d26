"""Calls that are timed on the host: a compiled variant, and a program of its own. No torch."""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

from loop.calls.caches import flush_caches
from loop.calls.orders import Windows
from loop.calls.refusal import Refused
from loop.calls.tensors import DTYPES, LoopTensor, byte_size, describe, strides_of

WARMED_BYTES = 32 << 20
"""The judge wrote the memory last, on another core. Up to this size it is brought into the caches there before it
is timed; what is larger fits into none of them."""
CALIBRATIONS = 9


class Places:
    """Where the tensors of a call lie in the shared memory."""

    def __init__(
        self, memory: mmap.mmap, places: dict[str, Any], call: dict[str, Any], turns: Sequence[int]
    ) -> None:
        self.memory, self.turns = memory, turns
        """`turns`: bytes by which each input is rotated now."""
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.inputs: list[int] = places["inputs"]
        """Offset of each input's pool in bytes."""
        self.slots: list[int] = places["slots"]
        """Offset of the output of each call in bytes."""
        items = [DTYPES[tensor["dtype"]][1] for tensor in call["inputs"]]
        shapes = [tuple(tensor["shape"]) for tensor in call["inputs"]]
        self.pool_bytes = [
            byte_size(shape, tensor["dtype"]) + tensor["room"] * item
            for shape, tensor, item in zip(shapes, call["inputs"], items, strict=True)
        ]
        self.slot_bytes = byte_size(tuple(call["output"]["shape"]), call["output"]["dtype"])

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


class CompiledStage:
    """A compiled variant's call on the host: its tensors lie in the shared memory."""

    captured = False
    strays: Sequence[str] = ()

    def __init__(self, invoke: Callable[..., None], places: Places, call: dict[str, Any], slow: float) -> None:
        self.places = places
        self.items = [DTYPES[tensor["dtype"]][1] for tensor in call["inputs"]]
        self.arrays = [self._inputs(call) for _ in places.slots]
        self.runs: list[Callable[[], None]] = []
        shape, dtype = tuple(call["output"]["shape"]), call["output"]["dtype"]
        numbers = [float("nan") if number is None else number for number in call["numbers"]]
        self.numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        for array, slot in zip(self.arrays, places.slots, strict=True):
            place = places.base + slot
            output = (LoopTensor * 1)(describe(place, shape, strides_of(shape, "contiguous"), dtype))
            self.runs.append(partial(invoke, array, output, self.numbers, None))
        self.slow, self.extra_ns = slow, 0

    def _inputs(self, call: dict[str, Any]) -> Any:
        shapes = [(tuple(tensor["shape"]), tensor["dtype"]) for tensor in call["inputs"]]
        described = [describe(0, shape, strides_of(shape, "contiguous"), dtype) for shape, dtype in shapes]
        return (LoopTensor * len(described))(*described)

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Point each call to its windows."""
        places = self.places
        for array, offsets in zip(self.arrays, windows, strict=False):
            for tensor, base, offset, item in zip(array, places.inputs, offsets, self.items, strict=True):
                tensor.data = places.base + base + offset * item
        if self.slow and not self.extra_ns:
            self.extra_ns = share_of(self.slow, self.runs[0])
        flush_caches() if cold else places.warm(len(windows))

    def run(self, count: int) -> int:
        """Make the calls."""
        if self.extra_ns:
            for run in self.runs[:count]:
                run()
                idle(self.extra_ns)
            return 0
        for run in self.runs[:count]:
            run()
        return 0

    def give(self) -> None:
        """Nothing to do: the output was computed in its slot."""

    def close(self) -> None:
        """Nothing to do: the memory is the judge's."""


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


class ProgramStage:
    """A call of a program of its own, which may time itself: its tensors are files."""

    captured = False
    strays: Sequence[str] = ()

    def __init__(self, prepared: Any, places: Places) -> None:
        self.prepared, self.places = prepared, places

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Nothing to do: its files hold what the judge knows."""

    def run(self, count: int) -> int:
        """Run the program once; nanoseconds as it says."""
        self.prepared.run()
        return int((self.prepared.own_seconds() or 0.0) * 1e9)

    def give(self) -> None:
        """Bring its output file into the slot."""
        if self.prepared.changed():
            raise Refused(f"changed its input {', '.join(self.prepared.changed())}")
        data = self.prepared.output()
        begin = self.places.slots[0]
        self.places.memory[begin : begin + len(data)] = data

    def close(self) -> None:
        """Nothing to do."""
