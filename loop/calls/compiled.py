"""A shared library behind the C interface: its calls on the host. No torch."""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loop.calls.call import Call, LibraryTerms, Refused
from loop.calls.invocation import GuardedCall, HostStage, Places, Run, Stage, Windows
from loop.calls.memory import Buffer, Guard, Memory
from loop.calls.tensors import LoopTensor


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
        self.entry.argtypes = [
            ctypes.POINTER(LoopTensor),
            ctypes.POINTER(LoopTensor),
            ctypes.POINTER(ctypes.c_double),
            ctypes.c_void_p,
        ]
        self.explain = self._function("loop_error", ctypes.c_char_p)
        self.explain.argtypes = [ctypes.c_int]

    def _function(self, name: str, result: Any) -> Any:
        try:
            function = getattr(self.library, name)
        except AttributeError as error:
            raise Refused(
                f"the library exports no `{name}`: declare it with LOOP_EXPORT from loop_kernel.h"
            ) from error
        function.restype = result
        return function

    def prepare(self, call: Call, layout: str = "contiguous") -> "CompiledCall":
        """Bring a call's inputs into memory: the host's, or the device's."""
        if self.device == "cuda":
            from loop.calls.cuda.call import DeviceCompiledCall

            return DeviceCompiledCall(self.invoke, call, layout)
        return CompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Take a call's place in the shared memory."""
        if self.device == "cuda":
            from loop.calls.cuda.stage import DeviceStage

            return DeviceStage(self.invoke, places, call, slow)
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
        raise Refused(
            f"stale binary: built from {build_id[:12] or 'nothing known'}, the sources are {expected[:12]}"
        )


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
        self.before = self.result.read() if self.call.parts else b""

    def output(self) -> bytes:
        """The bytes of the last outputs."""
        block = self.result.read()
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
