"""PyTorch's stable C interface as it is in this process: addresses and numbers that loop_torch.cpp is given.

The structures here are those of kernels/include/loop_torch.cpp, field by field.
"""

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from loop.base.errors import WorkFailed
from loop.calls.tensors import DTYPES, MAX_RANK

MOST = 16
"""Inputs, or attributes, of one operator."""
TYPES = 64
"""Numbers that PyTorch may give element types."""
FUNCTIONS = {
    "library_init_impl": "aoti_torch_library_init_impl",
    "library_impl": "aoti_torch_library_impl",
    "delete_tensor": "aoti_torch_delete_tensor_object",
    "data_ptr": "aoti_torch_get_data_ptr",
    "dim": "aoti_torch_get_dim",
    "sizes": "aoti_torch_get_sizes",
    "strides": "aoti_torch_get_strides",
    "dtype": "aoti_torch_get_dtype",
    "device_type": "aoti_torch_get_device_type",
    "device_index": "aoti_torch_get_device_index",
    "empty_strided": "aoti_torch_empty_strided",
    "grad_mode": "aoti_torch_grad_mode_is_enabled",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",
}
"""Field of LoopTorchFunctions to symbol; the last is c10's `bool TensorImpl::requires_grad() const`."""
CUDA_FUNCTIONS = {
    "current_stream": "aoti_torch_get_current_cuda_stream",
    "create_guard": "aoti_torch_create_cuda_guard",
    "delete_guard": "aoti_torch_delete_cuda_guard",
}
"""Those that only a PyTorch made for CUDA has."""
NAMED_TYPES = (
    *("float32", "float16", "bfloat16", "float64", "complex32", "complex64", "complex128", "bool"),
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"),
)
"""Element types whose numbers PyTorch tells."""


SHORTCUTS = {
    "current_device": "_ZN3c104cuda14current_deviceEv",
    "empty_on_cuda": (
        "_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE"
    ),
}
"""Those that may be missing: c10's `DeviceIndex cuda::current_device()`, and ATen's `TensorBase
detail::empty_strided_cuda(IntArrayRef sizes, IntArrayRef strides, ScalarType, std::optional<Device>)`."""


class Unavailable(WorkFailed):
    """No operator can be had here, and why."""


class Functions(ctypes.Structure):
    """`struct LoopTorchFunctions`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (*FUNCTIONS, *CUDA_FUNCTIONS, *SHORTCUTS))


class Numbers(ctypes.Structure):
    """`struct LoopTorchNumbers`."""

    _fields_ = (
        ("dtypes", ctypes.c_char_p * TYPES),
        ("loop_dtypes", ctypes.c_int32 * TYPES),
        ("cpu", ctypes.c_int32),
        ("cuda", ctypes.c_int32),
        ("byte", ctypes.c_int32),
    )


class TorchInput(ctypes.Structure):
    """`struct LoopTorchInput`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dimensions", ctypes.c_char_p),
        ("expects", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("words", ctypes.c_char_p * MAX_RANK),
        ("twin", ctypes.c_int32 * MAX_RANK),
        ("twin_axis", ctypes.c_int32 * MAX_RANK),
    )


class TorchAttribute(ctypes.Structure):
    """`struct LoopTorchAttribute`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("choices", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
    )


class TorchOperator(ctypes.Structure):
    """`struct LoopTorchOperator`."""

    _fields_ = (
        ("space", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("title", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("explain", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("attributes", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("accepted", ctypes.c_int32 * TYPES),
        ("only", ctypes.c_int32),
        ("from_", ctypes.c_int32 * MAX_RANK),
        ("from_axis", ctypes.c_int32 * MAX_RANK),
        ("input", TorchInput * MOST),
        ("attribute", TorchAttribute * MOST),
    )


@cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """PyTorch's libraries, which are loaded already: its Python module, and by it all that this depends on."""
    folder = Path(torch.__file__).parent / "lib"
    named = [folder / f"lib{name}.so" for name in ("torch_cpu", "c10", "torch_cuda", "c10_cuda")]
    return tuple(
        ctypes.CDLL(str(path)) for path in (torch._C.__file__, *(path for path in named if path.is_file()))
    )


def symbol(name: str) -> Any:
    """A function of PyTorch's. Raises Unavailable when this version has none of that name."""
    for library in libraries():
        if hasattr(library, name):
            return getattr(library, name)
    raise Unavailable(f"this PyTorch ({torch.__version__}) has no {name}")


def is_there(name: str) -> bool:
    """Whether PyTorch has a function of this name."""
    return any(hasattr(library, name) for library in libraries())


def functions() -> Functions:
    """The addresses. Raises Unavailable with the first that is missing; without CUDA those of CUDA may be."""
    functions = {**FUNCTIONS, **(CUDA_FUNCTIONS if torch.version.cuda else {})}
    functions |= {field: name for field, name in SHORTCUTS.items() if is_there(name)}
    addresses = {field: ctypes.cast(symbol(name), ctypes.c_void_p).value for field, name in functions.items()}
    return Functions(**addresses)


@cache
def type_numbers() -> dict[str, int]:
    """PyTorch's numbers of element types, by name."""
    return dict(_type_numbers())


def _type_numbers() -> Iterator[tuple[str, int]]:
    for name in NAMED_TYPES:
        try:
            number = symbol(f"aoti_torch_dtype_{name}")()
        except Unavailable:  # Not one of those that a kernel may take; they are needed for words only.
            continue
        if 0 <= number < TYPES:
            yield name, number


def device_number(device: str) -> int:
    """PyTorch's number of a device type."""
    return int(symbol(f"aoti_torch_device_type_{device}")())


def meanings() -> Numbers:
    """What numbers mean: element types by name and by loop_kernel.h, device types."""
    numbers = Numbers(cpu=device_number("cpu"), cuda=device_number("cuda"), byte=type_numbers()["uint8"])
    for name, number in type_numbers().items():
        numbers.dtypes[number] = name.encode()
        numbers.loop_dtypes[number] = DTYPES.get(name, (0, 0))[0]
    return numbers
