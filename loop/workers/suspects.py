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

from loop.calls.call import Call
from loop.model.target import Signature
from loop.workers.blind_spots import EXAMPLE_PREFIX, alternative_values, run_in_time

ALLOWANCE_FACTOR = 4.0  # The distance to a suspect's answer may be this many times the allowed error.
MIN_EXPLAINED_SHARE = 0.98  # Of wrong elements, and of right ones to fit as a whole.
MAX_REMAINING_SHARE = 0.25  # Of the error (RMS), if a suspect explains it.
MIN_DISTINCT_ERRORS = 8  # Fewer distinct wrong elements resemble a suspect by chance.
MAX_SAMPLED_ERRORS = 4096  # Wrong elements sampled to count distinct ones (at most twice as many).
MAX_COMPARED_OUTPUTS = 8  # Maximum number of outputs of one call that a suspect has to explain.
MIN_FACTOR_DEVIATION = 0.01  # Smallest deviation of a factor from 1: sums in low precision shrink by less.


RunReference = Callable[[Sequence[Tensor], Call], Tensor]
"""Runs the reference on inputs with the attributes of a call."""
Suspect = tuple[str, Callable[[], Tensor]]
"""A known fault: the words after "as if", and a function that computes its output."""


class WrongOutput:
    """A wrong output of a call. A suspect's answer is the output that the known fault gives."""

    def __init__(self, reference: Tensor, allowed: Tensor, rtol: float, output: Tensor, wrong: Tensor) -> None:
        """`allowed`: allowed error of each element. `rtol`: the relative part of it."""
        self.reference, self.output, self.wrong_mask, self.rtol = reference, output, wrong, rtol
        self.absolute_allowance = (allowed - rtol * _finite_magnitudes(reference)).clamp(min=0.0)

    @property
    def distinct_errors(self) -> int:
        """Number of distinct pairs of right and wrong value, each as a multiple of the allowed distance."""
        pairs = torch.stack([self.reference, self.output])[:, self.wrong_mask & self.output.isfinite()]
        if not pairs.numel():
            return 0
        pairs = pairs[:, :: max(1, pairs.shape[1] // MAX_SAMPLED_ERRORS)]
        distance = float(self._allowed_distance(self.reference).max().clamp(min=1e-300))
        right_values, wrong_values = (pairs / distance).round().tolist()
        return len(set(zip(right_values, wrong_values, strict=True)))

    def judge_suspect(self, answer: Tensor) -> bool | None:
        """Whether a suspect's answer is near the right elements of the output too; None if it is
        not even near the wrong ones, so that the suspect is no explanation."""
        least_error = MAX_REMAINING_SHARE * self.rms_error(self.reference)
        if answer.shape != self.output.shape or self.rms_error(answer) > least_error:
            return None
        is_near = (self.output - answer).abs() <= self._allowed_distance(answer)
        is_near |= (self.output == answer) | (self.output.isnan() & answer.isnan())
        near_wrong, near_right = is_near[self.wrong_mask], is_near[~self.wrong_mask]
        if int(near_wrong.sum()) < MIN_EXPLAINED_SHARE * near_wrong.numel():
            return None
        return int(near_right.sum()) >= MIN_EXPLAINED_SHARE * near_right.numel()

    def rms_error(self, answer: Tensor) -> float:
        """RMS error of the finite wrong elements if `answer` were right."""
        error = (self.output - answer)[self.wrong_mask & self.output.isfinite() & self.reference.isfinite()]
        return float(error.square().mean().sqrt().nan_to_num(math.inf)) if error.numel() else 0.0

    def find_factor(self) -> list[Suspect]:
        """The suspect "right answer times a factor", with the median factor; empty if none stands out."""
        is_large = _finite_magnitudes(self.reference) > ALLOWANCE_FACTOR * self.absolute_allowance
        usable_mask = self.wrong_mask & self.output.isfinite() & is_large
        right_values = self.reference[usable_mask]
        if len(right_values) < MIN_DISTINCT_ERRORS:
            return []
        # For nearly equal elements a factor and an added constant look alike.
        if float(right_values.std()) <= MAX_REMAINING_SHARE * float(right_values.square().mean().sqrt()):
            return []
        factor = float((self.output[usable_mask] / right_values).median())
        if abs(factor - 1) < MIN_FACTOR_DEVIATION:
            return []
        return [(f"it were multiplied by {factor:.3g}", lambda: factor * self.reference)]

    def _allowed_distance(self, answer: Tensor) -> Tensor:
        """How far each element of the output may be from a suspect's answer that explains it."""
        return ALLOWANCE_FACTOR * (self.absolute_allowance + self.rtol * _finite_magnitudes(answer))


def _finite_magnitudes(values: Tensor) -> Tensor:
    """Magnitudes; 0 for NaN and infinity."""
    return values.abs().nan_to_num(0.0, 0.0, 0.0)


def find_fitting_suspects(outputs: Sequence[WrongOutput], suspects: Iterable[Suspect]) -> dict[str, bool] | None:
    """Find the suspects that explain all these outputs of a call; if none does, try the right answer times a
    factor. Returns descriptions, each with whether it explains the right elements too; None: too few are wrong."""
    compared = outputs[:MAX_COMPARED_OUTPUTS]
    if not any(output.distinct_errors >= MIN_DISTINCT_ERRORS for output in compared):
        return None
    fitting: dict[str, bool] = {}
    complete_faults: set[str] = set()  # Without their examples: another example adds nothing.
    for tried in (suspects, outputs[0].find_factor()):
        for description, compute_answer in () if fitting else tried:
            fault_name = description.partition(EXAMPLE_PREFIX)[0]
            if fault_name in complete_faults:
                continue
            try:
                answer = compute_answer()
                judgements = [output.judge_suspect(answer) for output in compared]
            except Exception:  # The reference may reject a suspect's changed call.
                continue
            if None not in judgements:  # It explains the wrong elements of each.
                fitting[description] = all(judgements)
                if fitting[description]:
                    complete_faults.add(fault_name)
    return fitting


def find_suspects(
    run_reference: RunReference,
    call: Call,
    inputs: Sequence[Tensor],
    signature: Signature,
    right_output: Tensor,
    *,
    has_plain_signature: bool,
    is_integer: bool,
) -> Iterator[Suspect]:
    """Yield suspects (known faults) for a call of this signature: changed attributes, wrongly read
    inputs, a changed result. `has_plain_signature`: it takes tensors one by one and returns
    one; then also swapped inputs, partly summed dimensions, a shifted or transposed output."""

    def answer_with(replacements: Mapping[int, Tensor]) -> Callable[[], Tensor]:
        """The reference on the inputs, of which some are replaced: position to tensor."""
        changed = [replacements.get(position, tensor) for position, tensor in enumerate(inputs)]
        return partial(run_reference, changed, call)

    names = [file.name for file in call.inputs]
    dimensions_of_input: list[list[str]] = []
    axes_of_dimension: dict[str, list[tuple[int, int]]] = {}  # Positions of inputs, and axes.
    for position, tensor in enumerate(inputs):
        dimensions = signature.inputs.get(names[position], "").split()
        is_known = len(dimensions) == tensor.dim()
        dimensions_of_input.append(dimensions if is_known else [f"axis_{n}" for n in range(tensor.dim())])
        for axis, dimension in enumerate(dimensions if is_known else ()):
            axes_of_dimension.setdefault(dimension, []).append((position, axis))
    size_by_dimension = {name: inputs[axes[0][0]].shape[axes[0][1]] for name, axes in axes_of_dimension.items()}
    if has_plain_signature:
        for i, j in itertools.combinations(range(len(names)), 2):
            if inputs[i].shape == inputs[j].shape:
                yield f"{names[i]} and {names[j]} were swapped", answer_with({i: inputs[j], j: inputs[i]})
                yield f"{names[i]} were read for {names[j]}", answer_with({j: inputs[i]})
                yield f"{names[j]} were read for {names[i]}", answer_with({i: inputs[j]})
        output_dimensions = signature.output_dimensions.split()
        if signature.has_unknown_outputs:
            output_dimensions = [f"axis_{axis}" for axis in range(right_output.dim())]
        for dimension, axes in axes_of_dimension.items():
            size = size_by_dimension[dimension]
            # What a wrong loop over a summed dimension leaves out, and the indices that it reads.
            read_ranges = {
                "the last index": range(size - 1),
                "the first index": range(1, size),
                "the second half": range(size // 2),
            }
            is_summed = dimension not in output_dimensions and size > 1
            for omission, indices in read_ranges.items() if is_summed else ():
                shorter = dict(enumerate(inputs))
                for position, axis in axes:
                    part = shorter[position].narrow(axis, indices.start, len(indices))
                    shorter[position] = part.contiguous()
                yield f"{omission} of {dimension} were left out", answer_with(shorter)
        yield from _shifted_outputs(right_output, output_dimensions)
    for name, attribute in signature.attributes.items():
        for description, value in alternative_values(call.attributes[name], attribute):
            changed_call = call.replace(attributes={**call.attributes, name: value})
            yield f"{name} {description}", partial(run_in_time, partial(run_reference, inputs, changed_call))
    for position, (tensor, name) in enumerate(zip(inputs, names, strict=True)):
        yield f"{name} were zero", answer_with({position: torch.zeros_like(tensor)})
        yield f"{name} were one", answer_with({position: torch.ones_like(tensor)})
        if tensor.dtype.is_signed:  # Neither bool nor unsigned.
            yield f"the sign of {name} were lost", answer_with({position: tensor.abs()})
        for axis, dimension in enumerate(dimensions_of_input[position]):
            if tensor.shape[axis] > 1:
                repeated = tensor.narrow(axis, 0, 1).expand_as(tensor).clone()
                yield f"only the first {dimension} of {name} were read", answer_with({position: repeated})
                for shift, word in ((1, "early"), (-1, "late")):
                    shifted = answer_with({position: tensor.roll(shift, axis)})
                    yield f"{name} were read one {dimension} too {word}", shifted
    # Two inputs that share a dimension both repeat its first index.
    for dimension, axes in axes_of_dimension.items():
        for pair in itertools.combinations(axes, 2) if size_by_dimension[dimension] > 1 else ():
            both = {n: inputs[n].narrow(axis, 0, 1).expand_as(inputs[n]).clone() for n, axis in pair}
            pair_names = " and ".join(names[position] for position, _ in pair)
            yield f"only the first {dimension} of {pair_names} were read", answer_with(both)
    yield from _changed_results(right_output, is_integer=is_integer)


def _shifted_outputs(right_output: Tensor, dimensions: Sequence[str]) -> Iterator[Suspect]:
    """Yield suspects that move the elements of a right output with these dimensions."""
    for axis, dimension in enumerate(dimensions):
        for shift, place in ((1, "before"), (-1, "after")) if right_output.shape[axis] > 1 else ():
            description = f"each place held the one {place} it along {dimension}"
            yield description, partial(right_output.roll, shift, axis)
    if len(dimensions) > 1 and min(right_output.shape[-2:]) > 1:
        transposed = right_output.transpose(-1, -2).reshape(right_output.shape)
        yield "the last two dimensions of the output were swapped in memory", partial(torch.clone, transposed)


def _changed_results(right_output: Tensor, *, is_integer: bool) -> Iterator[Suspect]:
    """Yield suspects that change a right result: zeros, signs, overflow, off by one."""
    answer_by_fault = {
        "nothing were computed (zeros)": torch.zeros_like(right_output),
        "negative results were zero": right_output.clamp(min=0),
        "its sign were lost": right_output.abs(),
        "its sign were turned": -right_output,
    }
    if is_integer:
        for bits in (8, 16, 32):
            half = 2.0 ** (bits - 1)
            answer_by_fault[f"it overflowed an int{bits}"] = (right_output + half).remainder(2 * half) - half
            answer_by_fault[f"it overflowed a uint{bits}"] = right_output.remainder(2 * half)
            answer_by_fault[f"it were cut off at the ends of an int{bits}"] = right_output.clamp(-half, half - 1)
        answer_by_fault["each result were one too large"] = right_output + 1
        answer_by_fault["each result were one too small"] = right_output - 1
    for fault, answer in answer_by_fault.items():
        yield fault, partial(torch.clone, answer)
