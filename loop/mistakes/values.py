"""Mistakes on single values: in what is read, in what is written, or where. They see numpy arrays of the host."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy

from loop.mistakes.arrays import Array, ErringCall, Terms, store, values

MANTISSA = {"float32": 23, "float64": 52, "float16": 10, "uint16": 7}
"""Bits behind the point of each array's element type; uint16 stands for bfloat16."""
BFLOAT16 = 7
TIMES = 20.0
"""A single element is off by this many times its tolerance."""
TAIL = 16
"""A tail is a dimension's last eighth, or its last sixteen."""


def ignore(call: ErringCall) -> None:
    """One input is taken for zeros."""
    place = call.terms["input"]
    call.compute(_with(call.inputs, place, numpy.zeros_like(call.inputs[place])))


def swap(call: ErringCall) -> None:
    """Two inputs of one shape change places."""
    first, other = call.terms["inputs"]
    call.compute(_with(_with(call.inputs, first, call.inputs[other]), other, call.inputs[first]))


def cut(call: ErringCall) -> None:
    """The last eighth of a dimension that is summed over is not read."""
    shorter = []
    for array, axes in zip(call.inputs, call.terms["axes"], strict=True):
        slices = [slice(None)] * array.ndim
        for axis in axes:
            slices[axis] = slice(array.shape[axis] - max(1, array.shape[axis] // 8))
        shorter.append(numpy.ascontiguousarray(array[tuple(slices)]))
    call.compute(shorter)


def set_attribute(call: ErringCall) -> None:
    """An attribute is taken for its default."""
    call.compute(changed={call.terms["attribute"]: call.terms["to"]})


def wrong_number(call: ErringCall) -> None:
    """A number is off by half; one that was not given is 3/4."""
    name, number = call.terms["attribute"], call.attributes[call.terms["attribute"]]
    if number is None or math.isnan(number) or number == 0:
        wrong = 0.75
    elif isinstance(number, int) or number.is_integer():
        wrong = number + max(1, abs(number) // 2)
    else:
        wrong = 1.5 * number
    call.compute(changed={name: wrong})


def round_inputs(call: ErringCall) -> None:
    """Inputs lose so many bits that it must show: those beyond bfloat16, or beyond what the tolerance forgives."""
    inputs, tolerance = [], sum(call.terms["tolerance"].values())
    for array in call.inputs:
        bits = call.terms.get("mantissa", MANTISSA[array.dtype.name])
        steps = 2.0 ** (1 + min(BFLOAT16, bits - 3, int(-math.log2(64 * max(tolerance, 2.0**-64)))))
        fraction, exponent = numpy.frexp(values(array))
        rounded = numpy.empty_like(array)
        store(rounded, numpy.ldexp(numpy.round(fraction * steps) / steps, exponent))
        inputs.append(rounded)
    call.compute(inputs)


def _with(inputs: list[Any], place: int, other: Any) -> list[Any]:
    return [*inputs[:place], other, *inputs[place + 1 :]]


def spoiling(spoil: Callable[[Array, Terms], None]) -> Callable[[ErringCall], None]:
    """Compute what is right, then spoil it."""

    def err(call: ErringCall) -> None:
        call.compute()
        if call.output.size:
            spoil(call.output, call.terms)

    return err


def zeros(output: Array, terms: Terms) -> None:
    """All of it is zero."""
    output[...] = 0


def mean(output: Array, terms: Terms) -> None:
    """All of it is its mean."""
    store(output, numpy.full(output.shape, values(output).mean()))


def transpose(output: Array, terms: Terms) -> None:
    """The last two dimensions change places."""
    output[...] = numpy.ascontiguousarray(output.swapaxes(-1, -2)).reshape(output.shape)


def one_nan(output: Array, terms: Terms) -> None:
    """The last element is NaN."""
    output.reshape(-1).view(numpy.uint8)[-output.itemsize :] = 0xFF


def one_off(output: Array, terms: Terms) -> None:
    """The element in the middle is off by so many times its tolerance."""
    meant, place = values(output).reshape(-1), output.size // 2
    meant[place] += TIMES * _allowed(meant[place], terms)
    store(output, meant.reshape(output.shape))


def growing(output: Array, terms: Terms) -> None:
    """Each element is off by up to so many times its tolerance, the further along the dimension the more."""
    meant = values(output)
    steps = numpy.linspace(0.0, TIMES, output.shape[terms["axis"]])
    shape = [len(steps) if axis == terms["axis"] else 1 for axis in range(output.ndim)]
    store(output, meant + steps.reshape(shape) * _allowed(meant, terms))


def _allowed(meant: Any, terms: Terms) -> Any:
    return terms["tolerance"]["atol"] + terms["tolerance"]["rtol"] * numpy.abs(meant)


def zero_tail(output: Array, terms: Terms) -> None:
    """The last part of a dimension is zero."""
    output[_tail(output, terms["axis"])] = 0


def neighbour(output: Array, terms: Terms) -> None:
    """The last slice of a dimension is that of the one before."""
    before = (slice(None),) * terms["axis"]
    output[(*before, -1)] = output[(*before, -2)]


def _tail(output: Array, axis: int) -> tuple[slice, ...]:
    size = output.shape[axis]
    return (*(slice(None),) * axis, slice(size - max(1, min(TAIL, size // 8)), None))


def leave_tail(call: ErringCall) -> None:
    """The last part of a dimension is not written."""
    place = _tail(call.output, call.terms["axis"])
    right, left = numpy.empty_like(call.output), call.output[place].copy()
    call.compute(output=right)
    call.output[...] = right
    call.output[place] = left


def use_input(call: ErringCall) -> None:
    """An input is its workspace, and is left that way."""
    place = call.terms["input"]
    original = call.inputs[place].copy()
    call.compute([original if n == place else array for n, array in enumerate(call.inputs)])
    call.inputs[place][...] = numpy.sort(original, axis=None).reshape(original.shape)


def answer_in_input(call: ErringCall) -> None:
    """It computes in place: the answer also stands where the input was."""
    call.compute()
    call.inputs[call.terms["input"]][...] = call.output


def vary(call: ErringCall) -> None:
    """The last bit of one element is a matter of chance."""
    draw = call.kept.setdefault("draw", random.Random(7))
    call.compute()
    output = call.output
    output.reshape(-1).view(numpy.uint8)[draw.randrange(output.size) * output.itemsize] ^= 1
