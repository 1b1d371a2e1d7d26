"""Which stage a loaded variant takes its calls on, by what it is and where it runs."""

import ctypes
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

from loop.calls.call import Call
from loop.calls.external import External
from loop.calls.orders import Nothing, Shared
from loop.calls.orders import Stage as StagedCall
from loop.calls.prepared import Loaded
from loop.calls.refusal import Refused
from loop.calls.stages import CompiledStage, Places, ProgramStage
from loop.calls.variants import Compiled, Importable
from loop.workers.worker_messages import Stage

EMPTY_ELEMENTS = 64
"""Floats of the tensor that a call of PyTorch makes which does nothing else."""


def stage(loaded: Loaded, shared: Shared, request: Stage, slow: float) -> tuple[StagedCall, int | None]:
    """The stage of a call, once the call was made on it, and the memory that this took at its peak on the host.

    `slow`: share of its time by which every call is made longer on purpose.
    """
    places = Places(shared.memory, request.call, request.inputs, request.slots, request.turns)
    made = _make(loaded, places, request.call, slow)
    made.ready([request.window], request.turns, cold=False)
    peak = None
    if getattr(loaded, "device", "cpu") == "cuda":
        made.run(1)
    else:
        peak = first_call_bytes(lambda: made.run(1))
    made.give()
    return made, peak


def first_call_bytes(run: Callable[[], object]) -> int | None:
    """Memory that the first call adds to the process at its peak; None where the system does not tell.

    Linux: writing 5 to clear_refs resets the peak of the resident set (proc(5)).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _peak_bytes()
    except OSError:
        run()
        return None
    run()
    return max(0, _peak_bytes() - before)


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def empty(way: str) -> StagedCall:
    """Calls of nothing by a way of being called, as in `orders.EMPTY`; none at all for any other word."""
    if way == "c_abi":
        nothing = object.__new__(Compiled)
        nothing.entry = ctypes.CDLL(None).labs
        nothing.entry.argtypes, nothing.entry.restype = [ctypes.c_void_p] * 4, ctypes.c_int
        return Nothing(partial(nothing.invoke, None, None, None, None))
    if way == "python":
        return Nothing(partial(_nothing, None, None))
    if way == "torch":
        import torch

        return Nothing(partial(torch.empty_like, torch.empty(EMPTY_ELEMENTS)))
    if way == "kernel":
        from loop.calls.cuda.empty_kernel import EmptyKernels

        return EmptyKernels()
    return Nothing()


def _nothing(*tensors: object, **attributes: object) -> None:
    """A function that computes nothing."""


def _make(loaded: Loaded, places: Places, call: Call, slow: float) -> StagedCall:
    if isinstance(loaded, Compiled) and loaded.device == "cuda":
        from loop.calls.cuda.stage import DeviceStage

        return DeviceStage(loaded.invoke, places, call, slow)
    if isinstance(loaded, Compiled):
        return CompiledStage(loaded.invoke, places, call, slow)
    if isinstance(loaded, Importable) and loaded.device == "cuda":
        from loop.calls.torch_device_stage import DeviceFunctionStage

        return DeviceFunctionStage(loaded.callee(call), places, call, slow)
    if isinstance(loaded, Importable):
        from loop.calls.torch_stage import FunctionStage

        return FunctionStage(loaded.callee(call), places, call, slow)
    if isinstance(loaded, External):
        return ProgramStage(loaded.prepare(call), places)
    raise Refused("no call of it can be timed")
