"""Derive the facts of a target from trial calls: sizes, output shapes, values, tolerance."""

import importlib
import itertools
import math
import re
import resource
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.base.errors import UsageError
from loop.calls.callee import outputs_of
from loop.calls.own_modules import describe_error
from loop.calls.torch_side import DTYPE_NAMES, same_bits
from loop.starting.choices import Choices
from loop.starting.manifest import EDGES, SINGLE_SIZES, Sizes
from loop.starting.model import Scalar, TargetFacts, TensorSpec
from loop.starting.texts import Hypothesis, executed_names

SEED = 7
REFERENCE = "loop_starting_reference"
"""Module name under which the wrapper of the user's function is imported here."""
LONG_S, MOST_BYTES, MOST_GROWTH_BYTES = 0.5, 16 << 20, 256 << 20
"""Limits of a timed call: seconds, size of an output, growth of peak memory."""
MOST_EDGES, MOST_VARIED, MOST_SINGLE = 14, 6, 4
"""Most checked workloads with other sizes, attributes that get another value, values of a single size."""
ODD_SIZES = (3, 5)  # A dimension that runs with both is independent of the others.
ENOUGH_EDGES = 3  # With fewer edge sizes that run, dimensions are also changed one at a time.
TOLERANCE, TOLERANCE_FACTOR = 1e-4, 4.0
"""Default tolerance; the tolerance as a multiple of the function's own float32 error."""
WORD = re.compile(r"[A-Za-z]\w{0,63}")
Dims = dict[str, int]
"""Name of a dimension to its size."""


@dataclass(frozen=True)
class Outcome:
    """The results of one call."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Index of each input that the call changed in place, to its new value."""

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs by name, and inputs changed in place as `#0`."""
        return self.outputs | {f"#{number}": tensor for number, tensor in self.changed.items()}

    @property
    def shapes(self) -> list[torch.Size]:
        """Shapes of the outputs."""
        return [tensor.shape for tensor in self.outputs.values()]

    @property
    def is_finite(self) -> bool:
        """Whether no result holds NaN or infinity."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    def equals(self, other: "Outcome") -> bool:
        """Whether another call gave the same results bit by bit; False without results."""
        pairs = [(tensor, other.results.get(name)) for name, tensor in self.results.items()]
        return bool(pairs) and all(second is not None and same_bits(first, second) for first, second in pairs)


