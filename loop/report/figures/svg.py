"""Pieces of an SVG: every number rounded, every text escaped, colours that are read by day, by night and by all.

A figure is used in two ways: as a file behind an <img>, where it brings its own background and style, and inside
the HTML report, where the style is the page's. Colours are those of Okabe and Ito (2008), darker on light paper
and lighter on dark; marks also differ in shape, so that no meaning hangs on a colour.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from loop.base.screen import COLOURS
from loop.report.markdown import one_line, shortened

WIDTH = 360.0
"""Width of every figure, in units of its own: as wide as a telephone, where letters of 12 have 12 pixels."""
SHOWN = 4 / 3
"""Pixels of a unit where nothing limits the width."""
LETTER = 6.6
"""Width of a letter, about."""
LONGEST = 4000
"""Letters of a description, or of a text whose beginning and end are drawn."""
SHAPES = ("circle", "square", "triangle", "diamond")

_COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "soft": ("#59636e", "#9198a1"),
    "line": ("#d1d9e0", "#3d444d"),
    "box": ("#f6f8fa", "#151b23"),
    "bad": (COLOURS["bad"]["light"], COLOURS["bad"]["dark"]),
}
"""Each by day and by night."""
_HUES = (("#0067a5", "#56b4e9"), ("#b34700", "#ff9b50"), ("#00705a", "#2cc295"), ("#8f3d78", "#e69ac9"))


def _rules(night: bool) -> str:
    rules = [f".fig .paper{{fill:{_COLOURS['paper'][night]}}}"]
    rules += [f".fig .{name}{{fill:{_COLOURS[name][night]}}}" for name in ("ink", "soft", "box", "bad")]
    rules += [f".fig .s-{name}{{stroke:{_COLOURS[name][night]}}}" for name in ("ink", "soft", "line", "bad")]
    for number, hue in enumerate(_HUES):
        rules.append(f".fig .h{number}{{fill:{hue[night]}}}.fig .s-h{number}{{stroke:{hue[night]}}}")
    return "".join(rules)


STYLE = (
    ".fig text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}.fig .big{font-size:13px;font-weight:600}"
    f".fig .hollow{{fill:none}}{_rules(False)}@media (prefers-color-scheme:dark){{{_rules(True)}}}"
    f"@media print{{{_rules(False)}}}"
)
"""What every figure needs; a page that holds several needs it once."""


@dataclass(frozen=True)
class Figure:
    """One picture, and what is said in its place where it cannot be seen."""

    name: str
    title: str
    description: str
    width: float
    height: float
    body: str

    @property
    def path(self) -> str:
        """Where its file is, from the report."""
        return f"figures/{self.name}.svg"

    @property
    def file(self) -> str:
        """The whole file."""
        return f"{self._head}<style>{STYLE}</style>{self.body}</svg>\n"

    @property
    def inline(self) -> str:
        """The same for a page that has the style."""
        return f"{self._head}{self.body}</svg>"

    @property
    def _head(self) -> str:
        box = f"0 0 {coord(self.width)} {coord(self.height)}"
        width, height = coord(self.width * SHOWN), coord(self.height * SHOWN)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="{box}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="{self.name}-title {self.name}-desc">'
            f'<title id="{self.name}-title">{escaped_text(self.title)}</title>'
            f'<desc id="{self.name}-desc">{escaped_text(self.description)}</desc>'
        )


def draw_figure(name: str, title: str, description: str, height: float, parts: Iterable[str]) -> Figure:
    """A figure of these parts on a background of its own. `name`: letters and dashes, for it becomes an id."""
    paper = f'<rect class="paper" fill="#fff" width="{coord(WIDTH)}" height="{coord(height)}"/>'
    shown = shortened(description, LONGEST)
    return Figure(name, shortened(title, LONGEST), shown, WIDTH, height, paper + "".join(parts))


def coord(value: float) -> str:
    """A coordinate with one decimal at most, so that a figure is the same on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def escaped_text(text: object) -> str:
    """Text inside an element or an attribute; what is longer than a page is cut."""
    return escape(shortened(text, LONGEST))


