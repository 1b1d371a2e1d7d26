"""A ratio is printed with digits that say something, however far from 1 it lies."""

import pytest

from loop.base.stats import times


@pytest.mark.parametrize(
    ("ratio", "decimals", "text"),
    [
        (1.6249, 2, "1.62x"),
        (1.6249, 3, "1.625x"),
        (0.00333, 2, "0.0033x"),
        (0.0999, 3, "0.0999x"),
        (1234.5, 2, "1,234.50x"),
    ],
)
def test_a_small_ratio_keeps_its_first_digits(ratio: float, decimals: int, text: str) -> None:
    """And others their decimals."""
    assert text == times(ratio, decimals)