@dataclass
class Trial(Hypothesis):
    """A hypothesis on how to call the user's function, which can be called."""

    def __post_init__(self) -> None:
        """Execute the source that the target would get: the reference, and `make`, which makes its inputs."""
        names = executed_names(self.wrapper(""), "reference")
        self.function = names[self.subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)  # The source of `make` imports it.
        vars(module).update(names)
        self.make_inputs = executed_names(self.generator(REFERENCE), "inputs")["make"]
        self.outcomes: list[tuple[Dims, Outcome]] = []
        """Sizes that ran, each with the results."""

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        as_float64: bool = False,
    ) -> Outcome:
        """Make one call. Raises UsageError for an output that is no tensor of real numbers. `drawn`: values of
        the inputs (`normal`, `negative`, `far`, `ends`); `attributes`: those that differ from the choices."""
        attributes = {**self.attributes, **attributes}
        inputs = self.make_inputs(**sizes, **attributes, drawn=drawn, seed=SEED, dtype=torch.float32)
        arguments = [_copy(value, as_float64=as_float64) for value in inputs]
        before = [_copy(value, as_float64=False) for value in arguments]
        outputs = outputs_of(self.function(*arguments, **attributes))
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in DTYPE_NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                message = f"{self.subject.full_name} gives {name} as {kind}: expected tensors of real numbers"
                raise UsageError(message, hint="name a function that gives tensors")
        changed: dict[int, Tensor] = {}
        for number, (new, old) in enumerate(zip(arguments, before, strict=True)):
            if isinstance(new, Tensor) and not same_bits(new, old):
                changed[number] = new
        changed_ids = {id(tensor) for tensor in changed.values()}  # Such an input may also be returned.
        returned = {name: tensor for name, tensor in outputs.items() if id(tensor) not in changed_ids}
        return Outcome({name: tensor.detach().clone() for name, tensor in returned.items()}, changed)

    def try_sizes(self, sizes: Mapping[str, int], attributes: Mapping[str, Any] = {}) -> bool:
        """Whether a call runs, is as finite as earlier ones and has their outputs. If so, `outcomes` gets it."""
        try:
            outcome = self.run(sizes, attributes=attributes)
        except Exception:
            return False
        if self.outcomes and self.outcomes[0][1].outputs.keys() != outcome.outputs.keys():
            return False  # A target has the same outputs on all sizes.
        if not outcome.is_finite and all(earlier.is_finite for _, earlier in self.outcomes):
            return False
        self.outcomes.append((dict(sizes), outcome))
        return True

    def check_results(self, sizes: Mapping[str, int]) -> None:
        """Raise UsageError if calls give different results, or none. Sets `has_outputs`."""
        outcome, name = self.run(sizes), self.subject.full_name
        torch.manual_seed(SEED + 1)  # A function that draws numbers now draws others.
        if not outcome.results:
            raise UsageError(f"{name} gives no tensor, and changes no input", "name a function that gives tensors")
        repeats, module = [self.run(sizes)], sys.modules[self.subject.module]
        if (module.__file__ or "").startswith(f"{Path.cwd()}/"):  # A new import may draw other values.
            with suppress(Exception):
                importlib.reload(module)
                repeats.append(Trial(self.subject, self.choices).run(sizes))
        if not all(map(outcome.equals, repeats)):
            reason = "it keeps state, or draws numbers, also where it is imported"
            hint = "seed what it draws by an argument, or name a function that draws nothing"
            raise UsageError(f"{name} gives two results on the same inputs: {reason}", hint)
        self.has_outputs = bool(outcome.outputs)

    def float32_error(self, sizes: Dims, drawn: str) -> float:
        """Largest error of float32 results, relative to 1 + |float64 result|; errors not finite count as 0."""
        exact_results, largest = self.run(sizes, drawn=drawn, as_float64=True).results, 0.0
        for name, result in self.run(sizes, drawn=drawn).results.items():
            exact = exact_results.get(name)
            is_comparable = exact is not None and exact.shape == result.shape and result.numel() > 0
            if exact is not None and is_comparable and result.is_floating_point():
                error = (result.double() - exact.double()).abs() / (1 + exact.double().abs())
                largest = max(largest, float(error.nan_to_num(0.0, 0.0, 0.0).max()))
        return largest


def _copy(value: Any, *, as_float64: bool) -> Any:
    """A copy of a tensor or of a dict of weights; `as_float64`: floating-point tensors in float64."""
    if isinstance(value, dict):
        return {name: _copy(weight, as_float64=as_float64) for name, weight in value.items()}
    if as_float64 and value.is_floating_point():
        return value.to(torch.float64, copy=True)
    return value.clone()


def gather_facts(trial: Trial, base_sizes: Dims, sizes: Sizes, choices: Choices) -> TargetFacts:
    """The facts for target.yaml, from a few dozen calls, without `files`. `base_sizes`: sizes that run.
    `choices`: all choices; a note tells each that was made."""
    notes = list(choices.notes)
    for path, choice in trial.choices.items():  # Note each choice among several.
        notes += choice.notes
        if len(choices.by_path[path]) > 1 and not choice.inputs and path not in choices.values:
            text = str(choice.attributes.get(choice.text, choice.text))
            text = re.sub(r"<(\w+)\.(\d+)>", r"\1.shape[\2]", text)
            notes.append(f"{path} = {text}, with which it runs; --set {path}=VALUE changes it")
    is_python = choices.attribute_names is None  # A kernel may be written for sizes given by number.
    quick, checked = _workloads(trial, base_sizes, sizes, notes, vary_fixed=is_python)
    # Other values and attributes are checked at the sizes whose smallest one is largest.
    check_sizes = max(checked or [base_sizes], key=lambda sizes: min(sizes.values(), default=0))
    attribute_edges = list(_other_attributes(trial, check_sizes, notes))
    edges = [*checked[:MOST_EDGES], *_other_values(trial, check_sizes), *attribute_edges]
    other_attributes: dict[str, Any] = {}
    for workload in attribute_edges:
        other_attributes |= {name: value for name, value in workload.items() if name in trial.attributes}
    if other_attributes and trial.try_sizes(quick[-1], other_attributes):
        edges.append({**quick[-1], **other_attributes})
    outputs, updates = _outputs(trial, base_sizes, notes)
    tolerance = _tolerance(trial, quick[0], notes)
    return TargetFacts(
        function=trial.subject.function,
        kind=trial.subject.kind,
        inputs=tuple(trial.inputs),
        outputs=tuple(outputs),
        updates=updates,
        sizes=tuple(trial.dims),
        attributes=trial.attributes,
        quick=tuple(quick),
        edges=tuple(edges),
        tolerance=tolerance,
        notes=tuple(notes),
        files={},
    )


