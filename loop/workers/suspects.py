"""The fault dictionary: as if what had been done wrong? A wrong output is held against wrong references.

They are the reference with a mistake that its signature allows (an input ignored, two swapped, another attribute,
part of a sum left out), the target's own `faults`, and changes of the right answer (a shift, zeros, a factor). One
that explains all wrong elements fits; it fits as a whole where it explains the right ones too.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from loop.calls.call import Call
from loop.workers.judge_messages import Fit, Shapes

SLACK = 4.0
"""A wrong answer may be off from the suspect's by so many times what a right one may: its values are larger."""
EXPLAINED = 0.98
"""Share of the wrong elements that a suspect has to explain."""
LEFT = 0.25
"""Share of the error (root of the mean square) that may be left: a suspect explains it, and is not just near."""
LEAST = 4
"""Wrong elements that are needed: of one alone any factor is right."""

Reference = Callable[..., Tensor]
Suspect = tuple[str, Callable[[], Tensor]]
"""As if what, and the answer then."""


class Truth:
    """The right answer to a call, and an output that is wrong."""

    def __init__(self, reference: Tensor, allowed: Tensor, rtol: float, output: Tensor, wrong: Tensor) -> None:
        self.reference, self.output, self.wrong = reference, output, wrong
        self.floor, self.rtol = (allowed - rtol * reference.abs().nan_to_num(0.0, 0.0, 0.0)).clamp(min=0.0), rtol

    def fit(self, as_if: str, answer: Tensor) -> Fit | None:
        """How well a suspect's answer fits the output; None where it does not."""
        if answer.shape != self.output.shape:
            return None
        allowed = SLACK * (self.floor + self.rtol * answer.abs().nan_to_num(0.0, 0.0, 0.0))
        explained = ((self.output - answer).abs() <= allowed) | (self.output.isnan() & answer.isnan())
        if float(explained[self.wrong].double().mean()) < EXPLAINED:
            return None
        if self._error(answer) > LEFT * self._error(self.reference):
            return None
        return Fit(as_if, bool(explained.double().mean() >= EXPLAINED))

    def multiplied(self) -> list[Suspect]:
        """The right answer times one number, where the wrong elements tell which."""
        some = self.wrong & self.output.isfinite() & (self.reference.abs() > SLACK * self.floor)
        if int(some.sum()) < LEAST:
            return []
        times = float((self.output[some] / self.reference[some]).median())
        return [(f"it were multiplied by {times:.4g}", lambda: times * self.reference)]

    def _error(self, answer: Tensor) -> float:
        """Root of the mean squared error of the wrong elements that are finite, were this the right answer."""
        error = (self.output - answer)[self.wrong]
        return float(error[error.isfinite()].square().mean().sqrt().nan_to_num(0.0))


def fits(truth: Truth, suspects: Iterable[Suspect]) -> tuple[Fit, ...]:
    """The suspects that explain an output, those that explain all of it first."""
    if int(truth.wrong.sum()) < LEAST:
        return ()
    found = []
    for as_if, answer in suspects:
        try:
            fit = truth.fit(as_if, answer())
        except Exception:  # A reference that cannot be called so says nothing.
            continue
        found += [fit] if fit else []
    return tuple(sorted(found, key=lambda fit: not fit.whole))


def of_signature(
    reference: Reference, call: Call, inputs: Sequence[Tensor], shapes: Shapes, right: Tensor
) -> Iterator[Suspect]:
    """Mistakes in what is read, and changes of the right answer, that any target may have."""
    exact = [tensor.double() for tensor in inputs]
    names = list(shapes.inputs)
    for place, name in enumerate(names):
        yield f"{name} were zero", _called(reference, call, _with(exact, place, torch.zeros_like(exact[place])))
    for one, other in itertools.combinations(range(len(names)), 2):
        if exact[one].shape == exact[other].shape:
            swapped = _with(_with(exact, one, exact[other]), other, exact[one])
            yield f"{names[one]} and {names[other]} were swapped", _called(reference, call, swapped)
            yield (
                f"{names[one]} were read for {names[other]}",
                _called(reference, call, _with(exact, other, exact[one])),
            )
            yield (
                f"{names[other]} were read for {names[one]}",
                _called(reference, call, _with(exact, one, exact[other])),
            )
    for name, choices in shapes.choices.items():
        for choice in choices or (True, False):
            if isinstance(call.attributes[name], bool | str) and choice != call.attributes[name]:
                changed = call.but(attributes={**call.attributes, name: choice})
                yield f"{name} were {str(choice).lower()}", _called(reference, changed, exact)
    yield from _cuts(reference, call, exact, shapes)
    yield from _changes(shapes, right)


def _cuts(reference: Reference, call: Call, exact: Sequence[Tensor], shapes: Shapes) -> Iterator[Suspect]:
    """Parts of the dimensions that are summed over."""
    texts = [text.split() for text in shapes.inputs.values()]
    for name in dict.fromkeys(name for text in texts for name in text if name not in shapes.output.split()):
        axes = [text.index(name) if name in text else None for text in texts]
        size = max(one.shape[axis] for one, axis in zip(exact, axes, strict=True) if axis is not None)
        parts = {"the last index": (0, size - 1), "the first index": (1, size), "the second half": (0, size // 2)}
        for what, (first, end) in parts.items():
            some = [
                one if axis is None else one.narrow(axis, first, end - first)
                for one, axis in zip(exact, axes, strict=True)
            ]
            yield f"{what} of {name} were left out", _called(reference, call, some)


def _changes(shapes: Shapes, right: Tensor) -> Iterator[Suspect]:
    """What can be done to the right answer."""
    yield "nothing were computed (zeros)", lambda: torch.zeros_like(right)
    yield "nothing were written", lambda: torch.full_like(right, math.nan)
    for axis, name in enumerate(shapes.output.split()):
        if right.shape[axis] > 1:
            for by, which in ((1, "before"), (-1, "after")):
                yield f"each place held the one {which} it along {name}", _rolled(right, by, axis)
    if right.dim() > 1 and right.shape[-1] == right.shape[-2] > 1:
        yield "the last two dimensions of the output were swapped", lambda: right.transpose(-1, -2)


def _rolled(right: Tensor, by: int, axis: int) -> Callable[[], Tensor]:
    return lambda: right.roll(by, axis)


def _called(reference: Reference, call: Call, inputs: Sequence[Tensor]) -> Callable[[], Tensor]:
    return lambda: reference(*inputs, **call.attributes)


def _with(inputs: Sequence[Tensor], place: int, other: Any) -> list[Tensor]:
    return [*inputs[:place], other, *inputs[place + 1 :]]
