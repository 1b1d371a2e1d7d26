"""The roofline with the variants on it: operations a second over operations a byte (Williams et al., 2009)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.profile import Profile
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.scales import Scale, logarithmic, plain_number, with_prefix
from loop.report.figures.svg import Figure

LEFT, RIGHT, TOP, BOTTOM = 84.0, svg.WIDTH - 24, 40.0, 300.0
ALIKE = 0.02
"""Roofs that differ by less than this share are drawn as one."""
MOST = 8
"""Variants that are shown; of more it is said how many."""


@dataclass(frozen=True)
class Point:
    """Where one variant is."""

    variant: str
    workload: str
    intensity: float
    """Operations a byte."""
    reached: float
    """Operations a second."""
    library: float | None
    """Operations a second of the library on the same workload."""
    compute: float | None
    """Operations a second that the device reaches."""
    bandwidth: float | None
    """Bytes a second that it reaches."""


def roofline(profiles: Sequence[Profile], baseline: str) -> Figure | None:
    """The figure; None where nothing was profiled of which operations, bytes and time are known."""
    known = [point for one in profiles if (point := _point(one)) is not None]
    points, left = known[:MOST], len(known[MOST:])
    if not points:
        return None
    roofs = _roofs(points)
    x = logarithmic(
        [*(one.intensity for one in points), *(roof[0] / roof[1] for roof in roofs)], LEFT, RIGHT, room=3
    )
    heights = [value for one in points for value in (one.reached, one.library) if value]
    y = logarithmic([*heights, *(roof[0] for roof in roofs)], BOTTOM, TOP, room=2)
    parts = [
        svg.text(12, 22, "Roofline", "big ink"),
        *_axes(x, y),
        *_lines(roofs, x, y),
        *_marks(points, x, y),
        *_key(points, left, baseline),
    ]
    height = BOTTOM + 56 + 18 * (len(points) + 1)
    return svg.drawn("roofline", "Roofline with the variants on it", _told(points, left, baseline), height, parts)


def _point(one: Profile) -> Point | None:
    flops, bytes_, time_us = (_positive(one, name) for name in ("flops", "bytes", "time_us"))
    if flops is None or bytes_ is None or time_us is None:
        return None
    seconds, ratio = time_us * 1e-6, _positive(one, "ratio")
    compute, bandwidth = _positive(one, "flops_share"), _positive(one, "bandwidth_share")
    return Point(
        variant=one.variant,
        workload=one.workload,
        intensity=flops / bytes_,
        reached=flops / seconds,
        library=flops / seconds / ratio if ratio else None,
        compute=flops / seconds / compute if compute else None,
        bandwidth=bytes_ / seconds / bandwidth if bandwidth else None,
    )


def _positive(one: Profile, name: str) -> float | None:
    value = one.facts.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _roofs(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Operations and bytes a second of each roof that is known; those that are alike once."""
    found: list[tuple[float, float]] = []
    for one in points:
        if one.compute and one.bandwidth and not any(_alike(one, roof) for roof in found):
            found.append((one.compute, one.bandwidth))
    return found


def _alike(one: Point, roof: tuple[float, float]) -> bool:
    known = (one.compute or 0.0, one.bandwidth or 0.0)
    return all(abs(mine / other - 1) < ALIKE for mine, other in zip(known, roof, strict=True))


def _axes(x: Scale, y: Scale) -> Iterator[str]:
    for value in x.marks():
        yield svg.line(x(value), TOP, x(value), BOTTOM, "line", wide=0.5)
        yield svg.text(x(value), BOTTOM + 16, plain_number(value), "soft", anchor="middle")
    for value in y.marks(6):
        yield svg.line(LEFT, y(value), RIGHT, y(value), "line", wide=0.5)
        yield svg.text(LEFT - 6, y(value) + 4, with_prefix(value), "soft", anchor="end")
    yield svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "soft")
    yield svg.line(LEFT, TOP, LEFT, BOTTOM, "soft")
    yield svg.text(RIGHT, BOTTOM + 34, "operations a byte that has to be moved, logarithmic", "soft", anchor="end")
    yield svg.text(RIGHT, 22, "operations a second, logarithmic", "soft", anchor="end")


def _lines(roofs: Sequence[tuple[float, float]], x: Scale, y: Scale) -> Iterator[str]:
    for compute, bandwidth in roofs:
        ridge = compute / bandwidth
        start = max(x.low, y.low / bandwidth)
        yield svg.path(((x(start), y(start * bandwidth)), (x(ridge), y(compute)), (x(x.high), y(compute))), "ink")
        yield svg.text(x(x.high) - 4, y(compute) - 6, f"{with_prefix(compute)}FLOP/s", anchor="end")
        middle = (start * ridge) ** 0.5
        place = (x(middle) + 8, y(middle * bandwidth) + 14)
        yield svg.text(*place, f"{with_prefix(bandwidth)}B/s")


def _marks(points: Sequence[Point], x: Scale, y: Scale) -> Iterator[str]:
    """The library's first, so that none of them hides a variant."""
    for which, one in enumerate(points):
        if one.library:
            yield svg.line(x(one.intensity), y(one.reached), x(one.intensity), y(one.library), "soft", dash="3 3")
            yield svg.mark(x(one.intensity), y(one.library), which, hollow=True)
    for which, one in enumerate(points):
        yield svg.mark(x(one.intensity), y(one.reached), which)


def _key(points: Sequence[Point], left: int, baseline: str) -> Iterator[str]:
    y = BOTTOM + 58
    for which, one in enumerate(points):
        yield svg.mark(20, y - 4, which)
        yield svg.text(34, y, _words(one), room=svg.WIDTH - 46)
        y += 18
    hollow = f"; hollow: {baseline} on the same workload" if any(one.library for one in points) else ""
    said = f"each where it does worst{hollow}{_more(left)}"
    yield svg.text(34, y, said, "soft", room=svg.WIDTH - 46)


def _more(left: int) -> str:
    """What is said of variants that have no room; the report's table has them."""
    return f"; and {say.count(left, 'more variant')}" if left else ""


def _words(one: Point) -> str:
    share = _share(one)
    return f"{one.variant}: {with_prefix(one.reached)}FLOP/s on {one.workload}{share}"


def _share(one: Point) -> str:
    if one.compute is None or one.bandwidth is None:
        return ", roof unknown"
    roof = min(one.compute, one.bandwidth * one.intensity)
    return f", {say.significant(100 * one.reached / roof, 2)} % of its roof"


def _told(points: Sequence[Point], left: int, baseline: str) -> str:
    said = "; ".join(map(_words, points))
    return f"Each variant on the workload where it does worst, {baseline} hollow. {said}{_more(left)}"
