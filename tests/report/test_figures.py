"""Pieces of figures: places, marks, bounds."""

import pytest

from loop.report.figures.ratios import draw_ratios
from loop.report.markdown import plain_text
from tests.makers import make_no_speed, make_speed


@pytest.mark.parametrize(
    ("expected", "raw"),
    [
        ("red", "\x1b[31mred\x1b[0m"),
        ("title", "\x1b]0;evil\x07title"),
        ("a\nb", "a\r\nb"),
        ("a b", "a\x00b"),
        ("a  b", "a\u202e\u2066b"),
        ("a b", "a\ud800b"),
        (" [31", "\x1b[31"),
    ],
)
def test_what_a_terminal_would_act_on_is_gone(expected: str, raw: str) -> None:
    """Colours, titles, directions of writing, halves of letters."""
    assert expected == plain_text(raw)


def test_a_variant_that_is_wrong_anywhere_is_not_on_the_figure() -> None:
    """It has no speed."""
    assert draw_ratios([make_speed("w0"), make_no_speed("w1")], "library") is None
