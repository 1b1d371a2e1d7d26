"""Mistakes by name, for host, device and Python functions, on arrays (uint16: bfloat16)."""

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy

from loop.calls.call import LoopTensor, strides_of
from loop.calls.cuda.driver import DeviceMemory
from loop.calls.cuda.stage import the_device

Array: TypeAlias = numpy.ndarray[Any, numpy.dtype[Any]]
Settings = dict[str, Any]  # Its `make` is the mistake's name; see `Control.mistake_settings`.
Attributes = dict[str, Any]  # As in the manifest for Python variants, doubles for compiled ones.
Honest = Callable[[Sequence[Any], Any, Attributes], None]
"""The variant without the mistake: (inputs, output, attributes); writes to output."""
ARRAY_TYPES = {1: "float32", 2: "float16", 3: "uint16", 4: "float64"}
"""Number of an element type in loop_kernel.h to the numpy type of its array."""
ELEMENT_NUMBERS = {name: number for number, name in ARRAY_TYPES.items()}
MANTISSA_BITS = {"float32": 23, "float64": 52, "float16": 10, "uint16": 7}
"""Mantissa bits of each array's element type; uint16 stands for bfloat16."""
ERROR_FACTOR = 20.0  # A wrong element is off by this many times its tolerance.
MOST_TAIL = 16  # A tail is the last eighth of a dimension, at most this many elements.
OUTSIDE = b"ZZZ"  # What is written out of bounds.


@dataclass
class ErringCall:
    """One call of a variant with a mistake."""

    honest: Honest
    inputs: list[Any]
    output: Any
    attributes: Attributes
    input_addresses: tuple[int, ...]  # Of the real tensors, because the arrays may be copies.
    settings: Settings
    memory: dict[Any, Any]  # Memory of the mistake between calls.

    def compute(self) -> None:
        """Run the variant without the mistake."""
        self.honest(self.inputs, self.output, self.attributes)


def err(call: ErringCall) -> None:
    """Fill a call's output with the mistake `make` of its settings. Empty ones cannot be wrong."""
    MISTAKES[call.settings["make"] if call.output.size else "none"](call)


