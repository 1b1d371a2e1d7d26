"""A call and a variant as parent, judge and worker speak of them: plain data, without pydantic."""

import ctypes
import math
import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, dataclass_transform

from loop.model.causes import Cause
from loop.model.dtypes import ITEM_SIZES, Device, Dtype

MAX_RANK = 8
NUMBERED: tuple[Dtype, ...] = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "int8")
NUMBERED += ("int16", "bool", "float8_e4m3fn", "float8_e5m2")
DTYPES: dict[str, tuple[int, int]] = {name: (n, ITEM_SIZES[name]) for n, name in enumerate(NUMBERED, 1)}
"""Name to its number in loop_kernel.h and its size in bytes."""
POISON = 0xFF
"""Bytes of this value are NaN in every floating-point type."""
PAGE = mmap.PAGESIZE
ROW_PADDING = 8
"""Elements of poison after each row of a tensor that is laid out `strided`."""


class LoopTensor(ctypes.Structure):
    """`struct LoopTensor` of loop_kernel.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


def strides_of(shape: tuple[int, ...], layout: str, same: int = -1) -> tuple[int, ...]:
    """Strides in elements.

    - `contiguous`, `misaligned`: C order.
    - `strided`: rows are padded, and the dimensions between the first and the last lie in reverse order, as in
      [B, S, H, D] storage of a [B, H, S, D] tensor.
    - `transposed`: the last two dimensions change places.
    - `broadcast`: the axis `same` has stride 0.
    """
    if layout == "broadcast" and same >= 0:
        dense = strides_of((*shape[:same], 1, *shape[same + 1 :]), "contiguous")
        return (*dense[:same], 0, *dense[same + 1 :])
    order = list(range(len(shape)))
    if layout == "strided":
        order = order[:1] + order[-2:0:-1] + order[-1:] if len(shape) > 1 else order
    elif layout == "transposed":
        order = [*order[:-2], *order[:-3:-1]]
    strides, step = [0] * len(shape), 2 if layout == "strided" and len(shape) == 1 else 1
    for place, axis in enumerate(reversed(order)):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if layout == "strided" and place == 0:
            step += ROW_PADDING
    return tuple(strides)


def elements_spanned(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last of a tensor, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def scatter(data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int, between: bytes) -> bytes:
    """The bytes of a contiguous tensor spread out to `strides`, over the bytes of `between`.

    Along an axis of stride 0 its values are the same.
    """
    if 0 in shape:
        return between
    import numpy  # A worker that tries no layouts does without it.

    spread = bytearray(between)
    view = numpy.ndarray(shape, f"u{item}", spread, strides=[stride * item for stride in strides])
    view[...] = numpy.frombuffer(data, f"u{item}").reshape(shape)
    return bytes(spread)


def gather(spread: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bytes:
    """The inverse of `scatter`: the bytes of the contiguous tensor."""
    if 0 in shape:
        return b""
    import numpy

    return numpy.ndarray(shape, f"u{item}", spread, strides=[stride * item for stride in strides]).tobytes()


def describe(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
    """The LoopTensor of a tensor in memory; strides in elements."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, stride
    return tensor


Value = bool | int | float | str | None
STEP_BYTES = {"cuda": 256, "cpu": 64}
"""Windows into a tensor's file begin at multiples of this: the alignment of CUDA allocations, or a cache line."""
LATE_S = 20e-3
"""Work that goes on for longer after the stream is done was not all on the stream. Shorter work shows in the
output, which is read before: the host's clock cannot tell it from an interruption."""
APART = 256
"""Outputs in a block begin at multiples of this, with at least that many bytes between two."""


class Refused(Exception):
    """The variant cannot do this call, or did it wrong: a finding, not a bug of loop."""

    def __init__(self, message: str, cause: Cause = "unusable", code: str = "", seed: int | None = None) -> None:
        """`code`: the variant's own error number; `seed`: the emulator's seed that gives the fault again."""
        super().__init__(message)
        self.cause, self.code, self.seed = cause, code, seed


def refuse_late(seconds: float) -> None:
    """Raise Refused where other streams worked for that long after the call's own stream was done."""
    if seconds > LATE_S:
        late = f"work went on for {seconds * 1e3:.0f} ms on another stream after its own was done"
        raise Refused(late, "left work")


@dataclass_transform(frozen_default=True)
class Plain:
    """An immutable value with its class's annotated fields in order. Dataclasses would delay a worker's start."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        named = {**dict(zip(kind.__annotations__, values, strict=False)), **named}
        fields = {name: named[name] if name in named else getattr(kind, name) for name in kind.__annotations__}
        if named.keys() - fields.keys() or len(values) > len(fields):
            raise TypeError(f"{kind.__name__} has no such fields: {named}")
        self.__dict__.update(fields)

    def but(self, **changes: Any) -> Self:
        """The same with changes."""
        return type(self)(**{**vars(self), **changes})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class TensorFile(Plain):
    """A contiguous tensor in a file, C order.

    With `room`, the file holds that many more elements. Any window of the tensor's size is then valid input: each
    timed call takes another window, so no call sees the values of the call before.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: Dtype
    room: int = 0
    offset: int = 0
    """First element of the window whose answer the judge knows."""
    same: int = -1
    """An axis along which all values are the same, which may have a stride of 0; -1: none."""

    def strides(self, layout: str) -> tuple[int, ...]:
        """Strides in elements under a layout."""
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
        return self.elements * self.item

    def window(self) -> bytes:
        """Its bytes in the file."""
        with open(self.path, "rb") as file:
            file.seek(self.offset * self.item)
            return file.read(self.size)

    @property
    def pool_size(self) -> int:
        """Bytes of its file: of the tensor and its room."""
        return self.size + self.room * self.item


