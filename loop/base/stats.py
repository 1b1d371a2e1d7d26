"""Statistics on plain numbers, without side effects."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

CONFIDENCE = 0.99  # Confidence of every interval in a report.
CLIP_DEVIATIONS = 3.0  # From the median, where values are clipped: 3 in 1,000 of normal ones.
NEVER_OUTLIER = 0.002  # Log ratios so near the median are no outliers: a coarse clock ties many.
MIN_VALUES = 5  # Minimum number of values for outlier detection.
MIN_SHARE_WITHIN = 0.7  # Least share of values in the clip; else no value is an outlier.


def sum_if_all_known(summands: Sequence[float | None]) -> float | None:
    """The sum; None if any summand is None."""
    known_summands = [summand for summand in summands if summand is not None]
    return sum(known_summands) if len(known_summands) == len(summands) else None


@dataclass(frozen=True)
class Clipped:
    """Values with outliers clipped, so that no single outlier moves their mean far."""

    values: tuple[float, ...]  # In input order, within `CLIP_DEVIATIONS` of the median.
    clipped_count: int

    @property
    def mean(self) -> float:
        """The mean of the clipped values."""
        return fmean(self.values)


def winsorise(values: Sequence[float]) -> Clipped:
    """Clip (winsorise) log ratios that lie more than `CLIP_DEVIATIONS` deviations from their
    median. A deviation is 1.4826 times the median absolute deviation, as for normal values.

    All values stay if there are fewer than `MIN_VALUES`, or if less than `MIN_SHARE_WITHIN` of them
    lie within: then the median may be wrong. Tukey and McLaughlin 1963; Hampel 1974."""
    unclipped = Clipped(tuple(values), 0)
    if len(values) < MIN_VALUES:
        return unclipped
    centre = median(values)
    deviation = 1.4826 * median([abs(value - centre) for value in values])
    max_distance = max(CLIP_DEVIATIONS * deviation, NEVER_OUTLIER)
    clipped_count = sum(abs(value - centre) > max_distance for value in values)
    if len(values) - clipped_count < MIN_SHARE_WITHIN * len(values):
        return unclipped
    low, high = centre - max_distance, centre + max_distance
    return Clipped(tuple(min(max(value, low), high) for value in values), clipped_count)


def ratio_interval(
    log_ratios: Sequence[float], confidence: float = CONFIDENCE, shared_variance: float = 0.0
) -> tuple[float, float, float]:
    """Ratio and confidence interval, as (ratio, low, high), from log ratios of two or more rounds.

    Student's t on the clipped values. Clipped outliers count for the mean, not for the certainty:
    with h of n values unclipped it has h - 1 degrees of freedom and the standard error
    s n / (h sqrt(n)) (Yuen 1974, "The two-sample trimmed t"). Without outliers it is the usual one.
    `shared_variance`: variance of the mean that all rounds share; it widens the interval."""
    sample = winsorise(log_ratios)
    count, unclipped = len(log_ratios), len(log_ratios) - sample.clipped_count
    standard_error = stdev(sample.values) * math.sqrt(count) / unclipped
    total_error = math.hypot(standard_error, math.sqrt(shared_variance))
    half_width = t_quantile(0.5 + confidence / 2, max(unclipped - 1, 1)) * total_error
    mean, largest = sample.mean, 700.0  # exp(700) is near the largest double.
    low, high = max(mean - half_width, -largest), min(mean + half_width, largest)
    return math.exp(mean), math.exp(low), math.exp(high)


def t_cdf(t: float, freedom: float) -> float:
    """Probability that Student's t is below `t`; `freedom`: degrees (Abramowitz, Stegun 26.7.1)."""
    tail_probability = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail_probability if t > 0 else tail_probability


@functools.cache
def t_quantile(probability: float, freedom: float) -> float:
    """The value below which Student's t lies with `probability`, by its degrees of `freedom`."""
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by the first 200 terms of its continued
    fraction (DLMF 8.17.22): exact to a double for Student's t."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # There only the complement's fraction converges quickly.
        return 1 - incomplete_beta(b, a, 1 - x)
    fraction = 1.0
    for step in range(200, 0, -1):
        m, odd = divmod(step, 2)
        if odd:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + d / fraction
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / (a * fraction)
