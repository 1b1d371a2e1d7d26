"""Output fits the terminal, and is coloured only in a terminal or on request; exit codes."""

import codecs
import io
import os
import subprocess
import sys

import pytest

from loop.base.errors import ExitCode, MachineFailure, UsageError
from loop.report.screen import Screen

HOSTILE = "a\x1b[31mred\x1b]0;title\x07 \x9b5A back\r\x08 \u202eturned\x1b"


@pytest.mark.parametrize("way", ["data", "prose", "say", "fail", "outcome", "table", "status"])
def test_text_of_others_moves_no_cursor(way: str) -> None:
    """Text of kernels, compilers and records is printed without effect on the terminal."""
    out, err = Watched(), Watched()
    screen = Screen(out, err)
    screen.may_animate = screen.has_colours = False
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
        return True


@pytest.mark.parametrize(
    ("terms", "colour"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals_or_on_request(
    terms: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR colours a log but not the progress line; NO_COLOR overrides it."""
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


def test_a_result_in_sentences_goes_to_stdout() -> None:
    """A quiet screen prints it too; the progress line on stderr ends before it."""
    out, err = io.StringIO(), Watched()
    screen = Screen(out, err, is_quiet=True)
    screen.may_animate = True
    screen.status("at work")
    screen.on_stdout().outcome("passed", ": all")
    assert "passed: all\n" == out.getvalue()
    assert err.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_reader_that_goes_away_ends_no_work(stream: str) -> None:
    """Later output is dropped; a full disk is still an error."""
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


def test_exit_codes_are_the_documented_ones() -> None:
    """Scripts depend on them."""
    assert [0, 1, 2, 3, 75, 124, 125, 130] == [int(code) for code in ExitCode]


def test_errors_cost_nothing_to_import() -> None:
    """Importing errors loads neither pydantic nor YAML nor Jinja2."""
    code = "import sys, loop.base.errors; print([m for m in ('pydantic', 'yaml', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
