"""The bundled reference, against values by hand and another implementation; split attention in two stages."""

import math
from typing import Any

import pytest
import torch

from tests.attention import attention, eager, torch_sdpa

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch sees")
GPU = pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])
MASKS = [(False, "top_left"), (True, "top_left"), (True, "bottom_right")]


def draw(*shape: int, seed: int) -> torch.Tensor:
    """float64 normals."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_two_queries_and_two_keys_by_hand() -> None:
    """Scores 0 and ln 3 weigh the values 1/4 and 3/4; equal scores weigh them alike."""
    q = torch.tensor([[[[1.0], [0.0]]]], dtype=torch.float64)
    k = torch.tensor([[[[0.0], [math.log(3)]]]], dtype=torch.float64)
    v = torch.tensor([[[[4.0], [8.0]]]], dtype=torch.float64)
    got = eager(q, k, v, causal=False, alignment="top_left", scale=1.0)
    assert pytest.approx([7.0, 6.0]) == got.flatten().tolist()
    masked = eager(q, k, v, causal=True, alignment="top_left", scale=1.0)
    assert pytest.approx([4.0, 6.0]) == masked.flatten().tolist()


def test_rows_that_see_nothing_are_zero_and_no_keys_give_zeros() -> None:
    """An empty softmax gives zeros, not NaN."""
    q, k, v = draw(1, 1, 4, 3, seed=1), draw(1, 1, 2, 3, seed=2), draw(1, 1, 2, 3, seed=3)
    got = eager(q, k, v, causal=True, alignment="bottom_right", scale=None)
    assert 0.0 == float(got[0, 0, :2].abs().max())
    empty = eager(q, k[:, :, :0], v[:, :, :0], causal=False, alignment="top_left", scale=None)
    assert 0.0 == float(empty.abs().max())


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("scale", [None, -0.3])
@pytest.mark.parametrize("keys", [3, 8])
@pytest.mark.parametrize(("causal", "alignment"), MASKS)
def test_the_baseline_is_right_where_the_library_alone_is_not(
    causal: bool, alignment: str, keys: int, scale: float | None, device: str
) -> None:
    """The library only masks from the top left, and is undefined for rows without keys and negative scales."""
    inputs = [draw(1, 2, size, 8, seed=size) for size in (5, keys, keys)]
    options: dict[str, Any] = {"causal": causal, "alignment": alignment, "scale": scale}
    dtype, off = (torch.float64, 1e-12) if device == "cpu" else (torch.float16, 4e-3)
    got = torch_sdpa(*(tensor.to(device, dtype) for tensor in inputs), **options)
    assert off > float((got.double().cpu() - eager(*inputs, **options)).abs().max())


def split(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ranges: int, **attributes: Any) -> torch.Tensor:
    """The first stage."""
    options = {"causal": False, "alignment": "top_left", "scale": None, **attributes}
    return attention.split_partial(q, k, v, sizes={"P": ranges}, **options)


@pytest.mark.parametrize("ranges", [1, 3])
@pytest.mark.parametrize(("queries", "keys"), [(5, 0), (33, 77), (77, 33), (64, 192)])
@pytest.mark.parametrize(("causal", "alignment"), MASKS)
def test_both_stages_are_attention(ranges: int, queries: int, keys: int, causal: bool, alignment: str) -> None:
    """Also with empty ranges, and with rows that see no key."""
    q, k, v = draw(2, 3, queries, 8, seed=1), draw(2, 3, keys, 8, seed=2), draw(2, 3, keys, 8, seed=3)
    options: dict[str, Any] = {"causal": causal, "alignment": alignment, "scale": 0.3}
    partials = split(q, k, v, ranges, **options)
    assert (ranges, 2, 3, queries, 12) == partials.shape
    assert 1e-13 > float((attention.split_reduce(partials) - eager(q, k, v, **options)).abs().max())


def test_the_form_does_not_see_which_maximum_was_taken() -> None:
    """A lower one makes larger sums that mean the same; a row sum counted twice is another thing."""
    form, (q, k, v) = attention.partial_form, (draw(1, 2, n, 4, seed=n) for n in (9, 70, 71))
    right = split(q, k, v[:, :, :70], 2)
    lower = right.clone()
    lower[..., 4] -= 3
    lower[..., [0, 1, 2, 3, 5]] *= 8
    assert torch.allclose(form(right), form(lower), atol=1e-13, rtol=0)
    lower[..., 5] *= 2
    assert not torch.allclose(form(right), form(lower), atol=0.1)
    assert -math.inf == float(form(split(q, k[:, :, :0], v[:, :, :0], 1))[0, 0, 0, 0, 4])
