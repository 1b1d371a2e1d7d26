"""Turns a report's Markdown into one self-contained HTML file with its figures.

markdown-it parses CommonMark with tables and passes no HTML through. Before it renders, headings get
anchors, cells get their column's title, SVG replaces images, and folds become <details> elements.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markupsafe import Markup

from loop.report.figures import STYLE, Figure
from loop.report.screen import colour_class, style_sheet
from loop.report.templates import make_environment

_SAFE_LINK = re.compile(r"https?://|#|[\w./-]+(?:$|[?#])")
"""Allowed links: the web, this page, a file in the report's folder."""
_FOLD_TAG = re.compile(r"</?details>|<summary>(?P<summary>.*)</summary>")


class _SafeMarkdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - markdown-it calls it so.
        """As in markdown-it: whether a link may stay a link; here only to safe addresses."""
        return bool(_SAFE_LINK.match(url))


@dataclass
class PageBody:
    """The content of a page as HTML."""

    title: str = ""
    verdict: str = ""
    """The first paragraph; empty if a heading comes before it."""
    content: str = ""
    anchors: dict[str, str] = field(default_factory=dict)
    """Anchor of each heading and fold to its text."""

    def anchor(self, text: str) -> str:
        """A new, unique anchor for a heading."""
        stem = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(self.anchors) + 3)))
        name = next(name for name in names if name not in self.anchors)
        self.anchors[name] = text
        return name


def render_inline(text: str) -> str:
    """HTML of one paragraph of Markdown."""
    return str(READER.renderInline(text))


def plain_words(text: str) -> str:
    """One paragraph of Markdown as plain text."""
    pieces = READER.parseInline(text)[0].children or ()
    return "".join(" " if piece.type == "softbreak" else piece.content for piece in pieces)


def render_body(markdown: str, figures: Sequence[Figure]) -> PageBody:
    """The HTML content of a report. Its first heading becomes the title, and the paragraph below it the verdict;
    `figures` replace images with the same path. markdown-it gives a heading, and a paragraph, as three tokens:
    open, content and close."""
    page, by_path = PageBody(), {figure.path: figure for figure in figures}
    tokens = READER.parse(markdown)
    body_tokens: list[Token] = []
    position = open_folds = table_count = 0  # Index of the token; open folds; tables so far.

    def add_html(html: str) -> None:
        body_tokens.append(Token("html_block", "", 0, content=html))

    while position < len(tokens):
        token = tokens[position]
        content = tokens[position + 1] if position + 1 < len(tokens) else token
        if token.type == "heading_open" and token.tag == "h1" and not page.title:
            page.title = render_inline(content.content)
            position += 3
            continue
        pieces = content.children or []
        is_image = token.type == "paragraph_open" and [piece.type for piece in pieces] == ["image"]
        figure = by_path.get(str(pieces[0].attrs["src"])) if is_image else None
        if figure is not None:  # Screen readers read its title.
            label = escape(figure.title, quote=True)
            group = f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">{figure.html}</div>'
            add_html(f"<figure>{group}</figure>\n")
            position += 3
            continue
        if token.type == "paragraph_open" and not page.verdict and not page.anchors and token.level == 0:
            page.verdict = render_inline(content.content)
            position += 3
            continue
        position += 1
        if token.type == "heading_open":
            token.tag = tokens[position + 1].tag = "h2" if token.tag in ("h1", "h2") else "h3"
            token.attrSet("id", page.anchor(plain_words(content.content)))
        elif token.type == "fold":
            open_folds += (token.content == "<details>") - (token.content == "</details>")
            tag = _FOLD_TAG.fullmatch(token.content)
            summary = tag["summary"] if tag else None
            if summary is None:
                add_html(token.content + "\n" * (token.content == "</details>"))
            else:
                html = render_inline(summary)
                if open_folds == 1:  # The summary of an outermost fold is a heading.
                    html = f'<h2 id="{page.anchor(plain_words(summary))}">{html}</h2>'
                add_html(f"<summary>{html}</summary>\n")
            continue
        elif token.type == "table_open":
            table_count += 1
            last_heading = next(reversed(page.anchors.values()), plain_words(page.title))
            token.meta["label"] = f"{last_heading}, table {table_count}"
            _mark_cells(tokens, position - 1)
        body_tokens.append(token)
    page.content = READER.renderer.render(body_tokens, READER.options, {}).strip()
    return page


