"""Ratios and other numbers as people read them."""

import math


def significant(value: float, digits: int = 3) -> str:
    """A number with that many significant digits and no exponent, as in 0.0123, 1.23, 123 or 1,230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{decimals}f}"


def plain_ratio(value: float, decimals: int = 2) -> str:
    """`1.62`, or `1.620` with three decimals; a small ratio keeps its first digits, as in `0.0033`."""
    return f"{value:,.{decimals}f}" if value >= 0.1 else significant(value, decimals)


def times(value: float, decimals: int = 2) -> str:
    """`1.62x`, `0.0033x`."""
    return f"{plain_ratio(value, decimals)}x"
