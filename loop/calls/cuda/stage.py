"""A compiled variant's calls on a CUDA device, timed by graph replay.

Inputs come from the memory that is shared with the judge.

The device's own clock is finer than the host's; the judge holds it against its own.
"""

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from loop.calls.call import POISON, Call, Refused, refuse_late
from loop.calls.cuda.driver import (
    ALIGNMENT,
    Device,
    DeviceMemory,
    Driver,
    Event,
    Owned,
    Stream,
    elapsed_s,
    take_back_l2,
)
from loop.calls.invocation import Places, Run, Stage, Windows
from loop.calls.library import Compiled, CompiledCall
from loop.calls.memory import Memory, stray

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: while capturing, this thread may do nothing that could not be replayed."""
GRAPH_NODE = 4
"""CUgraphNodeType."""
PORTABLE, MAPPED = 1, 2
"""CU_MEMHOSTALLOC flags."""
WAIT_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ."""
UNJOINED = 904
"""CUDA_ERROR_STREAM_CAPTURE_UNJOINED: a stream that was forked from the captured one was not joined again."""
LEFT_WORK = "left work on another stream, and its own does not wait for that"
SHUT, OPEN = 0, 1
MAX_QUEUED = 200
"""Calls that may wait in a stream: its queue holds about a thousand launches, and a call may be several."""
HOLD_S = 0.02
"""How long launches may take before the gate opens by itself."""


class Uncapturable(Refused):
    """The work is right, but a graph cannot hold it: time it with events."""


class Graph(Owned):
    """Some calls, ready to be replayed with a single launch."""

    def __init__(self, driver: Driver, handle: int, calls: int, nodes: int) -> None:
        """`nodes`: kernels, copies and fills of all its calls; none: the work went to another stream."""
        super().__init__(driver, handle, "cuGraphExecDestroy")
        self.calls, self.nodes = calls, nodes

    def launch(self, stream: Stream) -> None:
        """Queue a replay."""
        self.driver.call("cuGraphLaunch", self.handle, stream.handle)


