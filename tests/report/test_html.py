"""The report as a page and its figures: no foreign markup, no endless lines."""

import base64
import hashlib
import re
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from loop.base.places import shipped
from loop.report.figures import Figure, draw_ratios
from loop.report.html import READER, render_page
from loop.report.markdown import plain_text, shortened
from loop.session.page import View, render_session
from tests.makers import (
    make_check,
    make_finished,
    make_machine,
    make_measured,
    make_measurement,
    make_no_speed,
    make_pattern,
    make_plan,
    make_record,
    make_session_head,
    make_speed,
    make_verify,
)
from tests.session.golden_sessions import SESSIONS
from tests.session.golden_steps import profile, profile_step
from tests.session.test_golden import rendered
from tests.site.catalogues import Page

HOSTILE = (
    "</script></style></title><script>alert(1)</script><img src=x onerror=alert(2)>\n"
    "| a | `b` **c** [d](javascript:e)\n"
    "\x1b[31mred\x1b[0m \x00 \u202e {{ 7*7 }} {% raw %} &lt;b&gt; ]]> --> ```\n</details>\n<svg onload=alert(3)>"
)
COMMONMARK = MarkdownIt("commonmark", {"html": True}).enable("table")


def tokens(text: str) -> Iterator[Token]:
    """Every piece of a report, as a renderer reads it."""
    for token in COMMONMARK.parse(text):
        yield token
        yield from token.children or ()


def hostile() -> tuple[str, tuple[Figure, ...]]:
    """A session in which every text is an attack."""
    pattern = make_pattern("baseline-first", ("verify", "measure"), title=HOSTILE, next=())
    head = make_session_head(
        id=HOSTILE,
        plan=make_plan(pattern),
        machine=make_machine(name=HOSTILE, gpus=(HOSTILE,)),
        device="cuda",
        baseline=HOSTILE,
        variants=(HOSTILE,),
    )
    parts = {"B": [{"first": 0, "last": 1, "count": 1, "largest": None}]}
    wrong = make_verify(make_check(HOSTILE, right=False, message=HOSTILE, map=parts), variant="other")
    steps = [
        make_finished(output=wrong, status="failed", message=HOSTILE, hint=HOSTILE),
        make_finished(
            "measure", output=make_measured(make_measurement(HOSTILE, variant=HOSTILE)), message=HOSTILE
        ),
        make_finished("broken", status="failed", output={"traceback": HOSTILE}, message="it broke"),
        profile_step(profile(HOSTILE, HOSTILE)),
    ]
    texts = {"reason": HOSTILE, "grade": HOSTILE, "grade_reason": HOSTILE}
    texts |= {"learnings": (HOSTILE,), "not_exercised": (HOSTILE,)}
    verdicts = [make_speed(HOSTILE, variant=HOSTILE), make_no_speed(HOSTILE, variant="other")]
    record = make_record(head, verdicts, status="failed", proposal=HOSTILE, **texts)
    return render_session(shipped("templates"), View(record, steps))


def test_no_text_of_a_record_becomes_an_element_of_the_page() -> None:
    """Neither in the content nor in a figure, an attribute, the title or the script."""
    report = hostile()
    assert 1 == len(report[1])
    read = Page(render_page(shipped("templates"), *report, "failed"))
    names = [name for name, _ in read.elements]
    assert 1 == names.count("script")
    assert 1 == names.count("style")
    assert 0 == names.count("img")
    assert all(not key.startswith("on") for _, attributes in read.elements for key in attributes)
    assert {True} == {str(values.get("href", "#")).startswith("#") for _, values in read.elements}
    assert [] == read.wrong
    assert "alert(1)" in read.text


