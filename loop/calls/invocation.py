"""What all kinds of variants share in making calls.

A loaded variant makes a call ready in two ways: `prepare` for a check, with each tensor in a
`memory.Memory` of its own, between guard zones; `stage` for timing, with inputs and outputs in
memory shared with the judge (`arena`).
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
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple, Protocol

from loop.calls.call import Call, Refused, TensorFiles, elements_spanned, gather, scatter
from loop.calls.memory import OWN_VALUES, Allocate, Guard, Memory, draw_guard, guard_zone_bytes
from loop.model.dtypes import is_floating

STRAY_PREFIX = "stray access: "  # Prefix of a line in stderr about an out-of-bounds access.
LOST_PREFIX = "the device was lost: "  # Prefix of a line in stderr about a lost device.
LOST_EXIT = 70  # Exit status after a lost device (EX_SOFTWARE).
MOST_THREADS = 8  # Maximum number of a worker's threads to watch: each costs some microseconds.
SA_SIGINFO, SA_RESETHAND, SI_ADDR = 4, 1 << 31, 16
"""Two flags of `sigaction(2)`, and the offset of the fault address in a 64-bit `siginfo_t`."""
X86_64_ERROR, WRITES = 192, 2
"""Offset of the page fault's error code in an x86-64 `ucontext_t`, and its bit for a write."""
LATE_S = 20e-3
"""Work that runs longer than this after the stream ended ran elsewhere. Shorter work shows in the
output, which is read first; the host's clock cannot tell it from an interruption."""
Run = Callable[[], Any]
Windows = Sequence[Sequence[int]]  # For each call, the first element of the window in each input.
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
CONTROL_BYTES = 1 << 16  # Words of the judge's orders, where shared memory begins (see `arena`).
WARMED_BYTES = 32 << 20  # Larger tensors are not brought into caches before timing.
GAP_BYTES = 4096  # Least gap between tensors: a small out-of-bounds write damages no other tensor.
ALIGNMENT = 256


class _Action(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@contextlib.contextmanager
def name_faults(memories: Callable[[], Sequence[Memory]]) -> Iterator[None]:
    """Context that writes to stderr which tensor a memory fault is near, before the fault ends the
    process. A sanitizer's handler stays. `memories`: returns the memory of each tensor."""

    def handle_fault(number: int, info: int, context: int) -> None:
        """`info`, `context`: C's `siginfo_t`, `ucontext_t`. On return the access happens again."""
        address, verb = ctypes.c_uint64.from_address(info + SI_ADDR).value, "reads or writes"
        if os.uname().machine == "x86_64":
            error_code = ctypes.c_uint64.from_address(context + X86_64_ERROR).value
            verb = "writes" if error_code & WRITES else "reads"
        for memory in memories():
            first_address, end_address = memory.address_range
            if first_address <= address < end_address:
                bytes_after_end = address - memory.address - memory.nbytes
                place = f"{bytes_after_end} bytes after its end"
                if bytes_after_end < 0:
                    place = f"{memory.address - address} bytes before its beginning"
                os.write(2, f"\n{STRAY_PREFIX}{verb} outside {memory.name}: {place}\n".encode())

    libc: Any = ctypes.CDLL(None)
    handler, earlier, default = _Handler(handle_fault), _Action(), _Action()
    libc.sigaction(signal.SIGSEGV, None, ctypes.byref(earlier))
    if earlier.handler:
        yield
        return
    action = _Action(ctypes.cast(handler, ctypes.c_void_p), flags=SA_SIGINFO | SA_RESETHAND)
    libc.sigaction(signal.SIGSEGV, ctypes.byref(action), None)
    try:
        yield
    finally:
        libc.sigaction(signal.SIGSEGV, ctypes.byref(default), None)


def explain_lost_device() -> str:
    """Why this process cannot use the GPU any more, as after a crashed kernel; empty if it can."""
    # If neither module is loaded, this process has not used the GPU.
    stage, torch = sys.modules.get("loop.calls.cuda.stage"), sys.modules.get("torch")
    if stage is not None and stage.the_device.cache_info().currsize:
        from loop.calls.cuda.driver import FAULTS

        driver = stage.the_device().driver
        code = driver.attempt("cuCtxSynchronize")
        return str(driver.explain(code)) if code in FAULTS else ""
    if torch is not None and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error).strip().splitlines()[0]
    return ""


