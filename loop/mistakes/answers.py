"""An answer to a task of another format that errs: its own reference, with one mistake put into each call.

The mistake sees the floating-point tensors among the inputs and the first of those among the outputs. Everything
else goes by it: whole numbers, other outputs, tuples and dicts around them.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from loop.calls.callee import put_together, take_apart
from loop.calls.torch_side import Function, import_file
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


def erring(function: Function, terms: Terms) -> Function:
    """The same function of any structure, erring as `terms` says."""
    if terms["make"] == EXACT:
        return widened(function)
    held: dict[str, Any] = {}

    def honest(*tensors: Tensor, **attributes: Any) -> Tensor:
        given = held["given"]
        placed = dict(zip(floating(given.tensors), tensors, strict=True))
        positional, keywords = put_together(
            given.rest, [placed.get(n, one) for n, one in enumerate(given.tensors)]
        )
        result = held["result"] = take_apart(function(*positional, **keywords))
        return result.tensors[floating(result.tensors)[0]]

    def called(*positional: Any, **keywords: Any) -> Any:
        given = held["given"] = take_apart((positional, keywords))
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


def erring_module(path: str, name: str, terms: Terms) -> type:
    """A class of a file, derived from `torch.nn.Module`, whose `forward` errs."""
    base: Any = getattr(import_file(path), name)

    class Erring(base):  # type: ignore[misc]
        def __init__(self, *positional: Any, **keywords: Any) -> None:
            super().__init__(*positional, **keywords)
            self.wide: list[Any] = []
            honest = self.in_double if terms["make"] == EXACT else super().forward
            self.erring: Callable[..., Any] = erring(honest, terms)

        def in_double(self, *positional: Any, **keywords: Any) -> Any:
            """The same on weights in float64, as they are at the first call."""
            self.wide = self.wide or [copy.deepcopy(self).double()]
            return base.forward(self.wide[0], *positional, **keywords)

        def forward(self, *positional: Any, **keywords: Any) -> Any:
            return self.erring(*positional, **keywords)

    return Erring
