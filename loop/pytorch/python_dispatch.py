"""The kernel of an operator in Python: works with every PyTorch, and costs some microseconds a call.

What depends on shapes, strides, types and devices is worked out once for each combination; a call fills in the
addresses.
"""

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loop.calls.tensors import LoopTensor, describe, strides_of
from loop.pytorch.checks import TensorFacts, check_gradients, output_of, refuse, refuse_choice, word
from loop.pytorch.library import KernelLibrary
from loop.timing.contract import Contract

KEPT = 1024
"""Combinations that are remembered."""
ADDRESS = struct.calcsize("P")
REST = ctypes.sizeof(LoopTensor) - ADDRESS
"""Bytes of a LoopTensor after its address."""
Layout = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]
Kernel = Callable[..., Tensor]


class DispatchPlan(NamedTuple):
    """A call but for its addresses and attributes."""

    inputs: tuple[bytes, ...]
    """Each input's LoopTensor without its address."""
    output: bytes
    """The output's."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def kernel(contract: Contract, library: KernelLibrary) -> Kernel:
    """A function of tensors, then attributes as numbers; returns the output in C order, on the current stream."""
    count, entry = len(contract.inputs), library.entry
    remembered = functools.lru_cache(KEPT)(functools.partial(plan, contract))
    counts = [len(attribute.choices) or math.inf for attribute in contract.attributes.values()]
    chosen = [place for place, attribute in enumerate(contract.attributes.values()) if attribute.kind == "choice"]
    pack_inputs = struct.Struct(f"P{REST}s" * count).pack
    pack_output = struct.Struct(f"P{REST}s").pack
    pack_numbers = struct.Struct(f"{len(contract.attributes)}d").pack

    def run(*arguments: Any) -> Tensor:
        tensors, numbers = arguments[:count], arguments[count:]
        layout = remembered(*[(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
        if torch.is_grad_enabled():
            check_gradients(contract, tensors)
        for place in chosen:
            if not 0 <= numbers[place] < counts[place]:
                refuse_choice(contract, place, numbers[place])
        output = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=layout.device)
        parts: list[int | bytes] = []
        for tensor, rest in zip(tensors, layout.inputs, strict=True):
            parts += (tensor.data_ptr(), rest)
        result = pack_output(output.data_ptr(), layout.output)
        error = launch(entry, layout.device, pack_inputs(*parts), result, pack_numbers(*numbers))
        if error:
            refuse(contract, f"error {error}: {library.explain(error)}")
        return output

    return run


def launch(entry: Callable[..., int], device: torch.device, *arguments: bytes) -> int:
    """Call the entry, on a CUDA device on its current stream; the entry's error number."""
    if device.type == "cpu":
        return entry(*arguments, None)
    index = device.index
    if index == torch._C._cuda_getDevice():
        return entry(*arguments, torch._C._cuda_getCurrentRawStream(index))
    with torch.cuda.device(index):
        return entry(*arguments, torch._C._cuda_getCurrentRawStream(index))


def plan(contract: Contract, *layouts: Layout) -> DispatchPlan:
    """The common part of all calls with such inputs. Raises RuntimeError for inputs that do not fit."""
    output = output_of(contract, [TensorFacts(shape, dtype, device) for shape, _, dtype, device in layouts])
    inputs = tuple(_rest(shape, strides, dtype) for shape, strides, dtype, _ in layouts)
    strides = strides_of(output.shape, "contiguous")
    return DispatchPlan(inputs, _rest(output.shape, strides, output.dtype), output.shape, strides, *output[1:])


def _rest(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> bytes:
    return bytes(describe(0, tuple(shape), tuple(strides), word(dtype)))[ADDRESS:]
