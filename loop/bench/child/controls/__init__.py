"""Negative controls: an honest variant made to err on purpose, which the gate has to find.

A mistake wraps what a variant is to the gate, a C entry or a Python function, so that everything around it is what
a real candidate meets. `loop.bench.controls` says which there are for a target, and what each has to be found by.
"""

import copy
import sys
from collections.abc import Callable
from typing import Any

from loop.bench.child.controls import effects, inputs, memory, outputs
from loop.bench.child.controls.arrays import Mistake, through_library
from loop.bench.child.refusal import Refused
from loop.bench.child.variants import Compiled, Importable, Loaded

MAKERS: dict[str, Callable[[dict[str, Any]], Mistake]] = {
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
    "nothing": outputs.nothing,
    "beyond": outputs.beyond,
    "stale": memory.stale,
    "skip_every_other": memory.skip_every_other,
    "repeat_every_other": memory.repeat_every_other,
    "by_address": memory.by_address,
    "by_value": memory.by_value,
    "by_sample": memory.by_sample,
    "at_first_address": memory.at_first_address,
    "known_only": memory.known_only,
    "slackens": memory.slackens,
    "write_input": effects.write_input,
    "use_input": effects.use_input,
    "answer_in_input": effects.answer_in_input,
    "vary": effects.vary,
    "come_late": effects.come_late,
    "leave_cores": effects.leave_cores,
}
"""Mistakes that are the same for compiled and for Python variants."""


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
    if loaded.device == "cuda":
        raise Refused("no mistake can be put into a compiled variant whose tensors are a device's")
    erring = copy.copy(loaded)
    mistake = MAKERS[terms["make"]]({**terms, "to": terms.get("number")})
    erring.invoke = through_library(loaded.invoke, mistake, terms["attributes"])  # type: ignore[method-assign]
    return erring


def _function(loaded: Importable, terms: dict[str, Any]) -> Loaded:
    from loop.bench.child.controls import tampering
    from loop.bench.child.controls.functions import through_function

    erring = copy.copy(loaded)
    own = tampering.MAKERS.get(terms["make"])
    if own is not None:
        erring.function = own(loaded.function, terms)
    else:
        erring.function = through_function(loaded.function, MAKERS[terms["make"]](terms))
    return erring
