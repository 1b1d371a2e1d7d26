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
from loop.model.target import Tolerance
from loop.workers.judge_messages import Finding

MIN_EXPONENT, MAX_EXPONENT = -500, 500  # Range of powers of two by which errors are counted.
EXPECTED_FACTOR, EXPECTED_EXTRA = 8, 8
"""Errors of a size may be EXPECTED_FACTOR times as many as are explained, plus EXPECTED_EXTRA."""
MAX_SLACK, MAX_FLOOR = 2.0, 1e-5
MEAN_SLACK, MEAN_FLOOR = 1.5, 1e-6
"""Limits on a variant's largest and mean error: the plain implementation's, scaled, plus this."""
MIN_ROUNDINGS = 2.0
"""Least limit, in roundings of the largest value: with few elements `plain` may be exact."""
MEAN_UNCERTAINTY = 3.2
"""Relative uncertainty of a mean error over n elements, times sqrt(n): three standard deviations of
a ratio of two means of magnitudes of normals, 3 sqrt(2) sqrt(pi/2 - 1)."""
SUM_ROUNDINGS = 4  # Roundings of the largest value by which two runs of a reference may differ.
IMPLAUSIBLE_SHARE, IMPLAUSIBLE_FLOOR = 0.1, 1e-3
"""Largest share of the largest value that rounding explains; three times that in bfloat16. Softmax
of wide logits, 3,000 seeds: below 0.02 in float16; in bfloat16 over 0.1 for five, at most 0.16."""
ZEROS_DIVISOR, NOISE_FACTOR = 16.0, 16.0
"""If zeros would pass the stated tolerance, `atol` becomes 1/16 of nonzero values' RMS. It stays
as stated if 1/16 of that is below the reference's mean rounding error: the output is noise."""
OVERFLOW = "in {dtype} {whose} gives NaN or infinity where the float64 reference gives numbers"
MOST_DISTANCE = 1e9  # Of two right answers: replies hold no infinity.
MAP_STRETCHES = 8  # Equal stretches of a dimension for which a report shows the largest error.
SLICE_ELEMENTS = 1 << 20, 1 << 26  # Compared at a time: fits a CPU's cache, and a GPU's memory.
HALF_PRECISION_ROUNDINGS = 2.0  # That a half-precision answer may cost: kernels round inputs.
ROUNDINGS = 16.0  # The same for wider types: a polynomial exponential is off by a few ulp.
ROUNDINGS_PER_SUM = 1.0
"""Additional roundings per square root of the number of terms. Roundings of n partial sums are a
random walk with standard deviation sqrt(n)/3 roundings of the sum; this allows three of them."""
SMALLER_STEP, MIN_SHRINKAGE, MAX_SHRINKAGE, FLOAT64_NOISE = 16.0, 4.0, 16.0**3, 1e-12
"""A step SMALLER_STEP times smaller must move an element at least MIN_SHRINKAGE (nearly linear) and
at most MAX_SHRINKAGE (cubic) times less. Else the function jumps there (an index, a comparison): no
rounding is forgiven. Movements below FLOAT64_NOISE times the largest element are float64's own."""
ExactAnswer = Callable[[list[Tensor]], Tensor]  # Computes the exact answer to other inputs.


def count_by_magnitude(errors: Tensor) -> Tensor:
    """Count how many errors (positive, finite) reach each power of two from 2^MIN_EXPONENT on."""
    _, exponents = torch.frexp(errors)  # m 2^e with 0.5 <= m < 1: it reaches 2^(e - 1).
    bins = (exponents.long() - 1).clamp(MIN_EXPONENT, MAX_EXPONENT - 1) - MIN_EXPONENT
    counts = torch.bincount(bins, minlength=MAX_EXPONENT - MIN_EXPONENT).cpu()
    return counts.flip(0).cumsum(0).flip(0)


