"""What rounding may do to an output beyond the stated tolerance: worked out where an output seems wrong.

A backward-stable algorithm gives the exact answer to inputs that are off by some roundings, whatever the order in
which it sums and however it takes an exponential (Higham, Accuracy and Stability of Numerical Algorithms, 1.5). So
the answer's sensitivity to its inputs bounds what a variant loses. The plain implementation may by chance lose
less.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call, Refused
from loop.workers.asking import Asking, Inputs
from loop.workers.truth import (
    IMPLAUSIBLE,
    MAX_SLACK,
    OVERFLOW,
    Truth,
    beyond,
    errors,
    largest_of,
    outside,
    overflows,
    tail_of,
)
from loop.workers.workload_call import only_output

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
DRAWS, STEP, SLACK = 8, 2.0**-51, 4.0
"""Times that inputs are moved by two of float64's roundings, and how far an element may be off, in such moves."""
NOISY = 1e-9
"""Errors up to this share of the largest value, of inputs or output, may be float64's own rounding."""

AnswerTo = Callable[[list[Tensor]], Tensor]
"""The exact answer to other inputs."""


@dataclass(frozen=True)
class Movement:
    """How far an answer moves when every input is rounded once, over its elements."""

    each: Tensor
    """By element, in float64; 0 where the function jumps."""
    largest: float
    mean: float


