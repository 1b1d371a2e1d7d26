"""What a variant may lose: as much as the plain implementation, which of a few elements says little."""

import math

import pytest
import torch
from torch import Tensor

from loop.bench.child.attention import eager
from loop.bench.child.judge import MAX_FLOOR, MAX_SLACK, MEAN_FLOOR, MEAN_SLACK, errors, most_lost

Tensors = tuple[Tensor, Tensor, Tensor]


def draw(seed: int, *shape: int) -> Tensors:
    """Queries, keys and values, float16 unit normals."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*shape, generator=generator).half() for _ in range(3))
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula written out."""
    return eager(q, k, v, causal=True, alignment="top_left", scale=None)


def tensor_cores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As kernels on tensor cores work: sums in float32, weights rounded to float16, divided at the end."""
    logits = (q.float() @ k.float().mT) / math.sqrt(q.size(-1))
    rows, columns = logits.shape[-2:]
    logits = logits.masked_fill(~torch.ones(rows, columns, dtype=torch.bool).tril(), -math.inf)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return ((weights.half().float() @ v.float()) / weights.sum(-1, keepdim=True)).half()


def test_honest_rounding_of_sixteen_elements_is_never_wrong() -> None:
    """Slack on what the plain implementation happens to lose would reject some of these."""
    rejected = alone = 0
    for seed in range(1000):
        tensors = draw(seed, 1, 1, 4, 4)
        reference = plain(*(one.double() for one in tensors))
        lost, mean = errors(tensor_cores(*tensors), reference)
        plain_max, plain_mean = errors(plain(*tensors), reference)
        most, most_in_mean = most_lost(reference, plain_max, plain_mean, "float16")
        rejected += lost > most or mean > most_in_mean
        alone += lost > MAX_SLACK * plain_max + MAX_FLOOR or mean > MEAN_SLACK * plain_mean + MEAN_FLOOR
    assert 0 == rejected
    assert alone > 0


@pytest.mark.parametrize(("size", "share"), [(4, 1.0), (65, 1e-3)])
def test_more_than_rounding_stays_wrong(size: int, share: float) -> None:
    """A thousandth of the largest value in one element, and a mean that grows by all of that of many."""
    tensors = draw(1, 1, 2, size, 64)
    reference = plain(*(one.double() for one in tensors))
    plain_max, plain_mean = errors(plain(*tensors), reference)
    most, most_in_mean = most_lost(reference, plain_max, plain_mean, "float16")
    assert most < 2e-3 * float(reference.abs().max())
    assert most_in_mean < 1.8 * plain_mean + 1e-6
    assert share * float(reference.abs().max()) > most_in_mean


def test_exact_results_allow_next_to_nothing() -> None:
    """Where the plain implementation is exact and values are small, the floor of one type is not another's."""
    reference = torch.full((100,), 0.5, dtype=torch.float64)
    assert pytest.approx((1e-5, 1e-6)) == most_lost(reference, 0.0, 0.0, "float32")
    assert pytest.approx((2**-11, 1e-6)) == most_lost(reference, 0.0, 0.0, "float16")
    assert (1e-5, 1e-6) == most_lost(torch.full((3,), math.nan), 0.0, 0.0, "float16")
