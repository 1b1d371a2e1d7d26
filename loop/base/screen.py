"""The only file that prints. Data goes to stdout, talk to stderr; no animation where nobody watches."""

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import IO, Any, Literal

from loop.base.errors import LoopError, MachineFailure, UsageError, without_escapes

Kind = Literal["good", "bad", "wait", "soft"]


COLOURS: dict[Kind, dict[str, str]] = {
    "good": {"terminal": "32", "light": "#00705a", "dark": "#2cc295"},
    "bad": {"terminal": "31", "light": "#b34700", "dark": "#ff9b50"},
    "wait": {"terminal": "35", "light": "#8f3d78", "dark": "#e69ac9"},
    "soft": {"terminal": "0", "light": "#59636e", "dark": "#9198a1"},
}
"""A kind's colour, those of Okabe and Ito (2008): the terminal's code, darker on light paper, lighter on dark."""
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("passed", "faster", "kept", "right", "yes", "validated"), "good"),
    **dict.fromkeys(
        ("failed", "aborted", "slower", "incorrect", "invalid", "wrong", "doubtful", "retired"), "bad"
    ),
    **dict.fromkeys(("paused", "open", "inconclusive"), "wait"),
    **dict.fromkeys(("skipped", "same", "recorded"), "soft"),
}
"""First words that are marked; the word itself says it."""


def kind_of_text(text: str) -> str:
    """The kind of what a text begins with, as in `slower: 0.80x`; empty for other words."""
    return KINDS.get(text.partition(" ")[0].rstrip(",:;"), "")


def style_sheet() -> str:
    """The colours as variables of a style sheet, by day, by night and on paper."""
    light, dark = (
        "".join(f"--{name}:{colour[theme]};" for name, colour in COLOURS.items()) for theme in ("light", "dark")
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


CLEAR_LINE = "\r\x1b[K"
_COMMAND = re.compile(r"(?<=: )(?:loop|pip|git|cd|export) \S.*$")
"""A command at the end of a line: it is never folded, for it is there to be copied."""
RIM = " │├└─"
"""What may stand before the text of a line: room, and the branches of a tree."""
_GLUE = "\x00"
"""Stands for the spaces of a command while its line is folded."""

TALKS = "LOOP_TALK"
"""In the environment of a command whose talk is kept, with `--json` too."""
GONE = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF)
"""What a write says where nobody reads any more: a pipe's reader has ended, a terminal is closed."""
STREAMS = ("stdin", "stdout", "stderr")
"""By their numbers."""


def write_now(stream: IO[str], text: str) -> None:
    """Write at once. Where nobody reads any more nothing is said from then on: the work goes on, recorded.

    Raises MachineFailure where stdout cannot be written: what was asked for is not all there.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if error.errno not in GONE and stream is not sys.stderr:
            hint = "free space there, or send it elsewhere; then run the same command again"
            raise MachineFailure(f"stdout cannot be written: {error.strerror}", hint) from error


def open_streams() -> None:
    """Let a closed stdin, stdout or stderr be /dev/null, before a file takes its number.

    Raises UsageError for a closed stdout: nothing that is asked for could be written.
    """
    closed = [name for name in STREAMS if getattr(sys, name) is None]
    for name in closed:
        null = os.open(os.devnull, os.O_RDWR)
        if null != STREAMS.index(name):
            os.dup2(null, STREAMS.index(name))
            os.close(null)
        setattr(sys, name, os.fdopen(STREAMS.index(name), "r" if name == "stdin" else "w"))
    if "stdout" in closed:
        raise UsageError("stdout is closed: what you ask for cannot be written", "name a place: `> FILE`")


def is_watched(stream: IO[str]) -> bool:
    """Whether a person watches: a terminal, and nothing that asks for plain lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") in ("dumb", None)
    return stream.isatty() and not plain


