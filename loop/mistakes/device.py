"""Mistakes of a CUDA variant: by way of copies on the host, or in the stream that its work is launched on.

What goes through the host is found by verification. The streams' mistakes copy nothing, so a graph can hold them.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from loop.calls.cuda.call import the_device
from loop.calls.cuda.driver import Driver, Stream
from loop.calls.tensors import LoopTensor, describe, strides_of
from loop.mistakes.arrays import NAMES, RAW, Array, Mistake, Origin, array_in, as_tensor, through_library

Invoke = Callable[[Any, Any, Any, int | None], None]
"""The `invoke` of a compiled variant: inputs, output, numbers, stream."""
Launch = Callable[[int], None]
"""Launch a call's work on a stream."""


def through_host(invoke: Invoke, mistake: Mistake, names: Sequence[str]) -> Invoke:
    """The `invoke` of a compiled CUDA variant, each of its calls by way of a mistake on copies of its tensors."""
    on_host = through_library(_uploading(invoke), mistake, names)

    def erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        tensors, driver = (*inputs, output[0]), the_device().driver

        def fill(to: int, size: int, value: int) -> None:
            driver.call("cuMemsetD8Async", to, value, size, stream or 0)

        arrays = [_download(driver, tensor, stream or 0) for tensor in tensors]
        before = [array.tobytes() for array in arrays]
        *tensors_in, result = map(as_tensor, arrays)
        origin = Origin(tuple(tensor.data or 0 for tensor in tensors), fill)
        on_host((LoopTensor * len(tensors_in))(*tensors_in), (LoopTensor * 1)(result), numbers, stream, origin)
        for tensor, array, old in zip(tensors, arrays, before, strict=True):
            if array.tobytes() != old:
                _upload(driver, tensor.data, array, stream or 0)

    return erring


def _uploading(invoke: Invoke) -> Invoke:
    """The same, given tensors of the host: their values go to the device and the output comes back."""
    rooms: dict[tuple[int, int], Any] = {}

    def invoke_on_host(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        device, placed = the_device(), []
        for place, tensor in enumerate((*inputs, output[0])):
            array = numpy.ascontiguousarray(array_in(tensor))
            if (place, array.nbytes) not in rooms:
                rooms[place, array.nbytes] = device.memory(array.nbytes)
            where = rooms[place, array.nbytes].address
            _upload(device.driver, where, array, stream or 0)
            placed.append(describe(where, array.shape, strides_of(array.shape, "contiguous"), NAMES[array.dtype]))
        *tensors_in, result = placed
        invoke((LoopTensor * len(tensors_in))(*tensors_in), (LoopTensor * 1)(result), numbers, stream)
        array_in(output[0])[...] = _download(device.driver, result, stream or 0)

    return invoke_on_host


def _download(driver: Driver, tensor: Any, stream: int) -> Array:
    """A contiguous tensor of the device as an array. Raises RuntimeError while the stream is captured."""
    if capturing(stream):
        raise RuntimeError("a copy to the host cannot be captured")
    array = numpy.empty(tuple(tensor.sizes[: tensor.rank]), RAW[tensor.dtype][1])
    if array.nbytes:
        driver.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, tensor.data, array.nbytes, stream)
    driver.call("cuStreamSynchronize", stream)
    return array


def _upload(driver: Driver, address: int, array: Array, stream: int) -> None:
    data = array.tobytes()
    if data:
        driver.call("cuMemcpyHtoDAsync_v2", address, data, len(data), stream)
        driver.call("cuStreamSynchronize", stream)


def capturing(stream: int) -> bool:
    """Whether a graph is being made of what comes on a stream."""
    status = ctypes.c_int()
    the_device().driver.call("cuStreamIsCapturing", stream, ctypes.byref(status))
    return bool(status.value)


def on_stream(launch: Launch, stream: int, kept: dict[str, Any]) -> None:
    """No mistake: work goes to the stream that is given."""
    launch(stream)


def side_stream(launch: Launch, stream: int, kept: dict[str, Any]) -> None:
    """All work goes to a stream of its own, and nobody waits for it there."""
    if "own" not in kept:
        kept["own"] = Stream(the_device().driver)
    launch(kept["own"].handle)


def default_stream(launch: Launch, stream: int, kept: dict[str, Any]) -> None:
    """The stream that it is given is left alone: work goes to the legacy default stream."""
    launch(0)


def nothing_captured(launch: Launch, stream: int, kept: dict[str, Any]) -> None:
    """While a graph is made it does nothing."""
    if not capturing(stream):
        launch(stream)


def only_captured(launch: Launch, stream: int, kept: dict[str, Any]) -> None:
    """It computes only while a graph is made: what is looked at is replayed, it hopes."""
    if capturing(stream):
        launch(stream)


STREAMS: dict[str, Callable[[Launch, int, dict[str, Any]], None]] = {
    launches.__name__: launches
    for launches in (on_stream, side_stream, default_stream, nothing_captured, only_captured)
}
"""Mistakes in the stream that a call uses, by name."""


def through_stream(invoke: Invoke, make: str) -> Invoke:
    """The `invoke` of a compiled CUDA variant, whose work is launched as one of `STREAMS` says."""
    kept: dict[str, Any] = {}

    def erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        STREAMS[make](lambda other: invoke(inputs, output, numbers, other), stream or 0, kept)

    return erring
