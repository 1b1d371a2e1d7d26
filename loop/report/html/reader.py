"""Markdown to HTML: markdown-it reads CommonMark with tables, and passes no HTML of a text on.

Beyond that it makes sections with anchors, sortable tables, figures in place of their images, and folds.
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


@dataclass(frozen=True)
class Heading:
    """A heading of the second level: a section of the page."""

    anchor: str
    title: str
    """HTML."""


@dataclass
class Body:
    """The page's content, and what leads through it."""

    title: str = ""
    """HTML of the first heading."""
    verdict: str = ""
    """HTML of the first paragraph."""
    content: list[str] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    tables: int = 0
    section: bool = False
    """Whether a section is open."""
    folds: list[bool] = field(default_factory=list)
    """The folds that are open: whether each holds sections."""

    def end_section(self) -> None:
        """Close the section that is open."""
        if self.section:
            self.content.append("</section>")
        self.section = False


def body(markdown: str, figures: Sequence[Figure], chain: Figure | None = None) -> Body:
    """The content of a report. `chain` stands where the Markdown has a flowchart in Mermaid."""
    made = Body()
    by_path = {one.path: one for one in figures}
    blocks = SyntaxTreeNode(READER.parse(markdown)).children
    for place, block in enumerate(blocks):
        if block.type == "fold":
            _around_fold(made, block, blocks[place + 2 : place + 3])
        _add(made, block, by_path, chain)
    made.end_section()
    return made


def _around_fold(made: Body, fold: SyntaxTreeNode, second: Sequence[SyntaxTreeNode]) -> None:
    """A fold that begins with a heading holds whole sections: none reaches into it, or out of it."""
    if fold.content == "<details>":
        made.folds.append(bool(second) and second[0].type == "heading")
        if made.folds[-1]:
            made.end_section()
    elif fold.content == "</details>" and made.folds and made.folds.pop():
        made.end_section()


def inline(text: str) -> str:
    """One paragraph's text as HTML."""
    return str(READER.renderInline(text))


def words(text: str) -> str:
    """One paragraph of Markdown as plain text."""
    pieces = READER.parseInline(text)[0].children or ()
    return "".join(" " if one.type == "softbreak" else one.content for one in pieces)


def _add(made: Body, block: SyntaxTreeNode, figures: Mapping[str, Figure], chain: Figure | None) -> None:
    """Put a block of the Markdown on the page."""
    if block.type == "heading":
        _add_heading(made, block)
    elif block.type == "table":
        made.tables += 1
        where = made.headings[-1].title if made.headings else made.title
        made.content.append(table(block, f"{_words(where)}, table {made.tables}", _inside))
    elif block.type == "paragraph" and (path := _picture(block)) in figures:
        made.content.append(figure(figures[path]))
    elif block.type == "paragraph" and not made.verdict and not made.headings:
        made.verdict = _inside(block)
    elif block.type == "fence" and block.info == "mermaid" and chain is not None:
        made.content.append(figure(chain))
    else:
        made.content.append(READER.renderer.render(block.to_tokens(), READER.options, {}).strip())


def _add_heading(made: Body, block: SyntaxTreeNode) -> None:
    html = _inside(block)
    if block.tag == "h1" and not made.title:
        made.title = html
    elif block.tag in ("h1", "h2"):
        made.end_section()
        made.section = True
        anchor = _anchor(html, [one.anchor for one in made.headings])
        made.headings.append(Heading(anchor, html))
        made.content.append(f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{html}</h2>')
    else:
        made.content.append(f"<h3>{html}</h3>")


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


def _anchor(html: str, taken: Sequence[str]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", re.sub(r"&\w+;", "", _words(html)).lower()).strip("-") or "section"
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


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


def _fold_html(_: Any, tokens: Sequence[Any], at: int, options: Any, env: MutableMapping[str, Any]) -> str:
    tag = _FOLD.fullmatch(tokens[at].content)
    assert tag is not None  # The rule above made the token.
    return tag[0] if tag["summary"] is None else f"<summary>{inline(tag['summary'])}</summary>"


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
READER.add_render_rule("fold", _fold_html)
READER.add_render_rule("fence", _code_html)
READER.add_render_rule("code_block", _code_html)
READER.add_render_rule("image", _text_html)
READER.add_render_rule("text", _text_html)
for _kind in ("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"):
    READER.add_render_rule(_kind, _tag_html)