def columns_of(stream: IO[str]) -> int:
    """Columns of the terminal; 80 without one."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80


class Screen:
    """Talks to whoever started the program."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None, *, quiet: bool = False) -> None:
        self.out, self.err = out or sys.stdout, err or sys.stderr
        self.live = is_watched(self.err) and not quiet
        forced = os.environ.get("FORCE_COLOR", "") not in ("", "0") and not os.environ.get("NO_COLOR")
        self.colours = forced or is_watched(self.err)
        """Whether words have colours: where a person watches, or FORCE_COLOR is set. NO_COLOR goes before it."""
        self.quiet = quiet
        """Say nothing but errors: for `--json` without a watcher."""

    def data(self, text: str) -> None:
        """What was asked for, to stdout."""
        shown = without_escapes(text)
        write_now(self.out, shown if shown.endswith("\n") else shown + "\n")

    def prose(self, text: str) -> None:
        """Sentences that were asked for, to stdout, as wide as the terminal."""
        self.data(fold(without_escapes(text), columns_of(self.out)))

    def say(self, text: str = "") -> None:
        """A line of talk, to stderr."""
        if not self.quiet:
            self._talk(text)

    def outcome(self, status: str, text: str, *, before: str = "", room: int = 0) -> None:
        """A line of talk that begins with a status in its colour, at least `room` characters wide."""
        if not self.quiet:
            colour = COLOURS[KINDS.get(status, "soft")]["terminal"]
            self._talk(f"{before}{status.ljust(room)}{text}", status, colour)

    def _talk(self, text: str, word: str = "", colour: str = "") -> None:
        """Text as wide as the terminal, the first `word` of it in a colour where colours are wanted."""
        shown = without_escapes(text)
        if self.err.isatty():
            shown = fold(shown, columns_of(self.err))
        if word and self.colours:
            shown = shown.replace(word, f"\x1b[{colour}m{word}\x1b[0m", 1)
        write_now(self.err, (CLEAR_LINE if self.live else "") + shown + "\n")

    def status(self, text: str) -> None:
        """The line that changes while something runs; only where somebody watches."""
        if self.live:
            write_now(self.err, CLEAR_LINE + shorten(without_escapes(text), columns_of(self.err) - 1))

    def fail(self, error: LoopError) -> None:
        """An error and what to do next, to stderr."""
        hint = f"\n  next: {error.hint}" if error.hint else ""
        self._talk(f"error: {error.message}{hint}", "error", "31")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, wrap: int = -1) -> None:
        """Rows to stdout, as wide as the terminal: the last column (or `wrap`) takes what the others leave."""
        self.data("\n".join(table_lines(heads, rows, columns_of(self.out), wrap=wrap)))

    def confirm(self, question: str) -> bool:
        """Ask a person; False when nobody is there to answer."""
        if not (sys.stdin.isatty() and self.err.isatty()):
            return False
        write_now(self.err, f"{without_escapes(question)} [y/N] ")
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def fold(text: str, columns: int) -> str:
    """Lines folded between words at `columns`, what follows indented below the text.

    A command at the end of a line stays whole, and so does a word that is longer than a line: a path.
    """
    import textwrap

    folded = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(RIM)) + 2)
        glued = _COMMAND.sub(lambda command: command[0].replace(" ", _GLUE), line)
        folded += textwrap.wrap(
            glued, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        ) or [""]
    return "\n".join(folded).replace(_GLUE, " ")


def shorten(text: str, room: int) -> str:
    """`text` in one line of at most `room` characters."""
    line = " ".join(text.split())
    return line if len(line) <= room else line[: max(room - 3, 0)] + "..."


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[Any]], columns: int, *, wrap: int = -1) -> list[str]:
    """A table as lines of at most `columns` characters: one column is folded first, then the widest.

    Words that are longer than their column stay whole in all but that one.
    """
    import textwrap

    wrap %= len(heads)
    cells = [[without_escapes(str(cell)).replace("\n", " ") for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    words = [max((len(word) for row in cells for word in row[i].split()), default=0) for i in range(len(heads))]
    least = [max(12, 0 if i == wrap else words[i]) for i in range(len(heads))]
    over = sum(widths) + 2 * (len(heads) - 1) - columns
    for i in (wrap, *sorted(range(len(heads)), key=lambda column: -widths[column])):
        cut = max(0, min(over, widths[i] - least[i]))
        widths[i], over = widths[i] - cut, over - cut
    lines = []
    for row in cells:
        fits = zip(row, widths, strict=True)
        folded = [textwrap.wrap(cell, room) or [""] if len(cell) > room else [cell] for cell, room in fits]
        for parts in zip_longest(*folded, fillvalue=""):
            lines.append("  ".join(map(str.ljust, parts, widths)).rstrip())
    return lines


def short_duration(seconds: float) -> str:
    """For a table: `0.3s`, `12s`, `4m`, `2.1h`."""
    if seconds < 90:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 5400 else f"{seconds / 3600:.1f}h"


def seconds_text(seconds: float) -> str:
    """`0.32 s`, `12 s`, `3 min 05 s`."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds >= 0.095 else f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
