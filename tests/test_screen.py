"""What is shown fits the terminal, and nobody sees colours who did not ask."""

import io

import pytest

from loop.errors import LoopError
from loop.screen import Screen, fold, seconds_text, shorten, table_lines


def test_a_table_fits_its_columns() -> None:
    """The last column wraps between words; no line is longer than the terminal is wide."""
    lines = table_lines(("name", "text"), [("a", "word " * 40), ("bcd", "short")], 40)
    assert 40 >= max(len(line) for line in lines)
    assert lines[-1] == "bcd   short"


def test_another_column_may_wrap_instead() -> None:
    """Numbers on the right stay whole."""
    lines = table_lines(("name", "n"), [("one two three four", "1234567890")], 26, wrap=0)
    assert ["name            n", "one two three   1234567890", "four"] == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.001, "0.00 s"), (0.32, "0.32 s"), (2.34, "2.3 s"), (12.4, "12 s"), (119, "119 s"), (185, "3 min 05 s")],
)
def test_seconds_are_said_as_people_say_them(seconds: float, expected: str) -> None:
    """Two digits where they matter, minutes when there are some."""
    assert expected == seconds_text(seconds)


def test_long_lines_are_folded_below_their_text() -> None:
    """What follows is indented further than what it belongs to."""
    assert "  passed one two\n    three four" == fold("  passed one two three four", 17)


def test_a_status_line_is_one_line() -> None:
    """Line ends are gone, the end is cut."""
    assert "a b cc..." == shorten("a\nb   cccccccc", 9)


def test_without_a_terminal_there_is_no_colour_and_no_animation() -> None:
    """Plain lines for logs and pipes."""
    err = io.StringIO()
    screen = Screen(io.StringIO(), err)
    screen.status("working")
    screen.say(screen.word("passed"))
    assert "passed\n" == err.getvalue()


def test_quiet_silences_talk_but_not_errors() -> None:
    """A program reads stdout; what went wrong is said all the same, with the next step."""
    err = io.StringIO()
    screen = Screen(io.StringIO(), err, quiet=True)
    screen.say("talk")
    screen.fail(LoopError("it broke", hint="mend it"))
    assert "error: it broke\n  next: mend it\n" == err.getvalue()
