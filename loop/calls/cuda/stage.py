"""Timed calls of a compiled variant on a GPU, by replaying a CUDA graph.

Inputs come from memory shared with the judge. Times come from the GPU's events, which are finer
than the host's clock; the judge compares them with its own clock.
"""

import ctypes
import functools
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from loop.calls.call import POISON, Call, Refused
from loop.calls.cuda.driver import ALIGNMENT, Device, DeviceMemory, Owned, Stream
from loop.calls.invocation import Places, Prepared, Run, Stage, TimedCalls, Windows
from loop.calls.library import Compiled, CompiledCall, LibraryCalls
from loop.calls.memory import Memory

THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: restricts only calls of this thread.
PORTABLE, MAPPED = 1, 2  # CU_MEMHOSTALLOC flags.
WAIT_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ.
UNJOINED = 904  # CUDA_ERROR_STREAM_CAPTURE_UNJOINED: a forked stream did not join again.
LEFT_WORK = "left work on another stream, and its own does not wait for that"
SHUT, OPEN = 0, 1
LAUNCH_LIMIT_S = 0.02  # Seconds of launching (some 1000 fit a stream), after which it goes on.
GAP = 512  # Minimum bytes after each output, so that a stray write damages no other output.
PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n"
"""A kernel that does nothing, in NVIDIA's assembly language."""
EMPTY_CALLS = 100  # Number of empty kernels in one graph.
UNKNOWN_NODES = 2**20  # Torch does not say how many nodes its graph has: more than any.


class Graph(Owned):
    """An executable CUDA graph of calls on one stream."""

    def __init__(self, stream: Stream, handle: int, nodes: int) -> None:
        """`nodes`: kernels, copies and fills of all calls; 0: the work went to another stream."""
        super().__init__(stream.driver, handle, "cuGraphExecDestroy")
        self.stream, self.nodes = stream, nodes

    def replay(self) -> None:
        """Launch all calls at once. Never waits for the GPU."""
        self.driver.call("cuGraphLaunch", self.handle, self.stream.handle)


