"""Times: the author's word at first, then the runs, each by its weight."""

import math
from statistics import NormalDist

import pytest

from loop.learning.durations import BIAS, expected, slowed


def test_without_runs_the_estimate_is_all_there_is() -> None:
    """Its interval is as wide as authors are wrong: a factor of 8 here."""
    found = expected(60.0, [])
    low, high = found.interval()
    assert pytest.approx(60.0) == found.seconds
    assert pytest.approx(60.0**2) == low * high
    assert math.exp(BIAS * NormalDist().inv_cdf(0.9)) < high / 60.0 < 12


def test_one_run_moves_most_of_the_way() -> None:
    """An estimate of a minute and one run of ten seconds: about ten seconds, and nearer than a factor of 2."""
    found = expected(60.0, [(10.0, 1.0)])
    low, high = found.interval()
    assert 10.0 < found.seconds < 12.0
    assert high / low < 4


def test_many_runs_say_all() -> None:
    """Median and interval are those of the runs."""
    logs = [NormalDist(3.0, 0.1).inv_cdf((k + 0.5) / 200) for k in range(200)]
    found = expected(1000.0, ((math.exp(log), 1.0) for log in logs))
    low, high = found.interval()
    assert pytest.approx(3.0, abs=0.01) == found.centre
    assert pytest.approx(0.1 * 1.2816, rel=0.05) == math.log(high / low) / 2


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


def test_a_load_slows_a_run() -> None:
    """By a power of the programs that share a core; nothing where nobody told."""
    assert pytest.approx(2**0.9) == slowed(1.0)
    assert 1.0 == slowed(None) == slowed(0.0)