def moved(answer: AnswerTo, inputs: Sequence[Tensor], reference: Tensor, dtype: str) -> Movement:
    """How far the exact `answer` moves from `reference` when every input is rounded.

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
    for signs in ([_signs(tensor) for tensor in inputs], [torch.ones(())] * len(inputs)):
        far, near = by(signs, 1.0), by(signs, 1 / NARROWER)
        finite = reference.isfinite() & far.isfinite()
        noise = FLOAT64_NOISE * float(reference.abs()[finite].max()) if bool(finite.any()) else 0.0
        jumps = (far < LINEAR * near) | ((far > CUBIC * near) & (far > noise))
        movements.append(far.masked_fill_(jumps | ~finite, 0.0))
    each, count = torch.maximum(*movements), max(int(reference.isfinite().sum()), 1)
    largest = float(each.max()) if each.numel() else 0.0
    return Movement(each, largest, max(float(movement.sum()) for movement in movements) / count)


def _signs(like: Tensor, seed: int = 0) -> Tensor:
    """One or minus one for each element, the same each time."""
    draw = torch.Generator(like.device).manual_seed(seed)
    return torch.randint(2, like.shape, generator=draw, device=like.device).double() * 2 - 1


def roundings(dtype: str, terms: int) -> float:
    """How many roundings of its inputs an answer that sums so many terms may be worth."""
    if torch.finfo(getattr(torch, dtype)).bits < 32:
        return HALF_ROUNDINGS
    return ROUNDINGS + SUMMING * math.sqrt(terms)


@dataclass
class Answer:
    """The right answer to a call."""

    inputs: Inputs
    truths: list[Truth]
    """One for each output."""
    in_own_types: bool = False
    """Whether the reference was asked in the call's own types, too."""
    expected: Any = None
    """Its result then, as it came: for the task's checker, where there is one."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""

    def on(self, device: str) -> "Answer":
        """The same on a device."""
        return replace(self, inputs=self.inputs.on(device), truths=[truth.on(device) for truth in self.truths])


@dataclass
class Rounding:
    """The reference of a target, asked about rounded inputs and in the call's own types."""

    asking: Asking
    reference: Callable[..., object]
    has_plain: bool
    """Whether the plain implementation bounds what a variant may lose."""
    formed: Callable[[Tensor, Call], Tensor]
    """Brings an output into the form in which it is compared."""

    def allowed(self, answer: Answer, n: int) -> Truth:
        """The truth of output number `n`, which allows what any sound summation and exponential may lose."""
        inputs, truth = answer.inputs, answer.truths[n]
        call, sizes = inputs.call, self.asking.sizes(inputs.call)
        if self.asking.is_plain(call) and sizes:
            # Terms that an element may sum: over the dimensions that the output lacks, or along one that it has.
            kept = only_output(self.asking.signature).split()
            summed = math.prod(size for name, size in sizes.items() if name not in kept)
            terms = max([summed, *(sizes[name] for name in kept)])
        else:
            terms = max((size for tensor in call.inputs for size in tensor.shape), default=1)
        dtype = truth.part.dtype if call.structure else call.dtype
        try:
            floor = moved(lambda near: self.output(call, near, n), inputs.tensors, truth.reference, dtype)
        except Refused:  # It runs in its own types alone: how it is conditioned is not known.
            return replace(truth, rounded=True, tail=None)
        factor = roundings(dtype, terms)
        each = floor.each.mul_(factor)  # In place, for it may be gigabytes.
        lost = MAX_SLACK * truth.plain_max if not self.has_plain else 0.0
        tail = tail_of(each[each > 0])
        own = None if self.has_plain or answer.in_own_types else self.in_type(inputs, truth, n)
        if own is not None:
            lost = MAX_SLACK * errors(own, truth.reference)[0]
            tail += beyond(truth.tolerance, truth.reference, own, MAX_SLACK)
        if truth.tail is not None:
            tail += truth.tail
        largest = min(max(floor.largest * factor, lost), IMPLAUSIBLE * largest_of(truth.reference))
        most = (max(truth.most[0], largest), max(truth.most[1], floor.mean * factor))
        return replace(truth, rounded=True, most=most, allowed=truth.allowed.clamp(min=largest), tail=tail)

    def without_noise(self, inputs: Inputs, truth: Truth, n: int, output: Tensor) -> Truth:
        """The truth, with more allowed where a wrong element may differ by the reference's own rounding alone.

        What float64 loses of an element is how far that moves when inputs change by a few float64 roundings. An
        exact zero that is the difference of large numbers shows so.
        """
        scale = max([largest_of(truth.reference), *(largest_of(tensor) for tensor in inputs.tensors)])
        error = (output.double() - truth.reference).abs()
        wrong = outside(output, truth.reference, truth.allowed)
        if not bool((wrong & (error <= NOISY * scale)).any()):
            return truth
        most = torch.zeros_like(truth.reference)
        try:
            for seed in range(DRAWS):
                near = [
                    t.double() * (1 + STEP * _signs(t, seed)) if t.is_floating_point() else t
                    for t in inputs.tensors
                ]
                distance = (self.output(inputs.call, near, n) - truth.reference).abs()
                most = torch.maximum(most, distance.where(distance.isfinite(), 0.0))
        except Refused:
            return truth
        return replace(truth, allowed=torch.maximum(truth.allowed, (SLACK * most).clamp(max=NOISY * scale)))

    def overflow(self, inputs: Inputs, truth: Truth, n: int, output: Tensor) -> str:
        """Why the wrong elements of an output say nothing; empty where they say something.

        They say nothing where the reference overflows in the call's own type and gives the very same.
        """
        wrong = outside(output, truth.reference, truth.allowed)
        own = self.in_type(inputs, truth, n) if bool((wrong & ~output.isfinite()).any()) else None
        if own is None or not bool(overflows(own, truth.reference).any()):
            return ""
        alike = ~output.isfinite() & ~own.isfinite() | ((output.double() - own).abs() <= truth.allowed)
        reason = OVERFLOW.format(whose="the reference", dtype=truth.part.dtype)
        return "" if bool((wrong & ~alike).any()) else reason

    def in_type(self, inputs: Inputs, truth: Truth, n: int) -> Tensor | None:
        """Output number `n` of the reference in the inputs' own types; None where it has none of that shape."""
        try:
            output = self.output(inputs.call, inputs.tensors, n, exact=False)
        except Refused:
            return None
        return output if output.shape == truth.reference.shape else None

    def output(self, call: Call, tensors: Sequence[Tensor], n: int, *, exact: bool = True) -> Tensor:
        """Output number `n` of the reference on these inputs, as it is compared; `exact`: in float64."""
        outputs, _ = self.asking.outputs("reference", self.reference, tensors, call, exact=exact)
        return self.formed(list(outputs.values())[n].double(), call)
