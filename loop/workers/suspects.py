"""Known faults that explain a wrong output; and what the inputs of a target cannot show.

Known faults are the reference on changed inputs, with other attributes or with a changed result,
the target's own `faults`, and the right answer times a factor. A fault fits if it explains all
wrong elements. It fits as a whole if it also explains the right ones.

Inputs hide errors if they never vary, or if the reference does not read them."""

import hashlib
import itertools
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from loop.calls.call import Call, Refused, Value
from loop.calls.callee import bytes_of, make_instance, same_bits
from loop.model.measurement import Weaknesses
from loop.model.target import Attribute, Signature
from loop.workers.target_functions import Inputs, TargetFunctions

ALLOWANCE_FACTOR = 4.0  # A suspect's answer may be this many times the allowed error away.
MIN_EXPLAINED_SHARE = 0.98  # Of wrong elements, and of right ones to fit as a whole.
MAX_REMAINING_SHARE = 0.25  # Of the error (RMS), if a suspect explains it.
MIN_DISTINCT_ERRORS = 8  # Fewer distinct wrong elements resemble a suspect by chance.
MAX_SAMPLED_ERRORS = 4096  # Wrong elements sampled to count distinct ones (at most twice as many).
MAX_COMPARED_OUTPUTS = 8  # Maximum number of outputs of one call that a suspect has to explain.
MIN_FACTOR_DEVIATION = 0.01  # From 1, of a factor: sums in low precision shrink by less.
EXAMPLE_PREFIX = " (as with "  # Begins a fault's example. Without it, equal faults are one.
SAMPLED_ELEMENTS = 1 << 16  # Elements of an input whose digest tells whether the seed changes it.
LEAST_HALVED, MOST_INPUTS = 8, 8  # Least size of a dimension to halve; most inputs of its call.
HUGE_NUMBER = 1 << 46  # No real call's limit or window; as a size, more than any address space.
CHANGED_CALL_LIMIT_S = 2.0  # With a changed attribute: counting to `HUGE_NUMBER` has no end.
RunReference = Callable[[Sequence[Tensor], Call], Tensor]  # On inputs, with the call's attributes.
Suspect = tuple[str, Callable[[], Tensor]]  # A known fault: words after "as if", and its output.


