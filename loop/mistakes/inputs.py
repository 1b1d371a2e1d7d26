"""Mistakes in what is read: an input, a part of one, an attribute, or their precision."""

import math
from typing import Any

import numpy

from loop.mistakes.arrays import Array, Attributes, Honest, Mistake, store, values

Terms = dict[str, Any]
MANTISSA = {"float32": 23, "float64": 52, "float16": 10, "uint16": 7}
"""Bits behind the point of each array's element type; uint16 stands for bfloat16."""
BFLOAT16 = 7


def ignore(terms: Terms) -> Mistake:
    """One input is taken for zeros."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(_with(inputs, terms["input"], numpy.zeros_like(inputs[terms["input"]])), output, attributes)

    return mistake


def swap(terms: Terms) -> Mistake:
    """Two inputs of one shape change places."""
    one, other = terms["inputs"]

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(_with(_with(inputs, one, inputs[other]), other, inputs[one]), output, attributes)

    return mistake


def cut(terms: Terms) -> Mistake:
    """The last eighth of a dimension that is summed over is not read."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest([_shortened(a, axis) for a, axis in zip(inputs, terms["axes"], strict=True)], output, attributes)

    return mistake


def _shortened(array: Array, axis: int | None) -> Array:
    if axis is None:
        return array
    left = array.shape[axis] - max(1, array.shape[axis] // 8)
    return numpy.ascontiguousarray(array[(slice(None),) * axis + (slice(left),)])


def set_attribute(terms: Terms) -> Mistake:
    """An attribute is taken for its default."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, {**attributes, terms["attribute"]: terms["to"]})

    return mistake


def wrong_number(terms: Terms) -> Mistake:
    """A number is off by half; one that was not given is 3/4."""
    name = terms["attribute"]

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, {**attributes, name: _off(attributes[name])})

    return mistake


def _off(number: float | None) -> float:
    if number is None or math.isnan(number) or number == 0:
        return 0.75
    if isinstance(number, int) or number.is_integer():
        return number + max(1, abs(number) // 2)
    return 1.5 * number


def round_inputs(terms: Terms) -> Mistake:
    """Inputs lose so many bits that it must show: those beyond bfloat16, or beyond what the tolerance forgives."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest([_rounded(array, terms) for array in inputs], output, attributes)

    return mistake


def _rounded(array: Array, terms: Terms) -> Array:
    bits = terms.get("mantissa", MANTISSA[array.dtype.name])
    kept = min(BFLOAT16, bits - 3, int(-math.log2(64 * max(sum(terms["tolerance"].values()), 2.0**-64))))
    fraction, exponent = numpy.frexp(values(array))
    rounded = numpy.empty_like(array)
    store(rounded, numpy.ldexp(numpy.round(fraction * 2.0 ** (kept + 1)) / 2.0 ** (kept + 1), exponent))
    return rounded


def _with(inputs: list[Array], place: int, other: Array) -> list[Array]:
    return [*inputs[:place], other, *inputs[place + 1 :]]
