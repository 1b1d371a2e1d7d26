"""Calls a user's Python function or class with any structure of arguments and results.

A structure (tuples, dicts, modules) is split into its tensors and the rest. The rest is pickled
with a number for each tensor, so that a worker can rebuild the structure around its own tensors.
"""

import hashlib
import io
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call, FunctionTerms, Refused, TensorFile
from loop.calls.torch_side import TORCH_DTYPES, Function, bits_of, import_file, make_instance

WHOLE_NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

HASH_BLOCK_WORDS = 1 << 20
"""32-bit words hashed in one step."""


@dataclass(frozen=True)
class SplitStructure:
    """A structure split into its tensors and the rest."""

    skeleton: bytes
    """The structure, pickled, with numbers in place of tensors."""
    names: tuple[str, ...]
    """Path of each tensor in the structure, such as `weights.bias`."""
    tensors: tuple[Tensor, ...]


class _Pickler(pickle.Pickler):
    """Pickler that writes a number in place of each tensor."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: dict[int, tuple[int, Tensor]] = {}
        """id(tensor) to its number and the tensor."""

    def persistent_id(self, obj: Any) -> Any:
        """For a tensor: (is it a module's Parameter, number); None for any other object."""
        if not isinstance(obj, Tensor):
            return None
        if type(obj) not in (Tensor, torch.nn.Parameter):
            raise Refused(f"cannot pass a {type(obj).__name__}: expected plain tensors")
        number, _ = self.tensors.setdefault(id(obj), (len(self.tensors), obj))
        return type(obj) is torch.nn.Parameter, number


class _Unpickler(pickle.Unpickler):
    tensors: Sequence[Tensor]

    def persistent_load(self, pid: Any) -> Any:
        """Return the tensor with this number."""
        is_parameter, number = pid
        tensor = self.tensors[number]
        return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor

    def find_class(self, module: str, name: str) -> Any:
        """Find a class or function; the module may be a path of a file."""
        if module.endswith(".py"):
            import_file(module)
        return super().find_class(module, name)


def split_structure(value: Any) -> SplitStructure:
    """Split a structure into its tensors and the rest. Raises Refused if it cannot be pickled."""
    names = {id(tensor): name for name, tensor in _named_tensors(value, "")}
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Refused(f"cannot pass {type(value).__name__} to another process: {error}") from error
    paths = tuple(names.get(identity, f"tensor {n}") for identity, (n, _) in pickler.tensors.items())
    return SplitStructure(file.getvalue(), paths, tuple(tensor.detach() for _, tensor in pickler.tensors.values()))


def rebuild_structure(rest: bytes, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a structure around other tensors; inverse of `split_structure`."""
    unpickler = _Unpickler(io.BytesIO(rest))
    unpickler.tensors = tensors
    return unpickler.load()


def structure_digest(rest: bytes) -> str:
    """Digest of a structure's pickled rest."""
    return hashlib.blake2b(rest).hexdigest()


def structure_of(call: Call) -> bytes:
    """Read the pickled argument structure of a call; empty if tensors are passed one by one. Raises
    Refused if the file is not what the judge wrote, because unpickling a changed file would run its
    code."""
    if not call.structure:
        return b""
    try:
        rest = Path(call.structure).read_bytes()
    except OSError as error:
        raise Refused(f"the file of what {call.key} is given: {error.strerror}") from error
    if structure_digest(rest) != call.structure_digest:
        raise Refused(f"the file of what {call.key} is given was changed while a variant ran", "changed input")
    return rest


def _named_tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a structure with its path, outermost first."""
    if isinstance(value, Tensor):
        yield path or "output", value
    elif isinstance(value, torch.nn.Module):
        yield from _members({**dict(value.named_parameters()), **dict(value.named_buffers())}, path)
    else:
        for name, item in _members(value, path):
            yield from _named_tensors(item, name)


def _members(value: Any, path: str) -> list[tuple[str, Any]]:
    """The direct members of a structure, each with its path."""
    items: dict[Any, Any] = {}
    if isinstance(value, Mapping):
        items = dict(value)
    elif isinstance(value, list | tuple):
        items = dict(zip(getattr(value, "_fields", None) or range(len(value)), value, strict=True))
    elif hasattr(value, "__dataclass_fields__"):
        items = vars(value)
    return [(f"{path}.{name}" if path else str(name), item) for name, item in items.items()]


def outputs_of(result: Any, path: str = "") -> dict[str, Any]:
    """Map paths to the tensors that a function returned; a number becomes a tensor without
    dimensions. Any other object is kept unchanged, such as a tensor subclass, which could compute
    lazily."""
    if isinstance(result, bool | int | float):
        dtype = torch.float64 if isinstance(result, float) else None
        return {path or "output": torch.tensor(result, dtype=dtype)}
    outputs: dict[str, Any] = {}
    if result is None or isinstance(result, Mapping | list | tuple) or hasattr(result, "__dataclass_fields__"):
        for name, item in _members(result, path):
            outputs |= outputs_of(item, name)
        return outputs
    return {path or "output": result}


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
        """`arguments`: returns the constructor's arguments, if `function` is a class. `watched`:
        record the module's state, to detect changes."""
        self.function, self.terms, self.call = function, terms, call
        self.skeleton = structure_of(call)
        self.module: torch.nn.Module | None = None
        if terms.is_class:
            self.function = make_instance(function, arguments, call.seed)
        if isinstance(self.function, torch.nn.Module):
            self.module = self.function.to(device)
        self.state = self._state() if watches_state else {}
        """Digests of the module's tensors; copies of them if calls may change the state."""

    def _state(self) -> dict[str, Any]:
        """Digests or copies of the module's tensors by name."""
        state = self.module.state_dict() if self.module is not None else {}
        keep: Callable[[Tensor], Any] = torch.clone if self.terms.may_change_state else digest
        return {name: keep(value) for name, value in state.items() if isinstance(value, Tensor)}

    def restore_state(self) -> None:
        """Reset the module to its first state, if calls may change it."""
        if self.module is not None and self.terms.may_change_state:
            self.module.load_state_dict({**self.module.state_dict(), **self.state})

    @property
    def changed_state(self) -> list[str]:
        """Names of state tensors that changed although they must not."""
        if self.module is None or self.terms.may_change_state:
            return []
        now = self._state()
        return [f"state {name}" for name in {**self.state, **now} if self.state.get(name) != now.get(name)]

    def bind(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> "partial[Any]":
        """Bind the function to these tensors. `outputs`: buffers for a variant that gets its
        outputs passed."""
        positional: Sequence[Any] = tensors
        keywords: dict[str, Any] = {}
        if self.skeleton:
            positional, keywords = rebuild_structure(self.skeleton, tensors)
        if keywords and outputs:  # If inputs are passed by name, so are outputs.
            keywords |= dict(zip((part.name for part in self.call.separate_outputs), outputs, strict=True))
            outputs = ()
        return partial(self.function, *positional, *outputs, **keywords, **self.call.attributes)

    def checked_outputs(self, result: Any) -> list[Tensor]:
        """The output tensors in a call's result. Raises Refused if a shape or type is wrong."""
        expected, tensors = self.call.separate_outputs, list(outputs_of(result).values())
        if not self.call.parts:
            single = type(result) in (tuple, list, bool, int, float) and len(tensors) == 1
            tensors = tensors if single else [result]
        if len(tensors) != len(expected):
            names = ", ".join(part.name for part in expected) or "nothing"
            raise Refused(f"wrong result: expected {names}, got {len(tensors)} tensors", "wrong result")
        for part, tensor in zip(expected, tensors, strict=True):
            of = f" of {part.name}" if self.call.parts else ""
            check_result(tensor, part.shape, TORCH_DTYPES[part.dtype], of)
        return tensors


def digest(tensor: Tensor) -> bytes:
    """Digest of a tensor's values, computed on its device because tensors may have gigabytes. A sum
    of 32-bit words, each times an odd 64-bit factor for its place (universal hashing, Carter and
    Wegman 1979). With 64-bit words an even number of changed sign bits would cancel."""
    words = bits_of(tensor).reshape(-1).view(torch.uint8)
    words = words.clone() if words.storage_offset() % 4 else words
    whole = words.numel() // 4
    short = words[: whole * 4].view(torch.int32)
    draw, odd = torch.Generator(words.device).manual_seed(HASH_BLOCK_WORDS), random.Random(HASH_BLOCK_WORDS)
    factors = (
        torch.randint(-(2**63), 2**63 - 1, (min(whole, HASH_BLOCK_WORDS),), generator=draw, device=words.device)
        | 1
    )
    total = 0
    for first in range(0, whole, HASH_BLOCK_WORDS):
        block = short[first : first + HASH_BLOCK_WORDS]
        total += int((block * factors[: block.numel()]).sum()) * (odd.getrandbits(64) | 1)
    return (total % 2**64).to_bytes(8, "little") + words[whole * 4 :].cpu().numpy().tobytes()


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype, of: str = "") -> None:
    """Raise Refused unless `result` is a plain tensor of this shape and type. `of`: its name."""
    if type(result) is not Tensor:
        got = type(result).__name__
        raise Refused(f"wrong result{of}: expected a plain torch.Tensor, got {got}", "wrong result")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape{of}: expected {list(shape)}, got {list(result.shape)}", "wrong result")
    if result.dtype != dtype:
        raise Refused(f"wrong type{of}: expected {dtype}, got {result.dtype}", "wrong result")


def view_output(block: Tensor, part: TensorFile) -> Tensor:
    """View one output in a block of bytes as a tensor."""
    data = block[part.offset : part.offset + part.nbytes]
    return data.view(TORCH_DTYPES[part.dtype]).reshape(part.shape)


def overwrite_result(result: Any) -> None:
    """Fill returned tensors with NaN or the smallest integer, so that a reused result shows."""
    tensors = [output for output in outputs_of(result).values() if type(output) is Tensor]
    with torch.inference_mode():
        for tensor in tensors:
            sizes = [size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
            least = torch.iinfo(tensor.dtype).min if tensor.dtype in WHOLE_NUMBERS else float("nan")
            if tensor.dtype != torch.bool:
                tensor.as_strided(sizes, tensor.stride()).fill_(least)
