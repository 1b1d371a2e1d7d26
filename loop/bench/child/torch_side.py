"""Where torch is known: values to tensors, tensors to bytes, Python variants as prepared calls."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.bench.child.refusal import Refused

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
BUNDLED = {
    "attention_reference": "loop.bench.child.attention:eager",
    "attention_plain": "loop.bench.child.attention:eager",
    "torch_sdpa": "loop.bench.child.attention:torch_sdpa",
}
"""Functions that a target names without a module. The reference is attention written out, given float64."""
SPREAD = {"normal": 1.0, "wide": 4.0}

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
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except Exception as error:
        raise Refused(f"cannot import {name}: {type(error).__name__}: {error}") from error


def make_values(kind: str, seed: int, index: int, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Seeded values of one input tensor, rounded to its type.

    numpy.random.RandomState is frozen by NEP 19: a seed gives the same values in every release.
    """
    if kind == "constant":
        values = numpy.full(shape, 0.25 * (index + 1), dtype=numpy.float32)
    else:
        stream = numpy.random.RandomState((seed * 64 + index) % 2**32)
        values = (stream.standard_normal(shape) * SPREAD[kind]).astype(numpy.float32)
    return torch.from_numpy(values.reshape(shape)).to(TORCH_DTYPES[dtype])


def write_tensor(path: str, tensor: Tensor) -> None:
    """Write a tensor's bytes, C order."""
    flat = tensor.contiguous().reshape(-1)
    Path(path).write_bytes(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def read_tensor(path: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    """Read what `write_tensor` wrote; raises Refused when the file has another size."""
    return tensor_of(Path(path).read_bytes(), shape, dtype)


def tensor_of(data: bytes, shape: tuple[int, ...], dtype: str) -> Tensor:
    """A tensor from its bytes."""
    wanted = torch.Size(shape).numel() * TORCH_DTYPES[dtype].itemsize
    if len(data) != wanted:
        raise Refused(f"wrong shape: expected {wanted} bytes, got {len(data)}")
    if not data:
        return torch.empty(shape, dtype=TORCH_DTYPES[dtype])
    return torch.frombuffer(bytearray(data), dtype=TORCH_DTYPES[dtype]).reshape(shape)


class TensorCall:
    """One call of a Python function on torch tensors."""

    def __init__(self, function: Function, call: dict[str, Any], device: str) -> None:
        self.function, self.device = function, device
        dtype, self.attributes = call["dtype"], call["attributes"]
        self.shape, self.dtype = tuple(call["output"]["shape"]), TORCH_DTYPES[dtype]
        self.inputs = [read_tensor(t["path"], tuple(t["shape"]), dtype).to(device) for t in call["inputs"]]
        self.result: Any = None

    def run(self) -> None:
        """Compute the output once; on a GPU, wait for it."""
        self.result = self.function(*self.inputs, **self.attributes)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def poison(self) -> None:
        """Forget the last output: a function makes a new one."""
        self.result = None

    def output(self) -> bytes:
        """The last output's bytes; raises Refused when it is not a tensor of the promised shape and type."""
        check_result(self.result, self.shape, self.dtype)
        flat = self.result.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""

    def own_seconds(self) -> float | None:
        """Timed from outside."""
        return None


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise Refused unless `result` is a tensor of that shape and type."""
    if not isinstance(result, Tensor):
        raise Refused(f"wrong result: expected a tensor, got {type(result).__name__}")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape: expected {list(shape)}, got {list(result.shape)}")
    if result.dtype != dtype:
        raise Refused(f"wrong type: expected {dtype}, got {result.dtype}")
