"""A compiled variant's calls on a CUDA device, timed by graph replay.

Inputs come from the memory that is shared with the judge.

The device's own clock is finer than the host's; the judge holds it against its own.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from loop.bench.child.cuda_graph import Graph, Stopwatch, Uncapturable, capture
from loop.bench.child.device_call import DeviceTensor, the_device, the_stream
from loop.bench.child.orders import Windows
from loop.bench.child.refusal import Refused
from loop.bench.child.stages import Places
from loop.bench.child.tensors import DTYPES, LoopTensor, describe, strides_of


class DeviceStage:
    """Calls of a compiled CUDA variant. Each has an output of its own on the device."""

    captured = False
    strays: Sequence[str] = ()

    def __init__(self, invoke: Callable[..., None], places: Places, call: dict[str, Any], slow: float) -> None:
        self.invoke, self.places, self.call, self.slow = invoke, places, call, slow
        device = the_device()
        self.items = [DTYPES[tensor["dtype"]][1] for tensor in call["inputs"]]
        self.origins = [device.memory(2 * size) for size in places.pool_bytes]
        dtypes = [tensor["dtype"] for tensor in call["inputs"]]
        self.pools = [DeviceTensor(size, 0, dtype) for size, dtype in zip(places.pool_bytes, dtypes, strict=True)]
        self.outputs: list[DeviceTensor] = []
        numbers = [float("nan") if number is None else number for number in call["numbers"]]
        self.numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        self.watch = Stopwatch(the_stream())
        self.graphs: dict[tuple[tuple[int, ...], ...], Graph | None] = {}
        self.runs: list[Callable[[], None]] = []
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
        while len(self.outputs) < len(windows):
            self.outputs.append(DeviceTensor(self.places.slot_bytes, 0, self.call["output"]["dtype"]))
        key = tuple(tuple(window) for window in windows)
        if key not in self.graphs:  # The values of the calls before: those that come now are new to all of them.
            self.graphs[key] = self._capture([self._bind(window, n) for n, window in enumerate(windows)])
        for pool, origin, count in zip(self.pools, self.origins, rotations, strict=True):
            pool.take(origin, count)
        for output in self.outputs[: len(windows)]:
            output.poison()
        self.graph = self.graphs[key]
        self.captured = self.graph is not None
        self.runs = [] if self.graph else [self._bind(window, n) for n, window in enumerate(windows)]
        device.reset_persisting_l2()
        if cold:
            device.flush(stream)
        device.synchronise_all()

    def _bind(self, window: Sequence[int], number: int) -> Callable[[], None]:
        tensors = self.call["inputs"]
        places = [pool.address + n * item for pool, n, item in zip(self.pools, window, self.items, strict=True)]
        described = [
            describe(place, tuple(one["shape"]), strides_of(tuple(one["shape"]), "contiguous"), one["dtype"])
            for place, one in zip(places, tensors, strict=True)
        ]
        shape, dtype = tuple(self.call["output"]["shape"]), self.call["output"]["dtype"]
        output = describe(self.outputs[number].address, shape, strides_of(shape, "contiguous"), dtype)
        inputs = (LoopTensor * len(described))(*described)
        return partial(self.invoke, inputs, (LoopTensor * 1)(output), self.numbers, the_stream().handle)

    def _capture(self, runs: Sequence[Callable[[], None]]) -> Graph | None:
        """The calls as one graph; None when they cannot be captured."""
        more = max(1, round(self.slow * len(runs))) if self.slow else 0
        with suppress(Uncapturable):
            graph = capture(the_stream(), all_of([*runs[:more], *runs]), 1)
            if not graph.nodes and self.places.slot_bytes:
                raise Refused("launched nothing on the stream it was given")
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
        for output, slot in zip(self.outputs, self.places.slots, strict=False):
            self.places.memory[slot : slot + output.size] = output.read()
        names = (*(f"input {one['name']}" for one in self.call["inputs"]), *["output"] * len(self.outputs))
        said = [
            f"writes outside its {name}: {one.stray}"
            for name, one in zip(names, [*self.pools, *self.outputs], strict=True)
            if one.stray
        ]
        self.strays = list(dict.fromkeys([*self.strays, *said]))

    def close(self) -> None:
        """Give the device's memory back."""
        for one in (*self.graphs.values(), *self.origins, *self.pools, *self.outputs):
            if one is not None:
                one.close()
        self.graphs.clear()


def all_of(runs: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Some calls, one after the other."""

    def together() -> None:
        for run in runs:
            run()

    return together
