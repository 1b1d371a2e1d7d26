"""The report as one HTML file that needs nothing else: what the Markdown says, with its figures inside.

markdown-it reads CommonMark with tables, and passes no HTML of a text on. Beyond that it makes headings with
anchors, sortable tables, figures in place of their images, and folds.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.tree import SyntaxTreeNode
from markupsafe import Markup

from loop.base.statuses import css, kind
from loop.report.figures.svg import STYLE, Figure
from loop.report.templates import jinja

_TIMES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_JOULES = {"nJ": 1e-9, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0}
_BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS = _TIMES | _JOULES | _BYTES
_NUMBER = re.compile(
    r"^[<>]?(?P<sign>-?)\$?(?P<digits>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)x?(?:$|\s+(?P<unit>[^\s\[]*))"
)
_MINUTES = re.compile(r"^(\d+) min (\d+) s$")


def sort_value(cell: str) -> float | None:
    """The number of a cell, in seconds, joules or bytes where it has such a unit; None for words."""
    minutes = _MINUTES.match(cell)
    if minutes:
        return 60.0 * int(minutes[1]) + int(minutes[2])
    found = _NUMBER.match(cell)
    if found is None:
        return None
    value = float(found["digits"].replace(",", "")) * UNITS.get(found["unit"] or "", 1.0)
    return -value if found["sign"] else value


_FIRST = re.compile("[a-z]+")
_LETTERS = re.compile("[\u2581-\u2593]")
"""Of a bar or a curve made of letters."""


def table(read: SyntaxTreeNode, label: str, inside: Callable[[SyntaxTreeNode], str]) -> str:
    """A table as markdown-it read it.

    `label`: what a screen reader calls its box, escaped. `inside`: the HTML of a cell's text.
    """
    head, *bodies = read.children
    rows = [row.children for body in bodies for row in body.children]
    top = "".join(f'<th scope="col"{_class(cell)}>{inside(cell)}</th>' for cell in head.children[0].children)
    heads = [_words(inside(cell)) for cell in head.children[0].children]
    cells = [
        "".join(_cell(cell, place, inside(cell), heads[place]) for place, cell in enumerate(row)) for row in rows
    ]
    lines = "".join(f"<tr>{row}</tr>" for row in cells)
    sortable = ' class="sortable"' if len(rows) > 1 else ""
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">'
        f"<table{sortable}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _is_number(cell: SyntaxTreeNode) -> bool:
    return cell.attrs.get("style") == "text-align:right"


def _class(cell: SyntaxTreeNode) -> str:
    return ' class="number"' if _is_number(cell) else ""


def _cell(cell: SyntaxTreeNode, place: int, html: str, head: str) -> str:
    """A cell that knows its column's head: a narrow page shows each row as a list of both."""
    text = cell.children[0].content
    letters = _LETTERS.search(text)
    value = sort_value(text.rpartition(" ")[0].rpartition(" ")[2]) if letters else None
    if not letters and _is_number(cell):
        value = sort_value(text)
    by = f' data-sort="{value!r}"' if value is not None else ""
    word = kind(text) if place else ""
    first = _FIRST.match(html)
    shown = f'<span class="{word}">{first[0]}</span>{html[first.end() :]}' if word and first else html
    cls = ' class="letters"' if letters else _class(cell)
    return f'<td{cls}{by} data-head="{head}"><span>{shown}</span></td>'


_SAFE = re.compile(r"https?://|#|[\w./-]+(?:$|[?#])")
"""Where a link may lead: the web, this page, a file beside it."""
_FOLD = re.compile(r"</?details>|<summary>(?P<summary>.*)</summary>")


class _Reader(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - markdown-it calls it so.
        return bool(_SAFE.match(url))


@dataclass
class Body:
    """The page's content."""

    title: str = ""
    """HTML of the first heading."""
    verdict: str = ""
    """HTML of the first paragraph."""
    content: list[str] = field(default_factory=list)
    anchors: dict[str, str] = field(default_factory=dict)
    """Anchor of each heading and fold to its words."""
    tables: int = 0
    depth: int = 0
    """Folds that are open."""

    def anchor(self, html: str) -> str:
        """A new anchor for a heading, as an attribute."""
        words = _words(html)
        stem = re.sub(r"[^a-z0-9]+", "-", re.sub(r"&\w+;", "", words).lower()).strip("-") or "section"
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(self.anchors) + 3)))
        name = next(name for name in names if name not in self.anchors)
        self.anchors[name] = words
        return f'id="{name}"'


def body(markdown: str, figures: Sequence[Figure]) -> Body:
    """The content of a report."""
    made = Body()
    by_path = {one.path: one for one in figures}
    for block in SyntaxTreeNode(READER.parse(markdown)).children:
        _add(made, block, by_path)
    return made


