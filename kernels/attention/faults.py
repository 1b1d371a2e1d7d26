"""Wrong references: what attention comes to when one thing is done wrong. The fault dictionary of target.yaml.

Each takes q [B, Hq, Sq, D], k and v [B, Hk, Sk, D] and the attributes, and returns [B, Hq, Sq, D], in float64.
"""

import math

import torch
from torch import Tensor


def shared(one: Tensor, heads: int) -> Tensor:
    """Keys or values [B, Hk, Sk, D] for each of `heads` heads of queries; neighbours share one."""
    return one if one.shape[1] == heads else one.repeat_interleave(heads // one.shape[1], 1)


def scored(
    q: Tensor, k: Tensor, causal: bool, alignment: str, scale: float | None, late: int = 0
) -> tuple[Tensor, Tensor]:
    """Scores [B, Hq, Sq, Sk], and which key each query sees [Sq, Sk]: `late` too many under the mask."""
    scores = (q @ shared(k, q.shape[1]).transpose(-1, -2)) * factor_of(q, scale)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if causal:
        seen = seen.tril(diagonal=late + (k.shape[-2] - q.shape[-2] if alignment == "bottom_right" else 0))
    return scores, seen


def factor_of(q: Tensor, scale: float | None) -> float:
    """What products of q and k are multiplied by."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    alignment: str,
    scale: float | None,
    late: int = 0,
    keys: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights before they are divided by their sums, and these sums.

    `late`: keys that a query sees too many under the mask; `keys`: so many are seen at all.
    """
    scores, seen = scored(q, k, causal, alignment, scale, late)
    if keys is not None:
        seen[:, keys:] = False
    scores = scores.masked_fill(~seen, -math.inf)
    top = scores.amax(-1, keepdim=True).clamp(min=-1e300) if k.shape[-2] else 0.0
    weights = (scores - top).exp()
    return weights, weights.sum(-1, keepdim=True)


def divided(weights: Tensor, total: Tensor, v: Tensor) -> Tensor:
    """The weighted mean of the values; 0 in rows that see no key."""
    return (weights / total.masked_fill(total == 0, 1.0)) @ shared(v, weights.shape[1])


def early_mask(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Under a causal mask each query sees one key too few."""
    return divided(*attend(q, k, v, causal, alignment, scale, late=-1), v)


def late_mask(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Under a causal mask each query sees one key too many."""
    return divided(*attend(q, k, v, causal, alignment, scale, late=1), v)


def no_scale(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The scores are products of q and k as they are."""
    return divided(*attend(q, k, v, causal, alignment, 1.0), v)


def scaled_twice(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The scale is applied to q and to the scores."""
    return divided(*attend(q, k, v, causal, alignment, factor_of(q, scale) ** 2), v)


def wrong_base(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Powers of two are taken of scores that were meant for powers of e."""
    return divided(*attend(q, k, v, causal, alignment, factor_of(q, scale) * math.log(2)), v)


def not_divided(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The weights, relative to the highest of their row, are not divided by their sum."""
    return attend(q, k, v, causal, alignment, scale)[0] @ shared(v, q.shape[1])


def counted_twice(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The sum that a row is divided by has every weight twice."""
    weights, total = attend(q, k, v, causal, alignment, scale)
    return divided(weights, 2 * total, v)


def divided_twice(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Rows are divided by their sums in both of two stages."""
    weights, total = attend(q, k, v, causal, alignment, scale)
    return divided(weights, total, v) / total.masked_fill(total == 0, 1.0)


def mask_added(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Masked keys weigh as much as a score of zero, in place of nothing."""
    scores, seen = scored(q, k, causal, alignment, scale)
    return torch.softmax(scores.masked_fill(~seen, 0.0), -1) @ shared(v, q.shape[1])


def over_queries(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The softmax runs over the queries of a key, in place of the keys of a query."""
    scores, seen = scored(q, k, causal, alignment, scale)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), -2)
    return weights.masked_fill(~seen, 0.0) @ shared(v, q.shape[1])


def positions_first(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """Inputs are read, and the output is written, as if heads came after positions."""
    swapped = [one.reshape(one.transpose(1, 2).shape).transpose(1, 2) for one in (q, k, v)]
    out = divided(*attend(swapped[0], swapped[1], swapped[2], causal, alignment, scale), swapped[2])
    return out.transpose(1, 2).reshape(q.shape)


def heads_in_turn(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """Heads of queries take heads of keys in turn, in place of neighbours sharing one."""
    k, v = (one.repeat(1, q.shape[1] // one.shape[1], 1, 1) if one.shape[1] else one for one in (k, v))
    return divided(*attend(q, k, v, causal, alignment, scale), v)


def first_keys(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """Only the first 64 keys are seen."""
    return divided(*attend(q, k, v, causal, alignment, scale, keys=64), v)


def last_keys_lost(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None
) -> Tensor:
    """Keys behind the last whole tile of 64 are not seen."""
    return divided(*attend(q, k, v, causal, alignment, scale, keys=k.shape[-2] // 64 * 64), v)


def tile_by_tile(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, alignment: str, scale: float | None, tile: int
) -> Tensor:
    """The softmax over tiles of keys in turn, which forgets to rescale when the highest score grows."""
    scores, seen = scored(q, k, causal, alignment, scale)
    scores = scores.masked_fill(~seen, -math.inf)
    highest = torch.full(scores.shape[:-1], -1e300, dtype=scores.dtype)
    total, out, values = torch.zeros_like(highest), torch.zeros_like(q), shared(v, q.shape[1])
    for first in range(0, k.shape[-2], tile):
        some = scores[..., first : first + tile]
        highest = torch.maximum(highest, some.amax(-1))
        part = (some - highest[..., None]).exp()
        total, out = total + part.sum(-1), out + part @ values[..., first : first + tile, :]
    return out / total.masked_fill(total == 0, 1.0)[..., None]


def stale_32(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """What earlier tiles of 32 keys left stays as it was when the highest score grows."""
    return tile_by_tile(q, k, v, causal, alignment, scale, 32)


def stale_64(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """What earlier tiles of 64 keys left stays as it was when the highest score grows."""
    return tile_by_tile(q, k, v, causal, alignment, scale, 64)
