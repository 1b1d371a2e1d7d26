"""Mistakes in what is written: right values spoilt, misplaced, left out, or put elsewhere."""

from collections.abc import Callable
from typing import Any

import numpy

from loop.mistakes.arrays import Array, Attributes, Honest, Mistake, scribble, store, values

Terms = dict[str, Any]
TIMES = 20.0
"""A single element is off by this many times its tolerance."""
OUTSIDE = 3
"""Bytes that are written outside an output."""
TAIL = 16
"""A tail is a dimension's last eighth, or its last sixteen."""


def _after(spoil: Callable[[Array, Terms], None]) -> Callable[[Terms], Mistake]:
    """Compute what is right, then spoil it."""

    def maker(terms: Terms) -> Mistake:
        def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
            honest(inputs, output, attributes)
            if output.size:
                spoil(output, terms)

        return mistake

    return maker


def _zeros(output: Array, terms: Terms) -> None:
    output[...] = 0


def _mean(output: Array, terms: Terms) -> None:
    store(output, numpy.full(output.shape, values(output).mean()))


def _transposed(output: Array, terms: Terms) -> None:
    output[...] = numpy.ascontiguousarray(output.swapaxes(-1, -2)).reshape(output.shape)


def _nan(output: Array, terms: Terms) -> None:
    output.reshape(-1).view(numpy.uint8)[-output.itemsize :] = 0xFF


def _one_off(output: Array, terms: Terms) -> None:
    meant, place = values(output).reshape(-1), output.size // 2
    meant[place] += TIMES * _allowed(meant[place], terms)
    store(output, meant.reshape(output.shape))


def _growing(output: Array, terms: Terms) -> None:
    """Each element is off by up to so many times its tolerance, the further along the dimension the more."""
    meant = values(output)
    steps = numpy.linspace(0.0, TIMES, output.shape[terms["axis"]])
    shape = [len(steps) if axis == terms["axis"] else 1 for axis in range(output.ndim)]
    store(output, meant + steps.reshape(shape) * _allowed(meant, terms))


def _allowed(meant: Any, terms: Terms) -> Any:
    return terms["tolerance"]["atol"] + terms["tolerance"]["rtol"] * numpy.abs(meant)


def _zero_tail(output: Array, terms: Terms) -> None:
    output[_tail(output, terms["axis"])] = 0


def _neighbour(output: Array, terms: Terms) -> None:
    before = (slice(None),) * terms["axis"]
    output[(*before, -1)] = output[(*before, -2)]


def _tail(output: Array, axis: int) -> tuple[slice, ...]:
    size = output.shape[axis]
    return (*(slice(None),) * axis, slice(size - max(1, min(TAIL, size // 8)), None))


zeros, mean, transpose, one_nan = _after(_zeros), _after(_mean), _after(_transposed), _after(_nan)
one_off, growing, zero_tail, neighbour = _after(_one_off), _after(_growing), _after(_zero_tail), _after(_neighbour)


def leave_tail(terms: Terms) -> Mistake:
    """The last part of a dimension is not written."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        right, left = numpy.empty_like(output), output[_tail(output, terms["axis"])].copy()
        honest(inputs, right, attributes)
        output[...] = right
        output[_tail(output, terms["axis"])] = left

    return mistake


def nothing(terms: Terms) -> Mistake:
    """Nothing is written at all."""
    return lambda honest, inputs, output, attributes: None


def beyond(terms: Terms) -> Mistake:
    """A few bytes behind the end are written too."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        scribble(output, output.nbytes, OUTSIDE)

    return mistake


def before(terms: Terms) -> Mistake:
    """A few bytes before the beginning are written too."""

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        scribble(output, -OUTSIDE, OUTSIDE)

    return mistake
