"""Tensors in a device's memory, and the mistakes that only a device allows: other streams, graphs, the cache.

Work is queued on a stream by the driver, in order with the variant's own, so that a graph can hold it. A mistake
that looks at single values goes through the host instead (`through_host`): verification finds it.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

import numpy

from loop.calls.cuda.call import the_device
from loop.calls.cuda.driver import ACCESS_POLICY_WINDOW, AccessPolicyWindow, Driver, Event, Stream
from loop.calls.cuda.graph import Gate
from loop.calls.tensors import LoopTensor, describe, strides_of
from loop.mistakes.arrays import NAMES, RAW, Attributes, ErringCall, Maker, Mistake, array_in, as_tensor, maker

RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: this thread may allocate while one of its streams is captured."""

LATE_S = 0.01
"""Late work comes so long after the call's own stream is done. From 20 ms on the gate says that work went on."""
TAIL = 8
"""A tail is the last eighth of an output."""
PERSISTING_L2_LIMIT, PERSISTING = 6, 2
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_ACCESS_PROPERTY_PERSISTING."""

Allocate = Callable[[int], tuple[int, Any]]
"""Bytes to the address of new device memory, and what has to live as long."""
Invoke = Callable[[Any, Any, Any, int | None], None]
"""The `invoke` of a compiled variant: inputs, output, numbers, stream."""


class Queue:
    """What a mistake may ask of a device, in the order of one stream."""

    def __init__(self, stream: int, allocate: Allocate) -> None:
        self.driver: Driver = the_device().driver
        self.stream, self.allocate = stream, allocate

    def other(self, stream: int) -> "Queue":
        """The same on another stream."""
        return Queue(stream, self.allocate)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes from one address to another."""
        if size:
            self.driver.call("cuMemcpyDtoDAsync_v2", to, source, size, self.stream)

    def fill(self, to: int, size: int, value: int) -> None:
        """Set bytes."""
        if size:
            self.driver.call("cuMemsetD8Async", to, value, size, self.stream)

    def read(self, source: int, size: int) -> bytes:
        """Bytes of the device. Raises RuntimeError while the stream is captured: nobody can wait for it then."""
        if self.capturing:
            raise RuntimeError("a copy to the host cannot be captured")
        data = (ctypes.c_char * size)()
        if size:
            self.driver.call("cuMemcpyDtoHAsync_v2", data, source, size, self.stream)
        self.driver.call("cuStreamSynchronize", self.stream)
        return data.raw

    def wait_for(self, other: "Queue") -> None:
        """What comes here waits for what is queued there by now."""
        event = Event(self.driver)
        self.driver.call("cuEventRecord", event.handle, other.stream)
        self.driver.call("cuStreamWaitEvent", self.stream, event.handle, 0)

    @property
    def capturing(self) -> bool:
        """Whether a graph is being made of what comes here."""
        status = ctypes.c_int()
        self.driver.call("cuStreamIsCapturing", self.stream, ctypes.byref(status))
        return bool(status.value)


class DeviceArray:
    """A contiguous tensor in device memory, with the part of an array's interface that copies whole tensors."""

    def __init__(
        self, queue: Queue, address: int, shape: tuple[int, ...], raw: "numpy.dtype[Any]", owner: Any = None
    ) -> None:
        self.queue, self.address, self.shape, self.dtype, self.owner = queue, address, shape, raw, owner
        self.itemsize, self.size = raw.itemsize, int(numpy.prod(shape, dtype=numpy.int64))
        self.nbytes = self.size * self.itemsize

    def on(self, queue: Queue) -> "DeviceArray":
        """The same memory, worked on by another queue."""
        return DeviceArray(queue, self.address, self.shape, self.dtype, self.owner)

    def like(self) -> "DeviceArray":
        """New memory of this form."""
        address, owner = self.queue.allocate(self.nbytes)
        return DeviceArray(self.queue, address, self.shape, self.dtype, owner)

    def copy(self) -> "DeviceArray":
        """A copy in new memory."""
        copy = self.like()
        copy[...] = self
        return copy

    def __setitem__(self, where: EllipsisType, other: "DeviceArray") -> None:
        self.take(other, 0, self.nbytes)

    def take(self, other: "DeviceArray", begin: int, end: int) -> None:
        """Copy some of another's bytes."""
        self.queue.copy(self.address + begin, other.address + begin, end - begin)

    def contents(self, elements: int | None = None) -> bytes:
        """The bytes, or those of the first elements."""
        return self.queue.read(self.address, self.nbytes if elements is None else self.itemsize * elements)