def inline(text: str) -> str:
    """One paragraph's text as HTML."""
    return str(READER.renderInline(text))


def words(text: str) -> str:
    """One paragraph of Markdown as plain text."""
    pieces = READER.parseInline(text)[0].children or ()
    return "".join(" " if one.type == "softbreak" else one.content for one in pieces)


def _add(made: Body, block: SyntaxTreeNode, figures: Mapping[str, Figure]) -> None:
    """Put a block of the Markdown on the page."""
    if block.type == "heading":
        _add_heading(made, block)
    elif block.type == "fold":
        _add_fold(made, block.content)
    elif block.type == "table":
        made.tables += 1
        where = next(reversed(made.anchors.values()), _words(made.title))
        made.content.append(table(block, f"{where}, table {made.tables}", _inside))
    elif block.type == "paragraph" and (path := _picture(block)) in figures:
        made.content.append(figure(figures[path]))
    elif block.type == "paragraph" and not made.verdict and not made.anchors:
        made.verdict = _inside(block)
    else:
        made.content.append(READER.renderer.render(block.to_tokens(), READER.options, {}).strip())


def _add_heading(made: Body, block: SyntaxTreeNode) -> None:
    html = _inside(block)
    if block.tag == "h1" and not made.title:
        made.title = html
    else:
        tag = "h3" if block.tag not in ("h1", "h2") else "h2"
        made.content.append(f"<{tag} {made.anchor(html)}>{html}</{tag}>")


def _add_fold(made: Body, line: str) -> None:
    """An end of a fold, or its name, which is a heading where the fold is in no other."""
    tag = _FOLD.fullmatch(line)
    assert tag is not None  # The rule below made the token.
    html = line if tag["summary"] is None else inline(tag["summary"])
    made.depth += (line == "<details>") - (line == "</details>")
    if tag["summary"] is not None:
        html = f"<h2 {made.anchor(html)}>{html}</h2>" if made.depth == 1 else html
        html = f"<summary>{html}</summary>"
    made.content.append(html)


def _inside(block: SyntaxTreeNode) -> str:
    """The text of a block as HTML, without the element around it."""
    tokens = [token for child in block.children for token in child.to_tokens()]
    return str(READER.renderer.render(tokens, READER.options, {}))


def _picture(block: SyntaxTreeNode) -> str:
    """The path of the image that a paragraph consists of; empty for other paragraphs."""
    pieces = block.children[0].children
    return str(pieces[0].attrs["src"]) if [piece.type for piece in pieces] == ["image"] else ""


def _words(html: str) -> str:
    """HTML of a heading as an attribute's text."""
    return re.sub(r"<[^>]*>", "", html)


def figure(drawn: Figure) -> str:
    """A figure within the page; what it says in words goes with it for those who do not see it."""
    label = escape(drawn.title, quote=True)
    scroll = f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">{drawn.inline}</div>'
    return f"<figure>{scroll}</figure>"


def _fold(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A line that begins or ends a fold, or names it: the only HTML of a report."""
    line = state.src[state.bMarks[start] : state.eMarks[start]]
    tag = _FOLD.fullmatch(line)
    if tag and not silent:
        state.push("fold", "", 0).content = line
        state.line = start + 1
    return tag is not None


def _code_html(_: Any, tokens: Sequence[Any], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    cls = ' class="sh"' if tokens[at].info == "sh" else ""
    return f'<pre{cls} tabindex="0"><code>{escape(tokens[at].content.removesuffix(chr(10)))}</code></pre>'


def _text_html(_: Any, tokens: Sequence[Any], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    """Text, and the words of an image that is none of the figures: it is never loaded."""
    return escape(str(tokens[at].content))


def _tag_html(_: Any, tokens: Sequence[Any], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    """The elements of a list stand in one line."""
    return f"<{'/' if tokens[at].nesting < 0 else ''}{tokens[at].tag}>"


READER = _Reader("commonmark", {"html": False}).enable("table").disable("autolink")
READER.block.ruler.before("paragraph", "fold", _fold, {"alt": ["paragraph", "list"]})
READER.add_render_rule("fence", _code_html)
READER.add_render_rule("code_block", _code_html)
READER.add_render_rule("image", _text_html)
READER.add_render_rule("text", _text_html)
for _kind in ("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"):
    READER.add_render_rule(_kind, _tag_html)


TEMPLATE, CSS, SCRIPT = "report.html.j2", "report.css", "report.js"


def page(templates: Path, markdown: str, figures: Sequence[Figure], status: str) -> str:
    """The report as HTML. `markdown`: the report as it is in Markdown; `status`: how the session ended."""
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
