"""An answer to a task of another format that errs: its own reference, with one mistake put into each call.

The mistake sees the floating-point tensors among the inputs and the first of those among the outputs. Everything
else goes by it: whole numbers, other outputs, tuples and dicts around them.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from loop.calls.callee import put_together, take_apart
from loop.calls.torch_side import Function, import_file
from loop.calls.variants import Importable
from loop.mistakes import erring_function
from loop.mistakes.arrays import Terms

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def floating(tensors: tuple[Tensor, ...]) -> list[int]:
    """Places of the tensors that mistakes are put into."""
    return [place for place, one in enumerate(tensors) if one.dtype in FLOATING]


EXACT = "exact"
"""No mistake: the same in float64, whose result is rounded."""


def widened(function: Function) -> Function:
    """The same function of floating-point tensors in float64; its floating-point outputs are rounded back."""

    def called(*positional: Any, **keywords: Any) -> Any:
        given = take_apart((positional, keywords))
        wide = [one.double() if one.dtype in FLOATING else one for one in given.tensors]
        dtype = next((one.dtype for one in given.tensors if one.dtype in FLOATING), torch.float32)
        inputs, named = put_together(given.rest, wide)
        result = take_apart(function(*inputs, **named))
        outputs = [one.to(dtype) if one.dtype in FLOATING else one for one in result.tensors]
        return put_together(result.rest, outputs)

    return called


def erring(function: Function, terms: Terms, held: dict[str, Any] | None = None) -> Function:
    """The same function of any structure, erring as `terms` says; `held`: what several may remember together."""
    if terms["make"] == EXACT:
        return widened(function)
    held = {} if held is None else held

    def honest(*tensors: Tensor, **attributes: Any) -> Tensor:
        given = held["given"]
        placed = dict(zip(floating(given.tensors), tensors, strict=True))
        positional, keywords = put_together(
            given.rest, [placed.get(n, one) for n, one in enumerate(given.tensors)]
        )
        result = held["result"] = take_apart(held["function"](*positional, **keywords))
        return result.tensors[floating(result.tensors)[0]]

    def called(*positional: Any, **keywords: Any) -> Any:
        given = held["given"] = take_apart((positional, keywords))
        held["function"] = function
        tensors = [given.tensors[n] for n in floating(given.tensors)]
        if "mistake" not in held:
            held["mistake"] = erring_function(honest, tensors[0].device.type, terms)
        wrong = held["mistake"](*tensors)
        if "result" not in held:  # The structure is known only once it was computed.
            honest(*tensors)
        result = held["result"]
        outputs = list(result.tensors)
        outputs[floating(result.tensors)[0]] = wrong
        return put_together(result.rest, outputs)

    return called


def erring_class(base: Any, terms: Terms) -> Any:
    """A class derived from one whose objects are called: they err, and remember together."""
    held: dict[str, Any] = {}
    name = "forward" if issubclass(base, torch.nn.Module) else "__call__"

    def made(self: Any, *positional: Any, **keywords: Any) -> None:
        base.__init__(self, *positional, **keywords)
        own = functools.partial(getattr(base, name), self)
        self.erring = erring(functools.partial(in_double, self) if terms["make"] == EXACT else own, terms, held)
        self.wide = []

    def in_double(self: Any, *positional: Any, **keywords: Any) -> Any:
        self.wide = self.wide or [copy.deepcopy(self).double()]  # Weights are those of the first call.
        return getattr(base, name)(self.wide[0], *positional, **keywords)

    def called(self: Any, *positional: Any, **keywords: Any) -> Any:
        return self.erring(*positional, **keywords)

    return type(base.__name__, (base,), {"__init__": made, name: called})


def structured(function: Any, terms: Terms) -> Any:
    """A function or class of a target whose inputs are of any structure, erring."""
    made: Callable[..., Any] = erring_class if terms["structured"] == "class" else erring
    return made(function, terms)


def wrap(loaded: Importable, terms: Terms) -> Importable:
    """A Python variant of such a target, erring."""
    wrong = copy.copy(loaded)
    wrong.function = structured(loaded.function, terms)
    return wrong


def erring_module(path: str, name: str, terms: Terms) -> Any:
    """A class of a file that errs."""
    return erring_class(getattr(import_file(path), name), terms)
