"""What is said of a condition that does not hold: which part, what there is, and how far off."""

import pytest

from loop.base.expressions import Expression, misses

VALUES = {"cpu": {"ratio": 1.31}, "wrong": ["cpu", "eager"], "minutes": 3.0, "none_yet": None, "small": 0.0}


def said(text: str) -> list[str]:
    """What the parts of a condition that do not hold say."""
    return [one.words for one in misses(Expression.parse(text), VALUES)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu.ratio > 1 and minutes <= 3 and 'cpu' in wrong", []),
        ("cpu.ratio >= 1.5", ["cpu.ratio is 1.31, 13 % off `cpu.ratio >= 1.5`"]),
        ("minutes <= 2", ["minutes is 3, 50 % off `minutes <= 2`"]),
        ("minutes <= 1", ["minutes is 3, 200 % off `minutes <= 1`"]),
        ("minutes >= 3.08", ["minutes is 3, 2.6 % off `minutes >= 3.08`"]),
        (
            "cpu.ratio >= 2 and wrong == [] and minutes < 4",
            ["cpu.ratio is 1.31, 34 % off `cpu.ratio >= 2`", "wrong is cpu, eager, asked: `wrong == []`"],
        ),
        ("small > 0", ["small is 0, asked: `small > 0`"]),
        ("1.5 <= cpu.ratio", ["cpu.ratio is 1.31, 13 % off `1.5 <= cpu.ratio`"]),
        ("0.5 <= cpu.ratio <= 1.0", ["cpu.ratio is 1.31, 31 % off `0.5 <= cpu.ratio <= 1.0`"]),
    ],
)
def test_what_does_not_hold_is_told_by_itself(text: str, expected: list[str]) -> None:
    """Each part of it, off by a share of what is asked for, on either side; of zero there is no share."""
    assert expected == said(text)


@pytest.mark.parametrize("text", ["none_yet >= 1", "none_yet > 1 or cpu.ratio > 2"])
def test_what_is_not_known_is_missed(text: str) -> None:
    """A value that nobody found is neither large nor small."""
    assert said(text)[0].startswith(("none_yet is not known", "cpu.ratio is 1.31; none_yet is not known"))
