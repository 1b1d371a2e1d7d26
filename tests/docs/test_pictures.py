"""Pictures of the README: made of what the program prints, and not stale."""

import os
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import pictures, terminal
from tests.docs.shell import masked

PRINTED = "\x1b[32mpassed\x1b[0m   build <b> & co\r\n\r\x1b[Kworking\r\x1b[Kdone\r\n"

WHOLE = pytest.mark.skipif("LOOP_DOCS" not in os.environ, reason="minutes of real sessions: make docs-check")


def words(line: str) -> str:
    """A line without what differs from run to run, its verdicts included."""
    return re.sub(r"[^a-z]+", " ", masked(line)[0].lower()) if line.strip() else ""


def begins(lines: list[str]) -> list[str]:
    """What every step of a session's picture is called: `passed build`."""
    found = (re.match(r"\s+(passed|failed|skipped)\s+(\w+) \(", line) for line in lines)
    return [f"{one[1]} {one[2]}" for one in found if one]


def test_a_picture_shows_what_was_printed() -> None:
    """Colours, text that is escaped, and lines as they stand in the end."""
    svg = terminal.picture("loop x", PRINTED, about='of "x"')
    assert ["$ loop x", "passed   build <b> & co", "done"] == terminal.shown(svg)
    assert 'class="good"' in svg
    assert "\x1b" not in svg


def test_long_lines_break_as_in_a_terminal() -> None:
    """At its width."""
    assert [100, 20] == [len(line) for line in terminal.folded(["x" * 120])]


@pytest.mark.parametrize("one", pictures.PICTURES, ids=lambda one: one.name)
def test_every_picture_is_there_and_of_its_command(one: pictures.Picture) -> None:
    """`make pictures` makes them anew."""
    lines = terminal.shown((pictures.FOLDER / f"{one.name}.svg").read_text())
    assert f"$ {one.command}" == lines[0]
    assert f"docs/pictures/{one.name}.svg" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", pictures.FIGURES)
def test_every_figure_is_shown(name: str) -> None:
    """In the README, with words for those who cannot see it."""
    assert re.search(
        rf"^!\[.{{20,}}\]\(docs/pictures/{re.escape(name)}\)$", (ROOT / "README.md").read_text(), re.M
    )


def test_no_picture_is_left_over() -> None:
    """Each is one that the target makes."""
    known = {f"{one.name}.svg" for one in pictures.PICTURES} | set(pictures.FIGURES)
    assert set() == {path.name for path in pictures.FOLDER.glob("*")} - known


def test_the_picture_of_the_patterns_is_current(tmp_path: Path) -> None:
    """Nothing in it depends on a clock: it is drawn again and compared whole."""
    (one,) = [one for one in pictures.PICTURES if one.name == "patterns"]
    again = pictures.drawn(one, pictures.printed(one.command, tmp_path))
    assert (pictures.FOLDER / "patterns.svg").read_text() == again, "make pictures"


@pytest.mark.slow
@WHOLE
def test_the_picture_of_a_session_has_its_steps(tmp_path: Path) -> None:
    """The command runs again: the same steps in the same order, whatever they took and found."""
    (one,) = [one for one in pictures.PICTURES if one.name == "session"]
    again = terminal.shown(pictures.drawn(one, pictures.printed(one.command, tmp_path)))
    before = terminal.shown((pictures.FOLDER / "session.svg").read_text())
    assert [step.split()[1] for step in begins(before)] == [step.split()[1] for step in begins(again)], (
        "make pictures"
    )
    assert words(before[1]) == words(again[1])
