"""The three kinds of variant behind one face, and what of each has to be imported before it is."""

import ctypes
import importlib
import os
from typing import Any

from loop.calls.call import Call, FunctionTerms, LibraryTerms, Terms
from loop.calls.external import External
from loop.calls.own_modules import OWN
from loop.calls.prepared import CompiledCall, Loaded, Prepared
from loop.calls.refusal import Refused
from loop.calls.tensors import LoopTensor
from loop.model.dtypes import Device


def ready(terms: Terms, threads: int, device: Device) -> None:
    """Import what is needed to call a variant of that kind, before anything of the variant's own is."""
    if isinstance(terms, FunctionTerms):
        from loop.calls import torch_side

        torch_side.use_threads(threads)
        calls = importlib.import_module("loop.calls.torch_call")  # So that what checks results is sealed, too.
        if device == "cuda":
            calls.need_device()


def load(terms: Terms, folder: str, device: Device) -> Loaded:
    """The variant that these terms describe; raises Refused when it does not load."""
    if isinstance(terms, LibraryTerms):
        return Compiled(terms)
    if isinstance(terms, FunctionTerms):
        OWN.add(folder)
        return Importable(terms, device)
    return External(terms, folder)


class Compiled:
    """A shared library behind the C interface."""

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

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry; raises Refused with the library's own words when it returns an error."""
        error = self.entry(inputs, output, numbers, stream)
        if error:
            said = (self.explain(error) or b"").decode(errors="replace")
            code = f"error {error}"
            raise Refused(f"{code}: {said}", "declined", code, self._seed())

    def _seed(self) -> int | None:
        """The seed of the launch that just faulted; None where it did not, or the library is not emulated."""
        take = getattr(self.library, "loop_fault_seed", None)
        if take is None:
            return None
        take.restype = ctypes.c_uint64
        return take() or None


def check_build_id(library: ctypes.CDLL, expected: str) -> None:
    """Raise Refused unless the binary says that it was built from what is on disk."""
    try:
        function = library.loop_build_id
    except AttributeError as error:
        raise Refused("the binary has no build id: include loop_kernel.h in its sources") from error
    function.restype = ctypes.c_char_p
    found = (function() or b"").decode(errors="replace")
    if found != expected:
        raise Refused(f"stale binary: built from {found[:12] or 'nothing known'}, the sources are {expected[:12]}")


def _refuse_elsewhere(terms: FunctionTerms) -> None:
    """Raise Refused where a module that has a copy came from another place: its name may be another's there."""
    from loop.calls import torch_side

    module = torch_side.import_module(terms.python.partition(":")[0])
    if not os.path.realpath(module.__file__ or "").startswith(os.path.realpath(terms.folder) + os.sep):
        raise Refused(f"{module.__name__} is not what was built, but {module.__file__}")


class Importable:
    """A Python callable on torch tensors: a variant's `module:function`, or one of the target's functions."""

    def __init__(self, terms: FunctionTerms, device: Device) -> None:
        from loop.calls import torch_side

        self.device, self.terms = device, terms
        if terms.folder:
            OWN.add(terms.folder)
        self.function = torch_side.find(terms.python)
        if terms.folder:
            _refuse_elsewhere(terms)
        self.arguments = torch_side.find(terms.arguments) if terms.arguments else None

    def callee(self, call: Call) -> Any:
        """What a call calls: the function, or one of its class."""
        from loop.calls.callee import Callee

        return Callee(self.function, self.arguments, self.terms, call, self.device)

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory."""
        from loop.calls import torch_call

        if self.device == "cuda":
            return torch_call.DeviceCall(self.callee(call), call, self.device, layout)
        return torch_call.TensorCall(self.callee(call), call, self.device, layout)
