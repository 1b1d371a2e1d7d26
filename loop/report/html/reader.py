"""Markdown to HTML: markdown-it reads CommonMark with tables, and passes no HTML of a text on.

Beyond that it makes headings with anchors, sortable tables, figures in place of their images, and folds.
"""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.tree import SyntaxTreeNode

from loop.report.figures.svg import Figure
from loop.report.html.tables import table

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
    return f'<pre tabindex="0"><code>{escape(tokens[at].content.removesuffix(chr(10)))}</code></pre>'


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
