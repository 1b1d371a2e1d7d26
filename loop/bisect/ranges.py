"""Which commits to name where no single one stands out: the shortest run that holds the step. Pure."""

from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import accumulate

HELD = (0.94, 0.88, 0.8)
"""Posterior of a range; of one that would have many commits; of one that would have too many.

A run of whole commits exceeds what is asked for: in simulated histories 98 % of them hold the culprit.
"""
WIDE, WIDEST = 5, 16
"""Commits that are many; those beyond which, or beyond a quarter of all, a range is no answer."""


def run_of(low: int, high: int, mass: Sequence[float], broken: Container[int], alone: float) -> tuple[int, int]:
    """A run of positions after `low` up to `high`: the testable one before its first, and the one at its last.

    `mass`: probability of a step at each position. `alone`: what a single one has to reach. As sure as is needed;
    where that makes the run wide, a little less.
    """
    found = _shortest(low, high, mass, HELD[0])
    if found[1] - found[0] == 1:
        found = _shortest(low, high, mass, alone)
    for held, width in zip(HELD[1:], (WIDE, widest(low, high)), strict=True):
        if found[1] - found[0] > width:
            found = _shortest(low, high, mass, held)
    testable = [position for position in range(low, high + 1) if position not in broken]
    return max(one for one in testable if one <= found[0]), min(one for one in testable if one >= found[1])


def widest(low: int, high: int) -> int:
    """Commits beyond which a range is no answer."""
    return min(max((high - low) // 4, WIDE), WIDEST)


def _shortest(low: int, high: int, mass: Sequence[float], held: float) -> tuple[int, int]:
    """The shortest run that has so much of the posterior, of those as short the likeliest; from its parent on."""
    upper = [0.0, *accumulate(mass)]
    runs = []
    for last in range(low + 1, high + 1):
        parent = bisect_right(upper, upper[last + 1] - held, low + 1, last + 1) - 2
        if parent >= low:
            runs.append((last - parent, upper[parent + 1] - upper[last + 1], parent, last))
    return min(runs)[2:] if runs else (low, high)
