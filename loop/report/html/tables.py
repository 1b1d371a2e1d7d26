"""A Markdown table as an HTML one that can be sorted, in a box of its own that scrolls where it is too wide."""

import re
from collections.abc import Callable
from html import escape

from markdown_it.tree import SyntaxTreeNode

from loop.report.html.sorting import sort_value

_LETTERS = re.compile("[\u2581-\u2593]")
"""Of a bar or a curve made of letters."""
WORDS = {
    **dict.fromkeys(("passed", "faster", "kept", "right", "yes"), "good"),
    **dict.fromkeys(("failed", "slower", "incorrect", "wrong", "aborted"), "bad"),
    **dict.fromkeys(("skipped", "inconclusive", "same", "paused", "invalid"), "soft"),
}
"""First words of cells that are marked; the word itself says it."""


def table(read: SyntaxTreeNode, label: str, inside: Callable[[SyntaxTreeNode], str]) -> str:
    """A table as markdown-it read it.

    `label`: what a screen reader calls its box, escaped. `inside`: the HTML of a cell's text.
    """
    head, *bodies = read.children
    rows = [row.children for body in bodies for row in body.children]
    top = "".join(f'<th scope="col"{_kind(cell)}>{inside(cell)}</th>' for cell in head.children[0].children)
    cells = ["".join(_cell(cell, place, inside(cell)) for place, cell in enumerate(row)) for row in rows]
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    kind = ' class="sortable"' if len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        f"<table{kind}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _is_number(cell: SyntaxTreeNode) -> bool:
    return cell.attrs.get("style") == "text-align:right"


def _kind(cell: SyntaxTreeNode) -> str:
    return ' class="number"' if _is_number(cell) else ""


def _cell(cell: SyntaxTreeNode, place: int, html: str) -> str:
    text = cell.children[0].content
    letters = _LETTERS.search(text)
    value = sort_value(text.rpartition(" ")[0].rpartition(" ")[2]) if letters else None
    if not letters and _is_number(cell):
        value = sort_value(text)
    by = f' data-sort="{value!r}"' if value is not None else ""
    word = WORDS.get(re.split(r"[ ,]", text, maxsplit=1)[0]) if place else None
    shown = f'<span class="{escape(word)}">{html}</span>' if word else html
    kind = ' class="letters"' if letters else _kind(cell)
    return f"<td{kind}{by}>{shown}</td>"
