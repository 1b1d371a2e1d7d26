"""Stored reports as pages of the site: their figures are drawn again, and nothing else of a folder comes along."""

import os
from pathlib import Path

import pytest

from loop.base.places import shipped
from loop.report.figures.svg import drawn, text
from loop.site import drawings
from loop.site.reports import MOST_FIGURES, report_page
from tests.session.golden_sessions import SESSIONS
from tests.session.test_golden import rendered
from tests.site.catalogues import Page

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


@pytest.mark.parametrize("name", SESSIONS)
def test_every_figure_of_a_report_is_drawn(name: str, tmp_path: Path) -> None:
    """As in the report's own page; what loop draws is all taken over."""
    made = rendered(name)
    (tmp_path / "figures").mkdir()
    (tmp_path / "report.md").write_text(made.text)
    for figure in made.figures:
        (tmp_path / figure.path).write_text(figure.file)
        assert figure == drawings.drawing(Path(os.path.realpath(tmp_path)), figure.path)
    page = shown(tmp_path / "report.md")
    assert made.figures
    assert all(figure.inline in page for figure in made.figures)
    assert "Figure: " not in page
    assert [] == Page(page).wrong


def test_a_figure_keeps_its_words(tmp_path: Path) -> None:
    """Marks in them stay marks."""
    figure = drawn("a", "a < b & c", "d > e", 100, [text(1, 2, "x <b> y")])
    page = shown(make_report(tmp_path, figure.file))
    assert figure.inline in page


HOSTILE = {
    "script": svg("<script>alert(1)</script>"),
    "handler": svg('<rect width="1" height="1" onclick="alert(1)"/>'),
    "style": svg('<rect style="fill:url(http://evil.example)"/>'),
    "address": svg('<rect fill="url(http://evil.example/x)"/>'),
    "link": svg('<a href="javascript:alert(1)"><text x="1" y="1">x</text></a>'),
    "image": svg('<image href="http://evil.example/x.png"/>'),
    "use": svg('<use href="#x"/>'),
    "foreign": svg("<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'>x</body></foreignObject>"),
    "other space": svg("<h:img xmlns:h='http://www.w3.org/1999/xhtml' src='x'/>"),
    "nested": svg("<text><title><script>1</script></title></text>"),
    "attribute of another space": svg('<text xmlns:x="http://www.w3.org/1999/xlink" x:href="http://e">1</text>'),
    "breaks out": svg('<rect class="&quot;&gt;&lt;img src=x onerror=alert(1)&gt;"/>'),
    "entity": '<!DOCTYPE svg [<!ENTITY a "b">]>' + svg("<text>&a;</text>"),
    "torn": svg("<text>x</text>")[:-9],
    "no figure": "<html/>",
    "endless": svg("", 'width="1e999" height="10"'),
    "no number": svg("", 'width="nan" height="10"'),
    "too wide": svg("", 'width="1000000" height="10"'),
    "deep": svg("<text>" * 30_000 + "</text>" * 30_000),
    "large": svg(f"<text>{'x' * drawings.LARGEST}</text>"),
    "empty": "",
    "missing": None,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_figure_of_loops_is_words(name: str, tmp_path: Path) -> None:
    """None of it reaches the page; what it would show is said."""
    page = shown(make_report(tmp_path, HOSTILE[name]))
    assert f"<p>Figure: {WORDS}</p>" in page
    assert "<svg" not in page
    for mark in ("evil.example", "alert(1)", "xxxxxxxx"):
        assert mark not in page


def test_a_text_in_a_figure_is_text(tmp_path: Path) -> None:
    """Marks, escapes and marks that turn a line round do nothing."""
    page = shown(
        make_report(tmp_path, svg("<text x='1' y='2'>&lt;img src=x onerror=alert(1)&gt; \u202eturned</text>"))
    )
    found = Page(page)
    assert ([], 0, []) == (found.handlers, found.tags.count("img"), found.wrong)
    assert "<img src=x onerror=alert(1)>" in found.text
    assert "\u202e" not in page


@pytest.mark.parametrize("what", ["file", "folder", "pipe"])
def test_a_figure_outside_its_folder_is_not_read(what: str, tmp_path: Path) -> None:
    """No link is followed, and nothing waits for a pipe."""
    (tmp_path / "session").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.svg").write_text(svg("<text>secret</text>"))
    report = make_report(tmp_path / "session", None)
    if what == "file":
        (report.parent / "figures" / "a.svg").symlink_to(tmp_path / "out" / "a.svg")
    elif what == "pipe":
        os.mkfifo(report.parent / "figures" / "a.svg")
    else:
        (report.parent / "figures").rmdir()
        (report.parent / "figures").symlink_to(tmp_path / "out")
    page = shown(report)
    assert "secret" not in page
    assert WORDS in page


def test_a_page_has_only_so_many_figures(tmp_path: Path) -> None:
    """The first of them."""
    names = [f"figures/f{number}.svg" for number in range(MOST_FIGURES + 5)]
    report = make_report(tmp_path, None, "# T\n\nPassed.\n\n" + "\n\n".join(f"![w]({name})" for name in names))
    for name in names:
        (tmp_path / name).write_text(svg("<text>x</text>"))
    page = shown(report)
    assert MOST_FIGURES == page.count("<svg")
    assert 'id="f0-title"' in page


def test_the_way_back(tmp_path: Path) -> None:
    """To the page of its session; other links lead nowhere, for what they lead to is not in the site."""
    (tmp_path / "s1").mkdir()
    markdown = "# T\n\nPassed: [samples](samples/a.json), [here](#t), [out](https://example.org).\n"
    found = Page(shown(make_report(tmp_path / "s1", None, markdown)))
    assert ["#content", "s1.html", "#t"] == found.links
    assert "Passed: samples, here, out." in " ".join(found.text.split())
