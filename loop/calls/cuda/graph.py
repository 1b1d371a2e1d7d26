"""Calls on a CUDA stream, timed: captured in a graph where that works, else queued behind a gate."""

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from loop.calls.call import Refused
from loop.calls.cuda.driver import Device, Driver, Event, Owned, Stream, elapsed_s

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: while capturing, this thread may do nothing that could not be replayed."""
KERNEL_NODE, GRAPH_NODE = 0, 4
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

    def __init__(self, driver: Driver, handle: int, calls: int, kinds: "Counter[int]") -> None:
        super().__init__(driver, handle, "cuGraphExecDestroy")
        self.calls = calls
        self.kernels = kinds[KERNEL_NODE]
        """Kernels of all its calls. None at all: the work went to another stream, or there is none."""
        self.nodes = kinds.total()
        """Kernels, copies, fills and all else."""

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
            kinds = _count_nodes(driver, captured.value)
            handle = driver.make("cuGraphInstantiateWithFlags", ctypes.c_void_p, captured.value, 0)
            graph = Graph(driver, handle, calls, kinds)
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


def _count_nodes(driver: Driver, graph: int) -> "Counter[int]":
    """Nodes by kind, those of graphs inside the graph included."""
    count = ctypes.c_size_t()
    driver.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * max(count.value, 1))()
    if count.value:
        driver.call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    kinds: Counter[int] = Counter()
    for node in nodes[: count.value]:
        kind, inner = ctypes.c_int(), ctypes.c_void_p()
        driver.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value == GRAPH_NODE:
            driver.call("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(inner))
            kinds += _count_nodes(driver, inner.value or 0)
        else:
            kinds[kind.value] += 1
    return kinds


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
        self, run: Callable[[], None], calls: int = 1, hold_s: float = HOLD_S, *, gated: bool = True
    ) -> GraphTiming:
        """Time `calls` calls of `run`, which launches on the stream; at most MAX_QUEUED.

        After `hold_s` seconds of launching the gate opens: work that waits for the GPU would wait for ever.
        Without a gate the launches are part of the time.
        """
        if not 1 <= calls <= MAX_QUEUED:
            raise ValueError(f"expected 1 to {MAX_QUEUED} calls, got {calls}")
        if not gated:
            self._queue(run, calls)
            self.stream.synchronise()
            return GraphTiming(elapsed_s(self._begin, self._end) / calls, queued=False)
        overdue = threading.Event()

        def open_early() -> None:
            overdue.set()
            self._gate.open()

        guard = threading.Timer(hold_s, open_early)
        guard.daemon = True
        self._gate.shut(self.stream)
        try:
            guard.start()
            self._queue(run, calls)
        finally:
            guard.cancel()
            if guard.is_alive():
                guard.join()
            self._gate.open()
            self.stream.synchronise()
        return GraphTiming(elapsed_s(self._begin, self._end) / calls, not overdue.is_set())

    def _queue(self, run: Callable[[], None], calls: int) -> None:
        self._begin.record(self.stream)
        for _ in range(calls):
            run()
        self._end.record(self.stream)

    def replay(self, graph: Graph, times: int = 1) -> GraphTiming:
        """Time replays of a graph, at most MAX_QUEUED; seconds of one of its calls.

        Launching a graph waits for nothing, so that the gate needs no guard: starting one takes 0.2 ms.
        """
        if not 1 <= times <= MAX_QUEUED:
            raise ValueError(f"expected 1 to {MAX_QUEUED} replays, got {times}")
        self._gate.shut(self.stream)
        try:
            self._queue(lambda: graph.launch(self.stream), times)
        finally:
            self._gate.open()
            self.stream.synchronise()
        return GraphTiming(elapsed_s(self._begin, self._end) / (times * graph.calls), queued=True)


def late_work(device: Device, stream: Stream) -> float:
    """Seconds that work on other streams went on after `stream` was done.

    Over a millisecond or so, a variant's work was not all on the stream it was given.
    """
    stream.synchronise()
    begin = time.perf_counter()
    device.synchronise_all()
    return time.perf_counter() - begin
