"""What is shown fits the terminal, and nobody sees colours who did not ask."""

import codecs
import io
import os

import pytest

from loop.base.errors import MachineFailure, UsageError
from loop.base.screen import Screen, fold, seconds_text, shorten, table_lines


def test_a_table_fits_its_columns() -> None:
    """The last column wraps between words; no line is longer than the terminal is wide."""
    lines = table_lines(("name", "text"), [("a", "word " * 40), ("bcd", "short")], 40)
    assert 40 >= max(len(line) for line in lines)
    assert lines[-1] == "bcd   short"


def test_another_column_may_wrap_instead() -> None:
    """Numbers on the right stay whole."""
    lines = table_lines(("name", "n"), [("one two three four", "1234567890")], 26, wrap=0)
    assert ["name            n", "one two three   1234567890", "four"] == [line.rstrip() for line in lines]


def test_where_one_column_is_not_enough_the_widest_is_folded_too() -> None:
    """Down to its longest word: a name can still be copied."""
    heads = ("Variant", "Against the known good", "Against reference:bias_gelu", "Right")
    row = ("mine", "inconclusive on 2 of 2: lowest 1.00x", "slower on 2 of 2: mean 0.072x", "5 of 5 checks")
    lines = table_lines(heads, [row], 72, wrap=1)
    assert 72 >= max(len(line) for line in lines)
    assert "reference:bias_gelu" in "".join(lines)
    assert {*" ".join(row).split()} <= {*" ".join(lines).split()}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.001, "0.00 s"), (0.32, "0.32 s"), (2.34, "2.3 s"), (12.4, "12 s"), (119, "119 s"), (185, "3 min 05 s")],
)
def test_seconds_are_said_as_people_say_them(seconds: float, expected: str) -> None:
    """Two digits where they matter, minutes when there are some."""
    assert expected == seconds_text(seconds)


COMMAND = "loop run session --resume 2026-11-21-120000-baseline --target /home/you/somewhere/else"


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("  passed one two three four", 17, "  passed one two\n    three four"),
        (f"go on with: {COMMAND}", 30, f"go on with:\n  {COMMAND}"),
        (f"see {'/long' * 20}", 30, f"see\n  {'/long' * 20}"),
        ("  ├─ one two", 9, "  ├─ one\n       two"),
    ],
)
def test_long_lines_are_folded_below_their_text(text: str, width: int, expected: str) -> None:
    """Not below the branches of a tree; never a command or a path, which is there to be copied."""
    assert expected == fold(text, width)


HOSTILE = "a\x1b[31mred\x1b]0;title\x07 \x9b5A back\r\x08 \u202eturned\x1b"


@pytest.mark.parametrize("way", ["data", "prose", "say", "fail", "outcome", "table", "status"])
def test_text_of_others_moves_no_cursor(way: str) -> None:
    """Whatever a kernel, a compiler or a record says: it is shown, and nothing of it is acted on."""
    out, err = Watched(), Watched()
    screen = Screen(out, err)
    screen.live = screen.colours = False
    if way == "fail":
        screen.fail(UsageError(HOSTILE, hint=HOSTILE))
    elif way == "table":
        screen.table((HOSTILE, "b"), [(HOSTILE, HOSTILE)])
    elif way == "outcome":
        screen.outcome("passed", HOSTILE)
    else:
        getattr(screen, way)(HOSTILE)
    shown = out.getvalue() + err.getvalue()
    assert not set("\x1b\x07\x08\x9b\r\u202e") & set(shown)
    assert way == "status" or "ared" in shown


class Watched(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        """As a terminal says."""
        return True


def test_a_colour_is_around_the_status_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where colours are wanted; a colour that came with the text is gone."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("CI", raising=False)
    err = Watched()
    Screen(io.StringIO(), err).outcome("failed", " build: \x1b[32mpassed", before="  ", room=8)
    assert "\r\x1b[K  \x1b[31mfailed\x1b[0m   build: passed\n" == err.getvalue()


@pytest.mark.parametrize(
    ("terms", "colour"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_colours_where_nobody_watches(
    terms: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR asks for them in a log, and never for a line that moves; NO_COLOR goes before it."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in terms.items():
        monkeypatch.setenv(name, value)
    err = io.StringIO()
    Screen(io.StringIO(), err).status("working")
    Screen(io.StringIO(), err).outcome("failed", ": build")
    assert ("\x1b[31mfailed\x1b[0m: build\n" if colour else "failed: build\n") == err.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    err = io.StringIO()
    Screen(io.StringIO(), err).outcome("failed", ": build")
    assert "failed: build\n" == err.getvalue()


@pytest.mark.parametrize("name", ["NO_COLOR", "CI"])
def test_plain_lines_fit_a_terminal_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants no colour wants no broken words either."""
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "40")
    err = Watched()
    Screen(io.StringIO(), err).say("word " * 20)
    assert 40 >= max(len(line) for line in err.getvalue().splitlines())


def test_a_status_line_is_one_line() -> None:
    """Line ends are gone, the end is cut."""
    assert "a b cc..." == shorten("a\nb   cccccccc", 9)


def test_quiet_silences_talk_but_not_errors() -> None:
    """A program reads stdout; what went wrong is said all the same, with the next step."""
    err = io.StringIO()
    screen = Screen(io.StringIO(), err, quiet=True)
    screen.say("talk")
    screen.fail(UsageError("it broke", hint="mend it"))
    assert "error: it broke\n  next: mend it\n" == err.getvalue()


def test_a_row_of_blanks_stays_a_row() -> None:
    """Though there is nothing in it to wrap."""
    lines = table_lines(("name", "n"), [(" " * 200, 1), ("a", 2)], 40, wrap=0)
    assert [["name", "n"], ["1"], ["a", "2"]] == [line.split() for line in lines]


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_reader_that_goes_away_ends_no_work(stream: str) -> None:
    """What is said afterwards goes nowhere; a full disk is still an error."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        screen = Screen(out=pipe, err=pipe)
        say = screen.data if stream == "out" else screen.say
        say("one")
        assert b"one\n" == os.read(reading, 100)
        os.close(reading)
        for _ in range(3):
            say("two" * 100_000)
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(MachineFailure, match="No space left"):
        Screen(out=codecs.getwriter("utf-8")(full)).data("three")
