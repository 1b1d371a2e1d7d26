"""Calls and variants as plain data for session, judge and worker. No pydantic: a fast start."""

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any, Self, dataclass_transform, get_type_hints

from loop.model.causes import Cause
from loop.model.dtypes import ITEM_SIZES, Device, Dtype

MAX_RANK = 8
DTYPE_NUMBERS = {name: number for number, name in enumerate(ITEM_SIZES, 1)}
"""Element type to its number in loop_kernel.h."""
POISON = 0xFF  # A byte that, repeated, is NaN in every floating-point type.
PAGE = mmap.PAGESIZE
ROW_PADDING = 8  # Poison elements after each row of a tensor in layout `strided`.
Value = bool | int | float | str | None
Sizes = tuple[int, ...]  # For each axis of a tensor its size, or its stride in elements.
STEP_BYTES = {"cuda": 256, "cpu": 64}
"""Windows begin at multiples of this: the alignment of CUDA allocations, or a cache line."""
BLOCK_ALIGNMENT = 256  # Alignment of outputs in a block, and minimum bytes between two of them.


class LoopTensor(ctypes.Structure):
    """`struct LoopTensor` of loop_kernel.h: a tensor at an address; `strides` in elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
    )


def strides_of(shape: Sizes, layout: str, constant_axis: int = -1) -> Sizes:
    """Strides of a tensor in elements, for a layout.

    - `contiguous`, `misaligned`: C order.
    - `strided`: padded rows; the dimensions between first and last lie in reverse order, as in [B,
      S, H, D] storage of a [B, H, S, D] tensor.
    - `transposed`: the last two dimensions are exchanged.
    - `broadcast`: stride 0 along `constant_axis`, where all values are equal (-1: no such axis).
    """
    if layout == "broadcast" and constant_axis >= 0:
        dense = strides_of((*shape[:constant_axis], 1, *shape[constant_axis + 1 :]), "contiguous")
        return (*dense[:constant_axis], 0, *dense[constant_axis + 1 :])
    axes = list(range(len(shape)))  # From the outermost in memory to the innermost.
    if layout == "strided" and len(shape) > 1:
        axes = axes[:1] + axes[-2:0:-1] + axes[-1:]
    elif layout == "transposed":
        axes = [*axes[:-2], *axes[:-3:-1]]
    strides = [0] * len(shape)
    is_padded = layout == "strided"
    # A vector has no rows to pad: every second element is left out in place of that.
    stride = 2 if is_padded and len(shape) == 1 else 1
    for axis in reversed(axes):
        strides[axis] = stride
        stride *= max(shape[axis], 1)
        if is_padded and axis == axes[-1]:
            stride += ROW_PADDING
    return tuple(strides)


def elements_spanned(shape: Sizes, strides: Sizes) -> int:
    """Elements from a tensor's first to its last in memory, both included; 0 if it is empty."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def scatter(data: bytes, shape: Sizes, strides: Sizes, itemsize: int, background: bytes) -> bytes:
    """Lay out a contiguous tensor's bytes with `strides`: returns a copy of `background` with the
    elements written into it. Along an axis of stride 0 the values have to be equal."""
    memory = bytearray(background)
    values = _view(data, shape, strides_of(shape, "contiguous"), itemsize)
    _view(memory, shape, strides, itemsize)[...] = values
    return bytes(memory)


def gather(memory: bytes, shape: Sizes, strides: Sizes, itemsize: int) -> bytes:
    """Inverse of `scatter`: bytes, in C order, of the tensor whose elements lie at `strides`."""
    data: bytes = _view(memory, shape, strides, itemsize).tobytes()
    return data


def _view(memory: bytes | bytearray, shape: Sizes, strides: Sizes, itemsize: int) -> Any:
    """NumPy's view of the elements that lie strided in `memory`."""
    import numpy  # Imported late: only checks of layouts need it.

    byte_strides = [stride * itemsize for stride in strides]
    return numpy.ndarray(shape, f"u{itemsize}", memory, strides=byte_strides)


class Refused(Exception):
    """The variant cannot make this call, or made it wrongly: a finding, not a bug of `loop`."""

    def __init__(
        self, message: str, cause: Cause = "unusable", code: str = "", seed: int | None = None
    ) -> None:
        """`cause`: why, in a word for the report. `code`: the variant's error number, as text;
        empty: none. `seed`: emulator seed that gives the fault; None: no emulator, or no fault."""
        super().__init__(message)
        self.cause, self.code, self.seed = cause, code, seed


@dataclass_transform(frozen_default=True)
class Plain:
    """Immutable record of a class's annotated fields. Dataclasses would delay a worker's start."""

    def __init__(self, *values: Any, **named_values: Any) -> None:
        """Set the fields as a dataclass does. TypeError: unknown ones; AttributeError: missing."""
        fields = type(self).__annotations__
        field_values = {**dict(zip(fields, values, strict=False)), **named_values}
        if field_values.keys() - fields.keys() or len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} has no such fields: {field_values}")
        for name in fields:
            has_value = name in field_values
            self.__dict__[name] = field_values[name] if has_value else getattr(type(self), name)

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        return type(self)(**{**vars(self), **changes})

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """How pydantic, in the session, reads a reply: exactly the class's own fields."""
        from pydantic_core import core_schema

        hints = get_type_hints(cls)
        schemas = {name: handler.generate_schema(hints[name]) for name in cls.__annotations__}
        fields = {name: core_schema.typed_dict_field(schema) for name, schema in schemas.items()}
        exact = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
        return core_schema.no_info_after_validator_function(lambda values: cls(**values), exact)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)


