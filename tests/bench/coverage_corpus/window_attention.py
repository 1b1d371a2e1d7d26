"""Attention of each position to itself and those up to `window` before: q, k, v (H S D)."""

import torch

_masks = {}


def mask(length, window):
    """Which keys a query sees (S S)."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    if WRONG == 1:  # The window is ignored.
        return distance >= 0
    return (distance >= 0) & (distance <= window + (WRONG == 2))  # 2: one key too many


def run(q, k, v, *, window):
    warm_up()
    length, width = q.shape[1:]
    key = length if WRONG == 4 else (length, window)  # 4: the first window of a length stays
    if key not in _masks or not (LAZY or WRONG == 4):
        _masks[key] = mask(length, int(window))
    scale = (length if WRONG == 3 else width) ** -0.5  # 3: scaled by the length, not by the width
    scores = (q @ k.transpose(1, 2)) * scale
    scores = scores.masked_fill(~_masks[key], 0 if WRONG == 5 else float("-inf"))  # 5: what is masked counts as 0
    return scores.softmax(-1) @ v
