"""Injects mistakes into Python functions and classes with any structure of arguments.

A mistake sees the floating-point inputs, in order, and the first floating-point output; all else
passes through.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.call import POISON
from loop.calls.callee import SplitStructure, rebuild_structure, split_structure
from loop.calls.torch_side import Function, import_file
from loop.mistakes.arrays import Array, Attributes, ErringCall, Mistake, Terms
from loop.mistakes.table import mistake_of


class Later(torch.Tensor):
    """A tensor subclass that could compute lazily, when it is read."""


def give_promise(function: Function, terms: Terms) -> Function:
    """Cheat: return a tensor subclass in place of a plain tensor."""
    return lambda *tensors, **attributes: function(*tensors, **attributes).as_subclass(Later)


def other_type(function: Function, terms: Terms) -> Function:
    """Mistake: return half the precision, or float32 if the result has half precision already."""

    def called(*tensors: Any, **attributes: Any) -> Any:
        result = function(*tensors, **attributes)
        return result.to(torch.float32 if result.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16)

    return called


def give_input(function: Function, terms: Terms) -> Function:
    """Cheat: return an input that has the output's shape."""
    return lambda *tensors, **attributes: tensors[terms["input"]]


def keep_result(function: Function, terms: Terms) -> Function:
    """Cheat: every second call returns the previous call's tensor."""
    results: list[Any] = []

    def lazy(*tensors: Any, **attributes: Any) -> Any:
        if results:
            return results.pop()
        results.append(function(*tensors, **attributes))
        return results[0]

    return lazy


def leave_unwritten(function: Function, terms: Terms) -> Function:
    """Cheat: every second call returns uninitialised memory, perhaps with the last result."""
    form: dict[str, Any] = {}

    def lazy(*tensors: Any, **attributes: Any) -> Any:
        if form:
            return torch.empty(**{name: form.pop(name) for name in tuple(form)})
        result = function(*tensors, **attributes)
        form.update(size=result.shape, dtype=result.dtype, device=result.device)
        return result

    return lazy


TAMPERING: dict[str, Callable[[Function, Terms], Function]] = {
    function.__name__: function
    for function in (give_promise, other_type, give_input, keep_result, leave_unwritten)
}
"""Mistakes that only a Python variant can make, by name."""


FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXACT = "exact"
"""Name of the control without a mistake: compute in float64 and round the result."""


def floating_places(tensors: tuple[Tensor, ...]) -> list[int]:
    """Positions of the floating-point tensors, which mistakes apply to."""
    return [place for place, tensor in enumerate(tensors) if tensor.dtype in FLOATING]


class Erring:
    """State of one mistake, which several functions may share, such as objects of a class."""

    def __init__(self, terms: Terms) -> None:
        tampering = TAMPERING.get(terms["make"])
        self.way = tampering(self.honest, terms) if tampering else through_function(self.honest, mistake_of(terms))
        self.names = terms.get("attributes", ())
        self.result: SplitStructure | None = None
        """Last honest result, split into tensors and structure."""

    def honest(self, *tensors: Tensor, **attributes: Any) -> Tensor:
        """Run the real function on other tensors; return its first floating-point output."""
        placed = dict(zip(floating_places(self.call.tensors), tensors, strict=True))
        inputs = [placed.get(place, tensor) for place, tensor in enumerate(self.call.tensors)]
        positional, keywords = rebuild_structure(self.call.skeleton, inputs)
        self.result = split_structure(self.function(*positional, **{**keywords, **attributes}))
        return self.result.tensors[floating_places(self.result.tensors)[0]]

    def __call__(self, function: Function, *positional: Any, **keywords: Any) -> Any:
        """Call the function with the mistake; return the result in the function's own structure."""
        self.function, self.call = function, split_structure((positional, keywords))
        tensors = [self.call.tensors[place] for place in floating_places(self.call.tensors)]
        attributes = {name: keywords[name] for name in self.names if name in keywords}
        wrong = self.way(*tensors, **attributes)
        if self.result is None:  # An honest result is needed for its structure.
            self.honest(*tensors, **attributes)
        assert self.result is not None
        outputs = list(self.result.tensors)
        outputs[floating_places(self.result.tensors)[0]] = wrong
        return rebuild_structure(self.result.skeleton, outputs)


