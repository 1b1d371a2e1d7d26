"""A shared library behind the C interface: loads it, checks that it is what was built, and calls it. No torch.

`cuda.stage` has the calls of a library on a device.
"""

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loop.calls.call import Call, LibraryTerms, LoopTensor, Refused
from loop.calls.invocation import HostStage, Places, Prepared, Run, Stage, Windows
from loop.calls.memory import Buffer, Guard, Memory


class Compiled:
    """A loaded library."""

    def __init__(self, terms: LibraryTerms) -> None:
        self.device = terms.device
        try:
            self.library = ctypes.CDLL(terms.library, mode=os.RTLD_NOW)
        except OSError as error:
            raise Refused(f"does not load: {error}") from error
        check_build_id(self.library, terms.build_id)
        self.entry = self._function(terms.entry, ctypes.c_int)
        tensors = ctypes.POINTER(LoopTensor)
        self.entry.argtypes = [tensors, tensors, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p]
        self.explain = self._function("loop_error", ctypes.c_char_p)
        self.explain.argtypes = [ctypes.c_int]

    def _function(self, name: str, result: Any) -> Any:
        function = getattr(self.library, name, None)
        if function is None:
            raise Refused(f"the library exports no `{name}`: declare it with LOOP_EXPORT from loop_kernel.h")
        function.restype = result
        return function

    def prepare(self, call: Call, layout: str = "contiguous") -> "CompiledCall":
        """Bring a call's inputs into memory."""
        return CompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Take a call's place in the shared memory."""
        return CompiledStage(self.invoke, places, call, slow)

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry; raises Refused with the library's own words when it returns an error."""
        error = self.entry(inputs, output, numbers, stream)
        if error:
            words, code = (self.explain(error) or b"").decode(errors="replace"), f"error {error}"
            take_seed = getattr(self.library, "loop_fault_seed", None)
            if take_seed is not None:  # Of an emulated launch that just faulted.
                take_seed.restype = ctypes.c_uint64
            raise Refused(f"{code}: {words}", "declined", code, (take_seed() or None) if take_seed else None)


def check_build_id(library: ctypes.CDLL, expected: str) -> None:
    """Raise Refused unless the binary says that it was built from what is on disk."""
    try:
        function = library.loop_build_id
    except AttributeError as error:
        raise Refused("the binary has no build id: include loop_kernel.h in its sources") from error
    function.restype = ctypes.c_char_p
    build_id = (function() or b"").decode(errors="replace")
    if build_id != expected:
        built = build_id[:12] or "nothing known"
        raise Refused(f"stale binary: built from {built}, the sources are {expected[:12]}")


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
