"""What a call of a Python function is: the function, or one of its class, and how tensors get in and out.

What it is given and gives is taken apart into tensors and the rest: tuples, dicts, modules, anything. The rest is
pickled with a place for each tensor. So a worker puts the same structure together around tensors of ours.
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

from loop.calls.call import Call, FunctionTerms, TensorFile
from loop.calls.refusal import Refused
from loop.calls.torch_side import TORCH_DTYPES, Function, bits_of, bytes_of, import_file, made

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


def structure_digest(rest: bytes) -> str:
    """What tells the rest of a structure from any other."""
    return hashlib.blake2b(rest).hexdigest()


def structure_of(call: Call) -> bytes:
    """The rest of what a call's function is given; empty where that is the tensors one by one.

    Raises Refused unless it is what the judge wrote: a candidate could change the file, and reading it runs it.
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
        make: Callable[[Any, Any, int], Any] = made,
    ) -> None:
        """`arguments` gives those of the constructor, where `function` is a class. `watched`: whether what the
        module holds is compared afterwards. `make`: makes one of the class."""
        self.function, self.terms, self.call = function, terms, call
        self.rest = structure_of(call)
        self.module: torch.nn.Module | None = None
        if terms.is_class:
            self.function = make(function, arguments, call.seed)
        if isinstance(self.function, torch.nn.Module):
            self.module = self.function.to(device)
        self.state = self._state() if watched else {}
        """Digests of what the module holds; or that itself, where calls may change it."""

    def _state(self) -> dict[str, Any]:
        held = self.module.state_dict() if self.module is not None else {}
        held = {name: one for name, one in held.items() if isinstance(one, Tensor)}  # Beside its extra state.
        return {name: one.clone() if self.terms.is_free else digest(one) for name, one in held.items()}

    def restore(self) -> None:
        """Let the module hold what it held at first, where calls may change it."""
        if self.module is not None and self.terms.is_free:
            self.module.load_state_dict({**self.module.state_dict(), **self.state})

    @property
    def changed(self) -> list[str]:
        """What the module holds and must not have changed, by name."""
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
        if keywords and outputs:  # What comes by name is followed by what comes by name.
            keywords |= dict(zip((one.name for one in self.call.written), outputs, strict=True))
            outputs = ()
        return partial(self.function, *positional, *outputs, **keywords, **self.call.attributes)

    def outputs(self, result: Any) -> list[Tensor]:
        """The outputs that a call returned; raises Refused unless they are as promised."""
        wanted = self.call.written
        if not self.call.parts:
            check_result(result, wanted[0].shape, TORCH_DTYPES[wanted[0].dtype])
            return [result]
        found = list(outputs_of(result).values())
        if len(found) != len(wanted):
            names = ", ".join(one.name for one in wanted) or "nothing"
            raise Refused(f"wrong result: expected {names}, got {len(found)} tensors", "wrong result")
        for one, tensor in zip(wanted, found, strict=True):
            check_result(tensor, one.shape, TORCH_DTYPES[one.dtype], f" of {one.name}")
        return found


def digest(tensor: Tensor) -> bytes:
    """What tells a tensor's values from others: worked out where they lie, for some are gigabytes.

    A sum of 32-bit words, each times an odd 64-bit number for its place, tells any change of one word, and of
    several but for one in 2**32 (universal hashing, Carter and Wegman 1979). Words as wide as the sum will not do:
    an even number of changed highest bits, as of signs, is nothing in it. It is no match for who picks the values.
    """
    words = bits_of(tensor).reshape(-1).view(torch.uint8)
    words = words.clone() if words.storage_offset() % 4 else words
    whole = words.numel() // 4
    short = words[: whole * 4].view(torch.int32)
    draw, odd = torch.Generator(words.device).manual_seed(HASHED), random.Random(HASHED)
    drawn = torch.randint(-(2**63), 2**63 - 1, (min(whole, HASHED),), generator=draw, device=words.device) | 1
    total = 0
    for first in range(0, whole, HASHED):
        some = short[first : first + HASHED]
        total += int((some * drawn[: some.numel()]).sum()) * (odd.getrandbits(64) | 1)
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


def in_block(call: Call, tensors: Sequence[Tensor]) -> bytes:
    """The block of a call's outputs, those that are changed in place left out."""
    if not call.parts:
        return bytes_of(tensors[0].detach().cpu())
    block = bytearray(call.output.size)
    for one, tensor in zip(call.written, tensors, strict=True):
        block[one.offset : one.offset + one.size] = bytes_of(tensor.detach().cpu())
    return bytes(block)


def part_of(block: Tensor, one: TensorFile) -> Tensor:
    """An output's part of a block of bytes, as a tensor."""
    part = block[one.offset : one.offset + one.size]
    return part.view(TORCH_DTYPES[one.dtype]).reshape(one.shape)


def spoil(result: Any) -> None:
    """Make what a function returned other values: NaN, or the least of a whole number."""
    tensors = [one for one in outputs_of(result).values() if type(one) is Tensor]
    with torch.inference_mode():
        for tensor in tensors:
            sizes = [size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
            least = torch.iinfo(tensor.dtype).min if tensor.dtype in WHOLE_NUMBERS else float("nan")
            if tensor.dtype != torch.bool:
                tensor.as_strided(sizes, tensor.stride()).fill_(least)


WHOLE_NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
