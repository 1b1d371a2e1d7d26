"""The values of inputs, as the judge makes them from a seed, or a target does."""

from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.calls.refusal import Refused
from loop.calls.torch_side import TORCH_DTYPES
from loop.model.functions import Fill


def make_values(
    fill: Fill, stream: numpy.random.RandomState, tensor: TensorFile, axis: int | None
) -> numpy.ndarray:
    """Seeded values of one input tensor, float32, with the room it has: [elements + room].

    `axis`: along which one index is NaN.

    numpy.random.RandomState is frozen by NEP 19: a seed gives the same values in every release.
    """
    shape, scale = tensor.shape, fill.scale
    values = numpy.full(shape, scale, dtype=numpy.float32)
    if fill.kind == "normal":
        count = tensor.elements + tensor.room
        values = (stream.standard_normal(count) * scale).astype(numpy.float32)
    elif fill.kind == "one_hot" and values.size:
        places = stream.randint(shape[-1], size=(*shape[:-1], 1))
        values = numpy.where(numpy.arange(shape[-1]) == places, numpy.float32(scale), numpy.float32(0))
    if fill.offset:  # In float64: a small deviation around a large mean is rounded once.
        values = (values.astype(numpy.float64) + fill.offset).astype(numpy.float32)
    if axis is not None and values.size:
        values = values.reshape(shape)
        index = [slice(None)] * len(shape)
        index[axis] = slice(place := int(stream.randint(shape[axis])), place + 1)
        values[tuple(index)] = numpy.nan
    return values.reshape(-1)


def make_tensor(fill: Fill, seed: int, index: int, tensor: TensorFile, axis: int | None = None) -> Tensor:
    """The values of one input, rounded to its type, flat: what stands in its file.

    With every other seed the ends matter: a greatest or least value is what a loop that ends early leaves out.
    """
    stream = numpy.random.RandomState((seed * 64 + index) % 2**32)
    values = make_values(fill, stream, tensor, axis)
    if seed % 2 and fill.kind == "normal" and not tensor.room:
        values = extremes_to_ends(values.reshape(tensor.shape), stream).reshape(-1)
    if tensor.same >= 0 and values.size:
        first = values.reshape(tensor.shape).take([0], axis=tensor.same)
        values = numpy.broadcast_to(first, tensor.shape).reshape(-1)
    return torch.from_numpy(values).to(TORCH_DTYPES[tensor.dtype])


def extremes_to_ends(values: numpy.ndarray, stream: numpy.random.RandomState) -> numpy.ndarray:
    """The same values in another order: along each axis the greatest one last, and the least one first.

    Axes come in random order, and each disturbs what the ones before it did.
    """
    for axis in stream.permutation(values.ndim):
        lines = numpy.moveaxis(values, axis, -1)
        for pick, place in ((numpy.argmax, -1), (numpy.argmin, 0)) if lines.size else ():
            where = pick(lines, axis=-1)[..., None]
            found, end = numpy.take_along_axis(lines, where, -1), lines[..., place].copy()
            numpy.put_along_axis(lines, where, end[..., None], -1)
            lines[..., place] = found[..., 0]
    return values


def as_input(made: Any, tensor: TensorFile) -> Tensor:
    """What a target made for one input, rounded to its type, flat. Raises Refused when it is of another shape."""
    if type(made) is not Tensor or list(made.shape) != list(tensor.shape):
        got = list(made.shape) if type(made) is Tensor else type(made).__name__
        raise Refused(f"the maker of inputs: expected {tensor.name} of shape {list(tensor.shape)}, got {got}")
    return made.reshape(-1).to(TORCH_DTYPES[tensor.dtype])
