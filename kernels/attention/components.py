"""What the parts of a kernel have to come to: references of the components of target.yaml, in float64.

Each takes q [B, Hq, Sq, D], k and v [B, Hk, Sk, D] and the attributes. Scores are x = scale * q.k * log2(e), and
-inf where a query does not see the key. Weights are 2^x: the logarithm of one is x again. Up to `P` warps share a
row, and the forms put their shares together.
"""

import math

import torch
from faults import scored, shared
from torch import Tensor


def scores(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Scores [B, Hq, Sq, Sk]."""
    found, seen = scored(q, k, causal, alignment, scale)
    return (found / math.log(2)).masked_fill(~seen, -math.inf)


def row_maximum(
    q: Tensor, k: Tensor, v: Tensor, *, sizes: dict[str, int], causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """The highest score of each query, [P, B, Hq, Sq]."""
    found = scores(q, k, v, causal=causal, alignment=alignment, scale=scale)
    return found.amax(-1).expand(sizes["P"], -1, -1, -1)


def row_sum(
    q: Tensor, k: Tensor, v: Tensor, *, sizes: dict[str, int], causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """The logarithm of the sum of each query's weights, as the first of `P` shares: [P, B, Hq, Sq]."""
    total = log_sum(scores(q, k, v, causal=causal, alignment=alignment, scale=scale), -1)
    return torch.stack([total, *[torch.full_like(total, -math.inf)] * (sizes["P"] - 1)])


def weighted_values(
    q: Tensor, k: Tensor, v: Tensor, *, sizes: dict[str, int], causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """Sums of weighted values, of weights, and their reference; the first of `P` shares: [P, B, Hq, Sq, D + 2]."""
    found = scores(q, k, v, causal=causal, alignment=alignment, scale=scale)
    top = found.amax(-1, keepdim=True)
    weights = torch.exp2(found - finite(top))
    whole = torch.cat([weights @ shared(v, q.shape[1]), weights.sum(-1, keepdim=True), top], -1)
    return torch.stack([whole, *[torch.zeros_like(whole)] * (sizes["P"] - 1)])


def finite(top: Tensor) -> Tensor:
    """What can be subtracted of a row's highest score: 0 where it sees no key."""
    return top.masked_fill(top == -math.inf, 0.0)


def log_sum(logarithms: Tensor, axis: int) -> Tensor:
    """log2 of the sum of powers of two."""
    return torch.logsumexp(logarithms * math.log(2), axis) / math.log(2)


def relative(weights: Tensor, **attributes: object) -> Tensor:
    """Weights, less than 1, of their logarithms: relative to the highest of their row."""
    return torch.exp2(weights - finite(weights.amax(-1, keepdim=True)))


def highest_share(shares: Tensor, **attributes: object) -> Tensor:
    """Of the maxima of several warps the highest counts."""
    return shares.amax(0, keepdim=True).expand_as(shares)


def sum_of_shares(shares: Tensor, **attributes: object) -> Tensor:
    """How the weights of a row are shared among warps does not count."""
    return log_sum(shares, 0).expand_as(shares)


def mean_of_shares(shares: Tensor, **attributes: object) -> Tensor:
    """Weighted means of the values: those of several warps together. A row that sees no key is zero."""
    total, reference = shares[..., -2:-1], shares[..., -1:]
    reference = reference.masked_fill(total == 0, -math.inf)
    sums = (shares * torch.exp2(reference - finite(reference.amax(0)))).sum(0)
    whole = sums[..., -2:-1]
    means = sums / whole.masked_fill(whole == 0, 1.0)
    return torch.cat([means[..., :-1], torch.zeros_like(whole)], -1).expand_as(shares)
