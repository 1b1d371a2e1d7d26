"""The right output of a call, the error that an output may have, and the comparison of both."""

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

MIN_EXPONENT, MAX_EXPONENT = -500, 500
"""Range of powers of two by which errors are counted."""
EXPECTED_FACTOR, EXPECTED_EXTRA = 8, 8
"""Errors of a size may be TIMES as frequent as rounding explains, plus FEW."""


def count_by_magnitude(errors: Tensor) -> Tensor:
    """Count how many errors (positive, finite) reach each power of two: [LAST - FIRST], falling."""
    _, exponents = torch.frexp(errors)  # m 2^e with 0.5 <= m < 1: it reaches 2^(e - 1).
    places = (exponents.long() - 1).clamp(MIN_EXPONENT, MAX_EXPONENT - 1) - MIN_EXPONENT
    counts = torch.bincount(places, minlength=MAX_EXPONENT - MIN_EXPONENT).cpu()
    return counts.flip(0).cumsum(0).flip(0)


MAX_SLACK, MAX_FLOOR = 2.0, 1e-5
MEAN_SLACK, MEAN_FLOOR = 1.5, 1e-6
"""Limits on a variant's largest and mean error: the plain implementation's, scaled, plus this."""
FEW_ROUNDINGS = 2.0
"""The limit is at least this many roundings of the largest value: with few elements, the plain
implementation may be almost exact by chance."""
FEW_ELEMENTS = 3.2
"""Relative uncertainty of a mean error over n elements, times sqrt(n): three standard deviations of
a ratio of two means of magnitudes of normals, 3 sqrt(2) sqrt(pi/2 - 1)."""
SUMMATION_ROUNDINGS = 4
"""Roundings of the largest value by which two runs of one reference may differ."""
IMPLAUSIBLE, IMPLAUSIBLE_FLOOR = 0.1, 1e-3
"""Largest share of the largest value that rounding can explain. A larger difference between plain
implementation and reference means that one is wrong. Half-precision softmax of logits with standard
deviation 30 stays below 0.06."""
ZEROS_DIVISOR, NOISE_FACTOR = 16.0, 16.0
"""If zeros would pass the stated tolerance, `atol` becomes 1/16 of the RMS of the nonzero values.
It stays as stated if 1/16 of that is below the reference's mean rounding error: the output is
noise."""
OVERFLOW = "in {dtype} {whose} gives NaN or infinity where the float64 reference gives numbers"
MAP_STRETCHES = 8
NEIGHBOURS = 2
"""Neighbours of a wrong element that a report shows on either side."""
SLICE_ELEMENTS = 1 << 20, 1 << 26
"""Elements compared at a time, on a CPU (fits the cache) and on a GPU (fits the memory)."""


@dataclass
class Truth:
    """One right output of a call, and the errors that its element type explains."""

    file: TensorFile
    """The output's place in the call's block of outputs."""
    dimension_names: list[str]
    reference: Tensor
    """The right output in float64."""
    plain_max: float
    plain_mean: float
    error_limits: tuple[float, float]
    """Limits of the largest and the mean error, from the plain implementation's errors."""
    allowed: Tensor
    """Allowed absolute error of each element."""
    tolerance: Tolerance
    plain_overflows: bool = False
    """Whether the plain implementation has NaN or infinity where the reference is finite."""
    own_type_output: Tensor | None = None
    """Integer output of the reference in its own types, right too; None for floating point."""
    stated_allowed: Tensor | None = None
    """Errors allowed by the stated tolerance, if `tolerance` was tightened; otherwise None."""
    allows_input_rounding: bool = False
    """Whether the effect of rounded inputs is included; computed only if something seems wrong."""
    explained_counts: Tensor | None = None
    """Explained errors beyond the stated tolerance, as `tail_of` counts; None: no count applies."""

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or booleans, which are never rounded."""
        return not is_floating(self.file.dtype)

    def copy_to(self, device: str) -> "Truth":
        """Copy the tensors to a device."""
        names = [
            name for name, value in vars(self).items() if isinstance(value, Tensor) and name != "explained_counts"
        ]
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    @property
    def tightening_note(self) -> str:
        """A note that the stated tolerance was tightened; empty if it applies as stated."""
        atol = self.tolerance.atol
        what = f"the stated atol of {self.file.name}: zeros would be right by it; {atol:.2g} is allowed"
        return what if self.stated_allowed is not None else ""

    def tighten_for(self, output: Tensor) -> "Truth":
        """Reduce the allowed errors if more elements of `output` are off than rounding explains."""
        if self.explained_counts is None:
            return self
        crowds = count_errors_beyond(self.tolerance, self.reference, output) / (
            EXPECTED_FACTOR * self.explained_counts + EXPECTED_EXTRA
        )
        most = crowds.max()
        if most <= 1:
            return self
        # The power of two with the largest excess of errors.
        (places,) = (crowds == most).nonzero(as_tuple=True)
        least = 2.0 ** (MIN_EXPONENT + int(places[-1]))
        stated = allowed_errors(self.tolerance, self.reference).clamp_(min=least * (1 - 2.0**-50))
        return replace(self, allowed=torch.minimum(self.allowed, stated))

    def mask_wrong(self, output: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Mask of an output's wrong elements. `allowed`: errors that replace its own. If the
        tolerance has `matched` below 1, a share of errors up to its `cap` is forgiven."""
        wrong = mask_outside(output, self.reference, self.allowed if allowed is None else allowed)
        if self.own_type_output is not None:
            wrong &= output.double() != self.own_type_output
        few = int(wrong.sum()) <= (1 - self.tolerance.matched) * wrong.numel()
        if not few or self.tolerance.matched == 1:
            return wrong
        error = (output.double() - self.reference).abs()
        cap = math.inf if self.tolerance.cap is None else self.tolerance.cap
        return wrong & (~(error <= cap) | ~error.isfinite())


