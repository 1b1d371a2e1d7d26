"""Timed calls of a compiled variant on a GPU, by replaying a CUDA graph.

Inputs come from memory shared with the judge. Times come from the GPU's events, which are finer
than the host's clock; the judge compares them with its own clock.
"""

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from loop.calls.call import Call, Refused, refuse_late_work
from loop.calls.cuda.driver import ALIGNMENT, Device, DeviceMemory, Driver, Event, Owned, Stream
from loop.calls.invocation import Places, Run, Stage, Windows
from loop.calls.library import Compiled, CompiledCall, Invocation
from loop.calls.memory import Memory

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: forbids calls of this thread that cannot be replayed."""
PORTABLE, MAPPED = 1, 2  # CU_MEMHOSTALLOC flags.
WAIT_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ.
UNJOINED = 904
"""CUDA_ERROR_STREAM_CAPTURE_UNJOINED: a stream forked from the captured one did not join again."""
LEFT_WORK = "left work on another stream, and its own does not wait for that"
SHUT, OPEN = 0, 1
LAUNCH_LIMIT_S = 0.02
"""Seconds of launching after which the gate opens anyway. A stream queues about 1000 launches."""
GAP = 512  # Minimum bytes after each output, so that a stray write damages no other output.
PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n"
"""A kernel that does nothing, in NVIDIA's assembly language."""
EMPTY_CALLS = 100  # Number of empty kernels in one graph.


class Uncapturable(Refused):
    """The calls are valid, but a CUDA graph cannot hold them: time them with events instead."""


class Graph(Owned):
    """`calls` calls in an executable CUDA graph, replayed by one launch."""

    def __init__(self, driver: Driver, handle: int, calls: int, nodes: int) -> None:
        """`nodes`: kernels, copies and fills of all `calls`; 0: the work went to another stream."""
        super().__init__(driver, handle, "cuGraphExecDestroy")
        self.calls, self.nodes = calls, nodes


