"""The bundled CUDA variants under the emulator, called at their C interface with tensors of any layout."""

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import LoopTensor

VARIANTS = ("fa1", "split_k", "decode", "tensor_core", "warp_specialized", "small", "auto")
WIDEST = {
    "fa1": 1024,
    "auto": 1024,
    "tensor_core": 256,
    "decode": 256,
    "warp_specialized": 256,
    "split_k": 128,
    "small": 128,
}
ALIGNED = ("decode", "warp_specialized")
"""Variants that want every row at a multiple of 16 bytes, however few features it has."""
CODES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4}
SLACK = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""atol and rtol: about twice the error of rounding the weights to the element type."""
LAST = 3


@dataclass(frozen=True)
class Call:
    """One call of attention: q, k, v and the output, as views with any strides."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    causal: float = 0.0
    alignment: float = 0.0
    scale: float = math.nan
    flipped: frozenset[str] = frozenset()
    """Tensors that are described from their last row to their first: with a negative stride."""
    described: dict[str, Any] = field(default_factory=dict)
    """Changed fields of descriptors, such as `k.dtype` or `o.sizes.1`."""

    def with_(self, **changes: Any) -> "Call":
        """The same with changes."""
        return replace(self, **changes)

    def exact(self) -> Tensor:
        """The result in float64; rows that see no key are zero."""
        q, k, v = (getattr(self, name).double() for name in "qkv")
        q, k, v = (x.flip(2) if name in self.flipped else x for name, x in zip("qkv", (q, k, v), strict=True))
        scale = 1 / math.sqrt(q.shape[LAST]) if math.isnan(self.scale) else self.scale
        scores = q @ k.transpose(-1, -2) * scale
        if self.causal:
            shift = k.shape[2] - q.shape[2] if self.alignment else 0
            visible = torch.ones(scores.shape[2:], dtype=torch.bool).tril(shift)
            scores = scores.masked_fill(~visible, -math.inf)
        top = scores.amax(-1, keepdim=True) if k.shape[2] else scores.new_zeros(*scores.shape[:3], 1)
        weights = (scores - top.where(top != -math.inf, 0.0)).exp()
        total = weights.sum(-1, keepdim=True)
        result = weights / total.where(total != 0, 1.0) @ v
        return result.flip(2) if "o" in self.flipped else result


def tensor_of(call: Call, name: str) -> LoopTensor:
    """The descriptor of one of a call's tensors."""
    tensor: Tensor = getattr(call, name)
    descriptor = LoopTensor(tensor.data_ptr(), CODES[tensor.dtype], tensor.dim())
    for axis in range(tensor.dim()):
        descriptor.sizes[axis], descriptor.strides[axis] = tensor.shape[axis], tensor.stride(axis)
    if name in call.flipped:
        descriptor.data += (tensor.shape[2] - 1) * tensor.stride(2) * tensor.element_size()
        descriptor.strides[2] = -tensor.stride(2)
    for place, value in call.described.items():
        owner, field, *index = place.split(".")
        if owner == name and index:
            getattr(descriptor, field)[int(index[0])] = value
        elif owner == name:
            setattr(descriptor, field, value)
    return descriptor


class Kernels:
    """The library of all variants."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.loop_error.restype = ctypes.c_char_p

    def run(self, variant: str, call: Call) -> str:
        """Call a variant; the text of its error, "" if there was none."""
        return self.enter(f"attention_{variant}", [tensor_of(call, n) for n in "qkv"], tensor_of(call, "o"), call)

    def enter(self, entry: str, inputs: Iterable[LoopTensor], output: LoopTensor, call: Call) -> str:
        """The same for any entry and any tensors."""
        tensors = list(inputs)
        numbers = (ctypes.c_double * 3)(call.causal, call.alignment, call.scale)
        descriptors = (LoopTensor * len(tensors))(*tensors)
        error = getattr(self.library, entry)(descriptors, (LoopTensor * 1)(output), numbers, None)
        return self.sentence(error) if error else ""

    def sentence(self, error: int) -> str:
        text: bytes = self.library.loop_error(error)
        return text.decode()


def draw(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    """Unit normals; their memory begins at a multiple of 64 bytes, as PyTorch's does."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def make_call(
    queries: int = 19,
    keys: int | None = None,
    depth: int = 64,
    *,
    batches: int = 2,
    heads: int = 2,
    dtype: torch.dtype = torch.float16,
    **fields: Any,
) -> Call:
    """A call on contiguous unit normals; the output is 7 everywhere."""
    keys = queries if keys is None else keys
    shapes = [(batches, heads, rows, depth) for rows in (queries, keys, keys)]
    q, k, v = (draw(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    return Call(q, k, v, torch.full_like(q, 7.0), **fields)


def far_off(call: Call) -> str:
    """How the output differs from float64; empty when it does not."""
    expected, output = call.exact(), call.o.double()
    slack = SLACK[call.o.dtype]
    right = (output - expected).abs() <= slack + slack * expected.abs()
    right |= (output == expected) | (output.isnan() & expected.isnan())
    worst = (output - expected).abs().nan_to_num(math.inf).max().item() if output.numel() else 0.0
    return "" if right.all() else f"{int((~right).sum())} of {right.numel()} elements, by up to {worst:.3g}"
