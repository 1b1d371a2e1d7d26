"""What all kinds of variants share in making calls.

A loaded variant makes a call ready in two ways:

- `prepare` for a check: each tensor in a `memory.Memory` of its own, between guard zones.
- `stage` for timing: inputs and outputs in memory shared with the judge (`arena`).

`library`, `external` and `torch_call` implement both for their kind of variant, `cuda` for
libraries on a GPU.
"""

import contextlib
import ctypes
import mmap
import os
import random
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn, Protocol

from loop.calls.call import Call, TensorFile, elements_spanned, gather, scatter
from loop.calls.memory import VALUES, Guard, Memory, draw_guard, guard_zone_bytes

STRAY_PREFIX = "stray access: "
"""Prefix of a line in stderr about an out-of-bounds access."""
LOST_PREFIX = "the device was lost: "
"""Prefix of a line in stderr about a lost device."""
LOST_EXIT = 70
"""Exit status after a lost device (EX_SOFTWARE)."""
SIGNALS = (signal.SIGSEGV, signal.SIGBUS)
SA_SIGINFO, SI_ADDR = 4, 16
"""A flag of `sigaction(2)`, and the offset of the fault address in a 64-bit `siginfo_t`."""
X86_64_ERROR, WRITES = 192, 2
"""Offset of the page fault's error code in an x86-64 `ucontext_t`, and its bit for a write."""
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class FaultWatch:
    """Context that handles memory faults: writes to stderr which tensor's bounds were exceeded. It
    leaves any other fault handler in place."""

    def __init__(self, tensors: Callable[[], Sequence[tuple[str, Memory]]]) -> None:
        """`tensors`: returns the tensors in our memory with their names."""
        self.tensors = tensors
        self.fallback_message = ""
        """Message for a fault that is near no tensor; empty for none."""
        self._handler = _Handler(self._fault)
        self._libc: Any = ctypes.CDLL(None)
        self._set: list[int] = []

    def __enter__(self) -> "FaultWatch":
        for number in SIGNALS if sys.platform == "linux" else ():
            old = _Action()
            self._libc.sigaction(number, None, ctypes.byref(old))
            if not old.handler:
                action = _Action(ctypes.cast(self._handler, ctypes.c_void_p), flags=SA_SIGINFO)
                self._libc.sigaction(number, ctypes.byref(action), None)
                self._set.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        while self._set:
            self._libc.sigaction(self._set.pop(), ctypes.byref(_Action()), None)

    def _fault(self, number: int, info: int, context: int) -> None:
        """Report the tensor and remove the handler, so that the repeated access ends the
        process."""
        address, verb = ctypes.c_uint64.from_address(info + SI_ADDR).value, "reads or writes"
        if os.uname().machine == "x86_64":
            error = ctypes.c_uint64.from_address(context + X86_64_ERROR).value
            verb = "writes" if error & WRITES else "reads"
        sentence = self.fallback_message
        for name, memory in self.tensors():
            if memory.address_range[0] <= address < memory.address_range[1]:
                after, before = address - memory.address - memory.nbytes, memory.address - address
                where = f"{after} bytes after its end" if after >= 0 else f"{before} bytes before its beginning"
                sentence = f"{verb} outside {name}: {where}"
                break
        if sentence:
            os.write(2, f"\n{STRAY_PREFIX}{sentence}\n".encode())
        self.__exit__()


def explain_lost_device() -> str:
    """Why this process cannot use the device any more; empty if it can, or never used it. Waits for
    running work on the device."""
    cuda, torch = sys.modules.get("loop.calls.cuda.stage"), sys.modules.get("torch")
    if cuda is not None and cuda.the_device.cache_info().currsize:
        from loop.calls.cuda.driver import FAULTS

        driver = cuda.the_device().driver
        code = driver.attempt("cuCtxSynchronize")
        if code in FAULTS:
            return str(driver.explain(code))
    if torch is not None and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error).strip().splitlines()[0]
    return ""


def end_process(refused: str, why: str) -> NoReturn:
    """End this process at once, with the reason in stderr. The session sees a crash."""
    sys.stderr.write(f"\n{LOST_PREFIX}{refused if why in refused else f'{refused}; {why}'}\n")
    sys.stderr.flush()
    os._exit(LOST_EXIT)


