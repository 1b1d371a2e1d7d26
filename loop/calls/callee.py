"""Loads and calls a user's Python function or class, with any structure of arguments and results.

A structure (tuples, dicts, modules) is split into its tensors and its skeleton: the structure,
pickled, with a number in place of each tensor. A worker rebuilds it around its own tensors.
"""

import base64
import importlib
import importlib.util
import io
import os
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, get_args

import numpy
import torch
from torch import Tensor

from loop.calls.call import Call, FunctionTerms, Refused, TensorFile
from loop.calls.own_modules import describe_error, explain_shadowed_import, search_folder
from loop.model.dtypes import ITEM_SIZES, Dtype

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_SIZES}
DTYPE_NAMES: dict[torch.dtype, Dtype] = {getattr(torch, name): name for name in get_args(Dtype)}
INTEGER_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element to the integer type of that size, as which numpy reads any element."""
Function = Callable[..., Any]
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def use_threads(threads: int) -> None:
    """Set torch's thread count and switch gradients off."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def find_function(name: str, folder: str = "") -> Function:
    """Load the function `module:function` of a target. Raises Refused if it cannot be loaded, if
    another module of that name was loaded before, or if it is not of `folder` (empty: any)."""
    module_name, _, function = name.partition(":")
    try:
        module = import_module(module_name)
        target_function: Function = getattr(module, function)
        cause = explain_shadowed_import(module_name)
    except Exception as error:
        cause = explain_shadowed_import(module_name) or describe_error(error)
        raise Refused(f"cannot import {name}: {cause}") from error
    if cause:
        raise Refused(f"cannot import {name}: {cause}")
    if folder:
        folder = os.path.realpath(folder) + os.sep
        if not os.path.realpath(module.__file__ or "").startswith(folder):
            raise Refused(f"{module.__name__} is not what was built, but {module.__file__}")
    return target_function


def import_module(name: str) -> ModuleType:
    """Import a user's module or file, without writing .pyc files next to it."""
    earlier_setting, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return import_file(name) if name.endswith(".py") else importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = earlier_setting


def import_file(path: str) -> ModuleType:
    """Import a file as a module named by its full path; it may import its neighbours. A relative
    path is searched on sys.path, the target's folders first. Raises FileNotFoundError."""
    candidates = [os.path.join(folder, path) for folder in sys.path]  # Of an absolute path: itself.
    full_path = os.path.abspath(next(filter(os.path.isfile, candidates), path))
    if full_path in sys.modules:
        return sys.modules[full_path]
    if not os.path.isfile(full_path):
        raise FileNotFoundError(f"{path} is not there")
    search_folder(os.path.dirname(full_path), comes_last=True)  # Still before Python's own folders.
    spec = importlib.util.spec_from_file_location(full_path, full_path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[full_path] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_path]
        raise
    return module


