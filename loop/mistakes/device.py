"""Mistakes of a CUDA variant, by way of copies on the host."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from loop.calls.call import LoopTensor, describe, strides_of
from loop.calls.cuda.driver import Driver
from loop.calls.cuda.stage import the_device
from loop.mistakes.arrays import NAMES, RAW, Array, Mistake, Origin, array_in, as_tensor, through_library

Invoke = Callable[[Any, Any, Any, int | None], None]
"""The `invoke` of a compiled variant: inputs, output, numbers, stream."""


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
    status = ctypes.c_int()
    driver.call("cuStreamIsCapturing", stream, ctypes.byref(status))
    if status.value:
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
