"""A page as sections of lines and tables: the same for Markdown and for a terminal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loop.report.markdown import Table, paragraph, table
from loop.report.plain import shortened

LONGEST = 400
"""Characters of one sentence."""
GAP = 2
"""Spaces between two columns on a terminal."""
LEAST, FOLDED = 12, 20
"""Characters that a column with names of rows is given, short ones and folded ones."""


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    title: str
    lines: tuple[str, ...] = ()
    """Sentences, plain text."""
    table: Table | None = None
    after: tuple[str, ...] = ()
    """Sentences below the table."""
    wrap: int = 0
    """Column that gives way on a narrow terminal."""

    def __bool__(self) -> bool:
        return bool(self.lines or self.table or self.after)


def cleaned(content: Table) -> Table:
    """The same table with cells that are safe on a terminal."""
    return Table(content.columns, tuple(tuple(shortened(cell, 200) for cell in row) for row in content.rows))


def pieces(content: Table, room: int) -> Iterator[Table]:
    """The table in pieces of at most `room` characters, each with the first column, which names the rows."""
    rows = [tuple(column.title for column in content.columns), *content.rows]
    widths = [GAP + max(len(row[place]) for row in rows) for place in range(len(content.columns))]
    used, groups = room, list[list[int]]()
    for place in range(1, len(widths)):
        if used + widths[place] > room:
            used = min(max(widths[0] - GAP, LEAST), FOLDED)
            groups.append([0])
        groups[-1].append(place)
        used += widths[place]
    for group in groups:
        yield Table(
            tuple(content.columns[n] for n in group), tuple(tuple(row[n] for n in group) for row in content.rows)
        )


def markdown(title: str, sections: Iterable[Section]) -> str:
    """All of it as Markdown, everything escaped."""
    return "\n".join(_markdown(title, sections)) + "\n"


def _markdown(title: str, sections: Iterable[Section]) -> Iterator[str]:
    yield f"# {paragraph(shortened(title, LONGEST))}"
    for one in filter(None, sections):
        yield from ("", f"## {paragraph(shortened(one.title, LONGEST))}", "")
        yield from _bullets(one.lines)
        if one.table is not None:
            yield from ([""] if one.lines else [])
            yield table(cleaned(one.table))
        if one.after:
            yield ""
            yield from _bullets(one.after)


def _bullets(lines: Iterable[str]) -> Iterator[str]:
    return (f"- {paragraph(shortened(line, LONGEST))}" for line in lines)
