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
from loop.calls.torch_side import Function
from loop.mistakes.table import Array, Attributes, ErringCall, Mistake, Settings, mistake_of


class LazyTensor(torch.Tensor):
    """A tensor subclass that could compute lazily, when it is read."""


def give_promise(erring: "Erring") -> Tensor:
    """Cheat: return a tensor subclass, which could put off its computation until after the timing."""
    return erring.compute().as_subclass(LazyTensor)


def other_type(erring: "Erring") -> Tensor:
    """Mistake: return bfloat16, or float32 if the result has 16 bits an element already."""
    result = erring.compute()
    return result.to(torch.float32 if result.dtype in (torch.float16, torch.bfloat16) else torch.bfloat16)


def give_input(erring: "Erring") -> Tensor:
    """Cheat: return an input that has the output's shape."""
    return erring.floating[erring.settings["input"]]


def keep_result(erring: "Erring") -> Tensor:
    """Cheat: every second call returns the previous call's tensor."""
    if erring.memory:
        return erring.memory.pop()  # type: ignore[no-any-return]
    result = erring.compute()
    erring.memory.append(result)
    return result


def leave_unwritten(erring: "Erring") -> Tensor:
    """Cheat: every second call returns uninitialised memory, which may still hold the last result."""
    if erring.memory:
        return torch.empty(**erring.memory.pop())
    result = erring.compute()
    erring.memory.append({"size": result.shape, "dtype": result.dtype, "device": result.device})
    return result


TAMPERING: dict[str, Callable[["Erring"], Tensor]] = {
    cheat.__name__: cheat for cheat in (give_promise, other_type, give_input, keep_result, leave_unwritten)
}
"""Mistakes that only a Python variant can make, by name."""
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXACT = "exact"
"""Name of the control without a mistake: compute in float64 and round the result."""


def floating_positions(tensors: tuple[Tensor, ...]) -> list[int]:
    """Positions of the floating-point tensors, which mistakes apply to."""
    return [position for position, tensor in enumerate(tensors) if tensor.dtype in FLOATING]


class Erring:
    """Calls Python functions with one mistake, and holds its state, which all objects of a class share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.cheat = settings, TAMPERING.get(settings["make"])
        if not self.cheat:
            self.err = through_function(self.honest, mistake_of(settings))
        self.memory: list[Any] = []
        """Memory of a cheat between calls."""
        self.last_result: SplitStructure | None = None
        """Last honest result, split into tensors and structure."""

    def honest(self, *tensors: Tensor, **attributes: Any) -> Tensor:
        """The first floating-point output without the mistake; `tensors` replace the floating-point inputs. Keeps
        the whole result in `last_result`."""
        all_tensors = list(self.call.tensors)
        for position, tensor in zip(floating_positions(self.call.tensors), tensors, strict=True):
            all_tensors[position] = tensor
        positional, keywords = rebuild_structure(self.call.skeleton, all_tensors)
        self.last_result = split_structure(self.function(*positional, **{**keywords, **attributes}))
        return self.last_result.tensors[floating_positions(self.last_result.tensors)[0]]

    def compute(self) -> Tensor:
        """The first floating-point output of the call, without the mistake."""
        return self.honest(*self.floating, **self.attributes)

    def __call__(self, function: Function, *positional: Any, **keywords: Any) -> Any:
        """Call the function with the mistake; return the result in the function's own structure."""
        self.function, self.call = function, split_structure((positional, keywords))
        self.floating = [tensor for tensor in self.call.tensors if tensor.dtype in FLOATING]
        attribute_names = self.settings.get("attributes", ())
        self.attributes = {name: keywords[name] for name in attribute_names if name in keywords}
        wrong_output = self.cheat(self) if self.cheat else self.err(*self.floating, **self.attributes)
        if self.last_result is None:  # The mistake never called `honest`, whose structure is needed.
            self.compute()
        assert self.last_result is not None
        outputs = list(self.last_result.tensors)
        outputs[floating_positions(self.last_result.tensors)[0]] = wrong_output
        return rebuild_structure(self.last_result.skeleton, outputs)


