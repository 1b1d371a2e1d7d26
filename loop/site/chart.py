"""The ratios of one variant over its sessions, as a drawing with a table of the same numbers beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loop.model.index import SessionRow
from loop.report import format as say

MOST_POINTS = 200
"""Sessions that are drawn, the last ones."""
MOST_PLACES = 3
"""Environments that have a mark of their own; the rest share one."""
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 14, 40
NICE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
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


@dataclass(frozen=True)
class Mark:
    """A point of the drawing, in its coordinates."""

    x: float
    y: float
    kind: int
    """Which environment, from 0."""
    sure: bool
    words: str


@dataclass(frozen=True)
class Chart:
    """A drawing: ticks as (y, label), marks, and what each kind of mark stands for."""

    ticks: tuple[tuple[float, str], ...]
    marks: tuple[Mark, ...]
    places: tuple[str, ...]
    words: str
    """What it shows, for whoever does not see it."""


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


def chart(variant: str, found: Sequence[Point]) -> Chart | None:
    """Ratios on a logarithmic scale, in the order of the sessions; None with fewer than two."""
    drawn = found[-MOST_POINTS:]
    if len(drawn) < 2:
        return None
    places = _places(drawn)
    low, high = _bounds([one.ratio for one in drawn])
    ticks = tuple((_y(tick, low, high), say.times(tick)) for tick in NICE if low <= tick <= high)
    marks = tuple(
        Mark(_x(number, len(drawn)), _y(one.ratio, low, high), _kind(one.place, places), one.sure,
             f"{one.session}: {say.times(one.ratio)} on {one.place}{'' if one.sure else ', inconclusive'}")
        for number, one in enumerate(drawn)
    )  # fmt: skip
    return Chart(ticks, marks, places, _words(variant, drawn))


def _places(found: Sequence[Point]) -> tuple[str, ...]:
    """Environments with most sessions first; all beyond the first few under one name."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.place] = counts.get(one.place, 0) + 1
    ranked = sorted(counts, key=lambda name: -counts[name])
    return (*ranked[:MOST_PLACES], *([OTHERS] if len(ranked) > MOST_PLACES else []))


def _kind(name: str, places: Sequence[str]) -> int:
    return places.index(name) if name in places else len(places) - 1


def _bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Ends of the scale: the next round numbers, 1 always between them."""
    low, high = min(*ratios, 1.0), max(*ratios, 1.0)
    below = [tick for tick in NICE if tick < low] or [low / 2]
    above = [tick for tick in NICE if tick > high] or [high * 2]
    return below[-1], above[0]


def _x(number: int, of: int) -> float:
    return round(LEFT + 10 + (WIDTH - LEFT - RIGHT - 20) * number / (of - 1), 1)


def _y(ratio: float, low: float, high: float) -> float:
    share = math.log(ratio / low) / math.log(high / low)
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _words(variant: str, found: Sequence[Point]) -> str:
    ratios = [one.ratio for one in found]
    first, last, low, high = (say.times(value) for value in (ratios[0], ratios[-1], min(ratios), max(ratios)))
    return (
        f"Speed of {variant} against the baseline in {len(found)} sessions: first {first}, last {last}, "
        f"between {low} and {high}; above 1 it is faster than the baseline."
    )
