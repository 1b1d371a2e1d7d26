"""Calls a user's Python function or class with any structure of arguments and results.

A structure (tuples, dicts, modules) is split into its tensors and its skeleton: the structure,
pickled, with a number in place of each tensor. A worker rebuilds it around its own tensors.
"""

import base64
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call, FunctionTerms, Refused
from loop.calls.torch_side import TORCH_DTYPES, Function, import_file, make_instance, same_bits

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@dataclass(frozen=True)
class SplitStructure:
    """A structure split into its tensors and its skeleton."""

    skeleton: bytes
    """The structure, pickled, with numbers in place of tensors."""
    names: tuple[str, ...]
    """Path of each tensor in the structure, such as `weights.bias`; `tensor 3` within an unknown object."""
    tensors: tuple[Tensor, ...]


class _Pickler(pickle.Pickler):
    """Pickler that writes a number in place of each tensor."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: dict[int, tuple[int, Tensor]] = {}  # id(tensor) to its number and the tensor.

    def persistent_id(self, obj: Any) -> Any:
        """For a tensor: (is it a module's Parameter, its number), which pickle writes in its place;
        None for any other object. Raises Refused for a subclass of Tensor."""
        if not isinstance(obj, Tensor):
            return None
        if type(obj) not in (Tensor, torch.nn.Parameter):
            raise Refused(f"cannot pass a {type(obj).__name__}: expected plain tensors")
        number, _ = self.tensors.setdefault(id(obj), (len(self.tensors), obj))
        return type(obj) is torch.nn.Parameter, number


class _Unpickler(pickle.Unpickler):
    """Unpickler that puts other tensors in the numbered places."""

    tensors: Sequence[Tensor]

    def persistent_load(self, pid: Any) -> Any:
        """The tensor for what `_Pickler.persistent_id` returned, as a Parameter if that was one."""
        is_parameter, number = pid
        tensor = self.tensors[number]
        return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor

    def find_class(self, module: str, name: str) -> Any:
        """Find a class or function for pickle; the module may be the path of a file."""
        if module.endswith(".py"):
            import_file(module)
        return super().find_class(module, name)


def split_structure(structure: Any) -> SplitStructure:
    """Split a structure into tensors and skeleton. Raises Refused if it cannot be pickled."""
    name_by_id = {id(value): name for name, value in _named_values(structure)}
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(structure)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Refused(f"cannot pass {type(structure).__name__} to another process: {error}") from error
    names = [name_by_id.get(identity, f"tensor {n}") for identity, (n, _) in pickler.tensors.items()]
    tensors = [tensor.detach() for _, tensor in pickler.tensors.values()]
    return SplitStructure(file.getvalue(), tuple(names), tuple(tensors))


def rebuild_structure(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a structure around these tensors; inverse of `split_structure`."""
    unpickler = _Unpickler(io.BytesIO(skeleton))
    unpickler.tensors = tensors
    return unpickler.load()


def _named_values(structure: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) for each value in a structure of mappings, sequences, dataclasses and
    modules (their tensors); none for None. `path`: that of the structure itself."""
    members: dict[Any, Any] = {}
    if isinstance(structure, torch.nn.Module):
        members = {**dict(structure.named_parameters()), **dict(structure.named_buffers())}
    elif isinstance(structure, Mapping):
        members = dict(structure)
    elif isinstance(structure, list | tuple):
        names = getattr(structure, "_fields", None) or range(len(structure))  # Of a named tuple.
        members = dict(zip(names, structure, strict=True))
    elif hasattr(structure, "__dataclass_fields__"):
        members = vars(structure)
    elif structure is not None:
        yield path or "output", structure
    for name, member in members.items():
        yield from _named_values(member, f"{path}.{name}" if path else str(name))


def outputs_by_path(result: Any) -> dict[str, Any]:
    """Map paths to the outputs in a function's result. A number becomes a tensor without dimensions.
    Any other object stays as it is: it may be a tensor subclass that computes later."""
    outputs = dict(_named_values(result))
    for path, value in outputs.items():
        if isinstance(value, bool | int | float):
            outputs[path] = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return outputs


class Callee:
    """A user's function bound to one call; for a class, an instance of it."""

    def __init__(
        self,
        function: Function,
        arguments: Function | None,
        terms: FunctionTerms,
        call: Call,
        device: str,
        *,
        watches_state: bool = True,
    ) -> None:
        """`arguments`: as for `make_instance`. `watches_state`: copy the module's state, to detect changes."""
        self.function, self.terms, self.call = function, terms, call
        self.skeleton = base64.b64decode(call.structure)
        if terms.is_class:
            self.function = make_instance(function, arguments, call.seed)
        self.module = self.function.to(device) if isinstance(self.function, torch.nn.Module) else None
        first_state = self._read_state() if watches_state else {}
        self.first_state = {name: tensor.clone() for name, tensor in first_state.items()}
        """Copies of the module's tensors by name."""

    def _read_state(self) -> dict[str, Tensor]:
        """The module's tensors by name; empty for a function."""
        state = self.module.state_dict() if self.module is not None else {}
        return {name: value for name, value in state.items() if isinstance(value, Tensor)}

    def restore_state(self) -> None:
        """Reset the module to its first state, if calls may change it."""
        if self.module is not None and self.terms.may_change_state:
            self.module.load_state_dict({**self.module.state_dict(), **self.first_state})

    @property
    def changed_state(self) -> list[str]:
        """Names of the module's tensors that changed although they must not, as in `state weight`."""
        if self.module is None or self.terms.may_change_state:
            return []
        earlier, current = self.first_state, self._read_state()
        changed = earlier.keys() ^ current.keys()
        changed |= {name for name in earlier.keys() - changed if not same_bits(earlier[name], current[name])}
        return [f"state {name}" for name in sorted(changed)]

    def bind(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> "partial[Any]":
        """The call without arguments: on these inputs, and on buffers for outputs that it gets passed."""
        positional: Sequence[Any] = tensors
        keywords: dict[str, Any] = {}
        if self.skeleton:
            positional, keywords = rebuild_structure(self.skeleton, tensors)
        if keywords and outputs:  # If inputs are passed by name, so are outputs.
            keywords |= zip((output.name for output in self.call.separate_outputs), outputs, strict=True)
            outputs = ()
        return partial(self.function, *positional, *outputs, **keywords, **self.call.attributes)

    def checked_outputs(self, result: Any) -> list[Tensor]:
        """The output tensors in a call's result. Raises Refused unless they are as expected."""
        expected, tensors = self.call.separate_outputs, list(outputs_by_path(result).values())
        # A single output may come in a sequence or as a number. Else the check below judges the result.
        may_convert = type(result) in (tuple, list, bool, int, float) and len(tensors) == 1
        if not self.call.several_outputs and not may_convert:
            tensors = [result]
        if len(tensors) != len(expected):
            names = ", ".join(output.name for output in expected) or "nothing"
            raise Refused(f"wrong result: expected {names}, got {len(tensors)} tensors", "wrong result")
        for output, tensor in zip(expected, tensors, strict=True):
            name = output.name if self.call.several_outputs else ""
            check_result(tensor, output.shape, TORCH_DTYPES[output.dtype], name)
        return tensors


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> None:
    """Raise Refused unless `result` is a plain tensor of this shape and type. `name`: of the output."""
    of = f" of {name}" if name else ""
    if type(result) is not Tensor:
        actual = type(result).__name__
        raise Refused(f"wrong result{of}: expected a plain torch.Tensor, got {actual}", "wrong result")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape{of}: expected {list(shape)}, got {list(result.shape)}", "wrong result")
    if result.dtype != dtype:
        raise Refused(f"wrong type{of}: expected {dtype}, got {result.dtype}", "wrong result")


def overwrite_result(result: Any) -> None:
    """Fill returned tensors with NaN or the smallest integer, so that reuse shows. Those of bool stay."""
    with torch.inference_mode():
        for tensor in outputs_by_path(result).values():
            if type(tensor) is not Tensor or tensor.dtype == torch.bool:
                continue
            # An expanded axis (stride 0) repeats one element, which may be written only once.
            axes = zip(tensor.shape, tensor.stride(), strict=True)
            sizes = [size if stride else 1 for size, stride in axes]
            filler = torch.iinfo(tensor.dtype).min if tensor.dtype in INTEGERS else float("nan")
            tensor.as_strided(sizes, tensor.stride()).fill_(filler)
