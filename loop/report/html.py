"""Turns a report's Markdown into one self-contained HTML file with its figures.

markdown-it parses CommonMark with tables and passes no HTML through. Before it renders, headings
get anchors, cells their column's title, SVG replaces images, and folds become <details> elements.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markupsafe import Markup

from loop.report.figures import STYLE, Figure
from loop.report.screen import colour_class, style_sheet
from loop.report.templates import make_environment

_SAFE_LINK = re.compile(r"https?://|#|[\w./-]+(?:$|[?#])")  # The web, this page, a file beside.
_jinja = functools.cache(make_environment)
_FOLD_TAG = re.compile(r"</?details>|<summary>(?P<summary>.*)</summary>")
_BOX = '<div class="scroll" role="group" tabindex="0" aria-label="{}">'  # For narrow pages.
_html = functools.partial(Token, "html_block", "", 0)  # A token of HTML, which is its `content`.


def _parse_fold(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A block rule of markdown-it: a line of <details> or <summary>, the only HTML, is a `fold`."""
    line = state.src[state.bMarks[start] : state.eMarks[start]]
    tag = _FOLD_TAG.fullmatch(line)
    if tag and not silent:
        state.push("fold", "", 0).content = line
        state.line = start + 1
    return tag is not None


READER = MarkdownIt("commonmark", {"html": False}).enable("table").disable("autolink")
READER.validateLink = lambda url: bool(_SAFE_LINK.match(url))  # type: ignore[method-assign]
# An image that is no figure is never loaded: its alternative text stands in its place.
READER.add_render_rule("image", lambda renderer, tokens, index, *_: escape(tokens[index].content))
READER.block.ruler.before("paragraph", "fold", _parse_fold, {"alt": ["paragraph", "list"]})


def plain_words(text: str) -> str:
    """One paragraph of Markdown as plain text."""
    pieces = READER.parseInline(text)[0].children or ()
    return "".join(" " if piece.type == "softbreak" else piece.content for piece in pieces)


def render_body(markdown: str, figures: Sequence[Figure]) -> dict[str, str]:
    """HTML of a report: `title` (its first heading), `verdict` (the first paragraph; empty if a
    heading comes before it) and `content`. `figures` replace images with the same path."""
    title = verdict = ""
    by_path = {figure.path: figure for figure in figures}
    anchors: dict[str, str] = {}  # Anchor of each heading and fold to its text.
    heads: list[str] = []  # Titles of the columns of this table.
    body = list[Token]()
    open_folds = table_count = column = 0

    def add_anchor(text: str) -> str:
        """A new, unique anchor for a heading."""
        stem = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
        names = (stem, *(f"{stem}-{number}" for number in range(2, len(anchors) + 3)))
        name = next(name for name in names if name not in anchors)
        anchors[name] = text
        return name

    remaining = iter(READER.parse(markdown))
    for token in remaining:
        parts = [token]
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            content, end = next(remaining), next(remaining)
            parts = [token, content, end]
        match token.type:
            case "heading_open" if token.tag == "h1" and not title:
                title = READER.renderInline(content.content)
                parts = []
            case "heading_open":
                token.tag = end.tag = "h2" if token.tag in ("h1", "h2") else "h3"
                token.attrSet("id", add_anchor(plain_words(content.content)))
            case "paragraph_open":
                pieces = content.children or []
                is_image = [piece.type for piece in pieces] == ["image"]
                figure = by_path.get(str(pieces[0].attrs["src"])) if is_image else None
                if figure:
                    box = _BOX.format(escape(figure.title, quote=True))
                    parts = [_html(content=f"<figure>{box}{figure.html}</div></figure>\n")]
                elif not verdict and not anchors and token.level == 0:
                    verdict = READER.renderInline(content.content)
                    parts = []
            case "fold":
                open_folds += (token.content == "<details>") - (token.content == "</details>")
                tag = _FOLD_TAG.fullmatch(token.content)
                html = token.content + "\n" * (token.content == "</details>")
                if tag and tag["summary"] is not None:
                    html = READER.renderInline(tag["summary"])
                    if open_folds == 1:  # The summary of an outermost fold is a heading.
                        html = f'<h2 id="{add_anchor(plain_words(tag["summary"]))}">{html}</h2>'
                    html = f"<summary>{html}</summary>\n"
                parts = [_html(content=html)]
            case "fence" | "code_block":
                kind = ' class="sh"' if token.info == "sh" else ""
                code = escape(token.content.removesuffix("\n"))
                parts = [_html(content=f'<pre{kind} tabindex="0"><code>{code}</code></pre>\n')]
            case "table_open":
                table_count += 1
                heads = []
                last_heading = next(reversed(anchors.values()), plain_words(title))
                label = escape(f"{last_heading}, table {table_count}", quote=True)
                parts = [_html(content=_BOX.format(label)), token]
            case "table_close":
                parts = [_html(content="</table></div>\n")]
            case "tr_open":
                column = 0
            case "th_open" | "td_open":
                _mark_cell(token, content, heads, column)
                column += 1
                if token.type == "td_open":
                    parts[-1] = _html(content="</span></td>")
        body += parts
    text = READER.renderer.render(body, READER.options, {}).strip()
    return {"title": title, "verdict": verdict, "content": text}


def _mark_cell(token: Token, cell: Token, heads: list[str], column: int) -> None:
    """Mark a cell of a table (`token` opens it) with its column's title, for narrow pages that show
    rows as lists, and with the colour of an outcome such as `faster`. A head joins `heads`."""
    is_number, pieces = token.attrs.pop("style", "") == "text-align:right", cell.children or []
    if token.type == "th_open":
        heads.append(plain_words(cell.content))
        token.attrs["scope"] = "col"
    if is_number:
        token.attrs["class"] = "number"
    if token.type == "td_open":
        token.attrs["data-head"] = heads[column]
        colour, word = colour_class(cell.content), re.match("[a-z]+", cell.content)
        if column and colour and word and pieces[0].type == "text":
            pieces[0].content = pieces[0].content.removeprefix(word[0])
            span = f'<span class="{colour}">{word[0]}</span>'
            pieces.insert(0, Token("html_inline", "", 0, content=span))
        cell.children = [Token("html_inline", "", 0, content="<span>"), *pieces]


def render_page(templates: Path, markdown: str, figures: Sequence[Figure], status: str) -> str:
    """The HTML page of a report. `markdown`: the report's text. `status`: how the session ended."""
    style = style_sheet() + (templates / "report.css").read_text() + STYLE
    script = (templates / "report.js").read_text()
    safe_values = {**render_body(markdown, figures), "style": style, "script": script}
    # The page allows only this style and this script, by their hashes, and loads nothing.
    digests = []
    for text in (style, script):
        digests.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
    sources = f"style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    template = _jinja(templates).get_template("report.html.j2")
    values = {name: Markup(text) for name, text in safe_values.items()}
    return template.render(kind=colour_class(status), policy=policy, **values)
