"""How a call of a variant is made, whatever kind of variant computes it.

A loaded variant makes a call ready in two ways:

- `prepare` for a check: each tensor in a `memory.Memory` of the worker's own, between guard zones.
- `stage` for timing: inputs and outputs in the memory that the judge shares with the worker (`arena`).

`library`, `external` and `torch_call` hold both for each kind of variant, `cuda` for compiled ones on a GPU.
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
"""Before what is said of a fault."""
LOST = "the device was lost: "
"""Before what is said of a lost device."""
LOST_EXIT = 70
"""Exit status of a process whose device is lost (EX_SOFTWARE)."""
SIGNALS = (signal.SIGSEGV, signal.SIGBUS)
SA_SIGINFO, SI_ADDR = 4, 16
"""`sigaction(2)`; where the address stands in a `siginfo_t` of a 64-bit system."""
X86_64_ERROR, WRITES = 192, 2
"""Where the page fault's error code stands in a `ucontext_t` of x86-64, and its bit for a write."""
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
    """Names the tensor beside which an access faults, while it lasts. Another handler of faults stays in place."""

    def __init__(self, tensors: Callable[[], Sequence[tuple[str, Memory]]]) -> None:
        """`tensors`: those in memory of ours, each with its name."""
        self.tensors = tensors
        self.guess = ""
        """What to say of a fault that is beside no tensor; empty for nothing."""
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
        """Say which tensor, and let the access happen once more, without us."""
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
    """Why nothing works on the device in this process any more; empty while it does, or where it was never used.

    It waits for what still runs there.
    """
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
    """End this process at once. The parent sees a crash, and reads what it said last."""
    sys.stderr.write(f"\n{LOST}{refused if why in refused else f'{refused}; {why}'}\n")
    sys.stderr.flush()
    os._exit(LOST_EXIT)


MOST_THREADS = 8
"""Threads of a worker that are looked at: reading a file takes some microseconds."""


class Delays(NamedTuple):
    """Seconds so far."""

    judge: float
    """That the judge waited for a core."""
    worker: float
    """That threads of the worker did, all together."""
    ran: float
    """That the worker's first thread was on a core."""

    def since(self, before: "Delays", *, shared: bool) -> float:
        """Seconds of waiting since then that lengthened what was timed.

        `shared`: the judge sleeps on the worker's core. Waiting for the worker is no delay then: the judge has
        nothing to do until the worker is done.
        """
        judge, worker, ran = (now - then for now, then in zip(self, before, strict=True))
        return worker + max(0.0, judge - ran if shared else judge)


class Waits:
    """The waiting of a worker's threads and of the judge's own."""

    def __init__(self, pid: int) -> None:
        self._files: list[int] = []
        others: list[str] = []
        with contextlib.suppress(OSError):  # It has ended meanwhile, or this system does not tell.
            others = [task for task in os.listdir(f"/proc/{pid}/task") if task != str(pid)]
        tasks = [f"{pid}/task/{task}" for task in (str(pid), *others)][:MOST_THREADS]
        for task in (f"self/task/{threading.get_native_id()}", *tasks):
            with contextlib.suppress(OSError):
                self._files.append(os.open(f"/proc/{task}/schedstat", os.O_RDONLY))

    def read(self) -> Delays | None:
        """What they waited so far; None where the system does not tell."""
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
"""Where the windows of each call begin: for each call one offset an input, in elements."""


