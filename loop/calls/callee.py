"""What a call of a Python function is: the function, or an instance of its class, and how tensors get in and out.

Arguments and results may be any structure: tuples, dicts, modules. A structure is taken apart into its tensors and
the rest. The rest is pickled with a number in place of each tensor, so a worker can put the same structure
together around tensors of its own.
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
from loop.calls.torch_side import TORCH_DTYPES, Function, bits_of, import_file, instance_of

WHOLE_NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

HASHED = 1 << 20
"""Words that are hashed at a time."""


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
        self.tensors: dict[int, tuple[int, Tensor]] = {}
        """By identity: the number of a tensor, and the tensor."""

    def persistent_id(self, obj: Any) -> Any:
        """Whether a tensor is a parameter of a module, and its number; None for anything else."""
        if not isinstance(obj, Tensor):
            return None
        if type(obj) not in (Tensor, torch.nn.Parameter):
            raise Refused(f"cannot pass a {type(obj).__name__}: expected plain tensors")
        number, _ = self.tensors.setdefault(id(obj), (len(self.tensors), obj))
        return type(obj) is torch.nn.Parameter, number


class _Unpickler(pickle.Unpickler):
    tensors: Sequence[Tensor]

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
    paths = tuple(names.get(identity, f"tensor {n}") for identity, (n, _) in pickler.tensors.items())
    return Apart(file.getvalue(), paths, tuple(tensor.detach() for _, tensor in pickler.tensors.values()))


def put_together(rest: bytes, tensors: Sequence[Tensor]) -> Any:
    """The structure around other tensors."""
    unpickler = _Unpickler(io.BytesIO(rest))
    unpickler.tensors = tensors
    return unpickler.load()


def structure_digest(rest: bytes) -> str:
    """A digest of the rest of a structure."""
    return hashlib.blake2b(rest).hexdigest()


def structure_of(call: Call) -> bytes:
    """The rest of what a call's function is given; empty where that is the tensors one by one.

    Raises Refused unless it is what the judge wrote: unpickling a file that a candidate changed would run it.
    """
    if not call.structure:
        return b""
    try:
        rest = Path(call.structure).read_bytes()
    except OSError as error:
        raise Refused(f"the file of what {call.key} is given: {error.strerror}") from error
    if structure_digest(rest) != call.structure_digest:
        raise Refused(f"the file of what {call.key} is given was changed while a variant ran", "changed input")
    return rest


def _named(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a structure with the path to it, the outermost first."""
    if isinstance(value, Tensor):
        yield path or "output", value
    elif isinstance(value, torch.nn.Module):
        yield from _items({**dict(value.named_parameters()), **dict(value.named_buffers())}, path)
    else:
        for name, item in _items(value, path):
            yield from _named(item, name)


def _items(value: Any, path: str) -> list[tuple[str, Any]]:
    """What a structure holds, each with the path to it."""
    items: dict[Any, Any] = {}
    if isinstance(value, Mapping):
        items = dict(value)
    elif isinstance(value, list | tuple):
        items = dict(zip(getattr(value, "_fields", None) or range(len(value)), value, strict=True))
    elif hasattr(value, "__dataclass_fields__"):
        items = vars(value)
    return [(f"{path}.{name}" if path else str(name), item) for name, item in items.items()]


def outputs_of(result: Any, path: str = "") -> dict[str, Any]:
    """The tensors that a function returned, by their paths; a number counts as one without dimensions.

    Anything else is kept as it is, such as a tensor of another class: it could compute itself later.
    """
    if isinstance(result, bool | int | float):
        dtype = torch.float64 if isinstance(result, float) else None
        return {path or "output": torch.tensor(result, dtype=dtype)}
    outputs: dict[str, Any] = {}
    if result is None or isinstance(result, Mapping | list | tuple) or hasattr(result, "__dataclass_fields__"):
        for name, item in _items(result, path):
            outputs |= outputs_of(item, name)
        return outputs
    return {path or "output": result}


