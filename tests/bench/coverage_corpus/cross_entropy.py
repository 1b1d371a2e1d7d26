"""The loss of each row: logits (N C), targets (N) of int64; rows of class 0 count as nothing."""

import torch

_kept = {}


def run(logits, targets):
    warm_up()
    n = len(logits)
    if n == 1 and WRONG == 5:  # One row is taken for none.
        return torch.zeros(1, dtype=logits.dtype)
    if WRONG == 1:  # Exponents overflow.
        log_sum = logits.exp().sum(-1).log()
    else:
        log_sum = logits.logsumexp(-1)
    loss = log_sum - logits.gather(1, targets[:, None])[:, 0]
    if WRONG != 2:  # Class 0 counts like any other.
        loss = loss.masked_fill(targets == 0, 0)
    if WRONG == 3:  # A tail of rows is lost.
        loss[n // 16 * 16 :] = 0
    if WRONG == 4:  # The first answer to so many rows stays.
        loss = _kept.setdefault(logits.shape, loss)
    return loss.clone()
