"""Statistics against published tables and known values; ratios as they are printed."""

import math
import random

import pytest

from loop.base.stats import ratio_interval, t_quantile, winsorise

TABLE = {
    (0.975, 1): 12.706,
    (0.995, 1): 63.657,
    (0.995, 2): 9.925,
    (0.995, 4): 4.604,
    (0.975, 5): 2.571,
    (0.995, 9): 3.250,
    (0.975, 30): 2.042,
    (0.995, 120): 2.617,
}
"""Upper quantiles of Student's t by probability and degrees of freedom, from the usual printed table."""


@pytest.mark.parametrize(("probability", "freedom"), TABLE)
def test_quantiles_are_those_of_the_printed_table(probability: float, freedom: int) -> None:
    """They agree to the three decimals that tables give."""
    assert TABLE[probability, freedom] == pytest.approx(t_quantile(probability, freedom), abs=5.1e-4)


def test_an_interval_agrees_with_one_computed_by_hand() -> None:
    """Log ratios 0.1 and 0.3: mean 0.2, standard error 0.1, t of one degree at 99 % 63.657."""
    ratio, low, high = ratio_interval([0.1, 0.3])
    assert math.exp(0.2) == pytest.approx(ratio)
    assert (math.exp(0.2 - 6.3657), math.exp(0.2 + 6.3657)) == pytest.approx((low, high), rel=1e-4)


def test_clipping_pulls_outliers_to_where_the_others_end() -> None:
    """Three robust deviations from the median, counted, the rest untouched and in order."""
    winsorised = winsorise([1.0, 2.0, 900.0, 3.0, 4.0, 5.0])
    assert 1 == winsorised.clipped_count
    assert (1.0, 2.0, 3.0, 4.0, 5.0) == (*winsorised.values[:2], *winsorised.values[3:])
    assert pytest.approx(3.5 + 3 * 1.4826 * 1.5) == winsorised.values[2]
    assert winsorise([1.0, 2.0, 1e9, 3.0, 4.0, 5.0]).values == winsorised.values


@pytest.mark.parametrize("disturbed", [0.0, 0.2])
def test_intervals_hold_as_often_as_they_say(disturbed: float) -> None:
    """99 % of them, normal rounds or with one in five disturbed on either side: 2 % of 1,000 miss at most."""
    count, rng, missed = 8, random.Random(8), 0
    for _ in range(1000):
        logs = [rng.gauss(0, 1) + (rng.random() < disturbed) * rng.choice([-9, 9]) for _ in range(count)]
        _, low, high = ratio_interval(logs)
        missed += not low <= 1 <= high
    assert missed <= 20
