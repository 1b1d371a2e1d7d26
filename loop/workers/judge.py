"""The judge: makes the inputs, knows the right answers, and never loads what it judges."""

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call
from loop.calls.refusal import Refused
from loop.calls.rounding import moved, roundings, terms_of
from loop.workers import judge_messages as messages
from loop.workers import suspects
from loop.workers.relations import Relations
from loop.workers.values import as_input, make_tensor
from loop.workers.wire import Done, Request

MAX_SLACK, MAX_FLOOR = 2.0, 1e-5
MEAN_SLACK, MEAN_FLOOR = 1.5, 1e-6
"""A variant may lose this much more than the plain implementation in the same type, plus a floor."""
FEW_ROUNDINGS = 2.0
"""... and never less than so many roundings of the largest value: of a few elements the plain implementation may
by chance lose next to nothing."""
FEW_ELEMENTS = 3.2
"""The mean error of n elements is known to within about this over the root of n, as a share: three standard
deviations of a ratio of two means of magnitudes of normals, 3 sqrt(2) sqrt(pi/2 - 1)."""
IMPLAUSIBLE, IMPLAUSIBLE_FLOOR = 0.1, 1e-3
"""Rounding does not move a value by more than this share of the largest: the plain implementation is a control of
the reference. Half-precision softmax over logits of standard deviation 30 stays below 0.06."""
MAP_PARTS = 8
BESIDE = 2
"""Neighbours of a wrong element that are shown on either side."""


@dataclass
class Truth:
    """The right answer to one call, and what the element type itself costs."""

    inputs: list[Tensor]
    """In their own types."""
    reference: Tensor
    """float64."""
    plain_max: float
    plain_mean: float
    most: tuple[float, float]
    """What the largest and the mean error may be, as the plain implementation's errors say."""
    allowed: Tensor
    """Allowed absolute error of each element."""
    plain_lost: bool = False
    """Whether the plain implementation has a NaN where the reference has a number."""
    rounded: bool = False
    """Whether what rounding the inputs does is allowed for: it is worked out where something seems wrong."""