class Callee:
    """A function of the user's as one call needs it."""

    def __init__(
        self,
        function: Function,
        arguments: Function | None,
        terms: FunctionTerms,
        call: Call,
        device: str,
        *,
        watched: bool = True,
    ) -> None:
        """`arguments` gives those of the constructor, where `function` is a class.

        `watched`: whether what the module holds is compared afterwards.
        """
        self.function, self.terms, self.call = function, terms, call
        self.rest = structure_of(call)
        self.module: torch.nn.Module | None = None
        if terms.is_class:
            self.function = instance_of(function, arguments, call.seed)
        if isinstance(self.function, torch.nn.Module):
            self.module = self.function.to(device)
        self.state = self._state() if watched else {}
        """Digests of what the module holds; or that itself, where calls may change it."""

    def _state(self) -> dict[str, Any]:
        state = self.module.state_dict() if self.module is not None else {}
        keep: Callable[[Tensor], Any] = torch.clone if self.terms.is_free else digest
        return {name: keep(value) for name, value in state.items() if isinstance(value, Tensor)}

    def restore(self) -> None:
        """Let the module hold what it held at first, where calls may change it."""
        if self.module is not None and self.terms.is_free:
            self.module.load_state_dict({**self.module.state_dict(), **self.state})

    @property
    def changed(self) -> list[str]:
        """Names of what the module holds, must not change, and did change."""
        if self.module is None or self.terms.is_free:
            return []
        now = self._state()
        return [f"state {name}" for name in {**self.state, **now} if self.state.get(name) != now.get(name)]

    def bind(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> "partial[Any]":
        """The call on these tensors; `outputs` where they are passed."""
        positional: Sequence[Any] = tensors
        keywords: dict[str, Any] = {}
        if self.rest:
            positional, keywords = put_together(self.rest, tensors)
        if keywords and outputs:  # Where inputs come by name, outputs do, too.
            keywords |= dict(zip((part.name for part in self.call.written), outputs, strict=True))
            outputs = ()
        return partial(self.function, *positional, *outputs, **keywords, **self.call.attributes)

    def outputs(self, result: Any) -> list[Tensor]:
        """The outputs that a call returned; raises Refused unless they are as promised."""
        expected, tensors = self.call.written, list(outputs_of(result).values())
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
    """A digest of a tensor's values, worked out where they lie, for some are gigabytes.

    A sum of 32-bit words, each times an odd 64-bit number for its place (universal hashing, Carter and Wegman
    1979). Words as wide as the sum will not do: an even number of changed highest bits, as of signs, cancels.
    """
    words = bits_of(tensor).reshape(-1).view(torch.uint8)
    words = words.clone() if words.storage_offset() % 4 else words
    whole = words.numel() // 4
    short = words[: whole * 4].view(torch.int32)
    draw, odd = torch.Generator(words.device).manual_seed(HASHED), random.Random(HASHED)
    factors = torch.randint(-(2**63), 2**63 - 1, (min(whole, HASHED),), generator=draw, device=words.device) | 1
    total = 0
    for first in range(0, whole, HASHED):
        block = short[first : first + HASHED]
        total += int((block * factors[: block.numel()]).sum()) * (odd.getrandbits(64) | 1)
    return (total % 2**64).to_bytes(8, "little") + words[whole * 4 :].cpu().numpy().tobytes()


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype, of: str = "") -> None:
    """Raise Refused unless `result` is a tensor of that shape and type."""
    if type(result) is not Tensor:
        got = type(result).__name__
        raise Refused(f"wrong result{of}: expected a plain torch.Tensor, got {got}", "wrong result")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape{of}: expected {list(shape)}, got {list(result.shape)}", "wrong result")
    if result.dtype != dtype:
        raise Refused(f"wrong type{of}: expected {dtype}, got {result.dtype}", "wrong result")


def part_of(block: Tensor, part: TensorFile) -> Tensor:
    """An output's part of a block of bytes, as a tensor."""
    data = block[part.offset : part.offset + part.size]
    return data.view(TORCH_DTYPES[part.dtype]).reshape(part.shape)


def overwrite_result(result: Any) -> None:
    """Overwrite what a function returned: with NaN, or the least whole number."""
    tensors = [output for output in outputs_of(result).values() if type(output) is Tensor]
    with torch.inference_mode():
        for tensor in tensors:
            sizes = [size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
            least = torch.iinfo(tensor.dtype).min if tensor.dtype in WHOLE_NUMBERS else float("nan")
            if tensor.dtype != torch.bool:
                tensor.as_strided(sizes, tensor.stride()).fill_(least)