def capture(stream: Stream, run: Callable[[], None], calls: int) -> Graph:
    """A graph of `calls` calls of `run`, which launches on `stream`.

    `run` also runs once before, since first calls load code, and what it raises there passes through.
    Raises Uncapturable when it cannot be captured, such as when it waits for the GPU; the stream stays usable.
    Raises Refused when it leaves work on another stream: whoever waits for its own stream has no result then.
    """
    run()
    stream.synchronise()
    driver, captured, failure = stream.driver, ctypes.c_void_p(), ""
    driver.call("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
    try:
        for _ in range(calls):
            run()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        code = driver.attempt("cuStreamEndCapture", stream.handle, ctypes.byref(captured))
    if code == UNJOINED and not failure:
        raise Refused(LEFT_WORK, "left work")
    why = "; ".join(filter(None, [failure, driver.explain(code) if code else ""]))
    try:
        if not why and captured.value:
            nodes = _count_nodes(driver, captured.value)
            handle = driver.make("cuGraphInstantiateWithFlags", ctypes.c_void_p, captured.value, 0)
            graph = Graph(driver, handle, calls, nodes)
            driver.call("cuGraphUpload", graph.handle, stream.handle)
            stream.synchronise()
            return graph
    finally:
        if captured.value:
            driver.attempt("cuGraphDestroy", captured.value)
    with suppress(Exception):  # A CUDA runtime tells of the broken capture at the call that next asks for errors.
        run()
    stream.synchronise()
    raise Uncapturable(f"cannot be captured in a CUDA graph: {why or 'the capture gave no graph'}")


def _count_nodes(driver: Driver, graph: int) -> int:
    """Nodes, those of graphs inside the graph included."""
    count = ctypes.c_size_t()
    driver.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * max(count.value, 1))()
    if count.value:
        driver.call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    total = 0
    for node in nodes[: count.value]:
        kind, inner = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value == GRAPH_NODE:
            driver.call("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(inner))
        total += _count_nodes(driver, inner.value or 0) if kind.value == GRAPH_NODE else 1
    return total


class Gate(Owned):
    """A flag in host memory for which a stream waits, so that work queues up behind it."""

    def __init__(self, driver: Driver) -> None:
        handle = driver.make("cuMemHostAlloc", ctypes.c_void_p, 4, PORTABLE | MAPPED)
        super().__init__(driver, handle, "cuMemFreeHost")
        self._flag = ctypes.c_uint32.from_address(handle)
        self._address = driver.make("cuMemHostGetDevicePointer_v2", ctypes.c_uint64, handle, 0)
        self._flag.value = OPEN

    def shut(self, stream: Stream) -> None:
        """Let the stream wait here from now on."""
        self._flag.value = SHUT
        self.driver.call("cuStreamWaitValue32_v2", stream.handle, self._address, OPEN, WAIT_EQUAL)

    def open(self) -> None:
        """Let the stream go on."""
        self._flag.value = OPEN


class GraphTiming(NamedTuple):
    """How long calls took on the GPU."""

    seconds: float
    """Of one call."""
    queued: bool
    """Whether all were launched before the first began. Otherwise the launches, too, are in the time."""


class Stopwatch:
    """Times calls on one stream by events, which begin once everything is queued."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._gate = Gate(stream.driver)
        self._begin, self._end = Event(stream.driver), Event(stream.driver)

    def time(
        self, run: Callable[[], object], calls: int = 1, hold_s: float | None = HOLD_S, *, gated: bool = True
    ) -> GraphTiming:
        """Time `calls` calls of `run`, which launches on the stream; at most MAX_QUEUED.

        After `hold_s` seconds of launching the gate opens: work that waits for the GPU would wait for ever. None:
        `run` waits for nothing, and the gate needs no guard, which would take 0.2 ms to start.
        Without a gate the launches are part of the time.
        """
        if not 1 <= calls <= MAX_QUEUED:
            raise ValueError(f"expected 1 to {MAX_QUEUED} calls, got {calls}")
        overdue: list[bool] = []
        guard: threading.Timer | None = None

        def open_early() -> None:
            overdue.append(True)
            self._gate.open()

        if gated:
            self._gate.shut(self.stream)
        try:
            if gated and hold_s is not None:
                guard = threading.Timer(hold_s, open_early)
                guard.daemon = True
                guard.start()
            self._begin.record(self.stream)
            for _ in range(calls):
                run()
            self._end.record(self.stream)
        finally:
            if guard is not None:
                guard.cancel()
                if guard.is_alive():
                    guard.join()
            self._gate.open()
            self.stream.synchronise()
        return GraphTiming(elapsed_s(self._begin, self._end) / calls, gated and not overdue)

    def replay(self, graph: Graph, times: int = 1) -> GraphTiming:
        """Time replays of a graph, at most MAX_QUEUED; seconds of one of its calls."""
        timing = self.time(lambda: graph.launch(self.stream), times, None)
        return GraphTiming(timing.seconds / graph.calls, queued=True)


@functools.cache
def the_device() -> Device:
    """This process's device: the first that is visible."""
    return Device()


@functools.cache
def the_stream() -> Stream:
    """The stream that variants are given."""
    return the_device().stream()


class DeviceLibrary(Compiled):
    """A loaded library whose kernels run on the device."""

    def prepare(self, call: Call, layout: str = "contiguous") -> "DeviceCompiledCall":
        return DeviceCompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slow: float) -> Stage:
        return DeviceStage(self.invoke, places, call, slow)


class DeviceCompiledCall(CompiledCall):
    """One call of a compiled CUDA variant."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        self.stream = the_stream().handle
        return DeviceMemory(the_device(), size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        launch = super().bind(offsets)

        def launch_and_wait() -> None:
            launch()
            the_stream().synchronise()

        return launch_and_wait

    def output(self) -> bytes:
        """The last output's bytes.

        Raises Refused when work went on elsewhere after the stream was done, and when the variant has lines of the
        second-level cache kept for it: values of one call would wait there for the next.
        """
        the_stream().synchronise()
        if kept_bytes := take_back_l2(the_device().driver, the_stream().handle):
            message = f"left a window of {kept_bytes} bytes that the L2 cache keeps on the stream it was given"
            raise Refused(message, "cache kept")
        data = super().output()
        begin = time.perf_counter()
        the_device().synchronise_all()
        refuse_late(time.perf_counter() - begin)
        return data


class ExactCall(DeviceCompiledCall):
    """One call whose tensors have no neighbours of their own."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        return super().memory(size, 0, dtype, 0)