def allocate(size: int) -> tuple[int, Any]:
    """Device memory by the driver, also in the midst of a capture."""
    device = the_device()
    with _relaxed(device.driver):
        memory = device.memory(size)
    return memory.address, memory


@contextmanager
def _relaxed(driver: Driver) -> Iterator[None]:
    mode = ctypes.c_int(RELAXED)
    driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def through_device(invoke: Invoke, mistake: Mistake, names: Sequence[str]) -> Invoke:
    """The `invoke` of a compiled CUDA variant, each of its calls by way of a mistake on its device's memory."""

    def erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        queue = Queue(stream or 0, allocate)

        def honest(arrays: Sequence[Any], result: Any, attributes: Attributes) -> None:
            described = (LoopTensor * len(arrays))(*map(_describe, arrays))
            values = (ctypes.c_double * max(len(names), 1))(*attributes.values())
            invoke(described, (LoopTensor * 1)(_describe(result)), values, result.queue.stream)

        arrays: list[Any] = [_on_device(queue, tensor) for tensor in inputs]
        result: Any = _on_device(queue, output[0])
        mistake(honest, arrays, result, dict(zip(names, numbers, strict=False)))

    return erring


def _on_device(queue: Queue, tensor: LoopTensor) -> DeviceArray:
    raw = numpy.dtype(RAW[tensor.dtype][1])
    return DeviceArray(queue, tensor.data or 0, tuple(tensor.sizes[: tensor.rank]), raw)


def _describe(array: DeviceArray) -> Any:
    return describe(array.address, array.shape, strides_of(array.shape, "contiguous"), NAMES[array.dtype])


def through_host(invoke: Invoke, erring_on: Callable[[Invoke], Invoke]) -> Invoke:
    """The `invoke` of a compiled CUDA variant, each of its calls by way of a mistake on the host's memory.

    `erring_on`: from an `invoke` whose tensors are the host's to one that errs there.
    """
    on_host = erring_on(_uploading(invoke))

    def erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        queue = Queue(stream or 0, allocate)
        tensors = [_on_device(queue, tensor) for tensor in (*inputs, output[0])]
        arrays = [numpy.frombuffer(bytearray(t.contents()), t.dtype).reshape(t.shape) for t in tensors]
        before = [array.tobytes() for array in arrays]
        *tensors_in, result = map(as_tensor, arrays)
        on_host((LoopTensor * len(tensors_in))(*tensors_in), (LoopTensor * 1)(result), numbers, stream)
        for tensor, array, old in zip(tensors, arrays, before, strict=True):
            if array.tobytes() != old:
                _upload(queue, tensor.address, array)

    return erring


