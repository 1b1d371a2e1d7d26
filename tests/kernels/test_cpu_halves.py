"""The bundled CPU kernel on bfloat16 and float16: on matrix units where there are some, else in float32."""

import ctypes
import math
from typing import Any

import numpy
import pytest
import torch

from loop.calls.call import LoopTensor
from tests.kernels.test_cpu import FLAGS, kernel

__all__ = ["FLAGS", "kernel"]

CODES = {torch.float16: 2, torch.bfloat16: 3}
TOLERANCES = {torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""As in target.yaml, absolute and relative."""

Tensor = torch.Tensor


@pytest.fixture(params=CODES, ids=["float16", "bfloat16"])
def half(request: pytest.FixtureRequest) -> torch.dtype:
    """The element type."""
    return request.param  # type: ignore[no-any-return]


def describe(tensor: Tensor) -> LoopTensor:
    """A LoopTensor of a tensor with whatever strides it has."""
    found = LoopTensor(tensor.data_ptr(), CODES[tensor.dtype], tensor.dim())
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
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if causal:
        seen = seen.tril(seen.shape[1] - seen.shape[0] if right else 0)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return weights.masked_fill(~seen.any(-1, keepdim=True), 0.0) @ v.double()


def draw(half: torch.dtype, queries: int, keys: int, size: int, heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a batch: unit normals."""
    make = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = ((1, heads, queries, size), (1, heads, keys, size), (1, heads, keys, size))
    q, k, v = (torch.randn(shape, generator=make).to(half) for shape in shapes)
    return q, k, v


def assert_right(found: Tensor, right: Tensor) -> None:
    """To the tolerance of its type."""
    most = TOLERANCES[found.dtype]
    assert not (found.double() - right).abs().gt(most + most * right.abs()).any()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(), (1.0,), (1.0, 1.0)], ids=["full", "causal", "causal to the right"])
def test_sizes_need_not_fill_tiles(kernel: Any, half: torch.dtype, numbers: tuple[float, ...]) -> None:
    """Of features, queries or keys, of which there may be several tiles."""
    for size in (1, 7, 31, 32, 40, 100, 128):
        for queries, keys in ((1, 1), (1, 300), (15, 17), (48, 32), (49, 129), (20, 7)):
            q, k, v = draw(half, queries, keys, size)
            assert_right(attend(kernel, q, k, v, *numbers), exact(q, k, v, *numbers))


@pytest.mark.parametrize("scale", [0.0, -0.3, 2.0, 1e-3])
def test_scores_are_scaled_after_the_product(kernel: Any, half: torch.dtype, scale: float) -> None:
    """By a negative number and by nothing too; a mask stays one."""
    q, k, v = draw(half, 70, 90, 64)
    assert_right(attend(kernel, q, k, v, 1.0, 0.0, scale), exact(q, k, v, 1.0, 0.0, scale))


def test_large_logits_are_not_rounded_again(kernel: Any, half: torch.dtype) -> None:
    """Of standard deviation 20: to scale the queries in their own type would be off by much."""
    q, k, v = draw(half, 97, 97, 64)
    assert_right(attend(kernel, 20 * q, k, v), exact(20 * q, k, v))


def test_maxima_that_grow_from_tile_to_tile_are_followed(kernel: Any, half: torch.dtype) -> None:
    """What was summed up before decays."""
    q, k, v = draw(half, 40, 700, 64)
    k = (k.double() + q[:, :, :1].double() * torch.arange(700).reshape(-1, 1) / 300).to(half)
    assert_right(attend(kernel, q, k, v), exact(q, k, v))


def test_rows_lie_where_they_want(kernel: Any, half: torch.dtype) -> None:
    """Heads in the third place, rows with gaps, at odd addresses of two bytes, and keys that all heads share."""
    q, k, v = draw(half, 50, 70, 64, heads=4)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    gaps = torch.zeros(1, 4, 70, 99, dtype=half)
    gaps[..., 5:69] = k
    shared = v[:, :1].expand_as(v)
    assert_right(attend(kernel, q, gaps[..., 5:69], shared, 1.0), exact(q, k, shared, 1.0))


def test_a_nan_key_reaches_only_rows_that_see_it(kernel: Any, half: torch.dtype) -> None:
    """Under a causal mask the rows before it are as if it were not there."""
    q, k, v = draw(half, 60, 60, 64)
    clean = attend(kernel, q, k, v, 1.0)
    k[:, :, 40] = math.nan
    found = attend(kernel, q, k, v, 1.0)
    assert torch.equal(clean[:, :, :40], found[:, :, :40])
    assert found[:, :, 40:].isnan().all()


def test_rows_that_see_no_key_are_zero(kernel: Any, half: torch.dtype) -> None:
    """bottom_right with more queries than keys masks the first rows completely."""
    q, k, v = draw(half, 60, 30, 64)
    assert (attend(kernel, q, k, v, 1.0, 1.0)[:, :, :30] == 0).all()


def test_products_of_pytorch_are_right_after_a_call(kernel: Any, half: torch.dtype) -> None:
    """It may use the same units, and counts on the shapes that it left."""
    a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 80).bfloat16()
    before = a @ b
    for _ in range(3):
        attend(kernel, *draw(half, 33, 65, 64))
        assert torch.equal(before, a @ b)


def test_a_call_gives_the_same_bits_again(kernel: Any, half: torch.dtype) -> None:
    """Whatever stood in its memory before."""
    q, k, v = draw(half, 50, 77, 40)
    first = attend(kernel, q, k, v, 1.0)
    attend(kernel, *(numpy.inf * x for x in draw(half, 130, 260, 128)))
    assert torch.equal(first, attend(kernel, q, k, v, 1.0))


@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_infinity_is_what_it_is_in_float32(kernel: Any, half: torch.dtype, where: str) -> None:
    """A key of minus infinity has no weight; other infinities reach the rows that see them."""
    given = dict(zip("qkv", draw(half, 40, 50, 64), strict=True))
    q, k, v = given.values()
    q[..., 3], given[where][:, :, 20, 3] = q[..., 3].abs() + 0.1, -math.inf
    found, right = attend(kernel, q, k, v), exact(q, k, v)
    assert torch.equal(found.isnan(), right.isnan())
    assert_right(found.nan_to_num(), right.to(half).nan_to_num().double())