def _tolerance(trial: Trial, sizes: Dims, notes: list[str]) -> float:
    """The tolerance: larger than the default if the function's own float32 error is, which a note says."""
    try:
        error = trial.float32_error(sizes, "normal")
    except Exception as problem:
        notes.append(f"the reference runs in its own types alone, not in float64: {describe_error(problem)}")
        return TOLERANCE
    if TOLERANCE_FACTOR * error <= TOLERANCE:
        return TOLERANCE
    tolerance = 10.0 ** math.ceil(math.log10(TOLERANCE_FACTOR * error))
    notes.append(f"tolerance {tolerance:g}: in float32 the function itself loses {error:.1g}")
    return tolerance


def _workloads(
    trial: Trial, base: Dims, sizes: Sizes, notes: list[str], *, vary_fixed: bool
) -> tuple[list[Dims], list[Dims]]:
    """Timed sizes (the largest, and odd ones), and sizes that are only checked. Adds to `notes`.
    `base`: sizes at which the function runs; `vary_fixed`: whether sizes given by number may vary."""
    largest = _largest_sizes(trial, sizes, base)
    names = sizes.varied(vary_fixed=vary_fixed)
    independent: list[str] = []
    dependent: list[str] = []  # Not every size runs, as with heads and width.
    for name in names:
        runs_with_odd_sizes = all(trial.try_sizes({**base, name: size}) for size in ODD_SIZES)
        (independent if runs_with_odd_sizes else dependent).append(name)
    checked: list[Dims] = []
    for numbers in EDGES if independent else ():  # All independent sizes change at once.
        candidate = {**base, **dict(zip(independent, itertools.cycle(numbers), strict=False))}
        checked += [candidate] if trial.try_sizes(candidate) else []
    single_names = dependent if len(checked) >= ENOUGH_EDGES else names
    for name in [*single_names, *sorted(sizes.filter_dims)]:  # One size changes at a time.
        candidates = [{**base, name: size} for size in SINGLE_SIZES]
        running = [item for item in candidates if item not in checked and trial.try_sizes(item)]
        checked += running[:MOST_SINGLE]
    if sizes.free_dims and base not in checked:
        checked.append(base)
    odd = dict(largest)
    for name in [dim for dim in independent if dim in sizes.free_dims]:
        quarter = largest[name] // 4
        odd[name] = quarter + (1 if quarter % 2 == 0 else 2)  # No tile divides it.
    quick = [largest, odd] if odd != largest and trial.try_sizes(odd) else [largest]
    if dependent:
        notes.append(f"not every size of {', '.join(dependent)} runs: those that do are checked")
    if not checked:
        notes.append("no other sizes are checked: name those at which a kernel may go wrong under `edges`")
    return quick, checked


def _largest_sizes(trial: Trial, sizes: Sizes, base: Dims) -> Dims:
    """The largest timed sizes within the limits of memory and time; else the smallest that run; else `base`."""
    largest: Dims | None = None
    for divisor in (16, 8, 4, 2, 1) if sizes.free_dims else (1,):
        candidate = sizes.timed(divisor)
        peak_kib, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        if not trial.try_sizes(candidate):
            continue
        is_long = time.monotonic() - began > LONG_S
        growth_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib) << 10
        outputs = trial.outcomes[-1][1].outputs.values()
        output_bytes = max((tensor.numel() * tensor.element_size() for tensor in outputs), default=0)
        if largest and (is_long or output_bytes > MOST_BYTES or growth_bytes > MOST_GROWTH_BYTES):
            break
        largest = candidate
    return largest or base


