"""What trials of a user's function tell: sizes that run, shapes of outputs, values, what rounding loses."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loop.calls.torch_side import NAMES
from loop.starting.slots import Scalar, Slots
from loop.starting.texts import Hypothesis
from loop.starting.trial import Outcome, Trial
from loop.workers.wire import described

LONG_S, MOST_BYTES = 0.5, 16 << 20
"""What a call that is timed may take: seconds, and bytes of an output."""
MOST_EDGES, MOST_VARIED, ODD = 14, 6, (3, 5)
TOLERANCE, LOST = 1e-4, 4.0
"""What an element may be off by default; and it is at least four times what the function itself loses."""
WORD = re.compile(r"[A-Za-z]\w{0,63}")
SMALL = re.compile(r"k|kh|kw|kd|ks|r|s|fh|fw|kx|ky|kernel\w*|taps|window", re.IGNORECASE)
LITTLE = 8
"""A number that is given and not above this one stays as it is among edges: a filter's 3, a head's 4."""
WHOLE = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""By rank: sizes that are timed, from the last dimension to the first."""
TRIED = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
    (8,) * 8,
    (16,) * 8,
)
"""Sizes that a function is tried with, until it runs: different odd ones first, for they tell most."""
EDGES = ((3, 17, 5, 9), (1,), (33, 3), (65, 31, 7, 2), (5, 1), (1, 67), (2, 129, 3))
"""What is only checked, repeated over all sizes. Row lengths of 1 and 3 show what a kernel pads a row with."""
SINGLE = (1, 3, 7, 17, 33, 67, 2, 4, 12, 20, 36)
"""One size at a time, where no edge above can be computed."""


