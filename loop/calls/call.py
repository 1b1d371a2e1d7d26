"""Calls and variants as plain data for session, judge and worker. No pydantic: a fast start."""

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
"""Name to (number in loop_kernel.h, bytes of an element)."""
POISON = 0xFF
"""A byte that, repeated, is NaN in every floating-point type."""
PAGE = mmap.PAGESIZE
ROW_PADDING = 8
"""Poison elements after each row of a tensor in layout `strided`."""


class LoopTensor(ctypes.Structure):
    """`struct LoopTensor` of loop_kernel.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


def strides_of(shape: tuple[int, ...], layout: str, constant_axis: int = -1) -> tuple[int, ...]:
    """Strides of a tensor in elements, for a layout.

    - `contiguous`, `misaligned`: C order.
    - `strided`: padded rows; the dimensions between first and last lie in reverse order, as in [B,
      S, H, D] storage of a [B, H, S, D] tensor.
    - `transposed`: the last two dimensions are exchanged.
    - `broadcast`: the axis `same` has stride 0 (-1: no axis).
    """
    if layout == "broadcast" and constant_axis >= 0:
        dense = strides_of((*shape[:constant_axis], 1, *shape[constant_axis + 1 :]), "contiguous")
        return (*dense[:constant_axis], 0, *dense[constant_axis + 1 :])
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
    """Elements from a tensor's first to its last in memory, both included; 0 if it is empty."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def scatter(
    data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, background: bytes
) -> bytes:
    """Spread a contiguous tensor's bytes out to `strides` (in elements), over the bytes of
    `between`. Along an axis of stride 0 the values have to be equal."""
    if 0 in shape:
        return background
    import numpy  # Imported late: only checks of layouts need numpy.

    spread = bytearray(background)
    view = numpy.ndarray(shape, f"u{itemsize}", spread, strides=[stride * itemsize for stride in strides])
    view[...] = numpy.frombuffer(data, f"u{itemsize}").reshape(shape)
    return bytes(spread)


