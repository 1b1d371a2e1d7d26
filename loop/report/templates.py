"""Text through a template: Jinja2 with every unknown name an error, and nothing printed as it is."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loop.report import markdown
from loop.report.markdown import Markdown, Table, shortened
from loop.report.sections import ROOMS, Room, in_markdown


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
    env = jinja(templates, autoescape=False, finalize=markdown.printed_value)
    filters: dict[str, Callable[..., str]] = {
        "text": lambda text: markdown.prose(shortened(text, room.letters)),
        "line": lambda text: markdown.paragraph(shortened(text, room.letters)),
        "code": lambda text: markdown.code(shortened(text, room.letters)),
        "block": markdown.block,
        "table": partial(Table.markdown, most=room.rows, letters=room.letters),
        "sections": partial(in_markdown, room=room),
        "figure": lambda figure: markdown.picture(figure.title, figure.description, figure.path),
    }
    for name, filter_ in filters.items():  # What each makes is Markdown.
        env.filters[name] = lambda *texts, filter_=filter_, **options: Markdown(filter_(*texts, **options))
    return env
