"""Cheats that only Python variants can make: what they give back is no plain, or no new tensor."""

from collections.abc import Callable
from typing import Any

import torch

from loop.calls.torch_side import Function
from loop.mistakes.arrays import Terms


class Later(torch.Tensor):
    """A tensor that would compute when it is read."""


def give_promise(function: Function, terms: Terms) -> Function:
    """A result that is no plain tensor."""
    return lambda *tensors, **attributes: function(*tensors, **attributes).as_subclass(Later)


def other_type(function: Function, terms: Terms) -> Function:
    """A result of half the precision, or of twice it where it is half already."""

    def called(*tensors: Any, **attributes: Any) -> Any:
        result = function(*tensors, **attributes)
        return result.to(torch.float32 if result.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16)

    return called


def give_input(function: Function, terms: Terms) -> Function:
    """An input itself, where it has the output's shape."""
    return lambda *tensors, **attributes: tensors[terms["input"]]


def keep_result(function: Function, terms: Terms) -> Function:
    """Every second call gives the tensor of the one before again: right, as long as nobody looks closely."""
    results: list[Any] = []

    def lazy(*tensors: Any, **attributes: Any) -> Any:
        if results:
            return results.pop()
        results.append(function(*tensors, **attributes))
        return results[0]

    return lazy


def leave_unwritten(function: Function, terms: Terms) -> Function:
    """Every second call gives fresh memory, in the hope that the last result still stands there."""
    form: dict[str, Any] = {}

    def lazy(*tensors: Any, **attributes: Any) -> Any:
        if form:
            return torch.empty(**{name: form.pop(name) for name in tuple(form)})
        result = function(*tensors, **attributes)
        form.update(size=result.shape, dtype=result.dtype, device=result.device)
        return result

    return lazy


MAKERS: dict[str, Callable[[Function, Terms], Function]] = {
    function.__name__: function
    for function in (give_promise, other_type, give_input, keep_result, leave_unwritten)
}
"""Mistakes that only a Python variant can make, by name."""
