"""The only file that prints. Results go to stdout, messages to stderr; only terminals animate."""

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import IO, Any, Literal

from loop.base.errors import LoopError, MachineFailure, UsageError, remove_escapes

ColourKind = Literal["good", "bad", "wait", "soft"]
COLOURS: dict[ColourKind, dict[str, str]] = {
    "good": {"terminal": "32", "light": "#00705a", "dark": "#2cc295"},
    "bad": {"terminal": "31", "light": "#b34700", "dark": "#ff9b50"},
    "wait": {"terminal": "35", "light": "#8f3d78", "dark": "#e69ac9"},
    "soft": {"terminal": "0", "light": "#59636e", "dark": "#9198a1"},
}
"""Colours of a kind (Okabe and Ito 2008): terminal code, and hex for a light and a dark page."""
KIND_BY_WORD: dict[str, ColourKind] = {
    **dict.fromkeys(("passed", "faster", "kept", "right", "yes"), "good"),
    **dict.fromkeys(("failed", "aborted", "slower", "incorrect", "invalid", "wrong"), "bad"),
    **dict.fromkeys(("paused", "open", "inconclusive"), "wait"),
    **dict.fromkeys(("skipped", "same", "recorded"), "soft"),
}
"""Words that are coloured at the start of a text, to their kind."""
CLEAR_LINE = "\r\x1b[K"
_COMMAND_AT_END = re.compile(r"(?<=: )(?:loop|pip|git|cd|export) \S.*$")
"""A command at the end of a line. It is never folded, so that users can copy it."""
TREE_PREFIX = " │├└─"  # Characters before a line's text: spaces and tree branches.
_NO_BREAK = "\x00"  # Replaces the spaces of a command while its line is folded.
MESSAGES_VARIABLE = "LOOP_TALK"  # Set by a parent `loop`: it stores messages, also with `--json`.
Rows = Iterable[Sequence[Any]]
Stream = IO[str] | None  # None: the process's own.
NO_READER_ERRORS = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.EBADF)
"""Errors of a write without a reader: the pipe's reader has ended or the terminal is closed."""


def colour_class(text: str) -> str:
    """The colour kind of a text's first word, such as `bad` for `slower: 0.80x`; empty if none."""
    return KIND_BY_WORD.get(text.partition(" ")[0].rstrip(",:;"), "")


