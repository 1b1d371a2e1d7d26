"""Derive the facts of a target from trial calls: sizes, output shapes, values, tolerance."""

import contextlib
import importlib
import math
import re
import resource
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls.callee import outputs_of
from loop.calls.torch_side import DTYPE_NAMES, same_bits
from loop.starting.manifest import SINGLE, Sizes, edge_sizes, uneven_sizes
from loop.starting.slots import Scalar, Slots
from loop.starting.texts import Hypothesis, executed_names
from loop.workers.messages import describe_error

SEED = 7
REFERENCE = "loop_starting_reference"
"""Module name under which the wrapper of the user's function is imported here."""
LONG_S, MOST_BYTES, MOST_GROWTH = 0.5, 16 << 20, 256 << 20
"""Limits of a timed call: seconds, bytes of an output, growth of peak memory in bytes."""
MOST_EDGES, MOST_VARIED, ODD, FEW = 14, 6, (3, 5), 3
TOLERANCE, LOST = 1e-4, 4.0
"""Default tolerance; the tolerance as a multiple of the function's own float32 error."""
WORD = re.compile(r"[A-Za-z]\w{0,63}")
Dims = dict[str, int]


class Lacking(Exception):
    """The user has to add something: a message, a hint, and `--like` options to add (`like`)."""

    def __init__(self, message: str, hint: str = "", like: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint, self.like = hint, like


@dataclass(frozen=True)
class Outcome:
    """The results of one call."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Index of each input that the call changed in place, to its new value."""

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs by name, and inputs changed in place as `#0`."""
        return self.outputs | {f"#{n}": tensor for n, tensor in self.changed.items()}

    @property
    def finite(self) -> bool:
        """Whether no result holds NaN or infinity."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    def same(self, other: "Outcome") -> bool:
        """Whether another call gave the same results bit by bit; False without results."""
        pairs = [(value, other.results.get(name)) for name, value in self.results.items()]
        return bool(pairs) and all(b is not None and same_bits(a, b) for a, b in pairs)


class Trial:
    """A hypothesis on how to call the user's function, as functions that can be called."""

    def __init__(self, hypothesis: Hypothesis) -> None:
        self.hypothesis = hypothesis
        space = executed_names(hypothesis.wrapper(""), "reference")
        self.function = space[hypothesis.subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)
        vars(module).update(space)
        self.make = executed_names(hypothesis.generator(REFERENCE), "inputs")["make"]
        self.attributes: dict[str, Scalar] = dict(hypothesis.attributes)
        self.outcomes: list[tuple[Dims, Outcome]] = []
        """Sizes that ran, each with the results."""

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        exact: bool = False,
    ) -> Outcome:
        """Make one call; `exact`: in float64. Raises Lacking for an output that is no real tensor."""
        values = {**self.attributes, **attributes}
        inputs = self.make(**sizes, **values, drawn=drawn, seed=SEED, dtype=torch.float32)
        arguments = [_copied(value, exact=exact) for value in inputs]
        before = [_copied(value, exact=False) for value in arguments]
        outputs = outputs_of(self.function(*arguments, **values))
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in DTYPE_NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                what = f"{self.hypothesis.subject.full_name} gives {name} as {kind}"
                raise Lacking(f"{what}: expected tensors of real numbers", "name a function that gives tensors")
        pairs = enumerate(zip(arguments, before, strict=True))
        changed = {n: new for n, (new, old) in pairs if isinstance(new, Tensor) and not same_bits(new, old)}
        own = {id(tensor) for tensor in changed.values()}
        fresh = {name: tensor for name, tensor in outputs.items() if id(tensor) not in own}
        return Outcome({name: tensor.detach().clone() for name, tensor in fresh.items()}, changed)

    def ran(self, sizes: Mapping[str, int], changed: Mapping[str, Any] = {}) -> bool:
        """Whether a call runs, as finite as earlier ones; records it. `changed`: other attributes."""
        try:
            outcome = self.run(sizes, attributes=changed)
        except Exception:
            return False
        if self.outcomes and self.outcomes[0][1].outputs.keys() != outcome.outputs.keys():
            return False  # A target has the same outputs on all sizes.
        if not outcome.finite and all(earlier.finite for _, earlier in self.outcomes):
            return False
        self.outcomes.append((dict(sizes), outcome))
        return True

    def settled(self, sizes: Mapping[str, int]) -> "Trial":
        """Confirm that calls repeat; the trial with `returns` set. Raises Lacking if they differ."""
        outcome, what = self.run(sizes), self.hypothesis.subject.full_name
        torch.manual_seed(SEED + 1)
        if not outcome.results:
            raise Lacking(f"{what} gives no tensor, and changes no input", "name a function that gives tensors")
        outcomes, module = [self.run(sizes)], sys.modules[self.hypothesis.subject.module]
        if (module.__file__ or "").startswith(f"{Path.cwd()}/"):  # A new import may draw other values.
            with contextlib.suppress(Exception):
                importlib.reload(module)
                outcomes.append(Trial(self.hypothesis).run(sizes))
        if not all(map(outcome.same, outcomes)):
            why = "it keeps state, or draws numbers, also where it is imported"
            hint = "seed what it draws by an argument, or name a function that draws nothing"
            raise Lacking(f"{what} gives two results on the same inputs: {why}", hint)
        return Trial(replace(self.hypothesis, returns=bool(outcome.outputs)))

    def lost(self, sizes: Dims, drawn: str) -> float:
        """Largest error of float32 against float64 results, relative to 1 + |float64 result|."""
        own, exact, lost = self.run(sizes, drawn=drawn), self.run(sizes, drawn=drawn, exact=True), 0.0
        for name, result in own.results.items():
            wide = exact.results.get(name)
            if wide is not None and result.is_floating_point() and wide.shape == result.shape and result.numel():
                off = (result.double() - wide.double()).abs() / (1 + wide.double().abs())
                lost = max(lost, float(off.nan_to_num(0.0, 0.0, 0.0).max()))
        return lost


