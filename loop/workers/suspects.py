"""The fault dictionary: compares a wrong output with the outputs of known faults.

Known faults are the reference on changed inputs, with other attributes or with a changed result,
the target's own `faults`, and the right answer times a factor. A fault fits if it explains all
wrong elements. It fits as a whole if it also explains the right ones.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused
from loop.model.signature import PythonFunction, Signature
from loop.workers.blind_spots import EXAMPLE_PREFIX, alternative_values
from loop.workers.workload_call import has_unknown_outputs, only_output_dimensions

ALLOWANCE_FACTOR = 4.0
"""The distance to a suspect's answer may be this many times the allowed error."""
MIN_EXPLAINED_SHARE = 0.98
"""Share of wrong elements that a suspect must explain, and of right ones to fit as a whole."""
MAX_REMAINING_SHARE = 0.25
"""Largest share of the error (RMS) that may remain if a suspect is the explanation."""
MIN_DISTINCT_ERRORS = 8
"""Minimum number of distinct finite wrong elements: fewer resemble a suspect by chance."""
MAX_SAMPLED_ERRORS = 4096
"""Wrong elements sampled to count distinct ones (at most twice as many)."""
MAX_COMPARED_OUTPUTS = 8
"""Maximum number of outputs of one call that a suspect has to explain."""
MIN_FACTOR_DEVIATION = 0.01
"""Smallest deviation of a factor from 1: sums in low precision shrink by less."""

SKIPPED_PARTS = {"the last index": (0, -1), "the first index": (1, None), "the second half": (0, -2)}
"""Fault of a loop over a dimension to the index range it reads (None: end, -2: middle)."""

RunReference = Callable[[Sequence[Tensor], Call], Tensor]
"""Runs the reference on inputs with the attributes of a call."""
Suspect = tuple[str, Callable[[], Tensor]]
"""A known fault: the words after "as if", and a function that computes its output."""


