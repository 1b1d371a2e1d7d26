"""A worker's program: `python -m loop.workers.worker_program CORES ARENA_FD [BELL_FD]`. It
holds one variant and imports torch only for one that needs it: that saves seconds."""

import contextlib
import ctypes
import hashlib
import math
import mmap
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from loop.calls import invocation
from loop.calls.arena import MOST_CALLS, obey
from loop.calls.call import FunctionTerms, LibraryTerms, Refused
from loop.calls.invocation import CONTROL_BYTES, Loaded, Places, Prepared, Stage, place_tensors
from loop.calls.library import Compiled
from loop.calls.own_modules import describe_error, search_folder
from loop.calls.seal import Seal
from loop.workers import checking, messages
from loop.workers.checking import CallCheck
from loop.workers.messages import Request, serve


class LoadedCandidate:
    """A loaded variant, with its state between checks."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.generator = loaded, random.Random()
        self.prepared: Prepared | None = None
        """The call that was prepared last; None: none yet."""
        self.prepared_form: object = None
        """Its layout, attributes and shapes."""
        self.is_slow = False
        """Whether that call was checked and proved slow."""

    def check(self, request: messages.Compute) -> CallCheck:
        """Check one call: at least two runs, or one if it is slow and was checked on other values.
        At random, an unchecked call on other values comes first, so a variant cannot count which calls
        are checked. The first call of a process or of other sizes is checked; the other call comes after it."""
        call = request.call
        if self.prepared is None:
            self.generator.seed(call.key)  # A process's first check is reproducible.
        shapes = [(tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)]
        form = (request.layout, call.attributes, call.structure, call.seed, shapes)
        is_new = self.prepared is None or self.prepared_form != form
        if self.prepared is not None and not is_new:
            self.prepared.refill(call)  # In the same memory, to catch caching by address.
        else:
            self.prepared, self.is_slow = None, False  # Release the old memory first: both may not fit.
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
        """`arena`: descriptor of the memory shared with the judge. `bell`: socket on which to wait for
        an order and to report it done; None: poll that memory."""
        self.arena_descriptor, self.bell = arena, bell
        self.staged_call = Stage()
        """The call that is laid out for timing; a stage without calls if none is."""
        self.shared_memory: mmap.mmap | None = None
        self.input_count = 0
        """Inputs of the staged call."""
        self.slowdown_share = 0.0
        """By which share of its time each timed call is slowed on purpose, for a control of the timing."""
        self.seal: Seal | None = None
        """Detects functions that the variant replaced; None before loading."""
        self.candidates: dict[str, LoadedCandidate] = {}
        """The loaded variant under the empty name, and with injected mistakes under their names."""

    def load(self, request: messages.Load) -> None:
        """Load a variant, after importing what it needs and sealing the functions that time it."""
        terms = request.variant
        load_variant: Callable[[], Loaded]
        if isinstance(terms, FunctionTerms):
            from loop.calls import torch_call, torch_side

            torch_side.use_threads(request.threads)
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
        """Check one call; write its distinct outputs to files and report what the check noticed. An output that
        came only between inaccessible guard zones has no digest: at other addresses its last bits may differ."""
        check = self.find_candidate(request.mistake).check(request)
        call_ranges, digests = [], []
        for number, output in enumerate(check.outputs):
            with open(f"{request.call.output.path}.{number}", "wb") as file:
                file.write(output.block)
            call_ranges.append(messages.CallRange(output.first_call, output.last_call))
            digests += [] if output.only_in_enclosures else [hashlib.sha256(output.block).hexdigest()]
        return messages.Computed(
            digests=tuple(digests),
            call_ranges=tuple(call_ranges),
            changed_inputs=tuple(sorted(check.changed_inputs)),
            stray_writes=tuple(check.stray_writes),
            stray_reads=check.stray_reads,
            depends_on_prefill=check.depends_on_prefill,
            replaced_functions=tuple(self.seal.replaced_functions()) if self.seal else (),
            float_unit_change=checking.describe_float_unit(),
        )

    def find_candidate(self, mistake: messages.Mistake | None = None) -> LoadedCandidate:
        """The variant, or the variant with a mistake, which has its own state. Raises Refused before `load`."""
        if "" not in self.candidates:
            raise Refused("nothing is loaded")
        name = mistake["name"] if mistake else ""
        if mistake and name not in self.candidates:
            from loop import mistakes

            self.candidates[name] = LoadedCandidate(mistakes.wrap(self.candidates[""].loaded, mistake))
        return self.candidates[name]

    def stage(self, request: messages.StageCall) -> None:
        """Lay a call out in shared memory and run it once."""
        self.unstage()
        call = request.call
        *_, size = place_tensors(call, request.calls)
        self.shared_memory, self.input_count = mmap.mmap(self.arena_descriptor, size), len(call.inputs)
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
            self.staged_call.runs = [partial(lambda *tensors, **attributes: None, None, None)] * MOST_CALLS
        elif way == "kernel":
            from loop.calls.cuda.stage import EmptyKernels

            self.staged_call = EmptyKernels()
        obey(self.shared_memory, self.bell, self.staged_call, self.input_count, request.last_order)
        return tuple(self.seal.replaced_functions()) if self.seal else ()

    def unstage(self, request: messages.Unstage | None = None) -> None:
        """Release the staged call."""
        self.staged_call, self.shared_memory, self.input_count = Stage(), None, 0


def main(cores: str, *descriptors: str) -> None:
    """Answer requests until no more come (see `serve`). `cores`: its cores, as `2,3`. `descriptors`: of
    the memory shared with the judge, and of a socket (the bell) if there is one."""
    sys.dont_write_bytecode = True  # Write no .pyc files next to the variant's modules.
    unbound_cores = {int(core) for core in cores.split(",")}
    arena, *bell = map(int, descriptors)
    for handle in (arena, *bell):
        os.set_inheritable(handle, False)
    program = WorkerProgram(arena, bell[0] if bell else None)

    def answer(request: Request[Any]) -> object:
        """Answer a request. End this process if a kernel lost the device."""
        # Several workers load at once: bind all threads to the cores only at the first request after loading.
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
        messages.Observe: lambda request: checking.make_observed_call(program.find_candidate().loaded, request),
        messages.ListLaunches: checking.list_launches,
    }
    serve(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
