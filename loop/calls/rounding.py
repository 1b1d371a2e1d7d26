"""What rounding may do to an answer: how far the exact answer moves when the inputs are rounded once more.

A backward-stable algorithm gives the exact answer to inputs that are off by some roundings, whatever the order in
which it sums and however it takes an exponential (Higham, Accuracy and Stability of Numerical Algorithms, 1.5). So
the answer's sensitivity bounds what a variant loses, where the one plain implementation happens to lose less.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HALF_ROUNDINGS = 2.0
"""Roundings of every input that an answer in half precision may be worth: its kernels compute in float32, and
round what they read and what they multiply."""
ROUNDINGS = 16.0
"""The same in wider types: a polynomial exponential is off by a few units in the last place each time."""
SUMMING = 1.0
"""... and more for each root of a term: roundings of n partial sums, which grow like their number, are a random
walk of standard deviation sqrt(n)/3 roundings of the sum. Three of those."""
NARROWER, LINEAR, CUBIC, NOISE = 16.0, 4.0, 16.0**3, 1e-12
"""A step so much narrower has to move an element at least so much less, and at most so much: where it does not,
the function jumps there (an index, a comparison), and no rounding is forgiven. What is less than this share of the
largest element is float64's own rounding."""

DRAWS, STEP, SLACK = 8, 2.0**-51, 4.0
"""Times that inputs are moved by two of float64's roundings, and how far an element may be off, in such moves."""


@dataclass(frozen=True)
class Moved:
    """What one rounding of every input does to an answer, over its elements."""

    each: Tensor
    """By element, in float64; 0 where the function jumps."""
    largest: float
    mean: float

    def times(self, factor: float) -> "Moved":
        """That of several roundings; by element in place, for it may be gigabytes."""
        return Moved(self.each.mul_(factor), self.largest * factor, self.mean * factor)


def moved(
    answer: Callable[[list[Tensor]], Tensor], inputs: Sequence[Tensor], reference: Tensor, dtype: str
) -> Moved:
    """How far the exact `answer` moves from `reference` when every input is rounded: at random, or all upwards.

    In the type of the call, `dtype`, or in its own, where that is wider: what is narrower converts exactly.

    Random roundings average out in a long sum, as errors of its partial sums do not; all the same way they stay.
    """
    at_random = [_signs(one) for one in inputs]
    most = torch.finfo(getattr(torch, dtype)).eps
    eps = [min(most, torch.finfo(one.dtype).eps) if one.is_floating_point() else 0.0 for one in inputs]
    upwards = [torch.ones(())] * len(inputs)
    one, other = (_moved(answer, inputs, reference, signs, eps) for signs in (at_random, upwards))
    each, count = torch.maximum(one, other), max(int(reference.isfinite().sum()), 1)
    largest = float(each.max()) if each.numel() else 0.0
    return Moved(each, largest, max(float(one.sum()), float(other.sum())) / count)


def noise(answer: Callable[[list[Tensor]], Tensor], inputs: Sequence[Tensor], reference: Tensor) -> Tensor:
    """What float64 itself loses of each element: how far it moves when inputs change by a few of float64's
    roundings. An exact zero that is the difference of large numbers shows so."""
    most = torch.zeros_like(reference)
    for seed in range(DRAWS):
        near = [
            one.double() * (1 + STEP * _signs(one, seed)) if one.is_floating_point() else one for one in inputs
        ]
        moved_by = (answer(near) - reference).abs()
        most = torch.maximum(most, moved_by.where(moved_by.isfinite(), 0.0))
    return SLACK * most


def _signs(like: Tensor, seed: int = 0) -> Tensor:
    """One or minus one for each element, the same each time."""
    draw = torch.Generator(like.device).manual_seed(seed)
    return torch.randint(2, like.shape, generator=draw, device=like.device).double() * 2 - 1


def _moved(
    answer: Callable[[list[Tensor]], Tensor],
    inputs: Sequence[Tensor],
    reference: Tensor,
    signs: Sequence[Tensor],
    eps: Sequence[float],
) -> Tensor:
    def by(share: float) -> Tensor:
        steps = [sign * share * one / 2 for sign, one in zip(signs, eps, strict=True)]
        rounded = zip(inputs, steps, strict=True)
        near = [one.double() * (1 + step.double()) if one.is_floating_point() else one for one, step in rounded]
        return (answer(near) - reference).abs()

    far, near = by(1.0), by(1 / NARROWER)
    finite = reference.isfinite() & far.isfinite()
    noise = NOISE * float(reference.abs()[finite].max()) if bool(finite.any()) else 0.0
    jumps = (far < LINEAR * near) | ((far > CUBIC * near) & (far > noise))
    return far.masked_fill_(jumps | ~finite, 0.0)


def roundings(dtype: str, terms: int) -> float:
    """How many roundings of its inputs an answer that sums so many terms may be worth."""
    if torch.finfo(getattr(torch, dtype)).bits < 32:
        return HALF_ROUNDINGS
    return ROUNDINGS + SUMMING * math.sqrt(terms)


def terms_of(output: str, sizes: Mapping[str, int]) -> int:
    """Terms that an element may sum: over the dimensions that the output lacks, or along one that it has."""
    kept = output.split()
    summed = math.prod(size for name, size in sizes.items() if name not in kept)
    return max([summed, *(sizes[name] for name in kept)])
