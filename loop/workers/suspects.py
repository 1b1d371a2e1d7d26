"""The fault dictionary: a wrong output is compared with the outputs of known faults.

Known faults are the reference with a mistake that its signature allows (`mistakes.wrong_results`, which has the
gate's controls too), the target's own `faults`, and the right answer times a factor. A fault that explains all
wrong elements fits; it fits as a whole where it explains the right ones too.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy
import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused
from loop.mistakes.arrays import Array, Attributes, Terms
from loop.mistakes.table import MAKERS
from loop.mistakes.wrong_results import wrong_results
from loop.model.signature import PythonFunction, Signature
from loop.workers.asking import Asking, Inputs
from loop.workers.blind_spots import AS_WITH, other_values
from loop.workers.workload_call import finds_outputs, only_output

SLACK = 4.0
"""A wrong answer may be that many times as far from a suspect's as a right answer from the reference: its values
are larger."""
EXPLAINED = 0.98
"""Share of the wrong elements that a suspect has to explain, and of the right ones to explain the whole."""
LEFT = 0.25
"""Share of the error (root of the mean square) that may be left: a suspect explains it, and is not just near."""
LEAST = 8
"""Wrong elements that are needed, finite and unlike each other: fewer resemble a suspect's by chance."""
MOST_COUNTED = 4096
"""Wrong elements that are counted as different, or up to twice as many."""
MOST_HELD = 8
"""Outputs of one call that a suspect has to explain."""
NOTABLE = 0.01
"""A factor differs from 1 by at least this: sums in low precision shrink by less."""

Reference = Callable[[list[Tensor], Call], Tensor]
"""The reference on inputs, with the attributes of a call."""
Suspect = tuple[str, Callable[[], Tensor]]
"""The words after "as if", and the answer then."""