def make_truth(
    file: TensorFile, dimension_names: list[str], reference: Tensor, plain: Tensor | None, stated: Tolerance
) -> Truth:
    """Make the Truth of one output. `plain`: the output of the plain implementation, or of the
    reference in its own types; None if unknown."""
    floating = is_floating(file.dtype)
    plain_max, plain_mean, lost, tolerance, tail = 0.0, 0.0, False, stated, None
    if plain is not None:
        plain_max, plain_mean = largest_and_mean_error(plain, reference)
        lost = bool(mask_overflow(plain, reference).any())
        tolerance = tighten_tolerance(stated, reference, plain_mean, file.dtype) if floating else stated
    allowed = allowed_errors(tolerance, reference)
    before = None if tolerance is stated else allowed_errors(stated, reference)
    if floating:
        allowed.clamp_(min=MAX_SLACK * plain_max)
        if plain is not None and (stated.atol or stated.rtol) and tolerance.atol < MAX_SLACK * plain_max:
            tail = count_errors_beyond(tolerance, reference, plain, MAX_SLACK)
    most = error_limits(reference, plain_max, plain_mean, file.dtype if floating else "float64")
    return Truth(
        file,
        dimension_names,
        reference,
        plain_max,
        plain_mean,
        most,
        allowed,
        tolerance,
        lost,
        stated_allowed=before,
        explained_counts=tail,
    )


def count_errors_beyond(tolerance: Tolerance, reference: Tensor, output: Tensor, factor: float = 1.0) -> Tensor:
    """Count (`tail_of`) the errors beyond a tolerance, after multiplying them by `times`."""
    errors = []
    for values, right in float64_slices(output, reference):
        error = (values - right).abs_().mul_(factor)
        errors.append(error[error.isfinite() & (error > tolerance.atol + tolerance.rtol * right.abs())])
    return count_by_magnitude(torch.cat(errors))


