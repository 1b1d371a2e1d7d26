"""A worker's program: `python -m loop.workers.worker_program REPLY_FD CORES ARENA_FD [BELL_FD
BELL_FD]`. It holds one variant. It imports torch and pydantic only if the variant needs them, so
that it starts in tens of milliseconds."""

import contextlib
import ctypes
import math
import mmap
import os
import random
import resource
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loop.calls import invocation
from loop.calls.arena import CONTROL_BYTES, obey
from loop.calls.call import FunctionTerms, LibraryTerms, Refused
from loop.calls.external import External
from loop.calls.invocation import EmptyStage, Loaded, Places, Prepared, Run, Stage
from loop.calls.library import Compiled
from loop.calls.own_modules import search_folder
from loop.calls.seal import Seal
from loop.workers import checking, messages
from loop.workers.checking import CallCheck
from loop.workers.messages import Answers, RefusalReply, Request, answer_request, serve

EMPTY_ELEMENTS = 64
"""Elements of the tensor that PyTorch's empty call allocates."""


class LoadedCandidate:
    """A loaded variant, with its state between checks."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.generator = random.Random()
        self.was_called = False
        self.last_prepared: tuple[object, Prepared] | None = None
        """Shapes, layout and attributes of the last prepared call, and that call."""
        self.is_slow = False
        """Whether that call was checked and proved slow."""

    def check(self, request: messages.Compute) -> CallCheck:
        """Check one call: at least two runs, or one if it is slow and was checked on other values.

        At random, an unchecked call on other values comes first, so a variant cannot count which
        calls are checked. The process's first call is always checked; there the other call comes
        after it.
        """
        prepared, first, self.was_called = self._prepare(request), not self.was_called, True
        if first:
            self.generator.seed(request.call.key)
        jumbled = request.layout == "contiguous" and not (request.is_hurried or request.may_run_once)
        if jumbled and not first and self.generator.randrange(2):
            prepared.rotate_randomly(self.generator)
            prepared.bind()()
        again, jumbled = self.is_slow or request.may_run_once, jumbled and first
        check = CallCheck(
            prepared, self.generator, is_hurried=request.is_hurried, may_run_once=again, interposes_call=jumbled
        ).run()
        self.is_slow = check.limit_s < check.quickest_s < math.inf
        return check

    def _prepare(self, request: messages.Compute) -> Prepared:
        """Prepare a call. If only the values differ from the last call, reuse its memory, so a
        variant that caches by address fails."""
        call = request.call
        shapes = [(tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)]
        form = (request.layout, call.attributes, call.structure_digest, call.seed, shapes)
        if self.last_prepared is not None and self.last_prepared[0] == form:
            self.last_prepared[1].refill(call)
        else:
            self.last_prepared, self.is_slow = None, False  # Release the old memory first: both may not fit.
            self.last_prepared = (form, self.loaded.prepare(call, request.layout))
        return self.last_prepared[1]


class WorkerProgram:
    """State of the worker process: a variant and a staged call of it."""

    def __init__(self, arena: int, bell: tuple[int, int] | None) -> None:
        """`arena`: descriptor of the memory shared with the judge. `bell`: as in `arena.obey`."""
        self.arena_descriptor, self.bell = arena, bell
        self.staged_call: Stage = EmptyStage()
        self.shared_memory: mmap.mmap | None = None
        self.input_count = 0
        self.slowdown_share = 0.0
        self.seal: Seal | None = None
        self.candidates: dict[str, LoadedCandidate] = {}
        """The loaded variant under the empty name, and with injected mistakes under their names."""
        self.dry_run: checking.DryRun | None = None

    def load(self, request: messages.Load) -> None:
        """Load a variant, after importing what it needs and sealing the functions that time it."""
        terms = request.variant
        library: type[Compiled] = Compiled
        loaded: Loaded
        if isinstance(terms, FunctionTerms):
            from loop.calls import torch_call, torch_side  # Imported so that they are sealed.

            torch_side.use_threads(request.threads)
            if request.device == "cuda":
                torch_call.require_device()
        elif isinstance(terms, LibraryTerms) and terms.device == "cuda":
            from loop.calls.cuda.stage import DeviceLibrary

            library = DeviceLibrary
        self.seal = Seal()
        if isinstance(terms, LibraryTerms):
            loaded = library(terms)
        elif isinstance(terms, FunctionTerms):
            search_folder(request.folder)
            loaded = torch_call.Importable(terms, request.device)
        else:
            loaded = External(terms, request.folder)
        self.slowdown_share = request.slowdown_share
        if request.mistake:
            from loop import mistakes

            loaded = mistakes.wrap(loaded, request.mistake)
        self.candidates[""] = LoadedCandidate(loaded)
        if request.device == loaded.device == "cuda":
            from loop.calls.cuda.stage import the_device

            with contextlib.suppress(Refused):  # The first call reports the reason.
                the_device()

    def compute(self, request: messages.Compute) -> messages.Computed:
        """Check one call; write its distinct outputs to files and report what the check noticed."""
        check = self.find_candidate(request.mistake).check(request)
        outputs = [*check.outputs.values(), *check.enclosed_outputs.values()]
        paths = [f"{request.call.output.path}.{number}" for number in range(len(outputs))]
        for path, output in zip(paths, outputs, strict=True):
            Path(path).write_bytes(output.data)
        return messages.Computed(
            output_files=tuple(paths),
            digests=tuple(check.outputs),
            call_ranges=tuple(messages.CallRange(output.first_call, output.last_call) for output in outputs),
            changed_inputs=tuple(sorted(check.changed_inputs)),
            stray_writes=tuple(check.stray_writes),
            stray_reads=check.stray_reads,
            depends_on_prefill=check.depends_on_prefill,
            replaced_functions=self._replaced_functions(),
        )

    def find_candidate(self, mistake: messages.Mistake | None = None) -> LoadedCandidate:
        """The variant, or the variant with a mistake, which keeps its own state between calls."""
        if "" not in self.candidates:
            raise Refused("nothing is loaded")
        if mistake is None:
            return self.candidates[""]
        from loop import mistakes

        if mistake["name"] not in self.candidates:
            self.candidates[mistake["name"]] = LoadedCandidate(mistakes.wrap(self.candidates[""].loaded, mistake))
        return self.candidates[mistake["name"]]

    def stage(self, request: messages.StageCall) -> int | None:
        """Lay a call out in shared memory and run it once; return peak bytes, or None."""
        self.unstage()
        self.shared_memory = mmap.mmap(self.arena_descriptor, request.shared_bytes)
        self.input_count = len(request.call.inputs)
        loaded, peak = self.find_candidate().loaded, None
        places = Places(
            self.shared_memory, request.call, request.input_offsets, request.output_offsets, request.rotations
        )
        self.staged_call = stage = loaded.stage(places, request.call, self.slowdown_share)
        stage.prepare_calls([request.window_starts], request.rotations)
        if loaded.device == "cuda":
            stage.run(1)
        else:
            peak = measure_first_call_bytes(partial(stage.run, 1))
        stage.copy_results()
        return peak

    def obey(self, request: messages.ObeyOrders) -> tuple[str, ...]:
        """Carry out the judge's orders until LEAVE; return functions that the variant replaced."""
        self.shared_memory = self.shared_memory or mmap.mmap(self.arena_descriptor, CONTROL_BYTES)
        if request.empty_way is not None:
            self.staged_call = make_empty_stage(request.empty_way)
        obey(self.shared_memory, self.bell, self.staged_call, self.input_count, request.last_order)
        return self._replaced_functions()

    def unstage(self, request: messages.Unstage | None = None) -> None:
        """Release the staged call."""
        self.staged_call.close()
        self.staged_call, self.shared_memory, self.input_count = EmptyStage(), None, 0

    def list_launches(self, request: messages.ListLaunches) -> messages.DryLaunches:
        """List the kernels that a call would launch."""
        self.dry_run = self.dry_run or checking.DryRun(request)
        return self.dry_run.list_launches(request.call)

    def _replaced_functions(self) -> tuple[str, ...]:
        """Names of functions that the variant replaced."""
        return tuple(self.seal.replaced_functions()) if self.seal else ()


