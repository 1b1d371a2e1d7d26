"""Text through a template: Jinja2 with every unknown name an error, and never more than fits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loop.report import markdown
from loop.report.markdown import Chapter, Markdown
from loop.report.plain import shortened

LARGEST = 2**20
"""Bytes of a report: code hosts show no larger file."""
CUT = "\nThe rest is left out, for a report is at most 1 MiB: `journal.jsonl` and `record.json` have all of it.\n"


@dataclass(frozen=True)
class Room:
    """How much of anything is shown before the rest is left to the records."""

    rows: int
    """Of a table."""
    letters: int
    """Of a text."""
    lines: int
    """Of a log."""


ROOMS = (Room(1000, 4000, 400), Room(200, 600, 60), Room(40, 200, 10))
"""Tried in this order until the report is small enough."""


def fitted(render: Callable[[Room], str]) -> str:
    """The fullest text that is not too large; the narrowest one cut at the end of a line where none is."""
    text = ""
    for room in ROOMS:
        text = render(room)
        if len(text.encode()) <= LARGEST:
            return text
    return _cut(text)


def _cut(text: str) -> str:
    """Whole lines as far as they fit, with whatever they opened closed."""
    kept = text.encode()[: LARGEST - 2 * markdown.LONGEST_LINE].decode(errors="ignore").rpartition("\n")[0]
    fence = _open_fence(kept)
    closed = f"\n{fence}" if fence else ""
    folded = "\n\n</details>\n" if kept.count("\n<details>\n") > kept.count("\n</details>") else ""
    return f"{kept}{closed}{folded}\n{CUT}"


def _open_fence(text: str) -> str:
    """The backticks of a block that is not closed; empty where there is none."""
    fence = ""
    for line in text.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if len(ticks) >= 3 and not fence:
            fence = ticks
        elif fence and line == ticks and len(ticks) >= len(fence):
            fence = ""
    return fence


def jinja(
    templates: Path, *, autoescape: bool = True, finalize: Callable[[Any], Any] | None = None
) -> Environment:
    """Jinja2 for the templates of a folder; a line that holds a block alone leaves nothing."""
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=autoescape,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def environment(templates: Path, room: Room = ROOMS[0]) -> Environment:
    """For Markdown: what a template prints goes through one of these filters, or is escaped."""
    made = jinja(templates, autoescape=False, finalize=markdown.printed)
    filters: dict[str, Callable[..., str]] = {
        "text": lambda text: markdown.prose(shortened(text, room.letters)),
        "line": lambda text: markdown.paragraph(shortened(text, room.letters)),
        "code": lambda text: markdown.code(shortened(text, room.letters)),
        "block": markdown.block,
        "log": partial(markdown.block, language="text", most=room.lines),
        "summary": lambda text: escape(shortened(text, room.letters)),
        "table": partial(markdown.table, most=room.rows, letters=room.letters),
        "chapter": partial(_chapter, room=room),
        "figure": lambda figure: markdown.picture(figure.title, figure.description, figure.path),
    }
    made.filters |= {name: _marked(filter_) for name, filter_ in filters.items()}
    return made


def _chapter(one: Chapter, room: Room) -> str:
    """A chapter below the heading of its fold."""
    lines = "\n".join(f"- {markdown.prose(shortened(line, room.letters))}" for line in one.lines)
    rows = markdown.table(one.table, room.rows, room.letters) if one.table else ""
    parts = (f"### {markdown.prose(one.title)}", lines, one.note if one.table else "", rows)
    return "\n\n".join(filter(None, parts))


def _marked(filter_: Callable[..., str]) -> Callable[..., Markdown]:
    """The same filter; what it makes is Markdown."""
    return lambda *texts, **options: Markdown(filter_(*texts, **options))
