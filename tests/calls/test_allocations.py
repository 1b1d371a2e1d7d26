"""Tensors that a Python variant allocates: writes outside of them are reported, honest use is not."""

import ctypes
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loop.calls.torch_call import stray_writes

X = torch.arange(60.0).reshape(5, 12)


def poke(tensor: Tensor, element: int) -> Tensor:
    """Write to an element outside, as a kernel does by its address."""
    address = tensor.data_ptr() + element * tensor.element_size()
    ctypes.c_uint16.from_address(address).value = 0x5A5A
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty_like(X),
        lambda: torch.full((7,), 3, dtype=torch.int8).view(-1),
        lambda: torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_write_beyond_a_result_shows(make: Callable[[], Tensor], before: bool) -> None:
    """It shows for every type and layout, behind the result and in front of it."""

    def variant() -> Tensor:
        result = make()
        return poke(result, -2 if before else result.numel() + 2)

    (complaint,) = stray_writes(variant)
    assert complaint.startswith("writes outside its output: ")
    assert ("before its beginning" if before else "after its end, the first at") in complaint


@pytest.mark.parametrize(
    "variant",
    [
        lambda: torch.matmul(X, X.T, out=torch.empty(0)),
        lambda: torch.empty(4).resize_(500).fill_(1.0),
        lambda: torch.zeros(3, 1).expand(3, 4) + 1,
        lambda: torch.zeros(3, 3).to_sparse(),
        lambda: torch.empty(9).untyped_storage().fill_(0),
        lambda: torch.zeros(3, dtype=torch.complex64),
        lambda: torch.softmax(X, -1),
        lambda: torch.zeros(4, requires_grad=True) * 2,
        lambda: torch.empty(5, 0),
        lambda: None,
    ],
)
def test_what_honest_variants_do_is_no_write_outside(variant: Callable[[], object]) -> None:
    """Resized, expanded, sparse and empty results count as no write outside."""
    assert [] == stray_writes(variant)


def test_a_write_beyond_what_is_no_result_names_the_tensor() -> None:
    """It is named by its shape; a variant that raises is left to its ordinary calls."""
    (complaint,) = stray_writes(lambda: poke(torch.empty(3, 4), 12) + 1)
    assert complaint.startswith("writes outside a tensor [3, 4] that it allocated: ")

    def raises() -> Tensor:
        raise ValueError("not like this")

    assert [] == stray_writes(raises)
