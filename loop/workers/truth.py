"""What is right, how far an output may be from it, and what is found where it is further."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.dtypes import is_floating
from loop.model.functions import Tolerance
from loop.model.measurement import MapPart, Span
from loop.workers.tails import Tail, tail_of

MAX_SLACK, MAX_FLOOR = 2.0, 1e-5
MEAN_SLACK, MEAN_FLOOR = 1.5, 1e-6
"""A variant may lose this much more than the plain implementation in the same type, plus a floor."""
FEW_ROUNDINGS = 2.0
"""... and never less than so many roundings of the largest value: of a few elements the plain implementation may
by chance lose next to nothing."""
FEW_ELEMENTS = 3.2
"""The mean error of n elements is known to within about this over the root of n, as a share: three standard
deviations of a ratio of two means of magnitudes of normals, 3 sqrt(2) sqrt(pi/2 - 1)."""
SUMS = 4
"""Roundings of the largest value by which two answers of one reference may differ."""
IMPLAUSIBLE, IMPLAUSIBLE_FLOOR = 0.1, 1e-3
"""Rounding does not move a value by more than this share of the largest: the plain implementation is a control of
the reference. Half-precision softmax over logits of standard deviation 30 stays below 0.06."""
LOOSE, NOISE = 16.0, 16.0
"""Where zeros would be right by a tolerance, `atol` is a sixteenth of the root mean square of what is not zero. It
stays where a sixteenth of that is what the reference loses in its own types on average: there is only noise."""
OVERFLOW = "in {dtype} {whose} gives NaN or infinity where the float64 reference gives numbers"
MAP_PARTS = 8
BESIDE = 2
"""Neighbours of a wrong element that are shown on either side."""
PART = 1 << 20, 1 << 26
"""Elements that are compared at a time, on a CPU and on a GPU: so they fit its cache, or its memory."""


@dataclass
class Truth:
    """One right output of a call, and what the element type itself costs."""

    part: TensorFile
    """The output, as it lies among those of the call."""
    dimensions: list[str]
    reference: Tensor
    """float64."""
    plain_max: float
    plain_mean: float
    most: tuple[float, float]
    """What the largest and the mean error may be, as the plain implementation's errors say."""
    allowed: Tensor
    """Allowed absolute error of each element."""
    tolerance: Tolerance
    plain_lost: bool = False
    """Whether the plain implementation has a NaN or infinity where the reference has a number."""
    also: Tensor | None = None
    """Of whole numbers: those of the reference in its own types, which are right, too."""
    stated: Tensor | None = None
    """What the stated tolerance allows, where zeros would be right by it, and less is allowed."""
    rounded: bool = False
    """Whether what rounding the inputs does is allowed for: it is worked out where something seems wrong."""
    tail: Tail | None = None
    """How many elements may be off by more than is stated; None where all of them may be, as far as allowed."""

    @property
    def is_whole(self) -> bool:
        """Whether its elements are whole numbers or truth values, which nothing rounds."""
        return not is_floating(self.part.dtype)

    def on(self, device: str) -> "Truth":
        """The same on a device."""
        also, stated = (None if one is None else one.to(device) for one in (self.also, self.stated))
        reference, allowed = self.reference.to(device), self.allowed.to(device)
        return replace(self, reference=reference, allowed=allowed, also=also, stated=stated)

    def right_as_stated(self, output: Tensor) -> bool:
        """Whether an output is right by the stated tolerance, where zeros would be, too."""
        return self.stated is not None and not self._outside(output, self.stated).any()

    def facing(self, output: Tensor) -> "Truth":
        """The same; with less allowed where so many elements of an output are off that rounding does not do it."""
        if self.tail is None:
            return self
        least = self.tail.crowded_from(beyond(self.tolerance, self.reference, output))
        if least is None:
            return self
        stated = allowed_by(self.tolerance, self.reference).clamp_(min=least * (1 - 2.0**-50))
        return replace(self, allowed=torch.minimum(self.allowed, stated))

    def outside(self, output: Tensor) -> Tensor:
        """Which elements of an output are wrong; of few that are not too far off none, where that is agreed."""
        return self._outside(output, self.allowed)

    def _outside(self, output: Tensor, allowed: Tensor) -> Tensor:
        wrong = outside(output, self.reference, allowed)
        if self.also is not None:
            wrong &= output.double() != self.also
        few = int(wrong.sum()) <= (1 - self.tolerance.matched) * wrong.numel()
        if not few or self.tolerance.matched == 1:
            return wrong
        error = (output.double() - self.reference).abs()
        return wrong & ~(error <= (math.inf if self.tolerance.cap is None else self.tolerance.cap)) | (
            wrong & ~error.isfinite()
        )


