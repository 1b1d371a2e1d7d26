"""Mistakes and cheats: an honest variant made to err on purpose, which the gate has to find. Runs in a worker.

A mistake wraps what the gate sees of a variant: a C entry or a Python function. So everything around it is what a
real candidate meets. `proving.negative_controls` says which there are for a target, and what each has to be found
by.

Begin with `arrays`: a mistake is a function of one `Call` and of what it keeps from call to call. It decides how
the call is computed. Mistakes on single values (`BY_VALUE`) see numpy arrays; on a GPU their tensors go through
the host. Those that copy whole tensors (`WHOLE`, `streams`) queue their work on the call's stream, so that a graph
captures it like a kernel (`device`). `tampering` has cheats that only a Python variant can make.
"""

import copy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from loop.calls.prepared import Loaded
from loop.calls.refusal import Refused
from loop.calls.variants import Compiled, Importable
from loop.mistakes import effects, inputs, memory, outputs
from loop.mistakes.arrays import Call, Maker, Terms, maker, through_library

SPOILING = (
    *(outputs.zeros, outputs.mean, outputs.transpose, outputs.one_off, outputs.one_nan, outputs.growing),
    *(outputs.zero_tail, outputs.neighbour, outputs.roll),
)
ON_VALUES = (
    *(inputs.ignore, inputs.swap, inputs.read_for, inputs.cut, inputs.set_attribute, inputs.wrong_number),
    *(inputs.round_inputs, outputs.leave_tail),
    *(effects.use_input, effects.answer_in_input, effects.vary),
)
ON_TENSORS = (
    *(outputs.nothing, outputs.beyond, outputs.before),
    *(memory.stale, memory.skip_every_other, memory.repeat_every_other, memory.keeps_inputs),
    *(memory.by_address, memory.by_value, memory.by_sample),
    *(memory.at_first_address, memory.known_only, memory.slackens),
    *(effects.write_input, effects.come_late, effects.leave_cores),
)
BY_VALUE: dict[str, Maker] = {
    "none": maker(Call.compute),
    **{spoil.__name__: maker(outputs.spoiling(spoil)) for spoil in SPOILING},
    **{err.__name__: maker(err) for err in ON_VALUES},
}
"""Mistakes that look at single values, by name: the tensors of a device go through the host."""
WHOLE: dict[str, Maker] = {"none, whole": BY_VALUE["none"], **{err.__name__: maker(err) for err in ON_TENSORS}}
"""Mistakes that copy whole tensors, wherever these are."""
MAKERS = BY_VALUE | WHOLE
"""Mistakes that are the same for compiled and for Python variants. Those of a device are in `streams`."""


def clean() -> None:
    """Undo what an earlier control replaced in this process."""
    tampering = sys.modules.get(f"{__name__}.tampering")
    if tampering is not None:
        tampering.restore()


def wrap(loaded: Loaded, terms: Terms) -> Loaded:
    """The same variant, erring as `terms` says: `make` names the mistake, the rest is its own."""
    if isinstance(loaded, Compiled):
        return _library(loaded, terms)
    if isinstance(loaded, Importable):
        return _function(loaded, terms)
    raise Refused("no mistake can be put into a program of its own")


def _library(loaded: Compiled, terms: Terms) -> Loaded:
    erring = copy.copy(loaded)
    erring.invoke = _erring(loaded, {**terms, "to": terms.get("number")})  # type: ignore[method-assign]
    return erring


def _erring(loaded: Compiled, terms: Terms) -> Callable[..., None]:
    make, names = terms["make"], terms["attributes"]
    if loaded.device != "cuda":
        return through_library(loaded.invoke, MAKERS[make](terms), names)
    from loop.mistakes import device, streams

    if make in BY_VALUE:
        on_host = partial(through_library, mistake=BY_VALUE[make](terms), names=names)
        return device.through_host(loaded.invoke, on_host)
    made: Any = {**WHOLE, **streams.MAKERS}[make](terms)
    return device.through_device(loaded.invoke, made, names)


def _function(loaded: Importable, terms: Terms) -> Loaded:
    erring = copy.copy(loaded)
    erring.function = erring_function(loaded.function, loaded.device, terms)
    return erring


def erring_function(function: Callable[..., Any], device: str, terms: Terms) -> Callable[..., Any]:
    """A function of tensors on a device that errs."""
    from loop.mistakes import functions, tampering

    make = terms["make"]
    if make in tampering.MAKERS:
        return tampering.MAKERS[make](function, terms)
    if make in BY_VALUE or device != "cuda":
        return functions.through_function(function, MAKERS[make](terms))
    from loop.mistakes import streams

    made: Any = {**WHOLE, **streams.MAKERS}[make](terms)
    return functions.through_device(function, made)