def _copied(value: Any, *, exact: bool) -> Any:
    """A copy of a tensor or of a dict of weights; `exact`: floating-point tensors as float64."""
    if isinstance(value, dict):
        return {name: _copied(weight, exact=exact) for name, weight in value.items()}
    return value.to(torch.float64, copy=True) if exact and value.is_floating_point() else value.clone()


def facts_of(trial: Trial, base: Dims, sizes: Sizes, slots: Slots, *, vary: bool) -> dict[str, Any]:
    """The facts for target.yaml, from a few dozen calls, as a JSON-compatible dict.

    `base`: sizes at which the function runs; `vary`: whether sizes that the user gave by number may change.
    """
    notes, hypothesis = list(slots.notes), trial.hypothesis
    for path, option in hypothesis.options.items():  # Note each choice among several options.
        notes += option.notes
        if len(slots.options[path]) > 1 and not option.inputs and path not in slots.values:
            shown = str(option.attributes.get(option.text, option.text))
            shown = re.sub(r"<(\w+)\.(\d+)>", r"\1.shape[\2]", shown)
            notes.append(f"{path} = {shown}, with which it runs; --set {path}=VALUE changes it")
    quick, checked = _workloads(trial, base, sizes, notes, vary=vary)
    place = max(checked or [base], key=lambda candidate: min(candidate.values(), default=0))
    attributes = [*_other_attributes(trial, place, notes)]
    varied = [*_other_values(trial, place), *attributes]
    changed = {name: value for entry in attributes for name, value in entry.items() if name in trial.attributes}
    if changed and trial.ran(quick[-1], changed):
        varied.append({**quick[-1], **changed})
    outputs, updates = _outputs(trial, base, notes)
    tolerance = TOLERANCE  # Raised if the function's own float32 error is larger.
    try:
        lost = trial.lost(quick[0], "normal")
        if LOST * lost > TOLERANCE:
            tolerance = 10.0 ** math.ceil(math.log10(LOST * lost))
            notes.append(f"tolerance {tolerance:g}: in float32 the function itself loses {lost:.1g}")
    except Exception as error:
        notes.append(f"the reference runs in its own types alone, not in float64: {describe_error(error)}")
    is_plain = all(tensor.values in ("normal", "positive") and tensor.dims for tensor in hypothesis.inputs)
    return {
        "kind": hypothesis.subject.kind,
        "inputs": [(tensor.name, " ".join(tensor.dims), tensor.dtype) for tensor in hypothesis.inputs],
        "positive": [tensor.name for tensor in hypothesis.inputs if tensor.values == "positive"],
        "sizes": hypothesis.dims,
        "attributes": hypothesis.attributes,
        "outputs": outputs,  # Name, dimensions (None: not known by name) and type of each.
        "updates": updates,
        "generated": hypothesis.subject.kind != "function" or not is_plain,  # Whether inputs need a generator.
        "workloads": {"quick": quick, "edges": [*checked[:MOST_EDGES], *varied]},
        "tolerance": tolerance,
        "notes": notes,
    }


def _workloads(
    trial: Trial, base: Dims, sizes: Sizes, notes: list[str], *, vary: bool
) -> tuple[list[Dims], list[Dims]]:
    """Timed sizes (the largest, and odd ones), and sizes that are only checked."""
    main = _largest(trial, sizes, base)
    names = sizes.varied(vary=vary)
    loose = [name for name in names if all(trial.ran({**base, name: size}) for size in ODD)]
    bound = [name for name in names if name not in loose]
    checked = [candidate for candidate in edge_sizes(base, loose) if trial.ran(candidate)]
    alone = [*(bound if len(checked) >= FEW else names), *sorted(sizes.filter)]
    for name in alone:  # Sizes that depend on each other (heads, width), or a filter's.
        single = [{**base, name: size} for size in SINGLE]
        checked += [candidate for candidate in single if candidate not in checked and trial.ran(candidate)][:4]
    if sizes.free and base not in checked:
        checked.append(base)
    odd = uneven_sizes(main, [name for name in sizes.free if name in loose])
    quick = [main, odd] if odd != main and trial.ran(odd) else [main]
    if bound:
        notes.append(f"not every size of {', '.join(bound)} runs: those that do are checked")
    if not checked:
        notes.append("no other sizes are checked: name those at which a kernel may go wrong under `edges`")
    return quick, checked


