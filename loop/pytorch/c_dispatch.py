"""Declares a variant as an operator to PyTorch, with a C kernel, by kernels/include/loop_torch.cpp.

`Contract` has the operator's inputs and output, from the manifest's signature.

Needs a compiler and PyTorch 2.7 or later; raises Unavailable otherwise.
"""

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import fallthrough_kernel, register_fake

from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.places import cache_folder, include_folder
from loop.base.processes import run_to_end
from loop.builds.build import BuildFailed, build
from loop.calls.call import DTYPE_NUMBERS, MAX_RANK, Refused
from loop.calls.library import Compiled, check_build_id
from loop.model.dtypes import Dtype
from loop.model.measurement import Build
from loop.model.target import OUTPUT, Attribute, BuildRecipe, CAbiVariant, Signature, Target

BUILD_LIMIT_S = 1800.0  # Seconds for a build, which is cached: nvcc may need minutes for it.
MOST_ARGUMENTS = 16  # Maximum number of inputs, and of attributes, of one operator.
TYPE_TABLE_SIZE = 64  # Size of the table of PyTorch's element type numbers.
PROPERTIES = ("data_ptr", "dim", "sizes", "strides", "dtype", "device_type", "device_index")
FUNCTIONS = {
    "library_init_impl": "aoti_torch_library_init_impl",
    "library_impl": "aoti_torch_library_impl",
    "delete_tensor": "aoti_torch_delete_tensor_object",
    **{name: f"aoti_torch_get_{name}" for name in PROPERTIES},
    "empty_strided": "aoti_torch_empty_strided",
    "grad_mode": "aoti_torch_grad_mode_is_enabled",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",
}  # Field of LoopTorchFunctions to PyTorch symbol; last `bool c10::TensorImpl::requires_grad()`.
CUDA_FUNCTIONS = {
    "current_stream": "aoti_torch_get_current_cuda_stream",
    "create_guard": "aoti_torch_create_cuda_guard",
    "delete_guard": "aoti_torch_delete_cuda_guard",
}  # Additional functions of a PyTorch built for CUDA.
SHORTCUTS = {
    "current_device": "_ZN3c104cuda14current_deviceEv",
    "empty_on_cuda": "_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarType"
    "ESt8optionalINS1_6DeviceEE",
}
"""Optional faster functions: c10's `DeviceIndex cuda::current_device()`, and ATen's `TensorBase
detail::empty_strided_cuda(IntArrayRef sizes, IntArrayRef strides, ScalarType,
std::optional<Device>)`."""
TEST_NAMESPACE = "loop_own"  # Namespace of the operator that tests the C interface.
PROBE = "probe(Tensor x, bool flag, int index, float number) -> bool"
BRIDGE = CAbiVariant(
    kind="c_abi",
    device="cpu",
    sources=("loop_torch.cpp",),
    entry="loop_torch_register",
    build=BuildRecipe(compiler="g++", flags=("-std=c++17", "-O2", "-fvisibility=hidden")),
)
NO_SLOT = -1
_kept_alive: list[object] = []
"""Objects kept alive because the bridge points to them, or because registrations end with them."""
STRIDES_TAG = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
TAGS = (torch.Tag.pt2_compliant_tag, STRIDES_TAG)
"""Tags of operators: they pass `opcheck`, and compilers have to keep the strides of inputs."""
SCHEMA_TYPES = {"flag": "bool", "choice": "int", "number": "float"}
"""Kind of attribute, in the order of LoopTorchKind, to its type in the operator's schema."""
INT, TEXT, ADDRESS = ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p


@dataclass(frozen=True)
class Contract:
    """Name, inputs and output of an operator."""

    namespace: str
    name: str  # Name in the namespace: the variant's name.
    variant: CAbiVariant
    signature: Signature  # Gives the arguments' order; a tensor without a type has the call's.

    @property
    def title(self) -> str:
        """`namespace::name`, as PyTorch writes it."""
        return f"{self.namespace}::{self.name}"

    @property
    def schema(self) -> str:
        """PyTorch schema of the raw operator: a choice is an int index, a missing number is NaN."""
        arguments = [f"Tensor {name}" for name in self.signature.inputs]
        for name, attribute in self.signature.attributes.items():
            arguments.append(f"{SCHEMA_TYPES[attribute.kind]} {name}")
        return f"{self.name}({', '.join(arguments)}) -> Tensor"

    @property
    def output_dims(self) -> list[str]:
        """Dimensions of the output."""
        return self.signature.output_dimensions.split()

    @property
    def dimension_sources(self) -> dict[str, tuple[str, int]]:
        """Dimension to (input, axis): the first that has it, from which its size is read."""
        sources: dict[str, tuple[str, int]] = {}
        for name, dimensions in self.signature.inputs.items():
            for axis, dimension in enumerate(dimensions.split()):
                sources.setdefault(dimension, (name, axis))
        return sources

    @property
    def assumed_dtype(self) -> Dtype | None:
        """The call's type if all inputs have fixed types: the variant's first; else None."""
        has_only_fixed_types = set(self.signature.inputs) <= set(self.signature.types)
        return self.variant.dtypes[0] if has_only_fixed_types else None


