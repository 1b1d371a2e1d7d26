"""The only file that prints. Data goes to stdout, talk to stderr; no animation where nobody watches."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from loop.errors import LoopError

COLOURS = {"passed": "32", "failed": "31", "skipped": "33", "aborted": "31", "paused": "33"}
CLEAR_LINE = "\r\x1b[K"


def watched(stream: IO[str]) -> bool:
    """Whether a person watches: a terminal, and nothing that asks for plain lines."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") in ("dumb", None)
    return stream.isatty() and not plain


def width(stream: IO[str]) -> int:
    """Columns of the terminal; 80 without one."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80


class Screen:
    """Talks to whoever started the program."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None, *, quiet: bool = False) -> None:
        self.out, self.err = out or sys.stdout, err or sys.stderr
        self.live = watched(self.err) and not quiet
        self.quiet = quiet
        """Say nothing but errors: for `--json` without a watcher."""

    def data(self, text: str) -> None:
        """What was asked for, to stdout."""
        self.out.write(text if text.endswith("\n") else text + "\n")
        self.out.flush()

    def say(self, text: str = "") -> None:
        """A line of talk, to stderr."""
        if self.quiet:
            return
        self._settle()
        self.err.write((fold(text, width(self.err)) if self.live else text) + "\n")
        self.err.flush()

    def status(self, text: str) -> None:
        """The line that changes while something runs; only where somebody watches."""
        if self.live:
            self.err.write(CLEAR_LINE + shorten(text, width(self.err) - 1))
            self.err.flush()

    def _settle(self) -> None:
        if self.live:
            self.err.write(CLEAR_LINE)

    def fail(self, error: LoopError) -> None:
        """An error and what to do next, to stderr."""
        text = f"{self.paint('error', '31')}: {error.message}"
        if error.hint:
            text += f"\n  next: {error.hint}"
        self._settle()
        self.err.write((fold(text, width(self.err)) if self.live else text) + "\n")
        self.err.flush()

    def paint(self, text: str, colour: str) -> str:
        """`text` in a colour, where colours are wanted."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self.live else text

    def word(self, status: str, room: int = 0) -> str:
        """A status in its colour, at least `room` characters wide."""
        return self.paint(status.ljust(room), COLOURS.get(status, "0"))

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, wrap: int = -1) -> None:
        """Rows to stdout, as wide as the terminal: the last column (or `wrap`) takes what the others leave."""
        self.data("\n".join(table_lines(heads, rows, width(self.out), wrap=wrap)))

    def confirm(self, question: str) -> bool:
        """Ask a person; False when nobody is there to answer."""
        if not (sys.stdin.isatty() and self.err.isatty()):
            return False
        self.err.write(f"{question} [y/N] ")
        self.err.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def fold(text: str, columns: int) -> str:
    """Lines folded between words at `columns`, what follows indented below the text."""
    import textwrap

    folded = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        folded += textwrap.wrap(line, columns, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(folded)


def shorten(text: str, room: int) -> str:
    """`text` in one line of at most `room` characters."""
    line = " ".join(text.split())
    return line if len(line) <= room else line[: max(room - 3, 0)] + "..."


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[Any]], columns: int, *, wrap: int = -1) -> list[str]:
    """A table as lines of at most `columns` characters, as far as its fixed columns allow."""
    import textwrap

    cells = [[str(cell) for cell in row] for row in rows]
    wrap %= len(heads)
    widths = [max(len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]
    others = sum(w for i, w in enumerate(widths) if i != wrap) + 2 * (len(heads) - 1)
    widths[wrap] = max(min(widths[wrap], columns - others), 12)
    lines = []
    for row in [list(heads), *cells]:
        parts = [
            textwrap.wrap(cell, widths[i]) if i == wrap and len(cell) > widths[i] else [cell]
            for i, cell in enumerate(row)
        ]
        for number in range(max(len(part) for part in parts)):
            line = (part[number] if number < len(part) else "" for part in parts)
            lines.append("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip())
    return lines


def short(seconds: float) -> str:
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
