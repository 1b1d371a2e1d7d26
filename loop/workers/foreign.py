"""Adapts functions of other task formats to the form of targets. Runs in workers and the judge."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loop.base.expressions import Expression
from loop.calls import torch_side
from loop.calls.call import Refused

Function = Callable[..., Any]
INTEGER_RANGES = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
"""Range of random integers for each type; other types get -1024 to 1023."""
FLOAT8_TYPES = ("float8_e4m3fn", "float8_e5m2")


class ForeignBuffer(NamedTuple):
    """Placeholder for an output buffer that a task passes among its inputs."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def allocate(self, device: Any, *, exact: bool) -> Tensor:
        """Allocate the buffer; `exact`: a floating-point buffer becomes float64."""
        dtype = torch.float64 if exact and self.dtype.is_floating_point else self.dtype
        return torch.empty(self.shape, dtype=dtype, device=device)


def replace_buffers(generate: Function, positions: Sequence[int]) -> Function:
    """Wrap a generator: tensors at these places of its tuple become placeholders."""

    @functools.wraps(generate)
    def generated(**keywords: Any) -> Any:
        data = generate(**keywords)
        if not positions:
            return data  # `tuple` would split a single tensor.
        return tuple(ForeignBuffer(tuple(t.shape), t.dtype) if n in positions else t for n, t in enumerate(data))

    return generated


def limit_seeds(generate: Function, seed_limit: int) -> Function:
    """Wrap a generator: reduce the seed modulo `end`, as the task's own seeds are small. Some
    generators draw values around the seed. Near 1e9, all float32 values are equal within any
    tolerance."""

    @functools.wraps(generate)
    def generated(**keywords: Any) -> Any:
        seed = {"seed": keywords["seed"] % seed_limit} if "seed" in keywords else {}
        return generate(**keywords | seed)

    return generated


def allocate_buffers(function: Function) -> Function:
    """Wrap a function of one tuple: allocate a tensor for each `ForeignBuffer`, float64 if inputs
    are float64.

    The buffer defines the output's type. Some references return float64 although the task passes a
    float32 buffer; their result is rounded to the buffer's type, as a write to it would be.
    """

    @functools.wraps(function)
    def called(data: Any, *more: Any) -> Any:
        items = data if isinstance(data, tuple) else ()
        buffers = [item for item in items if isinstance(item, ForeignBuffer)]
        if not buffers:
            return function(data, *more)
        tensors = [item for item in items if isinstance(item, Tensor)]
        exact, device = any(t.dtype == torch.float64 for t in tensors), tensors[0].device if tensors else "cpu"
        filled = (t.allocate(device, exact=exact) if isinstance(t, ForeignBuffer) else t for t in items)
        result = function(tuple(filled), *more)
        if exact or not isinstance(result, Tensor) or result.dtype != torch.float64:
            return result
        types = [buffer.dtype for buffer in buffers if buffer.shape == tuple(result.shape)]
        return result.to(types[0]) if types and types[0].is_floating_point else result

    return called


def adapt_axes_generator(generate: Function, order: Sequence[str]) -> Function:
    """Wrap a SOL-ExecBench generator (axes and scalars in one dict); returns inputs in `order`."""

    def generated(device: Any, **axes_and_scalars: Any) -> Any:
        values = generate(axes_and_scalars, torch.device(device))
        return {name: values[name] for name in order if name in values} | values

    return generated


def make_random_generator(
    specs: Mapping[str, tuple[Sequence[str] | None, str]], sizes: Mapping[str, int | str]
) -> Function:
    """Make a generator of random inputs. `specs`: name to (axes, element type), axes None for a
    scalar. `sizes`: sizes of axes that are not keywords."""

    def generated(device: Any, **keywords: Any) -> dict[str, Any]:
        known, values = _resolve_sizes(sizes, keywords), dict[str, Any]()
        for name, (axes, dtype) in specs.items():
            kind: torch.dtype = getattr(torch, dtype)
            if axes is None:
                values[name] = keywords[name]
            elif kind.is_floating_point:
                drawn = torch.randn([known[axis] for axis in axes], device=device)
                values[name] = (drawn.clamp(-2, 2) if dtype in FLOAT8_TYPES else drawn).to(kind)
            else:
                low, high = INTEGER_RANGES.get(dtype, (-1024, 1024))
                values[name] = torch.randint(low, high, [known[axis] for axis in axes], device=device).to(kind)
        return values

    return generated


def _resolve_sizes(sizes: Mapping[str, int | str], keywords: Mapping[str, Any]) -> dict[str, int]:
    """Resolve the size of every axis: a keyword, a constant, or a formula of earlier axes."""
    known = {name: value for name, value in keywords.items() if isinstance(value, int)}
    known |= {name: size for name, size in sizes.items() if isinstance(size, int)}
    for name, formula in sizes.items():
        if isinstance(formula, str):
            known[name] = int(Expression.parse(formula).evaluate_number(known))
    return known


def return_outputs(
    function: Function,
    inputs: Mapping[str, Sequence[str] | None],
    outputs: Mapping[str, tuple[Sequence[str], str]],
    sizes: Mapping[str, int | str],
) -> Function:
    """Wrap a function with output arguments: allocate them in each call and return them."""

    def called(*positional: Any, **keywords: Any) -> Any:
        arguments = dict(zip(inputs, positional, strict=False)) | keywords
        shapes: dict[str, int] = {}
        for name, axes in inputs.items():
            if axes is not None:
                shapes |= zip(axes, arguments[name].shape, strict=True)
        known = _resolve_sizes(sizes, {**arguments, **shapes})
        device = next(value.device for value in arguments.values() if isinstance(value, Tensor))
        allocated = [
            torch.empty([known[axis] for axis in axes], dtype=getattr(torch, dtype), device=device)
            for axes, dtype in outputs.values()
        ]
        function(*(arguments[name] for name in inputs), *allocated)
        return allocated[0] if len(allocated) == 1 else tuple(allocated)

    return called


def pass_by_position(function: Function, inputs: Sequence[str], outputs: Mapping[str, str]) -> Function:
    """Wrap a function so that it takes inputs by position, whatever its parameter names are.
    `outputs`: name to element type. The function may return a dict, a sequence or numbers; the
    wrapper returns tensors in the order of `outputs`."""

    def called(*positional: Any, **keywords: Any) -> Any:
        arguments = dict(zip(inputs, positional, strict=False)) | keywords
        result = function(*(arguments[name] for name in inputs))
        if isinstance(result, Mapping):
            if missing := outputs.keys() - result.keys():
                raise Refused(f"no output {', '.join(sorted(missing))}", "wrong result")
            result = [result[name] for name in outputs]
        values = list(result) if isinstance(result, list | tuple) else [result]
        if len(values) != len(outputs):
            return result
        for n, dtype in enumerate(outputs.values()):
            if isinstance(values[n], bool | int | float):
                values[n] = torch.tensor(values[n], dtype=getattr(torch, dtype))
        return tuple(values) if len(values) > 1 else values[0]

    return called


def import_function(path: Path, name: str) -> Function:
    """Import a function from a file; its folder is searched for modules. Refused if missing."""
    module = torch_side.import_file(str(path))
    if not hasattr(module, name):
        raise Refused(f"{path.name} defines no {name}")
    return getattr(module, name)  # type: ignore[no-any-return]