@dataclass
class Truth:
    """One right output of a call (ground truth), and the errors that its element type explains."""

    file: TensorFile  # The output's place in the call's block of outputs.
    dimension_names: list[str]
    reference: Tensor  # The right output in float64.
    plain_max: float
    plain_mean: float  # Largest, mean error of `plain`, else of a run in its own types; 0: unknown.
    error_limits: tuple[float, float]  # Of the largest and the mean error, by those of `plain`.
    allowed: Tensor  # Allowed absolute error of each element.
    tolerance: Tolerance
    plain_overflows: bool = False  # Whether `plain` is NaN or infinite where the reference is not.
    own_type_output: Tensor | None = None  # Integers of the reference in its own types: right, too.
    stated_allowed: Tensor | None = None  # By the stated tolerance, if `tolerance` is tighter.
    allows_input_rounding: bool = False  # `allowed` counts rounded inputs: once an output failed.
    explained_counts: Tensor | None = None
    """How many errors rounding explains, as `count_by_magnitude` counts; None: any number."""

    @property
    def is_integer(self) -> bool:
        """Whether the elements are integers or booleans, which are never rounded."""
        return not is_floating(self.file.dtype)

    def copy_to(self, device: str) -> "Truth":
        """Copy the tensors to a device. `explained_counts` stays on the CPU."""
        copies = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and name != "explained_counts":
                copies[name] = value.to(device)
        return replace(self, **copies)  # type: ignore[arg-type]

    def tighten_for(self, output: Tensor) -> "Truth":
        """Reduce the allowed errors if more elements of `output` are off than rounding explains:
        those up to the power of two with the largest excess stay allowed."""
        if self.explained_counts is None:
            return self
        expected = EXPECTED_FACTOR * self.explained_counts + EXPECTED_EXTRA
        excess = count_errors_beyond(self.tolerance, self.reference, output) / expected
        if excess.max() <= 1:
            return self
        (exponents,) = (excess == excess.max()).nonzero(as_tuple=True)
        just_below = 2.0 ** (MIN_EXPONENT + int(exponents[-1])) * (1 - 2.0**-50)
        reduced = allowed_errors(self.tolerance, self.reference).clamp_(min=just_below)
        return replace(self, allowed=torch.minimum(self.allowed, reduced))

    def mask_wrong(self, output: Tensor, allowed: Tensor | None = None) -> Tensor:
        """In the judge: mask of wrong elements. `allowed`: errors in place of the truth's. If the
        tolerance's share `matched` is right, other errors up to its `cap` are forgiven."""
        allowed = self.allowed if allowed is None else allowed
        wrong_mask = mask_outside(output, self.reference, allowed)
        if self.own_type_output is not None:  # The reference's own integers are right, too.
            wrong_mask &= output.double() != self.own_type_output
        forgiven_count = (1 - self.tolerance.matched) * wrong_mask.numel()
        if self.tolerance.matched == 1 or int(wrong_mask.sum()) > forgiven_count:
            return wrong_mask
        error = (output.double() - self.reference).abs()
        cap = math.inf if self.tolerance.cap is None else self.tolerance.cap
        return wrong_mask & (~(error <= cap) | ~error.isfinite())


def make_truth(
    file: TensorFile, names: list[str], reference: Tensor, plain: Tensor | None, stated: Tolerance
) -> Truth:
    """Make the Truth of one output. `names`: of its dimensions. `plain`: the plain implementation's
    output, or the reference's in its own types; None: unknown. `stated`: by target.yaml."""
    is_float = is_floating(file.dtype)
    plain_max, plain_mean, plain_overflows, tolerance = 0.0, 0.0, False, stated
    if plain is not None:
        plain_max, plain_mean = largest_and_mean_error(plain, reference)
        plain_overflows = bool((reference.isfinite() & ~plain.isfinite()).any())
        if is_float:
            tolerance = tighten_tolerance(stated, reference, plain_mean, file.dtype)
    allowed, explained_counts = allowed_errors(tolerance, reference), None
    if is_float:
        widened_error = MAX_SLACK * plain_max
        allowed.clamp_(min=widened_error)
        # Where the limit is wider than stated, only as many elements use it as rounding explains.
        if plain is not None and (stated.atol or stated.rtol) and tolerance.atol < widened_error:
            explained_counts = count_errors_beyond(tolerance, reference, plain, MAX_SLACK)
    limits = error_limits(reference, plain_max, plain_mean, file.dtype if is_float else "float64")
    return Truth(
        file=file,
        dimension_names=names,
        reference=reference,
        plain_max=plain_max,
        plain_mean=plain_mean,
        error_limits=limits,
        allowed=allowed,
        tolerance=tolerance,
        plain_overflows=plain_overflows,
        stated_allowed=None if tolerance is stated else allowed_errors(stated, reference),
        explained_counts=explained_counts,
    )


def count_errors_beyond(
    tolerance: Tolerance, reference: Tensor, output: Tensor, factor: float = 1.0
) -> Tensor:
    """Count the finite errors (times `factor`) beyond a tolerance, as `count_by_magnitude` does."""
    errors = []
    for values, expected in float64_slices(output, reference):
        error = (values - expected).abs_().mul_(factor)
        allowed = tolerance.atol + tolerance.rtol * expected.abs()
        errors.append(error[error.isfinite() & (error > allowed)])
    return count_by_magnitude(torch.cat(errors))


