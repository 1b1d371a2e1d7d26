"""A page of sections, on a terminal or as Markdown."""

from collections.abc import Iterable

from loop.base.screen import Screen, fold, width
from loop.report.plain import shortened
from loop.report.sections import LONGEST, Section, cleaned, markdown, pieces


def print_page(title: str, sections: Iterable[Section], screen: Screen, *, as_markdown: bool) -> None:
    """Sections as Markdown, or on a terminal, where the title is left out."""
    if as_markdown:
        screen.data(markdown(title, sections))
    else:
        show(sections, screen)


def show(sections: Iterable[Section], screen: Screen) -> None:
    """Sections on a terminal, folded at its width; a table that is too wide comes in pieces."""
    room = width(screen.out)
    for number, section in enumerate(filter(None, sections)):
        screen.data(("\n" if number else "") + fold(shortened(section.title, LONGEST), room))
        for line in section.lines:
            screen.data(fold(f"  {shortened(line, LONGEST)}", room))
        table = cleaned(section.table) if section.table is not None else None
        for place, piece in enumerate(
            pieces(table, room) if table and section.wrap == 0 else filter(None, [table])
        ):
            if place:
                screen.data("")
            screen.table([column.title for column in piece.columns], piece.rows, wrap=section.wrap)
        for line in section.after:
            screen.data(fold(f"  {shortened(line, LONGEST)}", room))
