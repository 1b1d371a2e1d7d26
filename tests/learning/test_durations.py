"""Times: the author's word at first, then the runs, each by its weight."""

import math

import pytest

from loop.learning.prediction import expected


def test_weights_are_runs_in_part() -> None:
    """Two runs of half weight say what one says, of their middle."""
    halves = expected(60.0, [(8.0, 0.5), (12.5, 0.5)])
    whole = expected(60.0, [(10.0, 1.0)])
    assert pytest.approx(whole.centre) == halves.centre
    assert halves.scale > whole.scale


def test_a_time_of_nothing_is_no_error() -> None:
    """A step that took no measurable time."""
    assert expected(1.0, [(0.0, 1.0)]).seconds < 1.0


def test_a_wider_interval_has_the_same_middle() -> None:
    """The factor is on the logarithm."""
    found = expected(60.0, [(10.0, 5.0)])
    (low, high), (lower, higher) = found.interval(), found.interval(widened=2.0)
    assert pytest.approx(low * high) == lower * higher
    assert pytest.approx(2 * math.log(high / low)) == math.log(higher / lower)
