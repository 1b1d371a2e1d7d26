"""What is right, how far an output may be from it, and what is found where it is further."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.dtypes import is_floating
from loop.model.measurement import Mismatch, Span
from loop.model.signature import Tolerance
from loop.workers.judge_messages import Finding

FIRST, LAST = -500, 500
"""Powers of two into which errors are sorted."""
TIMES, FEW = 8, 8
"""An output may have that many times as many errors of a size as rounding explains, and a few more."""


def tail_of(errors: Tensor) -> Tensor:
    """How many of some errors, which are positive and finite, reach each power of two: [LAST - FIRST], falling."""
    _, exponents = torch.frexp(errors)  # m 2^e with 0.5 <= m < 1: it reaches 2^(e - 1).
    places = (exponents.long() - 1).clamp(FIRST, LAST - 1) - FIRST
    counts = torch.bincount(places, minlength=LAST - FIRST).cpu()
    return counts.flip(0).cumsum(0).flip(0)


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
    """One right output of a call, and the errors that its element type explains."""

    part: TensorFile
    """The output, as it lies among those of the call."""
    dimensions: list[str]
    reference: Tensor
    """float64."""
    plain_max: float
    plain_mean: float
    most: tuple[float, float]
    """Limits of the largest and the mean error, by the plain implementation's errors."""
    allowed: Tensor
    """Allowed absolute error of each element."""
    tolerance: Tolerance
    plain_lost: bool = False
    """Whether the plain implementation has a NaN or infinity where the reference has a number."""
    also: Tensor | None = None
    """Whole numbers of the reference in its own types, which are right, too."""
    stated: Tensor | None = None
    """Errors that the stated tolerance allows, where zeros would be right by it and less is allowed."""
    rounded: bool = False
    """Whether the effect of rounding the inputs is allowed for: it is worked out where something seems wrong."""
    tail: Tensor | None = None
    """Tail of the errors beyond the stated tolerance that are explained; None: all, as far as allowed."""

    @property
    def is_whole(self) -> bool:
        """Whether its elements are whole numbers or truth values, which nothing rounds."""
        return not is_floating(self.part.dtype)

    def on(self, device: str) -> "Truth":
        """The same on a device."""
        names = [name for name, value in vars(self).items() if isinstance(value, Tensor) and name != "tail"]
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    @property
    def loose(self) -> str:
        """A note on a tolerance that is not applied as stated; empty for any other."""
        atol = self.tolerance.atol
        what = f"the stated atol of {self.part.name}: zeros would be right by it; {atol:.2g} is allowed"
        return what if self.stated is not None else ""

    def facing(self, output: Tensor) -> "Truth":
        """The same, with less allowed where more elements of an output are off than rounding explains."""
        if self.tail is None:
            return self
        crowds = tail_beyond(self.tolerance, self.reference, output) / (TIMES * self.tail + FEW)
        most = crowds.max()
        if most <= 1:
            return self
        # The power of two that too many errors reach, by the largest factor.
        (places,) = (crowds == most).nonzero(as_tuple=True)
        least = 2.0 ** (FIRST + int(places[-1]))
        stated = allowed_by(self.tolerance, self.reference).clamp_(min=least * (1 - 2.0**-50))
        return replace(self, allowed=torch.minimum(self.allowed, stated))

    def outside(self, output: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Which elements of an output are wrong. The tolerance may forgive a share of elements that are not too
        far off. `allowed`: errors in place of its own."""
        wrong = outside_tolerance(output, self.reference, self.allowed if allowed is None else allowed)
        if self.also is not None:
            wrong &= output.double() != self.also
        few = int(wrong.sum()) <= (1 - self.tolerance.matched) * wrong.numel()
        if not few or self.tolerance.matched == 1:
            return wrong
        error = (output.double() - self.reference).abs()
        cap = math.inf if self.tolerance.cap is None else self.tolerance.cap
        return wrong & (~(error <= cap) | ~error.isfinite())


def truth_of(
    part: TensorFile, names: list[str], reference: Tensor, plain: Tensor | None, stated: Tolerance
) -> Truth:
    """The truth of an output; `plain`: the plain implementation's output, or the reference's in its own types."""
    floating = is_floating(part.dtype)
    plain_max, plain_mean, lost, tolerance, tail = 0.0, 0.0, False, stated, None
    if plain is not None:
        plain_max, plain_mean = largest_and_mean_error(plain, reference)
        lost = bool(overflows(plain, reference).any())
        tolerance = tightened_tolerance(stated, reference, plain_mean, part.dtype) if floating else stated
    allowed = allowed_by(tolerance, reference)
    before = None if tolerance is stated else allowed_by(stated, reference)
    if floating:
        allowed.clamp_(min=MAX_SLACK * plain_max)
        if plain is not None and (stated.atol or stated.rtol) and tolerance.atol < MAX_SLACK * plain_max:
            tail = tail_beyond(tolerance, reference, plain, MAX_SLACK)
    most = most_lost(reference, plain_max, plain_mean, part.dtype if floating else "float64")
    return Truth(
        part, names, reference, plain_max, plain_mean, most, allowed, tolerance, lost, stated=before, tail=tail
    )


def tail_beyond(stated: Tolerance, reference: Tensor, output: Tensor, times: float = 1.0) -> Tensor:
    """The tail of an output's errors beyond a tolerance, multiplied by `times`."""
    errors = []
    for values, right in parts(output, reference):
        error = (values - right).abs_().mul_(times)
        errors.append(error[error.isfinite() & (error > stated.atol + stated.rtol * right.abs())])
    return tail_of(torch.cat(errors))


def parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape, some elements of each at a time, in float64."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    step = PART[flat[0].is_cuda]
    for first in range(0, flat[0].numel(), step):
        yield tuple(tensor[first : first + step].double() for tensor in flat)


def same_answer(answer: Tensor, other: Tensor) -> bool:
    """Whether two answers are of one shape and equal, NaN in the same places, but for the order of sums.

    A library may choose the order by where a tensor lies. It changes the last bits.
    """
    if answer.shape != other.shape:
        return False
    order = SUMS * torch.finfo(answer.dtype).eps * largest_of(answer) if answer.is_floating_point() else 0.0
    return all(
        bool(((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= order)).all())
        for a, b in parts(answer, other)
    )


def overflows(output: Tensor, reference: Tensor) -> Tensor:
    """Where an output is NaN or infinite, and the reference a number."""
    return reference.isfinite() & ~output.isfinite()


def why_unjudged(truth: Truth, whose: str) -> str:
    """Why no output can be judged by a truth; empty where it can. `whose`: the function that overflows."""
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
    for output in outputs:
        if largest_and_mean_error(output, truth.reference)[0] > most:
            return False
        if any(bool((a.isfinite() != b.isfinite()).any()) for a, b in parts(output, truth.reference)):
            return False
    return True


def largest_of(reference: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none."""
    sizes = (values.abs().nan_to_num(0.0, 0.0, 0.0) for (values,) in parts(reference))
    return max((float(size.max()) for size in sizes), default=0.0)


def outside_tolerance(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Which elements are not within their allowed error; NaN is right only where the reference is NaN."""
    wrong = torch.empty(reference.shape, dtype=torch.bool, device=reference.device)
    flat, first = wrong.view(-1), 0
    for got, right, most in parts(output, reference, allowed):
        last = first + got.numel()
        flat[first:last] = ~(((got - right).abs() <= most) | (got == right) | (got.isnan() & right.isnan()))
        first = last
    return wrong


def allowed_by(tolerance: Tolerance, reference: Tensor) -> Tensor:
    """The allowed error of each element."""
    allowed = reference.abs()  # In place from here on: it may be gigabytes.
    return allowed.nan_to_num_(0.0, 0.0, 0.0).mul_(tolerance.rtol).add_(tolerance.atol)


def tightened_tolerance(stated: Tolerance, reference: Tensor, lost: float, dtype: str) -> Tolerance:
    """A tolerance, with a smaller `atol` where zeros would be right by it though the output is more than noise.

    `lost`: the mean error of the plain implementation, or of the reference in its own types. 0 says that nothing
    was computed in float64: then the noise is unknown.
    """
    if not lost or not 0 < stated.atol < math.inf or not zeros_pass(stated, reference):
        return stated
    count, squares = 0, 0.0
    for (values,) in parts(reference):
        size = values.nan_to_num(0.0, 0.0, 0.0)
        count, squares = count + int(size.count_nonzero()), squares + float(size.square().sum())
    atol, limits = math.sqrt(squares / max(count, 1)) / LOOSE, torch.finfo(getattr(torch, dtype))
    above_noise = max(NOISE * lost, limits.tiny / limits.eps) < atol < stated.atol
    less = stated.model_copy(update={"atol": atol})
    return less if above_noise and not zeros_pass(less, reference) else stated


def zeros_pass(tolerance: Tolerance, reference: Tensor) -> bool:
    """Whether zeros are right by a tolerance."""
    cap, wrong = math.inf if tolerance.cap is None else tolerance.cap, 0
    for (values,) in parts(reference):
        size = values.abs()
        if not bool((size.isfinite() & (size <= cap)).all()):  # There zeros are wrong, however few there are.
            return False
        wrong += int((size > tolerance.atol + tolerance.rtol * size).sum())
    return bool(reference.numel()) and wrong <= (1 - tolerance.matched) * reference.numel()


def largest_and_mean_error(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over the elements that are finite on both sides."""
    largest, total, count = 0.0, 0.0, 0
    for values, right in parts(output, reference):
        difference = (values - right).abs()
        finite = difference.isfinite()
        known = difference.where(finite, 0.0)
        largest, total = max(largest, float(known.max())), total + float(known.sum())
        count += int(finite.sum())
    return largest, total / count if count else 0.0


def distance(truths: Sequence[Truth], others: Sequence[Truth]) -> float:
    """The largest distance between two right answers of one shape, in units of their rounding errors."""
    most = 0.0
    for truth, other in zip(truths, others, strict=True):
        if truth.reference.shape == other.reference.shape:
            difference, _ = largest_and_mean_error(other.reference.to(truth.reference.device), truth.reference)
            lost = truth.plain_max + other.plain_max
            if not truth.is_whole:
                lost += torch.finfo(getattr(torch, truth.part.dtype)).eps * largest_of(truth.reference)
            most = max(most, difference / lost if lost else math.inf if difference else 0.0)
    return most


def most_lost(reference: Tensor, plain_max: float, plain_mean: float, dtype: str) -> tuple[float, float]:
    """Limits of a variant's largest and mean error, from those of the plain implementation."""
    rounding = torch.finfo(getattr(torch, dtype)).eps / 2 * largest_of(reference)
    uncertain = 1 + FEW_ELEMENTS / math.sqrt(max(1, int(reference.isfinite().sum())))
    return (
        max(MAX_SLACK * plain_max + MAX_FLOOR, FEW_ROUNDINGS * rounding),
        uncertain * MEAN_SLACK * plain_mean + MEAN_FLOOR,
    )


def json_number(value: Tensor) -> float | None:
    """A scalar for JSON: None stands for NaN, the largest double for infinity."""
    plain = float(value)
    return None if math.isnan(plain) else max(min(plain, sys.float_info.max), -sys.float_info.max)


def finding(truth: Truth, output: Tensor, *, bounded: bool) -> Finding:
    """The finding of an output, in its own type or float64. Most of it is filled only where elements are wrong.

    `bounded`: it may lose no more than the plain implementation does.
    """
    wrong = truth.outside(output)
    largest, mean = largest_and_mean_error(output, truth.reference)
    count, message, (most, most_in_mean) = int(wrong.sum()), "", truth.most
    if bounded and not truth.is_whole and largest > most:
        message = f"largest error {largest:.2g} against {truth.plain_max:.2g} of the plain implementation"
    elif bounded and not truth.is_whole and mean > most_in_mean:
        message = f"mean error {mean:.2g} against {truth.plain_mean:.2g} of the plain implementation"
    worst, allowed_error = -1.0, None
    for values, right, allowed in parts(output, truth.reference, truth.allowed):
        error = (values - right).abs().nan_to_num(0.0, 0.0, 0.0)
        place = int(error.argmax())
        if float(error[place]) > worst:
            worst, allowed_error = float(error[place]), float(allowed[place])
    result = Finding(
        max_error=largest,
        allowed_error=allowed_error,
        plain_max_error=truth.plain_max if bounded else None,
        wrong=count,
        total=output.numel(),
        message=message,
    )
    if not count:
        return result
    exact = output.double()
    error = (exact - truth.reference).abs()
    # In units of the allowed error; a NaN or infinity out of place is the worst.
    excess = (error / truth.allowed.clamp(min=1e-300)).nan_to_num(1e300, 1e300).clamp(max=1e300)
    # NaN or infinity where it belongs is no error.
    error = torch.where(wrong, error, error.nan_to_num(0.0, 0.0)).nan_to_num(math.inf)
    maps, spans = dict[str, tuple[Span, ...]](), dict[str, Span]()
    for axis, name in enumerate(truth.dimensions):
        size, stretches = wrong.shape[axis], list[Span]()
        step = -(-size // MAP_PARTS)
        for first in range(0, size, step):
            length = min(step, size - first)
            largest_there = json_number(error.narrow(axis, first, length).max())
            wrong_there, last = int(wrong.narrow(axis, first, length).sum()), first + length - 1
            stretches.append(Span(first=first, last=last, count=wrong_there, largest=largest_there))
        maps[name] = tuple(stretches)
        places = wrong.movedim(axis, 0).reshape(size, -1).any(1).nonzero().reshape(-1)
        spans[name] = Span(first=int(places[0]), last=int(places[-1]), count=len(places), size=size)
    return result.but(
        loose=truth.stated is not None and not truth.outside(output, truth.stated).any(),
        first=_mismatch(truth, exact, wrong),
        worst=_mismatch(truth, exact, excess * wrong),
        map=maps,
        spans=spans,
    )


def _mismatch(truth: Truth, output: Tensor, how_much: Tensor) -> Mismatch:
    """The first of the elements with the largest `how_much`, and those beside it along the last dimension."""
    flat = int(how_much.double().reshape(-1).argmax())
    index, beside = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)], []
    if index:
        low, high = max(0, index[-1] - BESIDE), min(output.shape[-1], index[-1] + BESIDE + 1)
        rows = truth.reference[tuple(index[:-1])], output[tuple(index[:-1])]
        beside = [(json_number(rows[0][i]), json_number(rows[1][i])) for i in range(low, high)]
    return Mismatch(
        index=dict(zip(truth.dimensions, index, strict=True)),
        expected=json_number(truth.reference.reshape(-1)[flat]),
        got=json_number(output.reshape(-1)[flat]),
        allowed=float(truth.allowed.reshape(-1)[flat]),
        around=tuple(beside),
    )


def are_ties(inputs: Sequence[Tensor], truth: Truth, output: Tensor) -> bool:
    """Whether wrong indices, as of a maximum or a sorting, point to the same values of an input as the right ones.

    They may count along one of its axes, or through all of it.
    """
    if not truth.is_whole or output.dtype == torch.bool:
        return False
    right, got, wrong = truth.reference.long(), output.long(), truth.outside(output)

    def point_alike(rows: Tensor, axis: int) -> bool:
        """Whether both point to the same values along the last axis of `rows`, which was that one before."""
        if bool(((right < 0) | (right >= rows.shape[-1]) | (got < 0) | (got >= rows.shape[-1])).any()):
            return False
        if rows.dim() == 1:
            return bool((rows[right] == rows[got])[wrong].all())
        if right.shape == rows.shape[:-1]:
            alike = rows.gather(-1, right[..., None]) == rows.gather(-1, got[..., None])
            return bool(alike[..., 0][wrong].all())
        if right.dim() != rows.dim() or right.movedim(axis, -1).shape[:-1] != rows.shape[:-1]:
            return False
        alike = rows.gather(-1, right.movedim(axis, -1)) == rows.gather(-1, got.movedim(axis, -1))
        return bool(alike.movedim(-1, axis)[wrong].all())

    return bool(wrong.any()) and any(
        point_alike(values.reshape(-1) if axis is None else values.movedim(axis, -1), axis or 0)
        for values in inputs
        if values.numel()
        for axis in (None, *range(values.dim()))
    )


HALF_ROUNDINGS = 2.0
"""Roundings of every input that an answer in half precision may be worth: its kernels compute in float32, and
round what they read and what they multiply."""
ROUNDINGS = 16.0
"""The same in wider types: a polynomial exponential is off by a few units in the last place each time."""
SUMMING = 1.0
"""... and more for each root of a term: roundings of n partial sums, which grow like their number, are a random
walk of standard deviation sqrt(n)/3 roundings of the sum. Three of those."""
NARROWER, LINEAR, CUBIC, FLOAT64_NOISE = 16.0, 4.0, 16.0**3, 1e-12
"""A step so much narrower has to move an element at least so much less, and at most so much: where it does not,
the function jumps there (an index, a comparison), and no rounding is forgiven. Differences below this share of the
largest element are float64's own rounding."""
AnswerTo = Callable[[list[Tensor]], Tensor]
"""The exact answer to other inputs."""


def input_rounding_effect(
    answer: AnswerTo, inputs: Sequence[Tensor], reference: Tensor, dtype: str
) -> tuple[Tensor, float, float]:
    """How far the exact `answer` moves from `reference` when every input is rounded: by element, most, on average.

    Inputs are rounded in the type of the call, `dtype`, or in their own where that is wider: what is narrower
    converts exactly. They are rounded at random, and all upwards: random roundings average out in a long sum,
    while errors of its partial sums do not.
    """
    most = torch.finfo(getattr(torch, dtype)).eps
    eps = [min(most, torch.finfo(t.dtype).eps) if t.is_floating_point() else 0.0 for t in inputs]

    def by(signs: Sequence[Tensor], share: float) -> Tensor:
        near = [
            tensor.double() * (1 + (sign * share * ulp / 2).double()) if tensor.is_floating_point() else tensor
            for tensor, sign, ulp in zip(inputs, signs, eps, strict=True)
        ]
        return (answer(near) - reference).abs()

    movements = []
    for signs in ([signs_of(tensor) for tensor in inputs], [torch.ones(())] * len(inputs)):
        far, near = by(signs, 1.0), by(signs, 1 / NARROWER)
        finite = reference.isfinite() & far.isfinite()
        noise = FLOAT64_NOISE * float(reference.abs()[finite].max()) if bool(finite.any()) else 0.0
        jumps = (far < LINEAR * near) | ((far > CUBIC * near) & (far > noise))
        movements.append(far.masked_fill_(jumps | ~finite, 0.0))
    each, count = torch.maximum(*movements), max(int(reference.isfinite().sum()), 1)
    largest = float(each.max()) if each.numel() else 0.0
    return each, largest, max(float(movement.sum()) for movement in movements) / count


def signs_of(like: Tensor, seed: int = 0) -> Tensor:
    """One or minus one for each element, the same each time."""
    draw = torch.Generator(like.device).manual_seed(seed)
    return torch.randint(2, like.shape, generator=draw, device=like.device).double() * 2 - 1


def roundings(dtype: str, terms: int) -> float:
    """How many roundings of its inputs an answer that sums so many terms may be worth."""
    if torch.finfo(getattr(torch, dtype)).bits < 32:
        return HALF_ROUNDINGS
    return ROUNDINGS + SUMMING * math.sqrt(terms)
