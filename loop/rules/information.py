"""What a look at a commit is expected to tell about where the step is, in bits. Pure.

An observation depends on the step only through the side its commit is on. So what it tells is the mutual information
of that side and the outcome: H(side) less the mean H(side | outcome).
"""

import functools
import math
from collections.abc import Sequence

NODES = tuple(step / 2 for step in range(-8, 9))
"""Where the normal is evaluated: the trapezoidal rule, exact to 1e-5 for such smooth functions."""
DENSITY = tuple(math.exp(-(node**2) / 2) / 2 / math.sqrt(2 * math.pi) for node in NODES)


def entropy(probability: float) -> float:
    """Bits in a question that has the answer yes with this probability."""
    return -sum(p * math.log2(p) for p in (probability, 1 - probability) if p > 0)


def of_normal(probability: float, apart: float) -> float:
    """Bits that one normal observation tells of its side, whose levels are `apart` standard deviations.

    `probability`: that it is the upper side. Rounded to three digits, so that it is looked up more often than it
    is worked out.
    """
    if not 1e-9 < probability < 1 - 1e-9:
        return 0.0
    rarer = min(probability, 1 - probability)
    return _of_normal(float(f"{rarer:.2e}"), float(f"{min(apart, 40.0):.2e}"))


@functools.lru_cache(65536)
def _of_normal(probability: float, apart: float) -> float:
    upper = probability * _surprise(1 - probability, probability, apart)
    return max(upper + (1 - probability) * _surprise(probability, 1 - probability, apart), 0.0)


def _surprise(other: float, own: float, apart: float) -> float:
    """Mean log2(density on the own side / density on both), for observations on the own side."""
    total = 0.0
    for node, weight in zip(NODES, DENSITY, strict=True):
        against = math.exp(-apart * node - apart * apart / 2)
        total -= weight * math.log2(own + other * against)
    return total


def of_counts(probability: float, upper: Sequence[float], lower: Sequence[float]) -> float:
    """Bits that a count tells of its side: the probability of each count on the upper side, and on the lower."""
    both = [probability * high + (1 - probability) * low for high, low in zip(upper, lower, strict=True)]
    told = sum(p * _bits(high, mixed) for p, mixed, high in zip((probability,) * len(both), both, upper, strict=True))
    return told + sum((1 - probability) * _bits(low, mixed) for mixed, low in zip(both, lower, strict=True))


def _bits(own: float, mixed: float) -> float:
    return own * math.log2(own / mixed) if own > 0 else 0.0
