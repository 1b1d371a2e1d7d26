"""Cheats that remember: an earlier output comes back instead of being computed."""

import zlib
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any

from loop.mistakes.arrays import Array, Attributes, Honest, Mistake, address, contents

Terms = dict[str, Any]
KEPT = 64
"""Outputs that are remembered at a time."""
SAMPLE = 64
"""Elements of each input that a careless cache looks at."""
PAUSE_S = 2e-3
"""A gap between calls that tells a cheat of a new segment, it hopes."""
SLACKENING = 2
"""Calls after a pause that are made in full."""
WHILE = 6
"""Different inputs that a cheat computes before it becomes choosy."""


def stale(terms: Terms) -> Mistake:
    """The output of the call before; only the first is computed."""
    before: dict[Hashable, Array] = {}

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        honest(inputs, output, attributes)
        right = output.copy()
        output[...] = before.get(output.shape, right)
        before[output.shape] = right

    return mistake


def skip_every_other(terms: Terms) -> Mistake:
    """Every second call writes nothing."""
    calls = 0

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            honest(inputs, output, attributes)

    return mistake


def repeat_every_other(terms: Terms) -> Mistake:
    """Every second call gives what the one before gave."""
    last: dict[Hashable, Array] = {}

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        kept = last.pop(output.shape, None)
        if kept is None:
            honest(inputs, output, attributes)
            last[output.shape] = output.copy()
        else:
            output[...] = kept

    return mistake


def _remembering(key: Callable[[Array], Hashable]) -> Callable[[Terms], Mistake]:
    """An output is computed once for each key of the inputs."""

    def maker(terms: Terms) -> Mistake:
        known: dict[Hashable, Array] = {}

        def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
            asked = (*map(key, inputs), output.shape, *map(str, attributes.values()))
            if asked not in known:
                honest(inputs, output, attributes)
                known[asked] = output.copy()
                if len(known) > KEPT:
                    del known[next(iter(known))]
            else:
                output[...] = known[asked]

        return mistake

    return maker


def _value(array: Array) -> Hashable:
    return zlib.adler32(contents(array))


def _sample(array: Array) -> Hashable:
    return bytes(contents(array, SAMPLE))


by_address, by_value, by_sample = _remembering(address), _remembering(_value), _remembering(_sample)


def keeps_inputs(terms: Terms) -> Mistake:
    """It reads an input once, and computes from its copy when the same memory comes again."""
    copies: dict[Hashable, Array] = {}

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        for array in inputs:
            if (address(array), array.shape) not in copies:
                copies[address(array), array.shape] = array.copy()
        honest([copies[address(array), array.shape] for array in inputs], output, attributes)

    return mistake


def _kind(output: Array, attributes: Attributes) -> Hashable:
    """What calls have in common that go to the same memory."""
    return (output.shape, *map(str, attributes.values()))


def at_first_address(terms: Terms) -> Mistake:
    """It computes only for the addresses of its first call: those that are looked at, it hopes."""
    first: dict[Hashable, Hashable] = {}

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        place = tuple(map(address, inputs))
        if first.setdefault(_kind(output, attributes), place) == place:
            honest(inputs, output, attributes)

    return mistake


def slackens(terms: Terms) -> Mistake:
    """It computes its first calls after a pause, and then leaves every second one out."""
    calls, last = 0, 0.0

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        nonlocal calls, last
        begin = perf_counter()
        calls = 0 if begin - last > PAUSE_S else calls + 1
        if calls < SLACKENING or calls % 2:
            honest(inputs, output, attributes)
        last = perf_counter()

    return mistake


def known_only(terms: Terms) -> Mistake:
    """After a while it computes only what it has met before: values that come back are looked at, it hopes."""
    met: dict[Hashable, set[Hashable]] = {}

    def mistake(honest: Honest, inputs: list[Array], output: Array, attributes: Attributes) -> None:
        known, asked = met.setdefault(_kind(output, attributes), set()), tuple(map(_sample, inputs))
        if len(known) < WHILE or asked in known:
            honest(inputs, output, attributes)
        known.add(asked)

    return mistake
