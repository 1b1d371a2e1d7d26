"""A shared library behind the C interface: loads it, and checks that it is what was built. No torch."""

import ctypes
import os
from typing import Any

from loop.calls.call import Call, LibraryTerms, LoopTensor, Refused
from loop.calls.compiled import CompiledCall, CompiledStage
from loop.calls.invocation import Places, Stage


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

    def prepare(self, call: Call, layout: str = "contiguous") -> CompiledCall:
        """Bring a call's inputs into memory: the host's, or the device's."""
        if self.device == "cuda":
            from loop.calls.cuda.stage import DeviceCompiledCall

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
        built = build_id[:12] or "nothing known"
        raise Refused(f"stale binary: built from {built}, the sources are {expected[:12]}")
