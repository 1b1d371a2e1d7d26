"""What commands print in a real terminal: as wide as it is, and plain where that is asked for."""

from pathlib import Path

import pytest

from tests.docs import pictures, terminal

COMMANDS = (
    "loop --help",
    "loop run session --help",
    "loop patterns list",
    "loop cost rates",
    "loop patterns show baseline-first",
    "loop run session --dry-run",
    "loop status",
)
WAYS = {"no colour": {"NO_COLOR": "1"}, "dumb": {"TERM": "dumb"}}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_the_terminal(command: str, columns: int, tmp_path: Path) -> None:
    """At 80 and at 120 columns, as a program that looks at its terminal prints them."""
    text = pictures.printed(command, tmp_path, columns)
    lines = [terminal.COLOUR.sub("", line) for line in terminal.settled(text)]
    assert 3 < len(lines)
    assert [] == [line for line in lines if len(line) > columns]


@pytest.mark.parametrize("way", ["no colour", "dumb"])
@pytest.mark.slow
def test_nothing_but_text_where_plain_lines_are_asked_for(way: str, tmp_path: Path) -> None:
    """No colour, no line that is printed over, on a terminal that would take both."""
    text = pictures.printed("loop kernels verify nothing; loop patterns list", tmp_path, 100, **WAYS[way])
    assert "error: " in text
    assert "\x1b" not in text
    assert "\r" not in text.replace("\r\n", "\n")


@pytest.mark.slow
def test_an_error_has_its_colour_in_a_terminal(tmp_path: Path) -> None:
    """So the test above can fail."""
    assert "\x1b[31merror\x1b[0m" in pictures.printed("loop kernels verify nothing", tmp_path, 100)
