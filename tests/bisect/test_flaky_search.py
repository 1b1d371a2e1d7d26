"""The search for a commit from which a test fails: always, or at times."""

import math

import pytest

from loop.bisect.flaky_search import Correctness
from loop.bisect.journal import read
from loop.bisect.model import Commit, Problem
from tests.bisect.simulated import correctness, named


@pytest.mark.parametrize("last", [1, 2, 3, 7, 8, 64, 100, 1024])
def test_a_test_that_always_fails_is_plain_bisection(last: int) -> None:
    """A spread of culprits, in log2 N builds and the two ends; suspect and parent are looked at once more."""
    for culprit in sorted({1, 2, last // 3 + 1, last // 2 + 1, last - 1, last} & set(range(1, last + 1))):
        found = correctness(last, culprit)
        assert ("culprit", (culprit,)) == named(found)
        assert math.ceil(math.log2(last)) + 2 >= found.builds
        assert found.builds + 2 >= len(found.journal)
        assert 0 == found.confirm


@pytest.mark.parametrize("rate", [0.9, 0.5, 0.2])
def test_a_flaky_test_names_its_commit(rate: float) -> None:
    """After a fresh confirmation, in about as many builds, by more runs of each."""
    found = [correctness(64, culprit, (0.0, rate), f"{rate}") for culprit in (1, 17, 32, 50, 64)]
    assert [("culprit", (culprit,)) for culprit in (1, 17, 32, 50, 64)] == [named(one) for one in found]
    assert 11 >= max(one.builds for one in found)


def test_a_test_that_was_flaky_before_is_searched_all_the_same() -> None:
    """The good end fails at times as well, only more seldom."""
    assert ("culprit", (23,)) == named(correctness(64, 23, (0.05, 0.7)))


@pytest.mark.parametrize(
    ("rates", "swapped", "said"),
    [
        ((0.0, 0.0), False, "the bad end passed"),
        ((1.0, 1.0), False, "the good end fails as well"),
        ((1.0, 0.0), True, "swapped"),
        ((0.9, 0.1), True, "swapped"),
    ],
)
def test_runs_that_do_not_show_it_today(rates: tuple[float, float], swapped: bool, said: str) -> None:
    """Nothing is searched where the ends are alike, or the wrong way round."""
    found = correctness(16, 9, rates)
    assert ("no_regression", ()) == named(found)
    assert swapped == found.answer.swapped
    assert said in found.answer.why
    assert 2 == found.builds


def test_a_failure_is_told_without_per_cent() -> None:
    """A rise of a failure rate is no share of anything."""
    problem = Problem((Commit(), Commit()), "correctness")
    metric = Correctness(problem, read(problem, []))
    assert "it fails where its parent passes" == metric.said(1.0)
    assert "%" not in metric.said(0.3)