def _largest(trial: Trial, sizes: Sizes, base: Dims) -> Dims:
    """The largest sizes within the limits of memory and time."""
    best: Dims | None = None
    for divisor in (16, 8, 4, 2, 1) if sizes.free else (1,):
        candidate = sizes.timed(divisor)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        if not trial.ran(candidate):
            continue
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        outputs = trial.outcomes[-1][1].outputs.values()
        largest = max((tensor.numel() * tensor.element_size() for tensor in outputs), default=0)
        if best and (time.monotonic() - began > LONG_S or largest > MOST_BYTES or growth > MOST_GROWTH):
            break
        best = candidate
    return best or base


def _other_values(trial: Trial, sizes: Dims) -> Iterator[dict[str, Any]]:
    """Workloads with other values: `negative`, `far` below zero, `ends` (maximum ends each row).

    `far` shows, for example, a softmax whose maximum starts at 0. It is left out if float32 is too inexact.
    """
    if not any(tensor.values == "normal" for tensor in trial.hypothesis.inputs):
        return
    for drawn in ("negative", "far", "ends"):
        with suppress(Exception):
            lost = trial.lost(sizes, drawn) if drawn == "far" else 0.0
            if trial.run(sizes, drawn=drawn).finite and LOST * lost < TOLERANCE:
                yield {**sizes, "drawn": drawn}


def _other_attributes(trial: Trial, sizes: Dims, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Workloads with another value of each attribute, if possible one that keeps output shapes."""
    usual = trial.run(sizes)
    shapes = [tensor.shape for tensor in usual.outputs.values()]
    for name, value in list(trial.attributes.items())[:MOST_VARIED]:
        others: list[Scalar] = [0.5 if abs(value) < 0.01 else value * 1.5, 0.25, value / 2]
        if isinstance(value, int):
            others = [not value] if isinstance(value, bool) else [value + 1, value * 2, value // 2, value - 1]
        telling: list[tuple[bool, Scalar, Outcome]] = []
        for other in others:
            with suppress(Exception):
                outcome = trial.run(sizes, attributes={name: other})
                if outcome.finite and len(outcome.outputs) == len(shapes) and not usual.same(outcome):
                    other_shapes = [tensor.shape for tensor in outcome.outputs.values()] != shapes
                    telling.append((other_shapes, other, outcome))
        if telling:
            _, other, outcome = min(telling, key=lambda candidate: candidate[0])
            trial.outcomes.append((sizes, outcome))
            yield {**sizes, name: other}
        else:
            notes.append(f"{name} is always {value!r}: no other value that was tried runs and changes the outputs")


def _outputs(
    trial: Trial, base: Dims, notes: list[str]
) -> tuple[list[tuple[str, str | None, str]], dict[str, str]]:
    """Name, dimensions and type of each output; and output to the input that it updates in place.

    Dimensions are None if the sizes tried do not determine them.
    """
    outcomes, hypothesis = trial.outcomes or [(base, trial.run(base))], trial.hypothesis
    inputs, first = hypothesis.inputs, outcomes[0][1]
    names = {*(tensor.name for tensor in inputs), *hypothesis.attributes, *hypothesis.dims}
    outputs: list[tuple[str, str | None, str]] = []
    updates: dict[str, str] = {}
    for number in first.changed if hypothesis.subject.kind == "function" else ():
        updated = inputs[number]
        updates[f"new_{updated.name}"] = updated.name
        outputs.append((f"new_{updated.name}", " ".join(updated.dims), updated.dtype))
        notes.append(f"{updated.name} is changed in place: `updates` says so")
    for name, tensor in first.outputs.items():
        word = name if WORD.fullmatch(name) else f"output_{name}".replace(".", "_")
        word = f"{word}_out" if word in names else word
        kind, rank = DTYPE_NAMES[tensor.dtype], tensor.dim()
        shapes = [(sizes, outcome.outputs[name].shape) for sizes, outcome in outcomes if name in outcome.outputs]
        known = rank > 0 and len(shapes) == len(outcomes) and all(len(shape) == rank for _, shape in shapes)
        fitting = [
            [dim for dim in hypothesis.dims if all(sizes[dim] == shape[axis] for sizes, shape in shapes)]
            for axis in range(rank if known else 0)
        ]
        dims = " ".join(dims[0] for dims in fitting) if known and all(len(dims) == 1 for dims in fitting) else None
        outputs.append((word, dims, "" if kind == "float32" else kind))
    return outputs, updates
