"""Cheats on whole tensors: earlier outputs instead of new ones, writes elsewhere."""

import zlib
from collections.abc import Hashable, Iterable
from time import perf_counter

from loop.mistakes.arrays import ErringCall

KEPT = 64
"""Outputs that are remembered at a time."""
SAMPLE = 64
"""Elements of each input that a careless cache looks at."""
PAUSE_S = 2e-3
"""A gap between calls that tells a cheat of a new segment, it hopes, unless a call takes longer than that."""
SLACKENING = 2
"""Calls after a pause that are made in full."""
WHILE = 6
"""Different inputs that a cheat computes before it becomes choosy."""
OUTSIDE, SCRIBBLE = 3, 0x5A
"""Bytes that are written outside an output, and their value."""


def stale(call: ErringCall) -> None:
    """The output of the call before; only the first is computed."""
    call.compute()
    right = call.output.copy()
    call.output[...] = call.kept.get(call.output.shape, right)
    call.kept[call.output.shape] = right


def skip_every_other(call: ErringCall) -> None:
    """Every second call writes nothing."""
    if call.number % 2 == 0:
        call.compute()


def repeat_every_other(call: ErringCall) -> None:
    """Every second call gives what the one before gave."""
    before = call.kept.pop(call.output.shape, None)
    if before is None:
        call.compute()
        call.kept[call.output.shape] = call.output.copy()
    else:
        call.output[...] = before


def by_address(call: ErringCall) -> None:
    """An output is computed once for inputs at the same addresses."""
    _remember(call, call.origin.addresses[:-1])


def by_value(call: ErringCall) -> None:
    """An output is computed once for inputs of the same values."""
    _remember(call, [zlib.adler32(array.reshape(-1)) for array in call.inputs])


def _remember(call: ErringCall, keys: Iterable[int]) -> None:
    """Compute an output once for inputs of these keys."""
    question = (*keys, call.output.shape, *map(str, call.attributes.values()))
    if question in call.kept:
        call.output[...] = call.kept[question]
        return
    call.compute()
    call.kept[question] = call.output.copy()
    if len(call.kept) > KEPT:
        del call.kept[next(iter(call.kept))]


def keeps_inputs(call: ErringCall) -> None:
    """It reads an input once, and computes from its copy when the same memory comes again."""
    places = [(address, array.shape) for address, array in zip(call.origin.addresses, call.inputs, strict=False)]
    for place, array in zip(places, call.inputs, strict=True):
        if place not in call.kept:
            call.kept[place] = array.copy()
    call.compute([call.kept[place] for place in places])


def _kind(call: ErringCall) -> Hashable:
    return (call.output.shape, *map(str, call.attributes.values()))


def at_first_address(call: ErringCall) -> None:
    """It computes only for the addresses of its first call: those that are looked at, it hopes."""
    place = call.origin.addresses[:-1]
    if call.kept.setdefault(_kind(call), place) == place:
        call.compute()


def slackens(call: ErringCall) -> None:
    """It computes its first calls after a pause, and then leaves every second one out."""
    begin = perf_counter()
    paused = begin - call.kept.get("last", 0.0) > max(PAUSE_S, call.kept.get("took", 0.0))
    calls = call.kept["calls"] = 0 if paused else call.kept["calls"] + 1
    if calls < SLACKENING or calls % 2:
        call.compute()
        call.kept["took"] = perf_counter() - begin
    call.kept["last"] = perf_counter()


def known_only(call: ErringCall) -> None:
    """After a while it computes only what it has met before: values that come back are looked at, it hopes."""
    known = call.kept.setdefault(_kind(call), set())
    sample = tuple(bytes(array.reshape(-1)[:SAMPLE]) for array in call.inputs)
    if len(known) < WHILE or sample in known:
        call.compute()
    known.add(sample)


def nothing(call: ErringCall) -> None:
    """Nothing is written at all."""


def beyond(call: ErringCall) -> None:
    """A few bytes behind the end are written too."""
    call.compute()
    call.origin.fill(call.origin.addresses[-1] + call.output.nbytes, OUTSIDE, SCRIBBLE)


def before(call: ErringCall) -> None:
    """A few bytes before the beginning are written too."""
    call.compute()
    call.origin.fill(call.origin.addresses[-1] - OUTSIDE, OUTSIDE, SCRIBBLE)


def write_input(call: ErringCall) -> None:
    """Once it has computed, it writes to an input."""
    call.compute()
    call.inputs[call.terms["input"]].reshape(-1)[-1:] = 0