def text(x: float, y: float, content: object, kind: str = "ink", *, anchor: str = "start", room: float = 0) -> str:
    """One line of text; cut in its middle where it is wider than `room`."""
    whole = one_line(content)
    most = max(4, int(room / LETTER)) if room else len(whole)
    tail = (most - 1) // 2  # What names of workloads and steps differ in is often the end.
    shown = whole if len(whole) <= most else f"{whole[: most - 1 - tail]}…{whole[-tail:]}"
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    title = f"<title>{escaped_text(content)}</title>" if shown != whole else ""
    return f'<text class="{kind}" x="{coord(x)}" y="{coord(y)}"{at}>{title}{escape(shown)}</text>'


def line(
    x1: float, y1: float, x2: float, y2: float, kind: str = "line", *, wide: float = 1, dash: str = ""
) -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{coord(x1)}" y1="{coord(y1)}" x2="{coord(x2)}" y2="{coord(y2)}"'
    return f'<line class="s-{kind}" {ends} stroke-width="{coord(wide)}"{dashed}/>'


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rectangle; `kind` names its filling."""
    size = f'width="{coord(max(width, 0))}" height="{coord(max(height, 0))}"'
    return f'<rect class="{kind}" x="{coord(x)}" y="{coord(y)}" {size} rx="2"/>'


def path(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    course = " L".join(f"{coord(x)} {coord(y)}" for x, y in points)
    return f'<path class="hollow s-{kind}" d="M{course}" stroke-width="1.5"/>'


def hue(which: int) -> str:
    """The colour of the variant with that number: each further turn through the shapes begins one colour later."""
    return f"h{(which + which // len(SHAPES)) % len(_HUES)}"


def mark(x: float, y: float, which: int, *, hollow: bool = False) -> str:
    """The mark of the variant with that number: shape and colour together are its own, for the first sixteen."""
    colour = hue(which)
    kind = f"hollow s-{colour}" if hollow else f"{colour} s-{colour}"
    shape, r = SHAPES[which % len(SHAPES)], 4.5
    if shape == "circle":
        return f'<circle class="{kind}" cx="{coord(x)}" cy="{coord(y)}" r="{coord(r)}" stroke-width="1.5"/>'
    corners = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -r - 1), (r + 1, r), (-r - 1, r)),
        "diamond": ((0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)),
    }[shape]
    course = " L".join(f"{coord(x + dx)} {coord(y + dy)}" for dx, dy in corners)
    return f'<path class="{kind}" d="M{course} Z" stroke-width="1.5"/>'


def width_of(content: str) -> float:
    """About how wide a text comes out."""
    return LETTER * len(content)


_STEPS = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_FINEST = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis between two positive values, drawn between two places."""

    low: float
    high: float
    start: float
    """Where `low` is drawn."""
    end: float
    """Where `high` is drawn."""

    def __call__(self, value: float) -> float:
        """Where a value is drawn; one beyond an end is drawn at that end."""
        clamped = min(max(value, self.low), self.high)
        share = math.log(clamped / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def marks(self, most: int = 8) -> list[float]:
        """Round values along the axis, at most so many: the finest steps of each decade that fit.

        Of a wide axis, every so many decades.
        """
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in (_FINEST, _FINE, _STEPS, (1.0,)):
            marks = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in marks if self.low * 0.999 <= value <= self.high * 1.001]
            if len(inside) <= most:
                break
        return inside[:: math.ceil(len(inside) / most)]


def logarithmic(values: Sequence[float], start: float, end: float, *, room: float = 1.15) -> Scale:
    """Around positive values, with a margin; at least a factor of two wide."""
    low, high = min(values) / room, max(values) * room
    if high / low < 2:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return Scale(low, high, start, end)


def plain_number(value: float) -> str:
    """`0.25`, `1`, `12.5`, `2,000`."""
    if 1000 <= abs(value) < 100_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.0e}".replace("e-0", "e-")


def with_prefix(value: float) -> str:
    """`100 G`, `2.5 T`: a value with the prefix of its thousands."""
    power = min(15, max(-12, 3 * math.floor(math.log10(value) / 3 + 1e-9))) if value > 0 else 0
    return f"{value / 10.0**power:.3g} {_PREFIXES[power]}".strip()
