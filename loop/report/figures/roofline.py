"""Draws the roofline with the variants on it: FLOP/s over FLOP/byte (Williams et al., 2009)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.profile import Profile
from loop.report import format as say
from loop.report.figures import svg

LEFT, RIGHT, TOP, BOTTOM = 60.0, svg.WIDTH - 16, 44.0, 300.0
ROOF_FACTS = ("flops", "bytes", "time_us", "flops_share", "bandwidth_share")
"""Facts of a profile that determine the roof."""
MAX_VARIANTS = 8  # Most variants that are drawn; the others are counted, and are in the report's table.


@dataclass(frozen=True)
class Point:
    """A variant's place on the roofline. `intensity`: operations per byte."""

    variant: str
    workload: str
    intensity: float
    flops_per_s: float
    """Operations per second that the variant reaches."""
    baseline_flops_per_s: float | None
    """Operations per second of the library on the same workload; None: unknown."""

    def describe(self, roof: "Roof | None") -> str:
        """Operations per second and share of the roof, in words. `roof`: None: unknown."""
        share = roof.share(self.flops_per_s, self.flops_per_s / self.intensity) if roof else None
        roof_text = ", roof unknown" if share is None else f", {say.significant(100 * share, 2)} % of its roof"
        return f"{self.variant}: {svg.with_prefix(self.flops_per_s)}FLOP/s{roof_text}"


@dataclass(frozen=True)
class Roof:
    """Peak rates of the device: one roof for all variants of a session."""

    flops_per_s: float
    bytes_per_s: float

    def share(self, flops_per_s: float | None, bytes_per_s: float | None) -> float | None:
        """How near the rates are to the roof: the larger of their shares of the peaks; None if a rate is
        unknown."""
        if not flops_per_s or not bytes_per_s:
            return None
        return max(flops_per_s / self.flops_per_s, bytes_per_s / self.bytes_per_s)


def find_roof(profiles: Sequence[Profile]) -> Roof | None:
    """The highest peaks that any profile implies: its rates / their shares of the peak; None if no profile has all
    of `ROOF_FACTS`."""
    flops_peaks, bytes_peaks = list[float](), list[float]()
    for profile in profiles:
        flops, moved, time_us, flops_share, bandwidth_share = (
            _positive_fact(profile, name) for name in ROOF_FACTS
        )
        if flops and moved and time_us and flops_share and bandwidth_share:
            flops_peaks.append(flops / time_us * 1e6 / flops_share)
            bytes_peaks.append(moved / time_us * 1e6 / bandwidth_share)
    return Roof(max(flops_peaks), max(bytes_peaks)) if flops_peaks else None


def _positive_fact(profile: Profile, name: str) -> float | None:
    """A fact of a profile as a positive number; None if it is missing, not above 0, or no number."""
    value = profile.facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return float(value)


