"""A call and a variant as parent, judge and worker speak of them: plain data, without pydantic."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from loop.calls.plain import Plain
from loop.calls.tensors import DTYPES, LoopTensor, byte_size, describe, strides_of
from loop.model.dtypes import Device, Dtype

Value = bool | int | float | str | None
STEP_BYTES = {"cuda": 256, "cpu": 64}
"""Windows into a tensor's file begin at multiples of this: as aligned as memory that CUDA hands out, or as a
line of a processor's cache."""


class TensorFile(Plain):
    """A contiguous tensor in a file, C order.

    With `room`, the file holds that many elements more, and any window of the tensor's size is as good as any
    other: timed calls take a window each, so that none sees the values of the one before.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: Dtype
    room: int = 0
    offset: int = 0
    """Where the window begins whose answer the judge knows, in elements."""

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype][1]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return byte_size(self.shape, self.dtype)

    @property
    def pool_size(self) -> int:
        """Bytes of its file: of the tensor and of its room."""
        return self.size + self.room * self.item


class Call(Plain):
    """Everything a variant needs to compute one output."""

    key: str
    """Name of the workload, and the seed."""
    dtype: Dtype
    """The workload's element type: whose tolerance counts, and which tensors have that are given no other."""
    inputs: tuple[TensorFile, ...]
    output: TensorFile
    attributes: dict[str, Value]
    """By name, for Python variants."""
    numbers: tuple[float | None, ...]
    """In signature order, for C: None stands for NaN."""

    @property
    def offsets(self) -> list[int]:
        """The windows of the inputs whose answer the judge knows."""
        return [tensor.offset for tensor in self.inputs]

    def c_inputs(self, addresses: Sequence[int], layout: str = "contiguous") -> Any:
        """Its inputs at these addresses, as the C interface takes them."""
        placed = zip(addresses, self.inputs, strict=True)
        described = [describe(at, one.shape, strides_of(one.shape, layout), one.dtype) for at, one in placed]
        return (LoopTensor * len(described))(*described)

    def c_output(self, address: int) -> Any:
        """Its output at an address, as the C interface takes it."""
        shape = self.output.shape
        return (LoopTensor * 1)(describe(address, shape, strides_of(shape, "contiguous"), self.output.dtype))

    def c_numbers(self) -> Any:
        """Its attributes, as the C interface takes them."""
        numbers = [math.nan if number is None else number for number in self.numbers]
        return (ctypes.c_double * max(len(numbers), 1))(*numbers)

    def at_start(self) -> "Call":
        """The same call on first windows: it tells nothing of the values whose answer is known."""
        return self.but(inputs=tuple(tensor.but(offset=0) for tensor in self.inputs))


class LibraryTerms(Plain):
    """A compiled variant, as what loads it has to know it."""

    device: Device
    entry: str
    library: str
    build_id: str


class FunctionTerms(Plain):
    """A Python callable: a variant's, or one of the target's functions."""

    python: str
    """A bundled function's name, or `module:function`."""


class CommandTerms(Plain):
    """A program of its own."""

    run: tuple[str, ...]
    shapes: dict[str, str]
    """Tensor to its dimensions, as the signature has them."""


Terms = LibraryTerms | FunctionTerms | CommandTerms
"""What a worker can be asked to load."""


def step_of(dtype: Dtype, device: Device) -> int:
    """Elements from one window to the next."""
    return STEP_BYTES[device] // DTYPES[dtype][1]


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as the double a C kernel is given; None for "not given"."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