ZONE = 512
"""Random bytes before each output of a sample, and after the last, at least."""


class DeviceStage(Stage):
    """Calls of a compiled CUDA variant. Each has an output of its own on the device."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        self.invoke, self.places, self.call, self.slow = invoke, places, call, slow
        device = the_device()
        self.origins = [device.memory(2 * size) for size in places.pool_bytes]
        self.pools = [DeviceMemory(device, tensor.pool_size, 0, tensor.dtype) for tensor in call.inputs]
        self.slots = OutputSlots(places.slot_bytes)
        self.numbers = call.c_numbers()
        self.watch = Stopwatch(the_stream())
        self.graphs: dict[tuple[tuple[int, ...], ...], Graph | None] = {}
        self.runs: list[Callable[[], None]] = []
        self.windows: Windows = ()
        self.queued = True
        """Whether launches can wait behind a gate. A variant that waits for the device would wait for ever."""
        self.graph: Graph | None = None
        for n, (origin, pool) in enumerate(zip(self.origins, self.pools, strict=True)):
            data = places.origin(n)
            origin.write(0, data + data)
            pool.fill(data)

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Rotate inputs, poison outputs; capture the calls where these windows are new."""
        device = the_device()
        self.windows = windows
        if self.slots.make(len(windows)):  # They are elsewhere now: nothing that was captured is of use.
            self._forget()
        key = tuple(tuple(window) for window in windows)
        if key not in self.graphs:  # The values of the calls before: those that come now are new to all of them.
            self.graphs[key] = self._capture([self._bind(window, n) for n, window in enumerate(windows)])
        for pool, origin, count in zip(self.pools, self.origins, rotations, strict=True):
            pool.take(origin, count)
        self.slots.poison()
        self.graph = self.graphs[key]
        self.captured = self.graph is not None
        self.runs = [] if self.graph else [self._bind(window, n) for n, window in enumerate(windows)]
        device.driver.call("cuCtxResetPersistingL2Cache")  # Lines of L2 that a kernel asked to keep.
        device.synchronise_all()

    def _bind(self, window: Sequence[int], number: int) -> Callable[[], None]:
        placed = zip(self.pools, window, self.call.inputs, strict=True)
        inputs = self.call.c_inputs([pool.address + offset * tensor.item for pool, offset, tensor in placed])
        output = self.call.c_output(self.slots.address(number))
        return partial(self.invoke, inputs, output, self.numbers, the_stream().handle)

    def _capture(self, runs: Sequence[Callable[[], None]]) -> Graph | None:
        """The calls as one graph; None when they cannot be captured."""
        more = max(1, round(self.slow * len(runs))) if self.slow else 0
        with suppress(Uncapturable):
            graph = capture(the_stream(), all_of([*runs[:more], *runs]), 1)
            if not graph.nodes and self.places.slot_bytes:
                raise Refused("launched nothing on the stream it was given", "launched nothing")
            return graph
        return None

    def run(self, count: int) -> int:
        """Replay the calls so many times; nanoseconds by the device's events. All its work is done then."""
        if self.graph is not None:
            seconds = count * self.watch.replay(self.graph, count).seconds
        else:
            timings = [self.watch.time(all_of(self.runs), gated=self.queued) for _ in range(count)]
            seconds = sum(timing.seconds for timing in timings)
            self.queued = all(timing.queued for timing in timings)
        the_device().synchronise_all()
        return int(seconds * 1e9)

    def give(self) -> None:
        """Bring the outputs into their slots; and look for what was written outside of them."""
        for n, (output, slot) in enumerate(zip(self.slots.read(), self.places.slots, strict=False)):
            self.places.memory[slot : slot + len(output)] = self.call.with_updates(output, partial(self._held, n))
        inputs = zip(self.call.inputs, self.pools, strict=True)
        strays = [f"writes outside its input {tensor.name}: {pool.stray}" for tensor, pool in inputs if pool.stray]
        self.strays = list(dict.fromkeys(filter(None, [*self.strays, self.slots.stray, *strays])))

    def _held(self, call: int, number: int) -> bytes:
        """What stands in an input now, in the window of a call."""
        tensor = self.call.inputs[number]
        begin = self.windows[call][number] * tensor.item if call < len(self.windows) else 0
        return self.pools[number].read(begin, tensor.size)

    def close(self) -> None:
        self._forget()
        for origin, pool in zip(self.origins, self.pools, strict=True):
            origin.close()
            pool.close()
        self.slots.close()

    def _forget(self) -> None:
        """Let go of all graphs."""
        for graph in self.graphs.values():
            if graph is not None:
                graph.close()
        self.graphs.clear()


