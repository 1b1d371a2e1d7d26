"""Python variants whose calls go through a mistake: torch tensors to arrays and back."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.bench.child.controls.arrays import Array, Attributes, Mistake
from loop.bench.child.tensors import POISON

Function = Callable[..., Any]


def through_function(function: Function, mistake: Mistake) -> Function:
    """A function of tensors, each of its calls by way of `mistake`; its output starts as NaN."""
    forms: dict[tuple[tuple[torch.Size, torch.dtype], ...], tuple[tuple[int, ...], Any]] = {}

    def erring(*tensors: Tensor, **attributes: Any) -> Tensor:
        given = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if given not in forms:
            once = array_of(function(*tensors, **attributes))
            forms[given] = once.shape, once.dtype
        arrays = [array_of(tensor) for tensor in tensors]
        output = poisoned(*forms[given])
        mistake(_honest(function, tensors[0].device), arrays, output, attributes)
        _give_back(tensors, arrays)
        return tensor_of(output).to(tensors[0].device)

    return erring


def _honest(function: Function, device: torch.device) -> Callable[[Sequence[Array], Array, Attributes], None]:
    def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
        result[...] = array_of(function(*(tensor_of(array).to(device) for array in arrays), **attributes))

    return honest


def _give_back(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> None:
    """On a device the arrays are copies: what was written to them has to reach the tensors."""
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor.device.type != "cpu":
            tensor.copy_(tensor_of(array))


def poisoned(shape: tuple[int, ...], raw: Any) -> Array:
    """An output that nobody has written: NaN everywhere."""
    output = numpy.empty(shape, raw)
    output.view(numpy.uint8)[...] = POISON
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
