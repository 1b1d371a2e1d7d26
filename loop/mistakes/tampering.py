"""Cheats of Python variants: they replace what they are timed and judged with, or give back what is no tensor."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import torch

from loop.calls import callee
from loop.calls.torch_side import Function
from loop.mistakes.arrays import Terms

SLOWNESS = 3
_replaced: list[tuple[Any, str, Any]] = []


def _replace(owner: Any, name: str, other: Any) -> None:
    if (owner, name) not in [known[:2] for known in _replaced]:
        _replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, other)


def restore() -> None:
    """Put everything back, so that the next control starts clean."""
    while _replaced:
        owner, name, real = _replaced.pop()
        setattr(owner, name, real)


def _slow(real: Callable[[], Any]) -> Callable[[], Any]:
    begin = real()
    return lambda: begin + (real() - begin) / SLOWNESS


def patch_clock(function: Function, terms: Terms) -> Function:
    """All clocks by their names."""

    def patch() -> None:
        for name in ("perf_counter", "perf_counter_ns"):
            _replace(time, name, _slow(getattr(time, name)))

    return _first(patch, function)


def patch_events(function: Function, terms: Terms) -> Function:
    """What reads the time between two events of a device."""
    real = torch.cuda.Event.elapsed_time

    def less(begin: Any, end: Any) -> float:
        return float(real(begin, end)) / SLOWNESS

    return _first(lambda: _replace(torch.cuda.Event, "elapsed_time", less), function)


def patch_comparison(function: Function, terms: Terms) -> Function:
    """What turns an output into a digest: a second output that differs would not show."""
    digest = hashlib.sha256()
    return _first(lambda: _replace(hashlib, "sha256", lambda *_, **__: digest), function)


def patch_reading(function: Function, terms: Terms) -> Function:
    """What checks a result's type and shape."""
    return _first(lambda: _replace(callee, "check_result", lambda *_: None), function)


def _first(patch: Callable[[], None], function: Function) -> Function:
    def patched(*tensors: Any, **attributes: Any) -> Any:
        patch()
        return function(*tensors, **attributes)

    return patched


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
    for function in (
        *(patch_clock, patch_events, patch_comparison, patch_reading),
        *(give_promise, other_type, give_input, keep_result, leave_unwritten),
    )
}
"""Mistakes that only a Python variant can make, by name."""