class WrongOutput:
    """A wrong output of a call. A suspect's answer is the output that the known fault gives."""

    def __init__(
        self, reference: Tensor, allowed: Tensor, rtol: float, output: Tensor, wrong: Tensor
    ) -> None:
        """`allowed`: allowed error of each element. `rtol`: the relative part of it."""
        self.reference, self.output, self.wrong_mask, self.rtol = reference, output, wrong, rtol
        self.absolute_allowance = (allowed - rtol * _finite_magnitudes(reference)).clamp(min=0.0)

    @property
    def distinct_errors(self) -> int:
        """Number of distinct (right, wrong) values, in multiples of the allowed distance."""
        is_used = self.wrong_mask & self.output.isfinite()
        pairs = torch.stack([self.reference, self.output])[:, is_used]
        if not pairs.numel():
            return 0
        pairs = pairs[:, :: max(1, pairs.shape[1] // MAX_SAMPLED_ERRORS)]
        distance = float(self._allowed_distance(self.reference).max().clamp(min=1e-300))
        right_values, wrong_values = (pairs / distance).round().tolist()
        return len(set(zip(right_values, wrong_values, strict=True)))

    def judge_suspect(self, answer: Tensor) -> bool | None:
        """Whether a suspect's answer is near the right elements of the output too; None if it is
        not even near the wrong ones, so that the suspect is no explanation."""
        if answer.shape != self.output.shape:
            return None
        compared_mask = self.wrong_mask & self.output.isfinite() & self.reference.isfinite()
        if bool(compared_mask.any()):  # RMS errors of wrong elements, if either were right.
            errors = ((self.output - right)[compared_mask] for right in (answer, self.reference))
            rms, reference_rms = (float(error.square().mean().sqrt()) for error in errors)
            if not rms <= MAX_REMAINING_SHARE * reference_rms:  # NaN, too.
                return None
        is_near = (self.output - answer).abs() <= self._allowed_distance(answer)
        is_near |= (self.output == answer) | (self.output.isnan() & answer.isnan())
        near_wrong, near_right = is_near[self.wrong_mask], is_near[~self.wrong_mask]
        if int(near_wrong.sum()) < MIN_EXPLAINED_SHARE * near_wrong.numel():
            return None
        return int(near_right.sum()) >= MIN_EXPLAINED_SHARE * near_right.numel()

    def find_factor(self) -> list[Suspect]:
        """The suspect "right answer times a factor", the median one; empty if none stands out."""
        is_large = _finite_magnitudes(self.reference) > ALLOWANCE_FACTOR * self.absolute_allowance
        usable_mask = self.wrong_mask & self.output.isfinite() & is_large
        right_values = self.reference[usable_mask]
        if len(right_values) < MIN_DISTINCT_ERRORS:
            return []
        # For nearly equal elements a factor and an added constant look alike.
        rms = float(right_values.square().mean().sqrt())
        if float(right_values.std()) <= MAX_REMAINING_SHARE * rms:
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


def find_fitting_suspects(
    outputs: Sequence[WrongOutput], suspects: Iterable[Suspect]
) -> dict[str, bool] | None:
    """Find suspects that explain all these outputs of a call; if none does, the right answer times
    a factor. Returns descriptions, with whether right elements fit; None: too few are wrong."""
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
    size_by_dimension: dict[str, int] = {}
    for position, tensor in enumerate(inputs):
        dimensions = signature.inputs.get(names[position], "").split()
        is_known = len(dimensions) == tensor.dim()
        unnamed = [f"axis {axis}" for axis in range(tensor.dim())]
        dimensions_of_input.append(dimensions if is_known else unnamed)
        for axis, dimension in enumerate(dimensions if is_known else ()):
            axes_of_dimension.setdefault(dimension, []).append((position, axis))
            size_by_dimension.setdefault(dimension, tensor.shape[axis])
    if has_plain_signature:
        for i, j in itertools.combinations(range(len(names)), 2):
            if inputs[i].shape == inputs[j].shape:
                swapped = answer_with({i: inputs[j], j: inputs[i]})
                yield f"{names[i]} and {names[j]} were swapped", swapped
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
            compute = partial(run_reference, inputs, changed_call)
            yield f"{name} {description}", partial(run_in_time, compute)
    for position, (tensor, name) in enumerate(zip(inputs, names, strict=True)):
        yield f"{name} were zero", answer_with({position: torch.zeros_like(tensor)})
        yield f"{name} were one", answer_with({position: torch.ones_like(tensor)})
        if tensor.dtype.is_signed:  # Neither bool nor unsigned.
            yield f"the sign of {name} were lost", answer_with({position: tensor.abs()})
        for axis, dimension in enumerate(dimensions_of_input[position]):
            if tensor.shape[axis] > 1:
                repeated = tensor.narrow(axis, 0, 1).expand_as(tensor).clone()
                description = f"only the first {dimension} of {name} were read"
                yield description, answer_with({position: repeated})
                for shift, word in ((1, "early"), (-1, "late")):
                    shifted = answer_with({position: tensor.roll(shift, axis)})
                    yield f"{name} were read one {dimension} too {word}", shifted
    # Two inputs that share a dimension both repeat its first index.
    for dimension, axes in axes_of_dimension.items():
        for pair in itertools.combinations(axes, 2) if size_by_dimension[dimension] > 1 else ():
            firsts = ((n, inputs[n].narrow(axis, 0, 1)) for n, axis in pair)
            both = {n: first.expand_as(inputs[n]).clone() for n, first in firsts}
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
        description = "the last two dimensions of the output were swapped in memory"
        yield description, partial(torch.clone, transposed)


def _changed_results(right: Tensor, *, is_integer: bool) -> Iterator[Suspect]:
    """Yield suspects that change a float64 right result: zeros, signs, overflow, off by one."""
    answers = {
        "nothing were computed (zeros)": torch.zeros_like(right),
        "negative results were zero": right.clamp(min=0),
        "its sign were lost": right.abs(),
        "its sign were turned": -right,
    }
    if is_integer:
        for bits in (8, 16, 32):
            half = 2.0 ** (bits - 1)
            answers[f"it overflowed an int{bits}"] = (right + half).remainder(2 * half) - half
            answers[f"it overflowed a uint{bits}"] = right.remainder(2 * half)
            answers[f"it were cut off at the ends of an int{bits}"] = right.clamp(-half, half - 1)
        answers["each result were one too large"] = right + 1
        answers["each result were one too small"] = right - 1
    for fault, answer in answers.items():
        yield fault, partial(torch.clone, answer)


class DrawnInputs:
    """Statistics of all inputs drawn so far, over all workloads and seeds."""

    def __init__(self) -> None:
        self.digest_by_call: dict[tuple[str, str], dict[str, bytes]] = {}
        """(input, workload) to a digest of sampled elements for each call key."""
        self.facts_by_input: dict[str, set[str]] = {}
        """Input to what was true in some call: `varied` (two values), `negative` (or integers),
        `floating`, `tied` (a row's extreme twice), `not finite`, `integers`, `not from zero`."""
        self.bounds_by_integers: dict[str, tuple[int, int]] = {}
        """Input of an integer type wider than 16 bits to the least and the greatest value."""

    def record(self, inputs: Inputs) -> None:
        """Record the inputs of one call."""
        key = inputs.call.key
        workload_name = key.rpartition(" #")[0]
        for file, tensor in zip(inputs.call.inputs, inputs.tensors, strict=True):
            values = tensor.detach().reshape(-1)
            if not len(values):
                continue
            sample = values[:: -(-len(values) // SAMPLED_ELEMENTS)]
            digest = hashlib.blake2b(bytes_of(sample.cpu().contiguous())).digest()
            self.digest_by_call.setdefault((file.name, workload_name), {})[key] = digest
            facts = {"varied": bool((values != values[0]).any()), "negative": True}
            if values.is_floating_point():
                length = tensor.shape[-1] if tensor.dim() else 1
                rows = values.reshape(-1, length)[: max(1, SAMPLED_ELEMENTS // length)].float()
                ends = rows.aminmax(dim=-1, keepdim=True)
                facts |= {"floating": True, "negative": bool((values.float() < 0).any())}
                facts["tied"] = any(bool(((rows == end).sum(-1) > 1).any()) for end in ends)
                facts["not finite"] = not sample.float().isfinite().all()
            elif len(values) > 1 and values.dtype != torch.bool:
                is_from_zero = int(values[0]) == 0 and bool((values[1:] >= values[:-1]).all())
                facts |= {"integers": True, "not from zero": not is_from_zero}
            if not values.is_floating_point() and values.itemsize > 2:
                low, high = map(int, values.aminmax())
                lowest, highest = self.bounds_by_integers.get(file.name, (low, high))
                self.bounds_by_integers[file.name] = min(low, lowest), max(high, highest)
            true_facts = {fact for fact, is_true in facts.items() if is_true}
            self.facts_by_input.setdefault(file.name, set()).update(true_facts)

    def summarise(self) -> Weaknesses:
        """For each weakness, the inputs that have it: see the fields of `Weaknesses`."""
        digests = self.digest_by_call.items()
        compared = {name for (name, _), by_key in digests if len(by_key) > 1}
        moving = {name for (name, _), by_key in digests if len(set(by_key.values())) > 1}
        facts, narrow = self.facts_by_input, list[str]()
        fixed = [name for name in facts if name in compared - moving]
        varied = [name for name in facts if "varied" in facts[name]]
        floats = [name for name in facts if "floating" in facts[name]]
        varied_floats = [name for name in varied if name in floats]
        for name, (low, high) in self.bounds_by_integers.items():
            if name in varied and -(1 << 15) <= low and high < 1 << (15 if low < 0 else 16):
                narrow.append(name)
        integers = [name for name in varied if "integers" in facts[name] and name not in fixed]
        return {
            "fixed": tuple(fixed),
            "single_valued": tuple(name for name in facts if name not in (*varied, *fixed)),
            "nonnegative": tuple(name for name in varied if "negative" not in facts[name]),
            "narrow": tuple(narrow),
            "from_zero": tuple(name for name in integers if "not from zero" not in facts[name]),
            "untied": tuple(name for name in varied_floats if "tied" not in facts[name]),
            "finite": () if any("not finite" in facts[name] for name in floats) else tuple(floats),
        }


def find_unread(functions: TargetFunctions, inputs: Inputs, others: Sequence[Tensor]) -> Weaknesses:
    """Change each input and attribute of a call alone. Returns inputs (`unread`), their halves
    (`unread_halves`) and attributes (`ignored`) that change no output of the reference, outputs
    that nothing changes (`unmoved`), weights with `initial` values. `others`: by another seed."""
    call, tensors, is_exact = inputs.call, inputs.tensors, True
    try:
        outputs, _ = functions.compute_outputs("reference", tensors, call, exact=True)
    except Refused:  # It runs in the inputs' own types only.
        is_exact = False
        outputs, _ = functions.compute_outputs("reference", tensors, call, exact=False)
    changed_outputs = set[str]()

    def changes_output(replacements: dict[int, Tensor], call: Call = call) -> bool | None:
        """Whether an output changes if inputs are replaced; notes which. None: it fails."""
        changed = [replacements.get(n, tensor) for n, tensor in enumerate(tensors)]
        try:
            compute = partial(functions.compute_outputs, "reference", changed, call, exact=is_exact)
            results, _ = run_in_time(compute)
        except (Refused, RuntimeError):
            return None
        names = {name for name in results if not same_bits(results[name], outputs[name])}
        changed_outputs.update(names)
        return bool(names)

    effect_by_input, unread_halves = dict[str, bool | None](), list[str]()
    for n, (file, tensor, other) in enumerate(zip(call.inputs, tensors, others, strict=False)):
        changed = _change_input(tensor, other)
        if changed is None:
            continue
        effect_by_input[file.name] = changes_output({n: changed})
        dims = functions.signature.inputs.get(file.name, "").split()
        is_halved = effect_by_input[file.name] and len(tensors) <= MOST_INPUTS
        for axis in range(tensor.dim()) if is_halved else ():
            halves = _change_half(tensor, other, axis)
            # None changes an output. Values that the reference does not take prove nothing.
            if halves and all(changes_output({n: half}) is False for half in halves):
                dimension = dims[axis] if len(dims) == tensor.dim() else f"axis {axis}"
                unread_halves.append(f"{file.name} along {dimension}")
    ignored_attributes = []
    for name, attribute_value in call.attributes.items():
        effects = set[bool | None]()
        for _, value in alternative_values(attribute_value, functions.signature.attributes[name]):
            if True not in effects:
                attributes = {**call.attributes, name: value}
                effects.add(changes_output({}, call.replace(attributes=attributes)))
        if False in effects and True not in effects:
            ignored_attributes.append(name)
    constant_outputs = []
    if any(effect is not None for effect in effect_by_input.values()):
        constant_outputs = [name for name in outputs if name not in changed_outputs]
    unread_inputs = [name for name, effect in effect_by_input.items() if effect is False]
    if set(constant_outputs) == set(outputs):
        unread_inputs = []  # One message, that nothing changes any output, is enough.
    whole = [name for name, output in outputs.items() if not output.is_floating_point()]
    return {
        "whole_outputs": tuple(whole),
        "ignored": tuple(ignored_attributes),
        "unmoved": tuple(constant_outputs),
        "unread": tuple(unread_inputs),
        "unread_halves": tuple(unread_halves),
        "initial": tuple(_initial_weights(functions, call)),
    }


def _change_half(tensor: Tensor, other: Tensor, axis: int) -> list[Tensor]:
    """Copies of an input with new values in the second half of an axis: those of `other` (another
    seed's), and those that win a maximum. Empty if the axis is short, or the half never varies."""
    size = tensor.shape[axis]
    half, other_half = (part.narrow(axis, size // 2, size - size // 2) for part in (tensor, other))
    if size < LEAST_HALVED or same_bits(half, other_half):
        return []
    winners = [half.double() + 999, half.double() - 999] if tensor.is_floating_point() else []
    copies = []
    for values in (other_half, *winners):
        copies.append(tensor.clone())
        copies[-1].narrow(axis, size // 2, size - size // 2).copy_(values)
    return copies


def _initial_weights(functions: TargetFunctions, call: Call) -> Iterator[str]:
    """Names of a reference module's weights that are all 1 or all 0; none for a function."""
    if functions.are_classes:
        module = make_instance(functions.reference, functions.constructor_arguments, call.seed)
        weights = module.state_dict() if isinstance(module, torch.nn.Module) else {}
        for name, weight in weights.items():
            if weight.numel() and weight.is_floating_point():
                low, high = map(float, weight.aminmax())
                if low == high and low in (0.0, 1.0):
                    yield name


def _change_input(tensor: Tensor, other: Tensor) -> Tensor | None:
    """Another value of an input, to test whether the reference reads it; None if there is none."""
    if not tensor.numel() or tensor.shape != other.shape:
        return None
    if not same_bits(tensor, other):
        return other
    if tensor.dtype == torch.bool:
        return ~tensor
    changed = tensor.reshape(-1).roll(1).reshape(tensor.shape)
    if tensor.is_floating_point():
        changed = (tensor.double() * 1.25 + 0.5).to(tensor.dtype)
    return None if same_bits(changed, tensor) else changed


def run_in_time(run: Callable[[], Any]) -> Any:
    """Call `run`; its Python code raises Refused after CHANGED_CALL_LIMIT_S. Main thread only."""

    def stop(*_: object) -> NoReturn:
        raise Refused(f"no answer for {CHANGED_CALL_LIMIT_S:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, CHANGED_CALL_LIMIT_S)
    try:
        return run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def alternative_values(value: Value, attribute: Attribute) -> Iterator[tuple[str, Value]]:
    """Yield values that a function may use if it ignores an attribute: its other choices, or the
    default, 0, 1 and others. Each with words that follow its name in a message: `were true`."""
    if isinstance(value, bool | str):
        for choice in attribute.choices or (True, False):
            if choice != value:
                yield f"were {str(choice).lower()}", choice
        return
    default = attribute.default if isinstance(attribute.default, int | float) else 0
    for number in dict.fromkeys((default, 0, 1, -1, HUGE_NUMBER, None)):
        other = number if number is None or isinstance(value, int) else float(number)
        if other != value:
            example = "none" if other is None else f"{other:.3g}"
            yield f"were ignored{EXAMPLE_PREFIX}{example})", other