class Delays(NamedTuple):
    """What the scheduler did during a sample, in seconds."""

    judge_wait_s: float  # Time the judge's thread waited for a core.
    threads: tuple[tuple[float, float], ...]  # Seconds each thread of the worker ran, and waited.

    def added_wait_s(self, *, is_core_shared: bool) -> float:
        """Seconds of waiting that lengthened the timed sample. `is_core_shared`: judge and worker
        share a core. Then the judge's wait while the worker runs is no delay."""
        longest_run_s = max(run_s for run_s, _ in self.threads) if is_core_shared else 0.0
        judge_delay_s = max(0.0, self.judge_wait_s - longest_run_s)
        return sum(wait_s for _, wait_s in self.threads) + judge_delay_s

    def busy_threads(self, least_s: float) -> int:
        """Number of the worker's threads that ran, or waited to run, for more than `least_s`."""
        return sum(run_s + wait_s > least_s for run_s, wait_s in self.threads)


class DelayReader:
    """Reads the scheduler delays of a worker's threads and of the judge's own thread."""

    def __init__(self, worker_pid: int) -> None:
        self._files: list[int] = []  # Descriptors of each thread's `schedstat`, the judge's first.
        tasks, threads = f"/proc/{worker_pid}/task", [str(worker_pid)]
        with contextlib.suppress(OSError):  # The process has ended, or the system has no schedstat.
            threads += [name for name in os.listdir(tasks) if name != str(worker_pid)]
        own_folder = f"/proc/self/task/{threading.get_native_id()}"
        for folder in (own_folder, *(f"{tasks}/{thread}" for thread in threads[:MOST_THREADS])):
            with contextlib.suppress(OSError):
                self._files.append(os.open(f"{folder}/schedstat", os.O_RDONLY))

    def read(self) -> list[tuple[float, ...]]:
        """Seconds that each thread ran and waited so far; empty if the system reports none."""
        try:
            lines = [os.pread(file, 64, 0).split()[:2] for file in self._files]
        except OSError:
            return []
        return [tuple(int(word) / 1e9 for word in words) for words in lines]

    def delays_since(self, start: Sequence[tuple[float, ...]]) -> Delays | None:
        """The delays since `start`, a result of `read`; None if the system does not report them."""
        threads: list[tuple[float, float]] = []
        try:
            for (run, wait), (end_run, end_wait) in zip(start, self.read(), strict=True):
                threads.append((end_run - run, end_wait - wait))
        except ValueError:  # It is not read at one end, or not in two numbers.
            return None
        return Delays(threads[0][1], tuple(threads[1:])) if len(threads) > 1 else None

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


