"""Parts of an SVG figure: rounded numbers, escaped text, colours for light, dark and colour-blind use.

A figure is a file behind an <img>, with its own background and style, or part of the HTML report,
which has the style. Colours are those of Okabe and Ito (2008), adapted to light and dark paper.
Marks differ in shape, too, so that no meaning depends on colour.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from loop.report.markdown import one_line, shortened

WIDTH = 360.0
"""Width of every figure in its own units: the width of a phone, where 12-unit letters have 12 pixels."""
PIXELS_PER_UNIT = 4 / 3  # Pixels per unit if nothing limits the width.
LETTER_WIDTH = 6.6  # Approximate width of a letter in units.
MAX_TEXT = 4000  # Most characters of a title, description or text.
SHAPES = ("circle", "square", "triangle", "diamond")
_COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "soft": ("#59636e", "#9198a1"),
    "line": ("#d1d9e0", "#3d444d"),
}
"""Name to its colour on light and on dark paper."""
_HUES = (("#0067a5", "#56b4e9"), ("#b34700", "#ff9b50"), ("#00705a", "#2cc295"), ("#8f3d78", "#e69ac9"))


def _colour_rules(is_dark: bool) -> str:
    """CSS rules of all colours, for light or dark paper: `.ink` fills, `.s-ink` draws a line."""
    fills, strokes = ("paper", "ink", "soft"), ("ink", "soft", "line")
    rules = [f".fig .{name}{{fill:{_COLOURS[name][is_dark]}}}" for name in fills]
    rules += [f".fig .s-{name}{{stroke:{_COLOURS[name][is_dark]}}}" for name in strokes]
    for number, hue in enumerate(_HUES):
        rules.append(f".fig .h{number}{{fill:{hue[is_dark]}}}.fig .s-h{number}{{stroke:{hue[is_dark]}}}")
    return "".join(rules)


STYLE = (
    ".fig text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}.fig .big{font-size:13px;font-weight:600}"
    f".fig .hollow{{fill:none}}{_colour_rules(False)}@media (prefers-color-scheme:dark){{{_colour_rules(True)}}}"
    f"@media print{{{_colour_rules(False)}}}"
)
"""CSS of all figures; a page needs it once."""


@dataclass(frozen=True)
class Figure:
    """A picture, with a title and a description for readers who cannot see it."""

    name: str
    title: str
    description: str
    height: float
    body: str

    @property
    def path(self) -> str:
        """Path of the file, relative to the report."""
        return f"figures/{self.name}.svg"

    @property
    def file(self) -> str:
        """The complete SVG file."""
        return f"{self._head}<style>{STYLE}</style>{self.body}</svg>\n"

    @property
    def html(self) -> str:
        """The SVG without its style, for a page that has `STYLE`."""
        return f"{self._head}{self.body}</svg>"

    @property
    def _head(self) -> str:
        """The opening tag of the SVG, with title and description for screen readers."""
        box = f"0 0 {coord(WIDTH)} {coord(self.height)}"
        width, height = coord(WIDTH * PIXELS_PER_UNIT), coord(self.height * PIXELS_PER_UNIT)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="{box}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="{self.name}-title {self.name}-desc">'
            f'<title id="{self.name}-title">{escaped_text(self.title)}</title>'
            f'<desc id="{self.name}-desc">{escaped_text(self.description)}</desc>'
        )


def draw_figure(name: str, title: str, description: str, height: float, parts: Iterable[str]) -> Figure:
    """A figure of these SVG parts on a background. `name`: letters and dashes; it becomes an id."""
    paper = f'<rect class="paper" fill="#fff" width="{coord(WIDTH)}" height="{coord(height)}"/>'
    texts = shortened(title, MAX_TEXT), shortened(description, MAX_TEXT)
    return Figure(name, *texts, height, paper + "".join(parts))


def coord(value: float) -> str:
    """A coordinate with at most one decimal, so that figures are equal on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def escaped_text(text: object) -> str:
    """The first `MAX_TEXT` characters of a text, escaped for an element or attribute."""
    return escape(shortened(text, MAX_TEXT))


