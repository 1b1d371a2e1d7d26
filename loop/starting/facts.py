"""What trials of a user's function tell: sizes that run, shapes of outputs, values, what rounding loses."""

import math
import re
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loop.calls.torch_side import NAMES, same_bits
from loop.starting.sizes import SINGLE, Sizes, edges, uneven
from loop.starting.slots import Scalar, Slots
from loop.starting.texts import Hypothesis
from loop.starting.trial import Outcome, Trial
from loop.workers.wire import described

LONG_S, MOST_BYTES, MOST_GROWTH = 0.5, 16 << 20, 256 << 20
"""What a call that is timed may take: seconds, bytes of an output, bytes of memory at its peak."""
MOST_EDGES, MOST_VARIED, ODD = 14, 6, (3, 5)
TOLERANCE, LOST = 1e-4, 4.0
"""What an element may be off by default; and it is at least four times what the function itself loses."""
WORD = re.compile(r"[A-Za-z]\w{0,63}")


@dataclass
class TargetFacts:
    """What target.yaml says of a function."""

    hypothesis: Hypothesis
    workloads: dict[str, list[dict[str, Any]]]
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outputs: list[tuple[str, str | None, str]] = field(default_factory=list)
    """Name, dimensions (None: not known by name) and type of each."""
    updates: dict[str, str] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    notes: list[str] = field(default_factory=list)
    values: str = "normal"

    @property
    def generated(self) -> bool:
        """Whether the target's own generator makes the inputs."""
        plain = ("normal", "positive")
        is_plain = all(tensor.values in plain and tensor.dims for tensor in self.hypothesis.inputs)
        return self.hypothesis.subject.kind != "function" or not is_plain

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        hypothesis = self.hypothesis
        return {
            "inputs": [(tensor.name, " ".join(tensor.dims), tensor.dtype) for tensor in hypothesis.inputs],
            "kind": hypothesis.subject.kind,
            "sizes": hypothesis.dims,
            "attributes": hypothesis.attributes,
            "positive": [tensor.name for tensor in hypothesis.inputs if tensor.values == "positive"],
            "generated": self.generated,
            **{name: value for name, value in vars(self).items() if name != "hypothesis"},
        }


Outcomes = list[tuple[dict[str, int], Outcome]]
"""Sizes that were tried, and what came out."""


def facts_of(trial: Trial, base: Mapping[str, int], sizes: Sizes, slots: Slots, *, vary: bool) -> TargetFacts:
    """Everything that a few dozen calls tell; `vary`: whether numbers that are given may be others."""
    notes = [*slots.notes, *_chosen(trial, slots)]
    outcomes: Outcomes = []
    main = _timed(trial, sizes, base, outcomes)
    names = sizes.varied(vary=vary)
    loose = [name for name in names if all(_ran(trial, {**base, name: size}, outcomes) for size in ODD)]
    checked = _checked(trial, base, names, loose, outcomes)
    if sizes.free and dict(base) not in checked:
        checked.append(dict(base))
    odd = uneven(main, [name for name in sizes.free if name in loose])
    quick = [main, odd] if odd != main and _ran(trial, odd, outcomes) else [main]
    if bound := [dim for dim in names if dim not in loose]:
        notes.append(f"not every size of {', '.join(bound)} runs: those that do are checked")
    if not checked:
        notes.append("no other sizes are checked: name those at which a kernel may go wrong under `edges`")
    place = max(checked or [dict(base)], key=lambda candidate: min(candidate.values(), default=0))
    varied = [*_other_values(trial, place), *_other_attributes(trial, place, notes, outcomes)]
    facts = TargetFacts(trial.hypothesis, {"quick": [*quick], "edges": [*checked[:MOST_EDGES], *varied]})
    facts.choices, facts.notes = dict(slots.choices), notes
    _outputs(facts, trial, outcomes, base)
    facts.notes += [*_silent(trial, place), *_rounding(facts, trial, main)]
    return facts


