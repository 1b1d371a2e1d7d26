"""A Python function on torch tensors that lie in the memory shared with the judge."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call
from loop.calls.orders import Windows
from loop.calls.stages import HostStage, Places
from loop.calls.tensors import strides_of
from loop.calls.torch_side import TORCH_DTYPES, Function, check_result


class FunctionStage(HostStage):
    """Calls of a Python function on the host. A result is the function's own until it is given into its slot."""

    def __init__(self, function: Function, places: Places, call: Call, slow: float) -> None:
        super().__init__(places, slow)
        self.function, self.call = function, call
        self.shape, self.dtype = call.output.shape, TORCH_DTYPES[call.output.dtype]
        self.shapes = [tensor.shape for tensor in call.inputs]
        self.strides = [strides_of(shape, "contiguous") for shape in self.shapes]
        self.pools = [self._pool(n) for n in range(len(self.shapes))]
        self.slots = [self._view(offset, self.shape, self.dtype) for offset in places.slots]
        self.results: list[Any] = []

    def _pool(self, n: int) -> Tensor:
        tensor = self.call.inputs[n]
        return self._view(self.places.inputs[n], (tensor.elements + tensor.room,), TORCH_DTYPES[tensor.dtype])

    def _view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.places.memory, dtype=dtype, count=count, offset=offset).reshape(shape)

    def point(self, windows: Windows) -> None:
        """Bind each call to views of its windows."""
        self.results = []
        self.runs = [self._bind(offsets) for offsets in windows]

    def _bind(self, offsets: Sequence[int]) -> "partial[Any]":
        views = zip(self.pools, self.shapes, self.strides, offsets, strict=True)
        tensors = [pool.as_strided(shape, strides, offset) for pool, shape, strides, offset in views]
        return partial(self.function, *tensors, **self.call.attributes)

    def make(self, runs: Sequence[Callable[[], Any]]) -> None:
        """Make some calls; every result is kept, for any may be asked for."""
        self.results += [run() for run in runs]

    def give(self) -> None:
        """Copy each result into its slot; raises Refused when one is no tensor of the promised shape and type."""
        with torch.inference_mode():
            for slot, result in zip(self.slots, self.results, strict=False):
                check_result(result, self.shape, self.dtype)
                slot.copy_(result)

    def close(self) -> None:
        """Let go of the memory, so that it can be given back."""
        self.results, self.runs, self.pools, self.slots = [], [], [], []