MOST_THREADS = 8
"""Maximum number of a worker's threads to watch: each costs some microseconds."""


class Delays(NamedTuple):
    """Accumulated scheduler delays in seconds."""

    judge_wait_s: float
    """Time the judge's thread waited for a core."""
    worker_wait_s: float
    """Time the worker's threads waited for a core, in total."""
    worker_run_s: float
    """Time the worker's first thread ran."""

    def added_wait_s(self, before: "Delays", *, is_core_shared: bool) -> float:
        """Seconds of waiting since `before` that lengthened the timed sample. `shared`: judge and
        worker share a core. Then the judge's wait while the worker runs is no delay."""
        judge, worker, ran = (now - then for now, then in zip(self, before, strict=True))
        return worker + max(0.0, judge - ran if is_core_shared else judge)


class DelayReader:
    """Reads the scheduler delays of a worker's threads and of the judge's own thread."""

    def __init__(self, pid: int) -> None:
        self._files: list[int] = []
        others: list[str] = []
        with contextlib.suppress(OSError):  # The process has ended, or the system has no schedstat.
            others = [task for task in os.listdir(f"/proc/{pid}/task") if task != str(pid)]
        tasks = [f"{pid}/task/{task}" for task in (str(pid), *others)][:MOST_THREADS]
        for task in (f"self/task/{threading.get_native_id()}", *tasks):
            with contextlib.suppress(OSError):
                self._files.append(os.open(f"/proc/{task}/schedstat", os.O_RDONLY))

    def read(self) -> Delays | None:
        """Delays so far; None if the system does not report them."""
        try:
            numbers = [tuple(map(int, os.pread(file, 64, 0).split()[:2])) for file in self._files]
            (_, own), (ran, first), *others = numbers
        except (OSError, ValueError):
            return None
        return Delays(own / 1e9, (first + sum(waited for _, waited in others)) / 1e9, ran / 1e9)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())


Run = Callable[[], Any]
Windows = Sequence[Sequence[int]]
"""For each call, the first element of the window in each input."""


