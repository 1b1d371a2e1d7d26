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
from loop.calls.memory import VALUES, Guard, Memory, draw_guard, zone_bytes

STRAY = "stray access: "
"""Prefix of a line in stderr about an out-of-bounds access."""
LOST = "the device was lost: "
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
        self.guess = ""
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
        sentence = self.guess
        for name, memory in self.tensors():
            if memory.reach[0] <= address < memory.reach[1]:
                after, before = address - memory.address - memory.size, memory.address - address
                where = f"{after} bytes after its end" if after >= 0 else f"{before} bytes before its beginning"
                sentence = f"{verb} outside {name}: {where}"
                break
        if sentence:
            os.write(2, f"\n{STRAY}{sentence}\n".encode())
        self.__exit__()


def why_lost() -> str:
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
    sys.stderr.write(f"\n{LOST}{refused if why in refused else f'{refused}; {why}'}\n")
    sys.stderr.flush()
    os._exit(LOST_EXIT)


MOST_THREADS = 8
"""Maximum number of a worker's threads to watch: each costs some microseconds."""


class Delays(NamedTuple):
    """Accumulated scheduler delays in seconds."""

    judge: float
    """Time the judge's thread waited for a core."""
    worker: float
    """Time the worker's threads waited for a core, in total."""
    ran: float
    """Time the worker's first thread ran."""

    def since(self, before: "Delays", *, shared: bool) -> float:
        """Seconds of waiting since `before` that lengthened the timed sample. `shared`: judge and
        worker share a core. Then the judge's wait while the worker runs is no delay."""
        judge, worker, ran = (now - then for now, then in zip(self, before, strict=True))
        return worker + max(0.0, judge - ran if shared else judge)


