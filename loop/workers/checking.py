"""The calls of one check: the same values, each time with different bytes in the guard zones.

A correct variant gives the same output whatever the zones contain, and never changes them.
"""

import contextlib
import ctypes
import hashlib
import json
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from loop.calls import memory
from loop.calls.call import Call, LibraryTerms, Refused
from loop.calls.invocation import FaultWatch, Loaded, Prepared
from loop.calls.library import Compiled
from loop.calls.memory import KINDS, MIXED, Guard
from loop.workers.messages import Kernel, Launched, Launches, Observe

LEAST = 2
"""Minimum number of calls. A slow call is made once if it was already checked on other values."""
SLOW_S = 0.1
"""Stop trying kinds of guard bytes after this time. Each check of a slow call draws one kind."""
HURRIED_S = 3e-3
"""The same limit for a hurried check, which then ends."""
REPEAT_S, MOST = 4e-3, 3
"""Seconds for which a fast call is repeated, and the number of different outputs that ends it. A
data race may show once in a hundred calls."""
CONFIRMING = 6
"""Calls that must agree, half with either guard bytes, to confirm an out-of-bounds read."""
NAMING_S = 5.0
"""Time limit in seconds for finding out which tensor is read out of bounds."""
GUESS = "crashed with other bytes around its tensors than before: it probably reads outside of them"

Guards = tuple[Guard, ...]


class CheckedOutput:
    """One distinct output, its first and last call, and the guard bytes of the first."""

    def __init__(self, data: bytes, number: int, around: Guards = ()) -> None:
        self.data, self.first, self.last, self.around = data, number, number, around

    def came_again(self, number: int) -> None:
        """Record that a later call gave this output."""
        self.last = number