class WrongOutput:
    """A wrong output of a call, with the right answer and the mask of wrong elements."""

    def __init__(self, reference: Tensor, allowed: Tensor, rtol: float, output: Tensor, wrong: Tensor) -> None:
        self.reference, self.output, self.wrong = reference, output, wrong
        self.absolute_allowance, self.rtol = (allowed - rtol * _finite_magnitudes(reference)).clamp(min=0.0), rtol

    @property
    def distinct_errors(self) -> int:
        """Number of distinct finite wrong elements, by pairs of right and wrong value."""
        pairs = torch.stack([self.reference, self.output])[:, self.wrong & self.output.isfinite()]
        pairs = pairs[:, :: max(1, pairs.shape[1] // MAX_SAMPLED_ERRORS)]
        step = float(self._allowed_distance(self.reference).max().clamp(min=1e-300)) if pairs.numel() else 1.0
        return len(set(zip(*(pairs / step).round().tolist(), strict=True)))

    def judge_suspect(self, answer: Tensor) -> bool | None:
        """Whether a suspect's answer is near all elements; None if not near the wrong ones."""
        if answer.shape != self.output.shape or self.rms_error(answer) > MAX_REMAINING_SHARE * self.rms_error(
            self.reference
        ):
            return None
        near = (self.output - answer).abs() <= self._allowed_distance(answer)
        near |= (self.output == answer) | (self.output.isnan() & answer.isnan())
        parts = near[self.wrong], near[~self.wrong]
        shares = [float(part.double().mean()) if part.numel() else 1.0 for part in parts]
        return None if shares[0] < MIN_EXPLAINED_SHARE else shares[1] >= MIN_EXPLAINED_SHARE

    def rms_error(self, answer: Tensor) -> float:
        """RMS error of the finite wrong elements if `answer` were right."""
        error = (self.output - answer)[self.wrong & self.output.isfinite() & self.reference.isfinite()]
        return float(error.square().mean().sqrt().nan_to_num(math.inf)) if error.numel() else 0.0

    def find_factor(self) -> list[Suspect]:
        """Suspects "right answer times a factor": one, or none without a clear factor."""
        clear = (
            self.wrong
            & self.output.isfinite()
            & (_finite_magnitudes(self.reference) > ALLOWANCE_FACTOR * self.absolute_allowance)
        )
        right = self.reference[clear]
        if len(right) < MIN_DISTINCT_ERRORS or float(right.std()) <= MAX_REMAINING_SHARE * float(
            right.square().mean().sqrt()
        ):
            return []
        times = float((self.output[clear] / right).median())
        if abs(times - 1) < MIN_FACTOR_DEVIATION:
            return []
        return [(f"it were multiplied by {times:.3g}", lambda: times * self.reference)]

    def _allowed_distance(self, answer: Tensor) -> Tensor:
        """Allowed distance of each element from a suspect's answer."""
        return ALLOWANCE_FACTOR * (self.absolute_allowance + self.rtol * _finite_magnitudes(answer))


def _finite_magnitudes(values: Tensor) -> Tensor:
    """Magnitudes; 0 for NaN and infinity."""
    return values.abs().nan_to_num(0.0, 0.0, 0.0)


def find_fitting_suspects(outputs: Sequence[WrongOutput], suspects: Iterable[Suspect]) -> dict[str, bool] | None:
    """Find the suspects that explain all these outputs of a call. Returns their words, each with
    whether it explains the right elements too; None if too few elements are wrong."""
    held = outputs[:MAX_COMPARED_OUTPUTS]
    if not any(output.distinct_errors >= MIN_DISTINCT_ERRORS for output in held):
        return None
    fitting: dict[str, bool] = {}
    for as_if, ask in suspects:
        known = {words.partition(EXAMPLE_PREFIX)[0] for words, whole in fitting.items() if whole}
        if as_if.partition(EXAMPLE_PREFIX)[0] in known:
            continue
        try:
            answer = ask()
            explained = [output.judge_suspect(answer) for output in held]
        except Exception:  # The reference may reject a suspect's changed call.
            continue
        if None not in explained:
            fitting[as_if] = all(explained)
    return fitting


def load_faults(faults: Mapping[str, PythonFunction]) -> list[tuple[str, torch_side.Function]]:
    """Load a target's own faults as (words, function). Raises Refused if one cannot be loaded."""
    functions = []
    for as_if, function in faults.items():
        try:
            functions.append((as_if, torch_side.find_function(function.python)))
        except Refused as missing:
            raise Refused(f"faults: {as_if}: {missing}") from missing
    return functions


def suspects_of_call(
    answer: RunReference,
    call: Call,
    inputs: Sequence[Tensor],
    signature: Signature,
    right: Tensor,
    *,
    has_plain_signature: bool,
) -> Iterator[Suspect]:
    """Yield suspects for a call of this signature: changed attributes and wrongly read inputs.
    `answer`: the reference. `right`: its output. `plain`: the function takes tensors one by one and
    returns one; then also faults of dimensions and of pairs of inputs."""
    if has_plain_signature:
        yield from _suspects_of_dimensions(answer, call, inputs, signature, right)
    for name, attribute in signature.attributes.items():
        for as_if, value in alternative_values(call.attributes[name], attribute):
            changed = call.replace(attributes={**call.attributes, name: value})
            yield f"{name} {as_if}", partial(answer, inputs, changed)
    names, along = [file.name for file in call.inputs], dict[str, list[tuple[int, int]]]()
    for place, (tensor, name) in enumerate(zip(inputs, names, strict=True)):
        dimensions = signature.inputs.get(name, "").split()
        declared = len(dimensions) == tensor.dim()
        others = {f"{name} were zero": torch.zeros_like(tensor), f"{name} were one": torch.ones_like(tensor)}
        others[f"the sign of {name} were lost"] = tensor.abs()
        for axis, dimension in enumerate(dimensions if declared else [f"axis {n}" for n in range(tensor.dim())]):
            if tensor.shape[axis] > 1:
                others[f"only the first {dimension} of {name} were read"] = _repeat_first_index(tensor, axis)
                others[f"{name} were read one {dimension} too early"] = tensor.roll(1, axis)
                others[f"{name} were read one {dimension} too late"] = tensor.roll(-1, axis)
                if declared:
                    along.setdefault(dimension, []).append((place, axis))
        for words, other in others.items():
            yield words, partial(answer, _replace_inputs(inputs, {place: other}), call)
    for dimension, places in along.items():  # Both inputs that share a dimension repeat its first index.
        for pair in itertools.combinations(places, 2):
            changed_inputs = _replace_inputs(
                inputs, {place: _repeat_first_index(inputs[place], axis) for place, axis in pair}
            )
            words = " and ".join(names[place] for place, _ in pair)
            yield f"only the first {dimension} of {words} were read", partial(answer, changed_inputs, call)


def _replace_inputs(inputs: Sequence[Tensor], others: Mapping[int, Tensor]) -> list[Tensor]:
    """Copy the list of inputs with some positions replaced."""
    return [others.get(place, tensor) for place, tensor in enumerate(inputs)]


def _repeat_first_index(tensor: Tensor, axis: int) -> Tensor:
    """Repeat the first index along an axis over the whole axis."""
    return tensor.narrow(axis, 0, 1).expand_as(tensor).clone()


def _suspects_of_dimensions(
    answer: RunReference, call: Call, inputs: Sequence[Tensor], signature: Signature, right: Tensor
) -> Iterator[Suspect]:
    """Yield suspects: exchanged inputs, partly summed dimensions, shifted or transposed outputs."""
    for (x, (a, tensor)), (y, (b, other)) in itertools.combinations(
        enumerate(zip(signature.inputs, inputs, strict=True)), 2
    ):
        if tensor.shape == other.shape:
            yield (
                f"{a} and {b} were swapped",
                partial(answer, _replace_inputs(inputs, {x: other, y: tensor}), call),
            )
            yield f"{a} were read for {b}", partial(answer, _replace_inputs(inputs, {y: tensor}), call)
            yield f"{b} were read for {a}", partial(answer, _replace_inputs(inputs, {x: other}), call)
    names = [f"axis_{axis}" for axis in range(right.dim())]
    output = names if has_unknown_outputs(signature) else only_output_dimensions(signature).split()
    dimensions = [text.split() for text in signature.inputs.values()]
    for name in dict.fromkeys(name for names in dimensions for name in names if name not in output):
        places = [
            (n, axis) for n, names in enumerate(dimensions) for axis, other in enumerate(names) if other == name
        ]
        size = inputs[places[0][0]].shape[places[0][1]]
        for part, (first, end) in SKIPPED_PARTS.items() if size > 1 else ():
            last = {None: size, -1: size - 1, -2: size // 2}[end]
            shorter = list(inputs)
            for place, axis in places:
                shorter[place] = shorter[place].narrow(axis, first, last - first).contiguous()
            yield f"{part} of {name} were left out", partial(answer, shorter, call)
    for axis, name in enumerate(output):
        for by, which in ((1, "before"), (-1, "after")) if right.shape[axis] > 1 else ():
            yield f"each place held the one {which} it along {name}", partial(right.roll, by, axis)
    if len(output) > 1 and min(right.shape[-2:]) > 1:
        turned = right.transpose(-1, -2).reshape(right.shape)
        yield "the last two dimensions of the output were swapped in memory", partial(torch.clone, turned)


def suspects_of_result(right: Tensor, *, is_integer: bool) -> Iterator[Suspect]:
    """Yield suspects that change a right result: zeros, wrong signs, integer overflow, off by one.
    `whole`: the results are integers; the last two kinds apply only then."""
    results = {
        "nothing were computed (zeros)": torch.zeros_like(right),
        "negative results were zero": right.clamp(min=0),
    }
    results |= {"its sign were lost": right.abs(), "its sign were turned": -right}
    for bits in (8, 16, 32) if is_integer else ():
        half = 2.0 ** (bits - 1)
        results[f"it overflowed an int{bits}"] = (right + half).remainder(2 * half) - half
        results[f"it overflowed a uint{bits}"] = right.remainder(2 * half)
        results[f"it were cut off at the ends of an int{bits}"] = right.clamp(-half, half - 1)
    if is_integer:
        results |= {"each result were one too large": right + 1, "each result were one too small": right - 1}
    for words, result in results.items():
        yield words, partial(torch.clone, result)
