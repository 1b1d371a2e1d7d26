"""Mistakes in what is read: an input, a part of one, an attribute, or their precision."""

import math
from collections.abc import Sequence
from typing import Any

import numpy

from loop.mistakes.arrays import Array, Call, Terms, store, values

MANTISSA = {"float32": 23, "float64": 52, "float16": 10, "uint16": 7}
"""Bits behind the point of each array's element type; uint16 stands for bfloat16."""
BFLOAT16 = 7


def ignore(call: Call) -> None:
    """One input is taken for zeros."""
    place = call.terms["input"]
    call.compute(_with(call.inputs, place, numpy.zeros_like(call.inputs[place])))


def swap(call: Call) -> None:
    """Two inputs of one shape change places."""
    one, other = call.terms["inputs"]
    call.compute(_with(_with(call.inputs, one, call.inputs[other]), other, call.inputs[one]))


def read_for(call: Call) -> None:
    """One input is read in place of another."""
    call.compute(_with(call.inputs, call.terms["input"], call.inputs[call.terms["other"]]))


def cut(call: Call) -> None:
    """A part of a dimension that is summed over is not read: the last eighth where no other is named."""
    part = call.terms.get("part", "the last eighth")
    call.compute([_shortened(a, axes, part) for a, axes in zip(call.inputs, call.terms["axes"], strict=True)])


def _shortened(array: Array, axes: Sequence[int], part: str) -> Array:
    left = [slice(None)] * array.ndim
    for axis in axes:
        left[axis] = _left(array.shape[axis], part)
    return numpy.ascontiguousarray(array[tuple(left)])


def _left(size: int, part: str) -> slice:
    """What is left of a dimension."""
    return {
        "the last eighth": slice(size - max(1, size // 8)),
        "the last index": slice(size - 1),
        "the first index": slice(1, size),
        "the second half": slice(size // 2),
    }[part]


def set_attribute(call: Call) -> None:
    """An attribute is taken for its default."""
    call.compute(changed={call.terms["attribute"]: call.terms["to"]})


def wrong_number(call: Call) -> None:
    """A number is off by half; one that was not given is 3/4."""
    name = call.terms["attribute"]
    call.compute(changed={name: _off(call.attributes[name])})


def _off(number: float | None) -> float:
    if number is None or math.isnan(number) or number == 0:
        return 0.75
    if isinstance(number, int) or number.is_integer():
        return number + max(1, abs(number) // 2)
    return 1.5 * number


def round_inputs(call: Call) -> None:
    """Inputs lose so many bits that it must show: those beyond bfloat16, or beyond what the tolerance forgives."""
    call.compute([_rounded(array, call.terms) for array in call.inputs])


def _rounded(array: Array, terms: Terms) -> Array:
    bits = terms.get("mantissa", MANTISSA[array.dtype.name])
    kept = min(BFLOAT16, bits - 3, int(-math.log2(64 * max(sum(terms["tolerance"].values()), 2.0**-64))))
    fraction, exponent = numpy.frexp(values(array))
    rounded = numpy.empty_like(array)
    store(rounded, numpy.ldexp(numpy.round(fraction * 2.0 ** (kept + 1)) / 2.0 ** (kept + 1), exponent))
    return rounded


def _with(inputs: list[Any], place: int, other: Any) -> list[Any]:
    return [*inputs[:place], other, *inputs[place + 1 :]]