class Prepared(ABC):
    """A call with its tensors in memory, ready to be made again and again. A program has files in their place."""

    timed_apart = False
    """Whether it times itself and has no windows."""
    prefills = False
    """Whether we can choose what stands in the output before a call."""
    names: tuple[str, ...] = ()
    """The tensors that lie in memory of ours, between zones, as in `its input x`."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.inputs: list[Memory] = []
        self.outputs: list[Memory] = []
        """Of the outputs that are written to memory of ours."""
        self.strides: list[tuple[int, ...]] = []
        """Of each input, in elements."""
        self.values: list[bytes] = []
        """What the judge wrote for each input, C order."""

    def lay_out(self, layout: str, outputs: Sequence[TensorFile]) -> None:
        """Make memory for the inputs and for these outputs, and fill it."""
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
        size = elements_spanned(tensor.shape, strides) * tensor.item
        return self.memory(size, shift, tensor.dtype, zone_bytes(tensor.shape, strides, tensor.dtype))

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor: its bytes, bytes of misalignment, its type, bytes of each zone."""
        raise NotImplementedError

    @abstractmethod
    def bind(self) -> Run:
        """The call, as a function."""

    @abstractmethod
    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    def tensors(self) -> Sequence[tuple[str, Memory]]:
        """The tensors in memory of ours, each with its name."""
        return list(zip(self.names, [*self.inputs, *self.outputs], strict=False))

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows; or a guard's contents."""
        for memory in self.outputs:
            memory.poison(guard)

    def own_strays(self) -> list[str]:
        """Writes of one more call outside of tensors that the variant allocates, a sentence each."""
        return []

    def refill(self, call: Call) -> None:
        """Take the values of another call's files, at the same addresses."""
        self.call, self.values = call, [tensor.window() for tensor in call.inputs]
        for memory, data in zip(self.inputs, self.values, strict=True):
            memory.know(data)
        self.surround([draw_guard(VALUES) for _ in self.names])

    def jumble(self, draw: random.Random) -> None:
        """Put unknown values at every address, for a call whose output is not looked at."""
        for memory in self.inputs:
            if memory.size:
                memory.rotate(draw.randrange(memory.size // memory.item) * memory.item)

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each tensor, and the values the judge knows into the inputs."""
        for (_, memory), guard in zip(self.tensors(), guards, strict=True):
            memory.surround(guard)
        self._restore(guards)

    def _restore(self, guards: Sequence[Guard]) -> None:
        """Write the values into the inputs; where one is spread, a guard's contents between its rows."""
        for n, (memory, guard) in enumerate(zip(self.inputs, guards, strict=False)):
            tensor, strides, data = self.call.inputs[n], self.strides[n], self.values[n]
            if strides != tensor.strides("contiguous"):
                between = memory.contents_of(guard, memory.size)
                data = scatter(data, tensor.shape, strides, tensor.item, between)
            memory.fill(data)

    def held(self, n: int) -> bytes:
        """The elements of an input now, C order."""
        tensor, strides, data = self.call.inputs[n], self.strides[n], self.inputs[n].contents()
        return (
            data if strides == tensor.strides("contiguous") else gather(data, tensor.shape, strides, tensor.item)
        )

    def changed(self) -> list[str]:
        """Names of inputs that do not hold their values any more, or other bytes between their rows."""
        inputs = enumerate(zip(self.call.inputs, self.inputs, strict=False))
        updated = self.call.updated
        return [tensor.name for n, (tensor, memory) in inputs if n not in updated and memory.changed]

    def strays(self) -> list[str]:
        """Writes outside of tensors, a sentence each."""
        return [f"writes outside {name}: {stray}" for name, memory in self.tensors() if (stray := memory.stray)]

    def enclose(self, *, at_end: bool) -> bool:
        """As `Memory.enclose`, for every tensor; inputs are written anew. False where it cannot."""
        tensors = self.tensors()
        if not tensors or not all(memory.enclose(at_end=at_end) for _, memory in tensors):
            return False
        self._restore([draw_guard(VALUES) for _ in self.inputs])
        return True

    def release(self) -> None:
        """Let accesses outside of tensors be again; the next call needs `surround`."""
        for _, memory in self.tensors():
            memory.release()


class Stage(ABC):
    """A call in the shared memory, ready to be made again and again on windows of its inputs."""

    captured = False
    """Whether a graph holds the calls that were made ready last."""

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Make ready for these calls: nothing of it is timed."""

    @abstractmethod
    def run(self, count: int) -> int:
        """Make the calls; nanoseconds by a clock that belongs to them, such as a GPU's, or 0.

        `count`: how many calls; on a GPU how often all calls that were made ready are replayed.
        """

    def settle(self) -> None:
        """Have the result of each call be there, on the device: work that was left for later is done now."""

    def give(self) -> None:
        """Put the result of each call into its slot."""

    def close(self) -> None:
        """Let go of the memory."""


class Nothing(Stage):
    """Calls that do nothing: what an order, and a call itself, cost."""

    def __init__(self, run: Run | None = None) -> None:
        self.calls = run

    def run(self, count: int) -> int:
        if self.calls is not None:
            for run in [self.calls] * count:
                run()
        return 0


class Places:
    """Where the tensors of a call lie in the shared memory."""

    WARMED_BYTES = 32 << 20
    """The judge wrote the memory last, on another core. Up to this size it is brought into the worker's caches
    before it is timed; what is larger fits into none of them."""

    def __init__(
        self, memory: mmap.mmap, call: Call, inputs: Sequence[int], slots: Sequence[int], turns: Sequence[int]
    ) -> None:
        """`inputs`, `slots`: where inputs and outputs begin, in bytes; `turns`: bytes by which inputs are
        rotated."""
        self.memory, self.inputs, self.slots, self.turns = memory, inputs, slots, turns
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.pool_bytes = [tensor.pool_size for tensor in call.inputs]
        self.slot_bytes = call.output.size

    def origin(self, n: int) -> bytes:
        """The values of an input as they were before they were rotated."""
        begin, size, turn = self.inputs[n], self.pool_bytes[n], self.turns[n]
        return self.memory[begin + size - turn : begin + size] + self.memory[begin : begin + size - turn]

    def warm(self, slots: int) -> None:
        """Bring inputs and that many slots into the caches here, the slots as memory that was written last."""
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
        """`slow`: share of its time by which each call is made longer on purpose."""
        self.places, self.call, self.slow, self.extra_ns = places, call, slow, 0
        self.runs: list[Run] = []
        self.windows: Windows = ()

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
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
        """Have each of the runs make its call on its windows."""

    def make(self, runs: Sequence[Run]) -> None:
        """Make some calls."""
        for run in runs:
            run()


class Loaded(Protocol):
    """A variant ready to take calls."""

    @property
    def device(self) -> str:
        """Where it computes: `cpu` or `cuda`."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory, laid out as `loop.calls.call.strides_of` says."""

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        """Take a call's place in the shared memory; `slow`: share of its time by which calls are made longer."""
