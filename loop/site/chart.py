"""The ratios of one variant over its sessions, as a drawing with a table of the same numbers beside it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loop.model.index import SessionRow
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure, logarithmic, plain_number

MOST_POINTS = 200
"""Sessions that are drawn, the last ones."""
MOST_PLACES = 3
"""Environments that have a mark of their own; the rest share one."""
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 240.0, 60.0, 12.0, 14.0, 40.0
OTHERS = "other environments"


@dataclass(frozen=True)
class Point:
    """One session's ratio."""

    session: str
    when: str
    ratio: float
    sure: bool
    """False where a workload was inconclusive."""
    place: str
    """Where it was measured."""
    plan: str
    """Says which workloads the ratio is the mean over."""


def points(variant: str, rows: Sequence[SessionRow]) -> tuple[Point, ...]:
    """The sessions that measured a variant against the baseline and found it right, oldest first."""
    return tuple(
        Point(row.id, say.day(row.started) if row.started else "", row.ratios[variant], variant not in row.unsure,
              place(row), row.plan)
        for row in rows
        if row.ratios.get(variant, 0.0) > 0 and variant not in row.incorrect
    )  # fmt: skip


def place(row: SessionRow) -> str:
    """Where a session ran, in a few words."""
    return row.environment.gpu or row.environment.processor or "an unknown machine"


def chart(variant: str, found: Sequence[Point]) -> Figure | None:
    """Ratios on a logarithmic scale, in the order of the sessions; None with fewer than two."""
    shown = found[-MOST_POINTS:]
    if len(shown) < 2:
        return None
    ratios, places = [point.ratio for point in shown], _places(shown)
    scale = logarithmic([*ratios, 1.0], HEIGHT - BOTTOM, TOP)
    parts = []
    for value in scale.marks(7):
        parts.append(svg.line(LEFT, scale(value), svg.WIDTH - RIGHT, scale(value)))
        parts.append(svg.text(LEFT - 6, scale(value) + 4, f"{plain_number(value)}x", "soft", anchor="end"))
    parts.append(svg.line(LEFT, scale(1.0), svg.WIDTH - RIGHT, scale(1.0), "ink", dash="5 4"))
    parts.append(svg.text(LEFT, HEIGHT - 8, "sessions, oldest to newest; speed, baseline = 1", "soft"))
    apart = (svg.WIDTH - LEFT - RIGHT - 20) / (len(shown) - 1)
    for number, point in enumerate(shown):
        kind = places.index(point.place) if point.place in places else len(places) - 1
        parts.append(svg.mark(LEFT + 10 + apart * number, scale(point.ratio), kind, hollow=not point.sure))
    return svg.drawn("speed", f"Speed of {variant} over its sessions", _words(ratios, places), HEIGHT, parts)


def _places(found: Sequence[Point]) -> tuple[str, ...]:
    """Environments with most sessions first; all beyond the first few under one name."""
    ranked = [place for place, _ in Counter(point.place for point in found).most_common()]
    return (*ranked[:MOST_PLACES], *([OTHERS] if len(ranked) > MOST_PLACES else []))


def _words(ratios: Sequence[float], places: Sequence[str]) -> str:
    first, last, low, high = (say.times(value) for value in (ratios[0], ratios[-1], min(ratios), max(ratios)))
    marks = "; ".join(f"{shape} is {place}" for shape, place in zip(svg.SHAPES, places, strict=False))
    return (
        f"{len(ratios)} sessions: first {first}, last {last}, between {low} and {high}. "
        f"Above 1 it is faster than the baseline. Marks: {marks}. Hollow marks are inconclusive."
    )
