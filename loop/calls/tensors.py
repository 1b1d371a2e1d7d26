"""Tensors as the C interface sees them: types, strides and layouts. No torch: it starts in milliseconds."""

import ctypes
import itertools
import math
import mmap
from collections.abc import Iterator
from typing import Any

MAX_RANK = 8
DTYPES = {
    "float32": (1, 4),
    "float16": (2, 2),
    "bfloat16": (3, 2),
    "float64": (4, 8),
    "int32": (5, 4),
    "int64": (6, 8),
    "uint8": (7, 1),
    "int8": (8, 1),
    "int16": (9, 2),
    "bool": (10, 1),
    "float8_e4m3fn": (11, 1),
    "float8_e5m2": (12, 1),
}
"""Name to its number in loop_kernel.h and its size in bytes."""
POISON = 0xFF
"""Every floating-point type reads NaN from bytes of this value."""
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


def scatter(
    data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int, between: bytes = b""
) -> bytes:
    """The bytes of a contiguous tensor spread out to `strides`; what lies between is poison, or from `between`."""
    size = extent(shape, strides) * item
    spread = bytearray(between or bytes([POISON]) * size)
    for at, place, row in _rows(shape, strides, item):
        spread[place : place + row] = data[at : at + row]
    return bytes(spread)


def gather(spread: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bytes:
    """The bytes of the tensor that `scatter` spread out."""
    return b"".join(spread[place : place + row] for _, place, row in _rows(shape, strides, item))


def _rows(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> Iterator[tuple[int, int, int]]:
    """Each stretch of bytes that lies together: its place in the tensor and in its memory, and its length."""
    row = shape[-1] * item if strides[-1] == 1 else item
    outer = shape[:-1] if strides[-1] == 1 else shape
    for number, index in enumerate(itertools.product(*(range(size) for size in outer))):
        yield number * row, sum(i * stride for i, stride in zip(index, strides, strict=False)) * item, row


def describe(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
    """The LoopTensor of a tensor in memory; strides in elements."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, stride
    return tensor