def measure_first_call_bytes(run: Run) -> int | None:
    """Run the first call; return the memory it adds at its peak, or None if the system does not
    report it. Linux: writing 5 to clear_refs resets the peak of the resident set (proc(5))."""

    def peak_bytes() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_bytes()
    except OSError:
        run()
        return None
    run()
    return max(0, peak_bytes() - before)


def make_empty_stage(way: str) -> Stage:
    """A stage whose calls do nothing, in one of `judge_process.Way`; other words: no calls."""
    if way == "c_abi":
        nothing = object.__new__(Compiled)
        nothing.entry = ctypes.CDLL(None).labs
        nothing.entry.argtypes, nothing.entry.restype = [ctypes.c_void_p] * 4, ctypes.c_int
        return EmptyStage(partial(nothing.invoke, None, None, None, None))
    if way == "python":
        return EmptyStage(partial(lambda *tensors, **attributes: None, None, None))
    if way == "torch":
        import torch

        return EmptyStage(partial(torch.empty_like, torch.empty(EMPTY_ELEMENTS)))
    if way == "kernel":
        from loop.calls.cuda.stage import EmptyKernels

        return EmptyKernels()
    return EmptyStage()


def main(arguments: Sequence[str]) -> None:
    """Answer requests until the session closes standard input."""
    sys.dont_write_bytecode = True  # Write no .pyc files next to the variant's modules.
    own = {int(core) for core in arguments[1].split(",") if core}
    arena, *bell = (int(handle) for handle in arguments[2:])
    for handle in (arena, *bell):
        os.set_inheritable(handle, False)
    program = WorkerProgram(arena, (bell[0], bell[1]) if bell else None)

    def respond(answers: Answers, request: Request[Any]) -> object:
        """Answer a request. End this process if a kernel lost the device."""
        # Several workers load at once: bind to the cores only at the first request after loading.
        if own and not isinstance(request, messages.Load):
            for task in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):  # The thread has ended meanwhile.
                    if not os.sched_getaffinity(int(task)) <= own:
                        os.sched_setaffinity(int(task), own)
            own.clear()
        reply = answer_request(answers, request)
        # Under a tool no further request comes, and the tool reports the error.
        if (
            isinstance(reply, RefusalReply)
            and not isinstance(request, messages.Observe)
            and (why := invocation.explain_lost_device())
        ):
            invocation.end_process(reply.message, why)
        return reply

    answers: Answers = {
        messages.Load: program.load,
        messages.Compute: program.compute,
        messages.StageCall: program.stage,
        messages.ObeyOrders: program.obey,
        messages.Unstage: program.unstage,
        messages.Observe: lambda request: checking.observe_call(program.find_candidate().loaded, request),
        messages.ListLaunches: program.list_launches,
    }
    serve(answers, int(arguments[0]), respond)


if __name__ == "__main__":
    main(sys.argv[1:])
