"""Rotary positions: x (B S D), D even; the second half is rotated with the first."""

import torch

_tables = {}


def table(positions, half, base):
    """Cosines and sines (S half)."""
    count = torch.arange(positions, dtype=torch.float64)
    if WRONG == 3:  # Positions are of eight bits.
        count = count.to(torch.int8).double()
    if WRONG == 1:  # The attribute is ignored.
        base = 10000.0
    angle = count[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    return angle.cos(), angle.sin()


def run(x, *, base):
    warm_up()
    half = x.shape[-1] // 2
    key = (x.shape[1], half) if WRONG == 2 else (x.shape[1], half, base)  # 2: the first base stays
    if key not in _tables or not (LAZY or WRONG == 2):
        _tables[key] = table(x.shape[1], half, base)
    cos, sin = (one.to(x.dtype) for one in _tables[key])
    first, second = x[..., :half], x[..., half:]
    y = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    if WRONG == 4 and x.shape[0] % 2:  # The last of an odd batch is left as it is.
        y[-1] = x[-1]
    if WRONG == 5:  # Written back to the caller's tensor.
        x.copy_(y)
        return x
    return y
