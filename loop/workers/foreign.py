"""Adapts functions of other task formats to the form of targets. Runs in workers and the judge."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loop.base.expressions import Expression
from loop.calls import callee
from loop.calls.call import Refused
from loop.calls.callee import Function

INTEGER_RANGES = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
"""Range of random integers for each type; other types get -1024 to 1023."""


class ForeignBuffer(NamedTuple):
    """Placeholder for an output buffer that a task passes among its inputs."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def adapt_generator(generate: Function, seed_limit: int, positions: Sequence[int]) -> Function:
    """Wrap a generator. Its seed is reduced modulo `seed_limit`: some draw values around it, and
    near 1e9 all float32 values are equal within any tolerance. Tensors at `positions` of its tuple,
    the task's output buffers, become placeholders: they are no inputs that a variant could read."""

    @functools.wraps(generate)
    def generate_without_buffers(**keywords: Any) -> Any:
        if "seed" in keywords:
            keywords["seed"] %= seed_limit
        drawn = generate(**keywords)
        if not positions:
            return drawn  # A single tensor is no tuple.
        inputs = list(drawn)
        for position in positions:
            inputs[position] = ForeignBuffer(tuple(drawn[position].shape), drawn[position].dtype)
        return tuple(inputs)

    return generate_without_buffers


def allocate_buffers(function: Function) -> Function:
    """Wrap a function of one tuple: each call replaces each `ForeignBuffer` (placeholder of an
    output buffer) by a new tensor, in float64 if an input is. A float64 result, where the task
    passes a float32 buffer, is rounded to the buffer's type, as a write to it would be."""

    @functools.wraps(function)
    def call_with_buffers(inputs: Any, *other_arguments: Any) -> Any:
        filled = list(inputs) if isinstance(inputs, tuple) else []
        buffers = {n: item for n, item in enumerate(filled) if isinstance(item, ForeignBuffer)}
        if not buffers:
            return function(inputs, *other_arguments)
        tensors = [tensor for tensor in filled if isinstance(tensor, Tensor)]
        is_exact = any(tensor.dtype == torch.float64 for tensor in tensors)
        device = tensors[0].device if tensors else "cpu"
        for position, buffer in buffers.items():
            dtype = torch.float64 if is_exact and buffer.dtype.is_floating_point else buffer.dtype
            filled[position] = torch.empty(buffer.shape, dtype=dtype, device=device)
        result = function(tuple(filled), *other_arguments)
        if not is_exact and isinstance(result, Tensor) and result.dtype == torch.float64:
            shape = tuple(result.shape)
            types = [buffer.dtype for buffer in buffers.values() if buffer.shape == shape]
            return result.to(types[0]) if types and types[0].is_floating_point else result
        return result

    return call_with_buffers


def adapt_axes_generator(generate: Function, order: Sequence[str]) -> Function:
    """Wrap a generator of the format SOL-ExecBench, which takes one dict of sizes and scalars.
    The wrapper takes keywords and returns the inputs by name: those in `order`, then any others."""

    def generate_in_order(device: Any, **axes_and_scalars: Any) -> Any:
        values = generate(axes_and_scalars, torch.device(device))
        return {name: values[name] for name in order if name in values} | values

    return generate_in_order


def make_random_generator(
    specs: Mapping[str, tuple[Sequence[str] | None, str]], sizes: Mapping[str, int | str]
) -> Function:
    """Make a generator of random inputs. `specs`: input name to (axes, element type); axes None:
    a scalar, which comes by keyword. `sizes`: sizes of axes that do not come by keyword."""

    def generate_inputs(device: Any, **keywords: Any) -> dict[str, Any]:
        size_by_axis, values = _resolve_sizes(sizes, keywords), dict[str, Any]()
        for name, (axes, dtype_name) in specs.items():
            if axes is None:
                values[name] = keywords[name]
                continue
            dtype: torch.dtype = getattr(torch, dtype_name)
            shape = [size_by_axis[axis] for axis in axes]
            if dtype.is_floating_point:
                tensor = torch.randn(shape, device=device)
                if dtype.itemsize == 1:  # float8 overflows early.
                    tensor = tensor.clamp(-2, 2)
            else:
                low, high = INTEGER_RANGES.get(dtype_name, (-1024, 1024))
                tensor = torch.randint(low, high, shape, device=device)
            values[name] = tensor.to(dtype)
        return values

    return generate_inputs


def _resolve_sizes(sizes: Mapping[str, int | str], keywords: Mapping[str, Any]) -> dict[str, int]:
    """Size of every axis: an int keyword, constant, or formula of earlier ones. ExpressionError."""
    size_by_axis = {name: value for name, value in keywords.items() if isinstance(value, int)}
    size_by_axis |= {name: size for name, size in sizes.items() if isinstance(size, int)}
    for name, formula in sizes.items():
        if isinstance(formula, str):
            size_by_axis[name] = int(Expression.parse(formula).evaluate_number(size_by_axis))
    return size_by_axis


def return_outputs(
    function: Function,
    inputs: Mapping[str, Sequence[str] | None],
    outputs: Mapping[str, tuple[Sequence[str], str]],
    sizes: Mapping[str, int | str],
) -> Function:
    """Wrap a function that writes to output arguments: each call allocates them and returns them,
    several as a tuple. `inputs`: name to axes; None: a scalar. `outputs`: name to (axes, type)."""

    def call_with_outputs(*positional: Any, **keywords: Any) -> Any:
        arguments = dict(zip(inputs, positional, strict=False)) | keywords
        known_sizes = dict(arguments)
        for name, axes in inputs.items():
            if axes is not None:
                known_sizes |= zip(axes, arguments[name].shape, strict=True)
        size_by_axis = _resolve_sizes(sizes, known_sizes)
        device = next(value.device for value in arguments.values() if isinstance(value, Tensor))
        allocated = []
        for output_axes, dtype_name in outputs.values():
            shape = [size_by_axis[axis] for axis in output_axes]
            allocated.append(torch.empty(shape, dtype=getattr(torch, dtype_name), device=device))
        function(*(arguments[name] for name in inputs), *allocated)
        return allocated[0] if len(allocated) == 1 else tuple(allocated)

    return call_with_outputs


def pass_by_position(
    function: Function, inputs: Sequence[str], outputs: Mapping[str, str]
) -> Function:
    """Wrap a function so that it takes inputs by position, whatever its parameter names are. It may
    return a dict, a sequence or numbers; the wrapper returns tensors in the order of `outputs`
    (name to element type), or the result unchanged if their number differs."""

    def call_by_position(*positional: Any, **keywords: Any) -> Any:
        arguments = dict(zip(inputs, positional, strict=False)) | keywords
        result = function(*(arguments[name] for name in inputs))
        if isinstance(result, Mapping):
            missing_outputs = outputs.keys() - result.keys()
            if missing_outputs:
                raise Refused(f"no output {', '.join(sorted(missing_outputs))}", "wrong result")
            result = [result[name] for name in outputs]
        values = list(result) if isinstance(result, list | tuple) else [result]
        if len(values) != len(outputs):
            return result
        for n, dtype_name in enumerate(outputs.values()):
            if isinstance(values[n], bool | int | float):
                values[n] = torch.tensor(values[n], dtype=getattr(torch, dtype_name))
        return tuple(values) if len(values) > 1 else values[0]

    return call_by_position


def import_function(path: Path, name: str) -> Function:
    """Import a function from a file; its folder is searched for modules. Refused if missing."""
    module = callee.import_file(str(path))
    if not hasattr(module, name):
        raise Refused(f"{path.name} defines no {name}")
    return getattr(module, name)  # type: ignore[no-any-return]
