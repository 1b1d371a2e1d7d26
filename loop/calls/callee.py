"""What a call of a Python function is: the function, or one of its class, and how tensors get in and out."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls import structures
from loop.calls.call import Call, FunctionTerms, TensorFile
from loop.calls.refusal import Refused
from loop.calls.tensor_bytes import TORCH_DTYPES, bytes_of
from loop.calls.torch_files import made

Function = Callable[..., Any]


class Callee:
    """A function of the user's as one call needs it."""

    def __init__(
        self, function: Function, arguments: Function | None, terms: FunctionTerms, call: Call, device: str
    ) -> None:
        """`arguments` gives those of the constructor, where `function` is a class."""
        self.function, self.terms, self.call = function, terms, call
        self.rest = Path(call.structure).read_bytes() if call.structure else b""
        self.module: torch.nn.Module | None = None
        if terms.is_class:
            self.function = made(function, arguments, call.seed)
        if isinstance(self.function, torch.nn.Module):
            self.module = self.function.to(device)
        self.state = self._state()
        """Digests of what the module holds; or that itself, where calls may change it."""

    def _state(self) -> dict[str, Any]:
        held = self.module.state_dict() if self.module is not None else {}
        return {name: one.clone() if self.terms.is_free else digest(one) for name, one in held.items()}

    def restore(self) -> None:
        """Let the module hold what it held at first, where calls may change it."""
        if self.module is not None and self.terms.is_free:
            self.module.load_state_dict(self.state)

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
            positional, keywords = structures.put_together(self.rest, tensors)
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
        found = list(structures.outputs_of(result).values())
        if len(found) != len(wanted):
            names = ", ".join(one.name for one in wanted) or "nothing"
            raise Refused(f"wrong result: expected {names}, got {len(found)} tensors", "wrong result")
        for one, tensor in zip(wanted, found, strict=True):
            check_result(tensor, one.shape, TORCH_DTYPES[one.dtype], f" of {one.name}")
        return found


def digest(tensor: Tensor) -> bytes:
    """What tells a tensor's values from others."""
    return hashlib.blake2b(bytes_of(tensor.detach().cpu().contiguous())).digest()


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
    tensors = [one for one in structures.outputs_of(result).values() if type(one) is Tensor]
    with torch.inference_mode():
        for tensor in tensors:
            sizes = [size if stride else 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
            least = torch.iinfo(tensor.dtype).min if tensor.dtype in WHOLE_NUMBERS else float("nan")
            if tensor.dtype != torch.bool:
                tensor.as_strided(sizes, tensor.stride()).fill_(least)


WHOLE_NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
