"""Tensors as numpy arrays, so that one mistake serves all variants; uint16 holds bfloat16 bits."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy
from numpy.lib.stride_tricks import as_strided

from loop.calls.call import LoopTensor, elements_spanned, make_loop_tensor

Array: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]
Terms = dict[str, Any]
"""Parameters of a mistake: `make` is its name, other keys belong to it."""
Attributes = dict[str, Any]
"""Name to value: as in the manifest for a Python variant, as a double for a compiled one."""
Honest = Callable[[Sequence[Any], Any, Attributes], None]
"""The variant without the mistake: (inputs, output, attributes); writes to output."""
ELEMENT_TYPES: dict[int, tuple[str, type[numpy.generic]]] = {
    1: ("float32", numpy.float32),
    2: ("float16", numpy.float16),
    3: ("bfloat16", numpy.uint16),
    4: ("float64", numpy.float64),
}
"""Number in loop_kernel.h to (element type, numpy type of its array)."""
ELEMENT_NAMES = {numpy.dtype(raw): name for name, raw in ELEMENT_TYPES.values()}


@dataclass
class ErringCall:
    """One call of a variant with a mistake."""

    honest: Honest
    inputs: list[Any]
    output: Any
    attributes: Attributes
    input_and_output_addresses: tuple[int, ...]
    """Of the real tensors, the output last, because the arrays may be copies."""
    fill: Callable[[int, int, int], object] = ctypes.memset
    """Sets bytes at such an address: (address, value, count)."""
    terms: Terms = field(default_factory=dict)
    memory: dict[Any, Any] = field(default_factory=dict)
    """Memory of the mistake between calls."""

    def compute(
        self, inputs: Sequence[Any] | None = None, output: Any = None, changed: Attributes | None = None
    ) -> None:
        """Run the variant without the mistake. `inputs` and `output`: arrays in place of the call's
        own. `changed`: attributes that get another value."""
        tensors = self.inputs if inputs is None else inputs
        result = self.output if output is None else output
        self.honest(tensors, result, self.attributes | (changed or {}))


Mistake = Callable[[ErringCall], None]
"""Fills a call's output, with a mistake in it."""


def read_numbers(array: Array) -> Array:
    """Numeric values of an array: a copy in float32, or float64 if the array is that."""
    if array.dtype == numpy.uint16:
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.promote_types(array.dtype, numpy.float32))


def store_numbers(array: Array, numbers: Array) -> None:
    """Write numbers into an array, rounded to its element type."""
    if array.dtype == numpy.uint16:
        bits = numpy.ascontiguousarray(numbers, dtype=numpy.float32).view(numpy.uint32)
        # Keep the upper 16 bits, rounded to nearest, ties to even.
        array[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    else:
        array[...] = numbers.astype(array.dtype)


class HostArrays:
    """Views a compiled variant's tensors as arrays in host memory."""

    fill: Callable[[int, int, int], object] = ctypes.memset
    """Sets bytes at an address: (address, value, count)."""

    def to_array(self, tensor: LoopTensor, stream: int | None) -> Array:
        """View a tensor as an array. `stream`: unused here; the subclass for GPUs waits for it."""
        numpy_type = numpy.dtype(ELEMENT_TYPES[tensor.dtype][1])
        sizes, strides = tensor.sizes[: tensor.rank], tensor.strides[: tensor.rank]
        if 0 in sizes:
            return numpy.empty(sizes, numpy_type)
        size = elements_spanned(tuple(sizes), tuple(strides)) * numpy_type.itemsize
        memory: Any = (ctypes.c_char * size).from_address(tensor.data)
        flat = numpy.frombuffer(memory, numpy_type)
        return as_strided(flat, sizes, [stride * numpy_type.itemsize for stride in strides])

    def to_tensor(self, number: int, array: Array) -> LoopTensor:
        """Make a LoopTensor from an array, which must outlive it. `number`: of the argument; unused here."""
        strides = tuple(step // array.itemsize for step in array.strides)
        return make_loop_tensor(array.ctypes.data, array.shape, strides, ELEMENT_NAMES[array.dtype])

    def read_back(self, tensor: LoopTensor, array: Array, stream: int | None) -> None:
        """Copy the output from `tensor` to its array. On the host they share memory: no copy."""

    def write_back(self, tensor: LoopTensor, array: Array) -> None:
        """Copy an array that the mistake changed to its tensor; nothing to do on the host."""


def through_arrays(
    invoke: Callable[..., None], mistake: Mistake, attribute_names: Sequence[str], converter: HostArrays
) -> Callable[..., None]:
    """Wrap a compiled variant's `invoke`, so that each call goes through `mistake`. `attribute_names`: in
    the order of the C arguments. `converter`: tensors to arrays, on host or device."""

    def invoke_erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """As `Compiled.invoke`, with the mistake. `stream`: of the GPU; None on the host."""

        def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
            *tensors, written = (converter.to_tensor(n, array) for n, array in enumerate((*arrays, result)))
            values = (ctypes.c_double * max(len(attribute_names), 1))(*attributes.values())
            invoke((LoopTensor * len(tensors))(*tensors), (LoopTensor * 1)(written), values, stream)
            converter.read_back(written, result, stream)

        call_tensors = (*inputs, output[0])
        arrays = [converter.to_array(tensor, stream) for tensor in call_tensors]
        addresses = tuple(tensor.data or 0 for tensor in call_tensors)
        attributes = dict(zip(attribute_names, numbers, strict=False))
        mistake(ErringCall(honest, arrays[:-1], arrays[-1], attributes, addresses, converter.fill))
        for tensor, array in zip(call_tensors, arrays, strict=True):
            converter.write_back(tensor, array)

    return invoke_erring
