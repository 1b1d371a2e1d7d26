"""Stored reports as pages of the site: their figures are images, and nothing else of a folder comes along."""

import base64
import os
import re
from pathlib import Path

from loop.base.places import shipped
from loop.site.pages import report_page

WORDS = "What it shows"


def make_report(
    folder: Path, svg: str | None, markdown: str = f"# Title\n\nPassed.\n\n![{WORDS}](figures/a.svg)\n"
) -> Path:
    """A session's folder with a report and, beside it, one figure."""
    (folder / "figures").mkdir()
    (folder / "report.md").write_text(markdown)
    if svg is not None:
        (folder / "figures" / "a.svg").write_text(svg)
    return folder / "report.md"


def shown(report: Path) -> str:
    """Its page."""
    return report_page(shipped("templates"), Path(os.path.realpath(report)), "passed")


def svg(inside: str, attributes: str = 'width="640" height="100"') -> str:
    """A file with this inside."""
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}><title>T</title><desc>D</desc>{inside}</svg>'


def pictures(page: str) -> list[str]:
    """What the images of a page hold."""
    return [
        base64.b64decode(data).decode() for data in re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    ]


def test_what_stands_in_a_figure_stays_in_its_image(tmp_path: Path) -> None:
    """A browser runs and loads nothing of an image, and nothing of it is in the page."""
    hostile = svg("<script>alert(1)</script><a href='http://evil.example'/>")
    page = shown(make_report(tmp_path, hostile))
    assert [hostile] == pictures(page)
    assert "alert(1)" not in page
    assert "img-src data:" in page
