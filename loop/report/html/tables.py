"""A Markdown table as an HTML one that can be sorted, in a box of its own that scrolls where it is too wide."""

import re
from collections.abc import Callable

from markdown_it.tree import SyntaxTreeNode

from loop.base.statuses import kind

_TIMES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_JOULES = {"nJ": 1e-9, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0}
_BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS = _TIMES | _JOULES | _BYTES
_NUMBER = re.compile(
    r"^[<>]?(?P<sign>-?)\$?(?P<digits>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)x?(?:$|\s+(?P<unit>[^\s\[]*))"
)
_MINUTES = re.compile(r"^(\d+) min (\d+) s$")


def sort_value(cell: str) -> float | None:
    """The number of a cell, in seconds, joules or bytes where it has such a unit; None for words."""
    minutes = _MINUTES.match(cell)
    if minutes:
        return 60.0 * int(minutes[1]) + int(minutes[2])
    found = _NUMBER.match(cell)
    if found is None:
        return None
    value = float(found["digits"].replace(",", "")) * UNITS.get(found["unit"] or "", 1.0)
    return -value if found["sign"] else value


_FIRST = re.compile("[a-z]+")
_LETTERS = re.compile("[\u2581-\u2593]")
"""Of a bar or a curve made of letters."""


def table(read: SyntaxTreeNode, label: str, inside: Callable[[SyntaxTreeNode], str]) -> str:
    """A table as markdown-it read it.

    `label`: what a screen reader calls its box, escaped. `inside`: the HTML of a cell's text.
    """
    head, *bodies = read.children
    rows = [row.children for body in bodies for row in body.children]
    top = "".join(f'<th scope="col"{_class(cell)}>{inside(cell)}</th>' for cell in head.children[0].children)
    cells = ["".join(_cell(cell, place, inside(cell)) for place, cell in enumerate(row)) for row in rows]
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    sortable = ' class="sortable"' if len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        f"<table{sortable}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _is_number(cell: SyntaxTreeNode) -> bool:
    return cell.attrs.get("style") == "text-align:right"


def _class(cell: SyntaxTreeNode) -> str:
    return ' class="number"' if _is_number(cell) else ""


def _cell(cell: SyntaxTreeNode, place: int, html: str) -> str:
    text = cell.children[0].content
    letters = _LETTERS.search(text)
    value = sort_value(text.rpartition(" ")[0].rpartition(" ")[2]) if letters else None
    if not letters and _is_number(cell):
        value = sort_value(text)
    by = f' data-sort="{value!r}"' if value is not None else ""
    word = kind(text) if place else ""
    first = _FIRST.match(html)
    shown = f'<span class="{word}">{first[0]}</span>{html[first.end() :]}' if word and first else html
    cls = ' class="letters"' if letters else _class(cell)
    return f"<td{cls}{by}>{shown}</td>"
