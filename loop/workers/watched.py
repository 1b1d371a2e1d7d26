"""Calls under a tool: a profiler that counts, a sanitizer that checks, an emulator that launches nothing."""

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loop.calls.call import Call, LibraryTerms, Refused
from loop.calls.counters import Counters
from loop.calls.invocation import Loaded, Prepared
from loop.calls.library import Compiled
from loop.workers.messages import Kernel, Launched, Launches, Observe, Observed

DRY, TOLD = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
APART = 1 << 40
"""Tensors lie so far from each other, and from zero: aligned, and nothing else is there."""
DRIVER = "libcuda.so.1"
REGISTERS = "registers per thread"
COUNTED_CALLS = 20
NOTHING = Observed({}, "", 0)


class DryRun:
    """An emulated library that lists its launches and makes none."""

    def __init__(self, request: Launches) -> None:
        self.path = Path(request.told)
        os.environ |= {DRY: "1", TOLD: str(self.path)}  # Before the library is loaded: it may look only then.
        if not isinstance(request.variant, LibraryTerms):
            raise Refused("only a library can be asked what it launches")
        self.variant = Compiled(request.variant)

    def launches(self, call: Call) -> Launched:
        """What one call launches, in order, and the error that its entry returned, where it did."""
        known, declined = self.path.stat().st_size if self.path.exists() else 0, ""
        count = len(call.inputs)
        inputs = call.c_inputs([(place + 1) * APART for place in range(count)])
        try:
            self.variant.invoke(inputs, call.c_output((count + 1) * APART), call.c_numbers(), None)
        except Refused as refused:
            declined = str(refused)
        data = self.path.read_bytes()[known:] if self.path.exists() else b""
        try:
            return Launched(tuple(map(json.loads, data.decode(errors="replace").splitlines())), declined)
        except ValueError as error:
            raise Refused(f"a line of {TOLD} is no JSON: {error}") from error


def observe(loaded: Loaded, request: Observe) -> Observed:
    """Make a call as the request says. Raises Refused where torch has no GPU that could be traced."""
    if request.how == "once":
        return _once(loaded, request.call)
    prepared = loaded.prepare(request.call.at_start())
    run = prepared.bind()  # It holds addresses: `prepared` has to outlive it.
    run()
    if request.how == "trace":
        return Observed({}, "", 0, traced(prepared))
    if request.how == "mark":
        with marks():
            run()
            _synchronise()
        return NOTHING
    with Counters() as counters:
        if not counters.open():
            return Observed({}, counters.why_not, 0)
        run()
        counters.start()
        for _ in range(COUNTED_CALLS):
            run()
        return Observed(counters.stop(), "", COUNTED_CALLS)


def _once(loaded: Loaded, call: Call) -> Observed:
    """Make one call, for a sanitizer.

    Of a compiled variant on a GPU each tensor is an allocation of exactly its size, without guard zones, and the
    output is as it was allocated: what is touched beside them, or read before it is written, shows.
    """
    if isinstance(loaded, Compiled) and loaded.device == "cuda":
        from loop.calls.cuda.call import ExactCall

        prepared: Prepared = ExactCall(loaded.invoke, call)
    else:
        prepared = loaded.prepare(call)
    run = prepared.bind()
    run()
    return NOTHING


@contextmanager
def marks(library: str = DRIVER) -> Iterator[None]:
    """Between them `ncu --profile-from-start off` counts; without a driver there is nothing to mark."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        yield
        return
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuProfilerStop()


def _synchronise() -> None:
    """Wait for what torch has queued on the device; a compiled variant's call has waited itself."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def traced(prepared: Prepared) -> tuple[Kernel, ...]:
    """Kernels of one prepared call by torch's profiler.

    The second of two sessions counts: the first sets the profiler up. Raises Refused where torch has no GPU.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise Refused("torch sees no CUDA device")
    run = prepared.bind()
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            run()
            _synchronise()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        return kernels_in(json.loads(path.read_text(errors="replace")))


def kernels_in(trace: dict[str, Any]) -> tuple[Kernel, ...]:
    """The kernels of a Chrome trace, as they began: copies, fills and the profiler's own work are left out."""
    events = [event for event in trace.get("traceEvents", []) if event.get("cat") == "kernel"]
    return tuple(
        Kernel(
            kernel=str(event.get("name", "")),
            us=float(event["dur"]) if "dur" in event else None,
            registers=event.get("args", {}).get(REGISTERS),
        )
        for event in sorted(events, key=lambda event: float(event.get("ts", 0)))
    )