def text(
    x: float, y: float, content: object, kind: str = "ink", *, anchor: str = "start", max_width: float = 0
) -> str:
    """One line of text at (x, y), of CSS class `kind`. Wider than `max_width`, it loses its middle (0: never)."""
    shown, title = one_line(content), ""
    max_letters = max(4, int(max_width / LETTER_WIDTH)) if max_width else len(shown)
    if len(shown) > max_letters:
        end_letters = (max_letters - 1) // 2  # Names of workloads may differ only at the end.
        shown = f"{shown[: max_letters - 1 - end_letters]}…{shown[-end_letters:]}"
        title = f"<title>{escaped_text(content)}</title>"
    anchor_attribute = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{coord(x)}" y="{coord(y)}"{anchor_attribute}>{title}{escape(shown)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "line", *, width: float = 1) -> str:
    """A straight line. `kind`: its colour, in `_COLOURS` or of `hue`."""
    ends = f'x1="{coord(x1)}" y1="{coord(y1)}" x2="{coord(x2)}" y2="{coord(y2)}"'
    return f'<line class="s-{kind}" {ends} stroke-width="{coord(width)}"/>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle. `kind`: its fill colour in `_COLOURS`."""
    size = f'width="{coord(max(width, 0))}" height="{coord(max(height, 0))}"'
    return f'<rect class="{kind}" x="{coord(x)}" y="{coord(y)}" {size} rx="2"/>'


def path(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through points. `kind`: its colour, in `_COLOURS` or of `hue`."""
    points_text = " L".join(f"{coord(x)} {coord(y)}" for x, y in points)
    return f'<path class="hollow s-{kind}" d="M{points_text}" stroke-width="1.5"/>'


def hue(variant_number: int) -> str:
    """Colour class of a variant by its number, shifted after each turn of the shapes: 16 marks are unique."""
    return f"h{(variant_number + variant_number // len(SHAPES)) % len(_HUES)}"


def mark(x: float, y: float, variant_number: int) -> str:
    """The mark of a variant by its number: its shape in its colour."""
    colour = hue(variant_number)
    kind = f"{colour} s-{colour}"
    shape, r = SHAPES[variant_number % len(SHAPES)], 4.5
    if shape == "circle":
        return f'<circle class="{kind}" cx="{coord(x)}" cy="{coord(y)}" r="{coord(r)}" stroke-width="1.5"/>'
    corners = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -r - 1), (r + 1, r), (-r - 1, r)),
        "diamond": ((0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)),
    }[shape]
    points_text = " L".join(f"{coord(x + dx)} {coord(y + dy)}" for dx, dy in corners)
    return f'<path class="{kind}" d="M{points_text} Z" stroke-width="1.5"/>'


MAX_MARKS = 6
_FINE_STEPS, _FINEST_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from `low` to `high`, drawn between two coordinates."""

    low: float
    high: float
    start: float
    """Coordinate of `low`."""
    end: float
    """Coordinate of `high`."""

    def __call__(self, value: float) -> float:
        """Coordinate of a value; a value beyond an end gets the end's coordinate."""
        clamped = min(max(value, self.low), self.high)
        share = math.log(clamped / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def round_values(self) -> list[float]:
        """At most `MAX_MARKS` round values along the axis: the finest steps of each decade that fit."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in (_FINEST_STEPS, _FINE_STEPS, (1.0, 2.0, 5.0), (1.0,)):
            marks = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in marks if self.low * 0.999 <= value <= self.high * 1.001]
            if len(inside) <= MAX_MARKS:
                break
        return inside[:: math.ceil(len(inside) / MAX_MARKS)]


def logarithmic_scale(values: Sequence[float], start: float, end: float, *, margin_factor: float) -> Scale:
    """A scale from `start` to `end` around positive values, with a margin of this factor on both sides; its ends
    differ by a factor of two at least."""
    low, high = min(values) / margin_factor, max(values) * margin_factor
    if high / low < 2:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return Scale(low, high, start, end)


def plain_number(value: float) -> str:
    """A number without needless digits: `0.25`, `1`, `12.5`, `2,000`."""
    if 1000 <= abs(value) < 100_000:
        return f"{value:,.0f}"
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:.0e}".replace("e-0", "e-")
