"""Information: between nothing and one bit, more for clearer looks, and as an integral has it."""

import math

import numpy as np
import pytest

from loop.bisect.information import of_counts, of_normal


def entropy(probability: float) -> float:
    """Bits in a question that has the answer yes with this probability."""
    return math.fsum(-p * math.log2(p) for p in (probability, 1 - probability) if p > 0)


def integrated(probability: float, apart: float) -> float:
    """H(side) - H(side | y) on a fine grid."""
    y = np.linspace(-12, 12 + apart, 20001)
    low, high = (np.exp(-((y - at) ** 2) / 2) / math.sqrt(2 * math.pi) for at in (0.0, apart))
    both = probability * high + (1 - probability) * low
    bits = probability * high * np.log2(high / both) + (1 - probability) * low * np.log2(low / both)
    return float(bits.sum() * (y[1] - y[0]))


@pytest.mark.parametrize("probability", [0.5, 0.1, 0.01, 0.9])
@pytest.mark.parametrize("apart", [0.1, 0.5, 1.0, 2.0, 5.0])
def test_a_normal_look_tells_what_an_integral_says(probability: float, apart: float) -> None:
    """To a thousandth of a bit."""
    assert integrated(probability, apart) == pytest.approx(of_normal(probability, apart), abs=1e-3)


def test_no_look_tells_more_than_there_is_to_know() -> None:
    """All of it when levels are far apart, nothing when they are the same or the side is known."""
    assert entropy(0.3) == pytest.approx(of_normal(0.3, 1e6), abs=1e-3)
    assert [0.0, 0.0] == [of_normal(0.5, 0.0), of_normal(0.0, 9.0)]
    assert [1.0, 0.0] == [entropy(0.5), entropy(1.0)]


def test_clearer_looks_tell_more() -> None:
    """At every probability."""
    for probability in (0.5, 0.2, 0.01):
        bits = [of_normal(probability, apart / 4) for apart in range(1, 40)]
        assert sorted(bits) == bits


def test_counts_tell_of_their_side() -> None:
    """Certain ones everything, the same on both sides nothing, and in between as the definition says."""
    assert 1.0 == pytest.approx(of_counts(0.5, (0.0, 1.0), (1.0, 0.0)))
    assert 0.0 == pytest.approx(of_counts(0.3, (0.4, 0.6), (0.4, 0.6)))
    left = 0.25 * 0.8 + 0.75 * 0.1
    expected = entropy(0.25) - left * entropy(0.25 * 0.8 / left) - (1 - left) * entropy(0.25 * 0.2 / (1 - left))
    assert expected == pytest.approx(of_counts(0.25, (0.8, 0.2), (0.1, 0.9)))
