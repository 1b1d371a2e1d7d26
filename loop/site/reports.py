"""The stored report of a session as a page of the site: with its figures, without links that lead out of it."""

import base64
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from loop.report.figures.svg import Figure
from loop.report.html import inline, page
from loop.site.plain import clean, stem

LARGEST = 2**20
"""Characters of a report that are read."""
_FIGURE = re.compile(r"^!\[(.*)\]\((figures/[A-Za-z][\w-]{0,60}\.svg)\)$", re.MULTILINE)
_LINK = re.compile(r'<a href="(?!#)[^"]*">(.*?)</a>', re.DOTALL)


@dataclass(frozen=True)
class Stored(Figure):
    """A figure as its file has it, in an <img>: whatever stands there neither runs nor loads anything."""

    data: bytes = b""
    """Empty where there is no such file."""

    @property
    def inline(self) -> str:
        """The picture; where there is none, what it would show."""
        if not self.data:
            return f"<p>Figure: {self.description}</p>"
        source = f"data:image/svg+xml;base64,{base64.b64encode(self.data).decode()}"
        return f'<img src="{source}" alt="{escape(self.title)}">'


def report_page(templates: Path, report: Path, status: str) -> str:
    """HTML of a report that is stored as Markdown, with the figures beside it.

    `templates`: the folder of report.html.j2; `report`: a path without links in it. Raises OSError where it cannot
    be read.
    """
    text = clean(report.read_text(encoding="utf-8", errors="replace"), LARGEST)
    html = page(templates, text, _figures(report.parent, text), status)
    session = report.parent.name
    back = f'<p><a href="{stem(session)}.html">{escape(session)}</a> in the catalogue</p>'
    html = html.replace("; base-uri", "; img-src data:; base-uri", 1)
    return _LINK.sub(r"\1", html).replace("<header>", f"<header>\n{back}", 1)


def ratio_figure(report: Path) -> str:
    """HTML of the ratios that a stored report shows; empty where it has no such figure."""
    data = _data(report.parent / "figures/ratios.svg")
    return Stored("ratios", "Ratio by workload, as the report has it", "", 1, 1, "", data).inline if data else ""


def _figures(folder: Path, text: str) -> list[Figure]:
    """Every figure that the report names; words in the place of one that is not there."""
    named = {path: alt for alt, path in reversed(_FIGURE.findall(text))}
    return [Stored(Path(n).stem, alt, inline(alt), 1, 1, "", _data(folder / n)) for n, alt in named.items()]


def _data(file: Path) -> bytes:
    """What a file holds; nothing where there is none."""
    return file.read_bytes() if file.is_file() else b""
