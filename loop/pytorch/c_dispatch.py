"""The kernel of an operator in C: PyTorch calls it without Python, through kernels/include/loop_torch.cpp.

Without a compiler, or without a PyTorch that has these functions (2.7 and later), Unavailable says why.
"""

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from loop.base.errors import LoopError, WorkFailed
from loop.base.places import include_folder
from loop.calls.call import DTYPES, MAX_RANK, Refused
from loop.calls.library import check_build_id
from loop.model.signature import OUTPUT
from loop.model.target import BuildRecipe, CAbiVariant
from loop.pytorch.library import KernelLibrary, built
from loop.timing.contract import Contract, choices_in_words

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


SPACE = "loop_own"
"""Namespace of the operator on which the C interface is tried."""
PROBE = "probe(Tensor x, bool flag, int index, float number) -> bool"
BRIDGE = CAbiVariant(
    kind="c_abi",
    device="cpu",
    sources=("loop_torch.cpp",),
    entry="loop_torch_register",
    build=BuildRecipe(compiler="g++", flags=("-std=c++17", "-O2", "-fvisibility=hidden")),
)
KINDS = ("flag", "choice", "number")
"""In the order of LoopTorchKind."""
NO_SLOT = -1
_kept: list[object] = []
"""What the bridge points to, and libraries whose registrations end with them."""


def register(contract: Contract, library: KernelLibrary) -> None:
    """Register the C kernel of a declared operator. Raises Unavailable where that is not possible."""
    if max(len(contract.inputs), len(contract.attributes)) > MOST:
        raise Unavailable(f"it has more than {MOST} inputs or attributes")
    c_bridge, operator = bridge(), describe(contract, library)
    error = c_bridge.loop_torch_register(ctypes.byref(operator))
    if error == NO_SLOT:
        raise Unavailable("too many operators of this process have one already")
    if error:
        raise RuntimeError(f"{contract.title}: PyTorch does not take its kernel (error {error})")
    if library.lend_address:
        c_bridge.loop_torch_lend(ctypes.c_void_p(library.lend_address))
    _kept.extend((operator, library))


def bridge() -> ctypes.CDLL:
    """loop_torch.cpp, built, loaded and tried. Raises Unavailable when it cannot be, or does not work."""
    result = _attempt()
    if isinstance(result, Unavailable):
        raise result
    return result


@cache
def _attempt() -> ctypes.CDLL | Unavailable:
    try:
        return _open()
    except Unavailable as reason:
        return reason


def _open() -> ctypes.CDLL:
    addresses, numbers = functions(), meanings()
    try:
        ready = built("loop_torch", BRIDGE, include_folder())
        library = ctypes.CDLL(ready.library)
        check_build_id(library, ready.build_id)
    except (LoopError, OSError, Refused) as error:
        raise Unavailable(f"loop_torch.cpp is not to be had: {error}") from error
    make_library: Any = torch.library.Library
    own = make_library(SPACE, "FRAGMENT")
    own.define(PROBE)
    _kept.extend((own, numbers))
    if library.loop_torch_start(ctypes.byref(addresses), ctypes.byref(numbers), SPACE.encode()) or not works():
        raise Unavailable(f"the C interface of this PyTorch ({torch.__version__}) is not the one that is known")
    return library


def works() -> bool:
    """Whether a C kernel receives the arguments of a call, and sees that a tensor requires a gradient."""
    probe = getattr(torch.ops, SPACE).probe.default
    with torch.enable_grad():
        right = [probe(torch.zeros(1, requires_grad=flag), flag, -7, 0.5) for flag in (True, False)]
        wrong = [probe(torch.zeros(1, requires_grad=not flag), flag, -7, 0.5) for flag in (True, False)]
    return right == [True, True] and wrong == [False, False]


def describe(contract: Contract, library: KernelLibrary) -> TorchOperator:
    """The operator as the bridge has to know it."""
    numbers, order = type_numbers(), list(contract.inputs)
    operator = TorchOperator(
        space=contract.space.encode(),
        name=contract.name.encode(),
        title=contract.title.encode(),
        entry=library.entry_address,
        explain=library.explain_address,
        device_type=device_number(contract.device),
        inputs=len(contract.inputs),
        attributes=len(contract.attributes),
        rank=len(contract.output),
        dtype=numbers[contract.types[OUTPUT]] if OUTPUT in contract.types else -1,
        only=numbers[contract.only] if contract.only else -1,
    )
    for dtype in contract.dtypes:
        operator.accepted[numbers[dtype]] = 1
    for axis, dimension in enumerate(contract.output):
        home, place = contract.homes[dimension]
        operator.from_[axis], operator.from_axis[axis] = order.index(home), place
    for n, (name, dimensions) in enumerate(contract.inputs.items()):
        tensor = operator.input[n]
        tensor.name, tensor.dimensions = name.encode(), " ".join(dimensions).encode()
        tensor.expects, tensor.rank = contract.expects(name).encode(), len(dimensions)
        tensor.dtype = numbers[contract.types[name]] if name in contract.types else -1
        for axis, dimension in enumerate(dimensions):
            home, place = contract.homes[dimension]
            tensor.words[axis] = dimension.encode()
            tensor.twin[axis], tensor.twin_axis[axis] = order.index(home), place
    for n, (name, attribute) in enumerate(contract.attributes.items()):
        words, kind = choices_in_words(attribute).encode(), KINDS.index(attribute.kind)
        operator.attribute[n] = TorchAttribute(name.encode(), words, kind, len(attribute.choices))
    return operator
