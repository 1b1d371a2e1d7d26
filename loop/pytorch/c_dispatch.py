"""The kernel of an operator in C: PyTorch calls it without Python, through kernels/include/loop_torch.cpp.

Without a compiler, or without a PyTorch that has these functions (2.7 and later), Unavailable says why.
"""

import ctypes
from functools import cache
from typing import Any

import torch

from loop.base.errors import LoopError
from loop.base.places import include_folder
from loop.calls.call import Refused
from loop.calls.library import check_build_id
from loop.model.signature import OUTPUT
from loop.model.target import BuildRecipe, CAbiVariant
from loop.pytorch import shim
from loop.pytorch.library import KernelLibrary, built
from loop.pytorch.shim import MOST, Unavailable
from loop.timing.contract import Contract, choices_in_words

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
    functions, meanings = shim.functions(), shim.meanings()
    try:
        ready = built("loop_torch", BRIDGE, include_folder())
        library = ctypes.CDLL(ready.library)
        check_build_id(library, ready.build_id)
    except (LoopError, OSError, Refused) as error:
        raise Unavailable(f"loop_torch.cpp is not to be had: {error}") from error
    make_library: Any = torch.library.Library
    own = make_library(SPACE, "FRAGMENT")
    own.define(PROBE)
    _kept.extend((own, meanings))
    if library.loop_torch_start(ctypes.byref(functions), ctypes.byref(meanings), SPACE.encode()) or not works():
        raise Unavailable(f"the C interface of this PyTorch ({torch.__version__}) is not the one that is known")
    return library


def works() -> bool:
    """Whether a C kernel receives the arguments of a call, and sees that a tensor requires a gradient."""
    probe = getattr(torch.ops, SPACE).probe.default
    with torch.enable_grad():
        right = [probe(torch.zeros(1, requires_grad=flag), flag, -7, 0.5) for flag in (True, False)]
        wrong = [probe(torch.zeros(1, requires_grad=not flag), flag, -7, 0.5) for flag in (True, False)]
    return right == [True, True] and wrong == [False, False]


def describe(contract: Contract, library: KernelLibrary) -> shim.TorchOperator:
    """The operator as the bridge has to know it."""
    numbers, order = shim.type_numbers(), list(contract.inputs)
    operator = shim.TorchOperator(
        space=contract.space.encode(),
        name=contract.name.encode(),
        title=contract.title.encode(),
        entry=library.entry_address,
        explain=library.explain_address,
        device_type=shim.device_number(contract.device),
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
        operator.attribute[n] = shim.TorchAttribute(name.encode(), words, kind, len(attribute.choices))
    return operator