class Prepared(ABC):
    """A call whose tensors are in memory (for a program: in files), ready to be repeated."""

    is_program = False  # Whether the variant is a program, which has files in place of memory.

    def __init__(self, call: Call) -> None:
        self.call = call
        self.inputs: list[Memory] = []
        self.outputs: list[Memory] = []
        """Memory of the outputs that are passed to the variant; empty if it allocates them."""
        self.layout = "contiguous"  # Layout of the inputs, as in `call.strides_of`.
        self.input_bytes: list[bytes] = []  # The judge's bytes of each input, C order.
        self.earlier_bytes: list[bytes] = []
        """Those of the call before, which had equal shapes; empty for the first one."""
        self.wait_for_all: Callable[[], object] = lambda: None  # Waits for all streams of a GPU.
        self._intact_inputs = set[int]()
        """Numbers of inputs that hold their known values: a check found them unchanged."""

    def allocate_tensors(self, allocate: Allocate, layout: str, outputs: TensorFiles) -> None:
        """Allocate and fill memory for the inputs, and for these outputs: those that are passed."""
        self.layout, input_count = layout, len(self.call.inputs)
        for number, tensor in enumerate((*self.call.inputs, *outputs)):
            is_input = number < input_count
            strides = tensor.strides(layout if is_input else "contiguous")
            nbytes = elements_spanned(tensor.shape, strides) * tensor.itemsize
            shift_bytes = tensor.itemsize if is_input and layout == "misaligned" else 0
            zone_bytes = guard_zone_bytes(tensor.shape, strides, tensor.dtype)
            memory = allocate(nbytes, shift_bytes, tensor.dtype, zone_bytes)
            memory.name = f"its input {tensor.name}" if is_input else "its output"
            if not is_input and self.call.several_outputs:
                memory.name += f" {tensor.name}"
            (self.inputs if is_input else self.outputs).append(memory)
        self.refill(self.call)

    @abstractmethod
    def bind(self) -> Run:
        """Return a function that makes the call. Valid until the tensors move (`protect_zones`)."""

    def read_separate_outputs(self) -> list[bytes]:
        """Bytes of each last output but updated inputs, C order. An override refuses bad ones."""
        return [memory.read_tensor() for memory in self.outputs]

    def read_output(self) -> bytes:
        """Bytes of the last output. Several form a block, each at its `offset`, zeros in between.
        Raises Refused if one is invalid, or if other, untimed streams of a GPU still work."""
        separate = iter(self.read_separate_outputs())
        block = bytearray() if self.call.several_outputs else next(separate)
        for part in self.call.several_outputs:
            is_separate = part.updated_input < 0
            data = next(separate) if is_separate else self.read_input(part.updated_input)
            block += bytes(part.offset - len(block)) + data
        begin_s = perf_counter()
        self.wait_for_all()
        late_s = perf_counter() - begin_s
        if late_s > LATE_S:
            duration = f"{late_s * 1e3:.0f} ms"
            message = f"work went on for {duration} on another stream after its own was done"
            raise Refused(message, "left work")
        return bytes(block)

    @property
    def memories(self) -> list[Memory]:
        """Memory of each tensor between guard zones, inputs first; empty for a program."""
        return [*self.inputs, *self.outputs]

    def poison_outputs(self, guard: Guard | None = None) -> None:
        """Fill the outputs with NaN, so that unwritten elements show; or with a guard's bytes."""
        for memory in self.outputs:
            memory.poison(guard)

    def describe_allocation_strays(self) -> list[str]:
        """Make a call; a sentence for each write outside of what a Python variant allocated."""
        return []

    def refill(self, call: Call) -> None:
        """Load another call of equal shapes and types at the same addresses; new guard bytes."""
        self.earlier_bytes = self.input_bytes if call.structure else []
        self.call, self.input_bytes = call, [tensor.read_window() for tensor in call.inputs]
        self._intact_inputs.clear()
        for memory, data in zip(self.inputs, self.input_bytes, strict=True):
            memory.learn_exponents(data)
        self.write_inputs_and_guards([draw_guard(OWN_VALUES) for _ in self.memories])

    def load_other_values(self, random_source: random.Random) -> None:
        """Load unknown values into contiguous inputs, for a call whose output is ignored: its own,
        rotated. A generator's offsets have to stay in order: its inputs become those of the call
        before. For the first call only its floating-point inputs are rotated."""
        self._intact_inputs.clear()
        for number, memory in enumerate(self.inputs):  # A program has no memories.
            data = (self.earlier_bytes or self.input_bytes)[number]
            if not self.earlier_bytes and (is_floating(memory.dtype) or not self.call.structure):
                begin = random_source.randrange(len(data) // memory.itemsize or 1) * memory.itemsize
                data = data[begin:] + data[:begin]
            memory.write(0, data)

    def write_inputs_and_guards(self, guards: Sequence[Guard]) -> None:
        """Write the inputs' known values, and around each tensor (inputs first) its guard's bytes.
        On a GPU, wait until that is done: the variant may use another stream."""
        for memory, guard in zip(self.memories, guards, strict=True):
            memory.write_guard(guard)
        self._write_inputs(guards)
        self.wait_for_all()

    def _write_inputs(self, guards: Sequence[Guard]) -> None:
        """Write the known values into the inputs, and guard bytes between strided elements."""
        for number, (memory, guard) in enumerate(zip(self.inputs, guards, strict=False)):
            tensor, data = self.call.inputs[number], self.input_bytes[number]
            strides = tensor.strides(self.layout)
            if strides != tensor.strides("contiguous"):
                background = memory.guard_contents(guard, memory.nbytes)
                memory.fill(scatter(data, tensor.shape, strides, tensor.itemsize, background))
            elif number not in self._intact_inputs:
                memory.fill(data)

    def read_input(self, number: int) -> bytes:
        """Current bytes of an input, C order; a call may have changed them."""
        tensor, data = self.call.inputs[number], self.inputs[number].read_tensor()
        strides = tensor.strides(self.layout)
        is_contiguous = strides == tensor.strides("contiguous")
        return data if is_contiguous else gather(data, tensor.shape, strides, tensor.itemsize)

    def changed_inputs(self) -> list[str]:
        """Names of changed inputs that the call may not update. Others are not written again."""
        read_only = [n for n in range(len(self.inputs)) if n not in self.call.updated_inputs]
        self._intact_inputs = {n for n in read_only if not self.inputs[n].has_changed}
        return [self.call.inputs[n].name for n in read_only if n not in self._intact_inputs]

    def stray_writes(self) -> list[str]:
        """Writes into guard zones, a sentence each; empty for none."""
        strays = [(memory.name, memory.stray_write_text) for memory in self.memories]
        return [f"writes outside {name}: {stray}" for name, stray in strays if stray]

    def protect_zones(self, *, at_end: bool) -> bool:
        """Make every access to a guard zone fault, with each tensor `at_end` or at the beginning of
        its pages, and write the inputs again. Returns False if the memory cannot do it."""
        self._intact_inputs.clear()  # They are moved.
        are_protected = [memory.protect_zones(at_end=at_end) for memory in self.memories]
        if not are_protected or not all(are_protected):
            return False
        self._write_inputs([draw_guard(OWN_VALUES) for _ in self.inputs])
        return True

    def unprotect_zones(self) -> None:
        """Make the zones accessible again; `write_inputs_and_guards` has to come before a call."""
        for memory in self.memories:
            memory.unprotect_zones()


class Stage:
    """Calls that are ready to be timed."""

    runs: Sequence[Run] = ()  # Functions that make one call each.
    graph_nodes = 0  # Kernels, copies and fills in the CUDA graph of the prepared calls; 0: none.

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Prepare a call for each window, untimed. `rotations`: bytes to rotate inputs on a GPU."""

    def run(self, count: int) -> int:
        """Make the calls; return nanoseconds by the device's or program's own clock, or 0 if it has
        none. `count`: number of calls; on a GPU, number of replays of all prepared calls."""
        for run in self.runs[:count]:
            run()
        return 0

    def finish_results(self) -> None:
        """On a GPU, timed apart from the calls: do deferred work. Only Python functions need it."""

    def copy_results(self) -> None:
        """Copy the result of each call to where the judge reads it."""


def place_tensors(call: Call, calls: int) -> tuple[list[int], list[int], int]:
    """Where shared memory holds tensors: first byte of each input and call's output; all bytes."""
    offsets, end = [], CONTROL_BYTES
    for size in [*(tensor.pool_nbytes for tensor in call.inputs), *[call.output.nbytes] * calls]:
        offsets.append(-(-(end + GAP_BYTES) // ALIGNMENT) * ALIGNMENT)
        end = offsets[-1] + size
    return offsets[: len(call.inputs)], offsets[len(call.inputs) :], end + GAP_BYTES


class Places:
    """The tensors of a call in shared memory."""

    stream: int | None = None  # CUDA stream for the calls; None: they run on the host.

    def __init__(self, memory: mmap.mmap, call: Call, calls: int) -> None:
        """`calls`: number of calls whose outputs it has room for."""
        self.memory, self.call = memory, call
        self.input_offsets, self.output_offsets, _ = place_tensors(call, calls)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.input_addresses = [base + begin for begin in self.input_offsets]
        """Of each input's first window, as calls see it."""
        self.output_addresses = [base + begin for begin in self.output_offsets]
        """One for each call: of all its outputs together, as calls see it."""

    def renew(self, call_count: int, rotations: Sequence[int]) -> None:
        """Make the tensors ready for so many timed calls. `rotations`: bytes to rotate inputs, on a
        GPU. On the host, fill this core's caches if all fits: the judge wrote on another core."""
        input_bytes = [part.pool_nbytes for part in self.call.inputs]
        output_bytes = self.call.output.nbytes
        if sum(input_bytes) + call_count * output_bytes > WARMED_BYTES:
            return
        scratch = ctypes.create_string_buffer(max([*input_bytes, output_bytes, 1]))
        for address, size in zip(self.input_addresses, input_bytes, strict=True):
            ctypes.memmove(scratch, address, size)
        for address in self.output_addresses[:call_count]:
            ctypes.memmove(scratch, address, output_bytes)
            ctypes.memmove(address, scratch, output_bytes)

    def return_outputs(self, windows: Windows) -> None:
        """Copy outputs to where the judge reads them: on the host, inputs changed in place."""
        for window, output_address in zip(windows, self.output_addresses, strict=False):
            for part in self.call.outputs:
                if part.updated_input >= 0:
                    begin = window[part.updated_input] * part.itemsize
                    source = self.input_addresses[part.updated_input] + begin
                    ctypes.memmove(output_address + part.offset, source, part.nbytes)


class TimedCalls(ABC):
    """Calls of one variant on windows of its inputs."""

    has_results = False  # Whether what they return has to be kept.

    def __init__(self, places: Places) -> None:
        self.places, self.call = places, places.call

    @abstractmethod
    def bind(self, windows: Windows) -> Sequence[Run]:
        """For each window, the function that makes the call on it."""

    def capture(self, runs: Sequence[Run]) -> tuple[Any, list[Any]]:
        """On a GPU: capture one pass of `runs`. Returns a graph, which has `replay`, and what the
        calls returned, which each replay writes anew; (None, []) if they cannot be captured."""
        raise NotImplementedError

    def overwrite(self, results: Sequence[Any]) -> None:
        """Overwrite what earlier calls returned, so that a reused result shows."""

    def finish(self, results: list[Any]) -> Any:
        """On a GPU, after the timed calls: finish what they returned, for `copy_results`."""
        return results

    def copy_results(self, windows: Windows, results: Any) -> None:
        """Copy outputs to where the judge reads them. `results`: what the calls returned."""
        self.places.return_outputs(windows)


class HostStage(Stage):
    """Calls on the host, one after the other."""

    def __init__(self, calls: TimedCalls, slowdown: float) -> None:
        """`slowdown`: delay after the calls, as a share of their time (positive control)."""
        self.calls, self.slowdown = calls, slowdown
        self.results: list[Any] = []  # What each call returned: the judge may read any of them.

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        self.windows, self.results = windows, []
        self.runs = self.calls.bind(windows)
        self.calls.places.renew(len(windows), rotations)

    def run(self, count: int) -> int:
        """Make `count` calls, then the delay of a positive control. Returns 0: the judge times."""
        begin_ns = perf_counter_ns() if self.slowdown else 0
        if self.calls.has_results:
            self.results += [run() for run in self.runs[:count]]
        else:
            super().run(count)
        if self.slowdown:
            now_ns = perf_counter_ns()
            end_ns = now_ns + int(self.slowdown * (now_ns - begin_ns))
            while perf_counter_ns() < end_ns:
                pass
        return 0

    def copy_results(self) -> None:
        self.calls.copy_results(self.windows, self.results)


class Loaded(Protocol):
    """A loaded variant, which can prepare calls."""

    @property
    def device(self) -> str:
        """Where it computes: `cpu` or `cuda`."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring inputs into memory for a check; `layout` as in `call.strides_of`."""

    def stage(self, places: Places, slowdown: float) -> Stage:
        """Prepare timed calls in shared memory. `slowdown`: share to slow them by; 0: none."""