def test_no_text_of_a_record_becomes_html_of_the_markdown() -> None:
    """A code host renders only loop's own elements, images and links; control characters are removed."""
    text = hostile()[0]
    html = "".join(token.content for token in tokens(text) if token.type.startswith("html"))
    assert set() == set(re.findall(r"<(/?\w+)", html)) - {"details", "summary", "/details", "/summary"}
    assert [] == [token for token in tokens(text) if token.type == "link_open"]
    assert {True} == {str(t.attrs["src"]).startswith("figures/") for t in tokens(text) if t.type == "image"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    assert "{{ 7*7 }}" in text


def test_the_page_allows_itself_its_own_style_and_script_only() -> None:
    """The policy names their digests; nothing else is inline, and nothing is loaded."""
    report = rendered("gpu")
    text = render_page(shipped("templates"), *report, SESSIONS["gpu"]().record.status)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    for name in ("style", "script"):
        inside = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        assert inside
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{name}-src &#39;sha256-{digest}&#39;" in policy[1]
    elements = Page(text).elements
    assert [] == [element for element in elements if {"src", "style"} & element[1].keys()]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("a <code>b*c</code> <strong>d <code>e</code></strong>", "a `b*c` **d `e`**"),
        ("&lt;b&gt; | * &amp;lt;", r"&lt;b> \| \* &amp;lt;"),
        ("<code>a`b</code> <code>`a</code>", "``a`b`` `` `a ``"),
        ("<strong><code>a`**b</code> *</strong>", r"**``a`**b`` \***"),
        ('<a href="a/b.md">x</a>', "[x](a/b.md)"),
        ("[x](javascript:y)", "[x](javascript:y)"),
        ("&lt;script&gt;", "<script>"),
    ],
)
def test_a_line_of_markdown_becomes_html(expected: str, text: str) -> None:
    """Code, bold, escapes and safe links are markup; nothing else is."""
    assert expected == READER.renderInline(text)


def test_no_text_of_a_record_becomes_an_element_of_a_figure() -> None:
    """A file behind an <img> runs no script, but may be opened by itself."""
    for figure in hostile()[1]:
        read = Page(figure.file)
        allowed = {"svg", "title", "desc", "style", "rect", "line", "path", "circle", "text"}
        assert set() == {name for name, _ in read.elements} - allowed
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", figure.file)


def test_no_text_of_a_record_makes_a_line_or_a_figure_without_end() -> None:
    """Names, titles and a grade of 100 kB: in tables, headings, descriptions and drawings."""
    long = "y" * 100_000
    pattern = make_pattern("baseline-first", ("verify", "measure"), title=long, next=())
    head = make_session_head(plan=make_plan(pattern), baseline=long, variants=(long,))
    steps = [
        make_finished(output=make_verify(make_check(long), variant=long)),
        make_finished("measure", output=make_measured(make_measurement(long, variant=long))),
        profile_step(profile(long, long)),
    ]
    record = make_record(head, [make_speed(long, variant=long)], reason=long, grade=long)
    report = render_session(shipped("templates"), View(record, steps))
    assert 50_000 > max(map(len, report[0].splitlines()))
    assert 1 == len(report[1])
    assert 100_000 > max(len(figure.file) for figure in report[1])


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("short enough", "short enough"),
        ("one two three...", "one two three four five"),
        ("quick, edges...", "quick, edges: `loop kernels verify mine`"),
        ("`loop run` and...", "`loop run` and some more"),
        ("x" * 15 + "...", "x" * 30),
    ],
)
def test_a_text_is_cut_after_a_word_and_never_in_a_command(expected: str, text: str) -> None:
    """A command that is cut cannot be pasted."""
    assert expected == shortened(text, 18)


@pytest.mark.parametrize(
    ("expected", "raw"),
    [
        ("red", "\x1b[31mred\x1b[0m"),
        ("title", "\x1b]0;evil\x07title"),
        ("a\nb", "a\r\nb"),
        ("a b", "a\x00b"),
        ("a  b", "a\u202e\u2066b"),
        ("a b", "a\ud800b"),
        (" [31", "\x1b[31"),
    ],
)
def test_what_a_terminal_would_act_on_is_gone(expected: str, raw: str) -> None:
    """Colours, titles, directions of writing, halves of letters."""
    assert expected == plain_text(raw)


def test_a_variant_that_is_wrong_anywhere_is_not_on_the_figure() -> None:
    """It has no speed."""
    assert draw_ratios([make_speed("w0"), make_no_speed("w1")], "library") is None
