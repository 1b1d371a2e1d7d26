"""Where torch is known: tensors to bytes and back, Python variants as prepared calls."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls.allocations import stray_writes
from loop.calls.call import Call, TensorFile
from loop.calls.callee import Callee, in_block, part_of, spoil
from loop.calls.guarded import Guarded, Memory
from loop.calls.guards import Guard, Surroundings
from loop.calls.prepared import GuardedCall, Run
from loop.calls.refusal import Refused
from loop.calls.structures import outputs_of
from loop.calls.tensor_bytes import TORCH_DTYPES, bytes_of
from loop.calls.tensors import POISON
from loop.calls.torch_files import import_module

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
        return getattr(import_module(MOVED.get(module, module)), function)  # type: ignore[no-any-return]
    except Exception as error:
        raise Refused(f"cannot import {name}: {type(error).__name__}: {error}{_line(error)}") from error


def _line(error: Exception) -> str:
    """Where in a file of the user's an import failed, as in ` (task.py:3)`; empty where nobody knows."""
    ours = Path(__file__).parent.parent
    places = reversed(traceback.extract_tb(error.__traceback__))
    last = next((one for one in places if one.filename.endswith(".py") and "importlib" not in one.filename), None)
    if isinstance(error, SyntaxError) or last is None or ours in Path(last.filename).parents:
        return ""
    return f" ({Path(last.filename).name}:{last.lineno})"


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

    @property
    def whole(self) -> Tensor:
        """The tensor as bytes."""
        return self._parts[1]

    def poison(self, guard: Guard | None = None) -> None:
        """Make every element NaN, or what the guard says."""
        data = bytes([POISON]) * self.size if guard is None else self.zones.fill(guard, self.size)
        self._parts[1].copy_(_bytes_tensor(data))

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


class GuardedOutputs(GuardedInputs):
    """Inputs, and the block of outputs that a function is passed."""

    prefills = True


class TensorCall(GuardedCall):
    """One call of a Python function on torch tensors."""

    guarded: GuardedInputs

    def __init__(self, callee: Callee, call: Call, device: str, layout: str) -> None:
        self.callee, self.device = callee, device
        super().__init__(call, layout, self.memory, GuardedOutputs if callee.terms.passed else GuardedInputs)
        self.guarded.once = self._once
        self.pools = [memory.flat for memory in self.guarded.inputs if isinstance(memory, TorchMemory)]
        self.passed: list[Tensor] = []
        if callee.terms.passed:
            block = self.guarded.all[-1]
            assert isinstance(block, TorchMemory)
            self.passed = [part_of(block.whole, one) for one in call.written]
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
        return partial(self._run, self.callee.bind(views, self.passed))

    def _once(self) -> Any:
        """The result of one call, which takes no other's place."""
        kept = self.result
        try:
            self.bind()()
            return self.result
        finally:
            self.result = kept

    def _run(self, bound: Callable[[], Any]) -> None:
        self.result = bound()

    def poison(self, guard: Guard | None = None) -> None:
        """Make the last outputs NaN and forget them: whoever gives them back once more has not computed them."""
        self.callee.restore()
        result, self.result = self.result, None
        if self.passed:
            self.guarded.all[-1].poison(guard)
        elif not self._holds_input(result):
            spoil(result)

    def _holds_input(self, result: Any) -> bool:
        """Whether a result stands in the memory of an input."""
        inputs = [flat.untyped_storage().data_ptr() for flat in self.pools]
        found = outputs_of(result).values()
        return any(type(one) is Tensor and one.untyped_storage().data_ptr() in inputs for one in found)

    def output(self) -> bytes:
        """The last outputs' bytes; raises Refused when they are no tensors of the promised shapes and types."""
        tensors = self.passed or self.callee.outputs(self.result)
        return self.call.with_updates(in_block(self.call, tensors), self.guarded.window)

    def changed(self) -> list[str]:
        """Names of inputs, and of what a module holds, that are not what they were."""
        return [*super().changed(), *self.callee.changed]
