"""Tensors as the C interface sees them, in page-aligned memory of our own. No torch: it starts in milliseconds."""

import ctypes
import itertools
import math
import mmap
from typing import Any

MAX_RANK = 8
DTYPES = {"float32": (1, 4), "float16": (2, 2), "bfloat16": (3, 2), "float64": (4, 8)}
"""Name to its number in loop_kernel.h and its size in bytes."""
POISON = 0xFF
"""Every floating-point type reads NaN from bytes of this value."""
GUARD = b"\xff\x7f"
"""What stands outside a tensor: NaN in every type too, but not the NaN that a kernel or the poison writes."""
PAGE = mmap.PAGESIZE
STEP_BYTES = 256
"""Windows begin at multiples of this, as in loop.bench.call; rotations go by elements."""
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


class Buffer:
    """Memory for one tensor, with a page of poison on either side to show writes outside it."""

    def __init__(self, size: int, shift: int = 0) -> None:
        self.size, self.data = size, b""
        self._twice: Any = None
        self.turned = 0
        """Bytes by which what it was filled with is rotated."""
        room = -(-(size + shift) // PAGE) * PAGE
        self._memory = mmap.mmap(-1, room + 2 * PAGE)
        self._memory.write(GUARD * (room // 2 + PAGE))
        # The tensor ends as close to the far zone as a 64-byte boundary allows; `shift` bytes make it misaligned.
        self._start = PAGE + (room - size - shift) // 64 * 64 + shift
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = base + self._start
        self.poison()

    def fill(self, data: bytes) -> None:
        """Put `data` (of exactly the tensor's size) into it, and remember it."""
        self._memory[self._start : self._start + self.size] = data
        self.data, self._twice, self.turned = data, None, 0

    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end: other values at every address."""
        if self._twice is None:
            self._twice = ctypes.create_string_buffer(self.data + self.data, 2 * self.size)
        ctypes.memmove(self.address, ctypes.addressof(self._twice) + count, self.size)
        self.turned = count

    def poison(self) -> None:
        """Make every element NaN."""
        ctypes.memset(self.address, POISON, self.size)

    def read(self) -> bytes:
        """The tensor's bytes."""
        return self._memory[self._start : self._start + self.size]

    @property
    def changed(self) -> bool:
        """Whether it holds anything else than it was filled with, rotated as it was last."""
        return self.read() != self.data[self.turned :] + self.data[: self.turned]

    @property
    def intact(self) -> bool:
        """Whether nothing was written outside the tensor."""
        before = self._memory[: self._start]
        after = self._memory[self._start + self.size :]
        untouched = GUARD * (len(self._memory) // 2)
        return before == untouched[: self._start] and after == untouched[self._start + self.size :]


def byte_size(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a contiguous tensor."""
    return math.prod(shape) * DTYPES[dtype][1]


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Strides in elements.

    `contiguous`: C order. `strided`: rows are padded, and the dimensions between the first and the last lie in
    the opposite order, as in [B, S, H, D] storage of a [B, H, S, D] tensor. `misaligned` is contiguous.
    """
    order = list(range(len(shape)))
    if layout == "strided":
        order = order[:1] + order[-2:0:-1] + order[-1:] if len(shape) > 1 else order
    strides, step = [0] * len(shape), 2 if layout == "strided" and len(shape) == 1 else 1
    for place, axis in enumerate(reversed(order)):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if layout == "strided" and place == 0:
            step += ROW_PADDING
    return tuple(strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last of a tensor, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def scatter(data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bytes:
    """The bytes of a contiguous tensor spread out to `strides`; what lies between is poison."""
    spread = bytearray([POISON]) * (extent(shape, strides) * item)
    row = shape[-1] * item if strides[-1] == 1 else item
    outer = shape[:-1] if strides[-1] == 1 else shape
    for number, index in enumerate(itertools.product(*(range(size) for size in outer))):
        start = sum(i * stride for i, stride in zip(index, strides, strict=False)) * item
        spread[start : start + row] = data[number * row : (number + 1) * row]
    return bytes(spread)


def describe(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
    """The LoopTensor of a tensor in memory; strides in elements."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, stride
    return tensor