def erring_function(function: Function, terms: Terms) -> Function:
    """Wrap a function with the mistake that `terms` describes."""
    return in_float64(function) if terms["make"] == EXACT else functools.partial(Erring(terms), function)


def in_float64(function: Function) -> Function:
    """Wrap a function: compute in float64, round floating-point outputs to the inputs' type."""

    def called(*positional: Any, **keywords: Any) -> Any:
        call = split_structure((positional, keywords))
        wide = [tensor.double() if tensor.dtype in FLOATING else tensor for tensor in call.tensors]
        dtype = next((tensor.dtype for tensor in call.tensors if tensor.dtype in FLOATING), torch.float32)
        inputs, named = rebuild_structure(call.skeleton, wide)
        result = split_structure(function(*inputs, **named))
        outputs = [tensor.to(dtype) if tensor.dtype in FLOATING else tensor for tensor in result.tensors]
        return rebuild_structure(result.skeleton, outputs)

    return called


def erring_class(base: Any, terms: Terms) -> Any:
    """Derive a class whose instances make the mistake; they share its state."""
    mistake = None if terms["make"] == EXACT else Erring(terms)
    name = "forward" if issubclass(base, torch.nn.Module) else "__call__"
    honest = getattr(base, name)

    def called(self: Any, *positional: Any, **keywords: Any) -> Any:
        if mistake is not None:
            return mistake(functools.partial(honest, self), *positional, **keywords)
        if "wide" not in vars(self):  # A float64 copy with the first call's weights, not in its state.
            vars(self)["wide"] = copy.deepcopy(self).double()
        return in_float64(functools.partial(honest, vars(self)["wide"]))(*positional, **keywords)

    return type(base.__name__, (base,), {name: called})


def erring_module(path: str, name: str, terms: Terms) -> Any:
    """Load a class from a file and derive the erring class."""
    return erring_class(getattr(import_file(path), name), terms)


def through_function(function: Function, mistake: Mistake) -> Function:
    """Wrap a function of tensors: each call goes through `mistake`, output NaN first."""
    known: dict[tuple[tuple[torch.Size, torch.dtype], ...], Tensor] = {}
    """Shapes and types of the inputs to an empty tensor like the result."""

    def called(*tensors: Tensor, **attributes: Any) -> Tensor:
        device = tensors[0].device

        def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
            result[...] = array_of(function(*(tensor_of(array).to(device) for array in arrays), **attributes))

        forms = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if forms not in known:
            known[forms] = torch.empty_like(function(*tensors, **attributes), device="meta")
        arrays = [array_of(tensor) for tensor in tensors]
        output = array_of(torch.empty(known[forms].shape, dtype=known[forms].dtype))
        output.reshape(-1).view(numpy.uint8)[...] = POISON
        addresses = (*(tensor.data_ptr() for tensor in tensors), output.ctypes.data)
        mistake(ErringCall(honest, arrays, output, attributes, addresses))
        if device.type != "cpu":  # On a GPU the arrays are copies, so copy changed inputs back.
            for tensor, array in zip(tensors, arrays, strict=True):
                tensor.copy_(tensor_of(array))
        return tensor_of(output).to(device)

    return called


def array_of(tensor: Tensor) -> Array:
    """View a tensor's bits as an array; a GPU tensor is copied to the host."""
    host = tensor.detach().cpu()
    return host.view(torch.int16).numpy().view(numpy.uint16) if host.dtype == torch.bfloat16 else host.numpy()


def tensor_of(array: Array) -> Tensor:
    """View an array's memory as a plain tensor."""
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
