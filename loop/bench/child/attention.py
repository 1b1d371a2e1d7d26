"""The bundled target's own functions: attention written out, and PyTorch's library call."""

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def visible(queries: int, keys: int, alignment: str, device: torch.device) -> Tensor:
    """Which key each query may see under a causal mask, [Sq, Sk].

    `top_left`: key j is visible to query i when j <= i, as in SDPA's `is_causal`.
    `bottom_right`: when j <= i + Sk - Sq, as in FlashAttention from 2.1 on.
    """
    shift = keys - queries if alignment == "bottom_right" else 0
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(diagonal=shift)


def eager(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """softmax(scale * Q K^T + mask) V in the type of the inputs; rows that see no key are zero.

    q [B, H, Sq, D], k and v [B, H, Sk, D]; returns [B, H, Sq, D]. `scale` None is 1/sqrt(D).
    """
    scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if not causal:
        return torch.softmax(scores, dim=-1) @ v
    mask = visible(q.shape[-2], k.shape[-2], alignment, q.device)
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    return weights @ v


def torch_sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """PyTorch's scaled_dot_product_attention: what a user would otherwise run. Shapes as in `eager`.

    The library masks from the top left only; the other alignment is given to it as an explicit mask.
    """
    if not causal or alignment == "top_left":
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    mask = visible(q.shape[-2], k.shape[-2], alignment, q.device)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