def float64_slices(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield slices of several equally shaped tensors, flat and in float64, to bound the memory."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    step = SLICE_ELEMENTS[flat[0].is_cuda]
    for first in range(0, flat[0].numel(), step):
        yield tuple(tensor[first : first + step].double() for tensor in flat)


def answers_agree(answer: Tensor, other: Tensor) -> bool:
    """Whether two answers agree up to the order of summation: shape, values, NaN positions. A
    library may choose that order by the tensor's address, which changes the last bits."""
    if answer.shape != other.shape:
        return False
    order = (
        SUMMATION_ROUNDINGS * torch.finfo(answer.dtype).eps * largest_magnitude(answer)
        if answer.is_floating_point()
        else 0.0
    )
    return all(
        bool(((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= order)).all())
        for a, b in float64_slices(answer, other)
    )


def mask_overflow(output: Tensor, reference: Tensor) -> Tensor:
    """Mask where an output is NaN or infinite but the reference is finite."""
    return reference.isfinite() & ~output.isfinite()


def explain_unjudged(truth: Truth, whose: str) -> str:
    """Why no output can be judged; empty if it can. `whose`: the function that overflows."""
    dtype, largest = truth.file.dtype, largest_magnitude(truth.reference)
    most = torch.finfo(getattr(torch, dtype)).max
    if largest > most:
        return f"the right answer reaches {largest:.2g}, {dtype} ends at {most:.2g}"
    return OVERFLOW.format(whose=whose, dtype=dtype) if truth.plain_overflows else ""


def explain_doubt(truth: Truth) -> str:
    """Why reference or plain implementation must be wrong; empty if rounding explains it."""
    largest = largest_magnitude(truth.reference)
    if truth.plain_max <= IMPLAUSIBLE * largest + IMPLAUSIBLE_FLOOR:
        return ""
    return (
        f"reference and plain implementation differ by {truth.plain_max:.2g} where values reach {largest:.2g}: "
        "one of them is wrong"
    )


def rounding_may_explain(truth: Truth, outputs: list[Tensor]) -> bool:
    """Whether rounding could explain all errors: none implausibly large or non-finite."""
    most = IMPLAUSIBLE * largest_magnitude(truth.reference)
    for output in outputs:
        if largest_and_mean_error(output, truth.reference)[0] > most:
            return False
        if any(bool((a.isfinite() != b.isfinite()).any()) for a, b in float64_slices(output, truth.reference)):
            return False
    return True


def largest_magnitude(reference: Tensor) -> float:
    """Largest finite magnitude; 0.0 if there is none."""
    sizes = (values.abs().nan_to_num(0.0, 0.0, 0.0) for (values,) in float64_slices(reference))
    return max((float(size.max()) for size in sizes), default=0.0)


def mask_outside(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Mask of elements beyond their allowed error. NaN is right only where the reference is NaN."""
    wrong = torch.empty(reference.shape, dtype=torch.bool, device=reference.device)
    flat, first = wrong.view(-1), 0
    for got, right, most in float64_slices(output, reference, allowed):
        last = first + got.numel()
        flat[first:last] = ~(((got - right).abs() <= most) | (got == right) | (got.isnan() & right.isnan()))
        first = last
    return wrong


def allowed_errors(tolerance: Tolerance, reference: Tensor) -> Tensor:
    """Allowed error of each element: atol + rtol * abs(reference)."""
    allowed = reference.abs()  # The next operations are in place, because the tensor may have gigabytes.
    return allowed.nan_to_num_(0.0, 0.0, 0.0).mul_(tolerance.rtol).add_(tolerance.atol)


def tighten_tolerance(stated: Tolerance, reference: Tensor, plain_mean: float, dtype: str) -> Tolerance:
    """Reduce `atol` if an all-zero output would pass although the output is more than noise.
    `lost`: mean error of the plain implementation, or of the reference in its own types. 0:
    unknown, as nothing ran in float64; then the tolerance stays."""
    if not plain_mean or not 0 < stated.atol < math.inf or not would_pass_zeros(stated, reference):
        return stated
    count, squares = 0, 0.0
    for (values,) in float64_slices(reference):
        size = values.nan_to_num(0.0, 0.0, 0.0)
        count, squares = count + int(size.count_nonzero()), squares + float(size.square().sum())
    atol, limits = math.sqrt(squares / max(count, 1)) / ZEROS_DIVISOR, torch.finfo(getattr(torch, dtype))
    above_noise = max(NOISE_FACTOR * plain_mean, limits.tiny / limits.eps) < atol < stated.atol
    less = stated.model_copy(update={"atol": atol})
    return less if above_noise and not would_pass_zeros(less, reference) else stated


def would_pass_zeros(tolerance: Tolerance, reference: Tensor) -> bool:
    """Whether an all-zero output passes a tolerance."""
    cap, wrong = math.inf if tolerance.cap is None else tolerance.cap, 0
    for (values,) in float64_slices(reference):
        size = values.abs()
        if not bool((size.isfinite() & (size <= cap)).all()):  # Beyond the cap zeros are always wrong.
            return False
        wrong += int((size > tolerance.atol + tolerance.rtol * size).sum())
    return bool(reference.numel()) and wrong <= (1 - tolerance.matched) * reference.numel()


def largest_and_mean_error(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over elements that are finite in both tensors."""
    largest, total, count = 0.0, 0.0, 0
    for values, right in float64_slices(output, reference):
        difference = (values - right).abs()
        finite = difference.isfinite()
        known = difference.where(finite, 0.0)
        largest, total = max(largest, float(known.max())), total + float(known.sum())
        count += int(finite.sum())
    return largest, total / count if count else 0.0


def distance_in_roundings(truths: Sequence[Truth], others: Sequence[Truth]) -> float:
    """Largest distance between two right answers, in units of their rounding errors. Compares
    outputs of equal shape; infinite if they differ without rounding."""
    most = 0.0
    for truth, other in zip(truths, others, strict=True):
        if truth.reference.shape == other.reference.shape:
            difference, _ = largest_and_mean_error(other.reference.to(truth.reference.device), truth.reference)
            lost = truth.plain_max + other.plain_max
            if not truth.is_integer:
                lost += torch.finfo(getattr(torch, truth.file.dtype)).eps * largest_magnitude(truth.reference)
            most = max(most, difference / lost if lost else math.inf if difference else 0.0)
    return most


def error_limits(reference: Tensor, plain_max: float, plain_mean: float, dtype: str) -> tuple[float, float]:
    """Limits on a variant's largest and mean error, derived from the plain implementation's."""
    rounding = torch.finfo(getattr(torch, dtype)).eps / 2 * largest_magnitude(reference)
    uncertain = 1 + FEW_ELEMENTS / math.sqrt(max(1, int(reference.isfinite().sum())))
    return (
        max(MAX_SLACK * plain_max + MAX_FLOOR, FEW_ROUNDINGS * rounding),
        uncertain * MEAN_SLACK * plain_mean + MEAN_FLOOR,
    )


def json_number(value: Tensor) -> float | None:
    """Convert a scalar for JSON: NaN becomes None, infinity the largest double."""
    plain = float(value)
    return None if math.isnan(plain) else max(min(plain, sys.float_info.max), -sys.float_info.max)


def compare_output(truth: Truth, output: Tensor, *, limits_by_plain: bool) -> Finding:
    """Compare an output with the truth. Maps and positions are filled only if elements are wrong.
    `bounded`: also limit the errors to those of the plain implementation."""
    wrong = truth.mask_wrong(output)
    largest, mean = largest_and_mean_error(output, truth.reference)
    count, message, (most, most_in_mean) = int(wrong.sum()), "", truth.error_limits
    if limits_by_plain and not truth.is_integer and largest > most:
        message = f"largest error {largest:.2g} against {truth.plain_max:.2g} of the plain implementation"
    elif limits_by_plain and not truth.is_integer and mean > most_in_mean:
        message = f"mean error {mean:.2g} against {truth.plain_mean:.2g} of the plain implementation"
    worst, allowed_error = -1.0, None
    for values, right, allowed in float64_slices(output, truth.reference, truth.allowed):
        error = (values - right).abs().nan_to_num(0.0, 0.0, 0.0)
        place = int(error.argmax())
        if float(error[place]) > worst:
            worst, allowed_error = float(error[place]), float(allowed[place])
    result = Finding(
        max_error=largest,
        allowed_error=allowed_error,
        plain_max_error=truth.plain_max if limits_by_plain else None,
        wrong=count,
        total=output.numel(),
        plain_excess=message,
    )
    if not count:
        return result
    exact = output.double()
    error = (exact - truth.reference).abs()
    # Error in units of the allowed error; an unexpected NaN or infinity is the worst.
    excess = (error / truth.allowed.clamp(min=1e-300)).nan_to_num(1e300, 1e300).clamp(max=1e300)
    # An expected NaN or infinity is no error.
    error = torch.where(wrong, error, error.nan_to_num(0.0, 0.0)).nan_to_num(math.inf)
    maps, spans = dict[str, tuple[Span, ...]](), dict[str, Span]()
    for axis, name in enumerate(truth.dimension_names):
        size, stretches = wrong.shape[axis], list[Span]()
        step = -(-size // MAP_STRETCHES)
        for first in range(0, size, step):
            length = min(step, size - first)
            largest_there = json_number(error.narrow(axis, first, length).max())
            wrong_there, last = int(wrong.narrow(axis, first, length).sum()), first + length - 1
            stretches.append(Span(first=first, last=last, count=wrong_there, largest=largest_there))
        maps[name] = tuple(stretches)
        places = wrong.movedim(axis, 0).reshape(size, -1).any(1).nonzero().reshape(-1)
        spans[name] = Span(first=int(places[0]), last=int(places[-1]), count=len(places), size=size)
    return result.replace(
        passes_only_as_stated=truth.stated_allowed is not None
        and not truth.mask_wrong(output, truth.stated_allowed).any(),
        first=_describe_mismatch(truth, exact, wrong),
        worst=_describe_mismatch(truth, exact, excess * wrong),
        map=maps,
        spans=spans,
    )


def _describe_mismatch(truth: Truth, output: Tensor, badness: Tensor) -> Mismatch:
    """The first element with the largest `how_much`, with neighbours along the last dimension."""
    flat = int(badness.double().reshape(-1).argmax())
    index, beside = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)], []
    if index:
        low, high = max(0, index[-1] - NEIGHBOURS), min(output.shape[-1], index[-1] + NEIGHBOURS + 1)
        rows = truth.reference[tuple(index[:-1])], output[tuple(index[:-1])]
        beside = [(json_number(rows[0][i]), json_number(rows[1][i])) for i in range(low, high)]
    return Mismatch(
        index=dict(zip(truth.dimension_names, index, strict=True)),
        expected=json_number(truth.reference.reshape(-1)[flat]),
        got=json_number(output.reshape(-1)[flat]),
        allowed=float(truth.allowed.reshape(-1)[flat]),
        around=tuple(beside),
    )


def are_only_ties(inputs: Sequence[Tensor], truth: Truth, output: Tensor) -> bool:
    """Whether wrong indices (of a maximum or a sort) point to the same input values as the right
    ones. Indices may count along one axis of an input, or through the flat input."""
    if not truth.is_integer or output.dtype == torch.bool:
        return False
    right, got, wrong = truth.reference.long(), output.long(), truth.mask_wrong(output)

    def point_alike(rows: Tensor, axis: int) -> bool:
        """Whether right and wrong indices select equal values on the last axis of `rows`. `axis`:
        the position of that axis in the original tensor."""
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


HALF_PRECISION_ROUNDINGS = 2.0
"""Input roundings that a half-precision answer may cost: kernels compute in float32 but round what
they read and multiply."""
ROUNDINGS = 16.0
"""The same for wider types: a polynomial exponential is off by a few units in the last place."""
ROUNDINGS_PER_SUM = 1.0
"""Additional roundings per square root of the number of terms. Roundings of n partial sums are a
random walk with standard deviation sqrt(n)/3 roundings of the sum; this allows three of them."""
SMALLER_STEP, MIN_SHRINKAGE, MAX_SHRINKAGE, FLOAT64_NOISE = 16.0, 4.0, 16.0**3, 1e-12
"""A step that is NARROWER times smaller must move an element at least LINEAR and at most CUBIC
times less. Otherwise the function jumps there (an index, a comparison) and no rounding is forgiven.
Movements below FLOAT64_NOISE times the largest element are float64's own rounding."""
ExactAnswer = Callable[[list[Tensor]], Tensor]
"""Computes the exact answer to other inputs."""


def measure_input_rounding(
    answer: ExactAnswer, inputs: Sequence[Tensor], reference: Tensor, dtype: str
) -> tuple[Tensor, float, float]:
    """How far the exact `answer` moves from `reference` if every input is rounded: by element,
    largest, mean.

    Inputs are rounded to `dtype`, or to their own type if that is wider; narrower ones convert
    exactly. Two cases count: random directions, and all upwards. Random roundings average out in a
    long sum, while errors of its partial sums do not.
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
    for signs in ([random_signs(tensor) for tensor in inputs], [torch.ones(())] * len(inputs)):
        far, near = by(signs, 1.0), by(signs, 1 / SMALLER_STEP)
        finite = reference.isfinite() & far.isfinite()
        noise = FLOAT64_NOISE * float(reference.abs()[finite].max()) if bool(finite.any()) else 0.0
        jumps = (far < MIN_SHRINKAGE * near) | ((far > MAX_SHRINKAGE * near) & (far > noise))
        movements.append(far.masked_fill_(jumps | ~finite, 0.0))
    each, count = torch.maximum(*movements), max(int(reference.isfinite().sum()), 1)
    largest = float(each.max()) if each.numel() else 0.0
    return each, largest, max(float(movement.sum()) for movement in movements) / count


def random_signs(like: Tensor, seed: int = 0) -> Tensor:
    """A reproducible random +1 or -1 for each element."""
    draw = torch.Generator(like.device).manual_seed(seed)
    return torch.randint(2, like.shape, generator=draw, device=like.device).double() * 2 - 1


def allowed_roundings(dtype: str, terms: int) -> float:
    """How many input roundings an answer with sums of `terms` terms may cost."""
    if torch.finfo(getattr(torch, dtype)).bits < 32:
        return HALF_PRECISION_ROUNDINGS
    return ROUNDINGS + ROUNDINGS_PER_SUM * math.sqrt(terms)