def _chosen(trial: Trial, slots: Slots) -> Iterator[str]:
    """What was chosen of several possibilities."""
    for path, option in trial.hypothesis.options.items():
        yield from option.notes
        if len(slots.options[path]) > 1 and not option.inputs and path not in slots.values:
            shown = str(option.attributes.get(option.text, option.text))
            shown = re.sub(r"<(\w+)\.(\d+)>", r"\1.shape[\2]", shown)
            yield f"{path} = {shown}, with which it runs; --set {path}=VALUE changes it"


def _checked(
    trial: Trial, base: Mapping[str, int], names: Sequence[str], loose: Sequence[str], outcomes: Outcomes
) -> list[dict[str, int]]:
    """Sizes that are only checked: dimensions that depend on others, as heads and width do, change alone."""
    checked = [sizes for sizes in edges(base, loose) if _ran(trial, sizes, outcomes)]
    for name in (dim for dim in names if dim not in loose):
        single = [{**base, name: size} for size in SINGLE]
        checked += [sizes for sizes in single if sizes not in checked and _ran(trial, sizes, outcomes)][:4]
    return checked


def _ran(trial: Trial, sizes: Mapping[str, int], outcomes: Outcomes) -> bool:
    """Whether a call runs; then it is noted."""
    try:
        outcome = trial.run(sizes)
    except Exception:
        return False
    if not outcome.finite and all(earlier.finite for _, earlier in outcomes):
        return False
    outcomes.append((dict(sizes), outcome))
    return True