def capture(stream: Stream, run: Callable[[], object], calls: int) -> Graph:
    """Capture `calls` calls of `run`, which launches on `stream`, into a graph. `run` is called
    once before, because first calls load code; its exceptions pass through. Raises Uncapturable if
    the calls cannot be captured, for example because they wait for the GPU; the stream stays
    usable. Raises Refused if work stays on another stream, for which nobody waits."""
    run()
    stream.synchronise()
    driver, captured_graph, error_text = stream.driver, ctypes.c_void_p(), ""
    driver.call("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
    try:
        for _ in range(calls):
            run()
    except Exception as error:
        error_text = f"{type(error).__name__}: {error}"
    finally:
        code = driver.attempt("cuStreamEndCapture", stream.handle, ctypes.byref(captured_graph))
    if code == UNJOINED and not error_text:
        raise Refused(LEFT_WORK, "left work")
    reason = "; ".join(filter(None, [error_text, driver.explain(code) if code else ""]))
    try:
        if not reason and captured_graph.value:
            nodes = ctypes.c_size_t()
            driver.call("cuGraphGetNodes", captured_graph.value, None, ctypes.byref(nodes))
            handle = driver.get("cuGraphInstantiateWithFlags", ctypes.c_void_p, captured_graph.value, 0)
            graph = Graph(driver, handle, calls, nodes.value)
            driver.call("cuGraphUpload", graph.handle, stream.handle)
            stream.synchronise()
            return graph
    finally:
        if captured_graph.value:
            driver.attempt("cuGraphDestroy", captured_graph.value)
    with suppress(Exception):  # Clear the error of the broken capture, which a CUDA runtime reports later.
        run()
    stream.synchronise()
    raise Uncapturable(f"cannot be captured in a CUDA graph: {reason or 'the capture gave no graph'}")


class Gate(Owned):
    """A flag (SHUT or OPEN) in host memory on which a stream waits, so that launches queue up."""

    def __init__(self, driver: Driver) -> None:
        handle = driver.get("cuMemHostAlloc", ctypes.c_void_p, 4, PORTABLE | MAPPED)
        super().__init__(driver, handle, "cuMemFreeHost")
        self._flag = ctypes.c_uint32.from_address(handle)  # In host memory; the GPU reads it by `_address`.
        self._address = driver.get("cuMemHostGetDevicePointer_v2", ctypes.c_uint64, handle, 0)
        self._flag.value = OPEN

    def shut(self, stream: Stream) -> None:
        """Make the stream wait at this point."""
        self._flag.value = SHUT
        self.driver.call("cuStreamWaitValue32_v2", stream.handle, self._address, OPEN, WAIT_EQUAL)

    def open(self) -> None:
        """Let the stream continue."""
        self._flag.value = OPEN


class Stopwatch:
    """Times calls on one stream by events. The first call starts when all are queued."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.can_queue_all = True
        """Whether all calls can be queued before the first starts; else times include launches."""
        self._gate = Gate(stream.driver)
        self._begin, self._end = Event(stream.driver), Event(stream.driver)

    def time(self, run: Callable[[], object], calls: int = 1, limit_s: float | None = LAUNCH_LIMIT_S) -> float:
        """Seconds per call, for `calls` calls of `run`, which launches on the stream. `limit_s`: if launching
        takes longer, the gate opens, and later calls use none: a `run` that waits for the GPU would hang. None:
        `run` never waits. That saves 0.2 ms for the timer thread."""
        timer: threading.Timer | None = None

        def open_early() -> None:
            """Let the stream go on before all calls are queued: one of them may wait for it."""
            self.can_queue_all = False
            self._gate.open()

        if self.can_queue_all or limit_s is None:
            with suppress(Refused):  # A GPU that cannot wait for a flag is timed with its launches.
                self._gate.shut(self.stream)
        try:
            if self.can_queue_all and limit_s is not None:
                timer = threading.Timer(limit_s, open_early)
                timer.daemon = True
                timer.start()
            self._begin.record(self.stream)
            for _ in range(calls):
                run()
            self._end.record(self.stream)
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
            self._gate.open()
            self.stream.synchronise()
        return self._begin.seconds_until(self._end) / calls

    def replay(self, graph: Graph, replays: int = 1) -> float:
        """Time `replays` replays of a graph; return the seconds of one of the graph's calls. There is no
        limit on launching, because a replay never waits for the GPU."""
        launch = partial(graph.driver.call, "cuGraphLaunch", graph.handle, self.stream.handle)
        return self.time(launch, replays, None) / graph.calls


@functools.cache
def the_device() -> Device:
    """The device of this process: the first visible GPU."""
    return Device()


@functools.cache
def the_stream() -> Stream:
    """The stream passed to variants."""
    return Stream(the_device().driver)


class DeviceLibrary(Compiled):
    """A loaded library whose kernels run on the GPU."""

    def prepare(self, call: Call, layout: str = "contiguous") -> "DeviceCompiledCall":
        return DeviceCompiledCall(self.invoke, call, layout)

    def stage(self, places: Places, call: Call, slowdown: float) -> Stage:
        return DeviceStage(self.invoke, places, call, slowdown)


class DeviceCompiledCall(CompiledCall):
    """A checked call of a compiled CUDA variant."""

    def allocate(self, nbytes: int, misalignment_bytes: int, dtype: str, zone_bytes: int) -> Memory:
        """As in `Prepared`, on the GPU. Also chooses the stream, before the first call."""
        self.stream = the_stream().handle
        return DeviceMemory(the_device(), nbytes, misalignment_bytes, dtype, zone_bytes)

    def bind(self) -> Run:
        """Return a function that makes the call and waits until the GPU is done."""
        launch = super().bind()

        def launch_and_wait() -> None:
            launch()
            the_stream().synchronise()

        return launch_and_wait

    def read_output(self) -> bytes:
        """Wait for the stream; return the last output's bytes. Refused if another stream works."""
        the_stream().synchronise()
        data = super().read_output()
        refuse_late_work(the_device().synchronise_all)
        return data


class ExactCall(DeviceCompiledCall):
    """A call whose tensors are allocations without guard zones, for sanitizers."""

    def allocate(self, nbytes: int, misalignment_bytes: int, dtype: str, zone_bytes: int) -> Memory:
        """As in `Prepared`, but aligned and without guard zones: then sanitizers see stray accesses."""
        return super().allocate(nbytes, 0, dtype, 0)


class DeviceStage(Stage):
    """Timed calls of a compiled CUDA variant. All outputs lie in one block of device memory."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slowdown: float) -> None:
        """`slowdown`: share of the calls that run twice, for a positive control."""
        self.invoke, self.places, self.call, self.slowdown = invoke, places, call, slowdown
        device = the_device()
        self.doubled_pools = [DeviceMemory(device, 2 * size) for size in places.pool_bytes]
        """Each input twice in a row, so that one copy writes it in any rotation."""
        self.pools = [DeviceMemory(device, tensor.pool_nbytes, 0, tensor.dtype) for tensor in call.inputs]
        self.output_block = DeviceMemory(device, 0)
        """Outputs of all calls at equal distances: one operation fills or reads all."""
        self.output_stride = -(-(places.output_bytes + GAP) // ALIGNMENT) * ALIGNMENT
        """Bytes from the output of one call to that of the next."""
        self.stopwatch = Stopwatch(the_stream())
        self.graphs: dict[tuple[tuple[int, ...], ...], Graph | None] = {}
        """Windows to their graph; None if capture is impossible."""
        self.graph: Graph | None = None
        self.windows: Windows = ()
        for begin, doubled, pool in zip(places.input_offsets, self.doubled_pools, self.pools, strict=True):
            data = places.memory[begin : begin + pool.nbytes]
            doubled.write(0, data + data)
            pool.fill(data)

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Capture a graph for windows not seen before; rotate the inputs; fill outputs with NaN."""
        device = the_device()
        self.windows = windows
        block_bytes = len(windows) * self.output_stride
        if self.output_block.nbytes < block_bytes:  # The block moves, which invalidates all captured graphs.
            self._destroy_graphs()
            self.output_block.close()
            self.output_block = DeviceMemory(device, block_bytes)
        key = tuple(tuple(window) for window in windows)
        if self.graphs.get(key) is None:
            inputs, stream, runs = [pool.address for pool in self.pools], the_stream().handle, list[Run]()
            for number, window in enumerate(windows):
                begin = self.output_block.address + number * self.output_stride
                outputs = [begin + part.offset for part in self.call.separate_outputs]
                invocation = Invocation(self.invoke, self.call, inputs, outputs, stream=stream)
                runs.append(invocation.move_to(window))
            # For a positive control the first calls run twice, which slows the variant down.
            extra_calls = max(1, round(self.slowdown * len(windows))) if self.slowdown else 0
            self.runs = [*runs[:extra_calls], *runs]
        if key not in self.graphs:  # Capture on the old values: timed values must be new to every call.
            self.graphs[key] = self._capture()
        for pool, doubled, rotation in zip(self.pools, self.doubled_pools, rotations, strict=True):
            pool.copy_from(doubled, rotation)
        self.output_block.poison()
        self.graph = self.graphs[key]
        self.is_captured = self.graph is not None
        device.driver.call("cuCtxResetPersistingL2Cache")  # Lines of L2 that a kernel asked to keep.
        device.synchronise_all()

    def _make_calls(self) -> None:
        """Launch each prepared call once on the stream, without waiting."""
        for run in self.runs:
            run()

    def _capture(self) -> Graph | None:
        """Capture the calls as one graph; None if impossible. Refused if they launch no work, although
        they have an output to write."""
        with suppress(Uncapturable):
            graph = capture(the_stream(), self._make_calls, 1)
            if not graph.nodes and self.places.output_bytes:
                raise Refused("launched nothing on the stream it was given", "launched nothing")
            return graph
        return None

    def run(self, count: int) -> int:
        """Replay all calls `count` times; return nanoseconds by GPU events. Waits for all work."""
        if self.graph is not None:
            seconds = count * self.stopwatch.replay(self.graph, count)
        else:
            seconds = sum(self.stopwatch.time(self._make_calls) for _ in range(count))
        the_device().synchronise_all()
        return int(seconds * 1e9)

    def copy_results(self) -> None:
        """Copy the outputs of each call to where the judge reads them."""
        data, inputs = self.output_block.read_tensor(), self.call.inputs

        def read_input(window: Sequence[int], number: int) -> bytes:
            """Bytes of an input in the window of a call, which may have changed it in place."""
            begin = window[number] * inputs[number].itemsize
            return self.pools[number].read(begin, inputs[number].nbytes)

        calls = zip(self.windows, self.places.output_offsets, strict=False)
        for call_number, (window, offset) in enumerate(calls):
            call_data = data[call_number * self.output_stride :][: self.output_stride]
            separate = [call_data[part.offset :][: part.nbytes] for part in self.call.separate_outputs]
            block = self.call.join_outputs(separate, partial(read_input, window))
            self.places.memory[offset : offset + len(block)] = block

    def close(self) -> None:
        """Free the graphs and all device memory."""
        self._destroy_graphs()
        for memory in (*self.doubled_pools, *self.pools, self.output_block):
            memory.close()

    def _destroy_graphs(self) -> None:
        """Destroy the graphs of all windows; the next `prepare_calls` captures anew."""
        for graph in self.graphs.values():
            if graph is not None:
                graph.close()
        self.graphs.clear()


class EmptyKernels(Stage):
    """Launches of an empty kernel in a graph, to measure the floor of a kernel's time."""

    is_captured = True

    def __init__(self) -> None:
        """Capture EMPTY_CALLS launches of a kernel that does nothing in one graph."""
        driver, stream = the_device().driver, the_stream()
        module = driver.get("cuModuleLoadData", ctypes.c_void_p, PTX)
        kernel = driver.get("cuModuleGetFunction", ctypes.c_void_p, module, b"empty")

        def launch() -> None:
            driver.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, stream.handle, None, None)

        self.graph, self.stopwatch = capture(stream, launch, EMPTY_CALLS), Stopwatch(stream)

    def run(self, count: int) -> int:
        """Replay `count` launches, rounded to whole graphs (at least one); return nanoseconds."""
        replays = max(1, count // EMPTY_CALLS)
        return int(self.stopwatch.replay(self.graph, replays) * replays * EMPTY_CALLS * 1e9)

    def close(self) -> None:
        self.graph.close()
