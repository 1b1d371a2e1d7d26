"""Tensors in a device's memory, for the mistakes of compiled CUDA variants and of Python variants on a GPU.

Work is queued on a stream by the driver, in order with the variant's own, so that a graph can hold it. A mistake
that looks at single values goes through the host instead (`through_host`): verification finds it.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

import numpy

from loop.calls.cuda.call import the_device
from loop.calls.cuda.driver import Driver, Event, Owned
from loop.calls.cuda.graph import MAPPED, PORTABLE
from loop.calls.tensors import LoopTensor, describe, strides_of
from loop.mistakes.arrays import NAMES, RAW, Attributes, Mistake, array_in, as_tensor

RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: this thread may allocate while one of its streams is captured."""

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
        made = self.like()
        made[...] = self
        return made

    def __setitem__(self, where: EllipsisType, other: "DeviceArray") -> None:
        self.take(other, 0, self.nbytes)

    def take(self, other: "DeviceArray", begin: int, end: int) -> None:
        """Copy some of another's bytes."""
        self.queue.copy(self.address + begin, other.address + begin, end - begin)

    def contents(self, elements: int | None = None) -> bytes:
        """The bytes, or those of the first elements."""
        return self.queue.read(self.address, self.nbytes if elements is None else self.itemsize * elements)


class Pinned(Owned):
    """Memory of the host that the device writes to as if it were its own."""

    def __init__(self, driver: Driver, size: int) -> None:
        handle = driver.make("cuMemHostAlloc", ctypes.c_void_p, max(size, 1), PORTABLE | MAPPED)
        super().__init__(driver, handle, "cuMemFreeHost")
        self.address = driver.make("cuMemHostGetDevicePointer_v2", ctypes.c_uint64, handle, 0)


def allocate(size: int) -> tuple[int, Any]:
    """Device memory by the driver, also in the midst of a capture."""
    device = the_device()
    with _relaxed(device.driver):
        made = device.memory(size)
    return made.address, made


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
            given = (ctypes.c_double * max(len(names), 1))(*attributes.values())
            invoke(described, (LoopTensor * 1)(_describe(result)), given, result.queue.stream)

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
        *given, result = map(as_tensor, arrays)
        on_host((LoopTensor * len(given))(*given), (LoopTensor * 1)(result), numbers, stream)
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
        *given, result = map(_describe, placed)
        invoke((LoopTensor * len(given))(*given), (LoopTensor * 1)(result), numbers, stream)
        found = numpy.frombuffer(placed[-1].contents(), arrays[-1].dtype).reshape(arrays[-1].shape)
        array_in(output[0])[...] = found

    return invoke_on_host


def _upload(queue: Queue, address: int, array: Any) -> None:
    data = array.tobytes()
    if data:
        queue.driver.call("cuMemcpyHtoDAsync_v2", address, data, len(data), queue.stream)
        queue.driver.call("cuStreamSynchronize", queue.stream)
