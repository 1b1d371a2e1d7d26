"""The catalogue's pages: whole, linked, safe with hostile records, and without network access."""

import re

import pytest

from loop.model.index import Judgement
from loop.site.catalog import clean_text, page_path, stem
from loop.store.sessions import IndexEntry
from tests.site.catalogues import HOSTILE, make_contents, make_hostile, make_row, read, site, target_of

SITES = {
    "empty": make_contents(patterns={}, plans={}),
    "no session": make_contents(),
    "two sessions": make_contents(make_row(), make_row("2026-11-22-120000-quick", ratios={"ours": 0.9})),
    "open and recorded": make_contents(
        make_row(status=None, grade="", ratios={}, runs=(), steps=()),
        make_row("recorded-1", status=None, recorded=True, started=None, runs=()),
        damaged=(IndexEntry("old", None, "session.json: damaged"),),
    ),
    "hostile": make_hostile(),
}


@pytest.mark.parametrize("name", SITES)
def test_every_page_is_whole_and_linked_and_needs_nothing_from_elsewhere(name: str) -> None:
    """Elements closed in order, unique ids, all levels of headings; each link has its page."""
    files, reached = site(SITES[name]), set()
    for path, page in read(files).items():
        assert [] == [*page.wrong, *page.handlers], path
        assert len(page.ids) == len(set(page.ids)), path
        assert (1, 1) == (page.headings[0], page.headings.count(1)), path
        steps = zip(page.headings, page.headings[1:], strict=False)
        assert all(after - before <= 1 for before, after in steps), path
        assert not {"iframe", "object", "embed", "base", "img"} & set(page.tags), path
        assert 1 == page.tags.count("script"), path
        assert not [link for link in page.links if re.match(r"(?i)\s*([a-z]+:)?//|javascript:", link)], path
        assert "#main" in page.links, path
        for link in {*page.links} - {"data:,", "#main"}:
            assert target_of(path, link) in files, (path, link)
            reached.add(target_of(path, link))
    assert set(files) == reached
    assert not re.search(r"(?i)https?://|url\(|@import", files["style.css"] + files["site.js"])


def test_hostile_text_is_shown_and_does_nothing() -> None:
    """Text is shown unchanged, without terminal or HTML effects."""
    files = site(make_hostile())
    shown = " ".join(read(files)["patterns/build.html"].text.split())
    assert "</script></title><img src=x onerror=alert(1)>\"' {{ 7*7 }} {% raw %} &amp; red back" in shown
    assert not [path for path, text in files.items() if re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)]
    assert clean_text("half \ud800 of one").encode().startswith(b"half ")


@pytest.mark.parametrize(
    "name", [HOSTILE, "../up", "/etc/passwd", "index", "INDEX", ".hidden", "a b", "", "x" * 200]
)
def test_a_page_is_a_plain_file_of_its_section(name: str) -> None:
    """A name from a record never leads out of the site, nor onto another page."""
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", stem(name))
    assert "index" != stem(name).lower()
    assert f"sessions/{stem(name)}.html" == page_path("sessions", name)


def test_a_kernel_page_lists_the_session_that_found_it_wrong() -> None:
    """The newest verdict comes first, also in the list of kernels; a wrong one has no ratio."""
    wrong = Judgement(variant="ours", build="b", seed=7, wrong=("N3 M5 float32, strided",))
    rows = (
        make_row("2026-11-21-120000-quick", right=("ours",)),
        make_row("2026-11-22-120000-edges", right=(), judged=(wrong,), ratios={}, status="failed"),
    )
    files = read(site(make_contents(*rows)))
    kernel, kernels = files["kernels/ours.html"].text, files["kernels/index.html"].text
    assert kernel.index("2026-11-22-120000-edges") < kernel.index("2026-11-21-120000-quick")
    assert "wrong" in kernel.partition("2026-11-22-120000-edges")[2].partition("2026-11-21")[0]
    assert "wrong" in kernels
    assert "1.50x" not in kernels
