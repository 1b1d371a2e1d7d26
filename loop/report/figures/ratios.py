"""Ratio by workload, with its interval, and a line at 1."""

from collections.abc import Sequence

from loop.model.verdict import SpeedVerdict, Verdict
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure, logarithmic, plain_number
from loop.report.findings import speed_verdicts
from loop.report.markdown import one_line

MOST_WORKLOADS = 40
"""Rows of the figure; of more workloads those with the lowest ratios are shown. The report's table has all."""
LEFT, RIGHT = 12.0, svg.WIDTH - 24
TOP = 66.0
LINE, NAMED = 14.0, 16.0
"""Height of one interval, and of the name of a workload above its intervals."""
LEGEND_LINE = 18.0
"""Height of a line of the legend."""
NAME = 150.0
"""Room for a variant's name."""
FURTHEST = 4.0
"""Intervals are drawn up to this factor beyond the outermost ratio; an arrow says that they go on."""


def ratios(verdicts: Sequence[Verdict], baseline: str) -> Figure | None:
    """The figure; None where no variant has a speed."""
    judged = speed_verdicts(verdicts)
    if not judged:
        return None
    variants = list(dict.fromkeys(verdict.variant for verdict in judged))
    workloads = _shown(judged)
    shown = [verdict for verdict in judged if verdict.workload in workloads]
    row = NAMED + LINE * len(variants) + 8
    legend, height = _legend(variants)
    top = TOP + height
    bottom = top + row * len(workloads)
    axis = _Axis(shown, top, bottom)
    parts = [svg.text(12, 22, "Ratio by workload", "big ink"), *legend, *axis.drawn()]
    for place, workload in enumerate(workloads):
        parts += _row(shown, workload, variants, top + row * place, row, axis)
    hidden = len({verdict.workload for verdict in judged}) - len(workloads)
    if hidden:
        parts.append(svg.text(12, bottom + 50, f"and {say.count(hidden, 'workload')} with higher ratios", "soft"))
    height = bottom + (60 if hidden else 46)
    return svg.drawn("ratios", f"Ratio by workload, against {baseline}", _told(judged, baseline), height, parts)


def _shown(judged: Sequence[SpeedVerdict]) -> list[str]:
    workloads = list(dict.fromkeys(verdict.workload for verdict in judged))
    if len(workloads) <= MOST_WORKLOADS:
        return workloads
    ordered = dict.fromkeys(verdict.workload for verdict in sorted(judged, key=lambda verdict: verdict.ratio))
    lowest = list(ordered)[:MOST_WORKLOADS]
    return [name for name in workloads if name in lowest]


class _Axis:
    """The axis of ratios below the rows."""

    def __init__(self, shown: Sequence[SpeedVerdict], top: float, bottom: float) -> None:
        centres = [verdict.ratio for verdict in shown]
        low, high = min([*centres, 1.0]) / FURTHEST, max([*centres, 1.0]) * FURTHEST
        ends = [min(max(end, low), high) for verdict in shown for end in verdict.interval]
        self.scale = logarithmic([*centres, *ends, 1.0], LEFT, RIGHT, room=1.05)
        self.top, self.bottom = top, bottom

    def drawn(self) -> list[str]:
        parts = []
        for value in self.scale.marks(6):
            x = self.scale(value)
            parts.append(svg.line(x, self.top, x, self.bottom, "line"))
            parts.append(svg.text(x, self.bottom + 16, f"{plain_number(value)}x", "soft", anchor="middle"))
        parity = self.scale(1.0)
        parts.append(svg.line(parity, self.top - 4, parity, self.bottom, "ink", wide=1.5))
        caption = "above 1 it is faster; bars: 99 % intervals; logarithmic"
        parts.append(svg.text(svg.WIDTH - 12, self.bottom + 34, caption, "soft", anchor="end"))
        return parts


def _legend(variants: Sequence[str]) -> tuple[list[str], float]:
    """The variants beside each other, in as many lines as they need; and the height of those after the first."""
    x, y, parts = 12.0, 42.0, list[str]()
    for which, name in enumerate(variants):
        wide = min(svg.width_of(one_line(name)), NAME)
        if x > 12 and x + 17 + wide > svg.WIDTH - 12:
            x, y = 12.0, y + LEGEND_LINE
        parts += [svg.mark(x + 6, y, which), svg.text(x + 17, y + 4, name, room=NAME)]
        x += wide + 40
    return parts, y - 42


def _row(
    shown: Sequence[SpeedVerdict], workload: str, variants: Sequence[str], top: float, height: float, axis: _Axis
) -> list[str]:
    wide = min(svg.width_of(one_line(workload)), RIGHT - LEFT) + 6
    parts = [svg.rect(LEFT, top + 3, wide, NAMED, "paper")]  # No line of the axis runs through the name.
    parts.append(svg.text(LEFT, top + NAMED, workload, room=RIGHT - LEFT))
    parts.append(svg.line(12, top + height, RIGHT, top + height, "line", wide=0.5))
    for which, name in enumerate(variants):
        for verdict in (verdict for verdict in shown if (verdict.workload, verdict.variant) == (workload, name)):
            parts += _interval(verdict, which, top + NAMED + 6 + LINE * (which + 0.5), axis)
    return parts


def _interval(verdict: SpeedVerdict, which: int, y: float, axis: _Axis) -> list[str]:
    scale, hue = axis.scale, svg.hue(which)
    low, high = verdict.interval
    parts = [svg.line(scale(low), y, scale(high), y, hue, wide=2)]
    for end, inward in ((low, 5.0), (high, -5.0)):
        x = scale(end)
        if scale.low <= end <= scale.high:
            parts.append(svg.line(x, y - 3, x, y + 3, hue, wide=2))
        else:
            parts.append(svg.path(((x + inward, y - 4), (x, y), (x + inward, y + 4)), hue))
    return [*parts, svg.mark(scale(verdict.ratio), y, which)]


def _told(judged: Sequence[SpeedVerdict], baseline: str) -> str:
    """The figure in words."""
    sentences = []
    for name in dict.fromkeys(verdict.variant for verdict in judged):
        mine = sorted((v for v in judged if v.variant == name), key=lambda v: v.ratio)
        least, most = (f"{say.ratio(v.ratio, v.interval)} on {v.workload}" for v in (mine[0], mine[-1]))
        sentences.append(f"{name}: from {least} to {most}" if len(mine) > 1 else f"{name}: {least}")
    return (
        f"{baseline}'s time over the variant's, with 99 % intervals; above 1 the variant is faster. "
        + "; ".join(sentences)
    )