def gather(spread: bytes, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bytes:
    """Inverse of `scatter`: bytes of the contiguous tensor."""
    if 0 in shape:
        return b""
    import numpy

    return numpy.ndarray(
        shape, f"u{itemsize}", spread, strides=[stride * itemsize for stride in strides]
    ).tobytes()


def make_loop_tensor(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
    """Make the LoopTensor of a tensor in memory; strides in elements."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, stride
    return tensor


Value = bool | int | float | str | None
STEP_BYTES = {"cuda": 256, "cpu": 64}
"""Windows begin at multiples of this: the alignment of CUDA allocations, or a cache line."""
LATE_S = 20e-3
"""Work that runs longer than this after the stream ended ran elsewhere. Shorter work shows in the
output, which is read first; the host's clock cannot tell it from an interruption."""
APART = 256
"""Alignment of outputs in a block, and minimum bytes between two of them."""


class Refused(Exception):
    """The variant cannot make this call, or made it wrongly: a finding, not a bug of `loop`."""

    def __init__(self, message: str, cause: Cause = "unusable", code: str = "", seed: int | None = None) -> None:
        """`code`: the variant's error number. `seed`: emulator seed that reproduces the fault."""
        super().__init__(message)
        self.cause, self.code, self.seed = cause, code, seed


def refuse_late_work(seconds: float) -> None:
    """Raise Refused if other streams worked too long after the call's own stream was done."""
    if seconds > LATE_S:
        late = f"work went on for {seconds * 1e3:.0f} ms on another stream after its own was done"
        raise Refused(late, "left work")


@dataclass_transform(frozen_default=True)
class Plain:
    """Immutable record of a class's annotated fields. Dataclasses would delay a worker's start."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        named = {**dict(zip(kind.__annotations__, values, strict=False)), **named}
        fields = {name: named[name] if name in named else getattr(kind, name) for name in kind.__annotations__}
        if named.keys() - fields.keys() or len(values) > len(fields):
            raise TypeError(f"{kind.__name__} has no such fields: {named}")
        self.__dict__.update(fields)

    def replace(self, **changes: Any) -> Self:
        """Copy with changed fields."""
        return type(self)(**{**vars(self), **changes})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class TensorFile(Plain):
    """A contiguous tensor in a file, C order. With `room`, the file has that many additional
    elements. Each window of the tensor's size is valid input. Timed calls use different windows, so
    no call sees earlier values."""

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: Dtype
    extra_elements: int = 0
    offset: int = 0
    """First element of the window whose answer the judge knows."""
    constant_axis: int = -1
    """Axis along which all values are equal, so its stride may be 0; -1: none."""

    def strides(self, layout: str) -> tuple[int, ...]:
        """Strides in elements under a layout."""
        return strides_of(self.shape, layout, self.constant_axis)

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype][1]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.elements * self.itemsize

    def read_window(self) -> bytes:
        """Read the tensor's bytes from the file."""
        with open(self.path, "rb") as file:
            file.seek(self.offset * self.itemsize)
            return file.read(self.nbytes)

    @property
    def pool_nbytes(self) -> int:
        """Bytes of the file: tensor and room."""
        return self.nbytes + self.extra_elements * self.itemsize


def c_tensors(tensors: Sequence[TensorFile], addresses: Sequence[int], layout: str = "contiguous") -> Any:
    """Array of LoopTensor for tensors at these addresses."""
    placed = zip(addresses, tensors, strict=True)
    described = [make_loop_tensor(at, each.shape, each.strides(layout), each.dtype) for at, each in placed]
    return (LoopTensor * max(len(described), 1))(*described)


class Call(Plain):
    """Everything a variant needs to compute one output."""

    key: str
    """Workload name and seed; identifies the call."""
    dtype: Dtype
    """Element type of the workload: selects the tolerance; default type of the tensors."""
    inputs: tuple[TensorFile, ...]
    output: TensorFile
    """The output, or the block of bytes that holds several outputs."""
    attributes: dict[str, Value]
    """Name to value, for Python variants."""
    numbers: tuple[float | None, ...]
    """Attributes in signature order, for C; None is passed as NaN."""
    parts: tuple[TensorFile, ...] = ()
    """Outputs in the block, `offset` in bytes; empty if `output` is the only output."""
    updates: tuple[int, ...] = ()
    """For each part, the position of the input it updates in place, or -1; empty: no updates."""
    structure: str = ""
    """File with the pickled argument structure; empty: tensors are passed one by one."""
    structure_digest: str = ""
    """Digest of that file by the judge, checked before unpickling, because unpickling runs code."""
    draws: int = 1
    """Input sets in the files. A window selects the same set in all inputs."""
    seed: int = 0
    """Seed set before each constructor, if functions are classes."""

    @property
    def outputs(self) -> tuple[TensorFile, ...]:
        """All outputs; `offset` is the first byte in the block."""
        return self.parts or (self.output,)

    @property
    def updated_inputs(self) -> frozenset[int]:
        """Positions of the inputs that are changed in place."""
        return frozenset(self.updates) - {-1}

    @property
    def separate_outputs(self) -> tuple[TensorFile, ...]:
        """Outputs that are separate tensors, not inputs changed in place."""
        return tuple(part for n, part in enumerate(self.outputs) if not self.updates or self.updates[n] < 0)

    def join_outputs(self, written: Iterable[bytes], updated: Callable[[int], bytes]) -> bytes:
        """Join all outputs into one block. `written`: bytes of the separate outputs. `updated`:
        returns the bytes of an input changed in place, by position."""
        rest = iter(written)
        if not self.parts:
            return next(rest)
        filled = bytearray(self.output.nbytes)
        for part, number in zip(self.parts, self.updates or [-1] * len(self.parts), strict=True):
            filled[part.offset : part.offset + part.nbytes] = updated(number) if number >= 0 else next(rest)
        return bytes(filled)

    def c_inputs(self, addresses: Sequence[int], layout: str = "contiguous") -> Any:
        """LoopTensor array of the inputs at these addresses."""
        return c_tensors(self.inputs, addresses, layout)

    def c_outputs(self, address: int) -> Any:
        """LoopTensor array of the outputs in a block at this address."""
        return c_tensors(self.separate_outputs, [address + part.offset for part in self.separate_outputs])

    def c_numbers(self) -> Any:
        """Attributes as an array of double."""
        numbers = [math.nan if number is None else number for number in self.numbers]
        return (ctypes.c_double * max(len(numbers), 1))(*numbers)

    def at_first_windows(self) -> "Call":
        """The same call on the first windows, which do not reveal where the known values are."""
        return self.replace(inputs=tuple(tensor.replace(offset=0) for tensor in self.inputs))


class LibraryTerms(Plain):
    """What a worker needs to load a compiled variant."""

    device: Device
    entry: str
    library: str
    build_id: str


class FunctionTerms(Plain):
    """What a worker needs to load a Python function of a variant or target."""

    python: str
    """`module:function`, or the name of a bundled function."""
    is_class: bool = False
    """Whether it is a class, whose instance is called."""
    arguments: str = ""
    """Function that returns the constructor's arguments; empty for none."""
    may_change_state: bool = False
    """Whether calls may change the instance's state."""
    passes_outputs: bool = False
    """Whether the caller allocates the outputs and passes them after the inputs."""
    folder: str = ""
    """Folder with a copy of the variant's files, searched first for modules; empty for none."""


class CommandTerms(Plain):
    """What a worker needs to run a variant that is a program."""

    run: tuple[str, ...]
    shapes: dict[str, str]
    """Tensor name to dimension names, as in the signature."""


Terms = LibraryTerms | FunctionTerms | CommandTerms
"""What a worker can load: a library, a Python function or a command."""


def window_step(dtype: Dtype, device: Device) -> int:
    """Elements between the beginnings of two windows."""
    return STEP_BYTES[device] // DTYPES[dtype][1]


def place_in_block(outputs: Iterable[TensorFile], path: str) -> tuple[TensorFile, tuple[TensorFile, ...]]:
    """Place several outputs in one block; return it and the outputs with byte offsets."""
    parts, end = [], 0
    for output in outputs:
        begin = end and (-(-end // APART) + 1) * APART
        parts.append(output.replace(path=path, offset=begin))
        end = begin + output.nbytes
    return TensorFile("outputs", path, (end,), "uint8"), tuple(parts)


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as a double for C: a choice becomes its index, None stays None."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