def c_tensors(tensors: Sequence[TensorFile], addresses: Sequence[int], layout: str = "contiguous") -> Any:
    """Tensors at these addresses, as the C interface takes them."""
    placed = zip(addresses, tensors, strict=True)
    described = [describe(at, each.shape, each.strides(layout), each.dtype) for at, each in placed]
    return (LoopTensor * max(len(described), 1))(*described)


class Call(Plain):
    """Everything a variant needs to compute one output."""

    key: str
    """Name of the workload, and the seed."""
    dtype: Dtype
    """The workload's element type. Its tolerance counts, and tensors without a type of their own have it."""
    inputs: tuple[TensorFile, ...]
    output: TensorFile
    """The output. Several outputs stand in one block of bytes, which this describes."""
    attributes: dict[str, Value]
    """By name, for Python variants."""
    numbers: tuple[float | None, ...]
    """Attributes in signature order, for C: None stands for NaN."""
    parts: tuple[TensorFile, ...] = ()
    """Outputs in the block; `offset` is the byte where each begins. Empty where `output` is the only one."""
    updates: tuple[int, ...] = ()
    """For each part the number of the input that is changed in place, or -1. Empty where there is none."""
    structure: str = ""
    """File of what the function is given, with places for the tensors; empty: the inputs one by one."""
    structure_digest: str = ""
    """Digest of that file as the judge wrote it. Unpickling any other content would run it."""
    draws: int = 1
    """Sets of values in the files of inputs: a window is one of these sets in all inputs at once."""
    seed: int = 0
    """Seed before each constructor, where functions are classes."""

    @property
    def outputs(self) -> tuple[TensorFile, ...]:
        """All outputs; `offset` is the byte of the block where each begins."""
        return self.parts or (self.output,)

    @property
    def updated(self) -> frozenset[int]:
        """Numbers of the inputs that are changed in place."""
        return frozenset(self.updates) - {-1}

    @property
    def written(self) -> tuple[TensorFile, ...]:
        """Outputs that are not inputs changed in place."""
        return tuple(part for n, part in enumerate(self.outputs) if not self.updates or self.updates[n] < 0)

    def block(self, written: Iterable[bytes], updated: Callable[[int], bytes]) -> bytes:
        """The bytes of all outputs: those in `written`, and by number those of inputs changed in place."""
        rest = iter(written)
        if not self.parts:
            return next(rest)
        filled = bytearray(self.output.size)
        for part, number in zip(self.parts, self.updates or [-1] * len(self.parts), strict=True):
            filled[part.offset : part.offset + part.size] = updated(number) if number >= 0 else next(rest)
        return bytes(filled)

    def c_inputs(self, addresses: Sequence[int], layout: str = "contiguous") -> Any:
        """Its inputs at these addresses, as the C interface takes them."""
        return c_tensors(self.inputs, addresses, layout)

    def c_output(self, address: int) -> Any:
        """Its outputs in a block at an address, as the C interface takes them."""
        return c_tensors(self.written, [address + part.offset for part in self.written])

    def c_numbers(self) -> Any:
        """Its attributes, as the C interface takes them."""
        numbers = [math.nan if number is None else number for number in self.numbers]
        return (ctypes.c_double * max(len(numbers), 1))(*numbers)

    def at_start(self) -> "Call":
        """The same call on the first windows. It says nothing about the values whose answer is known."""
        return self.but(inputs=tuple(tensor.but(offset=0) for tensor in self.inputs))


class LibraryTerms(Plain):
    """A compiled variant, as the worker that loads it needs it."""

    device: Device
    entry: str
    library: str
    build_id: str


class FunctionTerms(Plain):
    """A Python callable: a variant's, or one of the target's functions."""

    python: str
    """A bundled function's name, or `module:function`."""
    is_class: bool = False
    """Whether it names a class: an instance is made and called."""
    arguments: str = ""
    """The function that gives the constructor's arguments; empty: none."""
    is_free: bool = False
    """Whether calls may change what the instance holds."""
    passed: bool = False
    """Whether the caller passes outputs, after the inputs."""
    folder: str = ""
    """A copy of its files: modules are looked for here first."""


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


def in_a_block(outputs: Iterable[TensorFile], path: str) -> tuple[TensorFile, tuple[TensorFile, ...]]:
    """Several outputs as one block of bytes in a file, and the outputs with their offsets there."""
    parts, end = [], 0
    for output in outputs:
        begin = end and (-(-end // APART) + 1) * APART
        parts.append(output.but(path=path, offset=begin))
        end = begin + output.size
    return TensorFile("outputs", path, (end,), "uint8"), tuple(parts)


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as the double a C kernel is given; None for "not given"."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
