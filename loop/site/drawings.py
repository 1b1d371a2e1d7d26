"""The figures of a stored report, drawn again piece by piece: a session's folder may hold anything."""

import math
import os
import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from loop.report.figures.svg import Figure
from loop.site.plain import clean

LARGEST = 2**18
"""Bytes of one figure that are read; loop's own take some thousands."""
WIDEST = 20_000.0
"""Units that a figure may be wide or high."""
SVG = "{http://www.w3.org/2000/svg}"
WORDS = ("title", "desc", "style")
"""What stands before the shapes: the figure's words, and the style that the page has already."""
SHAPES = ("text", "line", "rect", "circle", "path")
"""Elements of which loop's figures are made; none of them links, loads or acts. A text may have a title."""
ATTRIBUTES = {
    *("class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "width", "height", "d"),
    *("fill", "stroke-width", "stroke-dasharray", "text-anchor"),
}
VALUE = re.compile(r"[\w\s.,#+-]*", re.ASCII)
"""Numbers, names and colours: no function, no address."""


def drawing(folder: Path, path: str) -> Figure | None:
    """The figure at `path` in a session's folder; None for what loop has not drawn, and what cannot be read.

    `folder`: without links in it; the figure is none, either.
    """
    file = folder / path
    try:
        if Path(os.path.realpath(file)) != file or not file.is_file() or file.stat().st_size > LARGEST:
            return None
        text = file.read_text(encoding="utf-8")
        return None if "<!" in text else _figure(file.stem, ElementTree.fromstring(text))
    except (OSError, ValueError, ElementTree.ParseError):
        return None


def _figure(name: str, root: ElementTree.Element) -> Figure:
    """Raises ValueError for anything that loop does not draw."""
    if root.tag != f"{SVG}svg":
        raise ValueError(root.tag)
    said = {one.tag.removeprefix(SVG): clean(one.text or "") for one in root if one.tag.removeprefix(SVG) in WORDS}
    shapes = (one for one in root if one.tag.removeprefix(SVG) not in WORDS)
    return Figure(
        name,
        said.get("title", name),
        said.get("desc", ""),
        _size(root.get("width", "")),
        _size(root.get("height", "")),
        "".join(map(_shape, shapes)),
    )


def _size(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and 0 < value <= WIDEST):
        raise ValueError(text)
    return value


def _shape(one: ElementTree.Element) -> str:
    tag = one.tag.removeprefix(SVG)
    if tag not in SHAPES or any(inner.tag != f"{SVG}title" or len(inner) for inner in one):
        raise ValueError(tag)
    given = "".join(f' {name}="{_value(name, value)}"' for name, value in one.items())
    inside = "".join(f"<title>{_text(inner.text)}</title>" for inner in one)
    if tag == "text":
        inside += "".join(_text(part) for part in (one.text, *(inner.tail for inner in one)))
    return f"<{tag}{given}>{inside}</{tag}>" if inside or tag == "text" else f"<{tag}{given}/>"


def _value(name: str, value: str) -> str:
    if name not in ATTRIBUTES or not VALUE.fullmatch(value):
        raise ValueError(f"{name}={value}")
    return value


def _text(text: str | None) -> str:
    return escape(clean(text or ""))