def truth_of(
    part: TensorFile, names: list[str], reference: Tensor, plain: Tensor | None, stated: Tolerance
) -> Truth:
    """What is right of an output; `plain`: the plain implementation's, or the reference's in its own types."""
    floating = is_floating(part.dtype)
    plain_max, plain_mean, lost, tolerance, tail = 0.0, 0.0, False, stated, None
    if plain is not None:
        plain_max, plain_mean = errors(plain, reference)
        lost = bool(overflows(plain, reference).any())
        tolerance = tightened(stated, reference, plain_mean, part.dtype) if floating else stated
    allowed = allowed_by(tolerance, reference)
    before = None if tolerance is stated else allowed_by(stated, reference)
    if floating:
        allowed.clamp_(min=MAX_SLACK * plain_max)
        if plain is not None and (stated.atol or stated.rtol) and tolerance.atol < MAX_SLACK * plain_max:
            tail = beyond(tolerance, reference, plain, MAX_SLACK)
    most = most_lost(reference, plain_max, plain_mean, part.dtype if floating else "float64")
    return Truth(
        part, names, reference, plain_max, plain_mean, most, allowed, tolerance, lost, stated=before, tail=tail
    )


def beyond(stated: Tolerance, reference: Tensor, output: Tensor, times: float = 1.0) -> Tail:
    """The tail of an output's errors, so many times as large."""
    found = []
    for one, right in parts(output, reference):
        error = (one - right).abs_().mul_(times)
        found.append(error[error.isfinite() & (error > stated.atol + stated.rtol * right.abs())])
    return tail_of(torch.cat(found))


def loose(truth: Truth) -> str:
    """What is said of a tolerance that is not applied as stated; empty for any other."""
    if truth.stated is None:
        return ""
    return (
        f"the stated atol of {truth.part.name}: zeros would be right by it; {truth.tolerance.atol:.2g} is allowed"
    )


def around(reference: Tensor, output: Tensor, index: list[int]) -> tuple[tuple[float | None, ...], ...]:
    """Expected and got of the elements beside one, along the last dimension."""
    if not index:
        return ()
    low, high = max(0, index[-1] - BESIDE), min(output.shape[-1], index[-1] + BESIDE + 1)
    row = tuple(index[:-1])
    return tuple((number(reference[row][i]), number(output[row][i])) for i in range(low, high))


