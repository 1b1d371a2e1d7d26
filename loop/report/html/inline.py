"""Markdown within a line to HTML: what loop's own templates and filters write, and nothing that a record could."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from html import escape, unescape

_ESCAPED = r"\\[!-/:-@\[-`{-~]"
_OPENER = re.compile(rf"{_ESCAPED}|`+")
_HELD = "\0"
"""Stands for a piece of code while the rest is read; text has no control characters."""
_PIECE = re.compile(
    rf"(?P<code>{_HELD})"
    rf"|(?P<escaped>{_ESCAPED})"
    r"|(?P<entity>&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});)"
    r"|\*\*(?P<bold>(?:\\.|[^*\\])+?)\*\*"
    r"|(?<!!)\[(?P<said>(?:\\.|[^\[\]\\])+)\]\((?P<to>[^()\s<>\"]+)\)",
    re.DOTALL,
)
_SAFE = re.compile(r"https?://|#|[\w./-]+(?:$|[?#])")
"""Where a link may lead: the web, this page, a file beside it."""


def inline(text: str) -> str:
    """One paragraph's text as HTML: code, bold, links, escapes; everything else as it is written."""
    rest, codes, last = [], [], 0
    text = text.replace(_HELD, "")
    for begin, end, code in _codes(text):
        rest += [text[last:begin], _HELD]
        codes.append(f"<code>{escape(_unpadded(code))}</code>")
        last = end
    return _without_code("".join([*rest, text[last:]]), iter(codes))


def _codes(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and content of each piece of code: from a run of backticks to the next run of as many."""
    closers: dict[int, list[int]] = {}
    for run in re.finditer("`+", text):
        closers.setdefault(len(run[0]), []).append(run.start())
    place = 0
    while opener := _OPENER.search(text, place):
        place, length = opener.end(), len(opener[0])
        places = closers.get(length, []) if opener[0][0] == "`" else []
        number = bisect_left(places, place)
        if number < len(places):
            yield opener.start(), places[number] + length, text[place : places[number]]
            place = places[number] + length


def _without_code(text: str, codes: Iterator[str]) -> str:
    parts, last = [], 0
    for found in _PIECE.finditer(text):
        parts += [escape(text[last : found.start()]), _piece(found, codes)]
        last = found.end()
    return "".join([*parts, escape(text[last:])])


def _piece(found: re.Match[str], codes: Iterator[str]) -> str:
    if found["code"] is not None:
        return next(codes)
    if found["escaped"] is not None:
        return escape(found["escaped"][1:])
    if found["entity"] is not None:
        return escape(unescape(found["entity"]))
    if found["bold"] is not None:
        return f"<strong>{_without_code(found['bold'], codes)}</strong>"
    said = _without_code(found["said"], codes)
    if _SAFE.match(found["to"]):
        return f'<a href="{escape(found["to"])}">{said}</a>'
    return f"[{said}]({escape(found['to'])})"


def _unpadded(code: str) -> str:
    """Code without the one space at each end that keeps its backticks apart."""
    line = code.replace("\n", " ")
    padded = line.startswith(" ") and line.endswith(" ") and line.strip()
    return line[1:-1] if padded else line
