"""A Markdown table as an HTML one that can be sorted, in a box of its own that scrolls where it is too wide."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from loop.report.html.inline import inline
from loop.report.html.sorting import sort_value

_CELL = re.compile(r"(?:\\.|[^|\\])*")
_LETTERS = re.compile("[\u2581-\u2593]")
"""Of a bar or a curve made of letters."""
WORDS = {
    **dict.fromkeys(("passed", "faster", "kept", "right", "yes"), "good"),
    **dict.fromkeys(("failed", "slower", "incorrect", "wrong", "aborted"), "bad"),
    **dict.fromkeys(("skipped", "inconclusive", "same", "paused", "invalid"), "soft"),
}
"""First words of cells that are marked; the word itself says it."""


def table(lines: Sequence[str], label: str) -> str:
    """The table of these lines: heads, rule, rows. `label`: what a screen reader calls its box, escaped."""
    heads, rule, *rows = [cells(line) for line in lines]
    right = [place.strip().endswith(":") for place in rule]
    top = "".join(f'<th scope="col"{_kind(place, right)}>{inline(head)}</th>' for place, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(_row(row, right))}</tr>" for row in rows)
    kind = ' class="sortable"' if len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        f"<table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def cells(line: str) -> list[str]:
    """Cells of a line: what is between the bars that no backslash escapes."""
    found, at = [], 1
    while at < len(line):
        cell = _CELL.match(line, at)
        assert cell is not None  # It matches nothing at all, too.
        found.append(cell[0].strip())
        at = cell.end() + 1
    return found


def _sorted_by(cell: str, number: bool) -> float | None:
    """The number of a cell: of one that holds numbers, or the share that stands behind a bar."""
    bar = _LETTERS.search(cell)
    return sort_value(cell.rpartition(" ")[0].rpartition(" ")[2]) if bar else sort_value(cell) if number else None


def _kind(place: int, right: Sequence[bool]) -> str:
    return ' class="number"' if place < len(right) and right[place] else ""


def _row(row: Sequence[str], right: Sequence[bool]) -> Iterator[str]:
    for place, cell in enumerate(row):
        html = inline(cell)
        value = _sorted_by(cell, place < len(right) and right[place])
        by = f' data-sort="{value!r}"' if value is not None else ""
        word = WORDS.get(re.split(r"[ ,]", cell, maxsplit=1)[0]) if place else None
        shown = f'<span class="{escape(word)}">{html}</span>' if word else html
        kind = ' class="letters"' if _LETTERS.search(cell) else _kind(place, right)
        yield f"<td{kind}{by}>{shown}</td>"
