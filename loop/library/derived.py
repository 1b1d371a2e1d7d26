"""What follows from the rows of recorded sessions: how steps kept to their targets, and what contradicts what."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from loop.base.stats import geometric_mean
from loop.model.base import Model
from loop.model.history import RESOURCES, RecordedSession

CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
CENT = 0.01
"""Dollars by which figures may differ that were rounded to cents, up or down."""
SPEEDUP = 0.005
"""Half of the last digit of a speed-up."""


class StepSums(Model):
    """Steps that state both a target and what they took."""

    steps: int
    """How many."""
    target_s: float
    """Seconds that they were given."""
    actual_s: float
    """Seconds that they took."""
    within: int
    """Those that took no longer than their target."""
    failed: int
    """Those that the report says failed."""

    @property
    def text(self) -> str:
        """In a sentence."""
        took, target = self.actual_s / 60, self.target_s / 60
        succeeded = self.steps - self.failed
        return (
            f"{self.steps} steps took {took:.1f} min of {target:.1f} planned ({100 * took / target:.0f} %); "
            f"{self.within} kept to their target, {succeeded} succeeded ({100 * succeeded / self.steps:.0f} %)"
        )


def step_sums(rows: Iterable[dict[str, Any]]) -> StepSums | None:
    """Sums over steps; None where none states both times."""
    timed = [row for row in rows if _number(row, "target_s") > 0 and _number(row, "actual_s") > 0]
    if not timed:
        return None
    return StepSums(
        steps=len(timed),
        target_s=sum(_number(row, "target_s") for row in timed),
        actual_s=sum(_number(row, "actual_s") for row in timed),
        within=sum(_number(row, "actual_s") <= _number(row, "target_s") for row in timed),
        failed=sum(row.get("status") == "failed" for row in timed),
    )


def contradictions(session: RecordedSession) -> tuple[str, ...]:
    """Figures of one session that cannot all be right, both sides of each. The rows are what is counted with."""
    name = session.row.id
    sentences = [
        *_durations(session),
        *_speedup(session),
        *(say for stated in session.stated for say in _stated(session, stated)),
    ]
    return tuple(f"{name}: {say}" for say in sentences)


def _durations(session: RecordedSession) -> Iterator[str]:
    """The session's minutes, those of its clock, and those of its steps."""
    minutes, what = session.row.minutes, "the session"
    for stated in session.stated:
        clock = _clock_minutes(stated)
        if clock is not None and abs(clock - minutes) >= 1:
            yield f"{minutes:g} min, but {stated['from']} to {stated['to']} is {clock} min"
            minutes, what = (clock, "that clock") if clock < minutes else (minutes, what)
    steps = sum(_number(step, "actual_s") for step in session.steps) / 60
    if steps > 1.005 * minutes:
        yield f"its steps took {steps:.1f} min, but {what} has {minutes:g}"


def _clock_minutes(stated: dict[str, Any]) -> int | None:
    ends = [CLOCK.fullmatch(str(stated.get(name))) for name in ("from", "to")]
    begun, ended = (60 * int(end[1]) + int(end[2]) if end else None for end in ends)
    return None if begun is None or ended is None else (ended - begun) % (24 * 60)


def _speedup(session: RecordedSession) -> Iterator[str]:
    """A speed-up that is no geometric mean of the session's own rows."""
    both = [(_number(row, "pytorch_ms"), _number(row, "ours_ms")) for row in session.measurements]
    ratios = [pytorch / own for pytorch, own in both if pytorch > 0 and own > 0]
    if session.row.speedup is None or not ratios:
        return
    mean = geometric_mean(ratios)
    if abs(mean - session.row.speedup) > SPEEDUP:
        yield f"speed-up {session.row.speedup:g}, but the geometric mean of its {len(ratios)} rows is {mean:.2g}"


def _stated(session: RecordedSession, stated: dict[str, Any]) -> Iterator[str]:
    """What a report states of the session, or of all up to it, besides its row."""
    report, hours, sessions = (stated.get(name) for name in ("report", "hours", "sessions"))
    if "through" in stated:
        if isinstance(sessions, int) and sessions != session.position:
            yield f"report {report} counts {sessions} sessions up to it, but it is number {session.position}"
        return
    if isinstance(hours, int | float) and abs(60 * hours - session.row.minutes) >= 1:
        yield f"report {report} counts {hours:g} h, but its row {session.row.minutes:g} min"
    for resource in RESOURCES:
        stated_usd, usd = _number(stated, f"{resource}_usd"), session.row.usd_of(resource)
        if stated_usd and usd is not None and abs(stated_usd - usd) > CENT + 1e-9:
            yield f"report {report} counts ${stated_usd:.2f} for its {resource}, but its row ${usd:.2f}"


def _number(row: dict[str, Any], name: str) -> float:
    """0 where a row does not state it."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
