"""Renders Jinja2 templates: an unknown name is an error, and every value is escaped."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loop.report import markdown
from loop.report.markdown import Markdown, Table, escape_prose, keep_outer_spaces, shortened
from loop.report.sections import REPORT_LIMIT, sections_as_markdown


def make_environment(
    templates: Path, *, autoescape: bool = True, finalize: Callable[[Any], Any] | None = None
) -> Environment:
    """A Jinja2 environment for `templates`. A line with only a block leaves no blank line."""
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=autoescape,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def markdown_environment(templates: Path) -> Environment:
    """A Jinja2 environment for Markdown. Values go through one of these filters, or are escaped."""
    limit = REPORT_LIMIT
    env = make_environment(
        templates,
        autoescape=False,
        finalize=lambda value: (  # A value without a filter is prose; a space at either end stays.
            value
            if isinstance(value, Markdown)
            else Markdown(keep_outer_spaces(str(value), escape_prose))
        ),
    )
    filters: dict[str, Callable[..., str]] = {
        "text": lambda text: escape_prose(shortened(text, limit.characters)),
        "line": lambda text: markdown.escape_paragraph(shortened(text, limit.characters)),
        "code": lambda text: markdown.inline_code(shortened(text, limit.characters)),
        "block": markdown.fenced_block,
        "table": partial(Table.markdown, max_rows=limit.rows, max_characters=limit.characters),
        "sections": partial(sections_as_markdown, limit=limit),
        "figure": lambda figure: markdown.image(figure.title, figure.description, figure.path),
    }
    for name, call in filters.items():  # Their results are Markdown: not escaped again.
        env.filters[name] = lambda *texts, call=call, **named: Markdown(call(*texts, **named))
    return env