def read_tensor(tensor: TensorFile, path: str = "") -> Tensor:
    """Read a tensor from `path`, or from its own file. Raises Refused for another size."""
    with open(path or tensor.path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = torch.empty(tensor.nbytes, dtype=torch.uint8)
        buffer: Any = memoryview(data.numpy())  # type: ignore[arg-type]
        if size != tensor.nbytes or file.readinto(buffer) != tensor.nbytes:
            raise Refused(f"wrong shape: expected {tensor.nbytes} bytes, got {size}")
    return data.view(TORCH_DTYPES[tensor.dtype]).reshape(tensor.shape)


def seed_all(seed: int) -> None:
    """Seed the random generators of Python, NumPy and torch."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_instance(cls: Any, arguments: Any, seed: int) -> Any:
    """Make an instance of a class; if it is a torch module, without gradients. `arguments`:
    function that returns the constructor's arguments (a sequence, or a dict by name); None: none.
    Both run right after seeding, so that all workers get the same weights."""
    seed_all(seed)
    values = arguments() if arguments else ()
    seed_all(seed)
    instance = cls(**values) if isinstance(values, dict) else cls(*values)
    if isinstance(instance, torch.nn.Module):
        instance.requires_grad_(False)
    return instance


def same_bits(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal shape, type and bits, on any device."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return False
    bits = bits_of(tensor)
    return torch.equal(bits, bits_of(other).to(bits.device))


def bits_of(tensor: Tensor) -> Tensor:
    """A tensor's elements as integers of the same size, C order; a complex number becomes two."""
    resolved = tensor.detach().resolve_conj().resolve_neg()
    if resolved.is_complex():
        resolved = torch.view_as_real(resolved)
    return resolved.contiguous().view(INTEGER_TYPES[resolved.element_size()])


def bytes_of(tensor: Tensor) -> bytes:
    """Bytes of a tensor on the host, C order."""
    return tensor.resolve_neg().view(INTEGER_TYPES[tensor.element_size()]).numpy().tobytes()


@dataclass(frozen=True)
class SplitStructure:
    """A structure split into its tensors and its skeleton."""

    skeleton: bytes  # The structure, pickled, with numbers in place of tensors.
    names: tuple[str, ...]  # Path of each tensor, such as `weights.bias`; `tensor 3` if unknown.
    tensors: tuple[Tensor, ...]


class _Pickler(pickle.Pickler):
    """Pickler that writes a number in place of each tensor."""

    tensors: dict[int, tuple[int, Tensor]]  # id(tensor) to its number and the tensor.

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
    pickler.tensors = {}
    try:
        pickler.dump(structure)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        kind = type(structure).__name__
        raise Refused(f"cannot pass {kind} to another process: {error}") from error
    names = [name_by_id.get(key, f"tensor {n}") for key, (n, _) in pickler.tensors.items()]
    tensors = [tensor.detach() for _, tensor in pickler.tensors.values()]
    return SplitStructure(file.getvalue(), tuple(names), tuple(tensors))


def rebuild_structure(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a structure around these tensors; inverse of `split_structure`."""
    unpickler = _Unpickler(io.BytesIO(skeleton))
    unpickler.tensors = tensors
    return unpickler.load()


def _named_values(structure: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of each leaf of mappings, sequences, dataclasses, and modules (tensors);
    none for None. It names a call's tensors and outputs. `path`: that of the structure itself."""
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
    """Map paths to the outputs in a function's result. A number becomes a tensor without
    dimensions. Any other object stays: it may be a tensor subclass that computes later."""
    outputs = dict(_named_values(result))
    for path, value in outputs.items():
        if isinstance(value, bool | int | float):
            dtype = torch.float64 if isinstance(value, float) else None
            outputs[path] = torch.tensor(value, dtype=dtype)
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
        """`arguments`: as for `make_instance`. `watches_state`: detect changes of its state."""
        if terms.is_class:
            function = make_instance(function, arguments, call.seed)
        self.function, self.terms, self.call = function, terms, call
        self.skeleton = base64.b64decode(call.structure)
        self.module = function.to(device) if isinstance(function, torch.nn.Module) else None
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
        """Names of module tensors that changed although they must not, as in `state weight`."""
        if self.module is None or self.terms.may_change_state:
            return []
        first, current = self.first_state, self._read_state()
        changed = first.keys() ^ current.keys()
        for name in first.keys() & current.keys():
            if not same_bits(first[name], current[name]):
                changed.add(name)
        return [f"state {name}" for name in sorted(changed)]

    def bind(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> "partial[Any]":
        """The call without arguments: on these inputs, and on buffers for outputs to be passed."""
        positional: Sequence[Any] = tensors
        keywords: dict[str, Any] = {}
        if self.skeleton:
            positional, keywords = rebuild_structure(self.skeleton, tensors)
        if keywords and outputs:  # If inputs are passed by name, so are outputs.
            names = [output.name for output in self.call.separate_outputs]
            keywords |= zip(names, outputs, strict=True)
            outputs = ()
        return partial(self.function, *positional, *outputs, **keywords, **self.call.attributes)

    def checked_outputs(self, result: Any) -> list[Tensor]:
        """The output tensors in a call's result. Raises Refused unless they are as expected."""
        expected, tensors = self.call.separate_outputs, list(outputs_by_path(result).values())
        # A single output may come in a sequence or as a number. Else the check below judges it.
        may_convert = type(result) in (tuple, list, bool, int, float) and len(tensors) == 1
        if not self.call.several_outputs and not may_convert:
            tensors = [result]
        if len(tensors) != len(expected):
            names = ", ".join(output.name for output in expected) or "nothing"
            message = f"wrong result: expected {names}, got {len(tensors)} tensors"
            raise Refused(message, "wrong result")
        for output, tensor in zip(expected, tensors, strict=True):
            name = output.name if self.call.several_outputs else ""
            check_result(tensor, output.shape, TORCH_DTYPES[output.dtype], name)
        return tensors


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> None:
    """Raise Refused unless the output `name` is a plain tensor of this shape and type."""
    if type(result) is not Tensor:
        what, expected, actual = "result", "a plain torch.Tensor", type(result).__name__
    elif tuple(result.shape) != shape:
        what, expected, actual = "shape", str(list(shape)), str(list(result.shape))
    elif result.dtype != dtype:
        what, expected, actual = "type", str(dtype), str(result.dtype)
    else:
        return
    of = f" of {name}" if name else ""
    raise Refused(f"wrong {what}{of}: expected {expected}, got {actual}", "wrong result")


def overwrite_result(result: Any, inputs: Sequence[Tensor] = ()) -> None:
    """Fill returned tensors with NaN or the smallest integer, so that reuse shows; not bools."""
    outputs = [output for output in outputs_by_path(result).values() if type(output) is Tensor]
    storages = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    # A view of an input must stay: the next call needs its values.
    if storages and any(output.untyped_storage().data_ptr() in storages for output in outputs):
        return
    with torch.inference_mode():
        for tensor in outputs:
            if tensor.dtype == torch.bool:
                continue
            # An expanded axis (stride 0) repeats one element, which may be written only once.
            axes = zip(tensor.shape, tensor.stride(), strict=True)
            sizes = [size if stride else 1 for size, stride in axes]
            filler = torch.iinfo(tensor.dtype).min if tensor.dtype in INTEGERS else float("nan")
            tensor.as_strided(sizes, tensor.stride()).fill_(filler)