def draw_roofline(profiles: Sequence[Profile], baseline: str) -> svg.Figure | None:
    """The roofline with each variant, and `baseline` hollow where its time is known; None if no profile has
    operations, bytes and time. The roof itself is drawn if some profile implies it."""
    all_points = []
    for profile in profiles:
        flops, moved, time_us = (_positive_fact(profile, name) for name in ROOF_FACTS[:3])
        if flops and moved and time_us:
            flops_per_s, ratio = flops / time_us * 1e6, _positive_fact(profile, "ratio")
            baseline_flops_per_s = flops_per_s / ratio if ratio else None
            all_points.append(
                Point(profile.variant, profile.workload, flops / moved, flops_per_s, baseline_flops_per_s)
            )
    points, hidden_count = all_points[:MAX_VARIANTS], len(all_points[MAX_VARIANTS:])
    if not points:
        return None
    roof = find_roof(profiles)
    intensities = [point.intensity for point in points]
    heights = [point.flops_per_s for point in points]
    heights += [point.baseline_flops_per_s for point in points if point.baseline_flops_per_s]
    if roof:
        intensities.append(roof.flops_per_s / roof.bytes_per_s)
        heights.append(roof.flops_per_s)
    x = svg.logarithmic_scale(intensities, LEFT, RIGHT, margin_factor=3)
    y = svg.logarithmic_scale(heights, BOTTOM, TOP, margin_factor=2)
    hidden_text = f"; and {say.count(hidden_count, 'more variant')}" if hidden_count else ""
    parts = [svg.text(12, 22, "Roofline", "big ink"), *_draw_axes(x, y, roof)]
    for variant_number, point in enumerate(points):  # The baseline first, so that it hides no variant.
        if point.baseline_flops_per_s:
            column, baseline_y = x(point.intensity), y(point.baseline_flops_per_s)
            parts.append(svg.line(column, y(point.flops_per_s), column, baseline_y, "soft", dash="3 3"))
            parts.append(svg.mark(column, baseline_y, variant_number, hollow=True))
    for variant_number, point in enumerate(points):
        parts.append(svg.mark(x(point.intensity), y(point.flops_per_s), variant_number))
    text_y, room = BOTTOM + 58, svg.WIDTH - 46
    for variant_number, point in enumerate(points):
        parts.append(svg.mark(20, text_y - 4, variant_number))
        parts.append(svg.text(34, text_y, point.describe(roof), max_width=room))
        parts.append(svg.text(34, text_y + 18, f"at its worst, {point.workload}", "soft", max_width=room))
        text_y += 36
    hollow = f"hollow: {baseline} there" if any(point.baseline_flops_per_s for point in points) else ""
    parts.append(svg.text(34, text_y, f"{hollow}{hidden_text}".removeprefix("; "), "soft", max_width=room))
    height = BOTTOM + 56 + 18 * (2 * len(points) + 1)
    sentences = "; ".join(f"{point.describe(roof)} on {point.workload}" for point in points)
    description = f"Each variant on the workload where it does worst, {baseline} hollow. {sentences}{hidden_text}"
    return svg.draw_figure("roofline", "Roofline with the variants on it", description, height, parts)


def _draw_axes(x: svg.Scale, y: svg.Scale, roof: Roof | None) -> Iterator[str]:
    """SVG of both axes, and of the roof if it is known."""
    for value in x.round_values():
        yield svg.line(x(value), TOP, x(value), BOTTOM, "line", width=0.5)
        yield svg.text(x(value), BOTTOM + 16, svg.plain_number(value), "soft", anchor="middle")
    for value in y.round_values():
        yield svg.line(LEFT, y(value), RIGHT, y(value), "line", width=0.5)
        yield svg.text(LEFT - 6, y(value) + 4, svg.with_prefix(value), "soft", anchor="end")
    yield svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "soft")
    yield svg.line(LEFT, TOP, LEFT, BOTTOM, "soft")
    yield svg.text(RIGHT, BOTTOM + 34, "operations a byte moved, logarithmic", "soft", anchor="end")
    yield svg.text(RIGHT, 22, "operations a second, logarithmic", "soft", anchor="end")
    if roof is None:
        return
    compute, bandwidth = roof.flops_per_s, roof.bytes_per_s
    # The roof rises with the bandwidth up to the ridge, and is level from there on.
    ridge, start = compute / bandwidth, max(x.low, y.low / bandwidth)
    corners = ((start, start * bandwidth), (ridge, compute), (x.high, compute))
    yield svg.path(((x(intensity), y(flops_per_s)) for intensity, flops_per_s in corners), "ink")
    yield svg.text(x(x.high) - 4, y(compute) - 6, f"{svg.with_prefix(compute)}FLOP/s", anchor="end")
    middle = (start * ridge) ** 0.5
    yield svg.text(x(middle) + 8, y(middle * bandwidth) + 14, f"{svg.with_prefix(bandwidth)}B/s")
