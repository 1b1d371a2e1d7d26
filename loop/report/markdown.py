"""Escapes untrusted text for Markdown, and makes tables that are readable as plain text, too."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loop.base.errors import ESCAPE_SEQUENCES

_ESCAPES = re.compile(ESCAPE_SEQUENCES)
_REMOVED_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn")
"""Unicode categories to remove: controls, invisible and direction marks, surrogates, unassigned."""
MAX_LINE = 2000  # Most characters of a line in a fenced block.
MAX_PADDED = 48  # Only cells up to this width are padded with spaces.
EMPTY_CELLS = ("", "-", "0", "0 MiB", "0 %")  # A column with only these cells is left out.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPECIAL = re.compile(r"[\\`*|~]")
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LINK = re.compile(r"\](?=[(\[:])")
_MATHEMATICS = re.compile(r"\$(?!\d)")
_BLOCK = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[#+=>-]))")  # Ends where a backslash is needed.
_SPAN = re.compile(r"(`[^`]+`)")


def plain_text(text: object) -> str:
    """The text without terminal escapes; other control and invisible characters become spaces."""
    plain = _ESCAPES.sub("", str(text).replace("\r\n", "\n"))
    if plain.isprintable():  # Most texts are, and this is quick.
        return plain
    removed = {letter for letter in plain if unicodedata.category(letter) in _REMOVED_CATEGORIES}
    return plain.translate({ord(letter): " " for letter in removed - {"\n", "\t"}})


def one_line(text: object) -> str:
    """The plain text (see `plain_text`) in one line, with single spaces."""
    return " ".join(plain_text(text).split())


def shortened(text: object, max_characters: int) -> str:
    """The plain text in one line. If it is longer than `max_characters`, it ends there, after a
    whole word, with `...`. A command between backticks is left out rather than cut."""
    line = one_line(text)
    if len(line) <= max_characters:
        return line
    kept = line[: max(max_characters - 3, 0)]
    kept = kept[: kept.rindex("`")] if kept.count("`") % 2 else kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip(' ,:;.(')}..."


class Markdown(str):
    """Text that is Markdown already. Templates escape everything else."""

    __slots__ = ()


def keep_outer_spaces(text: str, escape_text: Callable[[str], str]) -> str:
    """`escape_text(text)`, with a space at each end where `text` had one: escaping strips them."""
    before, after = (" " if edge.isspace() else "" for edge in (text[:1], text[-1:]))
    return f"{before}{escape_text(text)}{after}" if text.strip() else before


def escape_literal(text: object) -> str:
    """One line, escaped so that Markdown shows it literally: no markup, HTML, or table borders."""
    line = one_line(text)
    line = _SPECIAL.sub(lambda match: "\\" + match.group(), line)
    line = _TAG.sub("&lt;", _ENTITY.sub("&amp;", line))
    line = _LINK.sub(r"\\]", _EMPHASIS.sub(r"\\_", line))
    return _MATHEMATICS.sub(r"\\$", line)


def escape_prose(text: object) -> str:
    """Like `escape_literal`, but code in backticks stays. Not for tables: it may have a `|`."""
    escaped = []
    for part in _SPAN.split(one_line(text)):
        is_code = _SPAN.fullmatch(part) is not None
        escaped.append(part if is_code else keep_outer_spaces(part, escape_literal))
    return "".join(escaped)


def escape_paragraph(text: object) -> str:
    """Like `escape_prose`, for text at the begin of a line: no heading, list or quotation."""
    return _BLOCK.sub(r"\1\\", escape_prose(text))


def inline_code(text: object) -> str:
    """Text as inline code; new lines become spaces."""
    line = one_line(text)
    longest = max(map(len, re.findall("`+", line)), default=0)  # Of backticks in the code.
    fence = "`" * (1 + longest)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}" if line else "``"


def fenced_block(lines: Sequence[str], language: str = "sh", max_lines: int | None = None) -> str:
    """Lines in a fenced block. `max_lines`: show only the last, and say how many are hidden."""
    visible_lines = list(lines)
    hidden_count = 0 if max_lines is None else len(lines) - max_lines
    if hidden_count > 0:
        note = f"... {hidden_count} lines before these are left out"
        visible_lines = [note, *lines[hidden_count:]]
    text = "\n".join(plain_text(line)[:MAX_LINE] for line in visible_lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


@dataclass(frozen=True)
class Table:
    """A table of plain text."""

    heads: tuple[str, ...]
    """Titles of the columns. `>` at the begin of a title aligns its cells right, as for numbers."""
    rows: tuple[tuple[str, ...], ...]

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the columns, without the sign of their alignment."""
        return tuple(head.removeprefix(">") for head in self.heads)

    def markdown(self, max_rows: int | None = None, max_characters: int | None = None) -> str:
        """The table in Markdown; rows beyond `max_rows` are counted. `max_characters`: a cell's."""
        columns = list[list[str]]()  # Each with its title, a rule, and its cells, all of one width.
        for number, (head, title) in enumerate(zip(self.heads, self.titles, strict=True)):
            texts = [title, *(row[number] for row in self.rows[:max_rows])]
            if max_characters is not None:
                texts = [shortened(text, max_characters) for text in texts]
            cells = [escape_literal(text) for text in texts]
            width = max([3, *(len(cell) for cell in cells if len(cell) <= MAX_PADDED)])
            dashes, pad = "-" * (width + 1), str.rjust if head.startswith(">") else str.ljust
            rule = f"{dashes}:" if head.startswith(">") else f":{dashes}"  # The colon aligns.
            first, *body = [f" {pad(cell, width)} " for cell in cells]
            columns.append([first, rule, *body])
        lines = [f"|{'|'.join(cells)}|" for cells in zip(*columns, strict=True)]
        hidden_count = len(self.rows) + 2 - len(lines)
        if hidden_count:
            lines += ["", f"And {hidden_count} more rows, which are in the records of the session."]
        return "\n".join(lines)


def drop_empty_columns(heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table | None:
    """A table without columns of only `EMPTY_CELLS`; the first one stays. None without rows."""
    first, *others = zip(heads, *rows, strict=True)  # Columns: a title and its cells.
    if len(first) == 1:
        return None
    filled = [column for column in others if not {*column[1:]} <= {*EMPTY_CELLS}]
    titles, *kept_rows = zip(first, *filled, strict=True)
    return Table(titles, tuple(kept_rows))


def image(title: str, description: str, path: str) -> str:
    """An image in Markdown, with title and description as its alternative text."""
    alt = escape_literal(f"{title}. {description}".replace("[", "(").replace("]", ")"))
    return f"![{alt}]({path})"
