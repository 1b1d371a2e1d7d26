"""The stored report of a session as a page of the site: without figures, and without links that lead out of it."""

import re
from pathlib import Path

from loop.report.catalogue.plain import clean
from loop.report.html import page

LARGEST = 2**20
"""Characters of a report that are read."""
_FIGURE = re.compile(r"^!\[(.*)\]\([^)\s]*\)$", re.MULTILINE)
_LINK = re.compile(r"(?<![!\\])\[([^\[\]]*)\]\((?!#)[^()\s]*\)")


def report_page(templates: Path, report: Path, status: str) -> str:
    """HTML of a report that is stored as Markdown; what it says of each figure stands in the figure's place.

    `templates`: the folder of report.html.j2. Raises OSError where the report cannot be read.
    """
    text = clean(report.read_text(encoding="utf-8", errors="replace"), LARGEST)
    return page(templates, _LINK.sub(r"\1", _FIGURE.sub(r"Figure: \1", text)), (), status)
