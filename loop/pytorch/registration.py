"""Declares operators to PyTorch: schema, kernel in C or Python, and the abstract kernel for compilers."""

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.library import Library, fallthrough_kernel, register_fake

from loop.pytorch import c_dispatch, python_dispatch
from loop.pytorch.checks import check_gradients, output_of, see
from loop.pytorch.library import KernelLibrary
from loop.pytorch.shim import Unavailable
from loop.timing.contract import Contract

Dispatch = Literal["c", "python"]
TAGS = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))
"""It passes `opcheck`; a compiler has to keep the strides of its inputs."""
BACKENDS = ("CPU", "CUDA")
"""Both get the kernel, because it names an input that is on the wrong device."""


@cache
def space(name: str) -> Any:
    """A namespace's `torch.library.Library`. It is kept, because registrations end with it."""
    make_library: Any = Library
    return make_library(name, "FRAGMENT")


def declare(contract: Contract) -> OpOverload:
    """Schema and abstract kernel: shapes and types of the output, no gradient."""
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
    op: OpOverload = getattr(getattr(torch.ops, contract.space), contract.name).default
    return op


def give_kernel(contract: Contract, library: KernelLibrary, dispatch: Dispatch | None = None) -> str | None:
    """Put a kernel under a declared operator: in C, else in Python. Why not in C, or None.

    Raises Unavailable when C is `wanted` and cannot be had.
    """
    if dispatch != "python":
        try:
            c_dispatch.register(contract, library)
            return None
        except Unavailable as reason:
            if dispatch == "c":
                raise
            why = str(reason)
    else:
        why = "it was not wanted"
    kernel = python_dispatch.kernel(contract, library)
    for backend in BACKENDS:
        space(contract.space).impl(contract.name, kernel, backend)
    return why