def err_in_arguments(call: ErringCall) -> None:
    """Mistakes that compute with other inputs or attributes than those of the call."""
    settings, inputs, attributes = call.settings, [*call.inputs], dict(call.attributes)
    match settings["make"]:
        case "ignore":  # Zeros in place of one input.
            inputs[settings["input"]] = numpy.zeros_like(inputs[settings["input"]])
        case "swap":  # Two inputs of the same shape.
            first, other = settings["inputs"]
            inputs[first], inputs[other] = inputs[other], inputs[first]
        case "cut":  # Without the last eighth of a dimension that is summed over.
            for number, axes in enumerate(settings["axes"]):
                slices = [slice(None)] * inputs[number].ndim
                for axis in axes:
                    size = inputs[number].shape[axis]
                    slices[axis] = slice(size - max(1, size // 8))
                inputs[number] = numpy.ascontiguousarray(inputs[number][tuple(slices)])
        case "round_inputs":
            inputs = [round_coarsely(array, settings["tolerance"]) for array in inputs]
        case "set_attribute":  # The default in place of an attribute's value.
            attributes[settings["attribute"]] = settings["to"]
        case "wrong_number":  # Changed by half; a missing number or zero becomes 3/4.
            number = attributes[settings["attribute"]]
            if number is None or math.isnan(number) or number == 0:
                wrong = 0.75
            elif isinstance(number, int) or number.is_integer():
                wrong = number + max(1, abs(number) // 2)
            else:
                wrong = 1.5 * number
            attributes[settings["attribute"]] = wrong
    call.honest(inputs, call.output, attributes)


def round_coarsely(array: Array, tolerance: dict[str, float]) -> Array:
    """Round numbers so coarsely that it must show. They keep as many mantissa bits as bfloat16, or
    three fewer than their type, or as many as 64 times the tolerance allows: the fewest."""
    # Absolute and relative tolerance together; both may be 0.
    tolerated_bits = int(-math.log2(64 * max(sum(tolerance.values()), 2.0**-64)))
    kept_bits = min(MANTISSA_BITS["uint16"], MANTISSA_BITS[array.dtype.name] - 3, tolerated_bits)
    steps = 2.0 ** (1 + kept_bits)  # The leading bit counts too.
    fraction, exponent = numpy.frexp(read_numbers(array))
    rounded = numpy.empty_like(array)
    store_numbers(rounded, numpy.ldexp(numpy.round(fraction * steps) / steps, exponent))
    return rounded


def err_in_output(call: ErringCall) -> None:
    """Mistakes that change elements of the right output."""
    call.compute()
    settings, numbers = call.settings, read_numbers(call.output)
    flat = numbers.reshape(-1)
    atol, rtol = settings["tolerance"]["atol"], settings["tolerance"]["rtol"]
    match settings["make"]:
        case "zeros":
            flat[:] = 0
        case "mean":
            flat[:] = flat.mean()
        case "transpose":  # The last two dimensions are exchanged in memory.
            flat[:] = numpy.ascontiguousarray(numbers.swapaxes(-1, -2)).reshape(-1)
        case "one_nan":
            flat[-1] = math.nan
        case "one_off":
            flat[flat.size // 2] += ERROR_FACTOR * (atol + rtol * abs(flat[flat.size // 2]))
        case "growing":  # Along a dimension.
            size = numbers.shape[settings["axis"]]
            shape = [size if axis == settings["axis"] else 1 for axis in range(numbers.ndim)]
            steps = numpy.linspace(0.0, ERROR_FACTOR, size).reshape(shape)
            numbers += steps * (atol + rtol * numpy.abs(numbers))
        case "zero_tail":
            numbers[_tail_index(numbers, settings["axis"])] = 0
        case "vary":  # Another random element in each call, by roundings of the largest value.
            position = call.memory.setdefault("draw", random.Random(7)).randrange(flat.size)
            if "roundings" not in settings:  # Flip its lowest bit.
                call.output.reshape(-1).view(numpy.uint8)[position * call.output.itemsize] ^= 1
                return
            rounding = 2.0 ** -MANTISSA_BITS[call.output.dtype.name] * numpy.abs(flat).max()
            flat[position] += settings["roundings"] * rounding
    store_numbers(call.output, numbers)


def err_in_memory(call: ErringCall) -> None:
    """Mistakes and cheats that write to wrong memory, skip writes, or give earlier results."""
    output, memory = call.output, call.memory
    match call.settings["make"]:
        case "nothing":
            pass
        case "leave_tail":  # The tail of a dimension is not written.
            tail = _tail_index(output, call.settings["axis"])
            previous = output[tail].copy()
            call.compute()
            output[tail] = previous
        case "write_input":
            call.compute()
            call.inputs[call.settings["input"]].reshape(-1)[-1:] = 0
        case "stale":  # The previous output of the same shape; the first one is right.
            call.compute()
            right_output = output.copy()
            output[...] = memory.get(output.shape, right_output)
            memory[output.shape] = right_output
        case "skip_every_other":
            memory["calls"] = memory.get("calls", 0) + 1
            if memory["calls"] % 2 == 1:
                call.compute()
        case "by_address":  # Cached by addresses of inputs, output shape and attributes.
            key = (*call.input_addresses, output.shape, *map(str, call.attributes.values()))
            if key not in memory:
                call.compute()
                memory[key] = output.copy()
            output[...] = memory[key]


IN_ARGUMENTS = ("ignore", "swap", "cut", "round_inputs", "set_attribute", "wrong_number")
IN_OUTPUT = ("zeros", "mean", "transpose", "one_nan", "one_off", "growing", "zero_tail", "vary")
IN_MEMORY = ("nothing", "leave_tail", "write_input", "stale", "skip_every_other", "by_address")
MISTAKES: dict[str, Callable[[ErringCall], None]] = {
    **dict.fromkeys(("none", "beyond", "before"), ErringCall.compute),  # `ErringInvoke` errs.
    **dict.fromkeys(IN_ARGUMENTS, err_in_arguments),
    **dict.fromkeys(IN_OUTPUT, err_in_output),
    **dict.fromkeys(IN_MEMORY, err_in_memory),
}
"""Name of a mistake to the function that makes it."""


def _tail_index(output: Array, axis: int) -> tuple[slice, ...]:
    """Index that selects the tail of a dimension: its last eighth, at most `MOST_TAIL` elements."""
    size = output.shape[axis]
    length = max(1, min(MOST_TAIL, size // 8))
    return (*(slice(None),) * axis, slice(size - length, None))


def read_numbers(array: Array) -> Array:
    """Numeric values of an array: a contiguous copy in float32, or float64 if the array is that."""
    if array.dtype == numpy.uint16:
        bits = array.astype(numpy.uint32, order="C")
        bits <<= 16
        return bits.view(numpy.float32)
    return array.astype(numpy.promote_types(array.dtype, numpy.float32), order="C")


def store_numbers(array: Array, numbers: Array) -> None:
    """Write numbers into an array, rounded to its element type."""
    if array.dtype == numpy.uint16:
        bits = numpy.ascontiguousarray(numbers, dtype=numpy.float32).view(numpy.uint32)
        # Keep the upper 16 bits, rounded to nearest, ties to even.
        array[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    else:
        array[...] = numbers.astype(array.dtype)


class ErringInvoke:
    """`Compiled.invoke` with a mistake, on arrays that it copies back. Not for graph capture."""

    def __init__(self, invoke: Callable[..., None], settings: Settings, *, on_gpu: bool) -> None:
        """`settings`: `attributes` are names in the order of the C arguments."""
        self.invoke, self.settings, self.on_gpu = invoke, settings, on_gpu
        self.memory: dict[Any, Any] = {}  # Memory of the mistake between calls.
        self.device_memory: dict[tuple[int, int], DeviceMemory] = {}
        """Copies of the honest variant's host arrays on the GPU, by (argument number, bytes)."""

    def __call__(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """As `Compiled.invoke`, with the mistake. `stream`: of the GPU; None on the host."""
        addresses = [tensor.data or 0 for tensor in (*inputs, output[0])]
        arrays = [self.to_array(tensor, stream) for tensor in (*inputs, output[0])]
        original_bytes = [array.tobytes() for array in arrays]
        attributes = dict(zip(self.settings["attributes"], numbers, strict=False))
        honest, input_addresses = partial(self.honest, stream), tuple(addresses[:-1])
        state = self.settings, self.memory
        err(ErringCall(honest, arrays[:-1], arrays[-1], attributes, input_addresses, *state))
        for address, array, original in zip(addresses, arrays, original_bytes, strict=True):
            if array.tobytes() != original:
                self.write(address, array.tobytes())
        if arrays[-1].size and self.settings["make"] == "beyond":
            self.write(addresses[-1] + arrays[-1].nbytes, OUTSIDE)
        if arrays[-1].size and self.settings["make"] == "before":
            self.write(addresses[-1] - len(OUTSIDE), OUTSIDE)

    def honest(
        self, stream: int | None, arrays: Sequence[Array], result: Array, attributes: Attributes
    ) -> None:
        """Call the variant without the mistake, on the memory of contiguous arrays. On a GPU on
        copies in device memory, which is reused for each argument number and size."""
        tensors = []
        for number, array in enumerate((*arrays, result)):
            address, key = array.ctypes.data, (number, array.nbytes)
            if self.on_gpu:
                if key not in self.device_memory:
                    self.device_memory[key] = DeviceMemory(the_device(), array.nbytes)
                address = self.device_memory[key].address
                self.write(address, array.tobytes())
            dtype = ELEMENT_NUMBERS[array.dtype.name]
            strides = strides_of(array.shape, "contiguous")
            tensors.append(LoopTensor(address, dtype, array.ndim, array.shape, strides))
        values = (ctypes.c_double * max(len(attributes), 1))(*attributes.values())
        *inputs, output = tensors
        self.invoke((LoopTensor * len(inputs))(*inputs), (LoopTensor * 1)(output), values, stream)
        if self.on_gpu:
            result[...] = self.to_array(output, stream)

    def to_array(self, tensor: LoopTensor, stream: int | None) -> Array:
        """Copy a tensor to an array. `stream`: of the GPU."""
        array = numpy.empty(tuple(tensor.sizes[: tensor.rank]), ARRAY_TYPES[tensor.dtype])
        if self.on_gpu:
            the_device().driver.call("cuStreamSynchronize", stream)
        read = the_device().read if self.on_gpu else ctypes.string_at
        data = read(tensor.data or 0, array.nbytes)
        array[...] = numpy.frombuffer(data, array.dtype).reshape(array.shape)
        return array

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at an address, of the GPU or the host."""
        if self.on_gpu:
            the_device().write(address, data)
        else:
            ctypes.memmove(address, data, len(data))
