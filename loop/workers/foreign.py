"""Functions of tasks in other formats, in the form that a target's have. Runs in workers and in the judge."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from loop.base.expressions import Expression
from loop.calls import torch_side
from loop.calls.call import Refused

Function = Callable[..., Any]
WHOLE = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
"""Range of random whole numbers of a type; of others -1024 to 1023."""
NARROW = ("float8_e4m3fn", "float8_e5m2")


class Buffer(NamedTuple):
    """Stands for an output that a task passes among its inputs: it has no values yet."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def without_buffers(generate: Function, places: Sequence[int]) -> Function:
    """A generator whose result has a `Buffer` at those places of its tuple, in place of an empty tensor."""

    @functools.wraps(generate)
    def made(**given: Any) -> Any:
        data = generate(**given)
        if not places:
            return data  # A tensor would come apart.
        items = [Buffer(tuple(one.shape), one.dtype) if n in places else one for n, one in enumerate(data)]
        return tuple(items)

    return made


def within_seeds(generate: Function, end: int) -> Function:
    """A generator whose seed is below `end`, as a task's own are: some draw values around it.

    Around a seed of a thousand million, float32 values are all the same within any tolerance.
    """

    @functools.wraps(generate)
    def made(**given: Any) -> Any:
        return generate(**given | ({"seed": given["seed"] % end} if "seed" in given else {}))

    return made


def with_buffers(function: Function) -> Function:
    """A function of one tuple that is given a fresh tensor for each `Buffer`: of float64 where its inputs are.

    The buffer tells the type of the output. Some references return float64 to be exact, where the task passes a
    float32 buffer: such a result is rounded to the buffer's type, as if it had been written there.
    """

    @functools.wraps(function)
    def called(data: Any, *more: Any) -> Any:
        return _rounded(function(_filled(data), *more), data)

    return called


def _rounded(result: Any, data: Any) -> Any:
    """A float64 result in the type of the buffer of its shape, unless inputs are of float64 as well."""
    if not isinstance(result, torch.Tensor) or result.dtype != torch.float64 or not isinstance(data, tuple):
        return result
    if any(isinstance(one, torch.Tensor) and one.dtype == torch.float64 for one in data):
        return result
    types = [one.dtype for one in data if isinstance(one, Buffer) and one.shape == tuple(result.shape)]
    return result.to(types[0]) if types and types[0].is_floating_point else result


def _filled(data: Any) -> Any:
    if not isinstance(data, tuple) or not any(isinstance(one, Buffer) for one in data):
        return data
    tensors = [one for one in data if isinstance(one, torch.Tensor)]
    exact = any(one.dtype == torch.float64 for one in tensors)
    device = tensors[0].device if tensors else torch.device("cpu")
    return tuple(_tensor(one, device, exact=exact) if isinstance(one, Buffer) else one for one in data)


def _tensor(buffer: Buffer, device: torch.device, *, exact: bool) -> torch.Tensor:
    dtype = torch.float64 if exact and buffer.dtype.is_floating_point else buffer.dtype
    return torch.empty(buffer.shape, dtype=dtype, device=device)


def of_axes(generate: Function, order: Sequence[str]) -> Function:
    """A generator of SOL-ExecBench, which takes axes and scalars as one dict; its inputs in their order."""

    def made(device: Any, **axes_and_scalars: Any) -> Any:
        found = generate(axes_and_scalars, torch.device(device))
        return {name: found[name] for name in order if name in found} | found

    return made


def at_random(specs: Mapping[str, tuple[Sequence[str] | None, str]], sizes: Mapping[str, int | str]) -> Function:
    """A generator of inputs by name: axes (None for a scalar) and type; `sizes`: axes that are no keyword."""

    def made(device: Any, **given: Any) -> dict[str, Any]:
        known = _sizes(sizes, given)
        return {
            name: given[name] if axes is None else _values([known[one] for one in axes], dtype, device)
            for name, (axes, dtype) in specs.items()
        }

    return made


def _sizes(sizes: Mapping[str, int | str], given: Mapping[str, Any]) -> dict[str, int]:
    """Every axis: given, constant, or worked out from those before it."""
    known = {name: value for name, value in given.items() if isinstance(value, int)}
    known |= {name: size for name, size in sizes.items() if isinstance(size, int)}
    for name, formula in sizes.items():
        if isinstance(formula, str):
            known[name] = int(Expression.parse(formula, arithmetic=True).evaluate_number(known))
    return known


def _values(shape: Sequence[int], dtype: str, device: Any) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if kind.is_floating_point:
        drawn = torch.randn(*shape, device=device)
        return (drawn.clamp(-2, 2) if dtype in NARROW else drawn).to(kind)
    low, high = WHOLE.get(dtype, (-1024, 1024))
    return torch.randint(low, high, tuple(shape), device=device).to(kind)


def returning(
    function: Function,
    inputs: Mapping[str, Sequence[str] | None],
    outputs: Mapping[str, tuple[Sequence[str], str]],
    sizes: Mapping[str, int | str],
) -> Function:
    """A function that is passed its outputs, as one that returns them: they are allocated in each call."""

    def called(*positional: Any, **keywords: Any) -> Any:
        given = dict(zip(inputs, positional, strict=False)) | keywords
        found = {
            axis: size
            for name, axes in inputs.items()
            if axes is not None
            for axis, size in zip(axes, given[name].shape, strict=True)
        }
        known = _sizes(sizes, {**given, **found})
        device = next(one.device for one in given.values() if isinstance(one, torch.Tensor))
        made = [
            torch.empty([known[axis] for axis in axes], dtype=getattr(torch, dtype), device=device)
            for axes, dtype in outputs.values()
        ]
        function(*(given[name] for name in inputs), *made)
        return made[0] if len(made) == 1 else tuple(made)

    return called


def by_position(function: Function, inputs: Sequence[str], outputs: Mapping[str, str]) -> Function:
    """A function that is called with its inputs one by one, whatever it calls them; `outputs`: name to type.

    It may give its outputs by name, in any sequence, or as numbers: they come in their order, as tensors.
    """

    def called(*positional: Any, **keywords: Any) -> Any:
        given = dict(zip(inputs, positional, strict=False)) | keywords
        found = function(*(given[name] for name in inputs))
        if isinstance(found, Mapping):
            if missing := outputs.keys() - found.keys():
                raise Refused(f"no output {', '.join(sorted(missing))}", "wrong result")
            found = [found[name] for name in outputs]
        several = found if isinstance(found, list | tuple) else (found,)
        if len(several) != len(outputs):
            return found
        made = tuple(map(_as_tensor, several, outputs.values()))
        return made if len(made) > 1 else made[0]

    return called


def _as_tensor(value: Any, dtype: str) -> Any:
    return torch.tensor(value, dtype=getattr(torch, dtype)) if isinstance(value, bool | int | float) else value


def from_file(path: Path, name: str) -> Function:
    """A function of a file, whose folder is searched for what it imports. Raises Refused where it has none."""
    module = torch_side.import_file(str(path))
    if not hasattr(module, name):
        raise Refused(f"{path.name} defines no {name}")
    return getattr(module, name)  # type: ignore[no-any-return]
