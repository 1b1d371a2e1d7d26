"""How many elements may be off by how much: what rounding does to a few is not forgiven in all of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

FIRST, LAST = -500, 500
"""Powers of two that errors are held against."""
TIMES, FEW = 8, 8
"""An output may have so many times as many errors of a size as rounding explains, and a few more."""


@dataclass(frozen=True)
class Tail:
    """Of errors beyond what is stated, how many reach each power of two."""

    reach: Tensor
    """[LAST - FIRST] counts, falling."""

    def __add__(self, other: "Tail") -> "Tail":
        return Tail(self.reach + other.reach)

    def crowded_from(self, found: "Tail") -> float | None:
        """The power of two that most of the errors `found` reach for what may; None where none has too many."""
        crowds = found.reach / (TIMES * self.reach + FEW)
        most = crowds.max()
        (places,) = (crowds == most).nonzero(as_tuple=True)
        return 2.0 ** (FIRST + int(places[-1])) if most > 1 else None


def tail_of(errors: Tensor) -> Tail:
    """The tail of errors, which are positive and finite: [N]."""
    _, exponents = torch.frexp(errors)  # m 2^e with 0.5 <= m < 1: it reaches 2^(e - 1).
    places = (exponents.long() - 1).clamp(FIRST, LAST - 1) - FIRST
    counts = torch.bincount(places, minlength=LAST - FIRST).cpu()
    return Tail(counts.flip(0).cumsum(0).flip(0))
