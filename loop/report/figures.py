"""Draws the ratio of each variant on each workload, with its interval, as SVG.

A figure is a file behind an <img>, with its own background and style, or part of the HTML report,
which has the style. It is the same on every machine. Colours are those of Okabe and Ito (2008),
adapted to light and dark paper. Marks differ in shape, too: no meaning depends on colour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import ClassVar

from loop.model.measurement import SpeedVerdict, Verdict
from loop.report import format as say
from loop.report.findings import speed_verdicts
from loop.report.markdown import one_line, shortened

WIDTH = 360.0  # Width of a figure in units: of a phone, where 12-unit letters have 12 pixels.
PIXELS_PER_UNIT = 4 / 3  # Pixels per unit if nothing limits the width.
LETTER_WIDTH = 6.6  # Approximate width of a letter in units.
MAX_TEXT = 4000  # Most characters of a title, description or text.
MOST_WORKLOADS = 40  # Most workloads in the figure, of the lowest ratios. The table has all.
LEFT, RIGHT, TOP = 12.0, WIDTH - 24, 66.0
INTERVAL_HEIGHT, NAME_HEIGHT, LEGEND_HEIGHT = 14.0, 16.0, 18.0
"""Height of an interval, of the workload's name above its intervals, of a line of the legend."""
MAX_NAME_WIDTH = 150.0  # Most width of a variant's name.
MAX_FACTOR_BEYOND = 4.0  # An interval is cut so far beyond the outermost ratio, at an arrow.
SHAPES = ("circle", "square", "triangle", "diamond")
MAX_MARKS = 6
_FINE_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_FINEST_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "soft": ("#59636e", "#9198a1"),
    "line": ("#d1d9e0", "#3d444d"),
}
"""Name to its colour on light and on dark paper."""
_HUES = (
    ("#0067a5", "#b34700", "#00705a", "#8f3d78"),  # Of variants, on light paper.
    ("#56b4e9", "#ff9b50", "#2cc295", "#e69ac9"),  # On dark paper.
)


def _style_sheet() -> str:
    """CSS of all figures. Of a colour such as `ink`, `.ink` fills and `.s-ink` draws a line."""
    rules_by_paper = []
    for paper in (0, 1):  # Light, dark.
        colours = {name: pair[paper] for name, pair in _COLOURS.items()}
        rules = [f".fig .{name}{{fill:{colours[name]}}}" for name in ("paper", "ink", "soft")]
        rules += [f".fig .s-{name}{{stroke:{colours[name]}}}" for name in ("ink", "soft", "line")]
        for number, hue in enumerate(_HUES[paper]):
            rules.append(f".fig .h{number}{{fill:{hue}}}.fig .s-h{number}{{stroke:{hue}}}")
        rules_by_paper.append("".join(rules))
    light, dark = rules_by_paper
    text_rules = ".fig text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}"
    text_rules += ".fig .big{font-size:13px;font-weight:600}.fig .hollow{fill:none}"
    return f"{text_rules}{light}@media (prefers-color-scheme:dark){{{dark}}}@media print{{{light}}}"


STYLE = _style_sheet()  # A page needs it once.


@dataclass(frozen=True)
class Figure:
    """A picture, with a title and a description for readers who cannot see it."""

    path: ClassVar = "figures/ratios.svg"  # Path of the file, relative to the report.
    title: str
    description: str
    height: float
    body: str

    @property
    def html(self) -> str:
        """SVG without its style, for a page with `STYLE`. Screen readers read its description."""
        box = f"0 0 {coord(WIDTH)} {coord(self.height)}"
        width, height = coord(WIDTH * PIXELS_PER_UNIT), coord(self.height * PIXELS_PER_UNIT)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fig" viewBox="{box}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="ratios-title ratios-desc">'
            f'<title id="ratios-title">{escaped_text(self.title)}</title>'
            f'<desc id="ratios-desc">{escaped_text(self.description)}</desc>{self.body}</svg>'
        )

    @property
    def file(self) -> str:
        """The complete SVG file, with its style behind the description."""
        return self.html.replace("</desc>", f"</desc><style>{STYLE}</style>", 1) + "\n"


