"""What rounding may do to an output, beyond the stated tolerance: worked out where an output seems wrong."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call
from loop.calls.refusal import Refused
from loop.calls.rounding import moved, noise, roundings, terms_of
from loop.workers.asking import Asking, Given
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

NOISY = 1e-9
"""Errors up to this share of the largest value, of inputs or output, may be float64's own rounding."""


@dataclass
class Answer:
    """The right answer to a call."""

    given: Given
    truths: list[Truth]
    """One an output."""
    in_own_types: bool = False
    """Whether the reference was asked in the call's own types, too."""
    expected: Any = None
    """What it gave then, as it came: for the task's checker, where there is one."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""

    def on(self, device: str) -> "Answer":
        """The same on a device."""
        return replace(self, given=self.given.on(device), truths=[one.on(device) for one in self.truths])


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
        """The truth of output number `n`, with what any sound order of summation and any sound exponential may
        lose."""
        given, truth = answer.given, answer.truths[n]
        call, inputs = given.call, given.tensors
        try:
            dtype = truth.part.dtype if call.structure else call.dtype
            floor = moved(lambda near: self._asked(given, near, n), inputs, truth.reference, dtype).times(
                roundings(dtype, self._terms(call))
            )
        except Refused:  # It runs in its own types alone: how it is conditioned is not known.
            return replace(truth, rounded=True, tail=None)
        lost = MAX_SLACK * truth.plain_max if not self.has_plain else 0.0
        tail = tail_of(floor.each[floor.each > 0])
        own = None if self.has_plain or answer.in_own_types else self.in_type(given, truth, n)
        if own is not None:
            lost = MAX_SLACK * errors(own, truth.reference)[0]
            tail += beyond(truth.tolerance, truth.reference, own, MAX_SLACK)
        if truth.tail is not None:
            tail += truth.tail
        largest = min(max(floor.largest, lost), IMPLAUSIBLE * largest_of(truth.reference))
        most = (max(truth.most[0], largest), max(truth.most[1], floor.mean))
        return replace(truth, rounded=True, most=most, allowed=truth.allowed.clamp(min=largest), tail=tail)

    def without_noise(self, given: Given, truth: Truth, n: int, output: Tensor) -> Truth:
        """The truth, with more allowed where a wrong element may differ by the reference's own rounding alone."""
        scale = max([largest_of(truth.reference), *(largest_of(one) for one in given.tensors)])
        error = (output.double() - truth.reference).abs()
        wrong = outside(output, truth.reference, truth.allowed)
        if not bool((wrong & (error <= NOISY * scale)).any()):
            return truth
        try:
            lost = noise(lambda near: self._asked(given, near, n), given.tensors, truth.reference)
        except Refused:
            return truth
        return replace(truth, allowed=torch.maximum(truth.allowed, lost.clamp(max=NOISY * scale)))

    def overflow(self, given: Given, truth: Truth, n: int, output: Tensor) -> str:
        """Why the wrong elements of an output say nothing: the reference overflows in the call's own type, and
        gives the very same. Empty where they say something."""
        wrong = outside(output, truth.reference, truth.allowed)
        if not bool((wrong & ~output.isfinite()).any()):
            return ""
        own = self.in_type(given, truth, n)
        if own is None or not bool(overflows(own, truth.reference).any()):
            return ""
        alike = ~output.isfinite() & ~own.isfinite() | ((output.double() - own).abs() <= truth.allowed)
        said = OVERFLOW.format(whose="the reference", dtype=truth.part.dtype)
        return "" if bool((wrong & ~alike).any()) else said

    def in_type(self, given: Given, truth: Truth, n: int) -> Tensor | None:
        """What the reference itself gives in the inputs' own types."""
        try:
            output = self._asked(given, given.tensors, n, exact=False)
        except Refused:
            return None
        return output if output.shape == truth.reference.shape else None

    def _asked(self, given: Given, tensors: list[Tensor], n: int, *, exact: bool = True) -> Tensor:
        found, _ = self.asking.outputs("reference", self.reference, tensors, given.call, exact=exact)
        return self.formed(list(found.values())[n].double(), given.call)

    def answer_to(self, given: Given, n: int, changed: Call) -> Tensor:
        """Output number `n` of the same inputs in a call with other attributes."""
        return self._asked(replace(given, call=changed), given.tensors, n)

    def _terms(self, call: Call) -> int:
        """Terms that an element of an output may sum."""
        sizes = self.asking.sizes(call)
        if self.asking.is_plain(call) and sizes:
            return terms_of(self.asking.shapes.output, sizes)
        return max((size for one in call.inputs for size in one.shape), default=1)
