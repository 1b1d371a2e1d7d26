"""Calls of a compiled variant on the host. No torch."""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from functools import partial

from loop.calls.call import Call
from loop.calls.invocation import HostStage, Places, Prepared, Run, Windows
from loop.calls.memory import Buffer, Guard, Memory


class CompiledCall(Prepared):
    """One call, its tensors in memory of the worker's own."""

    stream: int | None = None
    """CUDA stream that the entry is given."""

    def __init__(self, invoke: Callable[..., None], call: Call, layout: str = "contiguous") -> None:
        super().__init__(call)
        self.lay_out(layout, prefills=True)
        self.layout, self.invoke, self.result, self.numbers = layout, invoke, self.all[-1], call.c_numbers()
        self.before = b""
        """The block of several outputs as it was before the call."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        return Buffer(size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        windows = zip(self.inputs, offsets or self.call.offsets, self.call.inputs, strict=True)
        places = [memory.address + offset * tensor.item for memory, offset, tensor in windows]
        inputs, output = self.call.c_inputs(places, self.layout), self.call.c_output(self.result.address)
        return partial(self.invoke, inputs, output, self.numbers, self.stream)

    def poison(self, guard: Guard | None = None) -> None:
        self.result.poison(guard)
        self.before = self.result.contents() if self.call.parts else b""

    def output(self) -> bytes:
        """The last output's bytes; of several the block, with zeros between them, where nobody has to write."""
        block, parts = self.result.contents(), self.call.parts
        cleaned = bytearray(len(block) if parts else 0)
        self.between = ""
        for part, following in itertools.zip_longest(parts, parts[1:]):
            end = part.offset + part.size
            cleaned[part.offset : end] = block[part.offset : end]
            if following and self.before and self.before[end : following.offset] != block[end : following.offset]:
                self.between = f"writes outside its outputs: between {part.name} and {following.name}"
        return self.call.with_updates(bytes(cleaned) if parts else block, self.window)


class CompiledStage(HostStage):
    """Calls whose tensors lie in the shared memory, each output in its slot."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        super().__init__(places, slow)
        self.call = call
        self.windows: Windows = ()
        self.items = [tensor.item for tensor in call.inputs]
        self.arrays = [call.c_inputs([0] * len(call.inputs)) for _ in places.slots]
        numbers = call.c_numbers()
        self.runs = [
            partial(invoke, array, call.c_output(places.base + slot), numbers, None)
            for array, slot in zip(self.arrays, places.slots, strict=True)
        ]

    def point(self, windows: Windows) -> None:
        places, self.windows = self.places, windows
        for array, offsets in zip(self.arrays, windows, strict=False):
            for tensor, base, offset, item in zip(array, places.inputs, offsets, self.items, strict=True):
                tensor.data = places.base + base + offset * item

    def give(self) -> None:
        """Copy inputs that were changed in place into the slot of their call."""
        for slot, window in zip(self.places.slots, self.windows, strict=False):
            for part, number in zip(self.call.parts, self.call.updates, strict=False):
                if number >= 0:
                    begin = self.places.inputs[number] + window[number] * self.items[number]
                    ctypes.memmove(self.places.base + slot + part.offset, self.places.base + begin, part.size)
