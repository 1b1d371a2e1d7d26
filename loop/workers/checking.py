"""The calls of one check: the same values each time, and other bytes around the tensors.

A right variant gives the same output whatever stands outside of its tensors, and leaves that as it was.
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
"""Calls that are made however long they take. A slow call that was checked on other values before is made once."""
SLOW_S = 0.1
"""After so many seconds no further kind of bytes is tried: each check of a slow call draws one kind."""
HURRIED_S = 3e-3
"""The same for a check in a hurry, which ends then."""
REPEAT_S, MOST = 4e-3, 3
"""How long a quick call is repeated: a race may show once in a hundred times; that many outputs are enough."""
CONFIRMING = 6
"""Calls that have to agree, half of them with either surroundings, before a difference is a read outside."""
NAMING_S = 5.0
"""Seconds that may be spent on finding out which tensor it is."""
GUESS = "crashed with other bytes around its tensors than before: it probably reads outside of them"

Guards = tuple[Guard, ...]


class CheckedOutput:
    """An output, the calls that gave it, and what stood around the tensors when it came first."""

    def __init__(self, data: bytes, number: int, around: Guards = ()) -> None:
        self.data, self.first, self.last, self.around = data, number, number, around

    def came_again(self, number: int) -> None:
        """Note the number of a later call that gave it."""
        self.last = number


class CallCheck:
    """Calls of one prepared call, and what they came to."""

    def __init__(
        self,
        prepared: Prepared,
        draw: random.Random,
        *,
        hurried: bool = False,
        again: bool = False,
        jumbled: bool = False,
    ) -> None:
        """`again`: one call is enough where it is slow: it was checked on other values, or is a control.

        `jumbled`: after the first or second call comes one on other values, whose output is not looked at.
        """
        self.prepared, self.draw = prepared, draw
        self.hurried, self.again, self.jumbled = hurried, again, jumbled and not prepared.timed_apart
        self.slow_s, self.least = HURRIED_S if hurried else SLOW_S, 1 if again else LEAST
        self.begun, self.made, self.quickest_s = perf_counter(), 0, math.inf
        self.outputs: dict[str, CheckedOutput] = {}
        """Outputs that differ, by digest."""
        self.enclosed: dict[str, CheckedOutput] = {}
        """Outputs of calls that could reach nothing beside their tensors, where they differ from the others. They
        may differ bit by bit: the tensors are elsewhere."""
        self.changed: set[str] = set()
        """Inputs that were written to."""
        self.writes: list[str] = []
        """Writes outside of tensors, a sentence each."""
        self.reads = ""
        """The tensors outside which something is read on which the output depends."""
        self.unwritten = False
        """Whether the output depends on what stood in its memory before."""
        self.watch = FaultWatch(prepared.tensors)
        self.survived: set[str] = set()
        """Kinds of bytes around the tensors with which a call came back."""

    @property
    def slow(self) -> bool:
        """Whether only the calls are made without which nothing is known."""
        return perf_counter() - self.begun > self.slow_s

    def run(self) -> "CallCheck":
        """Make the calls; then see what the output follows, and whether an access outside of a tensor faults."""
        with self.watch:
            self._repeat()
            if self.changed or self.writes:
                return self
            if len(self.outputs) > 1 and self.prepared.names:
                self.reads = self._reads()
            elif self.prepared.prefills and not self.slow:
                (output,) = self.outputs.values()
                self.unwritten = self._make(output.around, memory.draw_guard(MIXED)) != output.data
            if not self.reads and not (self.again and self.slow):
                self._enclosed()
                self.writes = self.prepared.own_strays()
        return self

    def _repeat(self) -> None:
        """The same values with every kind of bytes around the tensors, then for a while with any kind.

        A check of one call takes bytes that show in the output of a variant that reads them.
        """
        others = self.draw.sample(KINDS[1:], len(KINDS) - 1)
        for kind in (*others, KINDS[0]) if self.again else (KINDS[0], *others):
            # Memory that is not the output's was written: nothing more is to be known.
            over = self.slow or self.prepared.timed_apart or self.changed or self.writes
            if self.made >= self.least and over:
                break
            self._keep(kind)
            if self.jumbled and (self.made == 2 or self.slow or self.draw.randrange(2)):
                # After one call or two: a variant that answers every other call from memory is found by either.
                self.jumbled = False
                self.prepared.jumble(self.draw)
                self.prepared.bind()()
        end = perf_counter() + REPEAT_S
        while perf_counter() < end and len(self.outputs) < MOST and not (self.slow or self.prepared.timed_apart):
            self._keep(self.draw.choice(KINDS))

    def _keep(self, kind: str) -> None:
        """Make a call with a kind of bytes around all tensors, and keep its output."""
        around = tuple(memory.draw_guard(kind) for _ in self.prepared.names)
        data = self._make(around)
        output = next((output for output in self.outputs.values() if output.data == data), None)
        if output:
            output.came_again(self.made)
        else:
            self.outputs[hashlib.sha256(data).hexdigest()] = CheckedOutput(data, self.made, around)

    def _enclosed(self) -> None:
        """Calls in which an access outside of a tensor faults: it ends the process, which says where.

        The last one leaves the tensors where they were: a variant that remembers an address meets it again.
        """
        for at_end in (False, True):
            if ((at_end and not self.hurried) or not self.slow) and self.prepared.enclose(at_end=at_end):
                self.prepared.poison()
                self.prepared.bind()()
                data = self.prepared.output()
                digest = hashlib.sha256(data).hexdigest()
                self.made += 1
                if digest in self.outputs:
                    self.outputs[digest].came_again(self.made)
                else:
                    self.enclosed.setdefault(digest, CheckedOutput(data, self.made)).came_again(self.made)
                self.prepared.release()

    def _make(self, around: Guards, prefill: Guard | None = None) -> bytes:
        """The output of one call with these bytes around its tensors."""
        self.made += 1
        self.prepared.surround(around)
        self.prepared.poison(prefill)
        kinds = {guard.kind for guard in around}
        self.watch.guess = GUESS if self.survived and not kinds <= self.survived else ""
        run, begin = self.prepared.bind(), perf_counter()
        run()
        self.quickest_s = min(self.quickest_s, perf_counter() - begin)
        self.survived |= kinds
        output = self.prepared.output()
        self.writes = self.writes or self.prepared.strays()
        self.changed |= set(self.prepared.changed())
        return output

    def _reads(self) -> str:
        """The tensors outside which it reads; empty when the output does not follow what stands there."""
        first, other = list(self.outputs.values())[:2]
        # The same surroundings give the same output again, in an order that no counter of calls has.
        order = [first, other] * (CONFIRMING // 2)
        self.draw.shuffle(order)
        for number, output in enumerate([other, first, first, *order]):
            if self._make(output.around) != output.data:
                return ""
            if number >= LEAST and self.slow:
                break
        # The tensors whose surroundings, changed alone, change the output.
        tensors, names = self.prepared.names, list[str]()
        if (perf_counter() - self.begun) / self.made * len(tensors) <= NAMING_S:
            for n, name in enumerate(tensors):
                changed = (*first.around[:n], other.around[n], *first.around[n + 1 :])
                names += [name] if self._make(changed) != first.data else []
        return " and ".join(names) or "its tensors"


DRY, TOLD = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
APART = 1 << 40
"""Tensors lie so far from each other, and from zero: aligned, and nothing else is there."""
DRIVER = "libcuda.so.1"


class DryRun:
    """An emulated library that lists its launches and makes none."""

    def __init__(self, request: Launches) -> None:
        self.path = Path(request.path)
        os.environ |= {DRY: "1", TOLD: str(self.path)}  # Before the library is loaded: it may look only then.
        if not isinstance(request.variant, LibraryTerms):
            raise Refused("only a library can be asked what it launches")
        self.variant = Compiled(request.variant)

    def launches(self, call: Call) -> Launched:
        """What one call launches, in order, and the error that its entry returned, where it did."""
        known, declined = self.path.stat().st_size if self.path.exists() else 0, ""
        inputs = call.c_inputs([(place + 1) * APART for place in range(len(call.inputs))])
        output = call.c_output((len(call.inputs) + 1) * APART)
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
    """Make a call as the request says; its kernels, where they are traced. Raises Refused where torch has no GPU.

    For a sanitizer (`once`) each tensor of a compiled variant on a GPU is an allocation of exactly its size,
    and the output is as it was allocated: what is touched beside them, or read before it is written, shows.
    """
    if request.how == "once":
        if isinstance(loaded, Compiled) and loaded.device == "cuda":
            from loop.calls.cuda.stage import ExactCall

            prepared: Prepared = ExactCall(loaded.invoke, request.call)
        else:
            prepared = loaded.prepare(request.call)
        prepared.bind()()
        return ()
    prepared = loaded.prepare(request.call.at_start())
    run = prepared.bind()  # It holds addresses: `prepared` has to outlive it.
    run()
    if request.how == "trace":
        return trace_kernels(prepared)
    driver = None
    with contextlib.suppress(OSError):  # Without a driver there is nothing to mark.
        driver = ctypes.CDLL(DRIVER)
    if driver:
        driver.cuProfilerStart()  # From here on `ncu --profile-from-start off` counts.
    run()
    _synchronise()
    if driver:
        driver.cuProfilerStop()
    return ()


def _synchronise() -> None:
    """Wait for what torch has queued on the device; a compiled variant's call has waited itself."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def trace_kernels(prepared: Prepared) -> tuple[Kernel, ...]:
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
    kernels = []
    for event in sorted(trace.get("traceEvents", []), key=lambda event: float(event.get("ts", 0))):
        if event.get("cat") == "kernel":
            us = float(event["dur"]) if "dur" in event else None
            registers = event.get("args", {}).get("registers per thread")
            kernels.append(Kernel(str(event.get("name", "")), us, registers))
    return tuple(kernels)
