"""Markdown to HTML, block by block: headings, tables, lists, fenced blocks, folds, figures and paragraphs.

Only the Markdown that loop's templates write is known; whatever else stands in a line is shown as it is written.
A test holds the outcome against a CommonMark renderer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from loop.report.figures.svg import Figure
from loop.report.html.inline import inline
from loop.report.html.tables import table

_FENCE = re.compile(r"^(`{3,})(\w*)$")
_HEADING = re.compile(r"^(#{1,3}) (.+)$")
_PICTURE = re.compile(r"^!\[.*\]\(([\w./-]+)\)$")
_SUMMARY = re.compile(r"^<summary>(.*)</summary>$")
_ITEM = re.compile(r"^( *)- (.*)$")


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


def body(markdown: str, figures: Sequence[Figure], chain: Figure | None = None) -> Body:
    """The content of a report. `chain` stands where the Markdown has a flowchart in Mermaid."""
    return _Reader(markdown.splitlines(), {one.path: one for one in figures}, chain).read()


class _Reader:
    """Goes through the lines once."""

    def __init__(self, lines: Sequence[str], figures: Mapping[str, Figure], chain: Figure | None) -> None:
        self.lines, self.at = lines, 0
        self.figures, self.chain = figures, chain
        self.body = Body()

    def read(self) -> Body:
        while self.at < len(self.lines):
            self._block(self.lines[self.at])
        if self.body.headings:
            self.body.content.append("</section>")
        return self.body

    def _block(self, line: str) -> None:
        heading, fence, picture = _HEADING.match(line), _FENCE.match(line), _PICTURE.match(line)
        if not line.strip():
            self.at += 1
        elif heading:
            self.at += 1
            self._heading(len(heading[1]), inline(heading[2]))
        elif fence:
            self._fenced(fence[1], fence[2])
        elif line.startswith("|") and self._rule_follows():
            self._table()
        elif _ITEM.match(line):
            self._put("".join(self._list(list(self._items()))))
        elif picture and picture[1] in self.figures:
            self.at += 1
            self._put(figure(self.figures[picture[1]]))
        elif self._fold(line):
            self.at += 1
        else:
            self._paragraph()

    def _put(self, html: str) -> None:
        self.body.content.append(html)

    def _heading(self, level: int, html: str) -> None:
        if level == 1 and not self.body.title:
            self.body.title = html
            return None
        if level > 2:
            return self._put(f"<h3>{html}</h3>")
        if self.body.headings:
            self._put("</section>")
        anchor = _anchor(html, [one.anchor for one in self.body.headings])
        self.body.headings.append(Heading(anchor, html))
        return self._put(f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{html}</h2>')

    def _fenced(self, fence: str, language: str) -> None:
        end = next(
            (n for n in range(self.at + 1, len(self.lines)) if _closes(self.lines[n], fence)), len(self.lines)
        )
        inside, self.at = self.lines[self.at + 1 : end], end + 1
        if language == "mermaid" and self.chain is not None:
            self._put(figure(self.chain))
        else:
            self._put(f'<pre tabindex="0"><code>{escape(chr(10).join(inside))}</code></pre>')

    def _rule_follows(self) -> bool:
        rule = self.lines[self.at + 1] if self.at + 1 < len(self.lines) else ""
        return bool(re.fullmatch(r"\|[-:|]+\|", rule))

    def _table(self) -> None:
        end = self.at
        while end < len(self.lines) and self.lines[end].startswith("|"):
            end += 1
        self.body.tables += 1
        where = self.body.headings[-1].title if self.body.headings else self.body.title
        self._put(table(self.lines[self.at : end], f"{_words(where)}, table {self.body.tables}"))
        self.at = end

    def _items(self) -> Iterator[tuple[int, str]]:
        """Depth and text of the items that follow one another; a line that is set in goes with the item above."""
        depth, words = 0, ""
        while self.at < len(self.lines) and self.lines[self.at].strip():
            found = _ITEM.match(self.lines[self.at])
            if found and words:
                yield depth, words
            if found:
                depth, words = len(found[1]) // 2, found[2]
            else:
                words += f"\n{self.lines[self.at].strip()}"
            self.at += 1
        yield depth, words

    def _list(self, items: Sequence[tuple[int, str]]) -> Iterator[str]:
        depth = -1
        for level, words in items:
            held = min(level, depth + 1)
            yield "<ul>" if held > depth else "</li>" + "</ul></li>" * (depth - held)
            yield f"<li>{inline(words)}"
            depth = held
        yield "</li></ul>" * (depth + 1)

    def _fold(self, line: str) -> bool:
        summary = _SUMMARY.match(line)
        if line in ("<details>", "</details>"):
            self._put(line)
        elif summary:
            self._put(f"<summary>{inline(summary[1])}</summary>")
        return bool(summary) or line in ("<details>", "</details>")

    def _paragraph(self) -> None:
        end = self.at + 1
        while end < len(self.lines) and self.lines[end].strip() and not self._begins(self.lines[end]):
            end += 1
        html = inline("\n".join(self.lines[self.at : end]))
        self.at = end
        if not self.body.verdict and not self.body.headings:
            self.body.verdict = html
        else:
            self._put(f"<p>{html}</p>")

    def _begins(self, line: str) -> bool:
        """Whether a line begins a block of its own although no empty one is before it."""
        return bool(_ITEM.match(line) or _FENCE.match(line) or _HEADING.match(line))


def _closes(line: str, fence: str) -> bool:
    return line.strip("`") == "" and len(line) >= len(fence)


def _words(html: str) -> str:
    """HTML of a heading as an attribute's text."""
    return re.sub(r"<[^>]*>", "", html)


def _anchor(html: str, taken: Sequence[str]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", re.sub(r"&\w+;", "", _words(html)).lower()).strip("-") or "section"
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def figure(one: Figure) -> str:
    """A figure within the page; what it says in words goes with it for those who do not see it."""
    label = escape(one.title, quote=True)
    return (
        f'<figure><div class="scroll" role="group" tabindex="0" aria-label="{label}">{one.inline}</div></figure>'
    )
