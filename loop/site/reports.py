"""The stored report of a session as a page of the site: with its figures, without links that lead out of it."""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from loop.report.figures.svg import Figure
from loop.report.html import page
from loop.report.html.inline import inline
from loop.site.drawings import drawing
from loop.site.names import stem
from loop.site.plain import clean

LARGEST = 2**20
"""Characters of a report that are read."""
MOST_FIGURES = 12
"""Figures of one report that are shown; loop draws five kinds."""
_FIGURE = re.compile(r"^!\[(.*)\]\((figures/[A-Za-z][\w-]{0,60}\.svg)\)$", re.MULTILINE)
_LINK = re.compile(r'<a href="(?!#)[^"]*">(.*?)</a>', re.DOTALL)
CHAIN = "figures/chain.svg"
"""Stands where the Markdown has a flowchart."""


@dataclass(frozen=True)
class Missing(Figure):
    """What is said of a figure that is not there, or is not loop's."""

    @property
    def inline(self) -> str:
        """Words in its place."""
        return f"<p>Figure: {self.description}</p>"


def report_page(templates: Path, report: Path, status: str) -> str:
    """HTML of a report that is stored as Markdown, with the figures beside it.

    `templates`: the folder of report.html.j2; `report`: a path without links in it. Raises OSError where it cannot
    be read.
    """
    text = clean(report.read_text(encoding="utf-8", errors="replace"), LARGEST)
    made = page(templates, text, _figures(report.parent, text), status)
    session = report.parent.name
    back = f'<p><a href="{stem(session)}.html">{escape(session)}</a> in the catalogue</p>'
    return _LINK.sub(r"\1", made).replace("<header>", f"<header>\n{back}", 1)


def _figures(folder: Path, text: str) -> list[Figure]:
    """Every figure that the report names, and its chain; words in the place of one that cannot be shown."""
    named = {path: alt for alt, path in reversed(_FIGURE.findall(text))}
    chain = drawing(folder, CHAIN)
    found = [drawing(folder, path) or _missing(path, named[path]) for path in list(named)[-MOST_FIGURES:]]
    return [*found, *([chain] if chain and CHAIN not in named else [])]


def _missing(path: str, alt: str) -> Missing:
    return Missing(Path(path).stem, "a figure that is not there", inline(alt), 1, 1, "")