def _other_values(trial: Trial, sizes: Dims) -> Iterator[dict[str, Any]]:
    """Workloads with other values, where results are finite: `negative`, `far` below zero, `ends` (each row ends
    in its maximum). `far` shows a softmax whose maximum starts at 0; float32 has to be exact enough for it."""
    if not any(tensor.values == "normal" for tensor in trial.inputs):
        return
    for drawn in ("negative", "far", "ends"):
        with suppress(Exception):
            error = trial.float32_error(sizes, drawn) if drawn == "far" else 0.0
            if trial.run(sizes, drawn=drawn).is_finite and TOLERANCE_FACTOR * error < TOLERANCE:
                yield {**sizes, "drawn": drawn}


def _other_attributes(trial: Trial, sizes: Dims, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Workloads with another value of each attribute. It has to change the outputs, if possible not their shapes;
    a note names an attribute without such a value. Results go into `trial.outcomes`."""
    usual = trial.run(sizes)
    for name, value in list(trial.attributes.items())[:MOST_VARIED]:
        candidates: list[Scalar] = [0.5 if abs(value) < 0.01 else value * 1.5, 0.25, value / 2]
        if isinstance(value, bool):
            candidates = [not value]
        elif isinstance(value, int):
            candidates = [value + 1, value * 2, value // 2, value - 1]
        effective: list[tuple[Scalar, Outcome]] = []
        for candidate in candidates:
            with suppress(Exception):
                outcome = trial.run(sizes, attributes={name: candidate})
                has_all_outputs = len(outcome.outputs) == len(usual.outputs)
                if has_all_outputs and outcome.is_finite and not usual.equals(outcome):
                    effective.append((candidate, outcome))
        if effective:
            same_shapes = [entry for entry in effective if entry[1].shapes == usual.shapes]
            candidate, outcome = (same_shapes or effective)[0]
            trial.outcomes.append((sizes, outcome))
            yield {**sizes, name: candidate}
        else:
            notes.append(f"{name} is always {value!r}: no other value that was tried runs and changes the outputs")


def _outputs(trial: Trial, base: Dims, notes: list[str]) -> tuple[list[TensorSpec], dict[str, str]]:
    """The outputs; and output to the input that it updates in place, with a note. `base`: sizes that run."""
    outcomes, inputs = trial.outcomes or [(base, trial.run(base))], trial.inputs
    _, first = outcomes[0]
    names = {*(tensor.name for tensor in inputs), *trial.attributes, *trial.dims}
    outputs: list[TensorSpec] = []
    updates: dict[str, str] = {}
    for number in first.changed if trial.subject.kind == "function" else ():
        updated = inputs[number]
        updates[f"new_{updated.name}"] = updated.name
        outputs.append(TensorSpec(name=f"new_{updated.name}", dims=updated.dims, dtype=updated.dtype))
        notes.append(f"{updated.name} is changed in place: `updates` says so")
    for output, tensor in first.outputs.items():
        name = output if WORD.fullmatch(output) else f"output_{output}".replace(".", "_")
        name = f"{name}_out" if name in names else name
        pairs = [(sizes, outcome.outputs.get(output)) for sizes, outcome in outcomes]
        shapes = [(sizes, result.shape) for sizes, result in pairs if result is not None]
        dims = _dims_of(shapes, trial.dims) if len(shapes) == len(outcomes) else ()
        dtype = DTYPE_NAMES[tensor.dtype]
        outputs.append(TensorSpec(name=name, dims=dims, dtype="" if dtype == "float32" else dtype))
    return outputs, updates


def _dims_of(shapes: Sequence[tuple[Dims, torch.Size]], names: Sequence[str]) -> tuple[str, ...]:
    """Names of an output's dimensions; empty if unclear. `shapes`: sizes of each call, and the shape."""
    ranks = {len(shape) for _, shape in shapes}
    dims: list[str] = []
    for axis in range(min(ranks)):
        equal_names = {*names}
        for sizes, shape in shapes:
            equal_names = {name for name in equal_names if sizes[name] == shape[axis]}
        dims += equal_names if len(equal_names) == 1 else ()
    return tuple(dims) if ranks == {len(dims)} else ()
