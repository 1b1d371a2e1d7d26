"""Calls of a compiled variant on the host. No torch."""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

from loop.calls.call import Call
from loop.calls.invocation import GuardedCall, HostStage, Places, Run, Windows
from loop.calls.memory import Buffer, Guard, Memory


class CompiledCall(GuardedCall):
    """One call, its tensors in memory of the worker's own."""

    stream: int | None = None
    """CUDA stream that the entry is given."""

    def __init__(self, invoke: Callable[..., None], call: Call, layout: str = "contiguous") -> None:
        super().__init__(call, layout, self.memory)
        self.invoke, self.result = invoke, self.guarded.all[-1]
        self._numbers = call.c_numbers()
        self.before = b""
        """The block of several outputs as it was before the call."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor, as `MakeMemory` says."""
        return Buffer(size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as a function."""
        windows = zip(self.guarded.inputs, offsets or self.call.offsets, self.call.inputs, strict=True)
        places = [memory.address + offset * tensor.item for memory, offset, tensor in windows]
        inputs, output = self.call.c_inputs(places, self.layout), self.call.c_output(self.result.address)
        return partial(self.invoke, inputs, output, self._numbers, self.stream)

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows; or a guard's contents."""
        self.result.poison(guard)
        self.before = self.result.contents() if self.call.parts else b""

    def output(self) -> bytes:
        """The bytes of the last outputs."""
        block = self.result.contents()
        self.guarded.between = self.call.strays_between(self.before, block)
        return self.call.with_updates(self.call.clean(block), self.guarded.window)


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
        """Write addresses into what the entry is given."""
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
