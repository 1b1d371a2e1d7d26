"""Mistakes with wrong results: controls of the gate."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WrongResult:
    """One mistake, as a worker makes it in a variant."""

    make: str
    """Its name in `loop.mistakes`."""
    control: str
    """What the gate's control is called."""
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


def wrong_results(inputs: Mapping[str, str], output: str) -> Iterator[WrongResult]:
    """All that tensors of these dimensions allow."""
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