def style_sheet() -> str:
    """CSS with the colours as variables, for light, dark and printed pages."""
    light = "".join(f"--{name}:{colour['light']};" for name, colour in COLOURS.items())
    dark = "".join(f"--{name}:{colour['dark']};" for name, colour in COLOURS.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def write_and_flush(stream: IO[str], text: str) -> None:
    """Write and flush. After an error all further output of this stream is discarded, silently if
    nobody reads it or if it is stderr. Any other error raises MachineFailure: a full disk."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if error.errno not in NO_READER_ERRORS and stream is not sys.stderr:
            hint = "free space there, or send it elsewhere; then run the same command again"
            raise MachineFailure(f"stdout cannot be written: {error.strerror}", hint) from error


def open_streams() -> None:
    """Open /dev/null for closed streams: the next file would become one. UsageError for stdout."""
    is_stdout_closed = sys.stdout is None
    # In this order, each open returns the lowest free descriptor.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if is_stdout_closed:
        message = "stdout is closed: what you ask for cannot be written"
        raise UsageError(message, "name a place: `> FILE`")


def terminal_columns(stream: IO[str]) -> int:
    """Width of the terminal in columns; 80 if the stream is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else 80


class Screen:
    """Output to the user: results on `out` (stdout), messages on `err` (stderr)."""

    def __init__(self, out: Stream = None, err: Stream = None, *, is_quiet: bool = False) -> None:
        self.out, self.err = out or sys.stdout, err or sys.stderr
        env = os.environ
        is_plain = env.get("NO_COLOR") or env.get("CI") or env.get("TERM") in ("dumb", None)
        is_lively = self.err.isatty() and not is_plain
        self.may_animate = is_lively and not is_quiet
        is_forced = env.get("FORCE_COLOR", "") not in ("", "0") and not env.get("NO_COLOR")
        self.has_colours = is_forced or is_lively  # NO_COLOR overrides both.
        self.is_quiet = is_quiet  # Print only errors: for `--json` without a terminal.

    def data(self, text: str) -> None:
        """Print a result to stdout, with a line end."""
        printable = remove_escapes(text)
        write_and_flush(self.out, printable if printable.endswith("\n") else printable + "\n")

    def prose(self, text: str) -> None:
        """Print sentences to stdout, folded to the terminal's width."""
        self.data(fold(remove_escapes(text), terminal_columns(self.out)))

    def say(self, text: str = "") -> None:
        """Print a message to stderr, unless quiet."""
        if not self.is_quiet:
            self._print_message(text)

    def outcome(self, status: str, text: str, *, prefix: str = "", status_columns: int = 0) -> None:
        """Print a message, unless quiet: prefix, coloured status in so many columns, text."""
        if not self.is_quiet:
            colour = COLOURS[KIND_BY_WORD.get(status, "soft")]["terminal"]
            self._print_message(f"{prefix}{status.ljust(status_columns)}{text}", status, colour)

    def _print_message(self, text: str, coloured_word: str = "", colour: str = "") -> None:
        """Print text to stderr in place of the progress line; the first such word in a colour."""
        printable = remove_escapes(text)
        if self.err.isatty():
            printable = fold(printable, terminal_columns(self.err))
        if coloured_word and self.has_colours:
            printable = printable.replace(coloured_word, f"\x1b[{colour}m{coloured_word}\x1b[0m", 1)
        write_and_flush(self.err, (CLEAR_LINE if self.may_animate else "") + printable + "\n")

    def on_stdout(self) -> "Screen":
        """A screen with messages on stdout, for results in sentences. Ends the progress line."""
        self.status("")
        return Screen(self.out, self.out)

    def status(self, text: str) -> None:
        """Replace the progress line on a terminal; do nothing elsewhere."""
        if self.may_animate:
            line, columns = " ".join(remove_escapes(text).split()), terminal_columns(self.err) - 1
            shown = line if len(line) <= columns else f"{line[: columns - 3]}..."
            write_and_flush(self.err, CLEAR_LINE + shown)

    def fail(self, error: LoopError) -> None:
        """Print an error and its hint to stderr."""
        hint = f"\n  next: {error.hint}" if error.hint else ""
        self._print_message(f"error: {error.message}{hint}", "error", COLOURS["bad"]["terminal"])

    def table(self, heads: Sequence[str], rows: Rows, *, folded_column: int = -1) -> None:
        """Print a table to stdout. Column `folded_column`, else the last, folds to fit."""
        columns = terminal_columns(self.out)
        self.data("\n".join(table_lines(heads, rows, columns, folded_column=folded_column)))

    def confirm(self, question: str) -> bool:
        """Ask a yes/no question on stderr; no is the default, and the answer without a terminal."""
        if not (sys.stdin.isatty() and self.err.isatty()):
            return False
        write_and_flush(self.err, f"{remove_escapes(question)} [y/N] ")
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def fold(text: str, columns: int) -> str:
    """Fold lines at `columns`, but no word, such as a path, and no command at a line's end."""
    import textwrap

    folded = []
    wrapper = textwrap.TextWrapper(columns, break_on_hyphens=False, break_long_words=False)
    for line in text.split("\n"):
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(TREE_PREFIX)) + 2)
        unbreakable = _COMMAND_AT_END.sub(lambda command: command[0].replace(" ", _NO_BREAK), line)
        folded += wrapper.wrap(unbreakable) or [""]
    return "\n".join(folded).replace(_NO_BREAK, " ")


def table_lines(
    heads: Sequence[str], rows: Rows, columns: int, *, folded_column: int = -1
) -> list[str]:
    """A table as lines of at most `columns` characters, if its words allow. `folded_column` gets
    narrower first and may break words, then the widest, down to their longest word, 12 or more."""
    import textwrap

    folded_column %= len(heads)
    table = []
    for row in (heads, *rows):
        table.append([remove_escapes(str(cell)).replace("\n", " ") for cell in row])
    widths, min_widths = list[int](), list[int]()
    for number, cells in enumerate(zip(*table, strict=True)):
        longest_word = max((len(word) for cell in cells for word in cell.split()), default=0)
        widths.append(max(map(len, cells)))
        min_widths.append(12 if number == folded_column else max(12, longest_word))
    excess = sum(widths) + 2 * (len(widths) - 1) - columns  # Two spaces between columns.
    widest_first = sorted(range(len(heads)), key=lambda number: -widths[number])
    for number in (folded_column, *widest_first):
        reduction = max(0, min(excess, widths[number] - min_widths[number]))
        widths[number] -= reduction
        excess -= reduction
    lines = []
    for row in table:
        folded = []
        for cell, width in zip(row, widths, strict=True):
            folded.append([cell] if len(cell) <= width else textwrap.wrap(cell, width) or [""])
        for parts in zip_longest(*folded, fillvalue=""):
            lines.append("  ".join(map(str.ljust, parts, widths)).rstrip())
    return lines
