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
    sized: Sequence[str] = ()
    """Dimensions that must be larger than 1 for the mistake to show."""
    alike: tuple[str, str] = ("", "")
    """Dimensions of two tensors that must have equal sizes for the mistake to apply."""

    def shows(self, sizes: Mapping[str, int]) -> bool:
        """Whether the mistake can show with these sizes of dimensions."""
        pairs = zip(self.alike[0].split(), self.alike[1].split(), strict=True)
        return all(sizes[a] == sizes[b] for a, b in pairs) and all(sizes[name] > 1 for name in self.sized)


def wrong_results(inputs: Mapping[str, str], output: str) -> Iterator[WrongResult]:
    """Yield all mistakes that tensors with these dimensions allow. `inputs`: name to dimensions."""
    for place, name in enumerate(inputs):
        yield WrongResult("ignore", f"ignores {name}", {"input": place})
    for (x, (a, shape)), (y, (b, other)) in itertools.combinations(enumerate(inputs.items()), 2):
        if len(shape.split()) == len(other.split()):
            yield WrongResult("swap", f"swaps {a} and {b}", {"inputs": [x, y]}, alike=(shape, other))
    yield WrongResult("round_inputs", "low precision")
    dimensions = output.split()
    for name in dict.fromkeys(name for text in inputs.values() for name in text.split()):
        if name not in dimensions:
            axes = [[axis for axis, dim in enumerate(text.split()) if dim == name] for text in inputs.values()]
            yield WrongResult("cut", f"cuts {name}", {"axes": axes}, [name])
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
