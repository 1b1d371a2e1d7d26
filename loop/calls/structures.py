"""What a function is given and gives, taken apart into tensors and the rest: tuples, dicts, modules, anything.

The rest is pickled with a place for each tensor. So a worker puts the same structure together around tensors that
lie in memory of ours.
"""

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loop.calls.refusal import Refused
from loop.calls.torch_files import import_file


@dataclass(frozen=True)
class Apart:
    """A structure that was taken apart."""

    rest: bytes
    """Everything but the tensors' values, pickled."""
    names: tuple[str, ...]
    """Of each tensor: the path to it, as in `weights.bias`."""
    tensors: tuple[Tensor, ...]


class _Pickler(pickle.Pickler):
    """Leaves a number in place of each tensor."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []
        self.numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """The number of a tensor, and whether it is a parameter of a module; None for anything else."""
        if not isinstance(obj, Tensor):
            return None
        if type(obj) not in (Tensor, torch.nn.Parameter):
            raise Refused(f"cannot pass a {type(obj).__name__}: expected plain tensors")
        if id(obj) not in self.numbers:
            self.numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return type(obj) is torch.nn.Parameter, self.numbers[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, rest: bytes, tensors: Sequence[Tensor]) -> None:
        super().__init__(io.BytesIO(rest))
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        """The tensor of a number."""
        is_parameter, number = pid
        tensor = self.tensors[number]
        return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor

    def find_class(self, module: str, name: str) -> Any:
        """A class or function by name; a module may be a file."""
        if module.endswith(".py"):
            import_file(module)
        return super().find_class(module, name)


def take_apart(value: Any) -> Apart:
    """A structure as its tensors and the rest. Raises Refused for what cannot be pickled."""
    names = {id(tensor): name for name, tensor in _named(value, "")}
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Refused(f"cannot pass {type(value).__name__} to another process: {error}") from error
    found = [names.get(id(tensor), f"tensor {n}") for n, tensor in enumerate(pickler.tensors)]
    return Apart(file.getvalue(), tuple(found), tuple(tensor.detach() for tensor in pickler.tensors))


def put_together(rest: bytes, tensors: Sequence[Tensor]) -> Any:
    """The structure around other tensors."""
    return _Unpickler(rest, tensors).load()


def _named(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a structure with the path to it, the outermost first."""
    if isinstance(value, Tensor):
        yield path or "output", value
    elif isinstance(value, torch.nn.Module):
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield _below(path, name), tensor
    else:
        for name, one in _items(value):
            yield from _named(one, _below(path, name))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(name), one) for name, one in value.items())
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None) or map(str, range(len(value)))
        yield from zip(names, value, strict=True)
    elif hasattr(value, "__dataclass_fields__"):
        yield from vars(value).items()


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def outputs_of(result: Any) -> dict[str, Tensor]:
    """The tensors that a function gave, by their paths; a number counts as one without dimensions.

    Raises Refused for anything else, such as a tensor of another class: it could compute itself later.
    """
    return dict(_outputs(result, ""))


def _outputs(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool | int | float):
        yield path or "output", torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    elif value is None or isinstance(value, Mapping | list | tuple) or hasattr(value, "__dataclass_fields__"):
        for name, one in _items(value):
            yield from _outputs(one, _below(path, name))
    else:
        yield path or "output", value


def widened(tensor: Tensor) -> Tensor:
    """A tensor of floating-point numbers in float64; any other as it is."""
    return tensor.double() if tensor.is_floating_point() else tensor
