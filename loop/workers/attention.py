"""The bundled attention target: reference, the two split-K stages, and the PyTorch baseline."""

import math
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from loop.workers.relations import Property


def causal_mask(queries: int, keys: int, alignment: str, device: torch.device) -> Tensor:
    """Causal mask [Sq, Sk]: True where a query may see a key. `top_left`: key j is visible to query
    i if j <= i, as in SDPA's `is_causal`. `bottom_right`: if j <= i + Sk - Sq, as in FlashAttention
    2.1 and later."""
    shift = keys - queries if alignment == "bottom_right" else 0
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(diagonal=shift)


def repeat_for_query_heads(shared: Tensor, q: Tensor) -> Tensor:
    """Repeat k or v [B, Hk, Sk, D] to [B, Hq, Sk, D]: query head h uses key head h // (Hq / Hk)."""
    heads, kept = q.shape[-3], shared.shape[-3]
    return shared if heads == kept else shared.repeat_interleave(heads // kept, dim=-3)


def eager(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """softmax(scale * Q K^T + mask) V in the type of the inputs; rows that see no key are zero.

    q [B, Hq, Sq, D], k and v [B, Hk, Sk, D], Hq a multiple of Hk; returns [B, Hq, Sq, D].
    `scale` None is 1/sqrt(D).
    """
    k, v = repeat_for_query_heads(k, q), repeat_for_query_heads(v, q)
    scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if not causal:
        return torch.softmax(scores, dim=-1) @ v
    mask = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    return weights @ v


def torch_sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The baseline: PyTorch's scaled_dot_product_attention. Shapes as in `eager`. The library masks
    from the top left only, so `bottom_right` is passed as an explicit mask. A negative scale is
    moved into q: the library returns NaN for some (torch 2.13 on CPU, 2.11 on GPU)."""
    if scale is not None and scale < 0:
        q, scale = -q, -scale
    grouped: dict[str, Any] = {} if q.shape[-3] == k.shape[-3] else {"enable_gqa": True}  # From torch 2.5 on.
    if not causal or alignment == "top_left":
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, **grouped)
    mask = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    output = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, **grouped)
    if q.shape[-2] <= k.shape[-2]:  # Every row sees a key. Else a GPU leaves anything there (torch 2.11, float16).
        return output
    return output.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


TILE = 64
"""Keys in one tile. A split holds whole tiles."""
PADDING = 2
"""Unused columns at the end of each partial row. The maximum and the sum stand before them."""


def attention_split_partial(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None, sizes: dict[str, int]
) -> Tensor:
    """The first stage of split-K: each range of keys by itself, as `P` contiguous ranges of whole tiles.

    q [B, H, Sq, D], k and v [B, H, Sk, D]; returns [P, B, H, Sq, D + 4]: D sums of 2^(x - m) v, the maximum m of
    x = scale * q.k * log2(e) over the range's visible keys, the sum of 2^(x - m), two zeros. Where no key is
    visible m is -inf and the rest 0.
    """
    logits = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    shown = torch.ones(logits.shape[-2:], dtype=torch.bool)
    if causal:
        shown = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    return _split_partials(logits / math.log(2), shown.expand(logits.shape), v, sizes["P"])


def _split_partials(logits: Tensor, shown: Tensor, v: Tensor, splits: int) -> Tensor:
    """Partials of logits [B, H, Sq, Sk] (log2, valid where `shown`) and values [B, H, Sk, D]."""
    keys = logits.shape[-1]
    length = math.ceil(math.ceil(keys / TILE) / splits) * TILE
    ranges = [slice(min(p * length, keys), min((p + 1) * length, keys)) for p in range(splits)]
    return torch.stack([_range_partial(logits[..., r], shown[..., r], v[..., r, :]) for r in ranges])


def _range_partial(logits: Tensor, shown: Tensor, v: Tensor) -> Tensor:
    """One partial: the weighted sums, the maximum, the sum of weights and PADDING zeros."""
    nothing = logits.new_full((*logits.shape[:-1], 1), -math.inf)
    masked = logits.masked_fill(~shown, -math.inf)
    top = torch.cat([masked, nothing], dim=-1).amax(dim=-1, keepdim=True)
    weights = torch.exp2(masked - top.masked_fill(top == -math.inf, 0.0))
    rest = torch.zeros_like(top).expand(*top.shape[:-1], PADDING)
    return torch.cat([weights @ v, top, weights.sum(dim=-1, keepdim=True), rest], dim=-1)


def attention_partial_form(partials: Tensor, **attributes: object) -> Tensor:
    """Normalise partials [..., D + 4], so that partials with different m compare equal. A kernel
    may subtract an m slightly below the true maximum. Returns the weighted sums divided by the row
    sum, m + log2(row sum), and 1 where the row saw any key."""
    sums, (top, total, *rest) = partials[..., : -PADDING - 2], partials[..., -PADDING - 2 :].unbind(-1)
    whole = torch.where(total > 0, total, torch.ones_like(total))
    shown = torch.where(total > 0, torch.ones_like(total), total)
    columns = torch.stack([top + torch.log2(whole), shown, *rest], dim=-1)
    return torch.cat([sums / whole.unsqueeze(-1), columns], dim=-1)


def attention_split_reduce(partials: Tensor) -> Tensor:
    """Second stage of split-K: merge partials [P, B, H, Sq, D + 4] into outputs [B, H, Sq, D]. Rows
    that saw no key are zero."""
    sums, top, total = partials[..., : -PADDING - 2], partials[..., -PADDING - 2], partials[..., -PADDING - 1]
    highest = top.amax(dim=0)
    weights = torch.exp2(top - highest.masked_fill(highest == -math.inf, 0.0))
    whole = (weights * total).sum(dim=0)
    return (weights.unsqueeze(-1) * sums).sum(dim=0) / whole.masked_fill(whole == 0, 1.0).unsqueeze(-1)


def attention_partials(*, sizes: dict[str, int], seed: int) -> tuple[Tensor]:
    """Random valid partials as inputs of the second stage; some rows see few keys or none."""
    stream = numpy.random.RandomState(seed % 2**32)
    rows, keys = (sizes["B"], sizes["H"], sizes["Sq"]), sizes["P"] * TILE
    logits = torch.from_numpy(stream.standard_normal((*rows, keys))) / math.log(2)
    values = torch.from_numpy(stream.standard_normal((*rows[:2], keys, sizes["D"])))
    counts = torch.from_numpy(stream.randint(keys + 1, size=(*rows, 1)))
    counts = counts.masked_fill(torch.from_numpy(stream.randint(8, size=(*rows, 1))) == 0, 0)
    return (_split_partials(logits, torch.arange(keys) < counts, values, sizes["P"]),)


def _scale(q: Tensor, scale: float | None) -> float:
    """The softmax scale; None means 1/sqrt(D)."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def softmax_rows(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: weights sum to one. So if all rows of V are equal, each output row is that row."""
    if 0 in (q.numel(), k.numel()):
        return None
    row = v[..., :1, :].expand_as(v)
    output = yield [q, k, row], attributes
    mask = causal_mask(q.shape[-2], k.shape[-2], attributes["alignment"], q.device)
    sees = mask.any(dim=-1, keepdim=True) | (not attributes["causal"])  # Whether a query sees any key: [Sq, 1].
    return output, torch.where(sees, repeat_for_query_heads(row[..., :1, :], q), 0.0).expand_as(output)


def key_permutation(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: without a mask, the order of the keys does not change the output."""
    if attributes["causal"] or k.shape[-2] < 2:
        return None
    order = torch.randperm(k.shape[-2])
    straight = yield [q, k, v], attributes
    shuffled = yield [q, k[..., order, :], v[..., order, :]], attributes
    return shuffled, straight


def logit_shift(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: adding one vector to every key shifts a row's logits equally, with no effect."""
    if 0 in (q.numel(), k.numel()):
        return None
    shift = torch.full((k.shape[-1],), 0.5, dtype=k.dtype)
    # Keys on a grid of 1/16, so that the sum is exact in every element type.
    grid = (k.clamp(-4, 4) * 16).round() / 16
    straight = yield [q, grid, v], attributes
    shifted = yield [q, grid + shift, v], attributes
    return shifted, straight


def linear_in_v(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: attention is linear in V, so outputs add up when values add up."""
    if 0 in (q.numel(), k.numel()):
        return None
    values = (v.clamp(-4, 4) * 16).round() / 16
    other = (torch.randn_like(v).clamp(-4, 4) * 16).round() / 16
    first = yield [q, k, values], attributes
    second = yield [q, k, other], attributes
    both = yield [q, k, values + other], attributes
    return both, first + second


def causal_prefix(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: under a causal mask, cutting off later queries and keys keeps earlier rows."""
    queries = q.shape[-2]
    if not attributes["causal"] or queries != k.shape[-2] or queries < 2:
        return None
    part = (queries + 1) // 2
    whole = yield [q, k, v], attributes
    begin = yield [q[..., :part, :], k[..., :part, :], v[..., :part, :]], attributes
    return begin, whole[..., :part, :]


def split_merge(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: attention over two halves of keys, merged by log-sum-exp, is the whole one."""
    keys = k.shape[-2]
    if attributes["causal"] or keys < 2 or q.numel() == 0:
        return None
    part = keys // 2
    whole = yield [q, k, v], attributes
    left = yield [q, k[..., :part, :], v[..., :part, :]], attributes
    right = yield [q, k[..., part:, :], v[..., part:, :]], attributes
    logits = q @ repeat_for_query_heads(k, q).transpose(-1, -2) * _scale(q, attributes["scale"])
    share = torch.sigmoid(logits[..., :part].logsumexp(-1) - logits[..., part:].logsumexp(-1)).unsqueeze(-1)
    return share * left + (1 - share) * right, whole


def shared_heads(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: grouped heads give the same output as heads with copies of keys and values."""
    if q.shape[1] == k.shape[1]:
        return None
    shared = yield [q, k, v], attributes
    own = yield [q, repeat_for_query_heads(k, q), repeat_for_query_heads(v, q)], attributes
    return shared, own


def by_hand(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: a two-query, two-key example computed on paper. Query 0 has logits (ln 3, 0), so
    weights (3/4, 1/4); query 1 has (0, 0), so (1/2, 1/2). With values 4 and 8 the outputs are 5 and
    6. Under a causal mask query 0 sees only key 0: 4."""
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
