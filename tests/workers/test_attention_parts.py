"""The two stages of split attention in float64: together they are attention, however the keys are cut."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loop.workers.attention import attention_partial_form, attention_split_partial, attention_split_reduce, eager


def draw(*shape: int, seed: int) -> Tensor:
    """float64 normals."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def split(q: Tensor, k: Tensor, v: Tensor, ranges: int, **attributes: Any) -> Tensor:
    """The first stage."""
    given = {"causal": False, "alignment": "top_left", "scale": None, **attributes}
    return attention_split_partial(q, k, v, sizes={"P": ranges}, **given)


@pytest.mark.parametrize("ranges", [1, 3])
@pytest.mark.parametrize(("queries", "keys"), [(5, 0), (33, 77), (77, 33), (64, 192)])
@pytest.mark.parametrize(
    ("causal", "alignment"), [(False, "top_left"), (True, "top_left"), (True, "bottom_right")]
)
def test_both_stages_are_attention(ranges: int, queries: int, keys: int, causal: bool, alignment: str) -> None:
    """With empty ranges, and rows that see nothing."""
    q, k, v = draw(2, 3, queries, 8, seed=1), draw(2, 3, keys, 8, seed=2), draw(2, 3, keys, 8, seed=3)
    given: dict[str, Any] = {"causal": causal, "alignment": alignment, "scale": 0.3}
    partials = split(q, k, v, ranges, **given)
    assert (ranges, 2, 3, queries, 12) == partials.shape
    assert 1e-13 > float((attention_split_reduce(partials) - eager(q, k, v, **given)).abs().max())


def test_the_form_does_not_see_which_maximum_was_taken() -> None:
    """A lower one makes larger sums that mean the same; a row sum counted twice is another thing."""
    q, k, v = (draw(1, 2, n, 4, seed=n) for n in (9, 70, 71))
    right = split(q, k, v[:, :, :70], 2)
    lower = right.clone()
    lower[..., 4] -= 3
    lower[..., [0, 1, 2, 3, 5]] *= 8
    assert torch.allclose(attention_partial_form(right), attention_partial_form(lower), atol=1e-13, rtol=0)
    lower[..., 5] *= 2
    assert not torch.allclose(attention_partial_form(right), attention_partial_form(lower), atol=0.1)
    assert -math.inf == float(attention_partial_form(split(q, k[:, :, :0], v[:, :, :0], 1))[0, 0, 0, 0, 4])
