"""What is found in an output where it is held against the truth."""

from collections.abc import Sequence

import torch
from torch import Tensor

from loop.model.measurement import Mismatch
from loop.workers.judge_messages import Finding
from loop.workers.truth import Truth, around, bound_broken, error_map, errors, excess_of, number, parts, spans


def finding(truth: Truth, output: Tensor, *, bounded: bool) -> Finding:
    """What is found in an output, in its own type or float64: most of it only where elements are wrong.

    `bounded`: it may lose no more than the plain implementation does.
    """
    wrong = truth.outside(output)
    largest, mean = errors(output, truth.reference)
    count = int(wrong.sum())
    found = Finding(
        max_error=largest,
        allowed_error=_allowed_where_worst(truth, output),
        plain_max_error=truth.plain_max if bounded else None,
        wrong=count,
        total=output.numel(),
        message=bound_broken(truth, largest, mean) if bounded and not truth.is_whole else "",
        first=None,
        worst=None,
        map={},
        spans={},
    )
    if not count:
        return found
    exact = output.double()
    error = (exact - truth.reference).abs()
    # NaN or infinity where it belongs is no error.
    error = torch.where(wrong, error, error.nan_to_num(0.0, 0.0))
    return found.but(
        loose=truth.right_as_stated(output),
        first=_wrong(truth, exact, wrong),
        worst=_wrong(truth, exact, excess_of(exact, truth) * wrong),
        map=error_map(wrong, error, truth.dimensions),
        spans=spans(wrong, truth.dimensions),
    )


def _wrong(truth: Truth, output: Tensor, how_much: Tensor) -> Mismatch:
    """The first of the elements that are wrong most."""
    flat = int(how_much.double().reshape(-1).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)]
    return Mismatch(
        index=dict(zip(truth.dimensions, index, strict=True)),
        expected=number(truth.reference.reshape(-1)[flat]),
        got=number(output.reshape(-1)[flat]),
        allowed=float(truth.allowed.reshape(-1)[flat]),
        around=around(truth.reference, output, index),
    )


def _allowed_where_worst(truth: Truth, output: Tensor) -> float | None:
    """What the element with the largest error may be off; None where there is no element."""
    largest, allowed = -1.0, None
    for one, right, most in parts(output, truth.reference, truth.allowed):
        error = (one - right).abs().nan_to_num(0.0, 0.0, 0.0)
        place = int(error.argmax())
        if float(error[place]) > largest:
            largest, allowed = float(error[place]), float(most[place])
    return allowed


def are_ties(inputs: Sequence[Tensor], truth: Truth, output: Tensor) -> bool:
    """Whether wrong indices, as of a maximum, a sorting or the largest few, lead to the very values of the right
    ones in an input: along one of its axes, or in all of it."""
    if not truth.is_whole or output.dtype == torch.bool:
        return False
    right, given, wrong = truth.reference.long(), output.long(), truth.outside(output)
    return bool(wrong.any()) and any(
        _lead_alike(one, axis, right, given, wrong)
        for one in inputs
        if one.numel()
        for axis in (None, *range(one.dim()))
    )


def _lead_alike(values: Tensor, axis: int | None, right: Tensor, given: Tensor, wrong: Tensor) -> bool:
    size = values.numel() if axis is None else values.shape[axis]
    if bool(((right < 0) | (right >= size) | (given < 0) | (given >= size)).any()):
        return False
    if axis is None:
        flat = values.reshape(-1)
        return bool((flat[right] == flat[given])[wrong].all())
    rows = values.movedim(axis, -1)
    shaped = []
    for index in (right, given):
        if index.dim() == values.dim() - 1 and index.shape == rows.shape[:-1]:
            shaped.append(rows.gather(-1, index[..., None])[..., 0])
        elif index.dim() == values.dim() and index.movedim(axis, -1).shape[:-1] == rows.shape[:-1]:
            shaped.append(rows.gather(-1, index.movedim(axis, -1)).movedim(-1, axis))
        else:
            return False
    return bool((shaped[0] == shaped[1])[wrong].all())
