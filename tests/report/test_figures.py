"""Pieces of figures: places, marks, bounds."""

import re

import pytest

from loop.report.figures.ratios import MOST_WORKLOADS, ratios
from loop.report.figures.roofline import roofline
from loop.report.markdown import plain
from loop.session.course import log
from tests.makers import make_finished, make_no_speed, make_speed
from tests.session.golden_steps import profile


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
    assert expected == plain(raw)


def test_a_log_shows_what_a_terminal_would_show_in_the_end() -> None:
    """The last state of a progress bar, no colours, and the traceback of a step that broke."""
    step = make_finished(status="failed", output={"output": "10 %\r100 %\r\n\x1b[31mfailed\x1b[0m\n"})
    assert ("100 %", "failed") == log(step)
    assert () == log(make_finished(status="failed", message="short"))
    assert ("x" * 601,) == log(make_finished(status="failed", message="x" * 601))


def test_many_workloads_do_not_make_a_figure_longer_than_a_page() -> None:
    """The lowest ratios are drawn, and what is missing is said."""
    made = ratios([make_speed(f"w{place}", ratio=1 + place / 100) for place in range(200)], "library")
    assert made is not None
    assert "and 160 workloads with higher ratios" in made.body
    assert MOST_WORKLOADS == len(re.findall(r">w\d+<", made.body))


def test_a_roofline_says_how_many_variants_it_leaves_out() -> None:
    """In the figure and in its words."""
    made = roofline([profile(f"v{place}") for place in range(11)], "library")
    assert made is not None
    assert "hollow: library there; and 3 more variants" in made.body
    assert made.description.endswith("; and 3 more variants")
    assert "more variant" not in roofline([profile()], "library").body  # type: ignore[union-attr]


def test_a_variant_that_is_wrong_anywhere_is_not_on_the_figure() -> None:
    """It has no speed."""
    assert ratios([make_speed("w0"), make_no_speed("w1")], "library") is None


def test_intervals_that_say_nothing_do_not_stretch_the_axis() -> None:
    """They end in an arrow at its end."""
    made = ratios([make_speed("w0", ratio=1.0, interval=(1e-6, 1e6)), make_speed("w1", ratio=1.2)], "library")
    assert made is not None
    assert "0.5x" in made.body
    assert "1e+06x" not in made.body