def error_map(wrong: Tensor, error: Tensor, dimensions: list[str]) -> dict[str, tuple[MapPart, ...]]:
    """Along each dimension, in at most eight parts: how many elements are wrong, and the largest error."""
    found = {}
    for axis, name in enumerate(dimensions):
        size = wrong.shape[axis]
        step = -(-size // MAP_PARTS)
        parts = [(first, min(first + step, size)) for first in range(0, size, step)]
        found[name] = tuple(_part(wrong, error, axis, first, last) for first, last in parts)
    return found


def _part(wrong: Tensor, error: Tensor, axis: int, first: int, last: int) -> MapPart:
    inside = error.narrow(axis, first, last - first)
    largest = number(inside.nan_to_num(math.inf).max())
    return MapPart(
        first=first, last=last - 1, wrong=int(wrong.narrow(axis, first, last - first).sum()), largest=largest
    )


def spans(wrong: Tensor, dimensions: list[str]) -> dict[str, Span]:
    """Along each dimension: the first and the last index with a wrong element, and how many there are."""
    found = {}
    for axis, name in enumerate(dimensions):
        places = wrong.movedim(axis, 0).reshape(wrong.shape[axis], -1).any(1).nonzero().reshape(-1)
        found[name] = Span(first=int(places[0]), last=int(places[-1]), count=len(places), size=wrong.shape[axis])
    return found


def parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape, some elements of each at a time, in float64."""
    flat = [one.reshape(-1) for one in tensors]
    step = PART[flat[0].is_cuda]
    for first in range(0, flat[0].numel(), step):
        yield tuple(one[first : first + step].double() for one in flat)


def same(one: Tensor, other: Tensor) -> bool:
    """Of one shape and equal, NaN in the same places; but for what another order of sums makes of the last bits.

    A library may choose the order by where a tensor lies.
    """
    if one.shape != other.shape:
        return False
    order = SUMS * torch.finfo(one.dtype).eps * largest_of(one) if one.is_floating_point() else 0.0
    return all(
        bool(((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= order)).all()) for a, b in parts(one, other)
    )


def overflows(output: Tensor, reference: Tensor) -> Tensor:
    """Where an output is NaN or infinite, and the reference a number."""
    return reference.isfinite() & ~output.isfinite()


def why_unjudged(truth: Truth, whose: str) -> str:
    """Why no output can be judged by a truth; empty where it can. `whose`: who computed in the output's type."""
    dtype, largest = truth.part.dtype, largest_of(truth.reference)
    most = torch.finfo(getattr(torch, dtype)).max
    if largest > most:
        return f"the right answer reaches {largest:.2g}, {dtype} ends at {most:.2g}"
    return OVERFLOW.format(whose=whose, dtype=dtype) if truth.plain_lost else ""


def doubt(truth: Truth) -> str:
    """Why the reference or the plain implementation must be wrong; empty when rounding explains their
    difference."""
    largest = largest_of(truth.reference)
    if truth.plain_max <= IMPLAUSIBLE * largest + IMPLAUSIBLE_FLOOR:
        return ""
    return (
        f"reference and plain implementation differ by {truth.plain_max:.2g} where values reach {largest:.2g}: "
        "one of them is wrong"
    )


def rounding_may_explain(truth: Truth, outputs: list[Tensor]) -> bool:
    """Whether no output has a NaN or infinity out of place, or is further off than any rounding goes."""
    most = IMPLAUSIBLE * largest_of(truth.reference)

    def finite(output: Tensor) -> bool:
        return all(bool((a.isfinite() == b.isfinite()).all()) for a, b in parts(output, truth.reference))

    return all(finite(output) and errors(output, truth.reference)[0] <= most for output in outputs)


def largest_of(reference: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none."""
    return max((float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) for (one,) in parts(reference)), default=0.0)


def outside(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Which elements are not within their allowed error; NaN is right only where the reference is NaN."""
    found = torch.empty(reference.shape, dtype=torch.bool, device=reference.device)
    flat, first = found.view(-1), 0
    for one, right, most in parts(output, reference, allowed):
        last = first + one.numel()
        flat[first:last] = ~(((one - right).abs() <= most) | (one == right) | (one.isnan() & right.isnan()))
        first = last
    return found


def excess_of(output: Tensor, truth: Truth) -> Tensor:
    """How many times its allowed error an element is off; a NaN or infinity out of place comes first."""
    excess = (output.double() - truth.reference).abs() / truth.allowed.clamp(min=1e-300)
    return excess.nan_to_num(1e300, 1e300).clamp(max=1e300)


def allowed_by(tolerance: Tolerance, reference: Tensor) -> Tensor:
    """What each element may be off."""
    allowed = reference.abs()  # In place from here on: it may be gigabytes.
    return allowed.nan_to_num_(0.0, 0.0, 0.0).mul_(tolerance.rtol).add_(tolerance.atol)


def tightened(stated: Tolerance, reference: Tensor, lost: float, dtype: str) -> Tolerance:
    """A tolerance; with a smaller `atol` where zeros would be right by it, though there is more than noise.

    `lost`: the mean error of the plain implementation, or of the reference in its own types. None at all says that
    nothing was computed in float64: then what is noise is not known.
    """
    if not lost or not 0 < stated.atol < math.inf or not zeros_pass(stated, reference):
        return stated
    seen, squares = 0, 0.0
    for (one,) in parts(reference):
        size = one.nan_to_num(0.0, 0.0, 0.0)
        seen, squares = seen + int(size.count_nonzero()), squares + float(size.square().sum())
    atol, limits = math.sqrt(squares / max(seen, 1)) / LOOSE, torch.finfo(getattr(torch, dtype))
    told = max(NOISE * lost, limits.tiny / limits.eps) < atol < stated.atol
    less = stated.model_copy(update={"atol": atol})
    return less if told and not zeros_pass(less, reference) else stated


def zeros_pass(tolerance: Tolerance, reference: Tensor) -> bool:
    """Whether zeros are right by a tolerance."""
    cap, wrong = math.inf if tolerance.cap is None else tolerance.cap, 0
    for (one,) in parts(reference):
        size = one.abs()
        if not bool((size.isfinite() & (size <= cap)).all()):  # There zeros are wrong, however few there are.
            return False
        wrong += int((size > tolerance.atol + tolerance.rtol * size).sum())
    return bool(reference.numel()) and wrong <= (1 - tolerance.matched) * reference.numel()


def errors(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over the elements that are finite on both sides."""
    largest, total, count = 0.0, 0.0, 0
    for one, right in parts(output, reference):
        difference = (one - right).abs()
        finite = difference.isfinite()
        known = difference.where(finite, 0.0)
        largest, total = max(largest, float(known.max())), total + float(known.sum())
        count += int(finite.sum())
    return largest, total / count if count else 0.0


def apart(truths: Sequence[Truth], others: Sequence[Truth]) -> float:
    """How many times what rounding loses two right answers of one shape are apart, at most."""
    found = 0.0
    for one, other in zip(truths, others, strict=True):
        if one.reference.shape == other.reference.shape:
            distance, _ = errors(other.reference.to(one.reference.device), one.reference)
            lost = one.plain_max + other.plain_max
            if not one.is_whole:
                lost += torch.finfo(getattr(torch, one.part.dtype)).eps * largest_of(one.reference)
            found = max(found, distance / lost if lost else math.inf if distance else 0.0)
    return found


def most_lost(reference: Tensor, plain_max: float, plain_mean: float, dtype: str) -> tuple[float, float]:
    """The largest and the mean error that a variant may have where the plain implementation has these."""
    rounding = torch.finfo(getattr(torch, dtype)).eps / 2 * largest_of(reference)
    uncertain = 1 + FEW_ELEMENTS / math.sqrt(max(1, int(reference.isfinite().sum())))
    return (
        max(MAX_SLACK * plain_max + MAX_FLOOR, FEW_ROUNDINGS * rounding),
        uncertain * MEAN_SLACK * plain_mean + MEAN_FLOOR,
    )


def bound_broken(truth: Truth, largest: float, mean: float) -> str:
    """What a variant loses beyond the plain implementation, in words; empty when nothing."""
    most, most_in_mean = truth.most
    if largest > most:
        return f"largest error {largest:.2g} against {truth.plain_max:.2g} of the plain implementation"
    if mean > most_in_mean:
        return f"mean error {mean:.2g} against {truth.plain_mean:.2g} of the plain implementation"
    return ""


def number(value: Tensor) -> float | None:
    """A scalar for JSON: None stands for NaN, the largest double for infinity."""
    found = float(value)
    if math.isnan(found):
        return None
    return max(min(found, 1.7976931348623157e308), -1.7976931348623157e308)
