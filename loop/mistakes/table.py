"""Mistakes by name, each written once for host, device and Python functions. They see tensors as numpy arrays;
uint16 holds the bits of bfloat16."""

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy

from loop.calls.call import LoopTensor, make_loop_tensor, strides_of
from loop.calls.cuda.driver import DeviceMemory
from loop.calls.cuda.stage import the_device

Array: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]
Settings = dict[str, Any]
"""What is told to a mistake: `make` is its name; `Control.mistake_settings` adds the other keys."""
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
    settings: Settings = field(default_factory=dict)
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


class ArrayCopies:
    """Copies contiguous tensors of a compiled variant to arrays, and back. Fails while a GPU captures a graph."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.device_memory: dict[tuple[int, int], DeviceMemory] = {}
        """Device memory for arguments of the variant without its mistake, by (argument number, bytes)."""
        self.original_bytes: dict[int, bytes] = {}
        """Address to the bytes of a tensor when `to_array` read it."""

    def fill(self, address: int, value: int, size: int) -> None:
        """Set bytes at an address."""
        self.write(address, bytes([value]) * size)

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at an address."""
        if self.on_gpu:
            the_device().write(address, data)
        else:
            ctypes.memmove(address, data, len(data))

    def to_array(self, tensor: LoopTensor, stream: int | None) -> Array:
        """Copy a tensor to an array and remember its bytes, for `write_back`. `stream`: of the GPU."""
        array = numpy.empty(tuple(tensor.sizes[: tensor.rank]), ELEMENT_TYPES[tensor.dtype][1])
        address = tensor.data or 0
        if self.on_gpu:
            the_device().driver.call("cuStreamSynchronize", stream)
        read = the_device().read if self.on_gpu else ctypes.string_at
        data = self.original_bytes[address] = read(address, array.nbytes)
        array[...] = numpy.frombuffer(data, array.dtype).reshape(array.shape)
        return array

    def to_tensor(self, number: int, array: Array) -> LoopTensor:
        """A tensor in an array's memory, or in device memory, which is reused for each argument `number` and size.
        The array has to be contiguous, and to outlive it."""
        address, key = array.ctypes.data, (number, array.nbytes)
        if self.on_gpu:
            if key not in self.device_memory:
                self.device_memory[key] = DeviceMemory(the_device(), array.nbytes)
            self.device_memory[key].write(0, array.tobytes())
            address = self.device_memory[key].address
        strides = strides_of(array.shape, "contiguous")
        return make_loop_tensor(address, array.shape, strides, ELEMENT_NAMES[array.dtype])

    def write_back(self, tensor: LoopTensor, array: Array) -> None:
        """Copy an array to its tensor, if the mistake changed it."""
        data = array.tobytes()
        if data != self.original_bytes[tensor.data or 0]:
            self.write(tensor.data or 0, data)