def _mark_cells(tokens: Sequence[Token], start: int) -> None:
    """Add attributes to the cells of the table whose first token is at `start`: the column's title, for narrow
    pages that show rows as lists; and the colour of a first word that is an outcome, such as `faster`."""
    heads: list[str] = []
    column_number = 0
    for position in range(start, len(tokens)):
        token = tokens[position]
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            column_number = 0
        if token.type not in ("th_open", "td_open"):
            continue
        cell, is_number = tokens[position + 1], token.attrs.pop("style", "") == "text-align:right"
        if token.type == "th_open":
            heads.append(plain_words(cell.content))
            token.attrs["scope"] = "col"
        if is_number:
            token.attrs["class"] = "number"
        if token.type == "th_open":
            continue
        token.attrs["data-head"] = heads[column_number]
        first_piece = (cell.children or [cell])[0]
        colour, match = colour_class(cell.content), re.match("[a-z]+", first_piece.content)
        if column_number and colour and match and first_piece.type == "text" and cell.children:
            remaining_text = Token("text", "", 0, content=first_piece.content[match.end() :])
            coloured_word = Token("html_inline", "", 0, content=f'<span class="{colour}">{match[0]}</span>')
            cell.children[:1] = [coloured_word, remaining_text]
        column_number += 1


def _parse_fold(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A markdown-it block rule for a line with <details>, </details> or <summary>, a report's only HTML: it
    becomes a token `fold`. Returns whether the line is one."""
    line = state.src[state.bMarks[start] : state.eMarks[start]]
    tag = _FOLD_TAG.fullmatch(line)
    if tag and not silent:
        state.push("fold", "", 0).content = line
        state.line = start + 1
    return tag is not None


class _Renderer(RendererHTML):
    """markdown-it's renderer, with the attributes that style sheet and script need."""

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """As in markdown-it: HTML of a block of code; here the keyboard can scroll it (`tabindex`)."""
        cls = ' class="sh"' if tokens[idx].info == "sh" else ""
        return f'<pre{cls} tabindex="0"><code>{escape(tokens[idx].content.removesuffix(chr(10)))}</code></pre>\n'

    code_block = fence

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """The alternative text of an image that is no figure of the report; the image is never loaded."""
        return escape(tokens[idx].content)

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """As in markdown-it: HTML that begins a table; here in a box that scrolls, with a label."""
        label = escape(tokens[idx].meta["label"], quote=True)
        table = self.renderToken(tokens, idx, options, env)
        return f'<div class="scroll" role="group" tabindex="0" aria-label="{label}">{table}'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """As in markdown-it: HTML of the token with this index; here with a span for the cell's text."""
        return f"{self.renderToken(tokens, idx, options, env)}<span>"

    def td_close(self, *_: Any) -> str:
        return "</span></td>"


READER = _SafeMarkdown("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table").disable("autolink")
READER.block.ruler.before("paragraph", "fold", _parse_fold, {"alt": ["paragraph", "list"]})


def render_page(templates: Path, markdown: str, figures: Sequence[Figure], status: str) -> str:
    """The HTML page of a report. `markdown`: the report's text. `status`: how the session ended."""
    content = render_body(markdown, figures)
    style = style_sheet() + (templates / "report.css").read_text() + STYLE
    script = (templates / "report.js").read_text()
    names = {"title": content.title, "verdict": content.verdict, "content": content.content}
    safe_values = {name: Markup(text) for name, text in {**names, "style": style, "script": script}.items()}
    # The page allows only this style and this script, by their hashes, and loads nothing.
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    sources = f"style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    template = _jinja(templates).get_template("report.html.j2")
    return template.render(kind=colour_class(status), policy=policy, **safe_values)


_jinja = functools.cache(make_environment)
