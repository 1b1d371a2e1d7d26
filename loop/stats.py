"""Pure statistics on plain numbers."""

import functools
import math
from collections.abc import Sequence
from statistics import fmean, stdev

CONFIDENCE = 0.99
"""Of every interval in a report."""


def median(values: Sequence[float]) -> float:
    """Middle value; the mean of the two middle ones of an even number. Raises ValueError on none."""
    if not values:
        raise ValueError("median of nothing")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm of positive values."""
    return math.exp(fmean(math.log(value) for value in values))


def ratio_interval(logs: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Ratio and its confidence interval from the log ratios of independent rounds (Student's t).

    Needs two rounds or more. Returns (ratio, low, high).
    """
    mean = fmean(logs)
    half = t_quantile(0.5 + confidence / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(max(mean - half, -700.0)), math.exp(min(mean + half, 700.0))


def t_cdf(t: float, freedom: float) -> float:
    """Probability that Student's t with `freedom` degrees is below `t` (Abramowitz and Stegun 26.7.1)."""
    tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


@functools.cache
def t_quantile(probability: float, freedom: float) -> float:
    """The t that Student's t with `freedom` degrees stays below with `probability`, by bisection."""
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return high


@functools.cache
def beta_quantile(probability: float, a: float, b: float) -> float:
    """The share that Beta(a, b) stays below with `probability`, to 1e-6, by bisection."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if incomplete_beta(a, b, middle) < probability else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x) - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b)
    return math.exp(front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) evaluated from far enough back that its double is exact for our a and b."""
    value = 1.0
    for step in range(200, 0, -1):
        m, odd = divmod(step, 2)
        if odd:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + d / value
    return value
