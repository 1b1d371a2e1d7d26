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


NOT_SAME = (NotSame, NotTensor)


@dataclass(frozen=True)
class Outcome:
    """What one call gave."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Inputs that it changed in place, by their numbers."""
    returned: bool
    """Whether it gave anything besides inputs that it changed."""

    @property
    def finite(self) -> bool:
        """Whether all values are numbers."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs, and inputs changed in place."""
        return self.outputs | {f"#{n}": tensor for n, tensor in self.changed.items()}


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

    @property
    def has_masks(self) -> bool:
        """Whether it takes truth values."""
        return any(tensor.values.startswith("mask") for tensor in self.hypothesis.inputs)

    def settled(self, sizes: Mapping[str, int]) -> "Trial":
        """The same, once it gives the same twice, with what it gives known. Raises NotSame, NotTensor."""
        outcome = self.run(sizes)
        torch.manual_seed(SEED + 1)
        again = self.run(sizes)
        what = f"{self.hypothesis.subject.module}:{self.hypothesis.subject.name}"
        for name, tensor in outcome.results.items():
            if not same_bits(tensor, again.results[name]):
                raise NotSame(
                    f"{what} gives two results on the same inputs: it draws random numbers, or keeps state"
                )
        if not outcome.outputs and not outcome.changed:
            raise NotTensor(f"{what} gives no tensor, and changes no input")
        return Trial(replace(self.hypothesis, returns=outcome.returned))

    def inputs(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        seed: int = SEED,
        attributes: Mapping[str, Scalar] = {},
    ) -> list[Any]:
        """All inputs; the first is a dict of weights, where a class has some."""
        values = {**self.attributes, **attributes}
        return list(self.make(**sizes, **values, drawn=drawn, seed=seed, dtype=torch.float32))

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        inputs: Sequence[Any] | None = None,
        exact: bool = False,
    ) -> Outcome:
        """One call; `exact`: in float64."""
        arguments = list(inputs) if inputs is not None else self.inputs(sizes, drawn=drawn, attributes=attributes)
        arguments = [_copied(value, exact=exact) for value in arguments]
        before = [_copied(value, exact=False) for value in arguments]
        result = self.function(*arguments, **{**self.attributes, **attributes})
        pairs = enumerate(zip(arguments, before, strict=True))
        changed = {n: new for n, (new, old) in pairs if isinstance(new, Tensor) and not same_bits(new, old)}
        own = {id(arguments[n]) for n in changed}
        fresh = {name: tensor for name, tensor in self._checked(result).items() if id(tensor) not in own}
        return Outcome({name: tensor.detach().clone() for name, tensor in fresh.items()}, changed, bool(fresh))

    def _checked(self, result: Any) -> dict[str, Tensor]:
        """The outputs by name. Raises NotTensor."""
        outputs = outputs_of(result)
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                what = f"{self.hypothesis.subject.module}:{self.hypothesis.subject.name}"
                raise NotTensor(f"{what} gives {name} as {kind}: expected tensors of real numbers")
        return outputs

    def finite_at_one(self, sizes: Mapping[str, int]) -> bool:
        """Whether a mask leaves something where there is one element only."""
        try:
            return self.run(dict.fromkeys(sizes, 1)).finite
        except Exception:
            return True


def _copied(value: Any, *, exact: bool) -> Any:
    """A copy, of weights too; in float64 where that is asked."""
    if isinstance(value, dict):
        return {name: _copied(weight, exact=exact) for name, weight in value.items()}
    return value.to(torch.float64, copy=True) if exact and value.is_floating_point() else value.clone()
