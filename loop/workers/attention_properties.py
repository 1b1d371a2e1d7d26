"""What holds of attention without any reference: the bundled target's properties.

q [B, Hq, Sq, D], k and v [B, Hk, Sk, D], outputs [B, Hq, Sq, D], all float64; `relations`
says how they are walked.
"""

import math
from typing import Any

import torch
from torch import Tensor

from loop.workers.attention import for_queries, visible
from loop.workers.relations import Property


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def softmax_rows(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """The weights of a row sum to one: where all rows of V are the same, each output row is that row."""
    if 0 in (q.numel(), k.numel()):
        return None
    row = v[..., :1, :].expand_as(v)
    output = yield [q, k, row], attributes
    mask = visible(q.shape[-2], k.shape[-2], attributes["alignment"], q.device)
    seen = mask.any(dim=-1, keepdim=True) | (not attributes["causal"])  # Whether a query sees any key: [Sq, 1].
    return output, torch.where(seen, for_queries(row[..., :1, :], q), 0.0).expand_as(output)


def key_permutation(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Without a mask the order of the keys means nothing."""
    if attributes["causal"] or k.shape[-2] < 2:
        return None
    order = torch.randperm(k.shape[-2])
    straight = yield [q, k, v], attributes
    shuffled = yield [q, k[..., order, :], v[..., order, :]], attributes
    return shuffled, straight


def logit_shift(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Adding the same vector to every key moves all logits of a row alike, which softmax does not see."""
    if 0 in (q.numel(), k.numel()):
        return None
    shift = torch.full((k.shape[-1],), 0.5, dtype=k.dtype)
    # Keys on a grid of 1/16, so that the sum is exact in every element type.
    grid = (k.clamp(-4, 4) * 16).round() / 16
    straight = yield [q, grid, v], attributes
    shifted = yield [q, grid + shift, v], attributes
    return shifted, straight


def linear_in_v(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """The output of a sum of values is the sum of the outputs."""
    if 0 in (q.numel(), k.numel()):
        return None
    values = (v.clamp(-4, 4) * 16).round() / 16
    other = (torch.randn_like(v).clamp(-4, 4) * 16).round() / 16
    first = yield [q, k, values], attributes
    second = yield [q, k, other], attributes
    both = yield [q, k, values + other], attributes
    return both, first + second


def causal_prefix(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Under a causal mask a row does not change when later queries and keys are cut off."""
    queries = q.shape[-2]
    if not attributes["causal"] or queries != k.shape[-2] or queries < 2:
        return None
    part = (queries + 1) // 2
    whole = yield [q, k, v], attributes
    begin = yield [q[..., :part, :], k[..., :part, :], v[..., :part, :]], attributes
    return begin, whole[..., :part, :]


def split_merge(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Attention over two halves of the keys, merged by their log-sum-exp, is attention over all of them."""
    keys = k.shape[-2]
    if attributes["causal"] or keys < 2 or q.numel() == 0:
        return None
    part = keys // 2
    whole = yield [q, k, v], attributes
    left = yield [q, k[..., :part, :], v[..., :part, :]], attributes
    right = yield [q, k[..., part:, :], v[..., part:, :]], attributes
    logits = q @ for_queries(k, q).transpose(-1, -2) * _scale(q, attributes["scale"])
    share = torch.sigmoid(logits[..., :part].logsumexp(-1) - logits[..., part:].logsumexp(-1)).unsqueeze(-1)
    return share * left + (1 - share) * right, whole


def shared_heads(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Heads of queries that share a head of keys and values see what each would see with a copy of its own."""
    if q.shape[1] == k.shape[1]:
        return None
    shared = yield [q, k, v], attributes
    own = yield [q, for_queries(k, q), for_queries(v, q)], attributes
    return shared, own


def by_hand(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Two queries and two keys worked out on paper.

    Query 0 has the logits (ln 3, 0), so the weights (3/4, 1/4); query 1 has (0, 0), so (1/2, 1/2). The values are
    4 and 8: the outputs are 5 and 6. Under a causal mask query 0 sees key 0 alone: 4.
    """
    if 0 in (q.numel(), k.numel()):
        return None
    queries, keys = (torch.zeros(*t.shape[:2], 2, q.shape[-1], dtype=q.dtype) for t in (q, k))
    queries[..., 0, 0] = math.log(3) / _scale(q, attributes["scale"])
    keys[..., 0, 0] = 1
    values = torch.full_like(keys, 8)
    values[..., 0, :] = 4
    output = yield [queries, keys, values], attributes
    expected = torch.full_like(output, 6)
    expected[..., 0, :] = 4 if attributes["causal"] else 5
    return output, expected
