"""Sizes of a first target: which to try, to time and to check."""

import itertools
from collections.abc import Mapping, Sequence

LARGEST_UNVARIED = 8  # A size given by number up to this one is not varied: a filter's 3, 4 heads.
TIMED_SIZES = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""Rank of a tensor to its timed sizes, from the last dimension to the first."""
MORE_DIMS = (32, 32, 8, 4, 2)  # The same for tensors of higher rank.
DIFFERENT_SIZES = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
)
"""Sizes of the dimensions, to try row by row. With equal ones, wrong calls run, too."""


class Sizes:
    """The dimensions of all inputs, and the sizes to try, time and check."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed_sizes: Mapping[str, int]) -> None:
        """`shapes`: the dimensions of each input, by name; `fixed_sizes`: those that the user gave by number."""
        self.shapes, self.fixed_sizes = shapes, fixed_sizes
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free_dims = [name for name in self.names if name not in fixed_sizes]

    def candidates(self) -> list[dict[str, int]]:
        """Sizes to try, one after the other, until a function runs. Those given by number stay."""
        candidates: list[dict[str, int]] = []
        for row in DIFFERENT_SIZES:
            sizes = dict(zip(self.free_dims, itertools.cycle(row), strict=False))
            candidate = {**sizes, **self.fixed_sizes}
            candidates += [] if candidate in candidates else [candidate]
        return candidates

    def timed(self, divisor: int) -> dict[str, int]:
        """The timed sizes. Those that the user did not fix are divided by `divisor`, to 8 at least."""
        timed_sizes = {name: self.fixed_sizes.get(name, 0) for name in self.names}
        for name in self.free_dims:
            owners = [(len(shape), len(shape) - 1 - shape.index(name)) for shape in self.shapes if name in shape]
            rank, axis_from_last = max(owners)  # The tensor of highest rank decides.
            sizes = TIMED_SIZES.get(rank, MORE_DIMS)
            size = sizes[min(axis_from_last, len(sizes) - 1)]
            timed_sizes[name] = max(size // divisor, min(size, 8))
        return timed_sizes

    def varied(self, *, vary_fixed: bool) -> list[str]:
        """Dimensions that checks may vary: free ones; `vary_fixed`: also large fixed ones."""
        varied = {*self.free_dims}
        if vary_fixed:
            varied |= {name for name, size in self.fixed_sizes.items() if size > LARGEST_UNVARIED}
        return [name for name in self.names if name in varied]
