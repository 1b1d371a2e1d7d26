"""What is said of a condition that does not hold: which part, what there is, and how far off."""

import pytest

from loop.base.expressions import Expression, misses

VALUES = {"cpu": {"ratio": 1.31}, "wrong": ["cpu", "eager"], "minutes": 3.0, "none_yet": None, "small": 0.0}


def said(text: str) -> list[str]:
    """What the parts of a condition that do not hold say."""
    return [one.words for one in misses(Expression.parse(text), VALUES)]


def test_what_holds_says_nothing() -> None:
    """A condition is met when none of its parts is missed."""
    assert [] == said("cpu.ratio > 1 and minutes <= 3 and 'cpu' in wrong")


def test_an_amount_is_told_with_the_share_by_which_it_is_off() -> None:
    """Short of it or beyond it: the share is of what is asked."""
    assert ["cpu.ratio is 1.31, 13 % off `cpu.ratio >= 1.5`"] == said("cpu.ratio >= 1.5")
    assert ["minutes is 3, 50 % off `minutes <= 2`"] == said("minutes <= 2")


def test_every_missed_part_is_told_by_itself() -> None:
    """What `and` joins is several things asked for."""
    assert ["cpu.ratio is 1.31, 34 % off `cpu.ratio >= 2`", "wrong is cpu, eager, asked: `wrong == []`"] == said(
        "cpu.ratio >= 2 and wrong == [] and minutes < 4"
    )


@pytest.mark.parametrize("text", ["none_yet >= 1", "none_yet > 1 or cpu.ratio > 2"])
def test_what_is_not_known_is_missed(text: str) -> None:
    """A value that nobody found is neither large nor small."""
    assert said(text)[0].startswith(("none_yet is not known", "cpu.ratio is 1.31; none_yet is not known"))


def test_nothing_is_off_by_a_share_of_zero() -> None:
    """A share of zero says nothing, and is no error."""
    assert ["small is 0, asked: `small > 0`"] == said("small > 0")


def test_the_share_is_of_what_is_asked_on_whichever_side_it_stands() -> None:
    """Of a chain, the two neighbours that do not hold."""
    assert ["cpu.ratio is 1.31, 13 % off `1.5 <= cpu.ratio`"] == said("1.5 <= cpu.ratio")
    assert ["cpu.ratio is 1.31, 31 % off `0.5 <= cpu.ratio <= 1.0`"] == said("0.5 <= cpu.ratio <= 1.0")


def test_more_than_all_of_it_is_told_in_whole_per_cent() -> None:
    """No exponents."""
    assert ["minutes is 3, 200 % off `minutes <= 1`"] == said("minutes <= 1")
    assert ["minutes is 3, 2.6 % off `minutes >= 3.08`"] == said("minutes >= 3.08")
