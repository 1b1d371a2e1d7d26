"""Mistakes with wrong results, one list: controls of the gate, and what a wrong output is held against."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PARTS = ("the last index", "the first index", "the second half")
"""What a loop over a dimension leaves out."""


@dataclass(frozen=True)
class WrongResult:
    """One mistake, as a worker makes it in a variant, and the judge in the reference."""

    make: str
    """Its name in `loop.mistakes`."""
    control: str = ""
    """What the gate's control is called; empty where it is none."""
    as_if: str = ""
    """What it is as if; empty where nobody is helped by that."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """What else its maker has to know."""
    sized: Sequence[str] = ()
    """Dimensions that have to be larger than 1 for it to show."""
    alike: tuple[str, str] = ("", "")
    """Dimensions of two tensors that have to be as large."""

    def shows(self, sizes: Mapping[str, int]) -> bool:
        """Whether it can show where dimensions are as large as this."""
        pairs = zip(self.alike[0].split(), self.alike[1].split(), strict=True)
        return all(sizes[a] == sizes[b] for a, b in pairs) and all(sizes[name] > 1 for name in self.sized)


def wrong_results(inputs: Mapping[str, str], output: str) -> tuple[WrongResult, ...]:
    """All that tensors of these dimensions allow."""
    dimensions = dict.fromkeys(name for text in (*inputs.values(), output) for name in text.split())
    return (*_inputs(inputs), *_dimensions(inputs, output.split(), list(dimensions)), *_outputs(output.split()))


def _inputs(inputs: Mapping[str, str]) -> Iterator[WrongResult]:
    for place, name in enumerate(inputs):
        yield WrongResult("ignore", f"ignores {name}", f"{name} were zero", {"input": place})
    for (x_place, first), (two, second) in itertools.combinations(enumerate(inputs.items()), 2):
        (a, shape), (b, other) = first, second
        if len(shape.split()) == len(other.split()):
            both, pair, alike = f"{a} and {b}", {"inputs": [x_place, two]}, (shape, other)
            yield WrongResult("swap", f"swaps {both}", f"{both} were swapped", pair, alike=alike)
            for (x, read), (y, meant) in itertools.permutations(((x_place, a), (two, b))):
                terms = {"input": y, "other": x}
                yield WrongResult("read_for", "", f"{read} were read for {meant}", terms, alike=alike)
    yield WrongResult("round_inputs", "low precision")


def _dimensions(
    inputs: Mapping[str, str], output: Sequence[str], dimensions: Sequence[str]
) -> Iterator[WrongResult]:
    for name in dimensions:
        if name not in output:
            axes = [[axis for axis, dim in enumerate(text.split()) if dim == name] for text in inputs.values()]
            yield WrongResult("cut", f"cuts {name}", "", {"axes": axes}, [name])
            for part in PARTS:
                yield WrongResult(
                    "cut", "", f"{part} of {name} were left out", {"axes": axes, "part": part}, [name]
                )
    for axis, name in enumerate(output):
        along = {"axis": axis}
        yield WrongResult("leave_tail", f"skips tail of {name}", "", along, [name])
        yield WrongResult("zero_tail", f"zeros in tail of {name}", "", along, [name])
        yield WrongResult("neighbour", f"one slice wrong of {name}", "", along, [name])
        yield WrongResult("growing", f"error grows along {name}", "", along, [name])


def _outputs(output: Sequence[str]) -> Iterator[WrongResult]:
    yield WrongResult("zeros", "zeros", "nothing were computed (zeros)")
    yield WrongResult("mean", "constant")
    for axis, name in enumerate(output):
        for by, which in ((1, "before"), (-1, "after")):
            as_if = f"each place held the one {which} it along {name}"
            yield WrongResult("roll", "", as_if, {"axis": axis, "by": by}, [name])
    if len(output) > 1:
        turned = "the last two dimensions of the output were swapped in memory"
        yield WrongResult("transpose", "transposed", turned, {}, output[-2:])
    yield WrongResult("one_off", "one element off")
    yield WrongResult("one_nan", "one element NaN")
    yield WrongResult("nothing", "nothing written")
