"""Sizes of a first target: what a function is tried with, what is timed, and what a kernel may get wrong."""

import re
from collections.abc import Iterator, Mapping, Sequence

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
DIFFERENT = 4
"""So many of them differ from dimension to dimension; with those that do not, anything fits."""
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
        largest = dict(self.fixed)
        for name in self.free:
            rank, place = max((len(shape), -shape.index(name)) for shape in self.shapes if name in shape)
            sizes = WHOLE.get(rank, (32, 32, 8, 4, 2))
            size = 3 if name in self.filter else sizes[min(rank - 1 + place, len(sizes) - 1)]
            largest[name] = max(size // divisor, min(size, 8))
        return {name: largest[name] for name in self.names}

    def varied(self, *, vary: bool) -> list[str]:
        """Dimensions that edges change: a filter's stay, and numbers that are given, unless `vary`."""
        large = [name for name, size in self.fixed.items() if size > LITTLE] if vary else []
        return [name for name in self.names if name in large or (name in self.free and name not in self.filter)]


def uneven(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """Odd sizes of about a quarter, which no tile divides."""
    return {**sizes, **{name: sizes[name] // 4 + (1 if sizes[name] // 4 % 2 == 0 else 2) for name in names}}


def edges(base: Mapping[str, int], names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes at which a kernel may go wrong, all of these dimensions at once."""
    for values in EDGES if names else ():
        yield {**base, **{name: values[n % len(values)] for n, name in enumerate(names)}}