def contract_of(target: Target, name: str, variant: CAbiVariant) -> Contract:
    """Derive a variant's contract. UsageError: an operator cannot have its signature: not plain
    (see `Target.is_plain`), a size or type of the output in no input, or too many dimensions."""
    signature = target.signature
    contract = Contract(f"loop_{target.name.replace('-', '_')}", name, variant, signature)
    unknown = [dim for dim in contract.output_dims if dim not in contract.dimension_sources]
    dims_by_tensor = {**signature.inputs, OUTPUT: signature.output_dimensions}
    too_large = [name for name, dims in dims_by_tensor.items() if len(dims.split()) > MAX_RANK]
    problem, hint = "", None
    if not target.is_plain:
        problem = "an operator takes the signature's tensors, changes none, and gives one"
        hint = "`loop kernels verify` and `measure` call it as it is"
    elif unknown:
        problem = f"{unknown[0]} is a dimension of the output and of no input"
        hint = "an operator makes its output, so that each of its sizes has to be that of an input"
    elif contract.assumed_dtype and OUTPUT not in signature.types and len(variant.dtypes) > 1:
        problem = "all inputs have types of their own, and the output has none"
        hint = "say it in the signature's `types`, or leave the variant one of `dtypes`"
    elif too_large:
        problem = f"{too_large[0]} has more than {MAX_RANK} dimensions"
    if problem:
        raise UsageError(f"no operator of {name}: {problem}", hint=hint)
    return contract


def number_for(name: str, attribute: Attribute, value: object) -> bool | int | float:
    """The number that the raw operator gets for a value as a caller writes it. None means the
    default, or NaN for a `number` without one. Raises ValueError for a value not allowed."""
    value = attribute.default_value if value is None else value
    if attribute.kind == "number":
        expected = "a number or None"
        if value is None:
            return math.nan
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    elif attribute.kind == "flag":
        expected = "True or False"
        if not isinstance(value, Tensor) and value in (True, False):  # As NumPy's booleans are.
            return bool(value)
    else:
        expected = "one of " + ", ".join(map(repr, attribute.choices))
        if value in attribute.choices:
            return attribute.choices.index(str(value))
    raise ValueError(f"{name}: expected {expected}, got {value!r}")


class Unavailable(WorkFailed):
    """This PyTorch or machine cannot have the operator; the message says why."""


def _fields(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:
    """Fields of a C structure that have one type, in this order."""
    return tuple((name, kind) for name in names)


class Functions(ctypes.Structure):
    """`struct LoopTorchFunctions`."""

    _fields_ = _fields(ADDRESS, *FUNCTIONS, *CUDA_FUNCTIONS, *SHORTCUTS)


class Numbers(ctypes.Structure):
    """`struct LoopTorchNumbers`."""

    _fields_ = (
        ("dtypes", TEXT * TYPE_TABLE_SIZE),
        ("loop_dtypes", INT * TYPE_TABLE_SIZE),
        *_fields(INT, "cpu", "cuda", "byte"),
    )


class TorchInput(ctypes.Structure):
    """`struct LoopTorchInput`."""

    _fields_ = (
        *_fields(TEXT, "name", "dimensions", "expects"),
        *_fields(INT, "rank", "dtype"),
        ("words", TEXT * MAX_RANK),
        *_fields(INT * MAX_RANK, "twin", "twin_axis"),
    )


class TorchAttribute(ctypes.Structure):
    """`struct LoopTorchAttribute`."""

    _fields_ = (*_fields(TEXT, "name", "choices"), *_fields(INT, "kind", "count"))


class TorchOperator(ctypes.Structure):
    """`struct LoopTorchOperator`."""

    _fields_ = (
        *_fields(TEXT, "space", "name", "title"),
        *_fields(ADDRESS, "entry", "explain"),
        *_fields(INT, "device_type", "inputs", "attributes", "rank", "dtype"),
        ("accepted", INT * TYPE_TABLE_SIZE),
        ("only", INT),
        *_fields(INT * MAX_RANK, "from_", "from_axis"),
        ("input", TorchInput * MOST_ARGUMENTS),
        ("attribute", TorchAttribute * MOST_ARGUMENTS),
    )


@cache
def torch_libraries() -> tuple[ctypes.CDLL, ...]:
    """PyTorch's loaded shared libraries, for `find_symbol`: its Python module and its C++ code."""
    folder = Path(torch.__file__).parent / "lib"
    named = [folder / f"lib{name}.so" for name in ("torch_cpu", "c10", "torch_cuda", "c10_cuda")]
    paths = [Path(torch._C.__file__), *(path for path in named if path.is_file())]
    return tuple(ctypes.CDLL(str(path)) for path in paths)


def find_symbol(name: str) -> Any:
    """A function of PyTorch's libraries by its exported name. Raises Unavailable without it."""
    for library in torch_libraries():
        if hasattr(library, name):
            return getattr(library, name)
    raise Unavailable(f"this PyTorch ({torch.__version__}) has no {name}")


def address_of(function: Any) -> int:
    """Address of a library function; 0 for None."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def type_numbers() -> dict[str, int]:
    """Element type to PyTorch's number of it, for types that the bridge can hold."""
    numbers = {}
    for name in [name for name, value in vars(torch).items() if isinstance(value, torch.dtype)]:
        with suppress(Unavailable):  # Second names, such as `half`, have no function.
            number = find_symbol(f"aoti_torch_dtype_{name}")()
            if 0 <= number < TYPE_TABLE_SIZE:
                numbers[name] = number
    return numbers


@cache
def torch_library(namespace: str) -> Any:
    """The `torch.library.Library` of a namespace, kept because registrations end with it."""
    return torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]


