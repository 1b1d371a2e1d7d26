"""Mistakes in what is written: right values spoilt, misplaced, left out, or put elsewhere."""

from collections.abc import Callable
from typing import Any

import numpy

from loop.mistakes.arrays import Array, Call, Terms, scribble, store, values

TIMES = 20.0
"""A single element is off by this many times its tolerance."""
OUTSIDE = 3
"""Bytes that are written outside an output."""
TAIL = 16
"""A tail is a dimension's last eighth, or its last sixteen."""


def spoiling(spoil: Callable[[Array, Terms], None]) -> Callable[[Call], None]:
    """Compute what is right, then spoil it."""

    def err(call: Call) -> None:
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


def roll(output: Array, terms: Terms) -> None:
    """Each place of a dimension holds what belongs to its neighbour."""
    output[...] = numpy.roll(output, terms["by"], terms["axis"])


def _tail(output: Array, axis: int) -> tuple[slice, ...]:
    size = output.shape[axis]
    return (*(slice(None),) * axis, slice(size - max(1, min(TAIL, size // 8)), None))


def leave_tail(call: Call) -> None:
    """The last part of a dimension is not written."""
    place = _tail(call.output, call.terms["axis"])
    right, left = numpy.empty_like(call.output), call.output[place].copy()
    call.compute(output=right)
    call.output[...] = right
    call.output[place] = left


def nothing(call: Call) -> None:
    """Nothing is written at all."""


def beyond(call: Call) -> None:
    """A few bytes behind the end are written too."""
    call.compute()
    scribble(call.output, call.output.nbytes, OUTSIDE)


def before(call: Call) -> None:
    """A few bytes before the beginning are written too."""
    call.compute()
    scribble(call.output, -OUTSIDE, OUTSIDE)
