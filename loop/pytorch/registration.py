"""Declares operators to PyTorch: schema, kernel, and the abstract kernel for compilers."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import Library, fallthrough_kernel, register_fake

from loop.model.signature import OUTPUT
from loop.pytorch import c_dispatch
from loop.pytorch.library import KernelLibrary
from loop.timing.contract import Contract


class TensorFacts(NamedTuple):
    """The facts of a tensor that an operator checks; sizes may be symbols of a compiler."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def see(tensor: Tensor) -> TensorFacts:
    """The facts of a tensor."""
    return TensorFacts(tensor.shape, tensor.dtype, tensor.device)


def refuse(contract: Contract, words: str) -> NoReturn:
    """Raise RuntimeError, as PyTorch's own operators do."""
    raise RuntimeError(f"{contract.title}: {words}")


def output_of(contract: Contract, inputs: Sequence[TensorFacts], *, abstract: bool = False) -> TensorFacts:
    """Shape, type and device of the output. Raises RuntimeError that names the first input that is wrong.

    `abstract`: the tensors have no memory and may be on the meta device.
    """
    tensors = dict(zip(contract.inputs, inputs, strict=True))
    first, typed = next(iter(tensors)), [name for name in tensors if name not in contract.types]
    for name, tensor in tensors.items():
        _check_device(contract, name, tensor, first, tensors[first], abstract=abstract)
        _check_dtype(contract, name, tensor, typed, tensors)
        _check_sizes(contract, name, tensor, tensors)
    shape = tuple(
        tensors[name].shape[axis] for name, axis in (contract.homes[dimension] for dimension in contract.output)
    )
    own = tensors[typed[0]].dtype if typed else getattr(torch, str(contract.only))
    named = contract.types.get(OUTPUT)
    return TensorFacts(shape, getattr(torch, named) if named else own, tensors[first].device)


def _check_device(
    contract: Contract, name: str, tensor: TensorFacts, first: str, leader: TensorFacts, *, abstract: bool
) -> None:
    right = (contract.device, "meta") if abstract else (contract.device,)
    if tensor.device.type in right and tensor.device == leader.device:
        return
    expected = f"{leader.device}, as {first} is" if tensor.device.type in right else contract.device
    refuse(contract, f"{name}: expected a tensor on {expected}, got one on {tensor.device}")


def _check_dtype(
    contract: Contract, name: str, tensor: TensorFacts, typed: Sequence[str], tensors: dict[str, TensorFacts]
) -> None:
    got = word(tensor.dtype)
    allowed = (contract.types[name],) if name in contract.types else contract.dtypes
    if got not in allowed:
        refuse(contract, f"{name}: expected {contract.expects(name)}, got {got}")
    if name in typed and tensor.dtype != tensors[typed[0]].dtype:
        expected = word(tensors[typed[0]].dtype)
        refuse(contract, f"{name}: expected {expected}, as {typed[0]} is, got {got}")


def word(dtype: torch.dtype) -> str:
    """An element type's name: `float16`."""
    return str(dtype).removeprefix("torch.")


def _check_sizes(contract: Contract, name: str, tensor: TensorFacts, tensors: dict[str, TensorFacts]) -> None:
    dimensions = contract.inputs[name]
    if len(tensor.shape) != len(dimensions):
        text = f"{len(dimensions)} dimensions ({' '.join(dimensions)})"
        refuse(contract, f"{name}: expected {text}, got {len(tensor.shape)}")
    for axis, dimension in enumerate(dimensions):
        home, place = contract.homes[dimension]
        size, other = tensor.shape[axis], tensors[home].shape[place]
        _check_size(contract, name, dimension, home, (size, other))


def _check_size(contract: Contract, name: str, dimension: str, home: str, sizes: tuple[int, int]) -> None:
    size, other = sizes

    def words() -> str:
        return f"{contract.title}: {name}: expected {dimension} = {other}, as in {home}, got {size}"

    check: Any = torch._check  # It also takes sizes that are symbols.
    check(size == other, words)


def check_gradients(contract: Contract, tensors: Sequence[Tensor]) -> None:
    """Raise RuntimeError for an input that requires a gradient. Call it only while gradients are recorded."""
    for name, tensor in zip(contract.inputs, tensors, strict=True):
        if tensor.requires_grad:
            remedy = f"call it under torch.no_grad(), or detach {name}"
            refuse(contract, f"{name} requires a gradient, and the operator has none: {remedy}")


TAGS = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))
"""It passes `opcheck`; a compiler has to keep the strides of its inputs."""


@cache
def space(name: str) -> Any:
    """A namespace's `torch.library.Library`. It is kept, because registrations end with it."""
    make_library: Any = Library
    return make_library(name, "FRAGMENT")


def declare(contract: Contract, library: KernelLibrary) -> OpOverload:
    """Schema, kernel and abstract kernel: shapes and types of the output, no gradient.

    Raises Unavailable where this PyTorch, or this machine, cannot have the kernel.
    """
    own = space(contract.space)
    own.define(contract.schema, tags=TAGS)
    own.impl(contract.name, fallthrough_kernel, "Autograd")  # The kernel looks for gradients itself.
    count = len(contract.inputs)

    def abstract(*arguments: Tensor) -> Tensor:
        tensors = arguments[:count]
        output = output_of(contract, [see(tensor) for tensor in tensors], abstract=True)
        if torch.is_grad_enabled():
            check_gradients(contract, tensors)
        return torch.empty(output.shape, dtype=output.dtype, device=output.device)

    register_fake(contract.title, abstract, lib=own)
    c_dispatch.register(contract, library)
    op: OpOverload = getattr(getattr(torch.ops, contract.space), contract.name).default
    return op
