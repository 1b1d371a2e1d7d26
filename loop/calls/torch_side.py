"""Where torch is known: tensors to bytes and back, Python variants as prepared calls."""

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from loop.calls.allocations import stray_writes
from loop.calls.call import Call, TensorFile
from loop.calls.guarded import Guarded, Memory
from loop.calls.guards import Guard, Surroundings
from loop.calls.prepared import GuardedCall, Run
from loop.calls.refusal import Refused

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
BUNDLED = {
    "attention_reference": "loop.workers.attention:eager",
    "attention_plain": "loop.workers.attention:eager",
    "torch_sdpa": "loop.workers.attention:torch_sdpa",
}
PARTS = ("attention_split_partial", "attention_split_reduce", "attention_partials", "attention_partial_form")
BUNDLED |= {name: f"loop.workers.attention:{name}" for name in PARTS}
"""Functions that a target names without a module. The reference is attention written out, given float64."""
PROPERTIES = (
    "softmax_rows",
    "key_permutation",
    "logit_shift",
    "linear_in_v",
    "causal_prefix",
    "split_merge",
    "by_hand",
)
BUNDLED |= {name: f"loop.workers.attention_properties:{name}" for name in PROPERTIES}
MOVED = {"loop.bench.child.attention": "loop.workers.attention"}
"""Modules of ours that manifests of an earlier release name, and where they are now."""

Function = Callable[..., Any]


def use_threads(threads: int) -> None:
    """Let torch use that many threads, and no gradients."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def find(name: str) -> Function:
    """A bundled function by name, or `module:function`."""
    module, colon, function = BUNDLED.get(name, name).partition(":")
    if not colon:
        known = ", ".join(BUNDLED)
        raise Refused(f"unknown function {name}: expected one of {known}, or module:function")
    try:
        return getattr(_import(MOVED.get(module, module)), function)  # type: ignore[no-any-return]
    except Exception as error:
        raise Refused(f"cannot import {name}: {type(error).__name__}: {error}") from error


def _import(name: str) -> ModuleType:
    """A module of the user's: nothing is written beside it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before


def takes_sizes(function: Function) -> bool:
    """Whether a function of a target asks for the size of each dimension: its inputs do not tell them all."""
    given = function.keywords if isinstance(function, partial) else {}
    try:
        return "sizes" in inspect.signature(function).parameters and "sizes" not in given
    except ValueError:  # A function written in C does not say.
        return False


def window(flat: Tensor, tensor: TensorFile) -> Tensor:
    """The part of a file whose answer the judge knows."""
    return flat[tensor.offset : tensor.offset + tensor.elements].reshape(tensor.shape)


def write_tensor(path: str, tensor: Tensor) -> None:
    """Write a tensor's bytes, C order."""
    Path(path).write_bytes(bytes_of(tensor))


def read_tensor(tensor: TensorFile, path: str = "") -> Tensor:
    """Read what `write_tensor` wrote, to its own path or another; Refused when the file has another size."""
    data, dtype = Path(path or tensor.path).read_bytes(), TORCH_DTYPES[tensor.dtype]
    if len(data) != tensor.size:
        raise Refused(f"wrong shape: expected {tensor.size} bytes, got {len(data)}")
    if not data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(tensor.shape)