def declare(contract: Contract, library: Compiled) -> OpOverload:
    """Register an operator: schema, C kernel, and a fake kernel for compilers; no gradient. Raises
    Unavailable if this PyTorch or this machine cannot have the kernel."""
    registrations = torch_library(contract.namespace)
    registrations.define(contract.schema, tags=TAGS)
    registrations.impl(contract.name, fallthrough_kernel, "Autograd")  # C code rejects gradients.
    output_sources = [contract.dimension_sources[dimension] for dimension in contract.output_dims]
    signature = contract.signature

    def make_fake_output(*arguments: Tensor) -> Tensor:
        """Make the output without values, for tracing. The kernel reports other errors."""
        inputs = dict(zip(signature.inputs, arguments, strict=False))
        for name, tensor in inputs.items():
            if torch.is_grad_enabled() and tensor.requires_grad:
                remedy = f"call it under torch.no_grad(), or detach {name}"
                message = f"{name} requires a gradient, and the operator has none: {remedy}"
                raise RuntimeError(f"{contract.title}: {message}")
        fixed_type = signature.types.get(OUTPUT) or contract.assumed_dtype
        dtypes = [tensor.dtype for name, tensor in inputs.items() if name not in signature.types]
        dtype = getattr(torch, fixed_type) if fixed_type else dtypes[0]
        shape = [inputs[name].shape[axis] for name, axis in output_sources]
        return torch.empty(shape, dtype=dtype, device=arguments[0].device)

    register_fake(contract.title, make_fake_output, lib=registrations)
    if max(len(signature.inputs), len(signature.attributes)) > MOST_ARGUMENTS:
        raise Unavailable(f"it has more than {MOST_ARGUMENTS} inputs or attributes")
    c_bridge, operator = load_bridge(), describe_operator(contract, library)
    error = c_bridge.loop_torch_register(ctypes.byref(operator))
    if error == NO_SLOT:
        raise Unavailable("too many operators of this process have one already")
    if error:
        raise RuntimeError(f"{contract.title}: PyTorch does not take its kernel (error {error})")
    lend_function = getattr(library.library, "loop_lend", None)
    if lend_function:  # The library allocates temporary memory from PyTorch.
        c_bridge.loop_torch_lend(ctypes.c_void_p(address_of(lend_function)))
    _kept_alive.extend((operator, library))
    overload: OpOverload = getattr(getattr(torch.ops, contract.namespace), contract.name).default
    return overload


