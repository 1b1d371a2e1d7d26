"""Renders Jinja2 templates: an unknown name is an error, and every value is escaped."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loop.report import markdown
from loop.report.markdown import Markdown, Table, shortened
from loop.report.sections import ROOMS, SizeLimit, in_markdown


def jinja(
    templates: Path, *, autoescape: bool = True, finalize: Callable[[Any], Any] | None = None
) -> Environment:
    """A Jinja2 environment for a folder of templates. A line that holds only a block leaves no blank line."""
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=autoescape,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def environment(templates: Path, room: SizeLimit = ROOMS[0]) -> Environment:
    """A Jinja2 environment for Markdown. Values go through one of these filters, or are escaped."""
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
    for name, filter_ in filters.items():  # Their results are Markdown: not escaped again.
        env.filters[name] = lambda *texts, filter_=filter_, **options: Markdown(filter_(*texts, **options))
    return env