def through_arrays(
    invoke: Callable[..., None], mistake: Mistake, attribute_names: Sequence[str], converter: ArrayCopies
) -> Callable[..., None]:
    """Wrap a compiled variant's `invoke`, so that each call goes through `mistake`. `attribute_names`: in
    the order of the C arguments. `converter`: tensors to arrays, and back."""

    def invoke_erring(inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """As `Compiled.invoke`, with the mistake. `stream`: of the GPU; None on the host."""

        def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
            *tensors, written = (converter.to_tensor(n, array) for n, array in enumerate((*arrays, result)))
            values = (ctypes.c_double * max(len(attribute_names), 1))(*attributes.values())
            invoke((LoopTensor * len(tensors))(*tensors), (LoopTensor * 1)(written), values, stream)
            if converter.on_gpu:
                result[...] = converter.to_array(written, stream)

        call_tensors = (*inputs, output[0])
        arrays = [converter.to_array(tensor, stream) for tensor in call_tensors]
        addresses = tuple(tensor.data or 0 for tensor in call_tensors)
        attributes = dict(zip(attribute_names, numbers, strict=False))
        mistake(ErringCall(honest, arrays[:-1], arrays[-1], attributes, addresses, converter.fill))
        for tensor, array in zip(call_tensors, arrays, strict=True):
            converter.write_back(tensor, array)

    return invoke_erring


MANTISSA_BITS = {"float32": 23, "float64": 52, "float16": 10, "uint16": 7}
"""Mantissa bits of each array's element type; uint16 stands for bfloat16."""
BFLOAT16_MANTISSA_BITS = 7
ERROR_FACTOR = 20.0
"""A wrong element is off by this many times its tolerance."""
MOST_TAIL = 16
"""A tail is the last eighth of a dimension, at most this many elements."""
OUTSIDE_BYTES, OUTSIDE_VALUE = 3, 0x5A
"""Number of bytes to write out of bounds, and their value."""


def ignore(call: ErringCall) -> None:
    """Mistake: read zeros in place of one input."""
    inputs, number = [*call.inputs], call.settings["input"]
    inputs[number] = numpy.zeros_like(inputs[number])
    call.compute(inputs)


def swap(call: ErringCall) -> None:
    """Mistake: exchange two inputs of the same shape."""
    inputs, (first, other) = [*call.inputs], call.settings["inputs"]
    inputs[first], inputs[other] = inputs[other], inputs[first]
    call.compute(inputs)


def cut(call: ErringCall) -> None:
    """Mistake: leave out the last eighth of a dimension that is summed over."""
    shortened = []
    for array, axes in zip(call.inputs, call.settings["axes"], strict=True):
        slices = [slice(None)] * array.ndim
        for axis in axes:
            slices[axis] = slice(array.shape[axis] - max(1, array.shape[axis] // 8))
        shortened.append(numpy.ascontiguousarray(array[tuple(slices)]))
    call.compute(shortened)


def set_attribute(call: ErringCall) -> None:
    """Mistake: use the default in place of an attribute's value."""
    call.compute(changed={call.settings["attribute"]: call.settings["to"]})


def wrong_number(call: ErringCall) -> None:
    """Mistake: change a number by half; a missing number or zero becomes 3/4."""
    name, number = call.settings["attribute"], call.attributes[call.settings["attribute"]]
    if number is None or math.isnan(number) or number == 0:
        wrong = 0.75
    elif isinstance(number, int) or number.is_integer():
        wrong = number + max(1, abs(number) // 2)
    else:
        wrong = 1.5 * number
    call.compute(changed={name: wrong})


def round_inputs(call: ErringCall) -> None:
    """Mistake: round the inputs so coarsely that it must show. They keep as many bits of the mantissa as
    bfloat16, or three fewer than their type, or as many as 64 times the tolerance allows: the fewest."""
    # Absolute and relative tolerance together; both may be 0.
    tolerance = max(sum(call.settings["tolerance"].values()), 2.0**-64)
    tolerated_bits = int(-math.log2(64 * tolerance))
    inputs = []
    for array in call.inputs:
        kept_bits = min(BFLOAT16_MANTISSA_BITS, MANTISSA_BITS[array.dtype.name] - 3, tolerated_bits)
        steps = 2.0 ** (1 + kept_bits)  # The leading bit counts too.
        fraction, exponent = numpy.frexp(read_numbers(array))
        rounded = numpy.empty_like(array)
        store_numbers(rounded, numpy.ldexp(numpy.round(fraction * steps) / steps, exponent))
        inputs.append(rounded)
    call.compute(inputs)


def zeros(call: ErringCall) -> None:
    """Mistake: all elements are zero."""
    call.compute()
    call.output[...] = 0


def mean(call: ErringCall) -> None:
    """Mistake: all elements are the output's mean."""
    call.compute()
    store_numbers(call.output, numpy.full(call.output.shape, read_numbers(call.output).mean()))


def transpose(call: ErringCall) -> None:
    """Mistake: the last two dimensions are exchanged in memory."""
    call.compute()
    transposed = numpy.ascontiguousarray(call.output.swapaxes(-1, -2))
    call.output[...] = transposed.reshape(call.output.shape)


def one_nan(call: ErringCall) -> None:
    """Mistake: the last element is NaN, which is what all bits set means in every type."""
    call.compute()
    call.output.reshape(-1).view(numpy.uint8)[-call.output.itemsize :] = 0xFF


def one_off(call: ErringCall) -> None:
    """Mistake: the middle element is off by ERROR_FACTOR times its tolerance."""
    call.compute()
    numbers, middle = read_numbers(call.output).reshape(-1), call.output.size // 2
    numbers[middle] += ERROR_FACTOR * _tolerance_of(numbers[middle], call.settings)
    store_numbers(call.output, numbers.reshape(call.output.shape))


def growing(call: ErringCall) -> None:
    """Mistake: errors grow along a dimension, up to ERROR_FACTOR times the tolerance."""
    call.compute()
    numbers, axis = read_numbers(call.output), call.settings["axis"]
    steps = numpy.linspace(0.0, ERROR_FACTOR, numbers.shape[axis])
    shape = [len(steps) if other == axis else 1 for other in range(numbers.ndim)]
    store_numbers(call.output, numbers + steps.reshape(shape) * _tolerance_of(numbers, call.settings))


def _tolerance_of(numbers: Any, settings: Settings) -> Any:
    """The stated tolerance of each number: absolute plus relative part."""
    return settings["tolerance"]["atol"] + settings["tolerance"]["rtol"] * numpy.abs(numbers)


def zero_tail(call: ErringCall) -> None:
    """Mistake: the tail of a dimension is zero."""
    call.compute()
    call.output[_tail_index(call.output, call.settings["axis"])] = 0


def _tail_index(output: Array, axis: int) -> tuple[slice, ...]:
    """Index that selects the tail of a dimension: its last eighth, at most `MOST_TAIL` elements."""
    size = output.shape[axis]
    length = max(1, min(MOST_TAIL, size // 8))
    return (*(slice(None),) * axis, slice(size - length, None))


def leave_tail(call: ErringCall) -> None:
    """Mistake: the tail of a dimension is not written."""
    tail = _tail_index(call.output, call.settings["axis"])
    right_output, previous = numpy.empty_like(call.output), call.output[tail].copy()
    call.compute(output=right_output)
    call.output[...] = right_output
    call.output[tail] = previous


def vary(call: ErringCall) -> None:
    """Mistake: flip a low bit of a random element, so that results differ from call to call. With `roundings`
    among the settings, change it by so many roundings of the largest value."""
    rng, output = call.memory.setdefault("draw", random.Random(7)), call.output
    call.compute()
    position = rng.randrange(output.size)
    if "roundings" not in call.settings:
        output.reshape(-1).view(numpy.uint8)[position * output.itemsize] ^= 1
        return
    numbers = read_numbers(output)
    share = call.settings["roundings"] * 2.0 ** -MANTISSA_BITS[output.dtype.name]
    numbers.reshape(-1)[position] += share * numpy.abs(numbers).max()
    store_numbers(output, numbers)


def stale(call: ErringCall) -> None:
    """Cheat: return the previous output of the same shape; the first one is right."""
    call.compute()
    right_output = call.output.copy()
    call.output[...] = call.memory.get(call.output.shape, right_output)
    call.memory[call.output.shape] = right_output


def skip_every_other(call: ErringCall) -> None:
    """Cheat: every second call writes nothing."""
    call.memory["calls"] = call.memory.get("calls", 0) + 1
    if call.memory["calls"] % 2 == 1:
        call.compute()


def by_address(call: ErringCall) -> None:
    """Cheat: cache outputs by addresses of inputs, output shape and attributes."""
    key = (*call.input_and_output_addresses[:-1], call.output.shape, *map(str, call.attributes.values()))
    if key in call.memory:
        call.output[...] = call.memory[key]
        return
    call.compute()
    call.memory[key] = call.output.copy()


def nothing(call: ErringCall) -> None:
    """Mistake: write nothing at all."""


def beyond(call: ErringCall) -> None:
    """Mistake: also write a few bytes after the output's end."""
    call.compute()
    call.fill(call.input_and_output_addresses[-1] + call.output.nbytes, OUTSIDE_VALUE, OUTSIDE_BYTES)


def before(call: ErringCall) -> None:
    """Mistake: also write a few bytes before the output's beginning."""
    call.compute()
    call.fill(call.input_and_output_addresses[-1] - OUTSIDE_BYTES, OUTSIDE_VALUE, OUTSIDE_BYTES)


def write_input(call: ErringCall) -> None:
    """Mistake: write to an input after computing."""
    call.compute()
    call.inputs[call.settings["input"]].reshape(-1)[-1:] = 0


ERRORS: tuple[Mistake, ...] = (
    *(zeros, mean, transpose, one_off, one_nan, growing, zero_tail, leave_tail),
    *(ignore, swap, cut, set_attribute, wrong_number, round_inputs, vary),
    *(write_input, nothing, beyond, before, stale, skip_every_other, by_address),
)
ERROR_BY_NAME = {"none": ErringCall.compute, **{err.__name__: err for err in ERRORS}}
"""Name to the function that makes the mistake in an ErringCall."""


def mistake_of(settings: Settings) -> Mistake:
    """The mistake that `settings["make"]` names, with a memory of its own between calls."""
    err, memory = ERROR_BY_NAME[settings["make"]], dict[Any, Any]()

    def mistake(call: ErringCall) -> None:
        call.settings, call.memory = settings, memory
        (err if call.output.size else ErringCall.compute)(call)  # An empty output cannot be wrong.

    return mistake
