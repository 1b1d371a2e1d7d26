"""A Python function on torch tensors that lie in the memory shared with the judge."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loop.calls.caches import flush_caches
from loop.calls.orders import Windows
from loop.calls.stages import Places, idle, share_of
from loop.calls.tensors import strides_of
from loop.calls.torch_side import TORCH_DTYPES, Function, check_result


class FunctionStage:
    """Calls of a Python function on the host. A result is the function's own until it is given into its slot."""

    captured = False
    strays: Sequence[str] = ()

    def __init__(self, function: Function, places: Places, call: dict[str, Any], slow: float) -> None:
        self.function, self.places, self.call, self.slow = function, places, call, slow
        self.shape, self.dtype = tuple(call["output"]["shape"]), TORCH_DTYPES[call["output"]["dtype"]]
        self.shapes = [tuple(tensor["shape"]) for tensor in call["inputs"]]
        self.strides = [strides_of(shape, "contiguous") for shape in self.shapes]
        self.pools = [self._pool(n) for n in range(len(self.shapes))]
        self.slots = [self._view(offset, self.shape, self.dtype) for offset in places.slots]
        self.runs: list[partial[Any]] = []
        self.results: list[Any] = []
        self.extra_ns = 0

    def _pool(self, n: int) -> Tensor:
        tensor = self.call["inputs"][n]
        count = math.prod(tensor["shape"]) + tensor["room"]
        return self._view(self.places.inputs[n], (count,), TORCH_DTYPES[tensor["dtype"]])

    def _view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.places.memory, dtype=dtype, count=count, offset=offset).reshape(shape)

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Point each call to its windows."""
        self.results = []
        self.runs = [self._bind(offsets) for offsets in windows]
        if self.slow and not self.extra_ns:
            self.extra_ns = share_of(self.slow, self.runs[0])
        flush_caches() if cold else self.places.warm(len(windows))

    def _bind(self, offsets: Sequence[int]) -> "partial[Any]":
        views = zip(self.pools, self.shapes, self.strides, offsets, strict=True)
        tensors = [pool.as_strided(shape, strides, offset) for pool, shape, strides, offset in views]
        return partial(self.function, *tensors, **self.call["attributes"])

    def run(self, count: int) -> int:
        """Make the calls; every result is kept, for any may be asked for."""
        if self.extra_ns:
            for run in self.runs[:count]:
                self.results.append(run())
                idle(self.extra_ns)
            return 0
        self.results = [run() for run in self.runs[:count]]
        return 0

    def give(self) -> None:
        """Copy each result into its slot; raises Refused when one is no tensor of the promised shape and type."""
        with torch.inference_mode():
            for slot, result in zip(self.slots, self.results, strict=False):
                check_result(result, self.shape, self.dtype)
                slot.copy_(result)

    def close(self) -> None:
        """Let go of the memory, so that it can be given back."""
        self.results, self.runs, self.pools, self.slots = [], [], [], []
