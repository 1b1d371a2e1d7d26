"""Loads a shared library with the C interface, checks its build id and calls it.

Without torch. `cuda.stage` calls libraries on a GPU.
"""

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from loop.calls.call import DTYPE_NUMBERS, Call, LibraryTerms, LoopTensor, Refused
from loop.calls.invocation import HostStage, Places, Prepared, Run, Stage, TimedCalls, Windows
from loop.calls.memory import Allocate, Buffer

if TYPE_CHECKING:
    from loop.calls.cuda.driver import Device
Invoke = Callable[..., None]


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
                remedy = "declare it with LOOP_EXPORT from loop_kernel.h"
                raise Refused(f"the library exports no `{name}`: {remedy}")
        tensors = ctypes.POINTER(LoopTensor)
        self.entry, self.error_message = getattr(self.library, terms.entry), self.library.loop_error
        self.entry.argtypes = [tensors, tensors, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p]
        self.entry.restype = ctypes.c_int
        self.error_message.argtypes, self.error_message.restype = [ctypes.c_int], ctypes.c_char_p

    def prepare(self, call: Call, layout: str = "contiguous", has_zones: bool = True) -> Prepared:
        """As in `Loaded`. `has_zones`: False: each GPU tensor is an allocation, for sanitizers."""
        return CompiledCall(self.invoke, call, layout, None, Buffer)

    def stage(self, places: Places, slowdown: float) -> Stage:
        return HostStage(LibraryCalls(self.invoke, places), slowdown)

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry on C arrays (of LoopTensor; `numbers`: of double) and a CUDA stream (None
        on the host). Raises Refused with the library's message if it returns an error."""
        if error := self.entry(inputs, output, numbers, stream):
            message, seed = (self.error_message(error) or b"").decode(errors="replace"), None
            if hasattr(self.library, "loop_fault_seed"):  # Of the emulator's last fault; 0: none.
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


def bind_entry(
    invoke: Invoke, call: Call, addresses: Sequence[int], layout: str, stream: int | None = None
) -> "partial[None]":
    """The C call on tensors at these addresses: of the inputs, in this layout, then of the outputs.
    Its first argument is the C array of the inputs. `invoke`: `Compiled.invoke`. `stream`: CUDA
    stream for the entry; None on the host."""
    structs: list[LoopTensor] = []
    input_count = len(call.inputs)
    tensors = (*call.inputs, *call.separate_outputs)
    for number, (tensor, address) in enumerate(zip(tensors, addresses, strict=True)):
        strides = tensor.strides(layout if number < input_count else "contiguous")
        dtype, rank = DTYPE_NUMBERS[tensor.dtype], len(tensor.shape)
        structs.append(LoopTensor(address, dtype, rank, tensor.shape, strides))
    c_arrays: list[Any] = []  # Of inputs, and of outputs; of one empty element if there are none.
    for side in (structs[:input_count], structs[input_count:]):
        c_arrays.append((LoopTensor * max(len(side), 1))(*side))
    numbers = [math.nan if number is None else number for number in call.numbers]
    c_numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)
    return partial(invoke, *c_arrays, c_numbers, stream)


class CompiledCall(Prepared):
    """A checked call of a library, with its tensors in host memory or on a GPU."""

    def __init__(
        self, invoke: Invoke, call: Call, layout: str, device: "Device | None", allocate: Allocate
    ) -> None:
        """`device`: the GPU; None: the host. `allocate`: memory there."""
        super().__init__(call)
        self.invoke, self.device = invoke, device
        if device is not None:
            self.wait_for_all = device.synchronise_all
        self.allocate_tensors(allocate, layout, call.separate_outputs)

    def bind(self) -> Run:
        """As in `Prepared`: calls the entry with our memory's addresses. Waits for a GPU's work."""
        addresses = [memory.address for memory in self.memories]
        if self.device is None:
            return bind_entry(self.invoke, self.call, addresses, self.layout)
        stream = self.device.stream
        launch = bind_entry(self.invoke, self.call, addresses, self.layout, stream.handle)

        def launch_and_wait() -> None:
            launch()
            stream.synchronise()

        return launch_and_wait


class LibraryCalls(TimedCalls):
    """Timed calls of a library."""

    def __init__(self, invoke: Invoke, places: Places) -> None:
        super().__init__(places)
        self.invoke = invoke
        self._runs: list[partial[None]] = []
        """One C call for each output. Each is made when first needed; only its windows change."""
        self._inputs: list[list[LoopTensor]] = []  # Of each C call.

    def bind(self, windows: Windows) -> Sequence[Run]:
        inputs, stream = self.places.input_addresses, self.places.stream
        for address in self.places.output_addresses[len(self._runs) : len(windows)]:
            outputs = [address + part.offset for part in self.call.separate_outputs]
            run = bind_entry(self.invoke, self.call, [*inputs, *outputs], "contiguous", stream)
            self._runs.append(run)
            self._inputs.append([*run.args[0]])
        for tensors, window in zip(self._inputs, windows, strict=False):
            for number, (tensor, first_element) in enumerate(zip(tensors, window, strict=False)):
                first_byte = first_element * self.call.inputs[number].itemsize
                tensor.data = inputs[number] + first_byte
        return self._runs[: len(windows)]