class TensorFile(Plain):
    """A contiguous tensor in a file, C order. If the file has more elements, each window of the
    tensor's size is valid input: timed calls use different ones, so none sees earlier values."""

    name: str
    path: str
    shape: Sizes
    dtype: Dtype
    extra_elements: int = 0  # Elements of the file beyond the tensor's own.
    offset: int = 0  # First element of the window whose answer the judge knows.
    constant_axis: int = -1  # Axis along which all values are equal: its stride may be 0; -1: none.
    updated_input: int = -1  # Of an output: position of the input changed in place; -1: none.

    def strides(self, layout: str) -> Sizes:
        """Strides in elements under a layout."""
        return strides_of(self.shape, layout, self.constant_axis)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return ITEM_SIZES[self.dtype]

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize

    def read_window(self) -> bytes:
        """The bytes of the window at `offset`: the tensor's values whose answer the judge knows."""
        with open(self.path, "rb") as file:
            file.seek(self.offset * self.itemsize)
            return file.read(self.nbytes)

    @property
    def pool_nbytes(self) -> int:
        """Number of bytes of the whole file: the tensor and the extra elements."""
        return self.nbytes + self.extra_elements * self.itemsize


TensorFiles = tuple[TensorFile, ...]


class Call(Plain):
    """Everything a variant needs to compute one output."""

    key: str  # Workload name and seed; identifies the call.
    dtype: Dtype  # Type of the workload: selects the tolerance; default type of the tensors.
    inputs: TensorFiles
    output: TensorFile  # The output, or the block of bytes that holds several outputs.
    attributes: dict[str, Value]  # Name to value, for Python variants.
    numbers: tuple[float | None, ...]  # Attributes in signature order, for C; None becomes NaN.
    several_outputs: TensorFiles = ()
    """Outputs in the block, `offset` in bytes; empty if `output` is the only output."""
    structure: str = ""  # The pickled argument structure, in base64; empty: separate tensors.
    input_sets: int = 1  # Input sets in the files. A window selects the same set in all inputs.
    seed: int = 0  # Seed set before each constructor, if functions are classes.

    @property
    def outputs(self) -> TensorFiles:
        """All outputs; `offset` is the first byte in the block."""
        return self.several_outputs or (self.output,)

    @property
    def updated_inputs(self) -> frozenset[int]:
        """Positions of the inputs that are changed in place."""
        return frozenset(output.updated_input for output in self.outputs) - {-1}

    @property
    def separate_outputs(self) -> TensorFiles:
        """Outputs that are separate tensors, not inputs changed in place."""
        return tuple(output for output in self.outputs if output.updated_input < 0)

    def at_first_windows(self) -> "Call":
        """The call on each input's first window, for calls whose output nobody judges."""
        return self.replace(inputs=tuple(tensor.replace(offset=0) for tensor in self.inputs))


class LibraryTerms(Plain):
    """What a worker needs to load a compiled variant."""

    device: Device
    entry: str
    library: str
    build_id: str


class FunctionTerms(Plain):
    """What a worker needs to load a Python function of a variant or target."""

    python: str  # `module:function`, seen from the target's folder.
    is_class: bool = False
    arguments: str = ""  # Function that returns the constructor's arguments; empty for none.
    may_change_state: bool = False  # Whether calls may change the state of a class's instance.
    passes_outputs: bool = False  # Whether the caller allocates outputs and passes them last.
    folder: str = ""  # Copy of the variant's files, searched first for modules; empty: none.


class CommandTerms(Plain):
    """What a worker needs to run a variant that is a program."""

    run: tuple[str, ...]
    shapes: dict[str, str]  # Tensor name to dimension names, as in the signature.


Terms = LibraryTerms | FunctionTerms | CommandTerms


def place_outputs(outputs: Sequence[TensorFile], path: str) -> tuple[TensorFile, TensorFiles]:
    """Place outputs in one block of bytes in the file `path`. Returns the block, and the outputs
    with their offsets in bytes; a gap after each takes small stray writes. A single output that is
    no input changed in place needs no block: then returns it, and no parts."""
    if len(outputs) == 1 and outputs[0].updated_input < 0:
        return outputs[0], ()
    parts, end = [], 0
    for output in outputs:
        begin = (-(-end // BLOCK_ALIGNMENT) + 1) * BLOCK_ALIGNMENT if end else 0
        parts.append(output.replace(path=path, offset=begin))
        end = begin + output.nbytes
    return TensorFile("outputs", path, (end,), "uint8"), tuple(parts)
