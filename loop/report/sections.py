"""A section of a report (heading, text, table), shown in Markdown, on a terminal and as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loop.report.markdown import Table, escape_paragraph, escape_prose, fenced_block, shortened
from loop.report.screen import Screen, fold, terminal_columns

Line = str | tuple[str, ...]  # A sentence; or a tuple: a first one, and others indented below it.


@dataclass(frozen=True)
class SizeLimit:
    """How much of a section is shown; the records have the rest."""

    rows: int  # Most rows of a table or list, and most sections of a fold.
    characters: int
    code_lines: int


REPORT_LIMIT = SizeLimit(1000, 4000, 400)  # Much more than a session writes that is no fault.
MAX_TERMINAL_TEXT = 400  # Most characters of one text on a terminal.


@dataclass(frozen=True)
class Section:
    """A heading, then note, lines, table, lines, code. Text is plain; backticks mark code."""

    title: str = ""  # Empty if the section continues the one above.
    lines: tuple[Line, ...] = ()
    table: Table | None = None
    after: tuple[Line, ...] = ()  # Sentences below the table.
    folded_column: int = 0  # Index of the column that is wrapped on a narrow terminal.
    note: str = ""  # A paragraph that says what is shown and how to read it.
    code: tuple[str, ...] = ()
    language: str = "sh"  # Language of the code. A long `text` (a log) shows its last lines only.

    def __bool__(self) -> bool:
        """False for a section with nothing but a title: it is left out."""
        return bool(self.note or self.lines or self.table or self.after or self.code)


def sections_as_markdown(sections: Iterable[Section], limit: SizeLimit) -> str:
    """Sections as escaped Markdown, at most `limit.rows` of them; empty ones do not count."""
    filled, texts = tuple(filter(None, sections)), list[str]()
    for section in filled[: limit.rows]:
        if section.title:
            texts.append(f"### {escape_prose(shortened(section.title, limit.characters))}")
        if section.note:
            texts.append(escape_paragraph(shortened(section.note, limit.characters)))
        if section.lines:
            texts.append(_bullet_list(section.lines, limit))
        if section.table:
            texts.append(section.table.markdown(limit.rows, limit.characters))
        if section.after:
            texts.append(_bullet_list(section.after, limit))
        if section.code:
            max_lines = limit.code_lines if section.language == "text" else None
            texts.append(fenced_block(section.code, section.language, max_lines))
    hidden = len(filled) - limit.rows
    if hidden > 0:
        texts.append(f"And {hidden} more parts, which are in the records of the session.")
    return "\n\n".join(texts)


def _bullet_list(lines: Sequence[Line], limit: SizeLimit) -> str:
    """A list in Markdown, at most `limit.rows` long."""
    shown, hidden = list(lines[: limit.rows]), len(lines) - limit.rows
    if hidden > 0:
        shown.append(f"And {hidden} more, which are in the records of the session.")
    bullets = []
    for indent, text in _indented_sentences(shown):
        bullets.append(f"{indent}- {escape_paragraph(shortened(text, limit.characters))}")
    return "\n".join(bullets)


def _indented_sentences(lines: Iterable[Line]) -> Iterator[tuple[str, str]]:
    """(indent, text) of each sentence: a tuple's further sentences are indented."""
    for line in lines:
        first, *further = (line,) if isinstance(line, str) else line
        yield "", first
        yield from (("  ", text) for text in further)


def print_sections(sections: Iterable[Section], screen: Screen) -> None:
    """Print sections to stdout, folded at the terminal's width."""
    columns = terminal_columns(screen.out)
    for number, section in enumerate(filter(None, sections)):
        if number:
            screen.data("")
        for head in filter(None, (section.title, section.note)):
            screen.data(fold(shortened(head, MAX_TERMINAL_TEXT), columns))
        for lines, table in ((section.lines, section.table), (section.after, None)):
            for indent, text in _indented_sentences(lines):
                screen.data(fold(f"  {indent}{shortened(text, MAX_TERMINAL_TEXT)}", columns))
            if table is not None:
                rows = [[shortened(cell, 200) for cell in row] for row in table.rows]
                screen.table(table.titles, rows, folded_column=section.folded_column)
        for text in section.code:
            screen.data(f"  {text}")


def section_fields(section: Section) -> dict[str, Any]:
    """A section as a dictionary, for `--json`: its code is left out."""
    return {
        "title": section.title,
        "note": section.note,
        "lines": tuple(text for _, text in _indented_sentences((*section.lines, *section.after))),
        "columns": section.table.titles if section.table else (),
        "rows": section.table.rows if section.table else (),
    }