class Judge:
    """Holds the truth of every call it was asked to expect."""

    def __init__(self, terms: messages.Begin) -> None:
        torch_side.use_threads(terms.threads)
        self.reference = torch_side.find(terms.reference)
        self.plain, self.maker, self.form = (
            torch_side.find(name) if name else None for name in (terms.plain, terms.inputs, terms.form)
        )
        self.shapes, self.tolerance = terms.shapes, terms.tolerance
        self.dimensions = terms.shapes.output.split()
        self.truths: dict[str, Truth] = {}
        self.faults = terms.faults
        self.relations = Relations(terms.shapes, terms.tolerance, self.plain)

    def answer(self, request: Request[Any]) -> object:
        """The reply to a request about a target."""
        answers: dict[type, Callable[[Any], object]] = {
            messages.Expect: self.expect,
            messages.Compare: self.compare,
            messages.Discard: self.discard,
            messages.Tell: self.tell,
            messages.Relate: self.relations.begin,
            messages.GiveOutput: self.relations.go_on,
        }
        return answers[type(request)](request)

    def expect(self, request: messages.Expect) -> messages.Expected:
        """Write the inputs of a call and work out its right answer; `twice`: and see that it comes out again."""
        call, inputs = request.call, []
        for flat, tensor in zip(self._values(request), call.inputs, strict=True):
            torch_side.write_tensor(tensor.path, flat)
            inputs.append(torch_side.window(flat, tensor))
        truth = self._truth(call, inputs)
        if request.twice and not same(self._truth(call, inputs).reference, truth.reference):
            raise Refused(f"the reference is not deterministic: two answers to {call.key} differ")
        self.truths[call.key] = truth
        return messages.Expected(doubt(truth) if self.plain else "")

    def _values(self, request: messages.Expect) -> list[Tensor]:
        """What goes into the files of the inputs: as the workload's kind of values says, or made by the target."""
        call, seed = request.call, request.seed
        if self.maker is None:
            given = enumerate(zip(request.values, call.inputs, strict=True))
            return [make_tensor(values, seed, n, tensor) for n, (values, tensor) in given]
        maker = partial(self.maker, sizes=self._sizes(call), seed=seed)
        made = self._ask("maker of inputs", maker, [], call)
        return [as_input(one, tensor) for one, tensor in zip(made, call.inputs, strict=True)]

    def _sizes(self, call: Call) -> dict[str, int]:
        """The size of each dimension of a call."""
        texts = (*self.shapes.inputs.values(), self.shapes.output)
        tensors = zip(texts, (*call.inputs, call.output), strict=True)
        return {name: n for text, one in tensors for name, n in zip(text.split(), one.shape, strict=True)}

    def discard(self, request: messages.Discard) -> Done:
        """Forget the truth of a call."""
        self.truths.pop(request.key, None)
        return Done()

    def _truth(self, call: Call, inputs: list[Tensor]) -> Truth:
        reference = self._ask("reference", self.reference, [tensor.double() for tensor in inputs], call)
        try:
            torch_side.check_result(reference, call.output.shape, torch.float64)
        except Refused as wrong:
            raise Refused(f"the reference on {call.key}: {wrong}") from wrong
        reference = self._formed(reference, call)
        plain_max, plain_mean, lost = 0.0, 0.0, False
        if self.plain is not None:
            plain = self._formed(self._ask("plain", self.plain, inputs, call), call)
            plain_max, plain_mean = errors(plain, reference)
            lost = bool((plain.isnan() & reference.isfinite()).any())
        tolerance = self.tolerance[call.dtype]
        allowed = tolerance.atol + tolerance.rtol * reference.abs().nan_to_num(0.0, 0.0, 0.0)
        most = most_lost(reference, plain_max, plain_mean, call.dtype)
        return Truth(inputs, reference, plain_max, plain_mean, most, allowed.clamp(min=2 * plain_max), lost)

    def _ask(self, what: str, function: Any, inputs: list[Tensor], call: Call) -> Tensor:
        """A function of the target on a call's inputs; Refused with its name when it raises."""
        more = {"sizes": self._sizes(call)} if torch_side.takes_sizes(function) else {}
        try:
            return function(*inputs, **call.attributes, **more)  # type: ignore[no-any-return]
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            raise Refused(f"the {what} on {call.key}: {type(error).__name__}: {error} ({place})") from error

    def compare(self, request: messages.Compare) -> messages.Finding:
        """Hold the output files of a call against the truth: what is found in the worst of them."""
        call, truth = request.call, self.truths[request.call.key]
        read = (torch_side.read_tensor(call.output, path).double() for path in request.outputs)
        outputs = [self._formed(output, call) for output in read]
        worst = max((self._finding(truth, output) for output in outputs), key=lambda finding: finding.badness)
        if (
            self._may_round(truth, call)
            and worst.badness[:2] != (0, False)
            and rounding_may_explain(truth, outputs)
        ):
            truth = self.truths[call.key] = self._rounded(truth, call)
            worst = max((self._finding(truth, output) for output in outputs), key=lambda finding: finding.badness)
        return worst.but(fits=self._fits(truth, call, outputs)) if request.suspected else worst

    def _fits(self, truth: Truth, call: Call, outputs: list[Tensor]) -> dict[str, bool] | None:
        """What explains the wrong ones of some outputs: mistakes of any kernel, and the target's own faults."""
        wrong = [(output, outside(output, truth.reference, truth.allowed)) for output in outputs]
        rtol = self.tolerance[call.dtype].rtol
        held = [
            suspects.WrongOutput(truth.reference, truth.allowed, rtol, *one) for one in wrong if bool(one[1].any())
        ]
        exact = [one.double() for one in truth.inputs]
        faults = suspects.functions(self.faults)
        own = [(as_if, partial(self._ask, "fault", one, exact, call)) for as_if, one in faults]
        asked = partial(self._ask, "reference", self.reference)
        common = suspects.of_signature(asked, call, truth.inputs, self.shapes, truth.reference)
        found = suspects.fits(held, [*own, *common])
        return suspects.fits(held, held[0].multiplied()) if found == {} else found

    def _may_round(self, truth: Truth, call: Call) -> bool:
        """Whether what rounding does is still to be allowed for; a tolerance of zero asks for the exact answer."""
        return not truth.rounded and any(vars(self.tolerance[call.dtype]).values())

    def tell(self, request: messages.Tell) -> messages.Told:
        """How many times what is allowed a mistake is off on a call, in float64.

        `other`: it gives the answer to that call. No variant is asked: so a gate that overlooks a mistake is told
        from inputs on which there is nothing to see.
        """
        from loop.workers.mistaken_reference import mistaken

        call, truth = request.call, self.truths[request.call.key]
        try:
            if request.other:
                output = self.truths[request.other].reference
            else:
                output = self._formed(mistaken(self.reference, call, truth.inputs, request.mistake), call)
            excess = self._excess(truth, output)
            if 1 < excess and self._may_round(truth, call) and rounding_may_explain(truth, [output]):
                truth = self.truths[call.key] = self._rounded(truth, call)
                excess = self._excess(truth, output)
        except Exception:  # The reference cannot be called so: what the mistake is cannot be said.
            return messages.Told(0.0)
        return messages.Told(excess)

    def _excess(self, truth: Truth, output: Tensor) -> float:
        """How many times what is allowed an output is off: in its worst element, the largest error or the mean."""
        differ = outside(output, truth.reference, torch.zeros_like(truth.allowed))
        if not bool(differ.any()):
            return 0.0
        found = float(excess_of(output, truth)[differ].max())
        if self.plain is None:
            return found
        return max(found, *(e / m for e, m in zip(errors(output, truth.reference), truth.most, strict=True)))

    def _rounded(self, truth: Truth, call: Call) -> Truth:
        """The truth, allowing for what any sound order of summation and any sound exponential may lose."""

        def answer(inputs: list[Tensor]) -> Tensor:
            return self._formed(self._ask("reference", self.reference, inputs, call), call)

        count = roundings(call.dtype, terms_of(self.shapes.output, self._sizes(call)))
        floor = moved(answer, truth.inputs, truth.reference, call.dtype).times(count)
        lost = 0.0 if self.plain else MAX_SLACK * self._lost_in_type(truth, answer)
        largest = min(max(floor.largest, lost), IMPLAUSIBLE * largest_of(truth.reference))
        most = (max(truth.most[0], largest), max(truth.most[1], floor.mean))
        return replace(truth, rounded=True, most=most, allowed=truth.allowed.clamp(min=largest))

    def _lost_in_type(self, truth: Truth, answer: Callable[[list[Tensor]], Tensor]) -> float:
        """What the reference itself loses in the inputs' own types, where there is no plain implementation."""
        try:
            output = answer(truth.inputs)
        except Refused:
            return 0.0
        same_form = isinstance(output, Tensor) and output.shape == truth.reference.shape
        return errors(output, truth.reference)[0] if same_form else 0.0

    def _formed(self, output: Tensor, call: Call) -> Tensor:
        """An output as it is compared."""
        return output if self.form is None else self._ask("form", self.form, [output.double()], call)

    def _finding(self, truth: Truth, output: Tensor) -> messages.Finding:
        wrong = outside(output, truth.reference, truth.allowed)
        largest, mean = errors(output, truth.reference)
        count, error = int(wrong.sum()), (output - truth.reference).abs()
        # NaN or infinity where it belongs is no error.
        error = torch.where(wrong, error, error.nan_to_num(0.0, 0.0))
        excess = excess_of(output, truth) * wrong
        place = int(error.nan_to_num(0.0, 0.0, 0.0).reshape(-1).argmax()) if error.numel() else None
        return messages.Finding(
            max_error=largest,
            allowed_error=None if place is None else float(truth.allowed.reshape(-1)[place]),
            plain_max_error=truth.plain_max if self.plain else None,
            wrong=count,
            total=output.numel(),
            message=bound_broken(truth, largest, mean) if self.plain else "",
            first=self._wrong(truth, output, wrong) if count else None,
            worst=self._wrong(truth, output, excess) if count else None,
            map=error_map(wrong, error, self.dimensions) if count else {},
            spans=spans(wrong, self.dimensions) if count else {},
        )

    def _wrong(self, truth: Truth, output: Tensor, how_much: Tensor) -> messages.Wrong:
        """The first of the elements that are wrong most."""
        flat = int(how_much.double().reshape(-1).argmax())
        index = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)]
        return messages.Wrong(
            index=dict(zip(self.dimensions, index, strict=True)),
            expected=number(truth.reference.reshape(-1)[flat]),
            got=number(output.reshape(-1)[flat]),
            allowed=float(truth.allowed.reshape(-1)[flat]),
            around=around(truth.reference, output, index),
        )


