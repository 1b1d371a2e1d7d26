"""The wrong-result mistakes that a target's tensors allow: negative controls of the gate."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WrongResult:
    """One mistake, in the form in which a worker injects it."""

    make: str
    """Name of the mistake in `loop.mistakes`."""
    control: str
    """Name of the gate's negative control."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the mistake."""
    dimensions_above_1: Sequence[str] = ()
    """Dimensions that must be larger than 1 for the mistake to show."""
    equal_dimensions: tuple[str, str] = ("", "")
    """Dimensions of two tensors that must have equal sizes for the mistake to apply."""

    def can_show(self, sizes: Mapping[str, int]) -> bool:
        """Whether the mistake can show with these sizes of dimensions: paired ones are equal, others above 1."""
        pairs = zip(self.equal_dimensions[0].split(), self.equal_dimensions[1].split(), strict=True)
        are_equal = all(sizes[a] == sizes[b] for a, b in pairs)
        return are_equal and all(sizes[name] > 1 for name in self.dimensions_above_1)


def wrong_results(inputs: Mapping[str, str], output: str) -> Iterator[WrongResult]:
    """Yield mistakes that these dimensions allow. `inputs`: name to dimensions, as `a b`; `output`: its own."""
    names = list(inputs)
    for number, name in enumerate(names):
        yield WrongResult("ignore", f"ignores {name}", {"input": number})
    for first, second in itertools.combinations(range(len(names)), 2):
        dimensions_of_both = inputs[names[first]], inputs[names[second]]
        if len(dimensions_of_both[0].split()) == len(dimensions_of_both[1].split()):
            control = f"swaps {names[first]} and {names[second]}"
            yield WrongResult("swap", control, {"inputs": [first, second]}, equal_dimensions=dimensions_of_both)
    yield WrongResult("round_inputs", "low precision")
    dimensions = output.split()
    axes_of_summed: dict[str, list[list[int]]] = {}  # Dimension to its axes in each input.
    for number, text in enumerate(inputs.values()):
        for axis, dimension in enumerate(text.split()):
            if dimension not in dimensions:
                axes_of_summed.setdefault(dimension, [[] for _ in inputs])[number].append(axis)
    for dimension, axes in axes_of_summed.items():
        yield WrongResult("cut", f"cuts {dimension}", {"axes": axes}, [dimension])
    for axis, name in enumerate(dimensions):
        for make, control in (
            ("leave_tail", f"skips tail of {name}"),
            ("zero_tail", f"zeros in tail of {name}"),
            ("neighbour", f"one slice wrong of {name}"),
            ("growing", f"error grows along {name}"),
        ):
            yield WrongResult(make, control, {"axis": axis}, [name])
    yield WrongResult("zeros", "zeros")
    yield WrongResult("mean", "constant")
    if len(dimensions) > 1:
        yield WrongResult("transpose", "transposed", {}, dimensions[-2:])
    yield WrongResult("one_off", "one element off")
    yield WrongResult("one_nan", "one element NaN")
    yield WrongResult("nothing", "nothing written")
