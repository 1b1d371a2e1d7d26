"""Cheats on whole tensors, on the host and on a device: earlier outputs instead of new ones, writes elsewhere."""

import threading
import time
import zlib
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any

from loop.mistakes.arrays import ErringCall, address, contents, scribble, unset_last

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
OUTSIDE = 3
"""Bytes that are written outside an output."""
LATE_S = 0.02
"""A thread writes so long after the call has returned."""


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
    _remember(call, address)


def by_value(call: ErringCall) -> None:
    """An output is computed once for inputs of the same values."""
    _remember(call, lambda array: zlib.adler32(contents(array)))


def by_sample(call: ErringCall) -> None:
    """An output is computed once for inputs that begin with the same values."""
    _remember(call, _sample)


def _remember(call: ErringCall, key: Callable[[Any], Hashable]) -> None:
    """Compute an output once for each key of the inputs."""
    question = (*map(key, call.inputs), call.output.shape, *map(str, call.attributes.values()))
    if question in call.kept:
        call.output[...] = call.kept[question]
        return
    call.compute()
    call.kept[question] = call.output.copy()
    if len(call.kept) > KEPT:
        del call.kept[next(iter(call.kept))]


def _sample(array: Any) -> Hashable:
    return bytes(contents(array, SAMPLE))


def keeps_inputs(call: ErringCall) -> None:
    """It reads an input once, and computes from its copy when the same memory comes again."""
    for array in call.inputs:
        if (address(array), array.shape) not in call.kept:
            call.kept[address(array), array.shape] = array.copy()
    call.compute([call.kept[address(array), array.shape] for array in call.inputs])


def _kind(call: ErringCall) -> Hashable:
    return (call.output.shape, *map(str, call.attributes.values()))


def at_first_address(call: ErringCall) -> None:
    """It computes only for the addresses of its first call: those that are looked at, it hopes."""
    place = tuple(map(address, call.inputs))
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
    known, sample = call.kept.setdefault(_kind(call), set()), tuple(map(_sample, call.inputs))
    if len(known) < WHILE or sample in known:
        call.compute()
    known.add(sample)


def nothing(call: ErringCall) -> None:
    """Nothing is written at all."""


def beyond(call: ErringCall) -> None:
    """A few bytes behind the end are written too."""
    call.compute()
    scribble(call.output, call.output.nbytes, OUTSIDE)


def before(call: ErringCall) -> None:
    """A few bytes before the beginning are written too."""
    call.compute()
    scribble(call.output, -OUTSIDE, OUTSIDE)


def write_input(call: ErringCall) -> None:
    """Once it has computed, it writes to an input."""
    call.compute()
    unset_last(call.inputs[call.terms["input"]])


def come_late(call: ErringCall) -> None:
    """It returns at once, and a thread writes the output a moment later."""

    def later() -> None:
        time.sleep(LATE_S)
        call.compute()

    threading.Thread(target=later, daemon=True).start()
