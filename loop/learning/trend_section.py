"""A target's ratios over sessions, as a table and a line of blocks that breaks where the baseline changed."""

import math
from collections.abc import Iterator, Sequence

from loop.model.comparison import Point, Seen, Series
from loop.report import format as say
from loop.report.bars import block
from loop.report.markdown import columns, filled
from loop.report.sections import Section

STILL = 0.02
"""Ratios within 2 % are no movement: a flat line stands in the middle."""
GAP = " | "
MARKS = {"incorrect": "x", "none": "-", "unsure": "?"}
STATES = {"incorrect": "incorrect: no speed", "none": "no speed", "unsure": "disturbed", "right": ""}


def sparkline(points: Sequence[Point]) -> str:
    """`▁▃ | ▅█`: logarithms of ratios, lowest to highest; `x` is wrong, `?` disturbed, `|` a new baseline."""
    ratios = [math.log(one.ratio) for one in points if one.ratio]
    low, high = min(ratios, default=0.0), max(ratios, default=0.0)
    line = ""
    for one in points:
        line += GAP if one.breaks else ""
        line += block(math.log(one.ratio), low, high, flat=STILL) if one.ratio else MARKS[one.state]
    return line.strip()


def sections(series: Sequence[Series], elsewhere: Sequence[Seen] = ()) -> Iterator[Section]:
    """A section for each variant, device and choice of workloads; then what reports of elsewhere state."""
    for one in series:
        yield _section(one)
    stated = tuple(f"{seen.id}: {line}" for seen in elsewhere for line in seen.stated if line.startswith("ratio"))
    yield Section("Recorded elsewhere, on workloads that are not known: never connected", stated)


def _section(one: Series) -> Section:
    heads = columns("Session", "Commit", ">Ratio", ">Workloads", "Remark")
    rows = tuple(_row(point) for point in one.points)
    ratios = [point.ratio for point in one.points if point.ratio]
    span = f", {say.times(min(ratios))} to {say.times(max(ratios))}" if ratios else ""
    after = tuple(_legend(one.points))
    where = f"{one.variant} on {one.device} against {one.baseline}, workloads {', '.join(one.sets)}"
    return Section(where, (f"{sparkline(one.points)}{span}",), filled(heads, rows), after, wrap=-1)


def _legend(points: Sequence[Point]) -> Iterator[str]:
    """What marks in the line mean, those that are in it."""
    broken = sum(1 for point in points if point.breaks)
    if broken:
        yield f"|: {say.count(broken, 'new baseline')}; ratios are not connected across it"
    if any(point.state == "unsure" for point in points):
        yield "?: disturbed: an interval whose ends differ by more than a factor of 10 says nothing"
    if any(point.state == "incorrect" for point in points):
        yield "x: incorrect, so without a speed"


def _row(point: Point) -> tuple[str, ...]:
    commit = (point.commit or "unknown")[:12] + (" + changes" if point.dirty else "")
    ratio = say.times(point.ratio) if point.ratio else "-"
    breaks = f"new baseline: {'; '.join(point.breaks)}" if point.breaks else ""
    remark = "; ".join(filter(None, (STATES[point.state], breaks)))
    return point.session, commit, ratio, str(point.workloads), remark
