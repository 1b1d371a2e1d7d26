"""What a look at a commit is expected to tell about where the step is, in bits. Pure.

An observation depends on the step only through the side its commit is on. So what it tells is the mutual
information of that side and the outcome: H(side) less the mean H(side | outcome).
"""

import functools
import math
from collections.abc import Sequence

NODES = tuple(step / 2 for step in range(-8, 9))
"""Where the normal is evaluated: the trapezoidal rule, exact to 1e-4 bits for such smooth functions."""
WEIGHTS = tuple(math.exp(-(node**2) / 2) / 2 / math.sqrt(2 * math.pi) for node in NODES)
APART_MOST = 40.0
"""Levels further apart than this tell their side for certain."""


def of_normal(probability: float, apart: float) -> float:
    """Bits that one normal observation tells of its side, whose levels are `apart` standard deviations.

    `probability`: that it is the upper side. Both are rounded to three digits, so that most values are looked up.
    """
    rarer = min(probability, 1 - probability)
    if rarer < 1e-9:
        return 0.0
    return _of_normal(float(f"{rarer:.2e}"), float(f"{min(apart, APART_MOST):.2e}"))


@functools.lru_cache(65536)
def _of_normal(probability: float, apart: float) -> float:
    upper = probability * _mean_log(probability, apart)
    return max(upper + (1 - probability) * _mean_log(1 - probability, apart), 0.0)


def _mean_log(probability: float, apart: float) -> float:
    """Mean log2(density on the own side / density on both), over observations on a side of this probability."""
    total = 0.0
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        other = math.exp(-apart * node - apart * apart / 2)
        total -= weight * math.log2(probability + (1 - probability) * other)
    return total


def of_counts(probability: float, upper: Sequence[float], lower: Sequence[float]) -> float:
    """Bits that a count tells of its side; `upper` and `lower`: the probabilities of each count on either."""
    bits = 0.0
    for high, low in zip(upper, lower, strict=True):
        both = probability * high + (1 - probability) * low
        bits += probability * _bits(high, both) + (1 - probability) * _bits(low, both)
    return max(bits, 0.0)


def _bits(own: float, both: float) -> float:
    return own * math.log2(own / both) if own > 0 else 0.0
