"""Injects mistakes into Python functions and classes with any structure of arguments.

A mistake sees the floating-point inputs, in order, and the first such output; the rest passes."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.call import POISON
from loop.calls.callee import Function, SplitStructure, rebuild_structure, split_structure
from loop.mistakes.table import MISTAKES, Array, Attributes, ErringCall, Settings, err

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXACT = "exact"  # Name of the control without a mistake: compute in float64 and round the result.


class LazyTensor(torch.Tensor):
    """A tensor subclass that could compute lazily, when it is read."""


def floating_positions(tensors: tuple[Tensor, ...]) -> list[int]:
    """Positions of the floating-point tensors, which mistakes apply to."""
    return [position for position, tensor in enumerate(tensors) if tensor.dtype in FLOATING]


class Erring:
    """Calls Python functions with one mistake. All objects of a class share its state."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.memory: dict[Any, Any] = {}  # What the mistake keeps between calls: an old result.
        self.last_result: SplitStructure | None = None  # Honest one, in tensors and structure.
        self.result_forms: dict[Any, tuple[torch.Size, torch.dtype]] = {}
        """(shape, type) of each floating-point input, to those of the first such output."""

    def __call__(self, function: Function, *positional: Any, **keywords: Any) -> Any:
        """Call the function with the mistake; return the result in the function's own structure."""
        call = split_structure((positional, keywords))
        inputs = [tensor for tensor in call.tensors if tensor.dtype in FLOATING]
        attribute_names = self.settings.get("attributes", ())
        attributes = {name: keywords[name] for name in attribute_names if name in keywords}

        def honest(tensors: Sequence[Tensor], changed: Attributes) -> Tensor:
            """The output without the mistake, for other inputs and attributes. Keeps the result."""
            all_tensors = list(call.tensors)
            for position, tensor in zip(floating_positions(call.tensors), tensors, strict=True):
                all_tensors[position] = tensor
            positional, keywords = rebuild_structure(call.skeleton, all_tensors)
            self.last_result = split_structure(function(*positional, **{**keywords, **changed}))
            return self.last_result.tensors[floating_positions(self.last_result.tensors)[0]]

        if self.settings["make"] in MISTAKES:
            wrong_output = self._err_on_arrays(honest, inputs, attributes)
        else:
            wrong_output = self._cheat(functools.partial(honest, inputs, attributes), inputs)
        if self.last_result is None:  # The mistake never called `honest`: its form is needed.
            honest(inputs, attributes)
        assert self.last_result is not None
        outputs = list(self.last_result.tensors)
        outputs[floating_positions(self.last_result.tensors)[0]] = wrong_output
        return rebuild_structure(self.last_result.skeleton, outputs)

    def _err_on_arrays(
        self,
        honest: Callable[[Sequence[Tensor], Attributes], Tensor],
        inputs: Sequence[Tensor],
        attributes: Attributes,
    ) -> Tensor:
        """The output with one of `MISTAKES`, which are made on arrays. It is all NaN before, so
        that a mistake may leave elements unwritten. The first call on inputs of new shapes and
        types calls the function once more, to learn the form of its output."""
        device, form = inputs[0].device, tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if form not in self.result_forms:
            example = honest(inputs, attributes)
            self.result_forms[form] = example.shape, example.dtype
        shape, dtype = self.result_forms[form]
        output = array_of(torch.empty(shape, dtype=dtype))
        output.reshape(-1).view(numpy.uint8)[...] = POISON

        def honest_on_arrays(arrays: Sequence[Array], result: Array, changed: Attributes) -> None:
            tensors = [tensor_of(array).to(device) for array in arrays]
            result[...] = array_of(honest(tensors, changed))

        arrays = [array_of(tensor) for tensor in inputs]
        addresses = tuple(tensor.data_ptr() for tensor in inputs)
        state = self.settings, self.memory
        err(ErringCall(honest_on_arrays, arrays, output, attributes, addresses, *state))
        if device.type != "cpu":  # On a GPU the arrays are copies, so copy changed inputs back.
            for tensor, array in zip(inputs, arrays, strict=True):
                tensor.copy_(tensor_of(array))
        return tensor_of(output).to(device)

    def _cheat(self, compute: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Tensor:
        """The output with a cheat that only Python allows. `compute`: the output without it."""
        match self.settings["make"]:
            case "give_input":  # One that has the output's shape.
                return inputs[self.settings["input"]]
            case "keep_result" if self.memory:  # Every other call gives the previous one's tensor.
                return self.memory.pop("result")  # type: ignore[no-any-return]
            case "leave_unwritten" if self.memory:  # Every other: it may hold the last result.
                return torch.empty(**self.memory.pop("form"))
        result = compute()
        match self.settings["make"]:
            case "give_promise":  # A subclass, which could compute only after the timing.
                return result.as_subclass(LazyTensor)
            case "other_type":
                is_narrow = result.dtype in (torch.float16, torch.bfloat16)
                return result.to(torch.float32 if is_narrow else torch.bfloat16)
            case "keep_result":
                self.memory["result"] = result
            case "leave_unwritten":
                form = {"size": result.shape, "dtype": result.dtype, "device": result.device}
                self.memory["form"] = form
            case unknown:
                raise KeyError(unknown)
        return result


def erring_function(function: Function, settings: Settings) -> Function:
    """Wrap a function with the mistake of `settings`. EXACT is none: it computes in float64."""
    if settings["make"] == EXACT:
        return in_float64(function)
    return functools.partial(Erring(settings), function)


def in_float64(function: Function) -> Function:
    """Wrap a function: compute in float64, round floating-point outputs to the inputs' type."""

    def compute_widened(*positional: Any, **keywords: Any) -> Any:
        call = split_structure((positional, keywords))
        positions, widened = floating_positions(call.tensors), list(call.tensors)
        dtype = call.tensors[positions[0]].dtype if positions else torch.float32
        for position in positions:
            widened[position] = widened[position].double()
        inputs, named_inputs = rebuild_structure(call.skeleton, widened)
        result = split_structure(function(*inputs, **named_inputs))
        outputs = list(result.tensors)
        for position in floating_positions(result.tensors):
            outputs[position] = outputs[position].to(dtype)
        return rebuild_structure(result.skeleton, outputs)

    return compute_widened


def erring_class(base: Any, settings: Settings) -> Any:
    """Derive a class with the mistake in its `forward`, or in `__call__` if it is no torch module.
    All instances share its state. EXACT is no mistake: a copy of the object computes in float64."""
    erring = None if settings["make"] == EXACT else Erring(settings)
    method_name = "forward" if issubclass(base, torch.nn.Module) else "__call__"
    honest = getattr(base, method_name)

    def method(self: Any, *positional: Any, **keywords: Any) -> Any:
        if erring is not None:
            return erring(functools.partial(honest, self), *positional, **keywords)
        if "in_float64" not in vars(self):  # The first call's weights; the state does not show it.
            vars(self)["in_float64"] = copy.deepcopy(self).double()
        exact = functools.partial(honest, vars(self)["in_float64"])
        return in_float64(exact)(*positional, **keywords)

    return type(base.__name__, (base,), {method_name: method})


def array_of(tensor: Tensor) -> Array:
    """View a tensor's bits as an array; a GPU tensor is copied to the host."""
    host = tensor.detach().cpu()
    is_bfloat16 = host.dtype == torch.bfloat16
    return host.view(torch.int16).numpy().view(numpy.uint16) if is_bfloat16 else host.numpy()


def tensor_of(array: Array) -> Tensor:
    """View an array's memory as a plain tensor."""
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
