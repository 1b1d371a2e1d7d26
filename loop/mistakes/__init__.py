"""Negative controls: an honest variant made to err on purpose, which the gate has to find.

A mistake wraps what a variant is to the gate, a C entry or a Python function, so that everything around it is what
a real candidate meets. `loop.proving.controls` says which there are for a target, and what each has to be found
by.
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
from loop.mistakes.arrays import Mistake, through_library

Makers = dict[str, Callable[[dict[str, Any]], Mistake]]

BY_VALUE: Makers = {
    "none": lambda terms: lambda honest, arrays, output, attributes: honest(arrays, output, attributes),
    "ignore": inputs.ignore,
    "swap": inputs.swap,
    "cut": inputs.cut,
    "set_attribute": inputs.set_attribute,
    "wrong_number": inputs.wrong_number,
    "round_inputs": inputs.round_inputs,
    "zeros": outputs.zeros,
    "mean": outputs.mean,
    "transpose": outputs.transpose,
    "one_off": outputs.one_off,
    "one_nan": outputs.one_nan,
    "growing": outputs.growing,
    "zero_tail": outputs.zero_tail,
    "leave_tail": outputs.leave_tail,
    "neighbour": outputs.neighbour,
    "write_input": effects.write_input,
    "use_input": effects.use_input,
    "answer_in_input": effects.answer_in_input,
    "vary": effects.vary,
}
"""Mistakes that look at single values: the tensors of a device go through the host."""
WHOLE: Makers = {
    "none, whole": BY_VALUE["none"],
    "nothing": outputs.nothing,
    "beyond": outputs.beyond,
    "before": outputs.before,
    "stale": memory.stale,
    "skip_every_other": memory.skip_every_other,
    "repeat_every_other": memory.repeat_every_other,
    "by_address": memory.by_address,
    "by_value": memory.by_value,
    "by_sample": memory.by_sample,
    "keeps_inputs": memory.keeps_inputs,
    "at_first_address": memory.at_first_address,
    "known_only": memory.known_only,
    "slackens": memory.slackens,
    "come_late": effects.come_late,
    "leave_cores": effects.leave_cores,
}
"""Mistakes that copy whole tensors, wherever these are."""
MAKERS = BY_VALUE | WHOLE
"""Mistakes that are the same for compiled and for Python variants. Those of a device are in `streams`."""


def clean() -> None:
    """Undo what an earlier control replaced in this process."""
    tampering = sys.modules.get(f"{__name__}.tampering")
    if tampering is not None:
        tampering.restore()


def wrap(loaded: Loaded, terms: dict[str, Any]) -> Loaded:
    """The same variant, erring as `terms` says: `make` names the mistake, the rest is its own."""
    if isinstance(loaded, Compiled):
        return _library(loaded, terms)
    if isinstance(loaded, Importable):
        return _function(loaded, terms)
    raise Refused("no mistake can be put into a program of its own")


def _library(loaded: Compiled, terms: dict[str, Any]) -> Loaded:
    erring = copy.copy(loaded)
    erring.invoke = _erring(loaded, {**terms, "to": terms.get("number")})  # type: ignore[method-assign]
    return erring


def _erring(loaded: Compiled, terms: dict[str, Any]) -> Callable[..., None]:
    make, names = terms["make"], terms["attributes"]
    if loaded.device != "cuda":
        return through_library(loaded.invoke, MAKERS[make](terms), names)
    from loop.mistakes import device, streams

    if make in BY_VALUE:
        on_host = partial(through_library, mistake=BY_VALUE[make](terms), names=names)
        return device.through_host(loaded.invoke, on_host)
    made: Any = {**WHOLE, **streams.MAKERS}[make](terms)
    return device.through_device(loaded.invoke, made, names)


def _function(loaded: Importable, terms: dict[str, Any]) -> Loaded:
    from loop.mistakes import functions, tampering

    erring, make = copy.copy(loaded), terms["make"]
    if make in tampering.MAKERS:
        erring.function = tampering.MAKERS[make](loaded.function, terms)
    elif make in BY_VALUE or loaded.device != "cuda":
        erring.function = functions.through_function(loaded.function, MAKERS[make](terms))
    else:
        from loop.mistakes import streams

        made: Any = {**WHOLE, **streams.MAKERS}[make](terms)
        erring.function = functions.through_device(loaded.function, made)
    return erring
