"""A worker's program: `python -m loop.workers.worker_program CORES ARENA_FD [BELL_FD]`.

It holds one variant and imports torch only for one that needs it: that saves seconds.

A check calls the variant several times on the same values, each time with different bytes in the
guard zones. A correct variant gives the same output whatever they hold, and never changes them."""

import contextlib
import ctypes
import hashlib
import json
import math
import mmap
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from loop.calls import invocation, memory
from loop.calls.arena import MOST_CALLS, obey
from loop.calls.call import FunctionTerms, LibraryTerms, Refused
from loop.calls.invocation import CONTROL_BYTES, Loaded, Places, Prepared, Stage, name_faults
from loop.calls.library import Compiled, bind_entry
from loop.calls.memory import KINDS, MIXED, Guard
from loop.calls.own_modules import describe_error, search_folder
from loop.calls.seal import Seal
from loop.workers import messages
from loop.workers.messages import DryLaunches, Kernel, ListLaunches, Observe, Request, serve

MIN_CALLS = 2  # Least number of calls; 1 if a call is slow and was checked on other values.
SLOW_LIMIT_S = 0.1  # After this time, no more kinds of guard bytes are tried. Each check draws one.
HURRIED_LIMIT_S = 3e-3  # The same limit for a hurried check, which then ends.
REPEAT_S, MAX_OUTPUTS = 4e-3, 3
"""Seconds for which a fast call is repeated, and the number of different outputs that ends it. A
data race may show once in a hundred calls."""
CONFIRMING_CALLS = 6  # Calls, half with either guard bytes, that must agree on a stray read.
NAMING_LIMIT_S = 5.0  # Time limit in seconds for finding out which tensor is read out of bounds.
DRY_RUN_VARIABLE, LAUNCHES_VARIABLE = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
"""Environment variables that switch the emulator's dry run on and name the file of its launches."""
ADDRESS_STEP = 1 << 40  # Between the addresses of tensors in a dry run, which nothing dereferences.
DRIVER_LIBRARY = "libcuda.so.1"

Guards = tuple[Guard, ...]


class CheckedOutput:
    """One distinct output, the numbers of its first and last call, and the first's guard bytes."""

    def __init__(self, block: bytes, call_number: int, guards: Guards, is_enclosed: bool) -> None:
        """`block`: its bytes. `is_enclosed`: only calls with inaccessible guard zones gave it. Its
        last bits may differ from others, because the tensors lay at other addresses."""
        self.block, self.guards, self.is_enclosed = block, guards, is_enclosed
        self.first_call = self.last_call = call_number


def describe_float_unit() -> str:
    """How this thread's floating-point unit differs from a usual one, in words; empty if not. Asked
    after each check's calls: a call, or loading code linked by `-Ofast`, may have changed it."""
    enabled_traps = getattr(ctypes.CDLL(None), "fegetexcept", None)
    if enabled_traps is not None and enabled_traps():  # They could end the calculations below, too.
        return "a floating-point exception, such as underflow, ends the process"
    smallest, eps = sys.float_info.min, sys.float_info.epsilon
    changes = ["subnormal numbers count as 0"] if smallest / 2 + smallest / 2 != smallest else []
    if (1 + eps / 4, -1 - eps / 4, 1 + 0.75 * eps) != (1.0, -1.0, 1 + eps):
        changes.append("results round another way")
    return " and ".join(changes)


