"""Declares operators to PyTorch: schema, kernel, and the abstract kernel for compilers."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import Library, fallthrough_kernel, register_fake

from loop.pytorch import c_dispatch
from loop.pytorch.checks import check_gradients, output_of, see
from loop.pytorch.library import KernelLibrary
from loop.timing.contract import Contract

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