def coord(value: float) -> str:
    """A coordinate with at most one decimal, so that figures are equal on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def escaped_text(text: object) -> str:
    """The first `MAX_TEXT` characters of a text, escaped for an element or attribute."""
    return escape(shortened(text, MAX_TEXT))


def text(
    x: float, y: float, content: str, kind: str = "ink", anchor: str = "start", max_width: float = 0
) -> str:
    """One line of text of CSS class `kind`. Wider than `max_width`, if any, it loses its middle."""
    shown, title = one_line(content), ""
    max_letters = max(4, int(max_width / LETTER_WIDTH)) if max_width else len(shown)
    if len(shown) > max_letters:
        end_letters = (max_letters - 1) // 2  # Names of workloads may differ only at the end.
        shown = f"{shown[: max_letters - 1 - end_letters]}…{shown[-end_letters:]}"
        title = f"<title>{escaped_text(content)}</title>"
    anchor_attribute = "" if anchor == "start" else f' text-anchor="{anchor}"'
    place = f'x="{coord(x)}" y="{coord(y)}"{anchor_attribute}'
    return f'<text class="{kind}" {place}>{title}{escape(shown)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str, *, width: float = 1) -> str:
    """A straight line. `kind`: its colour, in `_COLOURS` or of `colour_class_of`."""
    ends = f'x1="{coord(x1)}" y1="{coord(y1)}" x2="{coord(x2)}" y2="{coord(y2)}"'
    return f'<line class="s-{kind}" {ends} stroke-width="{coord(width)}"/>'


def colour_class_of(variant_number: int) -> str:
    """Colour class of a variant by number, shifted after each turn of shapes: 16 marks differ."""
    return f"h{(variant_number + variant_number // len(SHAPES)) % len(_HUES[0])}"


def mark(x: float, y: float, variant_number: int) -> str:
    """The mark of a variant by its number: its shape in its colour."""
    colour = colour_class_of(variant_number)
    kind = f"{colour} s-{colour}"
    shape, r = SHAPES[variant_number % len(SHAPES)], 4.5
    if shape == "circle":
        place = f'cx="{coord(x)}" cy="{coord(y)}" r="{coord(r)}"'
        return f'<circle class="{kind}" {place} stroke-width="1.5"/>'
    corners = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -r - 1), (r + 1, r), (-r - 1, r)),
        "diamond": ((0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)),
    }[shape]
    points_text = " L".join(f"{coord(x + dx)} {coord(y + dy)}" for dx, dy in corners)
    return f'<path class="{kind}" d="M{points_text} Z" stroke-width="1.5"/>'


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from `low` to `high`, drawn from `LEFT` to `RIGHT`."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        """Coordinate of a value; a value beyond an end gets the end's coordinate."""
        clamped = min(max(value, self.low), self.high)
        share = math.log(clamped / self.low) / math.log(self.high / self.low)
        return LEFT + share * (RIGHT - LEFT)

    def round_values(self) -> list[float]:
        """At most `MAX_MARKS` round values along the axis: the finest steps that fit."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in (_FINEST_STEPS, _FINE_STEPS, (1.0, 2.0, 5.0), (1.0,)):
            marks = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in marks if self.low * 0.999 <= value <= self.high * 1.001]
            if len(inside) <= MAX_MARKS:
                break
        return inside[:: math.ceil(len(inside) / MAX_MARKS)]


def draw_ratios(verdicts: Sequence[Verdict], baseline: str) -> Figure | None:
    """The figure of speeds against the baseline; None without any. It shows the `MOST_WORKLOADS`
    workloads with the lowest ratios; its description has all."""
    speeds = speed_verdicts(verdicts)
    if not speeds:
        return None
    variants = list(dict.fromkeys(verdict.variant for verdict in speeds))
    all_workloads = list(dict.fromkeys(verdict.workload for verdict in speeds))
    by_ratio = sorted(speeds, key=lambda verdict: verdict.ratio)
    slowest_first = list(dict.fromkeys(verdict.workload for verdict in by_ratio))
    workloads = [name for name in all_workloads if name in slowest_first[:MOST_WORKLOADS]]
    shown_verdicts = [verdict for verdict in speeds if verdict.workload in workloads]
    legend, legend_height = _draw_legend(variants)
    row_height, top = NAME_HEIGHT + INTERVAL_HEIGHT * len(variants) + 8, TOP + legend_height
    bottom = top + row_height * len(workloads)
    ratios = [1.0, *(verdict.ratio for verdict in shown_verdicts)]  # 1 is always in sight.
    low, high = min(ratios) / MAX_FACTOR_BEYOND, max(ratios) * MAX_FACTOR_BEYOND
    ends = [min(max(end, low), high) for verdict in shown_verdicts for end in verdict.interval]
    low, high = min(*ratios, *ends) / 1.05, max(*ratios, *ends) * 1.05
    if high / low < 2:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    scale = Scale(low, high)
    parts = [text(12, 22, "Ratio by workload", "big ink"), *legend]
    for value in scale.round_values():
        parts.append(line(scale(value), top, scale(value), bottom, "line"))
        parts.append(text(scale(value), bottom + 16, f"{value:g}x", "soft", anchor="middle"))
    parts.append(line(scale(1.0), top - 4, scale(1.0), bottom, "ink", width=1.5))
    caption = "above 1 it is faster; bars: 99 % intervals; logarithmic"
    parts.append(text(WIDTH - 12, bottom + 34, caption, "soft", anchor="end"))
    for row_number, workload in enumerate(workloads):
        row_top = top + row_height * row_number
        name_width = min(LETTER_WIDTH * len(one_line(workload)), RIGHT - LEFT) + 6
        size = f'width="{coord(name_width)}" height="{coord(NAME_HEIGHT)}"'
        place = f'x="{coord(LEFT)}" y="{coord(row_top + 3)}"'  # It hides lines behind the name.
        parts.append(f'<rect class="paper" {place} {size} rx="2"/>')
        parts.append(text(LEFT, row_top + NAME_HEIGHT, workload, max_width=RIGHT - LEFT))
        parts.append(line(12, row_top + row_height, RIGHT, row_top + row_height, "line", width=0.5))
        for variant_number, name in enumerate(variants):
            y = row_top + NAME_HEIGHT + 6 + INTERVAL_HEIGHT * (variant_number + 0.5)
            for verdict in shown_verdicts:
                if (verdict.workload, verdict.variant) == (workload, name):
                    parts += _draw_interval(verdict, variant_number, y, scale)
    hidden = len(all_workloads) - len(workloads)
    if hidden:
        remark = f"and {say.count(hidden, 'workload')} with higher ratios"
        parts.append(text(12, bottom + 50, remark, "soft"))
    sentences = []  # The figure in words.
    for name in variants:
        own = [verdict for verdict in by_ratio if verdict.variant == name]
        texts = [f"{say.ratio(each.ratio, each.interval)} on {each.workload}" for each in own]
        range_text = f"from {texts[0]} to {texts[-1]}" if len(texts) > 1 else texts[0]
        sentences.append(f"{name}: {range_text}")
    meaning = f"{baseline}'s time over the variant's, with 99 % intervals"
    words = f"{meaning}; above 1 the variant is faster. {'; '.join(sentences)}"
    title, height = f"Ratio by workload, against {baseline}", bottom + (60 if hidden else 46)
    paper = f'<rect class="paper" fill="#fff" width="{coord(WIDTH)}" height="{coord(height)}"/>'
    description = shortened(words, MAX_TEXT)
    return Figure(shortened(title, MAX_TEXT), description, height, paper + "".join(parts))


def _draw_interval(verdict: SpeedVerdict, variant_number: int, y: float, scale: Scale) -> list[str]:
    """SVG of a ratio and its interval at height `y`; an end beyond the scale becomes an arrow."""
    hue, (low, high) = colour_class_of(variant_number), verdict.interval
    parts = [line(scale(low), y, scale(high), y, hue, width=2)]
    for end, inward in ((low, 5.0), (high, -5.0)):
        x = scale(end)
        if scale.low <= end <= scale.high:
            parts.append(line(x, y - 3, x, y + 3, hue, width=2))
        else:
            back, above, below = coord(x + inward), coord(y - 4), coord(y + 4)
            arrow = f"M{back} {above} L{coord(x)} {coord(y)} L{back} {below}"
            parts.append(f'<path class="hollow s-{hue}" d="{arrow}" stroke-width="1.5"/>')
    return [*parts, mark(scale(verdict.ratio), y, variant_number)]


def _draw_legend(variants: Sequence[str]) -> tuple[list[str], float]:
    """The legend's SVG, and the height of its lines after the first, by which the figure grows."""
    x, y, parts = 12.0, 42.0, list[str]()
    for variant_number, name in enumerate(variants):
        name_width = min(LETTER_WIDTH * len(one_line(name)), MAX_NAME_WIDTH)
        if x > 12 and x + 17 + name_width > WIDTH - 12:
            x, y = 12.0, y + LEGEND_HEIGHT
        parts.append(mark(x + 6, y, variant_number))
        parts.append(text(x + 17, y + 4, name, max_width=MAX_NAME_WIDTH))
        x += name_width + 40
    return parts, y - 42