def around(reference: Tensor, output: Tensor, index: list[int]) -> tuple[tuple[float | None, ...], ...]:
    """Expected and got of the elements beside one, along the last dimension."""
    if not index:
        return ()
    low, high = max(0, index[-1] - BESIDE), min(output.shape[-1], index[-1] + BESIDE + 1)
    row = tuple(index[:-1])
    return tuple((number(reference[row][i]), number(output[row][i])) for i in range(low, high))


def error_map(wrong: Tensor, error: Tensor, dimensions: list[str]) -> dict[str, tuple[messages.Part, ...]]:
    """Along each dimension, in at most eight parts: how many elements are wrong, and the largest error."""
    found = {}
    for axis, name in enumerate(dimensions):
        size = wrong.shape[axis]
        step = -(-size // MAP_PARTS)
        parts = [(first, min(first + step, size)) for first in range(0, size, step)]
        found[name] = tuple(_part(wrong, error, axis, first, last) for first, last in parts)
    return found


def _part(wrong: Tensor, error: Tensor, axis: int, first: int, last: int) -> messages.Part:
    inside = error.narrow(axis, first, last - first)
    largest = number(inside.nan_to_num(math.inf).max())
    return messages.Part(first, last - 1, int(wrong.narrow(axis, first, last - first).sum()), largest)


def spans(wrong: Tensor, dimensions: list[str]) -> dict[str, messages.Stretch]:
    """Along each dimension: the first and the last index with a wrong element, and how many there are."""
    found = {}
    for axis, name in enumerate(dimensions):
        places = wrong.movedim(axis, 0).reshape(wrong.shape[axis], -1).any(1).nonzero().reshape(-1)
        found[name] = messages.Stretch(int(places[0]), int(places[-1]), len(places), wrong.shape[axis])
    return found


def same(one: Tensor, other: Tensor) -> bool:
    """Bitwise equal, NaN in the same places."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def doubt(truth: Truth) -> str:
    """Why the reference or the plain implementation must be wrong; empty when rounding explains their
    difference."""
    largest = largest_of(truth.reference)
    if truth.plain_lost:
        return "the plain implementation gives NaN where the reference gives a number: one of them is wrong"
    if truth.plain_max <= IMPLAUSIBLE * largest + IMPLAUSIBLE_FLOOR:
        return ""
    return (
        f"reference and plain implementation differ by {truth.plain_max:.2g} where values reach {largest:.2g}: "
        "one of them is wrong"
    )


def rounding_may_explain(truth: Truth, outputs: list[Tensor]) -> bool:
    """Whether no output has a NaN or infinity out of place, or is further off than any rounding goes."""
    most = IMPLAUSIBLE * largest_of(truth.reference)
    finite = truth.reference.isfinite()
    return all(
        bool((output.isfinite() == finite).all()) and errors(output, truth.reference)[0] <= most
        for output in outputs
    )


def largest_of(reference: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none."""
    finite = reference[reference.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def outside(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Which elements are not within their allowed error; NaN is right only where the reference is NaN."""
    near = (output - reference).abs() <= allowed
    same = (output == reference) | (output.isnan() & reference.isnan())
    return ~(near | same)


def excess_of(output: Tensor, truth: Truth) -> Tensor:
    """How many times its allowed error an element is off; a NaN or infinity out of place comes first."""
    excess = (output - truth.reference).abs() / truth.allowed.clamp(min=1e-300)
    return excess.nan_to_num(1e300, 1e300).clamp(max=1e300)


def errors(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over the elements that are finite on both sides."""
    difference = (output.double() - reference).abs()
    difference = difference[difference.isfinite()]
    if not difference.numel():
        return 0.0, 0.0
    return float(difference.max()), float(difference.mean())


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


def start(terms: messages.Begin) -> Judge:
    """A judge; raises Refused when a function of the target cannot be found."""
    try:
        return Judge(terms)
    except AttributeError as error:
        raise Refused(str(error)) from error