class Prepared(ABC):
    """A call whose tensors are in memory (for a program: in files), ready to be repeated."""

    is_program = False
    """Whether the variant is a program, which has files in place of windows."""
    can_prefill_outputs = False
    """Whether `poison` can set the output's contents before a call."""
    tensor_names: tuple[str, ...] = ()
    """Names of the tensors in our memory between guard zones, such as `its input x`."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.inputs: list[Memory] = []
        self.outputs: list[Memory] = []
        """Memory of the outputs that are passed to the variant."""
        self.strides: list[tuple[int, ...]] = []
        """Strides of each input in elements."""
        self.values: list[bytes] = []
        """The judge's bytes of each input, C order."""

    def allocate_tensors(self, layout: str, outputs: Sequence[TensorFile]) -> None:
        """Allocate and fill memory for the inputs, and for these outputs."""
        call, self.can_prefill_outputs = self.call, bool(outputs)
        self.strides = [tensor.strides(layout) for tensor in call.inputs]
        for tensor, strides in zip(call.inputs, self.strides, strict=True):
            shift = tensor.itemsize if layout == "misaligned" else 0
            self.inputs.append(self._allocate_for(tensor, strides, shift))
        self.outputs = [self._allocate_for(part, part.strides("contiguous"), 0) for part in outputs]
        written = [f"its output {part.name}" if call.parts else "its output" for part in outputs]
        self.tensor_names = (*(f"its input {tensor.name}" for tensor in call.inputs), *written)
        self.refill(call)

    def _allocate_for(self, tensor: TensorFile, strides: tuple[int, ...], shift: int) -> Memory:
        """Memory for one tensor, sized for its strides."""
        size = elements_spanned(tensor.shape, strides) * tensor.itemsize
        return self.allocate(size, shift, tensor.dtype, guard_zone_bytes(tensor.shape, strides, tensor.dtype))

    def allocate(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Allocate memory for one tensor. `size`: bytes of the tensor. `shift`: bytes of
        misalignment. `zone`: bytes of each guard zone."""
        raise NotImplementedError

    @abstractmethod
    def bind(self) -> Run:
        """Return a function that makes the call."""

    @abstractmethod
    def read_output(self) -> bytes:
        """Bytes of the last output, C order. Raises Refused if the result is invalid."""

    def named_memories(self) -> Sequence[tuple[str, Memory]]:
        """Name and memory of each tensor in our memory."""
        return list(zip(self.tensor_names, [*self.inputs, *self.outputs], strict=False))

    def poison_outputs(self, guard: Guard | None = None) -> None:
        """Fill the outputs with NaN, so that unwritten elements show; or with `guard`."""
        for memory in self.outputs:
            memory.poison(guard)

    def allocation_strays(self) -> list[str]:
        """Make one more call; describe its writes outside of the variant's own allocations."""
        return []

    def refill(self, call: Call) -> None:
        """Load the values of another call of the same form, at the same addresses."""
        self.call, self.values = call, [tensor.read_window() for tensor in call.inputs]
        for memory, data in zip(self.inputs, self.values, strict=True):
            memory.learn_exponents(data)
        self.write_guards([draw_guard(VALUES) for _ in self.tensor_names])

    def rotate_randomly(self, draw: random.Random) -> None:
        """Rotate the inputs to unknown values, for a call whose output is ignored."""
        for memory in self.inputs:
            if memory.nbytes:
                memory.rotate(draw.randrange(memory.nbytes // memory.itemsize) * memory.itemsize)

    def write_guards(self, guards: Sequence[Guard]) -> None:
        """Write new guard bytes around each tensor, and the known values into the inputs."""
        for (_, memory), guard in zip(self.named_memories(), guards, strict=True):
            memory.write_guard(guard)
        self._write_inputs(guards)

    def _write_inputs(self, guards: Sequence[Guard]) -> None:
        """Write the known values into the inputs; guard bytes between strided elements."""
        for n, (memory, guard) in enumerate(zip(self.inputs, guards, strict=False)):
            tensor, strides, data = self.call.inputs[n], self.strides[n], self.values[n]
            if strides != tensor.strides("contiguous"):
                between = memory.guard_bytes(guard, memory.nbytes)
                data = scatter(data, tensor.shape, strides, tensor.itemsize, between)
            memory.fill(data)

    def read_input(self, n: int) -> bytes:
        """Current bytes of input `n`, C order."""
        tensor, strides, data = self.call.inputs[n], self.strides[n], self.inputs[n].read_tensor()
        return (
            data
            if strides == tensor.strides("contiguous")
            else gather(data, tensor.shape, strides, tensor.itemsize)
        )

    def changed_inputs(self) -> list[str]:
        """Names of inputs whose memory changed, except those that the call updates in place."""
        inputs = enumerate(zip(self.call.inputs, self.inputs, strict=False))
        updated = self.call.updated_inputs
        return [tensor.name for n, (tensor, memory) in inputs if n not in updated and memory.has_changed]

    def stray_writes(self) -> list[str]:
        """Writes into guard zones, a sentence each."""
        return [
            f"writes outside {name}: {stray}"
            for name, memory in self.named_memories()
            if (stray := memory.stray_write)
        ]

    def protect_zones(self, *, at_end: bool) -> bool:
        """Apply `Memory.enclose` to every tensor; restore the inputs. False if impossible."""
        tensors = self.named_memories()
        if not tensors or not all(memory.protect_zones(at_end=at_end) for _, memory in tensors):
            return False
        self._write_inputs([draw_guard(VALUES) for _ in self.inputs])
        return True

    def unprotect_zones(self) -> None:
        """Make the guard zones accessible again; call `surround` before the next call."""
        for _, memory in self.named_memories():
            memory.unprotect_zones()


class Stage(ABC):
    """A call in shared memory, ready to be timed on windows of its inputs."""

    is_captured = False
    """Whether a CUDA graph holds the calls that were prepared last."""

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Prepare these calls. This is not timed."""

    @abstractmethod
    def run(self, count: int) -> int:
        """Make the calls; return nanoseconds by the device's or program's own clock, or 0 if it has
        none. `count`: number of calls; on a GPU, number of replays of all prepared calls."""

    def finish_results(self) -> None:
        """Force the device to finish each result, including work that the variant deferred."""

    def copy_results(self) -> None:
        """Copy the result of each call into its slot."""

    def close(self) -> None:
        """Free the memory."""


class EmptyStage(Stage):
    """Calls that do nothing, to measure the cost of an order and of a call."""

    def __init__(self, run: Run | None = None) -> None:
        self.empty_call = run

    def run(self, count: int) -> int:
        if self.empty_call is not None:
            for run in [self.empty_call] * count:
                run()
        return 0


class Places:
    """Where the tensors of a call lie in shared memory."""

    WARMED_BYTES = 32 << 20
    """Up to this size the worker reads the tensors into its caches before timing, because the judge
    wrote them on another core. Larger ones do not fit anyway."""

    def __init__(
        self,
        memory: mmap.mmap,
        call: Call,
        input_offsets: Sequence[int],
        output_offsets: Sequence[int],
        rotations: Sequence[int],
    ) -> None:
        """`inputs`, `slots`: byte offsets of inputs and outputs. `turns`: rotation of each input in
        bytes."""
        self.memory, self.input_offsets, self.output_offsets, self.rotations = (
            memory,
            input_offsets,
            output_offsets,
            rotations,
        )
        self.base_address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.pool_bytes = [tensor.pool_nbytes for tensor in call.inputs]
        self.output_bytes = call.output.nbytes

    def unrotated_input(self, n: int) -> bytes:
        """Bytes of input `n` before the rotation."""
        begin, size, turn = self.input_offsets[n], self.pool_bytes[n], self.rotations[n]
        return self.memory[begin + size - turn : begin + size] + self.memory[begin : begin + size - turn]

    def warm_caches(self, slots: int) -> None:
        """Bring the inputs and the first `slots` slots into this core's caches, as if just
        written."""
        if sum(self.pool_bytes) + slots * self.output_bytes > self.WARMED_BYTES:
            return
        scratch = ctypes.create_string_buffer(max([*self.pool_bytes, self.output_bytes, 1]))
        for offset, size in zip(self.input_offsets, self.pool_bytes, strict=True):
            ctypes.memmove(scratch, self.base_address + offset, size)
        for offset in self.output_offsets[:slots]:
            ctypes.memmove(scratch, self.base_address + offset, self.output_bytes)
            ctypes.memmove(self.base_address + offset, scratch, self.output_bytes)


class HostStage(Stage):
    """Calls on the host, one after the other."""

    CALIBRATIONS = 9

    def __init__(self, places: Places, call: Call, slowdown: float) -> None:
        """`slow`: slow each call down by this share of its time (positive control)."""
        self.places, self.call, self.slowdown, self.extra_ns = places, call, slowdown, 0
        self.runs: list[Run] = []
        self.windows: Windows = ()

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Set the calls on these windows; for a positive control, measure the delay of each
        call."""
        self.windows = windows
        self.bind_windows(windows)
        if self.slowdown and not self.extra_ns:
            times = []
            for _ in range(self.CALIBRATIONS):
                begin = perf_counter_ns()
                self.runs[0]()
                times.append(perf_counter_ns() - begin)
            self.extra_ns = int(self.slowdown * sorted(times)[self.CALIBRATIONS // 2])
        self.places.warm_caches(len(windows))

    def run(self, count: int) -> int:
        """Make `count` calls, with the delay of a positive control after each; 0: no own clock."""
        if not self.extra_ns:
            self.make_calls(self.runs[:count])
            return 0
        for run in self.runs[:count]:
            self.make_calls([run])
            end = perf_counter_ns() + self.extra_ns
            while perf_counter_ns() < end:
                pass
        return 0

    @abstractmethod
    def bind_windows(self, windows: Windows) -> None:
        """Set `runs` to calls on these windows."""

    def make_calls(self, runs: Sequence[Run]) -> None:
        """Run some calls."""
        for run in runs:
            run()


class Loaded(Protocol):
    """A loaded variant, which can prepare calls."""

    @property
    def device(self) -> str:
        """Where it computes: `cpu` or `cuda`."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory for a check; `layout` as in
        `loop.calls.call.strides_of`."""

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Lay a call out in shared memory. `slow`: slow calls down by this share of their time."""