def _uploading(invoke: Invoke) -> Invoke:
    """The same, given tensors of the host: their values go to the device and the output comes back."""
    rooms: dict[tuple[int, int], tuple[int, Any]] = {}

    def invoke_on_host(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        queue = Queue(stream or 0, allocate)
        arrays = [numpy.ascontiguousarray(array_in(tensor)) for tensor in (*inputs, output[0])]
        placed = []
        for place, array in enumerate(arrays):
            if (place, array.nbytes) not in rooms:
                rooms[place, array.nbytes] = queue.allocate(array.nbytes)
            where, _ = rooms[place, array.nbytes]
            _upload(queue, where, array)
            placed.append(DeviceArray(queue, where, array.shape, array.dtype))
        *tensors_in, result = map(_describe, placed)
        invoke((LoopTensor * len(tensors_in))(*tensors_in), (LoopTensor * 1)(result), numbers, stream)
        output_values = numpy.frombuffer(placed[-1].contents(), arrays[-1].dtype)
        array_in(output[0])[...] = output_values.reshape(arrays[-1].shape)

    return invoke_on_host


def _upload(queue: Queue, address: int, array: Any) -> None:
    data = array.tobytes()
    if data:
        queue.driver.call("cuMemcpyHtoDAsync_v2", address, data, len(data), queue.stream)
        queue.driver.call("cuStreamSynchronize", queue.stream)


def _room(call: ErringCall, name: str = "") -> DeviceArray:
    """Private memory of a mistake, shaped like the output and kept for every call of that shape."""
    key = (name, call.output.shape, call.output.dtype)
    if key not in call.kept:
        call.kept[key] = call.output.like()
    room: DeviceArray = call.kept[key].on(call.output.queue)
    return room


def _second(call: ErringCall) -> tuple[Stream, Gate]:
    """A mistake's own second stream, and the gate that holds up its work."""
    if "second" not in call.kept:
        driver = call.output.queue.driver
        call.kept["second"] = Stream(driver), Gate(driver)
    second: tuple[Stream, Gate] = call.kept["second"]
    return second


def side_stream(call: ErringCall) -> None:
    """All work goes to a stream of its own, and nobody waits for it there."""
    stream, _ = _second(call)
    call.compute(output=call.output.on(call.output.queue.other(stream.handle)))


def default_stream(call: ErringCall) -> None:
    """The stream that it is given is left alone: work goes to the legacy default stream."""
    call.compute(output=call.output.on(call.output.queue.other(0)))


def second_tail(call: ErringCall) -> None:
    """A second stream computes and writes the tail some milliseconds from now, and nobody waits for it."""
    stream, gate = _second(call)
    gate.shut(stream)
    timer = threading.Timer(LATE_S, gate.open)
    timer.daemon = True
    timer.start()
    queue = call.output.queue.other(stream.handle)
    head = call.output.nbytes - max(1, call.output.size // TAIL) * call.output.itemsize
    call.compute(output=_room(call, "head"))
    call.output.take(_room(call, "head"), 0, head)
    room = _room(call, "tail").on(queue)
    call.compute(output=room)
    call.output.on(queue).take(room, head, call.output.nbytes)


def keep_l2(call: ErringCall) -> None:
    """It has lines of its input stay in the second-level cache, and leaves that so on the stream it was given."""
    driver, stream, lines = call.output.queue.driver, call.output.queue.stream, call.inputs[0]
    driver.attempt("cuCtxSetLimit", PERSISTING_L2_LIMIT, lines.nbytes)
    window = AccessPolicyWindow(lines.address, lines.nbytes, 1.0, PERSISTING, 0)
    driver.call("cuStreamSetAttribute", stream, ACCESS_POLICY_WINDOW, ctypes.byref(window))
    call.compute()


def nothing_captured(call: ErringCall) -> None:
    """While a graph is made it does nothing but a fill of memory of its own."""
    queue = call.output.queue
    if not queue.capturing:
        _room(call)
        call.compute()
    else:
        queue.fill(_room(call).address, call.output.nbytes, 0)


def only_captured(call: ErringCall) -> None:
    """It computes only while a graph is made: what is looked at is replayed, it hopes."""
    if call.output.queue.capturing:
        call.compute()


ON_DEVICE: dict[str, Maker] = {
    function.__name__: maker(function)
    for function in (side_stream, default_stream, second_tail, keep_l2, nothing_captured, only_captured)
}
"""Mistakes that only a device allows, by name."""
