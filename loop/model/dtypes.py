"""Names of devices, element types and layouts. Imports nothing, so that workers start fast."""

from typing import Literal

Dtype = Literal[
    "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2",
    "int8", "int16", "int32", "int64", "uint8", "bool",
]  # fmt: skip
Device = Literal["cpu", "cuda"]
Layout = Literal["contiguous", "strided", "misaligned", "transposed", "broadcast"]
"""Memory layout of inputs: see `loop.calls.call.strides_of`."""

ITEM_SIZES: dict[str, int] = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int32": 4, "int64": 8, "uint8": 1,
    "int8": 1, "int16": 2, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes per element, in the order of their numbers in loop_kernel.h."""
FLOATS: tuple[Dtype, ...] = ("float64", "float32", "float16", "bfloat16")
"""Floating-point types for arithmetic, widest first."""


def is_floating(dtype: str) -> bool:
    """Whether a type is floating point. Outputs of other types are compared exactly."""
    return "float" in dtype