class Waits:
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

    timed_apart = False
    """Whether the variant is a program, which has files in place of windows."""
    prefills = False
    """Whether `poison` can set the output's contents before a call."""
    names: tuple[str, ...] = ()
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

    def lay_out(self, layout: str, outputs: Sequence[TensorFile]) -> None:
        """Allocate and fill memory for the inputs, and for these outputs."""
        call, self.prefills = self.call, bool(outputs)
        self.strides = [tensor.strides(layout) for tensor in call.inputs]
        for tensor, strides in zip(call.inputs, self.strides, strict=True):
            shift = tensor.item if layout == "misaligned" else 0
            self.inputs.append(self._memory(tensor, strides, shift))
        self.outputs = [self._memory(part, part.strides("contiguous"), 0) for part in outputs]
        written = [f"its output {part.name}" if call.parts else "its output" for part in outputs]
        self.names = (*(f"its input {tensor.name}" for tensor in call.inputs), *written)
        self.refill(call)

    def _memory(self, tensor: TensorFile, strides: tuple[int, ...], shift: int) -> Memory:
        """Memory for one tensor, sized for its strides."""
        size = elements_spanned(tensor.shape, strides) * tensor.item
        return self.memory(size, shift, tensor.dtype, zone_bytes(tensor.shape, strides, tensor.dtype))

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Allocate memory for one tensor. `size`: bytes of the tensor. `shift`: bytes of
        misalignment. `zone`: bytes of each guard zone."""
        raise NotImplementedError

    @abstractmethod
    def bind(self) -> Run:
        """Return a function that makes the call."""

    @abstractmethod
    def output(self) -> bytes:
        """Bytes of the last output, C order. Raises Refused if the result is invalid."""

    def tensors(self) -> Sequence[tuple[str, Memory]]:
        """Name and memory of each tensor in our memory."""
        return list(zip(self.names, [*self.inputs, *self.outputs], strict=False))

    def poison(self, guard: Guard | None = None) -> None:
        """Fill the outputs with NaN, so that unwritten elements show; or with `guard`."""
        for memory in self.outputs:
            memory.poison(guard)

    def own_strays(self) -> list[str]:
        """Make one more call; describe its writes outside of the variant's own allocations."""
        return []

    def refill(self, call: Call) -> None:
        """Load the values of another call of the same form, at the same addresses."""
        self.call, self.values = call, [tensor.window() for tensor in call.inputs]
        for memory, data in zip(self.inputs, self.values, strict=True):
            memory.know(data)
        self.surround([draw_guard(VALUES) for _ in self.names])

    def jumble(self, draw: random.Random) -> None:
        """Rotate the inputs to unknown values, for a call whose output is ignored."""
        for memory in self.inputs:
            if memory.size:
                memory.rotate(draw.randrange(memory.size // memory.item) * memory.item)

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write new guard bytes around each tensor, and the known values into the inputs."""
        for (_, memory), guard in zip(self.tensors(), guards, strict=True):
            memory.surround(guard)
        self._restore(guards)

    def _restore(self, guards: Sequence[Guard]) -> None:
        """Write the known values into the inputs; guard bytes between strided elements."""
        for n, (memory, guard) in enumerate(zip(self.inputs, guards, strict=False)):
            tensor, strides, data = self.call.inputs[n], self.strides[n], self.values[n]
            if strides != tensor.strides("contiguous"):
                between = memory.contents_of(guard, memory.size)
                data = scatter(data, tensor.shape, strides, tensor.item, between)
            memory.fill(data)

    def held(self, n: int) -> bytes:
        """Current bytes of input `n`, C order."""
        tensor, strides, data = self.call.inputs[n], self.strides[n], self.inputs[n].contents()
        return (
            data if strides == tensor.strides("contiguous") else gather(data, tensor.shape, strides, tensor.item)
        )

    def changed(self) -> list[str]:
        """Names of inputs whose memory changed, except those that the call updates in place."""
        inputs = enumerate(zip(self.call.inputs, self.inputs, strict=False))
        updated = self.call.updated
        return [tensor.name for n, (tensor, memory) in inputs if n not in updated and memory.changed]

    def strays(self) -> list[str]:
        """Writes into guard zones, a sentence each."""
        return [f"writes outside {name}: {stray}" for name, memory in self.tensors() if (stray := memory.stray)]

    def enclose(self, *, at_end: bool) -> bool:
        """Apply `Memory.enclose` to every tensor; restore the inputs. False if impossible."""
        tensors = self.tensors()
        if not tensors or not all(memory.enclose(at_end=at_end) for _, memory in tensors):
            return False
        self._restore([draw_guard(VALUES) for _ in self.inputs])
        return True

    def release(self) -> None:
        """Make the guard zones accessible again; call `surround` before the next call."""
        for _, memory in self.tensors():
            memory.release()


class Stage(ABC):
    """A call in shared memory, ready to be timed on windows of its inputs."""

    captured = False
    """Whether a CUDA graph holds the calls that were prepared last."""

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Prepare these calls. This is not timed."""

    @abstractmethod
    def run(self, count: int) -> int:
        """Make the calls; return nanoseconds by the device's or program's own clock, or 0 if it has
        none. `count`: number of calls; on a GPU, number of replays of all prepared calls."""

    def settle(self) -> None:
        """Force the device to finish each result, including work that the variant deferred."""

    def give(self) -> None:
        """Copy the result of each call into its slot."""

    def close(self) -> None:
        """Free the memory."""


class Nothing(Stage):
    """Calls that do nothing, to measure the cost of an order and of a call."""

    def __init__(self, run: Run | None = None) -> None:
        self.calls = run

    def run(self, count: int) -> int:
        if self.calls is not None:
            for run in [self.calls] * count:
                run()
        return 0


class Places:
    """Where the tensors of a call lie in shared memory."""

    WARMED_BYTES = 32 << 20
    """Up to this size the worker reads the tensors into its caches before timing, because the judge
    wrote them on another core. Larger ones do not fit anyway."""

    def __init__(
        self, memory: mmap.mmap, call: Call, inputs: Sequence[int], slots: Sequence[int], turns: Sequence[int]
    ) -> None:
        """`inputs`, `slots`: byte offsets of inputs and outputs. `turns`: rotation of each input in
        bytes."""
        self.memory, self.inputs, self.slots, self.turns = memory, inputs, slots, turns
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.pool_bytes = [tensor.pool_size for tensor in call.inputs]
        self.slot_bytes = call.output.size

    def origin(self, n: int) -> bytes:
        """Bytes of input `n` before the rotation."""
        begin, size, turn = self.inputs[n], self.pool_bytes[n], self.turns[n]
        return self.memory[begin + size - turn : begin + size] + self.memory[begin : begin + size - turn]

    def warm(self, slots: int) -> None:
        """Bring the inputs and the first `slots` slots into this core's caches, as if just
        written."""
        if sum(self.pool_bytes) + slots * self.slot_bytes > self.WARMED_BYTES:
            return
        scratch = ctypes.create_string_buffer(max([*self.pool_bytes, self.slot_bytes, 1]))
        for offset, size in zip(self.inputs, self.pool_bytes, strict=True):
            ctypes.memmove(scratch, self.base + offset, size)
        for offset in self.slots[:slots]:
            ctypes.memmove(scratch, self.base + offset, self.slot_bytes)
            ctypes.memmove(self.base + offset, scratch, self.slot_bytes)


class HostStage(Stage):
    """Calls on the host, one after the other."""

    CALIBRATIONS = 9

    def __init__(self, places: Places, call: Call, slow: float) -> None:
        """`slow`: slow each call down by this share of its time (positive control)."""
        self.places, self.call, self.slow, self.extra_ns = places, call, slow, 0
        self.runs: list[Run] = []
        self.windows: Windows = ()

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Set the calls on these windows; for a positive control, measure the delay of each
        call."""
        self.windows = windows
        self.point(windows)
        if self.slow and not self.extra_ns:
            times = []
            for _ in range(self.CALIBRATIONS):
                begin = perf_counter_ns()
                self.runs[0]()
                times.append(perf_counter_ns() - begin)
            self.extra_ns = int(self.slow * sorted(times)[self.CALIBRATIONS // 2])
        self.places.warm(len(windows))

    def run(self, count: int) -> int:
        """Make `count` calls, with the delay of a positive control after each; 0: no own clock."""
        if not self.extra_ns:
            self.make(self.runs[:count])
            return 0
        for run in self.runs[:count]:
            self.make([run])
            end = perf_counter_ns() + self.extra_ns
            while perf_counter_ns() < end:
                pass
        return 0

    @abstractmethod
    def point(self, windows: Windows) -> None:
        """Set `runs` to calls on these windows."""

    def make(self, runs: Sequence[Run]) -> None:
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
