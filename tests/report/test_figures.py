"""Pieces of figures: places, marks, bounds."""

import re

import pytest

from loop.report.figures.ratios import MOST_WORKLOADS, ratios
from loop.report.figures.roofline import roofline
from loop.report.figures.svg import WIDTH, Scale, hue, logarithmic, mark, number, plain_number, text, with_prefix
from loop.report.plain import plain
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


def test_marks_of_an_axis_are_round_and_inside() -> None:
    """Whatever the range, between two and as many as were asked for."""
    for low, high in ((0.9, 1.1), (0.2, 5.0), (0.001, 1000.0), (1e9, 1e15), (1.0, 1.02)):
        marks = Scale(low, high, 0, 100).marks(7)
        assert 2 <= len(marks) <= 7
        assert low * 0.998 <= marks[0] < marks[-1] <= high * 1.002


def test_values_are_drawn_between_the_ends_of_their_axis() -> None:
    """One beyond is held at the end; a narrow range is widened."""
    scale = Scale(1.0, 100.0, 0.0, 200.0)
    assert [0.0, 100.0, 200.0] == [scale(value) for value in (0.5, 10.0, 1e6)]
    narrow = logarithmic([1.0], 0, 100)
    assert narrow.high / narrow.low >= 2
    assert ["0.25", "1", "1e-5", "2,000", "1e+06"] == [plain_number(v) for v in (0.25, 1.0, 1e-5, 2000.0, 1e6)]
    assert ["100 G", "2.5 T", "0"] == [with_prefix(value) for value in (1e11, 2.5e12, 0.0)]


def test_coordinates_are_the_same_everywhere() -> None:
    """One decimal, no minus before zero."""
    assert ["1", "1.3", "0", "-2.5"] == [number(value) for value in (1.0, 1.26, -0.01, -2.5)]


def test_text_of_a_figure_is_escaped_and_cut_to_its_room() -> None:
    """The whole stands in a title."""
    made = text(0, 0, f"<b>{'x' * 50}", room=66)
    assert "<b>" not in made
    assert "&lt;b&gt;xx…" in made or "&lt;b&gt;x…" in made
    assert made.count("x") > 50


def test_many_workloads_do_not_make_a_figure_longer_than_a_page() -> None:
    """The lowest ratios are drawn, and what is missing is said."""
    made = ratios([make_speed(f"w{place}", ratio=1 + place / 100) for place in range(200)], "library")
    assert made is not None
    assert "and 160 workloads with higher ratios" in made.body
    assert MOST_WORKLOADS == len(re.findall(r">w\d+<", made.body))


def test_no_two_variants_look_alike() -> None:
    """Shape and colour together tell sixteen apart, on paper too where the first four differ in both."""
    assert 16 == len({mark(0, 0, which) for which in range(16)})
    assert 4 == len({hue(which) for which in range(4)})


def test_a_legend_stays_inside_its_figure() -> None:
    """Long names take more lines, and the rows begin below them."""
    names = [f"a_variant_with_a_long_name_{place}" for place in range(9)]
    made = ratios([make_speed("w0", ratio=1 + n / 10, variant=name) for n, name in enumerate(names)], "library")
    alone = ratios([make_speed("w0")], "library")
    assert made is not None
    assert alone is not None
    places = [
        float(x)
        for x in re.findall(r'<text class="ink" x="([\d.]+)" y="(?:46|64|82|100|118|136|154|172|190)"', made.body)
    ]
    assert 9 == len(places)
    assert max(places) + 150 <= WIDTH
    assert alone.height + 8 * 18 + 8 * 14 == made.height


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
