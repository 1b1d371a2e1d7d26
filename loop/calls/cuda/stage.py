"""A compiled variant's calls on a CUDA device, timed by graph replay.

Inputs come from the memory that is shared with the judge.

The device's own clock is finer than the host's; the judge holds it against its own.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from loop.calls.call import Call, Refused
from loop.calls.cuda.call import DeviceTensor, the_device, the_stream
from loop.calls.cuda.driver import ALIGNMENT, DeviceBuffer
from loop.calls.cuda.graph import Graph, Stopwatch, Uncapturable, capture
from loop.calls.invocation import Places, Stage, Windows
from loop.calls.memory import stray
from loop.calls.tensors import POISON

ZONE = 512
"""Random bytes before each output of a sample, and after the last, at least."""


class DeviceStage(Stage):
    """Calls of a compiled CUDA variant. Each has an output of its own on the device."""

    def __init__(self, invoke: Callable[..., None], places: Places, call: Call, slow: float) -> None:
        self.invoke, self.places, self.call, self.slow = invoke, places, call, slow
        device = the_device()
        self.origins = [device.memory(2 * size) for size in places.pool_bytes]
        self.pools = [DeviceTensor(tensor.pool_size, 0, tensor.dtype) for tensor in call.inputs]
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
            origin.fill(data + data)
            pool.fill(data)

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Rotate inputs, poison outputs; capture the calls where these windows are new."""
        device, stream = the_device(), the_stream()
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
        device.reset_persisting_l2()
        if cold:
            device.flush(stream)
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
        self._block: DeviceBuffer | None = None
        self._fresh: DeviceBuffer | None = None
        """The block as it is before the calls."""
        self._image = b""

    def make(self, count: int) -> bool:
        """Make room for so many; whether they are elsewhere now."""
        if count <= self.count:
            return False
        self.close()
        self.count = count
        zone, poisoned = self._step - self.size, bytes([POISON]) * self.size
        zones = [os.urandom(ZONE), *(os.urandom(zone) for _ in range(count))]
        self._image = poisoned.join(zones)
        self._block, self._fresh = (the_device().memory(len(self._image)) for _ in range(2))
        self._fresh.fill(self._image)
        return True

    def address(self, number: int) -> int:
        """Where an output begins."""
        return (self._block.address if self._block else 0) + ZONE + number * self._step

    def poison(self) -> None:
        """Make every output NaN, and the zones what they were."""
        if self._block is not None and self._fresh is not None:
            self._block.copy_from(self._fresh, self._block.size, 0)

    def read(self) -> list[bytes]:
        """All outputs; what lies between them is looked at."""
        data = self._block.read() if self._block is not None else b""
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
        self._block = self._fresh = None
        self.count = 0


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