@cache
def load_bridge() -> ctypes.CDLL:
    """Build, load and test the library of loop_torch.cpp, through which PyTorch calls C kernels. It
    gets the addresses of PyTorch's functions, and tables of its type numbers: to names, and to
    those of loop_kernel.h. Raises Unavailable if it does not build or does not fit this PyTorch."""
    symbols = {**FUNCTIONS, **(CUDA_FUNCTIONS if torch.version.cuda else {})}
    for field, symbol in SHORTCUTS.items():
        if any(hasattr(library, symbol) for library in torch_libraries()):
            symbols[field] = symbol
    addresses = Functions(**{key: address_of(find_symbol(name)) for key, name in symbols.items()})
    cpu, cuda = (find_symbol(f"aoti_torch_device_type_{device}")() for device in ("cpu", "cuda"))
    tables = Numbers(cpu=cpu, cuda=cuda, byte=type_numbers()["uint8"])
    for name, number in type_numbers().items():
        tables.dtypes[number] = name.encode()
        tables.loop_dtypes[number] = DTYPE_NUMBERS.get(name, 0)  # 0: loop_kernel.h lacks it.
    try:
        build = build_variant("loop_torch", BRIDGE, include_folder())
        library = ctypes.CDLL(build.library)
        check_build_id(library, build.build_id)
    except (LoopError, OSError, Refused) as error:
        raise Unavailable(f"loop_torch.cpp is not available: {error}") from error
    if not hasattr(getattr(torch.ops, TEST_NAMESPACE), "probe"):
        torch_library(TEST_NAMESPACE).define(PROBE)
    _kept_alive.append(tables)  # The library keeps a pointer to them.
    pointers = ctypes.byref(addresses), ctypes.byref(tables)
    error_code = library.loop_torch_start(*pointers, TEST_NAMESPACE.encode())
    if error_code or not bridge_works():
        raise Unavailable(f"the C interface of this PyTorch ({torch.__version__}) is unknown")
    return library


def build_variant(name: str, variant: CAbiVariant, folder: Path) -> Build:
    """Build a variant with sources in `folder`, or take it from the cache. Raises LoopError."""
    try:
        places = {"cache": cache_folder() / "builds", "include": include_folder()}
        built = run_to_end(build(name, variant, folder, limit_s=BUILD_LIMIT_S, **places))
    except BuildFailed as failed:
        raise WorkFailed(f"{name}: {failed.message}", hint=failed.hint) from failed
    assert isinstance(built, Build)
    return built


def bridge_works() -> bool:
    """Whether a C kernel receives a call's arguments and a tensor's requires_grad: `probe` returns
    whether the other arguments are these and `flag` equals it."""
    probe = getattr(torch.ops, TEST_NAMESPACE).probe.default
    with torch.enable_grad():
        for requires_grad, flag in product((True, False), repeat=2):
            tensor = torch.zeros(1, requires_grad=requires_grad)
            if probe(tensor, flag, -7, 0.5) != (flag == requires_grad):
                return False
    return True


def describe_operator(contract: Contract, library: Compiled) -> TorchOperator:
    """Convert a contract to the C structure that the bridge reads. `dtype` -1: no fixed type.
    `from_`, `twin`: first input with a dimension. `only`: type of calls whose inputs show none."""
    numbers, signature, sources = type_numbers(), contract.signature, contract.dimension_sources
    input_names, only_type = list(signature.inputs), contract.assumed_dtype
    operator = TorchOperator(
        space=contract.namespace.encode(),
        name=contract.name.encode(),
        title=contract.title.encode(),
        entry=address_of(library.entry),
        explain=address_of(library.error_message),
        device_type=find_symbol(f"aoti_torch_device_type_{contract.variant.device}")(),
        inputs=len(input_names),
        attributes=len(signature.attributes),
        rank=len(contract.output_dims),
        dtype=numbers[signature.types[OUTPUT]] if OUTPUT in signature.types else -1,
        only=numbers[only_type] if only_type else -1,
    )
    for dtype in contract.variant.dtypes:
        operator.accepted[numbers[dtype]] = 1
    for axis, dimension in enumerate(contract.output_dims):
        source, operator.from_axis[axis] = sources[dimension]
        operator.from_[axis] = input_names.index(source)
    for position, (name, dimensions) in enumerate(signature.inputs.items()):
        input_struct, dims = operator.input[position], dimensions.split()
        allowed_types = signature.types.get(name, " or ".join(contract.variant.dtypes))
        input_struct.name, input_struct.dimensions = name.encode(), " ".join(dims).encode()
        input_struct.expects, input_struct.rank = allowed_types.encode(), len(dims)
        input_struct.dtype = numbers[signature.types[name]] if name in signature.types else -1
        for axis, dimension in enumerate(dims):
            input_struct.words[axis] = dimension.encode()
            source, input_struct.twin_axis[axis] = sources[dimension]
            input_struct.twin[axis] = input_names.index(source)
    for position, (name, attribute) in enumerate(signature.attributes.items()):
        choices = " or ".join(f"{index} ({word})" for index, word in enumerate(attribute.choices))
        kind, count = list(SCHEMA_TYPES).index(attribute.kind), len(attribute.choices)
        operator.attribute[position] = TorchAttribute(name.encode(), choices.encode(), kind, count)
    return operator
