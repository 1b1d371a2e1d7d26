"""Tensors as the C interface sees them, in page-aligned memory of our own. No torch: it starts in milliseconds."""

import ctypes
import math
import mmap
from typing import Any

MAX_RANK = 8
DTYPES = {"float32": (1, 4), "float16": (2, 2), "bfloat16": (3, 2), "float64": (4, 8)}
"""Name to its number in loop_kernel.h and its size in bytes."""
POISON = 0xFF
"""Every floating-point type reads NaN from bytes of this value."""
PAGE = mmap.PAGESIZE


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

    def __init__(self, size: int) -> None:
        self.size = size
        room = -(-size // PAGE) * PAGE
        self._memory = mmap.mmap(-1, room + 2 * PAGE)
        self._memory.write(bytes([POISON]) * (room + 2 * PAGE))
        # The tensor ends as close to the far zone as a 64-byte boundary allows.
        self._start = PAGE + (room - size) // 64 * 64
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = base + self._start

    def fill(self, data: bytes) -> None:
        """Put `data` (of exactly the tensor's size) into it."""
        self._memory[self._start : self._start + self.size] = data

    def poison(self) -> None:
        """Make every element NaN."""
        self.fill(bytes([POISON]) * self.size)

    def read(self) -> bytes:
        """The tensor's bytes."""
        return self._memory[self._start : self._start + self.size]

    @property
    def intact(self) -> bool:
        """Whether nothing was written outside the tensor."""
        before = self._memory[: self._start]
        after = self._memory[self._start + self.size :]
        return before.strip(b"\xff") == b"" and after.strip(b"\xff") == b""


def byte_size(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a contiguous tensor."""
    return math.prod(shape) * DTYPES[dtype][1]


def describe(buffer: Buffer, shape: tuple[int, ...], dtype: str) -> Any:
    """The LoopTensor of a contiguous tensor in `buffer`."""
    tensor = LoopTensor(buffer.address, DTYPES[dtype][0], len(shape))
    stride = 1
    for axis in reversed(range(len(shape))):
        tensor.sizes[axis] = shape[axis]
        tensor.strides[axis] = stride
        stride *= max(shape[axis], 1)
    return tensor