class CallCheck:
    """Repeats one prepared call and collects its outputs and out-of-bounds accesses."""

    def __init__(
        self,
        prepared: Prepared,
        generator: random.Random,
        *,
        is_hurried: bool = False,
        may_run_once: bool = False,
        interposes_call: bool = False,
    ) -> None:
        """`is_hurried`: stop early. `may_run_once`: a slow call was checked on other values before.
        `interposes_call`: call on other values after the first or second, ignore that output."""
        self.prepared, self.generator = prepared, generator
        self.is_hurried, self.may_run_once = is_hurried, may_run_once
        self.must_interpose = interposes_call and not prepared.is_program
        self.limit_s = HURRIED_LIMIT_S if is_hurried else SLOW_LIMIT_S
        self.min_calls = 1 if may_run_once else MIN_CALLS
        self.start_s, self.call_count, self.quickest_s = perf_counter(), 0, math.inf
        self.outputs: list[CheckedOutput] = []
        # These four are as in `messages.Computed`.
        self.changed_inputs: set[str] = set()
        self.stray_writes: list[str] = []
        self.stray_reads, self.depends_on_prefill = "", False

    @property
    def is_slow(self) -> bool:
        """Whether only necessary calls are made: of a program, or if the time limit is used up."""
        return self.prepared.is_program or perf_counter() - self.start_s > self.limit_s

    def run(self) -> "CallCheck":
        """Make the calls, then find what the output depends on and try inaccessible guard zones."""
        with name_faults(lambda: self.prepared.memories):
            self._repeat_with_guards()
            if self.changed_inputs or self.stray_writes:  # It is wrong already.
                return self
            if len(self.outputs) > 1 and self.prepared.memories:
                self.stray_reads = self._find_stray_reads()
            elif self.prepared.outputs and not self.is_slow:
                (output,) = self.outputs
                block = self._call_once(output.guards, memory.draw_guard(MIXED))
                self.depends_on_prefill = block != output.block
            if self.stray_reads or (self.may_run_once and self.is_slow):
                return self
            # With inaccessible guard zones an out-of-bounds access ends the process with a message.
            # Then the tensors return to their old addresses, for variants that cache by them.
            for at_end in (False, True):  # At the beginning, then at the end of their pages.
                # A slow call is made only at the end; in a hurried check, not at all.
                is_left_out = self.is_slow and (self.is_hurried or not at_end)
                if not is_left_out and self.prepared.protect_zones(at_end=at_end):
                    self.prepared.poison_outputs()
                    self.prepared.bind()()
                    self.call_count += 1
                    self._record_output(self.prepared.read_output(), is_enclosed=True)
                    self.prepared.unprotect_zones()
            if not self.stray_writes:  # Around tensors that it allocated itself.
                self.stray_writes = self.prepared.describe_allocation_strays()
        return self

    def _repeat_with_guards(self) -> None:
        """Call with every kind of guard bytes, then with random kinds while time allows. A check of
        a single call draws a kind that changes the output of a variant that reads out of bounds."""
        own_values_kind, *kinds = KINDS
        self.generator.shuffle(kinds)
        # Guard bytes like the tensor's own values show least: they are no choice for a single call.
        kinds.insert(len(kinds) if self.may_run_once else 0, own_values_kind)
        for kind in kinds:
            # An out-of-bounds write decides the check: no further call is needed.
            is_decided = self.changed_inputs or self.stray_writes
            if self.call_count >= self.min_calls and (self.is_slow or is_decided):
                break
            self._record_call(kind)
            is_due = self.call_count == 2 or self.is_slow or self.generator.randrange(2) == 1
            if self.must_interpose and is_due:
                # Two calls after the first, or one after the second: the next is the fourth of its
                # process, and a variant that computes every other call gives it the other values.
                self.must_interpose = False
                self.prepared.load_other_values(self.generator)
                for _ in range(3 - self.call_count):
                    self.prepared.bind()()
        end_s = perf_counter() + REPEAT_S
        while perf_counter() < end_s and len(self.outputs) < MAX_OUTPUTS and not self.is_slow:
            self._record_call(self.generator.choice(KINDS))

    def _record_call(self, kind: str) -> None:
        """Make a call with one kind of guard bytes around all tensors, and record its output."""
        guards = tuple(memory.draw_guard(kind) for _ in self.prepared.memories)
        self._record_output(self._call_once(guards), guards)

    def _record_output(self, block: bytes, guards: Guards = (), is_enclosed: bool = False) -> None:
        """Record the output of the latest call, as an occurrence of an earlier one if equal."""
        for output in self.outputs:
            if output.block == block:  # Quicker than a digest.
                output.last_call = self.call_count
                return
        self.outputs.append(CheckedOutput(block, self.call_count, guards, is_enclosed))

    def _call_once(self, guards: Guards, prefill: Guard | None = None) -> bytes:
        """Make one call with these guard bytes and return its output. `prefill`: contents of the
        output's memory before the call; None: NaN."""
        self.call_count += 1
        self.prepared.write_inputs_and_guards(guards)
        self.prepared.poison_outputs(prefill)
        run, start_s = self.prepared.bind(), perf_counter()
        run()
        self.quickest_s = min(self.quickest_s, perf_counter() - start_s)
        output = self.prepared.read_output()
        self.stray_writes = self.stray_writes or self.prepared.stray_writes()
        self.changed_inputs |= set(self.prepared.changed_inputs())
        return output

    def _find_stray_reads(self) -> str:
        """Name the tensors outside of which the variant reads (`its tensors` if there is no time to
        find out); empty if guard bytes do not decide the output."""
        first, second = self.outputs[:2]
        # Equal guard bytes must give equal outputs. Random order: no call counter can imitate it.
        order = [first, second] * (CONFIRMING_CALLS // 2)
        self.generator.shuffle(order)
        for number, output in enumerate([second, first, first, *order]):
            if self._call_once(output.guards) != output.block:
                return ""
            if number >= MIN_CALLS and self.is_slow:
                break
        # Change the guard bytes of one tensor at a time and see whether the output changes.
        memories, read_names = self.prepared.memories, list[str]()
        mean_call_s = (perf_counter() - self.start_s) / self.call_count
        if mean_call_s * len(memories) <= NAMING_LIMIT_S:
            for n, tensor_memory in enumerate(memories):
                guards = (*first.guards[:n], second.guards[n], *first.guards[n + 1 :])
                if self._call_once(guards) != first.block:
                    read_names.append(tensor_memory.name)
        return " and ".join(read_names) or "its tensors"


def list_launches(request: ListLaunches) -> DryLaunches:
    """The launches of one call of an emulated library, in order, and the error that its entry
    returned, if any. It executes no kernel, and appends launches to a file that may hold others."""
    from pathlib import Path

    assert isinstance(request.variant, LibraryTerms)
    path, call, entry_error = Path(request.path), request.call, ""
    path.touch()
    earlier_bytes = path.stat().st_size
    # Set first: the library may read them only when loaded.
    os.environ |= {DRY_RUN_VARIABLE: "1", LAUNCHES_VARIABLE: request.path}
    inputs = [ADDRESS_STEP * number for number in range(1, len(call.inputs) + 1)]
    output_block = ADDRESS_STEP * (len(call.inputs) + 1)
    outputs = [output_block + part.offset for part in call.separate_outputs]
    variant = Compiled(request.variant)
    try:
        bind_entry(variant.invoke, call, [*inputs, *outputs], "contiguous")()
    except Refused as refused:
        entry_error = str(refused)
    lines = path.read_bytes()[earlier_bytes:].decode(errors="replace").splitlines()
    return DryLaunches(tuple(map(json.loads, lines)), entry_error)


def observe_call(loaded: Loaded, request: Observe) -> tuple[Kernel, ...]:
    """Make a call under a tool; return its kernels if `how` is `trace` (Refused without a GPU).
    `once`, for sanitizers: each tensor of a compiled GPU variant is an allocation of exactly its
    size, the output uninitialised. `mark`: profilers count between the marks, after a warm-up."""
    if request.how == "once":
        if isinstance(loaded, Compiled):
            prepared: Prepared = loaded.prepare(request.call, has_zones=False)
        else:
            prepared = loaded.prepare(request.call)
        prepared.bind()()
        return ()
    prepared = loaded.prepare(request.call.at_first_windows())
    run = prepared.bind()  # `run` holds raw addresses, so `prepared` has to stay alive.
    run()
    if request.how == "trace":
        return trace_kernels(run)
    torch, driver = sys.modules.get("torch"), None
    with contextlib.suppress(OSError):  # Without a driver no profiler waits for marks.
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    if driver:
        driver.cuProfilerStart()  # From here on `ncu --profile-from-start off` counts.
    run()
    if torch is not None and torch.cuda.is_available():  # A compiled variant's call has waited.
        torch.cuda.synchronize()
    if driver:
        driver.cuProfilerStop()
    return ()


def trace_kernels(run: Callable[[], Any]) -> tuple[Kernel, ...]:
    """Record the kernels of one call with torch's profiler, in the second of two runs: the first
    includes the profiler's setup. Raises Refused if torch has no GPU."""
    import tempfile
    from pathlib import Path

    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise Refused("torch sees no CUDA device")
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            run()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        return kernels_of_trace(json.loads(path.read_text(errors="replace")))


def kernels_of_trace(trace: dict[str, Any]) -> tuple[Kernel, ...]:
    """Kernels of a Chrome trace (the parsed file) in order of start, without copies and fills."""
    kernels = []
    for event in sorted(trace.get("traceEvents", []), key=lambda event: float(event.get("ts", 0))):
        if event.get("cat") == "kernel":
            duration_us = float(event["dur"]) if "dur" in event else None
            registers = event.get("args", {}).get("registers per thread")
            kernels.append(Kernel(str(event.get("name", "")), duration_us, registers))
    return tuple(kernels)


class LoadedCandidate:
    """A loaded variant, with its state between checks."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.generator = loaded, random.Random()
        self.prepared: Prepared | None = None  # The call that was prepared last; None: none yet.
        self.prepared_form: object = None  # Its layout, attributes and shapes.
        self.is_slow = False  # Whether that call was checked and proved slow.

    def check(self, request: messages.Compute) -> CallCheck:
        """Check one call: at least two runs, or one if it is slow and was checked on other values.
        At random, an unchecked call on other values comes first, so counting calls is no use. A
        process's first call, and one of other sizes, is checked; the other call comes after it."""
        call = request.call
        if self.prepared is None:
            self.generator.seed(call.key)  # A process's first check is reproducible.
        shapes = [(tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)]
        form = (request.layout, call.attributes, call.structure, call.seed, shapes)
        is_new = self.prepared is None or self.prepared_form != form
        if self.prepared is not None and not is_new:
            self.prepared.refill(call)  # In the same memory, to catch caching by address.
        else:
            self.prepared = None  # Release the old memory first: both may not fit.
            self.is_slow = False
            self.prepared, self.prepared_form = self.loaded.prepare(call, request.layout), form
        prepared = self.prepared
        is_thorough = not (request.is_hurried or request.may_run_once)
        makes_other_call = request.layout == "contiguous" and is_thorough
        if makes_other_call and not is_new and self.generator.randrange(2):
            prepared.load_other_values(self.generator)
            prepared.bind()()
        check = CallCheck(
            prepared,
            self.generator,
            is_hurried=request.is_hurried,
            may_run_once=self.is_slow or request.may_run_once,
            interposes_call=makes_other_call and is_new,
        ).run()
        self.is_slow = check.limit_s < check.quickest_s < math.inf
        return check


class WorkerProgram:
    """State of the worker process: a variant and a staged call of it."""

    def __init__(self, arena: int, bell: int | None) -> None:
        """`arena`: descriptor of the memory shared with the judge. `bell`: socket on which to wait
        for an order and to report it done; None: poll that memory."""
        self.arena_descriptor, self.bell = arena, bell
        self.staged_call = Stage()  # The call laid out for timing; without calls if none is.
        self.shared_memory: mmap.mmap | None = None
        self.input_count = 0  # Inputs of the staged call.
        self.slowdown_share = 0.0  # Share of its time by which a control slows each timed call.
        self.seal: Seal | None = None  # Detects replaced functions; None before loading.
        self.candidates: dict[str, LoadedCandidate] = {}
        """The loaded variant under the empty name, and with injected mistakes under their names."""

    def load(self, request: messages.Load) -> None:
        """Load a variant, after importing what it needs and sealing the functions that time it."""
        terms = request.variant
        load_variant: Callable[[], Loaded]
        if isinstance(terms, FunctionTerms):
            from loop.calls import callee, torch_call

            callee.use_threads(request.threads)
            if request.device == "cuda":
                torch_call.require_device()
            search_folder(request.folder)
            load_variant = partial(torch_call.Importable, terms, request.device)
        elif not isinstance(terms, LibraryTerms):
            from loop.calls.external import External

            load_variant = partial(External, terms, request.folder)
        elif terms.device == "cuda":
            from loop.calls.cuda.stage import DeviceLibrary

            load_variant = partial(DeviceLibrary, terms)
        else:
            load_variant = partial(Compiled, terms)
        self.seal = Seal()  # Of all that was imported until here.
        loaded, self.slowdown_share = load_variant(), request.slowdown_share
        self.candidates[""] = LoadedCandidate(loaded)
        if request.device == loaded.device == "cuda":
            from loop.calls.cuda.stage import the_device

            with contextlib.suppress(Refused):  # The first call reports the reason.
                the_device()

    def compute(self, request: messages.Compute) -> messages.Computed:
        """Check one call; write its distinct outputs to files and report what it noticed. Only an
        output that open guard zones gave, too, has a digest: elsewhere its last bits may differ."""
        check = self.find_candidate(request.mistake).check(request)
        call_ranges, digests = [], []
        for number, output in enumerate(check.outputs):
            with open(f"{request.call.output.path}.{number}", "wb") as file:
                file.write(output.block)
            call_ranges.append(messages.CallRange(output.first_call, output.last_call))
            digests += [] if output.is_enclosed else [hashlib.sha256(output.block).hexdigest()]
        return messages.Computed(
            digests=tuple(digests),
            call_ranges=tuple(call_ranges),
            changed_inputs=tuple(sorted(check.changed_inputs)),
            stray_writes=tuple(check.stray_writes),
            stray_reads=check.stray_reads,
            depends_on_prefill=check.depends_on_prefill,
            replaced_functions=tuple(self.seal.replaced_functions()) if self.seal else (),
            float_unit_change=describe_float_unit(),
        )

    def find_candidate(self, mistake: messages.Mistake | None = None) -> LoadedCandidate:
        """The variant, or its copy with a mistake, with its own state. Refused before `load`."""
        if "" not in self.candidates:
            raise Refused("nothing is loaded")
        name = mistake["name"] if mistake else ""
        if mistake and name not in self.candidates:
            from loop.mistakes import wrap

            self.candidates[name] = LoadedCandidate(wrap(self.candidates[""].loaded, mistake))
        return self.candidates[name]

    def stage(self, request: messages.StageCall) -> None:
        """Lay a call out in shared memory and run it once."""
        self.unstage()
        call = request.call
        *_, size = invocation.place_tensors(call, request.calls)
        self.shared_memory = mmap.mmap(self.arena_descriptor, size)
        self.input_count = len(call.inputs)
        places = Places(self.shared_memory, call, request.calls)
        self.staged_call = self.find_candidate().loaded.stage(places, self.slowdown_share)
        self.staged_call.prepare_calls([request.window_starts], [0] * self.input_count)
        self.staged_call.run(1)
        self.staged_call.copy_results()

    def obey(self, request: messages.ObeyOrders) -> tuple[str, ...]:
        """Carry out the judge's orders until LEAVE; return functions that the variant replaced."""
        self.shared_memory = self.shared_memory or mmap.mmap(self.arena_descriptor, CONTROL_BYTES)
        way = request.empty_way
        if way is not None:  # The orders measure calls that do nothing, or none if it is empty.
            self.staged_call = Stage()
        if way == "c_abi":
            library = object.__new__(Compiled)
            library.entry = ctypes.CDLL(None).labs  # A function of C that returns at once.
            library.entry.argtypes, library.entry.restype = [ctypes.c_void_p] * 4, ctypes.c_int
            self.staged_call.runs = [partial(library.invoke, None, None, None, None)] * MOST_CALLS
        elif way == "python":
            self.staged_call.runs = [partial(lambda *tensors, **_: None, None, None)] * MOST_CALLS
        elif way == "kernel":
            from loop.calls.cuda.stage import EmptyKernels

            self.staged_call = EmptyKernels()
        obey(self.shared_memory, self.bell, self.staged_call, self.input_count, request.last_order)
        return tuple(self.seal.replaced_functions()) if self.seal else ()

    def unstage(self, request: messages.Unstage | None = None) -> None:
        """Release the staged call."""
        self.staged_call, self.shared_memory, self.input_count = Stage(), None, 0


def main(cores: str, *descriptors: str) -> None:
    """Answer requests until no more come (see `serve`). `cores`: its own, as `2,3`. `descriptors`:
    of the memory shared with the judge, and of a socket (the bell) if there is one."""
    sys.dont_write_bytecode = True  # Write no .pyc files next to the variant's modules.
    unbound_cores = {int(core) for core in cores.split(",")}
    arena, *bell = map(int, descriptors)
    for handle in (arena, *bell):
        os.set_inheritable(handle, False)
    program = WorkerProgram(arena, bell[0] if bell else None)

    def answer(request: Request[Any]) -> object:
        """Answer a request. End this process if a kernel lost the device."""
        # Several workers load at once: bind threads to cores only at the first request after that.
        if unbound_cores and not isinstance(request, messages.Load):
            for task in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):  # The thread has ended meanwhile.
                    if not os.sched_getaffinity(int(task)) <= unbound_cores:
                        os.sched_setaffinity(int(task), unbound_cores)
            unbound_cores.clear()
        try:
            return answers[type(request)](request)
        except Exception as error:
            # Under a tool no further request comes, and the tool reports the error.
            lost = "" if isinstance(request, messages.Observe) else invocation.explain_lost_device()
            if lost:  # The session sees a crash.
                refusal = str(error) if isinstance(error, Refused) else describe_error(error)
                text = refusal if lost in refusal else f"{refusal}; {lost}"
                os.write(2, f"\n{invocation.LOST_PREFIX}{text}\n".encode())
                os._exit(invocation.LOST_EXIT)
            raise

    answers: dict[type, Callable[[Any], object]] = {
        messages.Load: program.load,
        messages.Compute: program.compute,
        messages.StageCall: program.stage,
        messages.ObeyOrders: program.obey,
        messages.Unstage: program.unstage,
        messages.Observe: lambda request: observe_call(program.find_candidate().loaded, request),
        messages.ListLaunches: list_launches,
    }
    serve(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