class TorchMemory(Memory):
    """One input in memory of its own, with a guard zone on either side in the same storage."""

    def __init__(self, size: int, shift: int, dtype: str, zone: int, device: str) -> None:
        before, kind = zone + shift, TORCH_DTYPES[dtype]
        super().__init__(size, Surroundings(before, zone, dtype))
        self._block = torch.empty(before + size + zone, dtype=torch.uint8, device=device)
        self._parts = torch.split(self._block, [before, size, zone])
        self.flat = self._block.view(kind)[before // kind.itemsize :][: size // kind.itemsize]
        self.address = self.flat.data_ptr()

    def fill(self, data: bytes) -> None:
        """Put `data` into it, and remember it."""
        self.data = data
        self.rotate(0)

    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end."""
        self._parts[1].copy_(_bytes_tensor(self.data[count:] + self.data[:count] if count else self.data))
        self.turned = count

    def surround(self, guard: Guard) -> None:
        """Write both zones anew."""
        for place, zone in zip(self._parts[::2], self.zones.renew(guard), strict=True):
            place.copy_(_bytes_tensor(zone))

    def read(self) -> bytes:
        """The tensor's bytes."""
        return bytes_of(self._parts[1].cpu())

    def read_zones(self) -> tuple[bytes, bytes]:
        """What stands in both zones."""
        return bytes_of(self._parts[0].cpu()), bytes_of(self._parts[2].cpu())


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class GuardedInputs(Guarded):
    """The inputs of a call. Zones stay open: a Python variant may copy a tensor's whole storage."""

    prefills = False
    once: Callable[[], Any]
    """Makes the call."""

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each input, and the values the judge knows into it."""
        super().surround(guards)
        if any(isinstance(memory, TorchMemory) and memory.flat.is_cuda for memory in self.inputs):
            torch.cuda.synchronize()

    def own_strays(self) -> list[str]:
        """What one more call writes outside of tensors that the variant allocates, a sentence each."""
        return stray_writes(self.once)


class TensorCall(GuardedCall):
    """One call of a Python function on torch tensors."""

    guarded: GuardedInputs

    def __init__(self, function: Function, call: Call, device: str, layout: str) -> None:
        self.function, self.device = function, device
        super().__init__(call, layout, self.memory, GuardedInputs)
        self.guarded.once = self._once
        self.pools = [memory.flat for memory in self.guarded.inputs if isinstance(memory, TorchMemory)]
        self.result: Any = None

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor, with zones of so many bytes around it."""
        return TorchMemory(size, shift, dtype, zone, self.device)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run."""
        placed = zip(self.pools, self.call.inputs, self.guarded.strides, offsets or self.call.offsets, strict=True)
        views = [
            flat.as_strided(tensor.shape, strides, flat.storage_offset() + offset)
            for flat, tensor, strides, offset in placed
        ]
        return partial(self._run, views)

    def _once(self) -> Any:
        """The result of one call, which takes no other's place."""
        kept = self.result
        try:
            self.bind()()
            return self.result
        finally:
            self.result = kept

    def _run(self, views: list[Tensor]) -> None:
        self.result = self.function(*views, **self.call.attributes)

    def poison(self, guard: Guard | None = None) -> None:
        """Make the last output NaN and forget it: whoever gives it back once more has not computed it."""
        result, self.result = self.result, None
        if type(result) is Tensor and result.is_floating_point() and not self._is_input(result):
            sizes = [size if stride else 1 for size, stride in zip(result.shape, result.stride(), strict=True)]
            with torch.inference_mode():
                result.as_strided(sizes, result.stride()).fill_(math.nan)

    def _is_input(self, result: Tensor) -> bool:
        """Whether a result stands in the memory of an input."""
        begin = result.untyped_storage().data_ptr()
        return begin in [flat.untyped_storage().data_ptr() for flat in self.pools]

    def output(self) -> bytes:
        """The last output's bytes; raises Refused when it is not a tensor of the promised shape and type."""
        check_result(self.result, self.call.output.shape, TORCH_DTYPES[self.call.output.dtype])
        return bytes_of(self.result.detach().cpu())


WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by their size, as which numpy takes the elements of any other, whatever the strides."""


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor's bytes, C order."""
    return tensor.resolve_neg().view(WHOLE[tensor.element_size()]).numpy().tobytes()


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise Refused unless `result` is a tensor of that shape and type."""
    if type(result) is not Tensor:
        raise Refused(f"wrong result: expected a plain torch.Tensor, got {type(result).__name__}", "wrong result")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape: expected {list(shape)}, got {list(result.shape)}", "wrong result")
    if result.dtype != dtype:
        raise Refused(f"wrong type: expected {dtype}, got {result.dtype}", "wrong result")