def erring_function(function: Function, settings: Settings) -> Function:
    """Wrap a function with the mistake that `settings` describes. EXACT is none: it computes in float64."""
    return in_float64(function) if settings["make"] == EXACT else functools.partial(Erring(settings), function)


def in_float64(function: Function) -> Function:
    """Wrap a function: compute in float64, round floating-point outputs to the inputs' type."""

    def compute_widened(*positional: Any, **keywords: Any) -> Any:
        call = split_structure((positional, keywords))
        widened = [tensor.double() if tensor.dtype in FLOATING else tensor for tensor in call.tensors]
        dtype = next((tensor.dtype for tensor in call.tensors if tensor.dtype in FLOATING), torch.float32)
        inputs, named_inputs = rebuild_structure(call.skeleton, widened)
        result = split_structure(function(*inputs, **named_inputs))
        outputs = [tensor.to(dtype) if tensor.dtype in FLOATING else tensor for tensor in result.tensors]
        return rebuild_structure(result.skeleton, outputs)

    return compute_widened


def erring_class(base: Any, settings: Settings) -> Any:
    """Derive a class with the mistake in its `forward`, or in `__call__` if it is no torch module; all instances
    share the mistake's state. EXACT is no mistake: a copy of the object computes in float64."""
    erring = None if settings["make"] == EXACT else Erring(settings)
    method_name = "forward" if issubclass(base, torch.nn.Module) else "__call__"
    honest = getattr(base, method_name)

    def method(self: Any, *positional: Any, **keywords: Any) -> Any:
        if erring is not None:
            return erring(functools.partial(honest, self), *positional, **keywords)
        if "in_float64" not in vars(self):  # With the first call's weights; `vars` hides it from the state.
            vars(self)["in_float64"] = copy.deepcopy(self).double()
        return in_float64(functools.partial(honest, vars(self)["in_float64"]))(*positional, **keywords)

    return type(base.__name__, (base,), {method_name: method})


def through_function(function: Function, mistake: Mistake) -> Function:
    """Wrap a function of tensors: each call goes through `mistake`, on arrays. The output is all NaN before, so
    that a mistake may leave elements unwritten. The first call on inputs of new shapes and types calls the
    function once more, to learn the form of its result."""
    result_forms: dict[Any, tuple[torch.Size, torch.dtype]] = {}
    """Shapes and types of the inputs to shape and type of the result."""

    def erring(*tensors: Tensor, **attributes: Any) -> Tensor:
        device = tensors[0].device

        def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
            result[...] = array_of(function(*(tensor_of(array).to(device) for array in arrays), **attributes))

        input_forms = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if input_forms not in result_forms:
            example = function(*tensors, **attributes)
            result_forms[input_forms] = example.shape, example.dtype
        shape, dtype = result_forms[input_forms]
        arrays = [array_of(tensor) for tensor in tensors]
        output = array_of(torch.empty(shape, dtype=dtype))
        output.reshape(-1).view(numpy.uint8)[...] = POISON
        addresses = (*(tensor.data_ptr() for tensor in tensors), output.ctypes.data)
        mistake(ErringCall(honest, arrays, output, attributes, addresses))
        if device.type != "cpu":  # On a GPU the arrays are copies, so copy changed inputs back.
            for tensor, array in zip(tensors, arrays, strict=True):
                tensor.copy_(tensor_of(array))
        return tensor_of(output).to(device)

    return erring


def array_of(tensor: Tensor) -> Array:
    """View a tensor's bits as an array; a GPU tensor is copied to the host."""
    host = tensor.detach().cpu()
    return host.view(torch.int16).numpy().view(numpy.uint16) if host.dtype == torch.bfloat16 else host.numpy()


def tensor_of(array: Array) -> Tensor:
    """View an array's memory as a plain tensor."""
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
