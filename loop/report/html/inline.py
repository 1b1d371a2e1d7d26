"""Markdown within a line to HTML: what loop's own templates and filters write, and nothing that a record could."""

import re
from html import escape, unescape

_PIECE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});)"
    r"|\*\*(?P<bold>(?:\\.|(?>(?P<run>`+)(?!`).+?(?<!`)(?P=run)(?!`))|[^*\\`])+?)\*\*"
    r"|(?<!!)\[(?P<said>(?:\\.|[^\[\]\\])+)\]\((?P<to>[^()\s<>\"]+)\)",
    re.DOTALL,
)
_SAFE = re.compile(r"https?://|#|[\w./-]+(?:$|[?#])")
"""Where a link may lead: the web, this page, a file beside it."""


def inline(text: str) -> str:
    """One paragraph's text as HTML: code, bold, links, escapes; everything else as it is written."""
    parts, last = [], 0
    for found in _PIECE.finditer(text):
        parts += [escape(text[last : found.start()]), _piece(found)]
        last = found.end()
    return "".join([*parts, escape(text[last:])])


def _piece(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return f"<code>{escape(_unpadded(found['code']))}</code>"
    if found["escaped"] is not None:
        return escape(found["escaped"])
    if found["entity"] is not None:
        return escape(unescape(found["entity"]))
    if found["bold"] is not None:
        return f"<strong>{inline(found['bold'])}</strong>"
    if _SAFE.match(found["to"]):
        return f'<a href="{escape(found["to"])}">{inline(found["said"])}</a>'
    return escape(found[0])


def _unpadded(code: str) -> str:
    """Code without the one space at each end that keeps its backticks apart."""
    line = code.replace("\n", " ")
    padded = line.startswith(" ") and line.endswith(" ") and line.strip()
    return line[1:-1] if padded else line
