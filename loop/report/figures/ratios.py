"""Draws the ratio of each variant on each workload, with its interval and a line at 1."""

from collections.abc import Sequence

from loop.model.measurement import SpeedVerdict, Verdict
from loop.report import format as say
from loop.report.figures import svg
from loop.report.findings import speed_verdicts
from loop.report.markdown import one_line

MOST_WORKLOADS = 40  # Most workloads in the figure: those with the lowest ratios. The report's table has all.
LEFT, RIGHT, TOP = 12.0, svg.WIDTH - 24, 66.0
INTERVAL_HEIGHT, NAME_HEIGHT, LEGEND_HEIGHT = 14.0, 16.0, 18.0
"""Height of one interval, of the workload's name above its intervals, and of a line of the legend."""
MAX_NAME_WIDTH = 150.0  # Most width of a variant's name.
MAX_FACTOR_BEYOND = 4.0  # An interval is cut this factor beyond the outermost ratio, with an arrow at the cut.


def draw_ratios(verdicts: Sequence[Verdict], baseline: str) -> svg.Figure | None:
    """The figure of all speeds against the baseline; None without any. It shows the `MOST_WORKLOADS` workloads
    with the lowest ratios; its description has all."""
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
    ratios = [1.0, *(verdict.ratio for verdict in shown_verdicts)]  # The line at 1 is always in sight.
    low, high = min(ratios) / MAX_FACTOR_BEYOND, max(ratios) * MAX_FACTOR_BEYOND
    ends = [min(max(end, low), high) for verdict in shown_verdicts for end in verdict.interval]
    scale = svg.logarithmic_scale([*ratios, *ends], LEFT, RIGHT, margin_factor=1.05)
    parts = [svg.text(12, 22, "Ratio by workload", "big ink"), *legend]
    for value in scale.round_values():
        parts.append(svg.line(scale(value), top, scale(value), bottom, "line"))
        parts.append(svg.text(scale(value), bottom + 16, f"{svg.plain_number(value)}x", "soft", anchor="middle"))
    parts.append(svg.line(scale(1.0), top - 4, scale(1.0), bottom, "ink", width=1.5))
    caption = "above 1 it is faster; bars: 99 % intervals; logarithmic"
    parts.append(svg.text(svg.WIDTH - 12, bottom + 34, caption, "soft", anchor="end"))
    for row_number, workload in enumerate(workloads):
        row_top = top + row_height * row_number
        name_width = min(svg.LETTER_WIDTH * len(one_line(workload)), RIGHT - LEFT) + 6
        parts.append(svg.rect(LEFT, row_top + 3, name_width, NAME_HEIGHT, "paper"))  # Hides lines behind it.
        parts.append(svg.text(LEFT, row_top + NAME_HEIGHT, workload, max_width=RIGHT - LEFT))
        parts.append(svg.line(12, row_top + row_height, RIGHT, row_top + row_height, "line", width=0.5))
        for variant_number, name in enumerate(variants):
            y = row_top + NAME_HEIGHT + 6 + INTERVAL_HEIGHT * (variant_number + 0.5)
            for verdict in shown_verdicts:
                if (verdict.workload, verdict.variant) == (workload, name):
                    parts += _draw_interval(verdict, variant_number, y, scale)
    hidden = len(all_workloads) - len(workloads)
    if hidden:
        parts.append(svg.text(12, bottom + 50, f"and {say.count(hidden, 'workload')} with higher ratios", "soft"))
    sentences = []  # The figure in words.
    for name in variants:
        texts = [f"{say.ratio(v.ratio, v.interval)} on {v.workload}" for v in by_ratio if v.variant == name]
        range_text = f"from {texts[0]} to {texts[-1]}" if len(texts) > 1 else texts[0]
        sentences.append(f"{name}: {range_text}")
    meaning = f"{baseline}'s time over the variant's, with 99 % intervals; above 1 the variant is faster"
    title, height = f"Ratio by workload, against {baseline}", bottom + (60 if hidden else 46)
    return svg.draw_figure("ratios", title, f"{meaning}. {'; '.join(sentences)}", height, parts)


def _draw_interval(verdict: SpeedVerdict, variant_number: int, y: float, scale: svg.Scale) -> list[str]:
    """SVG of a ratio and its interval at height `y`, in the variant's colour; an end beyond the scale becomes an
    arrow."""
    hue, (low, high) = svg.hue(variant_number), verdict.interval
    parts = [svg.line(scale(low), y, scale(high), y, hue, width=2)]
    for end, inward in ((low, 5.0), (high, -5.0)):
        x = scale(end)
        if scale.low <= end <= scale.high:
            parts.append(svg.line(x, y - 3, x, y + 3, hue, width=2))
        else:
            parts.append(svg.path(((x + inward, y - 4), (x, y), (x + inward, y + 4)), hue))
    return [*parts, svg.mark(scale(verdict.ratio), y, variant_number)]


def _draw_legend(variants: Sequence[str]) -> tuple[list[str], float]:
    """The legend's SVG, and the height of its lines after the first, by which the figure grows."""
    x, y, parts = 12.0, 42.0, list[str]()
    for variant_number, name in enumerate(variants):
        name_width = min(svg.LETTER_WIDTH * len(one_line(name)), MAX_NAME_WIDTH)
        if x > 12 and x + 17 + name_width > svg.WIDTH - 12:
            x, y = 12.0, y + LEGEND_HEIGHT
        parts += [svg.mark(x + 6, y, variant_number), svg.text(x + 17, y + 4, name, max_width=MAX_NAME_WIDTH)]
        x += name_width + 40
    return parts, y - 42
