"""A Python function on torch tensors that lie in the memory shared with the judge."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call
from loop.calls.callee import Callee
from loop.calls.orders import Windows
from loop.calls.stages import HostStage, Places
from loop.calls.tensors import strides_of
from loop.calls.torch_side import TORCH_DTYPES


class FunctionStage(HostStage):
    """Calls of a Python function on the host. A result is the function's own until it is given into its slot."""

    def __init__(self, callee: Callee, places: Places, call: Call, slow: float) -> None:
        super().__init__(places, slow)
        self.callee, self.call = callee, call
        self.shapes = [tensor.shape for tensor in call.inputs]
        self.strides = [strides_of(shape, "contiguous") for shape in self.shapes]
        self.pools = [self._pool(n) for n in range(len(self.shapes))]
        self.slots = [
            [self._view(offset + one.offset, one.shape, TORCH_DTYPES[one.dtype]) for one in call.outputs]
            for offset in places.slots
        ]
        """The outputs of each call."""
        self.results: list[Any] = []
        self.bound: list[list[Tensor]] = []
        """The inputs of each call."""

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
        self.results, self.bound = [], []
        self.runs = [self._bind(offsets, number) for number, offsets in enumerate(windows)]

    def _bind(self, offsets: Sequence[int], number: int) -> "partial[Any]":
        views = zip(self.pools, self.shapes, self.strides, offsets, strict=True)
        tensors = [pool.as_strided(shape, strides, offset) for pool, shape, strides, offset in views]
        self.bound.append(tensors)
        return self.callee.bind(tensors, self.passed(number))

    def passed(self, number: int) -> list[Tensor]:
        """Where a call's outputs are, if they are passed to it."""
        return self._written(self.slots[number]) if self.callee.terms.passed else []

    def _written(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Those of the outputs that are not inputs changed in place."""
        kept = self.call.updates or [-1] * len(outputs)
        return [one for one, number in zip(outputs, kept, strict=True) if number < 0]

    def make(self, runs: Sequence[Callable[[], Any]]) -> None:
        """Make some calls; every result is kept, for any may be asked for."""
        self.results += [run() for run in runs]

    def give(self) -> None:
        """Copy each result into its slot; raises Refused when one is no tensor of the promised shape and type."""
        with torch.inference_mode():
            for number, result in enumerate(self.results[: len(self.slots)]):
                self.give_one(number, result)

    def give_one(self, number: int, result: Any) -> None:
        """Copy one result into its slot, and the inputs that it changed in place."""
        if not self.callee.terms.passed:
            for slot, tensor in zip(self._written(self.slots[number]), self.callee.outputs(result), strict=True):
                slot.copy_(tensor)
        for slot, input_number in zip(self.slots[number], self.call.updates, strict=False):
            if input_number >= 0:
                slot.copy_(self.bound[number][input_number])

    def close(self) -> None:
        """Let go of the memory, so that it can be given back."""
        self.results, self.runs, self.pools, self.slots, self.bound = [], [], [], [], []