def float64_slices(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield slices of equally shaped tensors, flat and in float64: whole copies may not fit."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    length = SLICE_ELEMENTS[flat[0].is_cuda]
    for begin in range(0, flat[0].numel(), length):
        yield tuple(tensor[begin : begin + length].double() for tensor in flat)


def answers_agree(answer: Tensor, other: Tensor) -> bool:
    """Whether two answers agree up to the order of sums, which may depend on a tensor's address."""
    if answer.shape != other.shape:
        return False
    allowed = 0.0
    if answer.is_floating_point():
        allowed = SUM_ROUNDINGS * torch.finfo(answer.dtype).eps * largest_finite_magnitude(answer)
    limit = torch.tensor(allowed, dtype=torch.float64, device=answer.device).expand(answer.shape)
    return not bool(mask_outside(answer, other, limit).any())


def explain_unjudged(truth: Truth, function_name: str) -> str:
    """Why no output can be judged: the right values do not fit the output's type, or the function
    `function_name`, whose rounding was measured, overflows; empty if outputs can be judged."""
    dtype, largest = truth.file.dtype, largest_finite_magnitude(truth.reference)
    dtype_max = torch.finfo(getattr(torch, dtype)).max
    if largest > dtype_max:
        return f"the right answer reaches {largest:.2g}, {dtype} ends at {dtype_max:.2g}"
    return OVERFLOW.format(whose=function_name, dtype=dtype) if truth.plain_overflows else ""


def explain_doubt(truth: Truth) -> str:
    """Why reference or plain implementation must be wrong; empty if rounding explains it."""
    largest = largest_finite_magnitude(truth.reference)
    share = IMPLAUSIBLE_SHARE * (3 if truth.file.dtype == "bfloat16" else 1)
    if truth.plain_max <= share * largest + IMPLAUSIBLE_FLOOR:
        return ""
    difference = f"differ by {truth.plain_max:.2g} where values reach {largest:.2g}"
    return f"reference and plain implementation {difference}: one of them is wrong"


def rounding_may_explain(truth: Truth, outputs: list[Tensor]) -> bool:
    """Whether rounding may explain all errors: none too large, NaN or infinity where expected."""
    limit = IMPLAUSIBLE_SHARE * largest_finite_magnitude(truth.reference)
    for output in outputs:
        largest, _ = largest_and_mean_error(output, truth.reference)
        if largest > limit or bool((output.isfinite() != truth.reference.isfinite()).any()):
            return False
    return True


def largest_finite_magnitude(reference: Tensor) -> float:
    """The largest finite magnitude; 0.0 if no value is finite."""
    largest = 0.0
    for (values,) in float64_slices(reference):
        largest = max(largest, float(values.abs().nan_to_num(0.0, 0.0, 0.0).max()))
    return largest


def mask_outside(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Mask of elements beyond their allowed error. NaN is right only where the reference is NaN."""
    wrong_mask = torch.empty(reference.shape, dtype=torch.bool, device=reference.device)
    flat_mask, begin = wrong_mask.view(-1), 0
    for values, expected, limit in float64_slices(output, reference, allowed):
        is_right = ((values - expected).abs() <= limit) | (values == expected)  # Infinities, too.
        is_right |= values.isnan() & expected.isnan()
        flat_mask[begin : begin + values.numel()] = ~is_right
        begin += values.numel()
    return wrong_mask


def allowed_errors(tolerance: Tolerance, reference: Tensor) -> Tensor:
    """Allowed error of each element: atol + rtol * abs(reference)."""
    allowed = reference.abs()  # From here in place, because the tensor may have gigabytes.
    return allowed.nan_to_num_(0.0, 0.0, 0.0).mul_(tolerance.rtol).add_(tolerance.atol)


def tighten_tolerance(stated: Tolerance, reference: Tensor, mean: float, dtype: str) -> Tolerance:
    """Reduce `atol` if an all-zero output would pass although the output is more than noise.
    `mean`: mean error of the plain implementation; 0 if unknown: then the tolerance stays."""
    if not mean or not 0 < stated.atol < math.inf or not would_pass_zeros(stated, reference):
        return stated
    count, square_sum = 0, 0.0
    for (values,) in float64_slices(reference):
        finite = values.nan_to_num(0.0, 0.0, 0.0)
        count += int(finite.count_nonzero())
        square_sum += float(finite.square().sum())
    atol = math.sqrt(square_sum / max(count, 1)) / ZEROS_DIVISOR
    dtype_info = torch.finfo(getattr(torch, dtype))
    noise = max(NOISE_FACTOR * mean, dtype_info.tiny / dtype_info.eps)
    if not noise < atol < stated.atol:
        return stated
    tightened = stated.model_copy(update={"atol": atol})
    return stated if would_pass_zeros(tightened, reference) else tightened


def would_pass_zeros(tolerance: Tolerance, reference: Tensor) -> bool:
    """Whether an all-zero output passes a tolerance; False for an output without elements."""
    cap = math.inf if tolerance.cap is None else tolerance.cap
    wrong_count = 0
    for (values,) in float64_slices(reference):
        error = values.abs()  # Of a zero.
        if not bool((error.isfinite() & (error <= cap)).all()):
            return False
        wrong_count += int((error > tolerance.atol + tolerance.rtol * error).sum())
    forgiven_count = (1 - tolerance.matched) * reference.numel()
    return bool(reference.numel()) and wrong_count <= forgiven_count


def largest_and_mean_error(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over elements that are finite in both; 0.0 if none is."""
    largest, total, count = 0.0, 0.0, 0
    for values, expected in float64_slices(output, reference):
        error = (values - expected).abs()
        is_finite = error.isfinite()
        error = error.where(is_finite, 0.0)
        largest = max(largest, float(error.max()))
        total += float(error.sum())
        count += int(is_finite.sum())
    return largest, total / count if count else 0.0


def distance_in_roundings(truths: Sequence[Truth], other_truths: Sequence[Truth]) -> float:
    """Largest distance between two right answers of equal shape, in units of their rounding errors,
    up to `MOST_DISTANCE`, which different outputs that nothing rounded have."""
    largest = 0.0
    for truth, other in zip(truths, other_truths, strict=True):
        if truth.reference.shape != other.reference.shape:
            continue
        reference = truth.reference
        difference, _ = largest_and_mean_error(other.reference.to(reference.device), reference)
        rounding = truth.plain_max + other.plain_max
        if not truth.is_integer:
            eps = torch.finfo(getattr(torch, truth.file.dtype)).eps
            rounding += eps * largest_finite_magnitude(reference)
        if difference:
            largest = max(largest, difference / rounding if rounding else MOST_DISTANCE)
    return min(largest, MOST_DISTANCE)


def error_limits(reference: Tensor, largest: float, mean: float, dtype: str) -> tuple[float, float]:
    """A variant's limits: the `largest` and `mean` error of `plain` with slack, or roundings."""
    rounding = torch.finfo(getattr(torch, dtype)).eps / 2 * largest_finite_magnitude(reference)
    largest_limit = max(MAX_SLACK * largest + MAX_FLOOR, MIN_ROUNDINGS * rounding)
    uncertainty = MEAN_UNCERTAINTY / math.sqrt(max(1, int(reference.isfinite().sum())))
    return largest_limit, (1 + uncertainty) * MEAN_SLACK * mean + MEAN_FLOOR


def json_number(value: Tensor) -> float | None:
    """Convert a scalar for JSON: NaN becomes None, infinity the largest double."""
    number = float(value)
    if math.isnan(number):
        return None
    return max(min(number, sys.float_info.max), -sys.float_info.max)


def compare_output(truth: Truth, output: Tensor, *, limits_by_plain: bool) -> Finding:
    """Compare an output with the truth. Maps and positions are filled only if elements are wrong.
    `limits_by_plain`: also limit the errors to those of the plain implementation."""
    truth = truth.tighten_for(output)
    wrong_mask = truth.mask_wrong(output)
    wrong_count = int(wrong_mask.sum())
    largest, mean = largest_and_mean_error(output, truth.reference)
    largest_limit, mean_limit = truth.error_limits
    plain_excess = ""
    if limits_by_plain and not truth.is_integer and largest > largest_limit:
        plain_excess = f"largest error {largest:.2g} against {truth.plain_max:.2g}"
    elif limits_by_plain and not truth.is_integer and mean > mean_limit:
        plain_excess = f"mean error {mean:.2g} against {truth.plain_mean:.2g}"
    worst_error, allowed_error = -1.0, None
    for values, expected, allowed in float64_slices(output, truth.reference, truth.allowed):
        error = (values - expected).abs().nan_to_num(0.0, 0.0, 0.0)
        position = int(error.argmax())
        if float(error[position]) > worst_error:
            worst_error, allowed_error = float(error[position]), float(allowed[position])
    finding = Finding(
        max_error=largest,
        allowed_error=allowed_error,
        plain_max_error=truth.plain_max if limits_by_plain else None,
        wrong=wrong_count,
        total=output.numel(),
        plain_excess=plain_excess and f"{plain_excess} of the plain implementation",
        is_integer=truth.is_integer,
    )
    if not wrong_count:
        return finding
    output = output.double()
    error = (output - truth.reference).abs()
    # Error in units of the allowed error; an unexpected NaN or infinity is the worst.
    excess = (error / truth.allowed.clamp(min=1e-300)).nan_to_num(1e300, 1e300).clamp(max=1e300)
    # An expected NaN or infinity is no error.
    error = torch.where(wrong_mask, error, error.nan_to_num(0.0, 0.0)).nan_to_num(math.inf)
    maps, spans = dict[str, tuple[Span, ...]](), dict[str, Span]()
    for axis, name in enumerate(truth.dimension_names):
        size, stretches = wrong_mask.shape[axis], list[Span]()
        step = -(-size // MAP_STRETCHES)
        for first in range(0, size, step):
            length = min(step, size - first)
            peak = json_number(error.narrow(axis, first, length).max())
            count = int(wrong_mask.narrow(axis, first, length).sum())
            stretches.append(Span(first=first, last=first + length - 1, count=count, largest=peak))
        maps[name] = tuple(stretches)
        wrong = wrong_mask.movedim(axis, 0).reshape(size, -1).any(1).nonzero().reshape(-1)
        spans[name] = Span(first=int(wrong[0]), last=int(wrong[-1]), count=len(wrong), size=size)
    passes_as_stated = False
    if truth.stated_allowed is not None:
        passes_as_stated = not bool(truth.mask_wrong(output, truth.stated_allowed).any())
    mismatches = []
    for badness in (wrong_mask, excess * wrong_mask):  # The first wrong element, and the worst one.
        flat_index = int(badness.double().reshape(-1).argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(flat_index), output.shape)]
        mismatch = Mismatch(
            index=dict(zip(truth.dimension_names, index, strict=True)),
            expected=json_number(truth.reference.reshape(-1)[flat_index]),
            got=json_number(output.reshape(-1)[flat_index]),
            allowed=float(truth.allowed.reshape(-1)[flat_index]),
        )
        mismatches.append(mismatch)
    update = {"first": mismatches[0], "worst": mismatches[1], "map": maps, "spans": spans}
    return finding.model_copy(update={**update, "passes_only_as_stated": passes_as_stated})


def measure_input_rounding(
    answer: ExactAnswer, inputs: Sequence[Tensor], reference: Tensor, dtype: str, terms: int
) -> tuple[Tensor, float, float]:
    """What rounding may cost an answer with sums of `terms` terms: by element, largest, mean. It is
    so many times as far as the exact `answer` moves from `reference` if every input is rounded: to
    `dtype`, or its own wider type; narrower ones convert exactly. It counts random directions, and
    all upwards: random roundings average out in a long sum, errors of its partial sums do not."""
    dtype_info = torch.finfo(getattr(torch, dtype))
    roundings = HALF_PRECISION_ROUNDINGS
    if dtype_info.bits >= 32:
        roundings = ROUNDINGS + ROUNDINGS_PER_SUM * math.sqrt(terms)
    movements = []
    for signs in ([random_signs(tensor) for tensor in inputs], [torch.ones(())] * len(inputs)):
        movement_by_step = []
        for share in (1.0, 1 / SMALLER_STEP):  # Of a rounding, by which the inputs change.
            changed = []
            for tensor, sign in zip(inputs, signs, strict=True):
                if tensor.is_floating_point():
                    rounding = min(dtype_info.eps, torch.finfo(tensor.dtype).eps) / 2
                    tensor = tensor.double() * (1 + (sign * share * rounding).double())
                changed.append(tensor)
            movement_by_step.append((answer(changed) - reference).abs())
        movement, small_movement = movement_by_step
        is_finite = reference.isfinite() & movement.isfinite()
        noise = 0.0
        if bool(is_finite.any()):
            noise = FLOAT64_NOISE * float(reference.abs()[is_finite].max())
        jumps = movement < MIN_SHRINKAGE * small_movement
        jumps |= (movement > MAX_SHRINKAGE * small_movement) & (movement > noise)
        movements.append(movement.masked_fill_(jumps | ~is_finite, 0.0))
    count = max(int(reference.isfinite().sum()), 1)
    by_element = torch.maximum(*movements).mul_(roundings)  # In place: it may have gigabytes.
    largest = float(by_element.max()) if by_element.numel() else 0.0
    mean = roundings * max(float(movement.sum()) for movement in movements) / count
    return by_element, largest, mean


def random_signs(tensor: Tensor, seed: int = 0) -> Tensor:
    """A reproducible random +1 or -1 for each element of a tensor, on its device."""
    source = torch.Generator(tensor.device).manual_seed(seed)
    return torch.randint(2, tensor.shape, generator=source, device=tensor.device).double() * 2 - 1