class Sizes:
    """The dimensions of all inputs."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed: Mapping[str, int]) -> None:
        self.shapes, self.fixed = shapes, fixed
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free = [name for name in self.names if name not in fixed]
        self.filter = {name for name in self.free if self._is_of_a_filter(name)}

    def _is_of_a_filter(self, name: str) -> bool:
        """Whether a dimension is one of a filter's own: only the last ones of a later tensor have it."""
        having = [shape for shape in self.shapes if name in shape]
        if len(having) != 1 or len(self.shapes) < 2 or having[0] is self.shapes[0]:
            return False
        others = {dim for shape in self.shapes if shape is not having[0] for dim in shape}
        own = [dim for dim in having[0][1:] if dim not in others]
        return name in own and (bool(SMALL.fullmatch(name)) or (len(having[0]) > 2 and len(own) > 1))

    def tried(self) -> Iterator[dict[str, int]]:
        """Sizes that a function may run with; numbers that are given stay."""
        for values in TRIED if self.free else ((),):
            rest = iter([*values, *values, *values])
            yield {
                name: self.fixed[name] if name in self.fixed else 3 if name in self.filter else next(rest)
                for name in self.names
            }

    def timed(self, divisor: int) -> dict[str, int]:
        """What is timed; `divisor` makes the largest ones smaller."""
        chosen = dict(self.fixed)
        for name in self.free:
            rank, place = max((len(shape), -shape.index(name)) for shape in self.shapes if name in shape)
            sizes = WHOLE.get(rank, (32, 32, 8, 4, 2))
            size = 3 if name in self.filter else sizes[min(rank - 1 + place, len(sizes) - 1)]
            chosen[name] = max(size // divisor, min(size, 8))
        return {name: chosen[name] for name in self.names}

    def varied(self, *, vary: bool) -> list[str]:
        """Dimensions that edges change: a filter's stay, and numbers that are given, unless `vary`."""
        given = [name for name, size in self.fixed.items() if size > LITTLE] if vary else []
        return [name for name in self.names if name in given or (name in self.free and name not in self.filter)]


def uneven(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """Odd sizes of about a quarter, which no tile divides."""
    return {**sizes, **{name: sizes[name] // 4 + (1 if sizes[name] // 4 % 2 == 0 else 2) for name in names}}


def edges(base: Mapping[str, int], names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes at which a kernel may go wrong, all of these dimensions at once."""
    for values in EDGES if names else ():
        yield {**base, **{name: values[n % len(values)] for n, name in enumerate(names)}}


@dataclass
class Facts:
    """What target.yaml says of a function."""

    hypothesis: Hypothesis
    workloads: dict[str, list[dict[str, Any]]]
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outputs: list[tuple[str, str | None, str]] = field(default_factory=list)
    """Name, dimensions (None: not known by name) and type of each."""
    updates: dict[str, str] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    notes: list[str] = field(default_factory=list)

    @property
    def generated(self) -> bool:
        """Whether the target's own generator makes the inputs."""
        inputs = self.hypothesis.inputs
        is_plain = all(drawn.values in ("normal", "positive") and drawn.dims for drawn in inputs)
        return self.hypothesis.subject.is_module or not is_plain

    def as_json(self) -> dict[str, Any]:
        """For the command that writes the manifest."""
        hypothesis = self.hypothesis
        return {
            "inputs": [(drawn.name, " ".join(drawn.dims), drawn.dtype) for drawn in hypothesis.inputs],
            "is_module": hypothesis.subject.is_module,
            "sizes": hypothesis.dims,
            "attributes": hypothesis.attributes,
            "positive": [drawn.name for drawn in hypothesis.inputs if drawn.values == "positive"],
            "generated": self.generated,
            **{name: value for name, value in vars(self).items() if name != "hypothesis"},
        }


def facts_of(trial: Trial, base: Mapping[str, int], sizes: Sizes, slots: Slots, *, vary: bool) -> Facts:
    """Everything that a few dozen calls tell; `vary`: whether numbers that are given may be others."""
    return _Asking(trial, dict(base), sizes, slots).facts(vary=vary)


@dataclass
class _Asking:
    """Calls with many sizes and values, and what they gave."""

    trial: Trial
    base: dict[str, int]
    sizes: Sizes
    slots: Slots
    seen: list[tuple[dict[str, int], Outcome]] = field(default_factory=list)
    """Sizes that were tried, and what came out."""
    notes: list[str] = field(default_factory=list)

    def facts(self, *, vary: bool) -> Facts:
        """All of them."""
        self.notes = [*self.slots.notes, *self._chosen()]
        main, names = self._timed(), self.sizes.varied(vary=vary)
        loose = [name for name in names if all(self._ran({**self.base, name: size}) for size in ODD)]
        checked = [sizes for sizes in edges(self.base, loose) if self._ran(sizes)]
        for name in (name for name in names if name not in loose):  # As heads and width do, it changes alone.
            single = [{**self.base, name: size} for size in SINGLE]
            checked += [sizes for sizes in single if sizes not in checked and self._ran(sizes)][:4]
        if self.sizes.free and self.base not in checked:
            checked.append(self.base)
        odd = uneven(main, [name for name in self.sizes.free if name in loose])
        quick = [main, odd] if odd != main and self._ran(odd) else [main]
        if bound := [name for name in names if name not in loose]:
            self.notes.append(f"not every size of {', '.join(bound)} runs: those that do are checked")
        if not checked:
            self.notes.append(
                "no other sizes are checked: name those at which a kernel may go wrong under `edges`"
            )
        place = max(checked or [self.base], key=lambda sizes: min(sizes.values(), default=0))
        varied = [*self._other_values(place), *self._other_attributes(place)]
        workloads = {"quick": quick, "edges": [*checked[:MOST_EDGES], *varied]}
        facts = Facts(self.trial.hypothesis, workloads, dict(self.slots.choices), notes=self.notes)
        self._outputs(facts)
        self._silent(place)
        self._rounding(facts, main)
        return facts

    def _chosen(self) -> Iterator[str]:
        """What was chosen of several possibilities."""
        for path, option in self.trial.hypothesis.options.items():
            yield from option.notes
            if len(self.slots.options[path]) > 1 and not option.inputs and path not in self.slots.given:
                shown = str(option.attributes.get(option.text, option.text))
                shown = re.sub(r"<(\w+)\.(\d+)>", r"\1.shape[\2]", shown)
                yield f"{path} = {shown}, with which it runs; --set {path}=VALUE changes it"

    def _ran(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call runs; then it is noted."""
        outcome = self.trial.runs(sizes)
        if outcome is None or (not outcome.finite and all(before.finite for _, before in self.seen)):
            return False
        self.seen.append((dict(sizes), outcome))
        return True

    def _timed(self) -> dict[str, int]:
        """The largest sizes that take little memory and time."""
        chosen: dict[str, int] | None = None
        for divisor in (16, 8, 4, 2, 1) if self.sizes.free else (1,):
            tried, began = self.sizes.timed(divisor), time.monotonic()
            if not self._ran(tried):
                continue
            outputs = self.seen[-1][1].outputs.values()
            largest = max((tensor.numel() * tensor.element_size() for tensor in outputs), default=0)
            if chosen and (time.monotonic() - began > LONG_S or largest > MOST_BYTES):
                break
            chosen = tried
        return chosen or self.base

    def _other_values(self, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """The same sizes with other values: below zero, far below it, and with the greatest at the end.

        Far values stand where float32 still tells: a maximum that begins at 0 is then seen in a softmax, too.
        """
        trial = self.trial
        if not any(drawn.values == "normal" for drawn in trial.hypothesis.inputs):
            return
        for drawn in ("negative", "far", "ends"):
            try:
                is_telling = trial.run(sizes, drawn=drawn).finite
                if is_telling and drawn == "far":
                    is_telling = LOST * lost_by(trial, trial.inputs(sizes, drawn=drawn)) < TOLERANCE
            except Exception:
                continue
            if is_telling:
                yield {**sizes, "drawn": drawn}

    def _other_attributes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """The same sizes with another value of each attribute: one that keeps the shapes, where there is one."""
        usual = self.trial.run(sizes)
        shapes = [tensor.shape for tensor in usual.outputs.values()]
        for name, value in list(self.trial.attributes.items())[:MOST_VARIED]:
            telling = []
            for other in _others(value):
                try:
                    outcome = self.trial.run(sizes, attributes={name: other})
                except Exception:
                    continue
                if outcome.finite and not usual.same_as(outcome):
                    keeps = [tensor.shape for tensor in outcome.outputs.values()] == shapes
                    telling.append((not keeps, {**sizes, name: other}, outcome))
            if telling:
                _, entry, outcome = min(telling, key=lambda one: one[0])
                self.seen.append((dict(sizes), outcome))
                yield entry
            else:
                why = "no other value that was tried runs and changes the outputs"
                self.notes.append(f"{name} is always {value!r}: {why}")

    def _outputs(self, facts: Facts) -> None:
        """Names, dimensions and types of the outputs, and which inputs are changed in place."""
        seen, trial = self.seen or [(self.base, self.trial.run(self.base))], self.trial
        inputs, first = trial.hypothesis.inputs, seen[0][1]
        dims = [dim for drawn in inputs for dim in drawn.dims]
        taken = {*(drawn.name for drawn in inputs), *trial.attributes, *dims}
        for number in () if trial.hypothesis.subject.is_module else first.changed:
            drawn = inputs[number]
            facts.updates[f"new_{drawn.name}"] = drawn.name
            facts.outputs.append((f"new_{drawn.name}", " ".join(drawn.dims), drawn.dtype))
            facts.notes.append(f"{drawn.name} is changed in place: `updates` says so")
        for name, tensor in first.outputs.items():
            word = name if WORD.fullmatch(name) else f"output_{name}".replace(".", "_")
            word = f"{word}_out" if word in taken else word
            kind = NAMES[tensor.dtype]
            shapes = [(sizes, outcome.outputs[name].shape) for sizes, outcome in seen if name in outcome.outputs]
            text = _named(shapes, list(dict.fromkeys(dims))) if len(shapes) == len(seen) else None
            facts.outputs.append((word, text, "" if kind == "float32" else kind))

    def _silent(self, sizes: Mapping[str, int]) -> None:
        """Note inputs that change no output: other values of one alone give the same."""
        trial = self.trial
        usual, other = trial.inputs(sizes), trial.inputs(sizes, seed=1234)
        shift = len(usual) - len(trial.hypothesis.inputs)
        before = trial.run(sizes, inputs=usual)
        for n, drawn in enumerate(trial.hypothesis.inputs, start=shift):
            mixed = [*usual[:n], other[n], *usual[n + 1 :]]
            if not isinstance(mixed[n], Tensor) or mixed[n].numel() < 2:
                continue
            try:
                if before.same_as(trial.run(sizes, inputs=mixed)):
                    self.notes.append(f"{drawn.name} changes no output: other values of it give the same")
            except Exception:
                continue

    def _rounding(self, facts: Facts, sizes: Mapping[str, int]) -> None:
        """What is said of float64; the tolerance is larger where the function itself loses more."""
        try:
            lost = lost_by(self.trial, self.trial.inputs(sizes))
        except Exception as error:
            why = "the reference runs in its own types alone, not in float64"
            facts.notes.append(f"{why}: {described(error)}")
            return
        if LOST * lost > TOLERANCE:
            facts.tolerance = 10.0 ** math.ceil(math.log10(LOST * lost))
            facts.notes.append(f"tolerance {facts.tolerance:g}: in float32 the function itself loses {lost:.1g}")


def _others(value: Scalar) -> list[Scalar]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, value // 2, value - 1]
    if isinstance(value, float):
        return [0.5 if abs(value) < 0.01 else value * 1.5, 0.25, value / 2]
    return []


def _named(shapes: Sequence[tuple[dict[str, int], torch.Size]], dims: Sequence[str]) -> str | None:
    """The dimensions of an output by name; None where sizes do not tell."""
    rank = len(shapes[0][1])
    if rank == 0 or any(len(shape) != rank for _, shape in shapes):
        return None
    names = []
    for axis in range(rank):
        fitting = [dim for dim in dims if all(sizes[dim] == shape[axis] for sizes, shape in shapes)]
        if len(fitting) != 1:
            return None
        names.append(fitting[0])
    return " ".join(names)


def lost_by(trial: Trial, inputs: Sequence[Any]) -> float:
    """The largest error of the function in float32, relative to 1 + what it gives in float64."""
    own, exact, lost = trial.run({}, inputs=inputs), trial.run({}, inputs=inputs, exact=True), 0.0
    for name, tensor in own.results.items():
        wide = exact.results.get(name)
        if wide is not None and tensor.is_floating_point() and wide.shape == tensor.shape and tensor.numel():
            off = (tensor.double() - wide.double()).abs() / (1 + wide.double().abs())
            lost = max(lost, float(off.nan_to_num(0.0, 0.0, 0.0).max()))
    return lost
