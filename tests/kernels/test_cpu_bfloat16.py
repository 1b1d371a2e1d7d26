"""The bundled CPU kernel on bfloat16: on matrix units where the processor has them, by widening elsewhere."""

import ctypes
import math
from typing import Any

import numpy
import pytest
import torch

from loop.calls.tensors import LoopTensor
from tests.kernels.test_cpu import FLAGS, kernel

BFLOAT16 = 3
__all__ = ["FLAGS", "kernel"]

Tensor = torch.Tensor


def describe(tensor: Tensor) -> LoopTensor:
    """A LoopTensor of a bfloat16 tensor with whatever strides it has."""
    found = LoopTensor(tensor.data_ptr(), BFLOAT16, tensor.dim())
    for axis in range(tensor.dim()):
        found.sizes[axis], found.strides[axis] = tensor.shape[axis], tensor.stride(axis)
    return found


def attend(kernel: Any, q: Tensor, k: Tensor, v: Tensor, *numbers: float) -> Tensor:
    """The output of a call; `numbers` are causal, alignment and scale."""
    o = torch.full_like(q, math.nan, memory_format=torch.contiguous_format)
    inputs, outputs = (LoopTensor * 3)(*map(describe, (q, k, v))), (LoopTensor * 1)(describe(o))
    attributes = (ctypes.c_double * 3)(*(*numbers, *(0.0, 0.0, math.nan)[len(numbers) :]))
    assert 0 == kernel.attention_cpu(inputs, outputs, attributes, None)
    return o


def exact(q: Tensor, k: Tensor, v: Tensor, causal: float = 0, right: float = 0, scale: float = math.nan) -> Tensor:
    """The same in float64; rows that see no key are zero."""
    scale = q.shape[-1] ** -0.5 if math.isnan(scale) else scale
    scores = scale * q.double() @ k.double().mT
    queries, keys = scores.shape[-2:]
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if right else 0)
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v.double()


def draw(queries: int, keys: int, size: int, heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a batch: unit normals."""
    make = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = ((1, heads, queries, size), (1, heads, keys, size), (1, heads, keys, size))
    q, k, v = (torch.randn(shape, generator=make).bfloat16() for shape in shapes)
    return q, k, v


def assert_right(found: Tensor, right: Tensor) -> None:
    """To what rounding weights and output to bfloat16 may cost."""
    assert not (found.double() - right).abs().gt(0.01 + 0.01 * right.abs()).any()


@pytest.mark.parametrize("size", [1, 7, 16, 31, 32, 40, 64, 100, 128])
@pytest.mark.parametrize("numbers", [(), (1.0,), (1.0, 1.0)], ids=["full", "causal", "causal to the right"])
def test_sizes_need_not_fill_tiles(kernel: Any, size: int, numbers: tuple[float, ...]) -> None:
    """Of features, queries or keys, of which there may be several tiles."""
    for queries, keys in ((1, 1), (1, 300), (15, 17), (33, 31), (48, 32), (49, 129), (130, 260), (20, 7)):
        q, k, v = draw(queries, keys, size)
        assert_right(attend(kernel, q, k, v, *numbers), exact(q, k, v, *numbers))


@pytest.mark.parametrize("scale", [0.0, -0.3, 2.0, 1e-3])
def test_scores_are_scaled_after_the_product(kernel: Any, scale: float) -> None:
    """By a negative number and by nothing too; a mask stays one."""
    q, k, v = draw(70, 90, 64)
    assert_right(attend(kernel, q, k, v, 1.0, 0.0, scale), exact(q, k, v, 1.0, 0.0, scale))


def test_large_logits_are_not_rounded_again(kernel: Any) -> None:
    """Of standard deviation 20: to scale the queries in bfloat16 would be off by a tenth."""
    q, k, v = draw(97, 97, 64)
    assert_right(attend(kernel, 20 * q, k, v), exact(20 * q, k, v))


def test_maxima_that_grow_from_tile_to_tile_are_followed(kernel: Any) -> None:
    """What was summed up before decays."""
    q, k, v = draw(40, 700, 64)
    k = (k.double() + q[:, :, :1].double() * torch.arange(700).reshape(-1, 1) / 300).bfloat16()
    assert_right(attend(kernel, q, k, v), exact(q, k, v))


def test_rows_lie_where_they_want(kernel: Any) -> None:
    """Heads in the third place, rows with gaps, at odd addresses of two bytes, and keys that all heads share."""
    q, k, v = draw(50, 70, 64, heads=4)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    gaps = torch.zeros(1, 4, 70, 99, dtype=torch.bfloat16)
    gaps[..., 5:69] = k
    shared = v[:, :1].expand_as(v)
    assert_right(attend(kernel, q, gaps[..., 5:69], shared, 1.0), exact(q, k, shared, 1.0))


def test_a_nan_key_reaches_only_rows_that_see_it(kernel: Any) -> None:
    """Under a causal mask the rows before it are as if it were not there."""
    q, k, v = draw(60, 60, 64)
    clean = attend(kernel, q, k, v, 1.0)
    k[:, :, 40] = math.nan
    found = attend(kernel, q, k, v, 1.0)
    assert torch.equal(clean[:, :, :40], found[:, :, :40])
    assert found[:, :, 40:].isnan().all()


def test_rows_that_see_no_key_are_zero(kernel: Any) -> None:
    """bottom_right with more queries than keys masks the first rows completely."""
    q, k, v = draw(60, 30, 64)
    assert (attend(kernel, q, k, v, 1.0, 1.0)[:, :, :30] == 0).all()


def test_products_of_pytorch_are_right_after_a_call(kernel: Any) -> None:
    """It may use the same units, and counts on the shapes that it left."""
    a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 80).bfloat16()
    before = a @ b
    for _ in range(3):
        attend(kernel, *draw(33, 65, 64))
        assert torch.equal(before, a @ b)


def test_a_call_gives_the_same_bits_again(kernel: Any) -> None:
    """Whatever stood in its memory before."""
    q, k, v = draw(50, 77, 40)
    first = attend(kernel, q, k, v, 1.0)
    attend(kernel, *(numpy.inf * x for x in draw(130, 260, 128)))
    assert torch.equal(first, attend(kernel, q, k, v, 1.0))