class CallCheck:
    """Repeats one prepared call and collects its outputs and out-of-bounds accesses."""

    def __init__(
        self,
        prepared: Prepared,
        draw: random.Random,
        *,
        hurried: bool = False,
        again: bool = False,
        jumbled: bool = False,
    ) -> None:
        """`again`: a slow call may run once: it was checked on other values or is a control.
        `jumbled`: insert a call on other values after the first or second; ignore its output."""
        self.prepared, self.draw = prepared, draw
        self.hurried, self.again, self.jumbled = hurried, again, jumbled and not prepared.is_program
        self.slow_s, self.least = HURRIED_S if hurried else SLOW_S, 1 if again else LEAST
        self.begun, self.made, self.quickest_s = perf_counter(), 0, math.inf
        self.outputs: dict[str, CheckedOutput] = {}
        """Distinct outputs by digest."""
        self.enclosed: dict[str, CheckedOutput] = {}
        """Distinct outputs of calls with inaccessible guard zones. They may differ in the last bits
        from `outputs`, because the tensors lie at other addresses."""
        self.changed: set[str] = set()
        """Names of inputs that the variant wrote to."""
        self.writes: list[str] = []
        """Out-of-bounds writes, a sentence each."""
        self.reads = ""
        """Tensors that are read out of bounds, if the output depends on it; empty for none."""
        self.unwritten = False
        """Whether the output depends on its memory's contents before the call."""
        self.watch = FaultWatch(prepared.named_memories)
        self.survived: set[str] = set()
        """Kinds of guard bytes with which a call returned without a crash."""

    @property
    def slow(self) -> bool:
        """Whether the time limit is used up, so that only necessary calls are made."""
        return perf_counter() - self.begun > self.slow_s

    def run(self) -> "CallCheck":
        """Make the calls, then find what the output depends on and try inaccessible guard zones."""
        with self.watch:
            self._repeat()
            if self.changed or self.writes:
                return self
            if len(self.outputs) > 1 and self.prepared.tensor_names:
                self.reads = self._reads()
            elif self.prepared.can_prefill_outputs and not self.slow:
                (output,) = self.outputs.values()
                self.unwritten = self._make(output.around, memory.draw_guard(MIXED)) != output.data
            if not self.reads and not (self.again and self.slow):
                self._enclosed()
                self.writes = self.prepared.allocation_strays()
        return self

    def _repeat(self) -> None:
        """Call with every kind of guard bytes, then with random kinds while time allows. A check of
        a single call draws a kind that changes the output of a variant that reads out of bounds."""
        others = self.draw.sample(KINDS[1:], len(KINDS) - 1)
        for kind in (*others, KINDS[0]) if self.again else (KINDS[0], *others):
            # An out-of-bounds write decides the check: no further call is needed.
            over = self.slow or self.prepared.is_program or self.changed or self.writes
            if self.made >= self.least and over:
                break
            self._keep(kind)
            if self.jumbled and (self.made == 2 or self.slow or self.draw.randrange(2)):
                # After one call or two, at random: catches a variant that caches every other call.
                self.jumbled = False
                self.prepared.rotate_randomly(self.draw)
                self.prepared.bind()()
        end = perf_counter() + REPEAT_S
        while perf_counter() < end and len(self.outputs) < MOST and not (self.slow or self.prepared.is_program):
            self._keep(self.draw.choice(KINDS))

    def _keep(self, kind: str) -> None:
        """Make a call with one kind of guard bytes around all tensors, and record its output."""
        around = tuple(memory.draw_guard(kind) for _ in self.prepared.tensor_names)
        data = self._make(around)
        output = next((output for output in self.outputs.values() if output.data == data), None)
        if output:
            output.came_again(self.made)
        else:
            self.outputs[hashlib.sha256(data).hexdigest()] = CheckedOutput(data, self.made, around)

    def _enclosed(self) -> None:
        """Make calls with inaccessible guard zones: an out-of-bounds access ends the process with a
        message. Afterwards the tensors return to their old addresses, so a variant that caches by
        address sees them again."""
        for at_end in (False, True):
            if ((at_end and not self.hurried) or not self.slow) and self.prepared.protect_zones(at_end=at_end):
                self.prepared.poison_outputs()
                self.prepared.bind()()
                data = self.prepared.read_output()
                digest = hashlib.sha256(data).hexdigest()
                self.made += 1
                if digest in self.outputs:
                    self.outputs[digest].came_again(self.made)
                else:
                    self.enclosed.setdefault(digest, CheckedOutput(data, self.made)).came_again(self.made)
                self.prepared.unprotect_zones()

    def _make(self, around: Guards, prefill: Guard | None = None) -> bytes:
        """Make one call with these guard bytes and return its output. `prefill`: contents of the
        output's memory before the call; None: NaN."""
        self.made += 1
        self.prepared.write_guards(around)
        self.prepared.poison_outputs(prefill)
        kinds = {guard.kind for guard in around}
        self.watch.fallback_message = GUESS if self.survived and not kinds <= self.survived else ""
        run, begin = self.prepared.bind(), perf_counter()
        run()
        self.quickest_s = min(self.quickest_s, perf_counter() - begin)
        self.survived |= kinds
        output = self.prepared.read_output()
        self.writes = self.writes or self.prepared.stray_writes()
        self.changed |= set(self.prepared.changed_inputs())
        return output

    def _reads(self) -> str:
        """Name tensors read out of bounds; empty if the output ignores guard bytes."""
        first, other = list(self.outputs.values())[:2]
        # Equal guard bytes must give equal outputs. The order is random, so a call counter cannot imitate it.
        order = [first, other] * (CONFIRMING // 2)
        self.draw.shuffle(order)
        for number, output in enumerate([other, first, first, *order]):
            if self._make(output.around) != output.data:
                return ""
            if number >= LEAST and self.slow:
                break
        # Change the guard bytes of one tensor at a time and see whether the output changes.
        tensors, names = self.prepared.tensor_names, list[str]()
        if (perf_counter() - self.begun) / self.made * len(tensors) <= NAMING_S:
            for n, name in enumerate(tensors):
                changed = (*first.around[:n], other.around[n], *first.around[n + 1 :])
                names += [name] if self._make(changed) != first.data else []
        return " and ".join(names) or "its tensors"


DRY, TOLD = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
APART = 1 << 40
"""Distance between tensors' addresses in a dry run, which nothing dereferences."""
DRIVER = "libcuda.so.1"


class DryRun:
    """Runs an emulated library in a mode that lists its kernel launches and executes none."""

    def __init__(self, request: Launches) -> None:
        self.path = Path(request.path)
        os.environ |= {DRY: "1", TOLD: str(self.path)}  # Set first: the library may read it only when loaded.
        if not isinstance(request.variant, LibraryTerms):
            raise Refused("only a library can be asked what it launches")
        self.variant = Compiled(request.variant)

    def launches(self, call: Call) -> Launched:
        """List the launches of one call in order, and the error that its entry returned, if any."""
        known, declined = self.path.stat().st_size if self.path.exists() else 0, ""
        inputs = call.c_inputs([(place + 1) * APART for place in range(len(call.inputs))])
        output = call.c_outputs((len(call.inputs) + 1) * APART)
        try:
            self.variant.invoke(inputs, output, call.c_numbers(), None)
        except Refused as refused:
            declined = str(refused)
        data = self.path.read_bytes()[known:] if self.path.exists() else b""
        try:
            return Launched(tuple(map(json.loads, data.decode(errors="replace").splitlines())), declined)
        except ValueError as error:
            raise Refused(f"a line of {TOLD} is no JSON: {error}") from error


def observe(loaded: Loaded, request: Observe) -> tuple[Kernel, ...]:
    """Make a call under a tool; return its kernels if `how` is `trace`. Raises Refused if torch has
    no GPU.

    `once` (sanitizers): each tensor of a compiled GPU variant is an allocation of exactly its size,
    with an uninitialised output. So the sanitizer sees out-of-bounds accesses and reads of
    unwritten memory.
    """
    if request.how == "once":
        if isinstance(loaded, Compiled) and loaded.device == "cuda":
            from loop.calls.cuda.stage import ExactCall

            prepared: Prepared = ExactCall(loaded.invoke, request.call)
        else:
            prepared = loaded.prepare(request.call)
        prepared.bind()()
        return ()
    prepared = loaded.prepare(request.call.at_first_windows())
    run = prepared.bind()  # `run` holds raw addresses, so `prepared` has to stay alive.
    run()
    if request.how == "trace":
        return trace_kernels(prepared)
    driver = None
    with contextlib.suppress(OSError):  # Without a driver no profiler waits for marks.
        driver = ctypes.CDLL(DRIVER)
    if driver:
        driver.cuProfilerStart()  # From here on `ncu --profile-from-start off` counts.
    run()
    _synchronise()
    if driver:
        driver.cuProfilerStop()
    return ()


def _synchronise() -> None:
    """Wait for torch's work on the device. A compiled variant's call has already waited."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def trace_kernels(prepared: Prepared) -> tuple[Kernel, ...]:
    """Record the kernels of one prepared call with torch's profiler. It uses the second of two
    profiler runs, because the first includes the profiler's setup. Raises Refused if torch has no
    GPU."""
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
    """Kernels of a Chrome trace in order of start, without copies and fills."""
    kernels = []
    for event in sorted(trace.get("traceEvents", []), key=lambda event: float(event.get("ts", 0))):
        if event.get("cat") == "kernel":
            us = float(event["dur"]) if "dur" in event else None
            registers = event.get("args", {}).get("registers per thread")
            kernels.append(Kernel(str(event.get("name", "")), us, registers))
    return tuple(kernels)