def _timed(trial: Trial, sizes: Sizes, base: Mapping[str, int], outcomes: Outcomes) -> dict[str, int]:
    """The largest sizes that take little memory and time."""
    best: dict[str, int] | None = None
    for divisor in (16, 8, 4, 2, 1) if sizes.free else (1,):
        tried = sizes.timed(divisor)
        before, began = _peak(), time.monotonic()
        if not _ran(trial, tried, outcomes):
            continue
        outcome = outcomes[-1][1]
        largest = max((tensor.numel() * tensor.element_size() for tensor in outcome.outputs.values()), default=0)
        if best and (time.monotonic() - began > LONG_S or largest > MOST_BYTES or _peak() - before > MOST_GROWTH):
            break
        best = tried
    return best or dict(base)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _other_values(trial: Trial, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The same sizes with other values: below zero, far below it, and with the greatest at the end.

    Far values stand where float32 still tells: a maximum that begins at 0 is then seen in a softmax, too.
    """
    if not any(tensor.values == "normal" for tensor in trial.hypothesis.inputs):
        return
    for drawn in ("negative", "far", "ends"):
        try:
            is_telling = trial.run(sizes, drawn=drawn).finite
            if drawn == "far":
                is_telling = is_telling and LOST * lost_by(trial, trial.inputs(sizes, drawn=drawn)) < TOLERANCE
        except Exception:
            continue
        if is_telling:
            yield {**sizes, "drawn": drawn}


def _other_attributes(
    trial: Trial, sizes: Mapping[str, int], notes: list[str], outcomes: Outcomes
) -> Iterator[dict[str, Any]]:
    """The same sizes with another value of each attribute: one that keeps the shapes, where there is one."""
    usual = trial.run(sizes)
    for name, value in list(trial.attributes.items())[:MOST_VARIED]:
        best = None
        for other in _others(value):
            try:
                outcome = trial.run(sizes, attributes={name: other})
            except Exception:
                continue
            if outcome.finite and not _alike(usual, outcome):
                entry = {**sizes, name: other}, outcome
                if _shapes(outcome) == _shapes(usual):
                    best = entry
                    break
                best = best or entry
        if best:
            outcomes.append((dict(sizes), best[1]))
            yield best[0]
        else:
            notes.append(f"{name} is always {value!r}: no other value that was tried runs and changes the outputs")


def _shapes(outcome: Outcome) -> list[torch.Size]:
    return [tensor.shape for tensor in outcome.outputs.values()]


def _others(value: Scalar) -> list[Scalar]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, value // 2, value - 1]
    if isinstance(value, float):
        return [0.5 if abs(value) < 0.01 else value * 1.5, 0.25, value / 2]
    return []


def _alike(usual: Outcome, other: Outcome) -> bool:
    pairs = [(value, other.results.get(name)) for name, value in usual.results.items()]
    return all(b is not None and same_bits(a, b) for a, b in pairs) and bool(pairs)


def _outputs(
    facts: TargetFacts, trial: Trial, outcomes: Sequence[tuple[dict[str, int], Outcome]], base: Mapping[str, int]
) -> None:
    """Names, dimensions and types of the outputs, and which inputs are changed in place."""
    if not outcomes:
        outcomes = [(dict(base), trial.run(base))]
    inputs, first = trial.hypothesis.inputs, outcomes[0][1]
    dims = [dim for tensor in inputs for dim in tensor.dims]
    names = {*(tensor.name for tensor in inputs), *trial.attributes, *dims}
    is_function = trial.hypothesis.subject.kind == "function"
    for number in first.changed if is_function else ():
        updated = inputs[number]
        facts.updates[f"new_{updated.name}"] = updated.name
        facts.outputs.append((f"new_{updated.name}", " ".join(updated.dims), updated.dtype))
        facts.notes.append(f"{updated.name} is changed in place: `updates` says so")
    for name, tensor in first.outputs.items():
        word = name if WORD.fullmatch(name) else f"output_{name}".replace(".", "_")
        word = f"{word}_out" if word in names else word
        kind = NAMES[tensor.dtype]
        shapes = [(sizes, outcome.outputs[name].shape) for sizes, outcome in outcomes if name in outcome.outputs]
        text = _named(shapes, list(dict.fromkeys(dims))) if len(shapes) == len(outcomes) else None
        facts.outputs.append((word, text, "" if kind == "float32" else kind))


def _named(shapes: Sequence[tuple[dict[str, int], torch.Size]], dims: Sequence[str]) -> str | None:
    """The dimensions of an output by name; None where sizes do not tell."""
    rank = len(shapes[0][1])
    if rank == 0 or any(len(shape) != rank for _, shape in shapes):
        return None
    output_dims = []
    for axis in range(rank):
        fitting = [dim for dim in dims if all(sizes[dim] == shape[axis] for sizes, shape in shapes)]
        if len(fitting) != 1:
            return None
        output_dims.append(fitting[0])
    return " ".join(output_dims)


def _silent(trial: Trial, sizes: Mapping[str, int]) -> Iterator[str]:
    """Inputs that change no output: other values of one alone give the same."""
    usual, other = trial.inputs(sizes), trial.inputs(sizes, seed=1234)
    shift = len(usual) - len(trial.hypothesis.inputs)
    before = trial.run(sizes, inputs=usual)
    for n, tensor in enumerate(trial.hypothesis.inputs):
        mixed = list(usual)
        mixed[n + shift] = other[n + shift]
        if not isinstance(mixed[n + shift], Tensor) or mixed[n + shift].numel() < 2:
            continue
        try:
            if _alike(before, trial.run(sizes, inputs=mixed)):
                yield f"{tensor.name} changes no output: other values of it give the same"
        except Exception:
            continue


def _rounding(facts: TargetFacts, trial: Trial, sizes: Mapping[str, int]) -> Iterator[str]:
    """What is said of float64; the tolerance is larger where the function itself loses more."""
    try:
        lost = lost_by(trial, trial.inputs(sizes))
    except Exception as error:
        yield f"the reference runs in its own types alone, not in float64: {described(error)}"
        return
    if LOST * lost > TOLERANCE:
        facts.tolerance = 10.0 ** math.ceil(math.log10(LOST * lost))
        yield f"tolerance {facts.tolerance:g}: in float32 the function itself loses {lost:.1g}"


def lost_by(trial: Trial, inputs: Sequence[Any]) -> float:
    """The largest error of the function in float32, relative to 1 + what it gives in float64."""
    own, exact, lost = trial.run({}, inputs=inputs), trial.run({}, inputs=inputs, exact=True), 0.0
    for name, result in own.results.items():
        wide = exact.results.get(name)
        if wide is not None and result.is_floating_point() and wide.shape == result.shape and result.numel():
            off = (result.double() - wide.double()).abs() / (1 + wide.double().abs())
            lost = max(lost, float(off.nan_to_num(0.0, 0.0, 0.0).max()))
    return lost
