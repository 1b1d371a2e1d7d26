"""Loads a shared library with the C interface, checks its build id and calls it.

Without torch. `cuda.stage` calls libraries on a GPU.
"""

import ctypes
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
        """Bring a call's inputs into host memory for a check."""
        return CompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Lay a call out in shared memory."""
        return CompiledStage(self.invoke, places, call, slow)

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry. Raises Refused with the library's message if it returns an error."""
        error = self.entry(inputs, output, numbers, stream)
        if error:
            words, code = (self.error_message(error) or b"").decode(errors="replace"), f"error {error}"
            take_seed = getattr(self.library, "loop_fault_seed", None)
            if take_seed is not None:  # An emulated library has the seed of its last fault.
                take_seed.restype = ctypes.c_uint64
            raise Refused(f"{code}: {words}", "declined", code, (take_seed() or None) if take_seed else None)


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
        inputs: Sequence[int],
        outputs: Sequence[int],
        layout: str = "contiguous",
        stream: int | None = None,
    ) -> None:
        """`inputs`: addresses of the inputs' files. `outputs`: addresses of the outputs."""
        self.inputs = call.c_inputs(inputs, layout)
        self._begins = [(at, each.itemsize) for at, each in zip(inputs, call.inputs, strict=True)]
        self.run = partial(
            invoke, self.inputs, c_tensors(call.separate_outputs, outputs), call.c_numbers(), stream
        )

    def move_to(self, offsets: Sequence[int]) -> Run:
        """Move the call to windows that begin at these elements. Valid until the next `aim`."""
        for tensor, (begin, item), offset in zip(self.inputs, self._begins, offsets, strict=False):
            tensor.data = begin + offset * item
        return self.run


class CompiledCall(Prepared):
    """A checked call with its tensors in host memory."""

    stream: int | None = None
    """CUDA stream passed to the entry; None on the host."""

    def __init__(self, invoke: Callable[..., None], call: Call, layout: str = "contiguous") -> None:
        super().__init__(call)
        self.allocate_tensors(layout, call.separate_outputs)
        self.layout, self.invoke = layout, invoke

    def allocate(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        return Buffer(size, shift, dtype, zone)

    def bind(self) -> Run:
        inputs, outputs = ([memory.address for memory in some] for some in (self.inputs, self.outputs))
        return Invocation(self.invoke, self.call, inputs, outputs, self.layout, self.stream).run

    def read_output(self) -> bytes:
        """Bytes of the last output; several outputs form a block with zeros in between."""
        return self.call.join_outputs([memory.read_tensor() for memory in self.outputs], self.read_input)


class CompiledStage(HostStage):
    """Timed calls with all tensors in shared memory."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        super().__init__(places, call, slow)
        inputs = [places.base_address + begin for begin in places.input_offsets]
        self.calls = [
            Invocation(
                invoke, call, inputs, [places.base_address + slot + part.offset for part in call.separate_outputs]
            )
            for slot in places.output_offsets
        ]

    def bind_windows(self, windows: Windows) -> None:
        self.runs = [call.move_to(window) for call, window in zip(self.calls, windows, strict=False)]

    def copy_results(self) -> None:
        """Copy inputs that the calls changed in place into their slots."""
        for slot, window in zip(self.places.output_offsets, self.windows, strict=False):
            for part, number in zip(self.call.parts, self.call.updates, strict=False):
                if number >= 0:
                    item = self.call.inputs[number].itemsize
                    begin = self.places.input_offsets[number] + window[number] * item
                    ctypes.memmove(
                        self.places.base_address + slot + part.offset,
                        self.places.base_address + begin,
                        part.nbytes,
                    )
