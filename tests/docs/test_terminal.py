"""What commands print in a real terminal: as wide as it is, and plain where that is asked for."""

from pathlib import Path

import pytest

from tests.docs import pictures, terminal

COMMANDS = "loop patterns list; loop cost rates; loop run session --dry-run; loop status"


@pytest.mark.slow
def test_lines_fit_the_terminal(tmp_path: Path) -> None:
    """80 columns, as a program that looks at its terminal prints them. `test_docs.py` does the same for help."""
    lines = terminal.settled(pictures.printed(COMMANDS, tmp_path, 80))
    plain = [terminal.COLOUR.sub("", line) for line in lines]
    assert 30 < len(plain)
    assert [] == [line for line in plain if len(line) > 80]


@pytest.mark.slow
def test_colour_and_overprinting_only_where_a_terminal_takes_them(tmp_path: Path) -> None:
    """An error is red; with NO_COLOR or TERM=dumb it is nothing but text."""
    command = "loop kernels verify nothing"
    assert "\x1b[31merror\x1b[0m" in pictures.printed(command, tmp_path, 100)
    for own in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text = pictures.printed(command, tmp_path, 100, **own)
        assert "error: " in text
        assert "\x1b" not in text
        assert "\r" not in text.replace("\r\n", "\n")
