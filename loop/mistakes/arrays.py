"""Tensors as numpy arrays, so that a mistake is written once for compiled and for Python variants.

numpy has no bfloat16: its bits stand in uint16, which no other element type uses.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
from numpy.lib.stride_tricks import as_strided

from loop.calls.call import LoopTensor, describe

Array: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]
Terms = dict[str, Any]
"""What a mistake has to know: `make` names it, the rest is its own."""
Attributes = dict[str, Any]
"""Name to value: as the manifest writes it for a Python variant, as a double for a compiled one."""
Honest = Callable[[Sequence[Any], Any, Attributes], None]
"""The real variant: inputs, output, attributes."""


@dataclass(frozen=True)
class Origin:
    """Where the tensors of a call are, whose copies a mistake sees."""

    addresses: tuple[int, ...]
    """Of the inputs, then of the output."""
    fill: Callable[[int, int, int], object]
    """Set bytes there: address, size, value."""


@dataclass
class ErringCall:
    """One call of a variant that errs."""

    honest: Honest
    inputs: list[Any]
    output: Any
    attributes: Attributes
    terms: Terms
    number: int
    """Calls before this one."""
    kept: dict[Any, Any]
    """What the mistake keeps from call to call."""
    origin: Origin

    def compute(
        self, inputs: Sequence[Any] | None = None, output: Any = None, changed: Attributes | None = None
    ) -> None:
        """What the real variant does, with these inputs, output and attributes in place of its own."""
        tensors = self.inputs if inputs is None else inputs
        self.honest(tensors, self.output if output is None else output, {**self.attributes, **(changed or {})})


class Mistake:
    """A mistake in one variant, called in place of it: it keeps its own things from call to call."""

    def __init__(self, err: Callable[[ErringCall], None], terms: Terms) -> None:
        self.err, self.terms, self.calls = err, terms, 0
        self.kept: dict[Any, Any] = {}

    def __call__(
        self, honest: Honest, inputs: list[Any], output: Any, attributes: Attributes, origin: Origin | None = None
    ) -> None:
        """Fill the output. `honest`: the real variant; `origin`: where arrays come from that are copies."""
        addresses = tuple(array.ctypes.data for array in (*inputs, output))
        origin = origin or Origin(addresses, lambda to, size, value: ctypes.memset(to, value, size))
        number, self.calls = self.calls, self.calls + 1
        self.err(ErringCall(honest, inputs, output, attributes, self.terms, number, self.kept, origin))


RAW: dict[int, tuple[str, type[numpy.generic]]] = {
    1: ("float32", numpy.float32),
    2: ("float16", numpy.float16),
    3: ("bfloat16", numpy.uint16),
    4: ("float64", numpy.float64),
}
"""Number in loop_kernel.h to the element type's name and the type of its array."""
NAMES = {numpy.dtype(raw): name for name, raw in RAW.values()}


def values(array: Array) -> Array:
    """The numbers of an array: a copy in float32, or in float64 where it is that."""
    if array.dtype == numpy.uint16:
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.promote_types(array.dtype, numpy.float32))


def store(array: Array, meant: Array) -> None:
    """Write values into an array, rounded to the nearest of its type."""
    if array.dtype == numpy.uint16:
        bits = numpy.ascontiguousarray(meant, dtype=numpy.float32).view(numpy.uint32)
        array[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    else:
        array[...] = meant.astype(array.dtype)


def through_library(invoke: Callable[..., None], mistake: Mistake, names: Sequence[str]) -> Callable[..., None]:
    """The `invoke` of a compiled variant on the host, each of its calls by way of `mistake`."""

    def erring(inputs: Any, output: Any, numbers: Any, stream: int | None, origin: Origin | None = None) -> None:
        def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
            described = (LoopTensor * len(arrays))(*map(as_tensor, arrays))
            numbers = (ctypes.c_double * max(len(names), 1))(*attributes.values())
            invoke(described, (LoopTensor * 1)(as_tensor(result)), numbers, stream)

        attributes = dict(zip(names, numbers, strict=False))
        mistake(honest, [array_in(tensor) for tensor in inputs], array_in(output[0]), attributes, origin)

    return erring


def array_in(tensor: LoopTensor) -> Array:
    """A tensor's own memory as an array."""
    raw = numpy.dtype(RAW[tensor.dtype][1])
    sizes, strides = tensor.sizes[: tensor.rank], tensor.strides[: tensor.rank]
    if 0 in sizes:
        return numpy.empty(sizes, raw)
    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    memory = (ctypes.c_char * (count * raw.itemsize)).from_address(tensor.data)
    flat = numpy.frombuffer(memory, raw)
    return as_strided(flat, sizes, [stride * raw.itemsize for stride in strides])


def as_tensor(array: Array) -> Any:
    """An array as the C interface knows it. The array has to outlive the call."""
    strides = tuple(step // array.itemsize for step in array.strides)
    return describe(array.ctypes.data, array.shape, strides, NAMES[array.dtype])
