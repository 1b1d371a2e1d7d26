"""When each step ran, how long it took, and how long it was meant to take."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.scales import Scale, linear, plain_number
from loop.report.figures.svg import Figure
from loop.report.spans import Span

LEFT, RIGHT, TOP, ROW = 236.0, svg.WIDTH - 74, 68.0, 20.0
MOST = 60
"""Steps that are drawn; of more the longest. The report's table has all."""
KINDS = {"passed": "good", "failed": "bad", "aborted": "bad", "paused": "soft", "skipped": "soft"}
IN_MINUTES = 300.0
"""Axes longer than so many seconds are in minutes."""


def timeline(spans: Sequence[Span]) -> Figure | None:
    """The figure; None where no step ran."""
    ran = [one for one in spans if one.step.status != "skipped"]
    if not ran:
        return None
    shown = _longest(ran)
    scale = linear(max(one.end_s for one in ran), LEFT, RIGHT)
    bottom = TOP + ROW * len(shown)
    parts = [*_heads(), *_axis(scale, bottom), *_walks(ran, scale, bottom)]
    for place, one in enumerate(shown):
        parts += _row(one, scale, TOP + ROW * place)
    if len(shown) < len(ran):
        left = say.count(len(ran) - len(shown), "shorter step")
        parts.append(svg.text(12, bottom + 34, f"and {left}", "soft"))
    return svg.drawn("timeline", "Timeline of the steps", _told(ran), bottom + 44, parts)


def _longest(ran: Sequence[Span]) -> list[Span]:
    places = sorted(range(len(ran)), key=lambda place: ran[place].step.seconds, reverse=True)
    return [ran[place] for place in sorted(places[:MOST])]


def _heads() -> Iterator[str]:
    yield svg.text(12, 22, "Timeline", "big ink")
    y = 38.0
    for x, kind, said in ((12, "good", "passed"), (84, "bad", "failed or broken off"), (232, "soft", "paused")):
        yield svg.rect(x, y - 8, 12, 10, kind)
        yield svg.text(x + 18, y + 1, said, "soft")
    yield svg.line(310, y - 9, 310, y + 3, "ink", wide=2)
    yield svg.text(318, y + 1, "where its target would end", "soft")


def _axis(scale: Scale, bottom: float) -> Iterator[str]:
    unit, size = ("min", 60.0) if scale.high > IN_MINUTES else ("s", 1.0)
    for value in Scale(0, scale.high / size, scale.start, scale.end).marks(7):
        x = scale(value * size)
        yield svg.line(x, TOP - 4, x, bottom, "line", wide=0.5)
        yield svg.text(x, bottom + 16, f"{plain_number(value)} {unit}", "soft", anchor="middle")
    yield svg.text(RIGHT, bottom + 34, "time in the session", "soft", anchor="end")


def _walks(ran: Sequence[Span], scale: Scale, bottom: float) -> Iterator[str]:
    """A line where the session was resumed."""
    for before, after in pairwise(ran):
        if after.walk > before.walk:
            x = scale(after.begin_s)
            yield svg.line(x, TOP - 4, x, bottom, "ink", dash="2 3")
            yield svg.text(x, TOP - 8, "resumed", "soft", anchor="middle")


def _row(one: Span, scale: Scale, top: float) -> Iterator[str]:
    step = one.step
    yield svg.text(12, top + 14, f"{step.pattern}/{step.step}", room=LEFT - 22)
    start, end = scale(one.begin_s), scale(one.end_s)
    yield svg.rect(start, top + 4, max(end - start, 2), ROW - 8, KINDS.get(step.status, "soft"))
    target = one.begin_s + step.budget_s
    if target <= scale.high:
        yield svg.line(scale(target), top + 2, scale(target), top + ROW - 2, "ink", wide=2)
    said = say.seconds(step.seconds) + ("" if step.status == "passed" else f" {step.status}")
    beyond = _clear_of(scale(target) if target <= scale.high else 0.0, end + 6, svg.width_of(said))
    if beyond + svg.width_of(said) < svg.WIDTH - 4:
        yield svg.text(beyond, top + 14, said, "soft")
    else:
        yield svg.text(start - 6, top + 14, said, "soft", anchor="end")


def _clear_of(mark: float, x: float, wide: float) -> float:
    """Where a text begins so that it does not stand on the mark of the target."""
    return mark + 6 if x - 6 < mark < x + wide + 4 else x


def _told(ran: Sequence[Span]) -> str:
    longest = sorted(ran, key=lambda one: one.step.seconds, reverse=True)[:3]
    said = [f"{one.step.pattern}/{one.step.step} {say.seconds(one.step.seconds)}" for one in longest]
    late = sum(one.step.over_budget for one in ran)
    return (
        f"{say.count(len(ran), 'step')} in {say.seconds(max(one.end_s for one in ran))}, {late} over target. "
        + (f"Longest: {', '.join(said)}")
    )
