"""A call and a variant as parent, judge and worker speak of them: plain data, without pydantic."""

import ctypes
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
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
    same: int = -1
    """An axis along which all values are the same, which may have a stride of 0; -1: none."""

    def strides(self, layout: str) -> tuple[int, ...]:
        """Its strides in elements, where it is laid out so."""
        return strides_of(self.shape, layout, self.same)

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
    """The output; of several a block of bytes that holds all of them."""
    attributes: dict[str, Value]
    """By name, for Python variants."""
    numbers: tuple[float | None, ...]
    """In signature order, for C: None stands for NaN."""
    parts: tuple[TensorFile, ...] = ()
    """Outputs in the block: `offset` is the byte where each begins there. Empty where `output` is the only one."""
    updates: tuple[int, ...] = ()
    """For each part the number of the input that is changed in place, or -1. Empty where there is none."""
    structure: str = ""
    """File of what the function is given, with places for the tensors; empty: the inputs one by one."""
    structure_digest: str = ""
    """Of that file's content, as the judge wrote it: whoever reads anything else would run it."""
    draws: int = 1
    """Sets of values in the files of inputs: windows are one of these in all inputs at once."""
    seed: int = 0
    """What stands before each constructor, where functions are classes."""

    @property
    def outputs(self) -> tuple[TensorFile, ...]:
        """All outputs; `offset` is the byte of the block where each begins."""
        return self.parts or (self.output,)

    @property
    def updated(self) -> frozenset[int]:
        """Numbers of the inputs that are changed in place."""
        return frozenset(number for number in self.updates if number >= 0)

    @property
    def written(self) -> tuple[TensorFile, ...]:
        """Outputs that are not inputs changed in place."""
        return tuple(one for n, one in enumerate(self.outputs) if not self.updates or self.updates[n] < 0)

    def clean(self, block: bytes) -> bytes:
        """The block of outputs with zeros between them: nobody has to write there."""
        if not self.parts:
            return block
        cleaned = bytearray(self.output.size)
        for one in self.parts:
            cleaned[one.offset : one.offset + one.size] = block[one.offset : one.offset + one.size]
        return bytes(cleaned)

    def strays_between(self, before: bytes, after: bytes) -> str:
        """What a call wrote between its outputs, in words; empty when nothing."""
        for one, following in itertools.pairwise(self.parts):
            end = one.offset + one.size
            if before and before[end : following.offset] != after[end : following.offset]:
                return f"writes outside its outputs: between {one.name} and {following.name}"
        return ""

    def with_updates(self, block: bytes, read: Callable[[int], bytes]) -> bytes:
        """The block with what stands in the inputs that are changed in place, each as `read` gives it."""
        if not self.updates:
            return block
        filled = bytearray(block)
        for one, number in zip(self.parts, self.updates, strict=True):
            if number >= 0:
                filled[one.offset : one.offset + one.size] = read(number)
        return bytes(filled)

    @property
    def offsets(self) -> list[int]:
        """The windows of the inputs whose answer the judge knows."""
        return [tensor.offset for tensor in self.inputs]

    def c_inputs(self, addresses: Sequence[int], layout: str = "contiguous") -> Any:
        """Its inputs at these addresses, as the C interface takes them."""
        placed = zip(addresses, self.inputs, strict=True)
        described = [describe(at, one.shape, one.strides(layout), one.dtype) for at, one in placed]
        return (LoopTensor * len(described))(*described)

    def c_output(self, address: int) -> Any:
        """Its outputs in a block at an address, as the C interface takes them."""
        described = [
            describe(address + one.offset, one.shape, strides_of(one.shape, "contiguous"), one.dtype)
            for one in self.written
        ]
        return (LoopTensor * max(len(described), 1))(*described)

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
    is_class: bool = False
    """Whether it names a class, of which one is made and called."""
    arguments: str = ""
    """The function that gives the constructor's arguments; empty: none."""
    is_free: bool = False
    """Whether calls may change what the class holds."""
    passed: bool = False
    """Whether its outputs are passed to it, after its inputs."""
    folder: str = ""
    """Where its module and what that imports is looked for first: a copy of its files."""


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


APART = 256
"""Outputs in a block begin at multiples of this, with at least so many bytes between two."""


def in_a_block(outputs: Iterable[TensorFile], path: str) -> tuple[TensorFile, tuple[TensorFile, ...]]:
    """Several outputs as one block of bytes in a file, and where each lies there."""
    parts, end = [], 0
    for one in outputs:
        begin = end and (-(-end // APART) + 1) * APART
        parts.append(one.but(path=path, offset=begin))
        end = begin + one.size
    return TensorFile("outputs", path, (end,), "uint8"), tuple(parts)


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as the double a C kernel is given; None for "not given"."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
