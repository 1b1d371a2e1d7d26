"""Reference and baseline of attention, the two stages of split-K, and properties of every right output."""

import math
from collections.abc import Generator
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Property = Generator[tuple[list[Tensor], dict[str, Any]], Tensor, tuple[Tensor, Tensor] | None]
"""A running property: it yields calls (inputs, attributes), receives each output, and returns two tensors that agree."""


def causal_mask(queries: int, keys: int, alignment: str, device: torch.device) -> Tensor:
    """Causal mask [Sq, Sk]: True where a query may see a key. `top_left`: key j is visible to query i if j <= i,
    as in SDPA's `is_causal`. `bottom_right`: if j <= i + Sk - Sq, as in FlashAttention 2.1 and later."""
    diagonal = keys - queries if alignment == "bottom_right" else 0
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(diagonal=diagonal)


def repeat_for_query_heads(shared: Tensor, q: Tensor) -> Tensor:
    """Repeat k or v [B, Hk, Sk, D] to [B, Hq, Sk, D]: query head h uses key head h // (Hq / Hk)."""
    query_heads, key_heads = q.shape[-3], shared.shape[-3]
    if query_heads == key_heads:
        return shared
    return shared.repeat_interleave(query_heads // key_heads, dim=-3)


def eager(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """softmax(scale * Q K^T + mask) V in the type of the inputs; rows that see no key are zero.
    q [B, Hq, Sq, D], k and v [B, Hk, Sk, D]; Hq is a multiple of Hk. `scale` None: 1/sqrt(D)."""
    k, v = repeat_for_query_heads(k, q), repeat_for_query_heads(v, q)
    scores = (q @ k.transpose(-1, -2)) * _softmax_scale(q, scale)
    if not causal:
        return torch.softmax(scores, dim=-1) @ v
    mask = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    return weights @ v


def torch_sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The baseline: PyTorch's scaled_dot_product_attention, for q [B, Hq, Sq, D], k, v [B, Hk, Sk, D].
    The library masks from the top left only: `bottom_right` is passed as an explicit mask. A negative
    scale is moved into q: the library returns NaN for some (torch 2.13 on CPU, 2.11 on GPU)."""
    if scale is not None and scale < 0:
        q, scale = -q, -scale
    options: dict[str, Any] = {"scale": scale}
    if q.shape[-3] != k.shape[-3]:  # Grouped heads; only torch 2.5 and later know the option.
        options["enable_gqa"] = True
    if not causal or alignment == "top_left":
        return scaled_dot_product_attention(q, k, v, is_causal=causal, **options)
    mask = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    output = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    if q.shape[-2] <= k.shape[-2]:  # Every row sees a key. Else a GPU leaves anything there (torch 2.11, float16).
        return output
    return output.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


TILE = 64
"""Keys in one tile. A split holds whole tiles."""
PADDING = 2
"""Unused columns at the end of each partial row. The maximum and the sum stand before them."""


def split_partial(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None, sizes: dict[str, int]
) -> Tensor:
    """The first stage of split-K: each range of keys by itself, as `P` contiguous ranges of whole tiles.
    q [B, H, Sq, D], k and v [B, H, Sk, D]; returns [P, B, H, Sq, D + 4]: D sums of 2^(x - m) v, the
    maximum m of x = scale * q.k * log2(e) over the range's visible keys, the sum of 2^(x - m), two
    zeros. Where no key is visible m is -inf and the rest 0."""
    logits = (q @ k.transpose(-1, -2)) * _softmax_scale(q, scale)
    visible = torch.ones(logits.shape[-2:], dtype=torch.bool)
    if causal:
        visible = causal_mask(q.shape[-2], k.shape[-2], alignment, q.device)
    return _split_partials(logits / math.log(2), visible.expand(logits.shape), v, sizes["P"])


def _split_partials(logits: Tensor, visible: Tensor, v: Tensor, splits: int) -> Tensor:
    """Partials [P, B, H, Sq, D + 4] of logits [B, H, Sq, Sk] and values [B, H, Sk, D]. The logits
    are in log2 and count only where `visible`."""
    keys = logits.shape[-1]
    keys_per_split, partials = math.ceil(math.ceil(keys / TILE) / splits) * TILE, []
    for n in range(splits):
        key_range = slice(min(n * keys_per_split, keys), min((n + 1) * keys_per_split, keys))
        masked = logits[..., key_range].masked_fill(~visible[..., key_range], -math.inf)
        # One more column, so that there is a maximum even without keys.
        minus_infinity = logits.new_full((*logits.shape[:-1], 1), -math.inf)
        maximum = torch.cat([masked, minus_infinity], dim=-1).amax(dim=-1, keepdim=True)
        weights = torch.exp2(masked - maximum.masked_fill(maximum == -math.inf, 0.0))
        weighted_sums, sum_of_weights = weights @ v[..., key_range, :], weights.sum(dim=-1, keepdim=True)
        padding = torch.zeros_like(maximum).expand(*maximum.shape[:-1], PADDING)
        partials.append(torch.cat([weighted_sums, maximum, sum_of_weights, padding], dim=-1))
    return torch.stack(partials)


def partial_form(partials: Tensor, **attributes: object) -> Tensor:
    """Normalise partials [..., D + 4], so that those with different m (subtracted in the exponent: the
    maximum, or slightly less) compare equal. Returns the weighted sums divided by the row sum,
    m + log2(row sum), 1 where the row saw any key (else 0), and the padding."""
    sums, columns = partials[..., : -PADDING - 2], partials[..., -PADDING - 2 :]
    maximum, row_sum, *padding = columns.unbind(-1)
    divisor = torch.where(row_sum > 0, row_sum, torch.ones_like(row_sum))
    saw_key = torch.where(row_sum > 0, torch.ones_like(row_sum), row_sum)
    columns = torch.stack([maximum + torch.log2(divisor), saw_key, *padding], dim=-1)
    return torch.cat([sums / divisor.unsqueeze(-1), columns], dim=-1)


def split_reduce(partials: Tensor) -> Tensor:
    """Second stage of split-K: merge partials [P, B, H, Sq, D + 4]. Rows without keys are zero."""
    sums = partials[..., : -PADDING - 2]
    maximum, row_sum = partials[..., -PADDING - 2], partials[..., -PADDING - 1]
    row_maximum = maximum.amax(dim=0)
    weights = torch.exp2(maximum - row_maximum.masked_fill(row_maximum == -math.inf, 0.0))
    weighted_sums = (weights.unsqueeze(-1) * sums).sum(dim=0)
    total = (weights * row_sum).sum(dim=0)
    return weighted_sums / total.masked_fill(total == 0, 1.0).unsqueeze(-1)


def random_partials(*, sizes: dict[str, int], seed: int) -> tuple[Tensor]:
    """Random valid partials as inputs of the second stage: one row in eight sees no key."""
    stream = numpy.random.RandomState(seed % 2**32)
    rows, keys = (sizes["B"], sizes["H"], sizes["Sq"]), sizes["P"] * TILE
    logits = torch.from_numpy(stream.standard_normal((*rows, keys))) / math.log(2)
    values = torch.from_numpy(stream.standard_normal((*rows[:2], keys, sizes["D"])))
    visible_counts = torch.from_numpy(stream.randint(keys + 1, size=(*rows, 1)))
    visible_counts = visible_counts.masked_fill(torch.from_numpy(stream.randint(8, size=(*rows, 1))) == 0, 0)
    return (_split_partials(logits, torch.arange(keys) < visible_counts, values, sizes["P"]),)


def _softmax_scale(q: Tensor, scale: float | None) -> float:
    """The softmax scale; None means 1/sqrt(D)."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def softmax_rows(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: weights sum to one. So if all rows of V are equal, each output row is that row."""
    if 0 in (q.numel(), k.numel()):
        return None  # It does not apply.
    equal_rows = v[..., :1, :].expand_as(v)
    output = yield [q, k, equal_rows], attributes  # The variant's output.
    mask = causal_mask(q.shape[-2], k.shape[-2], attributes["alignment"], q.device)
    sees_key = mask.any(dim=-1, keepdim=True) | (not attributes["causal"])  # By query: [Sq, 1].
    return output, torch.where(sees_key, repeat_for_query_heads(equal_rows[..., :1, :], q), 0.0).expand_as(output)


def key_permutation(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: without a mask, the order of the keys does not change the output."""
    if attributes["causal"] or k.shape[-2] < 2:
        return None  # It does not apply.
    order = torch.randperm(k.shape[-2])
    output = yield [q, k, v], attributes  # The variant's output.
    shuffled_output = yield [q, k[..., order, :], v[..., order, :]], attributes
    return shuffled_output, output


def logit_shift(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: adding one vector to every key shifts a row's logits equally, with no effect."""
    if 0 in (q.numel(), k.numel()):
        return None  # It does not apply.
    shift = torch.full((k.shape[-1],), 0.5, dtype=k.dtype)
    # Keys on a grid of 1/16, so that the sum is exact in every element type.
    grid_keys = (k.clamp(-4, 4) * 16).round() / 16
    output = yield [q, grid_keys, v], attributes  # The variant's output.
    output_of_shifted = yield [q, grid_keys + shift, v], attributes
    return output_of_shifted, output


def linear_in_v(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: attention is linear in V, so outputs add up when values add up."""
    if 0 in (q.numel(), k.numel()):
        return None  # It does not apply.
    # Values on a grid of 1/16, so that the sum is exact in every element type.
    values = (v.clamp(-4, 4) * 16).round() / 16
    other_values = (torch.randn_like(v).clamp(-4, 4) * 16).round() / 16
    output = yield [q, k, values], attributes  # The variant's output.
    other_output = yield [q, k, other_values], attributes
    output_of_sum = yield [q, k, values + other_values], attributes
    return output_of_sum, output + other_output


def causal_prefix(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: under a causal mask, cutting off later queries and keys keeps earlier rows."""
    queries = q.shape[-2]
    if not attributes["causal"] or queries != k.shape[-2] or queries < 2:
        return None  # It does not apply.
    kept_count = (queries + 1) // 2
    output = yield [q, k, v], attributes  # The variant's output.
    output_of_prefix = yield [tensor[..., :kept_count, :] for tensor in (q, k, v)], attributes
    return output_of_prefix, output[..., :kept_count, :]


def split_merge(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: attention over two halves of keys, merged by log-sum-exp, is the whole one."""
    keys = k.shape[-2]
    if attributes["causal"] or keys < 2 or q.numel() == 0:
        return None  # It does not apply.
    middle = keys // 2
    output = yield [q, k, v], attributes  # The variant's output.
    left_output = yield [q, k[..., :middle, :], v[..., :middle, :]], attributes
    right_output = yield [q, k[..., middle:, :], v[..., middle:, :]], attributes
    logits = q @ repeat_for_query_heads(k, q).transpose(-1, -2)
    logits = logits * _softmax_scale(q, attributes["scale"])
    left_log_sum = logits[..., :middle].logsumexp(-1)
    left_share = torch.sigmoid(left_log_sum - logits[..., middle:].logsumexp(-1)).unsqueeze(-1)
    return left_share * left_output + (1 - left_share) * right_output, output


def shared_heads(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: grouped heads give the same output as heads with copies of keys and values."""
    if q.shape[1] == k.shape[1]:
        return None  # It does not apply.
    output_of_shared = yield [q, k, v], attributes  # The variant's output.
    copies = [q, repeat_for_query_heads(k, q), repeat_for_query_heads(v, q)]
    output_of_copies = yield copies, attributes
    return output_of_shared, output_of_copies


def by_hand(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Property:
    """Property: a two-query, two-key example computed on paper. Query 0 has logits (ln 3, 0), so
    weights (3/4, 1/4); query 1 has (0, 0), so (1/2, 1/2). With values 4 and 8 the outputs are 5 and
    6. Under a causal mask query 0 sees only key 0: 4."""
    if 0 in (q.numel(), k.numel()):
        return None  # It does not apply.
    queries = torch.zeros(*q.shape[:2], 2, q.shape[-1], dtype=q.dtype)
    keys = torch.zeros(*k.shape[:2], 2, q.shape[-1], dtype=q.dtype)
    queries[..., 0, 0] = math.log(3) / _softmax_scale(q, attributes["scale"])
    keys[..., 0, 0] = 1
    values = torch.full_like(keys, 8)
    values[..., 0, :] = 4
    output = yield [queries, keys, values], attributes  # The variant's output.
    expected = torch.full_like(output, 6)
    expected[..., 0, :] = 4 if attributes["causal"] else 5
    return output, expected
