"""Calls of a user's function with inputs of a hypothesis about what it takes."""

import contextlib
import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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


class Lacking(Exception):
    """What a target cannot be made without: a message, what to do next, and options that are to be added."""

    def __init__(self, message: str, hint: str = "", like: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint, self.like = hint, like


@dataclass(frozen=True)
class Outcome:
    """What one call gave."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Inputs that it changed in place, by their numbers."""

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs, and inputs changed in place."""
        return self.outputs | {f"#{n}": tensor for n, tensor in self.changed.items()}

    @property
    def finite(self) -> bool:
        """Whether all values are numbers."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    def same(self, other: "Outcome") -> bool:
        """Whether all results of another call are the same, bit by bit."""
        pairs = [(value, other.results.get(name)) for name, value in self.results.items()]
        return bool(pairs) and all(b is not None and same_bits(a, b) for a, b in pairs)


class Trial:
    """A hypothesis, as functions that can be called."""

    def __init__(self, hypothesis: Hypothesis) -> None:
        self.hypothesis = hypothesis
        space = executed(hypothesis.wrapper(""), "reference")
        self.function = space[hypothesis.subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)
        vars(module).update(space)
        self.make = executed(hypothesis.generator(REFERENCE), "inputs")["make"]
        self.attributes: dict[str, Scalar] = dict(hypothesis.attributes)

    def settled(self, sizes: Mapping[str, int]) -> "Trial":
        """The same, once it gives the same twice, with what it gives known. Raises Lacking."""
        outcome = self.run(sizes)
        torch.manual_seed(SEED + 1)
        what = self.hypothesis.subject.full_name
        if not outcome.results:
            raise Lacking(f"{what} gives no tensor, and changes no input", "name a function that gives tensors")
        outcomes, module = [self.run(sizes)], sys.modules[self.hypothesis.subject.module]
        if (module.__file__ or "").startswith(f"{Path.cwd()}/"):  # Each process draws anew what it draws there.
            with contextlib.suppress(Exception):
                importlib.reload(module)
                outcomes.append(Trial(self.hypothesis).run(sizes))
        if not all(map(outcome.same, outcomes)):
            why = (
                "gives two results on the same inputs: it keeps state, or draws numbers, also where it is imported"
            )
            raise Lacking(
                f"{what} {why}", "seed what it draws by an argument, or name a function that draws nothing"
            )
        return Trial(replace(self.hypothesis, returns=bool(outcome.outputs)))

    def inputs(
        self, sizes: Mapping[str, int], *, drawn: str = "normal", attributes: Mapping[str, Scalar] = {}
    ) -> list[Any]:
        """All inputs; the first is a dict of weights, where a class has some."""
        values = {**self.attributes, **attributes}
        return list(self.make(**sizes, **values, drawn=drawn, seed=SEED, dtype=torch.float32))

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        exact: bool = False,
    ) -> Outcome:
        """One call; `exact`: in float64. Raises Lacking for an output that is no tensor of numbers."""
        arguments = self.inputs(sizes, drawn=drawn, attributes=attributes)
        arguments = [_copied(value, exact=exact) for value in arguments]
        before = [_copied(value, exact=False) for value in arguments]
        outputs = outputs_of(self.function(*arguments, **{**self.attributes, **attributes}))
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                what = f"{self.hypothesis.subject.full_name} gives {name} as {kind}"
                raise Lacking(f"{what}: expected tensors of real numbers", "name a function that gives tensors")
        pairs = enumerate(zip(arguments, before, strict=True))
        changed = {n: new for n, (new, old) in pairs if isinstance(new, Tensor) and not same_bits(new, old)}
        own = {id(tensor) for tensor in changed.values()}
        fresh = {name: tensor for name, tensor in outputs.items() if id(tensor) not in own}
        return Outcome({name: tensor.detach().clone() for name, tensor in fresh.items()}, changed)


def _copied(value: Any, *, exact: bool) -> Any:
    """A copy, of weights too; in float64 where that is asked."""
    if isinstance(value, dict):
        return {name: _copied(weight, exact=exact) for name, weight in value.items()}
    return value.to(torch.float64, copy=True) if exact and value.is_floating_point() else value.clone()
