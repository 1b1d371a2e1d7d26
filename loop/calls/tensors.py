"""Tensors as the C interface sees them: types, strides and layouts. No torch."""

import ctypes
import itertools
import math
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

MAX_RANK = 8
DTYPES = {
    "float32": (1, 4),
    "float16": (2, 2),
    "bfloat16": (3, 2),
    "float64": (4, 8),
    "int32": (5, 4),
    "int64": (6, 8),
}
DTYPES |= {"uint8": (7, 1), "int8": (8, 1), "int16": (9, 2), "bool": (10, 1), "float8_e4m3fn": (11, 1)}
DTYPES |= {"float8_e5m2": (12, 1)}
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


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last of a tensor, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def scatter(
    data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int, between: bytes = b""
) -> bytes:
    """The bytes of a contiguous tensor spread out to `strides`; gaps hold poison, or the bytes of `between`.

    Along an axis of stride 0 its values are the same.
    """
    size = extent(shape, strides) * item
    spread = bytearray(between or bytes([POISON]) * size)
    once = list(shape)
    for axis in _repeated(shape, strides):
        block = math.prod(once[axis + 1 :]) * item
        data = b"".join(data[at : at + block] for at in range(0, len(data), block * once[axis]))
        once[axis] = 1
    for dense, place in _stretches(once, strides, item):
        spread[place] = data[dense]
    return bytes(spread)


def gather(spread: bytes, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bytes:
    """The inverse of `scatter`: the bytes of the contiguous tensor."""
    repeated = _repeated(shape, strides)
    once = [1 if axis in repeated else size for axis, size in enumerate(shape)]
    compact = bytearray(math.prod(once) * item)
    for dense, place in _stretches(once, strides, item):
        compact[dense] = spread[place]
    data = bytes(compact)
    for axis in reversed(repeated):
        block = math.prod(shape[axis + 1 :]) * item
        data = b"".join(data[at : at + block] * shape[axis] for at in range(0, len(data), block))
    return data


def _repeated(shape: Sequence[int], strides: tuple[int, ...]) -> list[int]:
    """The axes along which every element lies at the same place."""
    return [axis for axis, size in enumerate(shape) if size > 1 and strides[axis] == 0 and 0 not in shape]


def _stretches(shape: Sequence[int], strides: tuple[int, ...], item: int) -> Iterator[tuple[slice, slice]]:
    """Stretches of bytes at equal distances: the slice of the dense tensor, and the slice of its memory."""
    row, step = (shape[-1], strides[-1] or 1) if shape else (1, 1)
    for number, index in enumerate(itertools.product(*(range(size) for size in shape[:-1]))):
        at = number * row * item
        place = sum(i * stride for i, stride in zip(index, strides, strict=False)) * item
        if step == 1:
            yield slice(at, at + row * item), slice(place, place + row * item)
            continue
        end = place + (row - 1) * step * item + 1
        for byte in range(item):
            yield slice(at + byte, at + row * item, item), slice(place + byte, end + byte, step * item)


def describe(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
    """The LoopTensor of a tensor in memory; strides in elements."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, stride
    return tensor
