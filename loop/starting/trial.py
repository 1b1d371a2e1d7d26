"""Calls of a user's function with inputs of a hypothesis about what it takes."""

import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from loop.calls.callee import outputs_of
from loop.calls.torch_side import NAMES, same_bits
from loop.starting.slots import Scalar
from loop.starting.texts import Hypothesis, executed

SEED = 7
REFERENCE = "loop_starting_reference"
"""What the wrapper is imported as here."""


class NotSame(Exception):
    """Two calls on the same inputs differ."""


class NotTensor(Exception):
    """An output that is none."""


@dataclass(frozen=True)
class Outcome:
    """What one call gave."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Inputs that it changed in place, by their numbers."""

    @property
    def finite(self) -> bool:
        """Whether all values are numbers."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs, and inputs changed in place."""
        return self.outputs | {f"#{n}": tensor for n, tensor in self.changed.items()}

    def same_as(self, other: "Outcome") -> bool:
        """Whether another call gave the same bits."""
        pairs = [(tensor, other.results.get(name)) for name, tensor in self.results.items()]
        return all(b is not None and same_bits(a, b) for a, b in pairs) and bool(pairs)


class Trial:
    """A hypothesis, as functions that can be called."""

    def __init__(self, hypothesis: Hypothesis) -> None:
        self.hypothesis = hypothesis
        self.what = f"{hypothesis.subject.module}:{hypothesis.subject.name}"
        space = executed(hypothesis.wrapper(""), "reference")
        self.function = space[hypothesis.subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)
        vars(module).update(space)
        self.make = executed(hypothesis.generator(REFERENCE), "inputs")["make"]
        self.attributes: dict[str, Scalar] = dict(hypothesis.attributes)

    def settled(self, sizes: Mapping[str, int]) -> "Trial":
        """The same, once it gives the same twice, with what it gives known. Raises NotSame, NotTensor."""
        outcome = self.run(sizes)
        torch.manual_seed(SEED + 1)
        again = self.run(sizes)
        if not outcome.results:
            raise NotTensor(f"{self.what} gives no tensor, and changes no input")
        if not outcome.same_as(again):
            raise NotSame(
                f"{self.what} gives two results on the same inputs: it draws random numbers, or keeps state"
            )
        return Trial(replace(self.hypothesis, returns=bool(outcome.outputs)))

    def inputs(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        seed: int = SEED,
        attributes: Mapping[str, Scalar] = {},
    ) -> list[Any]:
        """All inputs; the first is a dict of weights, where a class has some."""
        values = {**sizes, **self.attributes, **attributes}
        return list(self.make(**values, drawn=drawn, seed=seed, dtype=torch.float32))

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        inputs: Sequence[Any] | None = None,
        exact: bool = False,
    ) -> Outcome:
        """One call; `exact`: in float64. Raises NotTensor, and whatever the function raises."""
        made = list(inputs) if inputs is not None else self.inputs(sizes, drawn=drawn, attributes=attributes)
        made = [_copied(value, exact=exact) for value in made]
        before = [_copied(value, exact=False) for value in made]
        result = self.function(*made, **{**self.attributes, **attributes})
        pairs = enumerate(zip(made, before, strict=True))
        changed = {n: now for n, (now, was) in pairs if isinstance(now, Tensor) and not same_bits(now, was)}
        own = {id(made[n]) for n in changed}
        outputs = {}
        for name, tensor in outputs_of(result).items():
            if not isinstance(tensor, Tensor) or tensor.dtype not in NAMES:
                kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise NotTensor(f"{self.what} gives {name} as {kind}: expected tensors of real numbers")
            if id(tensor) not in own:
                outputs[name] = tensor.detach().clone()
        return Outcome(outputs, changed)

    def runs(self, sizes: Mapping[str, int]) -> Outcome | None:
        """What a call gave; None where it raised."""
        try:
            return self.run(sizes)
        except Exception:
            return None


def _copied(value: Any, *, exact: bool) -> Any:
    """A copy, of weights too; in float64 where that is asked."""
    if isinstance(value, dict):
        return {name: _copied(tensor, exact=exact) for name, tensor in value.items()}
    return value.to(torch.float64, copy=True) if exact and value.is_floating_point() else value.clone()
