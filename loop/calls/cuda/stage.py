"""A compiled variant's calls on a CUDA device, timed by graph replay.

Inputs come from the memory that is shared with the judge.

The device's own clock is finer than the host's; the judge holds it against its own.
"""

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from loop.calls.call import Call, Refused, refuse_late
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
from loop.calls.library import Compiled, CompiledCall, Invocation
from loop.calls.memory import Memory

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: while capturing, this thread may do nothing that could not be replayed."""
PORTABLE, MAPPED = 1, 2
"""CU_MEMHOSTALLOC flags."""
WAIT_EQUAL = 1
"""CU_STREAM_WAIT_VALUE_EQ."""
UNJOINED = 904
"""CUDA_ERROR_STREAM_CAPTURE_UNJOINED: a stream that was forked from the captured one was not joined again."""
LEFT_WORK = "left work on another stream, and its own does not wait for that"
SHUT, OPEN = 0, 1
HOLD_S = 0.02
"""How long launches may take before the gate opens by itself. A stream's queue holds about a thousand."""


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


def capture(stream: Stream, run: Callable[[], object], calls: int) -> Graph:
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
            nodes = ctypes.c_size_t()
            driver.call("cuGraphGetNodes", captured.value, None, ctypes.byref(nodes))
            handle = driver.make("cuGraphInstantiateWithFlags", ctypes.c_void_p, captured.value, 0)
            graph = Graph(driver, handle, calls, nodes.value)
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


class Stopwatch:
    """Times calls on one stream by events, which begin once everything is queued."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.queued = True
        """Whether calls can be launched before the first begins. Otherwise the launches, too, are in the time."""
        self._gate = Gate(stream.driver)
        self._begin, self._end = Event(stream.driver), Event(stream.driver)

    def time(self, run: Callable[[], object], calls: int = 1, hold_s: float | None = HOLD_S) -> float:
        """Seconds of one of `calls` calls of `run`, which launches on the stream.

        After `hold_s` seconds of launching the gate opens: work that waits for the GPU would wait for ever. From
        then on there is no gate. None: `run` waits for nothing, and the gate needs no guard, which would take
        0.2 ms to start.
        """
        guard: threading.Timer | None = None

        def open_early() -> None:
            self.queued = False
            self._gate.open()

        if self.queued or hold_s is None:
            self._gate.shut(self.stream)
        try:
            if self.queued and hold_s is not None:
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
                guard.join()
            self._gate.open()
            self.stream.synchronise()
        return elapsed_s(self._begin, self._end) / calls

    def replay(self, graph: Graph, times: int = 1) -> float:
        """Time replays of a graph; seconds of one of its calls."""
        return self.time(lambda: graph.launch(self.stream), times, None) / graph.calls


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

    def bind(self) -> Run:
        launch = super().bind()

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


GAP = 512
"""Bytes after each output of a sample, at least: what is written there harms no other output."""


class DeviceStage(Stage):
    """Calls of a compiled CUDA variant, each with an output of its own in one block of device memory."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        self.invoke, self.places, self.call, self.slow = invoke, places, call, slow
        device = the_device()
        self.origins = [device.memory(2 * size) for size in places.pool_bytes]
        self.pools = [DeviceMemory(device, tensor.pool_size, 0, tensor.dtype) for tensor in call.inputs]
        self.block = device.memory(0)
        """The outputs of all calls, a step apart: poisoned and read by one copy each."""
        self.step = -(-(places.slot_bytes + GAP) // ALIGNMENT) * ALIGNMENT
        self.watch = Stopwatch(the_stream())
        self.graphs: dict[tuple[tuple[int, ...], ...], Graph | None] = {}
        self.runs: list[Run] = []
        self.windows: Windows = ()
        self.graph: Graph | None = None
        for n, (origin, pool) in enumerate(zip(self.origins, self.pools, strict=True)):
            data = places.origin(n)
            origin.write(0, data + data)
            pool.fill(data)

    def ready(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Rotate inputs, poison outputs; capture the calls where these windows are new."""
        device = the_device()
        self.windows = windows
        if self.block.size < len(windows) * self.step:  # Elsewhere now: nothing that was captured is of use.
            self._forget()
            self.block.close()
            self.block = device.memory(len(windows) * self.step)
        key = tuple(tuple(window) for window in windows)
        if self.graphs.get(key) is None:
            inputs, stream = [pool.address for pool in self.pools], the_stream().handle
            self.runs = []
            for n, window in enumerate(windows):
                begin = self.block.address + n * self.step
                outputs = [begin + part.offset for part in self.call.written]
                call = Invocation(self.invoke, self.call, inputs, outputs, stream=stream)
                self.runs.append(call.aim(window))
        if key not in self.graphs:  # The values of the calls before: those that come now are new to all of them.
            self.graphs[key] = self._capture(self.runs)
        for pool, origin, count in zip(self.pools, self.origins, rotations, strict=True):
            pool.take(origin, count)
        self.block.poison()
        self.graph = self.graphs[key]
        self.captured = self.graph is not None
        device.driver.call("cuCtxResetPersistingL2Cache")  # Lines of L2 that a kernel asked to keep.
        device.synchronise_all()

    def _capture(self, runs: Sequence[Run]) -> Graph | None:
        """The calls as one graph; None when they cannot be captured."""
        more = max(1, round(self.slow * len(runs))) if self.slow else 0
        with suppress(Uncapturable):
            graph = capture(the_stream(), partial(_make, [*runs[:more], *runs]), 1)
            if not graph.nodes and self.places.slot_bytes:
                raise Refused("launched nothing on the stream it was given", "launched nothing")
            return graph
        return None

    def run(self, count: int) -> int:
        """Replay the calls so many times; nanoseconds by the device's events. All its work is done then."""
        if self.graph is not None:
            seconds = count * self.watch.replay(self.graph, count)
        else:
            seconds = sum(self.watch.time(partial(_make, self.runs)) for _ in range(count))
        the_device().synchronise_all()
        return int(seconds * 1e9)

    def give(self) -> None:
        """Bring the outputs into their slots."""
        data, inputs = self.block.contents(), self.call.inputs

        def held(window: Sequence[int], number: int) -> bytes:
            """What stands in an input now, in the window of a call."""
            return self.pools[number].read(window[number] * inputs[number].item, inputs[number].size)

        for n, (window, slot) in enumerate(zip(self.windows, self.places.slots, strict=False)):
            begins = [(n * self.step + part.offset, part.size) for part in self.call.written]
            parts = [data[begin : begin + size] for begin, size in begins]
            block = self.call.block(parts, partial(held, window))
            self.places.memory[slot : slot + len(block)] = block

    def close(self) -> None:
        self._forget()
        for memory in (*self.origins, *self.pools, self.block):
            memory.close()

    def _forget(self) -> None:
        """Let go of all graphs."""
        for graph in self.graphs.values():
            if graph is not None:
                graph.close()
        self.graphs.clear()


def _make(runs: Sequence[Run]) -> None:
    """Make some calls, one after the other."""
    for run in runs:
        run()


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
        return int(self.watch.replay(self.graph, replays) * replays * EMPTY_CALLS * 1e9)

    def close(self) -> None:
        self.graph.close()