class OutputSlots:
    """The outputs of some calls in one block of device memory: written, poisoned and read by one copy each.

    Between them lie random bytes, which have to be there afterwards.
    """

    def __init__(self, size: int) -> None:
        self.size, self.count, self.stray = size, 0, ""
        """Bytes of an output; outputs; and a sentence on what was written outside of them."""
        self._step = -(-(size + ZONE) // ALIGNMENT) * ALIGNMENT
        self._block: DeviceMemory | None = None
        self._fresh: DeviceMemory | None = None
        """The block as it is before the calls."""
        self._image = b""

    def make(self, count: int) -> bool:
        """Make room for so many; whether they are elsewhere now."""
        if count <= self.count:
            return False
        self.close()
        self.count = count
        zone, poisoned = self._step - self.size, bytes([POISON]) * self.size
        self._image = poisoned.join([os.urandom(ZONE), *(os.urandom(zone) for _ in range(count))])
        self._block, self._fresh = (the_device().memory(len(self._image)) for _ in range(2))
        self._fresh.write(0, self._image)
        return True

    def address(self, number: int) -> int:
        """Where an output begins."""
        return (self._block.address if self._block else 0) + ZONE + number * self._step

    def poison(self) -> None:
        """Make every output NaN, and the zones what they were."""
        if self._block is not None and self._fresh is not None:
            self._block.take(self._fresh, 0)

    def read(self) -> list[bytes]:
        """All outputs; what lies between them is looked at."""
        data = self._block.contents() if self._block is not None else b""
        begins = [ZONE + number * self._step for number in range(self.count)]
        ends = [0, *(begin + self.size for begin in begins)]
        for first, end in zip(ends, [*begins, len(data)], strict=True):
            names = "output" if first else "", "output" if end < len(data) else ""
            self.stray = stray(data[first:end], self._image[first:end], *names) or self.stray
        return [data[begin : begin + self.size] for begin in begins]

    def close(self) -> None:
        """Give the memory back."""
        for buffer in (self._block, self._fresh):
            if buffer is not None:
                buffer.close()
        self._block, self._fresh, self.count = None, None, 0


def all_of(runs: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Some calls, one after the other."""

    def together() -> None:
        for run in runs:
            run()

    return together


PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n"
EMPTY_CALLS = 100
"""Kernels in the graph of empty calls."""


class EmptyKernels(Stage):
    """As many launches of an empty kernel as a graph holds; a run tells the time of one."""

    captured = True

    def __init__(self) -> None:
        driver, stream = the_device().driver, the_stream()
        module = driver.make("cuModuleLoadData", ctypes.c_void_p, PTX)
        kernel = driver.make("cuModuleGetFunction", ctypes.c_void_p, module, b"empty")

        def launch() -> None:
            driver.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, stream.handle, None, None)

        self.graph, self.watch = capture(stream, launch, EMPTY_CALLS), Stopwatch(stream)

    def run(self, count: int) -> int:
        """So many calls, a graph's at least; nanoseconds of them by the device's events."""
        replays = max(1, count // EMPTY_CALLS)
        return int(self.watch.replay(self.graph, replays).seconds * replays * EMPTY_CALLS * 1e9)

    def close(self) -> None:
        self.graph.close()