class WrongOutput:
    """The right answer to a call, and an output that is wrong."""

    def __init__(self, reference: Tensor, allowed: Tensor, rtol: float, output: Tensor, wrong: Tensor) -> None:
        self.reference, self.output, self.wrong = reference, output, wrong
        self.floor, self.rtol = (allowed - rtol * _size(reference)).clamp(min=0.0), rtol

    @property
    def telling(self) -> int:
        """Finite wrong elements, where those with the same right and wrong value count once."""
        pairs = torch.stack([self.reference, self.output])[:, self.wrong & self.output.isfinite()]
        pairs = pairs[:, :: max(1, pairs.shape[1] // MOST_COUNTED)]
        step = float(self._allowed(self.reference).max().clamp(min=1e-300)) if pairs.numel() else 1.0
        return len(set(zip(*(pairs / step).round().tolist(), strict=True)))

    def explained(self, answer: Tensor) -> bool | None:
        """Whether a suspect's answer comes near all elements; None where it does not near the wrong ones."""
        if answer.shape != self.output.shape or self.error(answer) > LEFT * self.error(self.reference):
            return None
        near = (self.output - answer).abs() <= self._allowed(answer)
        near |= (self.output == answer) | (self.output.isnan() & answer.isnan())
        parts = near[self.wrong], near[~self.wrong]
        shares = [float(part.double().mean()) if part.numel() else 1.0 for part in parts]
        return None if shares[0] < EXPLAINED else shares[1] >= EXPLAINED

    def error(self, answer: Tensor) -> float:
        """Root of the mean squared error of the wrong elements that are finite, were this the right answer."""
        error = (self.output - answer)[self.wrong & self.output.isfinite() & self.reference.isfinite()]
        return float(error.square().mean().sqrt().nan_to_num(math.inf)) if error.numel() else 0.0

    def multiplied(self) -> list[Suspect]:
        """The right answer times one number, where wrong elements tell which: they differ in more than that."""
        clear = self.wrong & self.output.isfinite() & (_size(self.reference) > SLACK * self.floor)
        right = self.reference[clear]
        if len(right) < LEAST or float(right.std()) <= LEFT * float(right.square().mean().sqrt()):
            return []
        times = float((self.output[clear] / right).median())
        if abs(times - 1) < NOTABLE:
            return []
        return [(f"it were multiplied by {times:.3g}", lambda: times * self.reference)]

    def _allowed(self, answer: Tensor) -> Tensor:
        return SLACK * (self.floor + self.rtol * _size(answer))


def _size(values: Tensor) -> Tensor:
    """Magnitudes; 0 of what is not finite."""
    return values.abs().nan_to_num(0.0, 0.0, 0.0)


def fits(outputs: Sequence[WrongOutput], suspects: Iterable[Suspect]) -> dict[str, bool] | None:
    """The suspects that explain all of these outputs of a call, and whether they explain also the right elements.

    None where too little is wrong to tell.
    """
    held = outputs[:MOST_HELD]
    if not any(output.telling >= LEAST for output in held):
        return None
    fitting: dict[str, bool] = {}
    for as_if, ask in suspects:
        known = {words.partition(AS_WITH)[0] for words, whole in fitting.items() if whole}
        if as_if.partition(AS_WITH)[0] in known:
            continue
        try:
            answer = ask()
            explained = [output.explained(answer) for output in held]
        except Exception:  # A reference that cannot be called so says nothing.
            continue
        if None not in explained:
            fitting[as_if] = all(explained)
    return fitting


def functions(faults: Mapping[str, PythonFunction]) -> list[tuple[str, torch_side.Function]]:
    """A target's own faults with their functions; Refused with its entry where there is none."""
    functions = []
    for as_if, function in faults.items():
        try:
            functions.append((as_if, torch_side.find(function.python)))
        except Refused as missing:
            raise Refused(f"faults: {as_if}: {missing}") from missing
    return functions


def of_signature(
    reference: Reference, call: Call, inputs: Sequence[Tensor], signature: Signature, right: Tensor
) -> Iterator[Suspect]:
    """Mistakes that any target may have: the gate's controls among them are put into the reference."""
    exact = [tensor.double() for tensor in inputs]
    axes, sizes = " ".join(f"axis_{axis}" for axis in range(right.dim())), dict[str, int]()
    output = axes if finds_outputs(signature) else only_output(signature)
    for text, tensor in zip((*signature.inputs.values(), output), (*exact, right), strict=True):
        sizes |= zip(text.split(), tensor.shape, strict=True)
    for mistake in wrong_results(signature.inputs, output):
        if mistake.as_if and mistake.shows(sizes):
            yield mistake.as_if, partial(_erring, reference, call, exact, right, mistake.make, dict(mistake.terms))
    yield from of_attributes(call, signature, lambda changed: reference([t.clone() for t in exact], changed))


def of_attributes(call: Call, signature: Signature, reference: Callable[[Call], Tensor]) -> Iterator[Suspect]:
    """As if an attribute had another value; `reference` answers the call with it."""
    for name, attribute in signature.attributes.items():
        for as_if, value in other_values(call.attributes[name], attribute):
            yield f"{name} {as_if}", partial(reference, call.but(attributes={**call.attributes, name: value}))


def of_target(asking: Asking, reference: torch_side.Function, inputs: Inputs, right: Tensor) -> Iterator[Suspect]:
    """A target's own faults, and mistakes that its signature allows."""
    call, exact = inputs.call, [tensor.double() for tensor in inputs.tensors]
    for as_if, function in functions(asking.terms.faults):
        yield as_if, partial(asking.ask, "fault", function, exact, call)
    ask = partial(asking.ask, "reference", reference)
    yield from of_signature(ask, call, inputs.tensors, asking.signature, right)


def of_any(
    answer: Callable[[Sequence[Tensor]], Tensor],
    signature: Signature,
    inputs: Inputs,
    right: Tensor,
    *,
    whole: bool,
) -> Iterator[Suspect]:
    """Mistakes that any call may have, whatever its structure: `answer` is the reference on other inputs.

    `whole`: the right results are whole numbers.
    """
    tensors, names = inputs.tensors, [file.name for file in inputs.call.inputs]

    def first_of(place: int, axis: int) -> Tensor:
        """An input of which the first index along an axis stands at all of them."""
        return tensors[place].narrow(axis, 0, 1).expand_as(tensors[place]).clone()

    along: dict[str, list[tuple[int, int]]] = {}
    for place, (tensor, name) in enumerate(zip(tensors, names, strict=True)):
        dimensions = signature.inputs.get(name, "").split()
        declared = len(dimensions) == tensor.dim()
        others = {f"{name} were zero": torch.zeros_like(tensor), f"{name} were one": torch.ones_like(tensor)}
        others[f"the sign of {name} were lost"] = tensor.abs()
        for axis, dimension in enumerate(dimensions if declared else [f"axis {n}" for n in range(tensor.dim())]):
            if tensor.shape[axis] > 1:
                others[f"only the first {dimension} of {name} were read"] = first_of(place, axis)
                others[f"{name} were read one {dimension} too early"] = tensor.roll(1, axis)
                others[f"{name} were read one {dimension} too late"] = tensor.roll(-1, axis)
                if declared:
                    along.setdefault(dimension, []).append((place, axis))
        for words, other in others.items():
            yield words, partial(answer, [*tensors[:place], other, *tensors[place + 1 :]])
    for dimension, places in along.items():  # Of two inputs only the first index of a dimension that they share.
        for pair in itertools.combinations(places, 2):
            changed = list(tensors)
            for place, axis in pair:
                changed[place] = first_of(place, axis)
            words = " and ".join(names[place] for place, _ in pair)
            yield f"only the first {dimension} of {words} were read", partial(answer, changed)
    for words, result in _changed_results(right, whole=whole):
        yield words, partial(torch.clone, result)


def _changed_results(right: Tensor, *, whole: bool) -> Iterator[tuple[str, Tensor]]:
    """What an output would be if ..., and it: zeros, wrong signs, a narrow integer type, off by one.

    `whole`: the right results are whole numbers; the last two concern these only.
    """
    yield "nothing were computed (zeros)", torch.zeros_like(right)
    yield "negative results were zero", right.clamp(min=0)
    yield "its sign were lost", right.abs()
    yield "its sign were turned", -right
    for bits in (8, 16, 32) if whole else ():
        half = 2.0 ** (bits - 1)
        yield f"it overflowed an int{bits}", (right + half).remainder(2 * half) - half
        yield f"it overflowed a uint{bits}", right.remainder(2 * half)
        yield f"it were cut off at the ends of an int{bits}", right.clamp(-half, half - 1)
    if whole:
        yield "each result were one too large", right + 1
        yield "each result were one too small", right - 1


def _erring(
    reference: Reference, call: Call, exact: Sequence[Tensor], right: Tensor, make: str, terms: Terms
) -> Tensor:
    """The answer where the reference makes a mistake."""
    inputs = [tensor.numpy() for tensor in exact]
    output = numpy.full(tuple(right.shape), math.nan)

    def honest(arrays: Sequence[Array], result: Array, attributes: Attributes) -> None:
        unchanged = all(array is original for array, original in zip(arrays, inputs, strict=True))
        changed = call.but(attributes=attributes)
        tensors = [torch.from_numpy(array) for array in arrays]
        answer = right if unchanged and changed == call else reference(tensors, changed)
        if answer.shape != right.shape:
            raise ValueError("an output of another shape")
        result[...] = answer.numpy()

    MAKERS[make](terms)(honest, inputs, output, dict(call.attributes))
    return torch.from_numpy(output)
