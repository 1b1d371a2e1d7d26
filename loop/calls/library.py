"""Loads a shared library with the C interface, checks its build id and calls it.

Without torch. `cuda.stage` calls libraries on a GPU.
"""

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loop.calls.call import Call, LibraryTerms, LoopTensor, Refused, c_tensors
from loop.calls.invocation import HostStage, Places, Prepared, Run, Stage, Windows
from loop.calls.memory import Buffer, Memory


class Compiled:
    """A loaded shared library of a compiled variant."""

    def __init__(self, terms: LibraryTerms) -> None:
        """Load the library. Raises Refused if that fails, or if it is not the build of `terms`."""
        self.device = terms.device
        try:
            self.library = ctypes.CDLL(terms.library, mode=os.RTLD_NOW)
        except OSError as error:
            raise Refused(f"does not load: {error}") from error
        check_build_id(self.library, terms.build_id)
        for name in (terms.entry, "loop_error"):
            if not hasattr(self.library, name):
                raise Refused(f"the library exports no `{name}`: declare it with LOOP_EXPORT from loop_kernel.h")
        tensors = ctypes.POINTER(LoopTensor)
        self.entry, self.error_message = getattr(self.library, terms.entry), self.library.loop_error
        self.entry.argtypes = [tensors, tensors, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p]
        self.entry.restype = ctypes.c_int
        self.error_message.argtypes, self.error_message.restype = [ctypes.c_int], ctypes.c_char_p

    def prepare(self, call: Call, layout: str = "contiguous") -> "CompiledCall":
        """Bring a call's inputs into host memory for a check; `layout` as in `strides_of`."""
        return CompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slowdown: float) -> Stage:
        """Prepare timed calls in shared memory. `slowdown`: share by which to delay each; 0: none."""
        return CompiledStage(self.invoke, places, call, slowdown)

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry on C arrays (of LoopTensor; `numbers`: of double) and a CUDA stream (None on the
        host). Raises Refused with the library's message if it returns an error."""
        if error := self.entry(inputs, output, numbers, stream):
            message, seed = (self.error_message(error) or b"").decode(errors="replace"), None
            if hasattr(self.library, "loop_fault_seed"):  # Emulated: seed of the last fault; 0: none.
                self.library.loop_fault_seed.restype = ctypes.c_uint64
                seed = self.library.loop_fault_seed() or None
            raise Refused(f"error {error}: {message}", "declined", f"error {error}", seed)


def check_build_id(library: ctypes.CDLL, expected: str) -> None:
    """Raise Refused unless the library contains this build id."""
    try:
        function = library.loop_build_id
    except AttributeError as error:
        raise Refused("the binary has no build id: include loop_kernel.h in its sources") from error
    function.restype = ctypes.c_char_p
    build_id = (function() or b"").decode(errors="replace")
    if build_id != expected:
        built = build_id[:12] or "nothing known"
        raise Refused(f"stale binary: built from {built}, the sources are {expected[:12]}")


class Invocation:
    """A C call at fixed addresses that can be repeated on other windows of its inputs."""

    def __init__(
        self,
        invoke: Callable[..., None],
        call: Call,
        input_addresses: Sequence[int],
        output_addresses: Sequence[int],
        layout: str = "contiguous",
        stream: int | None = None,
    ) -> None:
        """`invoke`: `Compiled.invoke`. `input_addresses`: of each input's first window."""
        self.inputs = c_tensors(call.inputs, input_addresses, layout)
        outputs = c_tensors(call.separate_outputs, output_addresses)
        item_sizes = [tensor.itemsize for tensor in call.inputs]
        self._first_windows = [*zip(self.inputs, input_addresses, item_sizes, strict=True)]
        """Of each input: the C struct, the address of its first window, and bytes of an element."""
        numbers = [math.nan if number is None else number for number in call.numbers]
        c_numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        self.run = partial(invoke, self.inputs, outputs, c_numbers, stream)

    def move_to(self, window: Sequence[int]) -> Run:
        """Move the call to a window: for each input, the first element. Returns the function that
        makes the call; it is valid until the next `move_to`."""
        for (tensor, address, itemsize), first_element in zip(self._first_windows, window, strict=False):
            tensor.data = address + first_element * itemsize
        return self.run


class CompiledCall(Prepared):
    """A checked call with its tensors in host memory."""

    stream: int | None = None
    """CUDA stream passed to the entry; None on the host."""

    def __init__(self, invoke: Callable[..., None], call: Call, layout: str = "contiguous") -> None:
        super().__init__(call)
        self.allocate_tensors(layout, call.separate_outputs)
        self.invoke = invoke

    def allocate(self, nbytes: int, misalignment_bytes: int, dtype: str, zone_bytes: int) -> Memory:
        return Buffer(nbytes, misalignment_bytes, dtype, zone_bytes)

    def bind(self) -> Run:
        """As in `Prepared`: calls the entry with the addresses of our memory."""
        inputs, outputs = [m.address for m in self.inputs], [m.address for m in self.outputs]
        return Invocation(self.invoke, self.call, inputs, outputs, self.layout, self.stream).run

    def read_output(self) -> bytes:
        """Bytes of the last output; several outputs form a block with zeros in between."""
        return self.call.join_outputs([memory.read_tensor() for memory in self.outputs], self.read_input)


class CompiledStage(HostStage):
    """Timed calls with all tensors in shared memory."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slowdown: float) -> None:
        super().__init__(places, call, slowdown)
        inputs = [places.base_address + offset for offset in places.input_offsets]
        self._make_invocation = partial(Invocation, invoke, call, inputs)
        self.invocations: list[Invocation] = []

    def bind_windows(self, windows: Windows) -> None:
        """As in `HostStage`: one C call for each window, with its own output. Each is made when first needed."""
        for offset in self.places.output_offsets[len(self.invocations) : len(windows)]:
            outputs = [self.places.base_address + offset + part.offset for part in self.call.separate_outputs]
            self.invocations.append(self._make_invocation(outputs))
        self.runs = [call.move_to(window) for call, window in zip(self.invocations, windows, strict=False)]

    def copy_results(self) -> None:
        """Copy inputs that calls changed in place to where the judge reads outputs."""
        updates = [part for part in self.call.outputs if part.updated_input >= 0]
        output_offsets = self.places.output_offsets[: len(self.windows)]
        for invocation, offset in zip(self.invocations, output_offsets, strict=False):
            for part in updates:
                destination = self.places.base_address + offset + part.offset
                ctypes.memmove(destination, invocation.inputs[part.updated_input].data, part.nbytes)
