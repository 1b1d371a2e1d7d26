"""What the inputs of a target cannot show: inputs that never vary, or that the reference does not read."""

import contextlib
import hashlib
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from loop.calls.call import Call, Refused, Value
from loop.calls.torch_side import bytes_of, make_instance, same_bits
from loop.model.measurement import Weaknesses
from loop.model.target import Attribute
from loop.workers.judge_messages import FindBlindSpots
from loop.workers.target_functions import Inputs, TargetFunctions

EXAMPLE_PREFIX = " (as with "  # Begins the example in a fault's words. Without it, equal faults are one.
SAMPLED_ELEMENTS = 1 << 16  # Elements of an input whose digest tells whether the seed changes it.
LEAST_HALVED, MOST_INPUTS = 8, 8
"""Least size of a dimension of which the second half is tried, and most inputs of a call whose dimensions are."""
HUGE_NUMBER = 1 << 46
"""An attribute's alternative that no limit or window of a real call reaches. Where it is a size, no address
space holds it: the call fails at once, and does not fill the memory."""
CHANGED_CALL_LIMIT_S = 2.0
"""Seconds for a call with a changed attribute: where it counts a loop, `HUGE_NUMBER` would take for ever."""


class DrawnInputs:
    """Statistics of all inputs drawn so far, over all workloads and seeds."""

    def __init__(self) -> None:
        self.digest_by_call: dict[tuple[str, str], dict[str, bytes]] = {}
        """(input, workload) to a digest of sampled elements for each call key."""
        self.facts_by_input: dict[str, set[str]] = {}
        """Input to what was true in some call: `varied` (two values), `negative` (or integers), `floating`, `tied`
        (a row's greatest or least value twice), `not finite`, `integers` (several), `not from zero` (in order)."""
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
        """The inputs that never differ between calls, have a single value, are never negative, or fit 16 bits."""
        compared = {name for (name, _), digests in self.digest_by_call.items() if len(digests) > 1}
        moving = {name for (name, _), digests in self.digest_by_call.items() if len(set(digests.values())) > 1}
        facts, narrow = self.facts_by_input, list[str]()
        fixed = [name for name in facts if name in compared - moving]
        varied = [name for name in facts if "varied" in facts[name]]
        floating = [name for name in facts if "floating" in facts[name]]
        for name, (low, high) in self.bounds_by_integers.items():
            if name in varied and -(1 << 15) <= low and high < 1 << (15 if low < 0 else 16):
                narrow.append(name)
        ordered = [name for name in varied if {"integers", "not from zero"} & facts[name] == {"integers"}]
        return {
            "fixed": tuple(fixed),
            "single_valued": tuple(name for name in facts if name not in (*varied, *fixed)),
            "nonnegative": tuple(name for name in varied if "negative" not in facts[name]),
            "narrow": tuple(narrow),
            "from_zero": tuple(name for name in ordered if name not in fixed),
            "untied": tuple(name for name in varied if name in floating and "tied" not in facts[name]),
            "finite": () if any("not finite" in facts[name] for name in floating) else tuple(floating),
        }


def find_blind_spots(functions: TargetFunctions, drawn_inputs: DrawnInputs, request: FindBlindSpots) -> Weaknesses:
    """Report what the inputs drawn so far cannot reveal. If the request has a pair of calls (one
    workload under two seeds), also change inputs to find those that the reference does not read."""
    weaknesses = drawn_inputs.summarise()
    with contextlib.suppress(Refused, RuntimeError):  # The reference may need the judging device.
        if request.pair:
            inputs, other_inputs = (functions.make_inputs(call) for call in request.pair)
            weaknesses |= find_unread(functions, inputs, other_inputs.tensors)
    return weaknesses


def find_unread(functions: TargetFunctions, inputs: Inputs, other_tensors: Sequence[Tensor]) -> Weaknesses:
    """Change each input and attribute of a call by itself. Returns weaknesses: inputs (`unread`), their halves
    (`unread_halves`) and attributes (`ignored`) that change no output of the reference, outputs that nothing
    changes (`unmoved`), weights with their `initial` values. `other_tensors`: the inputs under another seed."""
    call, tensors, is_exact = inputs.call, inputs.tensors, True
    try:
        outputs, _ = functions.compute_outputs("reference", tensors, call, exact=True)
    except Refused:  # It runs in the inputs' own types only.
        is_exact = False
        outputs, _ = functions.compute_outputs("reference", tensors, call, exact=False)
    changed_outputs = set[str]()

    def changes_output(replacements: dict[int, Tensor], call: Call = call) -> bool | None:
        """Whether an output changes if some inputs are replaced; notes which. None if the reference fails."""
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
    for n, (file, tensor, other) in enumerate(zip(call.inputs, tensors, other_tensors, strict=True)):
        changed = _change_input(tensor, other)
        if changed is None:
            continue
        effect_by_input[file.name] = changes_output({n: changed})
        dims = functions.signature.inputs.get(file.name, "").split()
        is_halved = effect_by_input[file.name] and len(tensors) <= MOST_INPUTS
        for axis in range(tensor.dim()) if is_halved else ():
            changed_halves = _change_half(tensor, other, axis)
            # None changes an output. Values that the reference does not take prove nothing.
            if changed_halves and all(changes_output({n: half}) is False for half in changed_halves):
                dimension = dims[axis] if len(dims) == tensor.dim() else f"axis {axis}"
                unread_halves.append(f"{file.name} along {dimension}")
    ignored_attributes = []
    for name, attribute_value in call.attributes.items():
        effects = set[bool | None]()
        for _, value in alternative_values(attribute_value, functions.signature.attributes[name]):
            if True not in effects:
                effects.add(changes_output({}, call.replace(attributes={**call.attributes, name: value})))
        if False in effects and True not in effects:
            ignored_attributes.append(name)
    constant_outputs = []
    if any(effect is not None for effect in effect_by_input.values()):
        constant_outputs = [name for name in outputs if name not in changed_outputs]
    unread_inputs = [name for name, effect in effect_by_input.items() if effect is False]
    if set(constant_outputs) == set(outputs):
        unread_inputs = []  # One message, that nothing changes any output, is enough.
    return {
        "whole_outputs": tuple(name for name, output in outputs.items() if not output.is_floating_point()),
        "ignored": tuple(ignored_attributes),
        "unmoved": tuple(constant_outputs),
        "unread": tuple(unread_inputs),
        "unread_halves": tuple(unread_halves),
        "initial": tuple(_initial_weights(functions, call)),
    }


def _change_half(tensor: Tensor, other: Tensor, axis: int) -> list[Tensor]:
    """Copies of an input with new values in the second half along an axis: those of `other` (the input under
    another seed), and those that win a maximum. Empty if the axis is short, or if that half never varies."""
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
    """New values for an input: the other seed's, or else modified ones; None if neither differs."""
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
    """Call `run`. Its Python code raises Refused after CHANGED_CALL_LIMIT_S. For the main thread only."""

    def stop(*_: object) -> NoReturn:
        raise Refused(f"no answer for {CHANGED_CALL_LIMIT_S:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, CHANGED_CALL_LIMIT_S)
    try:
        return run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def alternative_values(value: Value, attribute: Attribute) -> Iterator[tuple[str, Value]]:
    """Yield values that a function may use if it ignores an attribute: its other choices, or numbers such
    as the default, 0 and 1. Each with words that follow its name in a message, such as `were true`."""
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
