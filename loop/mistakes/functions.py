"""Python variants whose calls go through a mistake, on arrays of the host or in a device's own memory."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.tensors import POISON
from loop.mistakes.arrays import Array, Attributes, Mistake
from loop.mistakes.device import DeviceArray, Queue

Function = Callable[..., Any]


def through_function(function: Function, mistake: Mistake) -> Function:
    """A function of tensors, each of its calls by way of `mistake`; its output starts as NaN."""
    form = _forms(function)

    def erring(*tensors: Tensor, **attributes: Any) -> Tensor:
        shape, dtype = form(tensors, attributes)
        arrays = [array_of(tensor) for tensor in tensors]
        output = poisoned(shape, array_of(torch.empty(0, dtype=dtype)).dtype)
        mistake(_honest(function, tensors[0].device), arrays, output, attributes)
        _give_back(tensors, arrays)
        return tensor_of(output).to(tensors[0].device)

    return erring


def _forms(function: Function) -> Callable[[Sequence[Tensor], dict[str, Any]], tuple[torch.Size, torch.dtype]]:
    """Shape and type of a function's result, by those of what it is given; found out once for each."""
    known: dict[tuple[tuple[torch.Size, torch.dtype], ...], tuple[torch.Size, torch.dtype]] = {}

    def form(tensors: Sequence[Tensor], attributes: dict[str, Any]) -> tuple[torch.Size, torch.dtype]:
        given = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if given not in known:
            once = function(*tensors, **attributes)
            known[given] = once.shape, once.dtype
        return known[given]

    return form


def through_device(function: Function, mistake: Mistake) -> Function:
    """The same for mistakes on device memory: all work is queued on torch's current stream."""
    form = _forms(function)

    def erring(*tensors: Tensor, **attributes: Any) -> Tensor:
        device = tensors[0].device

        def allocate(size: int) -> tuple[int, Any]:
            memory = torch.empty(size, dtype=torch.uint8, device=device)
            return memory.data_ptr(), memory

        def honest(arrays: Sequence[Any], result: Any, attributes: Attributes) -> None:
            with _on(result.queue.stream, device):
                made = function(*map(_tensor_on_device, arrays), **attributes).contiguous()
                result.queue.copy(result.address, made.data_ptr(), result.nbytes)

        queue = Queue(_current(device), allocate)
        shape, dtype = form(tensors, attributes)
        output = torch.empty(shape, dtype=dtype, device=device)
        arrays: list[Any] = [_on_device(queue, tensor) for tensor in tensors]
        result: Any = _on_device(queue, output)
        queue.fill(result.address, result.nbytes, POISON)
        mistake(honest, arrays, result, attributes)
        return output

    return erring


def _current(device: torch.device) -> int:
    """Handle of the stream that torch uses now; 0, the legacy default stream, for tensors of the host."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _on(stream: int, device: torch.device) -> AbstractContextManager[Any]:
    """Torch's work in here goes to a stream."""
    if stream == _current(device) or device.type != "cuda":
        return nullcontext()
    external = torch.cuda.ExternalStream
    return torch.cuda.stream(external(stream) if stream else torch.cuda.default_stream(device))  # type: ignore[no-untyped-call]


def _on_device(queue: Queue, tensor: Tensor) -> DeviceArray:
    raw = array_of(torch.empty(0, dtype=tensor.dtype)).dtype
    return DeviceArray(queue, tensor.data_ptr(), tuple(tensor.shape), raw, tensor)


def _tensor_on_device(array: DeviceArray) -> Tensor:
    """The tensor that an array was made of, or one in the memory that it owns."""
    owner: Tensor = array.owner
    if owner.dtype == torch.uint8:
        dtype = tensor_of(numpy.empty(0, array.dtype)).dtype
        return owner[: prod(array.shape) * array.itemsize].view(dtype).reshape(array.shape)
    return owner


def _honest(function: Function, device: torch.device) -> Callable[[Sequence[Array], Array, Attributes], None]:
    def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
        result[...] = array_of(function(*(tensor_of(array).to(device) for array in arrays), **attributes))

    return honest


def _give_back(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> None:
    """On a device the arrays are copies: what was written to them has to reach the tensors."""
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor.device.type != "cpu":
            tensor.copy_(tensor_of(array))


def poisoned(shape: Sequence[int], raw: Any) -> Array:
    """An output that nobody has written: NaN everywhere."""
    output = numpy.empty(tuple(shape), raw)
    output.reshape(-1).view(numpy.uint8)[...] = POISON
    return output


def array_of(tensor: Tensor) -> Array:
    """A tensor's bits as an array, in its own memory where that is the host's."""
    host = tensor.detach().cpu()
    return host.view(torch.int16).numpy().view(numpy.uint16) if host.dtype == torch.bfloat16 else host.numpy()


def tensor_of(array: Array) -> Tensor:
    """A plain tensor in an array's memory."""
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
