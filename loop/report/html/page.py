"""One page: content, style, script and figures in a single file; its own policy forbids it everything else."""

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from loop.base.statuses import css, kind
from loop.report.figures.svg import STYLE, Figure
from loop.report.templates import jinja

TEMPLATE, CSS, SCRIPT = "report.html.j2", "report.css", "report.js"


def page(templates: Path, markdown: str, figures: Sequence[Figure], status: str) -> str:
    """The report as HTML. `markdown`: the report as it is in Markdown; `status`: how the session ended."""
    from loop.report.html.reader import body  # Here: a command without a page need not wait for markdown-it.

    content = body(markdown, figures)
    style = css() + (templates / CSS).read_text() + STYLE
    script = (templates / SCRIPT).read_text()
    return (
        _jinja(templates)
        .get_template(TEMPLATE)
        .render(
            title=Markup(content.title),
            verdict=Markup(content.verdict),
            kind=kind(status),
            content=Markup("\n".join(content.content)),
            style=Markup(style),
            script=Markup(script),
            policy=policy(style, script),
        )
    )


def policy(style: str, script: str) -> str:
    """What the page may do: this very style and this very script, and nothing from anywhere."""
    sources = f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_jinja = functools.cache(jinja)
