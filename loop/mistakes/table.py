"""Mistakes by name, each written once for host, device and Python functions."""

import itertools
from typing import Any

from loop.mistakes import values
from loop.mistakes.arrays import ErringCall, Mistake, Terms

MOST_REMEMBERED = 64
"""Maximum number of outputs that a mistake remembers."""
OUTSIDE_BYTES, OUTSIDE_VALUE = 3, 0x5A
"""Number of bytes to write out of bounds, and their value."""


def stale(call: ErringCall) -> None:
    """Cheat: return the previous output of the same shape; the first one is right."""
    call.compute()
    right = call.output.copy()
    call.output[...] = call.memory.get(call.output.shape, right)
    call.memory[call.output.shape] = right


def skip_every_other(call: ErringCall) -> None:
    """Cheat: every second call writes nothing."""
    if call.earlier_calls % 2 == 0:
        call.compute()


def by_address(call: ErringCall) -> None:
    """Cheat: cache the last MOST_REMEMBERED outputs by addresses of inputs, output shape and attributes."""
    key = (*call.input_and_output_addresses[:-1], call.output.shape, *map(str, call.attributes.values()))
    if key in call.memory:
        call.output[...] = call.memory[key]
        return
    call.compute()
    call.memory[key] = call.output.copy()
    if len(call.memory) > MOST_REMEMBERED:
        del call.memory[next(iter(call.memory))]


def keeps_inputs(call: ErringCall) -> None:
    """Cheat: cache the inputs by address and compute from the cached copies."""
    cached_inputs = []
    for address, array in zip(call.input_and_output_addresses, call.inputs, strict=False):
        cached_inputs.append(call.memory.setdefault((address, array.shape), array.copy()))
    call.compute(cached_inputs)


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
    call.inputs[call.terms["input"]].reshape(-1)[-1:] = 0


SPOILING = (
    *(values.zeros, values.mean, values.transpose, values.one_off, values.one_nan, values.growing),
    *(values.zero_tail, values.neighbour),
)
ON_VALUES = (
    *(values.ignore, values.swap, values.cut, values.set_attribute, values.wrong_number),
    *(values.round_inputs, values.leave_tail, values.use_input, values.answer_in_input, values.vary),
)
ON_TENSORS = (*(nothing, beyond, before), *(stale, skip_every_other, keeps_inputs), by_address, write_input)
ERROR_BY_NAME: dict[str, Mistake] = {
    "none": ErringCall.compute,
    **{spoil.__name__: values.spoiling(spoil) for spoil in SPOILING},
    **{err.__name__: err for err in (*ON_VALUES, *ON_TENSORS)},
}
"""Name to the function that makes the mistake in an ErringCall."""


def mistake_of(terms: Terms) -> Mistake:
    """The mistake that `terms["make"]` names, with a memory of its own between calls."""
    err, numbers, memory = ERROR_BY_NAME[terms["make"]], itertools.count(), dict[Any, Any]()

    def mistake(call: ErringCall) -> None:
        call.terms, call.earlier_calls, call.memory = terms, next(numbers), memory
        err(call)

    return mistake