def capture(stream: Stream, runs: Sequence[Run]) -> Graph | None:
    """Capture calls, which launch on `stream`, into a graph. They are made once before, as first
    calls load code; then their exceptions pass through. None if they cannot be captured, as when
    they wait for the GPU; the stream stays usable. Refused if work stays on another stream."""
    for run in runs:
        run()
    stream.synchronise()
    driver, captured, graph, was_raised = stream.driver, ctypes.c_void_p(), None, False
    driver.call("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
    try:
        for run in runs:
            run()
    except Exception:
        was_raised = True
    finally:
        code = driver.attempt("cuStreamEndCapture", stream.handle, ctypes.byref(captured))
    if code == UNJOINED and not was_raised:
        raise Refused(LEFT_WORK, "left work")
    try:
        if captured.value and not (code or was_raised):
            nodes = ctypes.c_size_t()
            driver.call("cuGraphGetNodes", captured.value, None, ctypes.byref(nodes))
            handle = driver.get("cuGraphInstantiateWithFlags", ctypes.c_void_p, captured.value, 0)
            graph = Graph(stream, handle, nodes.value)
            driver.call("cuGraphUpload", graph.handle, stream.handle)
    finally:
        if captured.value:
            driver.attempt("cuGraphDestroy", captured.value)
    if graph is None:
        with suppress(Exception):  # Clear the broken capture's error: it would be reported later.
            runs[0]()
    stream.synchronise()
    return graph


class Stopwatch:
    """Times calls on a stream by events. Until all are queued, the stream waits for a flag."""

    def __init__(self, stream: Stream, *, can_queue_all: bool = True) -> None:
        """`can_queue_all`: queue all calls before the first starts. False once a call waits."""
        self.stream, self.can_queue_all, driver = stream, can_queue_all, stream.driver
        handle = driver.get("cuMemHostAlloc", ctypes.c_void_p, 4, PORTABLE | MAPPED)
        self._flag_memory = Owned(driver, handle, "cuMemFreeHost")
        self._flag = ctypes.c_uint32.from_address(handle)  # SHUT or OPEN; the GPU reads it, too.
        self._flag_address = driver.get("cuMemHostGetDevicePointer_v2", ctypes.c_uint64, handle, 0)
        events = [driver.get("cuEventCreate", ctypes.c_void_p, 0) for _ in range(2)]
        self._begin, self._end = (Owned(driver, event, "cuEventDestroy_v2") for event in events)

    def time(self, run: Run, calls: int = 1, limit_s: float | None = LAUNCH_LIMIT_S) -> float:
        """Seconds per call, for `calls` calls of `run`, which launches on the stream. `limit_s`: if
        launching takes longer, the stream goes on, and later calls do not wait: a `run` that waits
        for the GPU would hang. None: `run` never waits; that saves the timer thread's 0.2 ms."""
        driver, timer = self.stream.driver, None

        def open_early() -> None:
            """Let the stream go on before all calls are queued: one of them may wait for it."""
            self.can_queue_all, self._flag.value = False, OPEN

        if self.can_queue_all or limit_s is None:
            with suppress(Refused):  # A GPU that cannot wait for a flag is timed with its launches.
                self._flag.value = SHUT
                wait = (self.stream.handle, self._flag_address, OPEN, WAIT_EQUAL)
                driver.call("cuStreamWaitValue32_v2", *wait)
        try:
            if self.can_queue_all and limit_s is not None:
                timer = threading.Timer(limit_s, open_early)
                timer.daemon = True
                timer.start()
            driver.call("cuEventRecord", self._begin.handle, self.stream.handle)
            for _ in range(calls):
                run()
            driver.call("cuEventRecord", self._end.handle, self.stream.handle)
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
            self._flag.value = OPEN
            self.stream.synchronise()
        milliseconds = ctypes.c_float()  # The resolution is about half a microsecond.
        events = self._begin.handle, self._end.handle
        driver.call("cuEventElapsedTime_v2", ctypes.byref(milliseconds), *events)
        return milliseconds.value / 1e3 / calls


@functools.cache
def the_device() -> Device:
    """The device of this process: the first visible GPU."""
    return Device()


class DeviceLibrary(Compiled):
    """A loaded library whose kernels run on the GPU."""

    def prepare(self, call: Call, layout: str = "contiguous", has_zones: bool = True) -> Prepared:
        device = the_device()

        def allocate(nbytes: int, shift_bytes: int, dtype: str, zone_bytes: int) -> Memory:
            return DeviceMemory(device, nbytes, shift_bytes, dtype, zone_bytes if has_zones else 0)

        return CompiledCall(self.invoke, call, layout, device, allocate)

    def stage(self, places: Places, slowdown: float) -> Stage:
        calls = DeviceLibraryCalls(self.invoke, DevicePlaces(places))
        return DeviceStage(calls, slowdown, Stopwatch(the_device().stream))


class DevicePlaces(Places):
    """The tensors of a call in device memory, copied from and to shared memory."""

    def __init__(self, host: Places, *, holds_outputs: bool = True) -> None:
        """Allocate device memory for as many calls as `host` has room for, and copy the inputs.
        `holds_outputs`: whether calls get outputs passed, which need memory here."""
        device = the_device()
        call_count = len(host.output_offsets)
        super().__init__(host.memory, host.call, call_count)
        self.stream = device.stream.handle
        self.pools: list[DeviceMemory] = []
        self.doubled_pools: list[DeviceMemory] = []
        for begin, tensor in zip(self.input_offsets, self.call.inputs, strict=True):
            data = self.memory[begin : begin + tensor.pool_nbytes]
            self.pools.append(DeviceMemory(device, len(data), 0, tensor.dtype))
            self.pools[-1].write(0, data)
            # Twice in a row, so that one copy writes an input in any rotation.
            self.doubled_pools.append(DeviceMemory(device, 2 * len(data)))
            self.doubled_pools[-1].write(0, data + data)
        stride = -(-(self.call.output.nbytes + GAP) // ALIGNMENT) * ALIGNMENT
        self.output_stride = stride if holds_outputs else 0
        """Bytes from the output of one call to that of the next; 0: it holds none."""
        self.output_block = DeviceMemory(device, call_count * self.output_stride)
        """Outputs of all calls at equal distances: one operation fills or reads all."""
        self.input_addresses = [pool.address for pool in self.pools]
        block_address = self.output_block.address
        self.output_addresses = [block_address + n * self.output_stride for n in range(call_count)]

    def renew(self, call_count: int, rotations: Sequence[int]) -> None:
        """As in `Places`: write each input, rotated; fill the outputs with NaN."""
        device = the_device()
        for pool, doubled, rotation in zip(self.pools, self.doubled_pools, rotations, strict=True):
            source = doubled.address + rotation
            device.copy("cuMemcpyDtoDAsync_v2", pool.address, source, pool.nbytes)
        size = call_count * self.output_stride
        device.copy("cuMemsetD8Async", self.output_block.address, POISON, size)
        device.driver.attempt("cuCtxResetPersistingL2Cache")  # L2 that a kernel asked to keep.
        device.synchronise_all()

    def return_outputs(self, windows: Windows) -> None:
        """As in `Places`: outputs from the block, updated inputs from their windows."""
        block = self.output_block.read(0, len(windows) * self.output_stride)
        for number, (window, offset) in enumerate(zip(windows, self.output_offsets, strict=False)):
            for part in self.call.outputs:
                begin = number * self.output_stride + part.offset
                data = block[begin : begin + part.nbytes]
                if part.updated_input >= 0:
                    first_byte = window[part.updated_input] * part.itemsize
                    data = self.pools[part.updated_input].read(first_byte, part.nbytes)
                self.memory[offset + part.offset : offset + part.offset + len(data)] = data


class DeviceStage(Stage):
    """Calls timed on a GPU: one CUDA graph if they can be captured, otherwise separate launches."""

    def __init__(self, calls: TimedCalls, slowdown: float, stopwatch: Stopwatch) -> None:
        """`slowdown`: share of the calls, at least one, that run twice (positive control)."""
        self.calls, self.slowdown, self.stopwatch = calls, slowdown, stopwatch
        self.graphs: dict[tuple[tuple[int, ...], ...], tuple[Any, list[Any]]] = {}
        """Windows to what `TimedCalls.capture` returned for them."""

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Capture a graph for new windows; overwrite earlier results; rotate the inputs."""
        self.windows, key = windows, tuple(tuple(window) for window in windows)
        self.extra_calls = max(1, round(self.slowdown * len(windows))) if self.slowdown else 0
        if key not in self.graphs or self.graphs[key][0] is None:
            runs = self.calls.bind(windows)
            self.runs = [*runs[: self.extra_calls], *runs]
        if key not in self.graphs:  # Capture on old values: timed ones must be new to every call.
            self.graphs[key] = self.calls.capture(self.runs)
        self.graph, self.results = self.graphs[key]
        nodes = getattr(self.graph, "nodes", UNKNOWN_NODES)
        self.graph_nodes = 0 if self.graph is None else max(1, nodes)
        self.calls.overwrite(self.results)
        self.calls.places.renew(len(windows), rotations)  # Last: a result may view an input.

    def run(self, count: int) -> int:
        """Make all calls `count` times; return nanoseconds by GPU events. Waits for all work."""
        self.finished: Any = None

        def make_calls() -> None:
            self.results = [run() for run in self.runs]

        if self.graph is not None:
            seconds = count * self.stopwatch.time(self.graph.replay, count, None)
        elif self.stopwatch.can_queue_all:  # A stream queues one pass ahead, but not several.
            seconds = sum(self.stopwatch.time(make_calls) for _ in range(count))
        else:
            seconds = count * self.stopwatch.time(make_calls, count)
        the_device().synchronise_all()
        return int(seconds * 1e9)

    def finish_results(self) -> None:
        """As in `Stage`, without the results of a positive control's extra calls (the first)."""
        self.finished = self.calls.finish(self.results[self.extra_calls :])

    def copy_results(self) -> None:
        if self.finished is None:
            self.finish_results()
        self.calls.copy_results(self.windows, self.finished)


class DeviceLibraryCalls(LibraryCalls):
    """Timed calls of a compiled CUDA variant."""

    def capture(self, runs: Sequence[Run]) -> tuple[Any, list[Any]]:
        """As in `TimedCalls`. Refused if the calls launch no work, although they have an output."""
        graph = capture(the_device().stream, runs)
        if graph is not None and not graph.nodes and self.call.output.nbytes:
            raise Refused("launched nothing on the stream it was given", "launched nothing")
        return graph, []


class EmptyKernels(Stage):
    """Launches of an empty kernel in a graph, to measure the floor of a kernel's time."""

    graph_nodes = EMPTY_CALLS

    def __init__(self) -> None:
        """Capture EMPTY_CALLS launches of a kernel that does nothing in one graph."""
        driver, stream = the_device().driver, the_device().stream
        module = driver.get("cuModuleLoadData", ctypes.c_void_p, PTX)
        kernel = driver.get("cuModuleGetFunction", ctypes.c_void_p, module, b"empty")
        launch_arguments = (kernel, 1, 1, 1, 32, 1, 1, 0, stream.handle, None, None)
        launch = functools.partial(driver.call, "cuLaunchKernel", *launch_arguments)
        graph = capture(stream, [launch] * EMPTY_CALLS)
        if graph is None:
            raise Refused("empty kernels cannot be captured in a CUDA graph")
        self.graph, self.stopwatch = graph, Stopwatch(stream)

    def run(self, count: int) -> int:
        """Replay `count` launches, rounded to whole graphs (at least one); return nanoseconds."""
        replays = max(1, count // EMPTY_CALLS)
        return int(self.stopwatch.time(self.graph.replay, replays, None) * replays * 1e9)
