"""What may be said of several sessions together. Pure: no clock, no disk.

A ratio was measured against a library beside the candidate, so ratios of one target, device and baseline may stand
side by side. Latencies may not: they hang on the machine, the day and the hour.
"""

import datetime
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.change import KeptChange
from loop.model.money import Charge, Unmeasured
from loop.model.verdict import Interval, is_vague
from loop.repository.history import Revisions

Moved = Literal["higher", "lower", "within"]


class ComparedSpeed(Model):
    """What one session says of one variant on one workload against the baseline."""

    verdict: str
    """faster, slower, same, inconclusive, incorrect or invalid."""
    ratio: float | None = None
    """Baseline time / candidate time; None where it has no speed."""
    interval: Interval | None = None
    """99 % confidence interval of the ratio."""

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that its ratio says nothing."""
        return self.interval is not None and is_vague(self.interval)


class ComparedSession(Model):
    """One session as a comparison sees it."""

    id: str
    """Name of the session."""
    started: datetime.datetime
    """When it began, UTC."""
    status: str
    """How it ended; `open` while it has not."""
    grade: str = ""
    """Its letter."""
    target: str
    """Name of the target."""
    device: str
    """Where it ran."""
    baseline: str
    """Library function that ratios are against."""
    plan: str = ""
    """Name of the plan."""
    sets: tuple[str, ...] = ()
    """Workload sets of the plan."""
    facts: dict[str, str | None] = Field(default_factory=dict)
    """Environment: facts by name; None: not on record."""
    commit: str | None = None
    """Revision of the target."""
    dirty: bool = False
    """Whether files differed from it."""
    verdicts: dict[str, dict[str, ComparedSpeed]] = Field(default_factory=dict)
    """Verdicts against the baseline: by variant, then by workload."""
    kept: tuple[KeptChange, ...] = ()
    """What its kept changes brought: its verdicts are on the target with them."""
    regressed: tuple[str, ...] = ()
    """Variants that were slower than their known good."""
    incorrect: tuple[str, ...] = ()
    """Variants whose output was wrong."""
    seconds: float | None = None
    """Wall time of all its walks."""
    usd: float | None = None
    """Sum of its charges; None while it is open."""
    charges: tuple[Charge, ...] = ()
    """Priced use."""
    unmeasured: tuple[Unmeasured, ...] = ()
    """Resources without a figure."""


class Difference(Model):
    """A fact of the environment that is not the same in all sessions."""

    fact: str
    """Its name."""
    values: tuple[str | None, ...]
    """One a session, in their order; None: not on record."""


class ComparedRow(Model):
    """One variant on one workload, session by session."""

    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    cells: tuple[ComparedSpeed | None, ...]
    """One a session, in their order; None where it has no verdict, or one that may not stand beside the others."""
    change: float | None = None
    """Ratio of the last session that has one / that of the first."""
    moved: Moved | None = None
    """Whether the last interval lies above the first, below it, or meets it."""
    verdict_changed: bool = False
    """Whether first and last verdict differ."""


class Comparison(Model):
    """Sessions beside each other."""

    sessions: tuple[ComparedSession, ...]
    """In the order in which they were named."""
    environment: tuple[Difference, ...]
    """Facts that differ."""
    same: dict[str, str]
    """Facts that are the same in all of them."""
    revisions: tuple[Revisions, ...]
    """Each session's sources against those of the one before it."""
    rows: tuple[ComparedRow, ...]
    """Verdicts and ratios."""
    refused: tuple[str, ...]
    """What is not compared, and why."""


def compare(sessions: Sequence[ComparedSession], revisions: Sequence[Revisions] = ()) -> Comparison:
    """Sessions beside each other, with what may not be compared and why."""
    first = next((session for session in sessions if session.status != "open"), None)
    apart = {session.id: _apart(first, session) for session in sessions} if first is not None else {}
    together = {name for name, reason in apart.items() if not reason}
    refused = [f"ratios of {name}: {reason}" for name, reason in apart.items() if reason]
    return Comparison(
        sessions=tuple(sessions),
        environment=tuple(differences(sessions)),
        same=_same(sessions),
        revisions=tuple(revisions),
        rows=tuple(_rows(sessions, together)),
        refused=tuple(refused) if first is not None else ("ratios: none of these sessions has ended",),
    )


def _apart(first: ComparedSession, other: ComparedSession) -> str:
    """Why the ratios of a session may not stand beside those of the first; empty where they may."""
    if other.status == "open":
        return "it has not ended: it has no verdict yet"
    for what in ("target", "device", "baseline"):
        one, two = getattr(first, what), getattr(other, what)
        if one != two:
            return f"another {what}, {two} and not {one}"
    return ""


def differences(sessions: Sequence[ComparedSession]) -> Iterator[Difference]:
    """Facts with more than one known value."""
    for fact in _facts(sessions):
        values = tuple(session.facts.get(fact) for session in sessions)
        if len({value for value in values if value is not None}) > 1:
            yield Difference(fact=fact, values=values)


def _same(sessions: Sequence[ComparedSession]) -> dict[str, str]:
    values = {fact: {session.facts.get(fact) for session in sessions} for fact in _facts(sessions)}
    return {fact: str(*known) for fact, known in values.items() if len(known) == 1 and None not in known}


def _facts(sessions: Sequence[ComparedSession]) -> list[str]:
    return list(dict.fromkeys(fact for session in sessions for fact in session.facts))


def _rows(sessions: Sequence[ComparedSession], together: set[str]) -> Iterator[ComparedRow]:
    """Every variant on every workload that one of the sessions has a verdict on."""
    shown = [session.verdicts if session.id in together else {} for session in sessions]
    variants = dict.fromkeys(variant for verdicts in shown for variant in verdicts)
    for variant in variants:
        mine = [verdicts.get(variant, {}) for verdicts in shown]
        for workload in dict.fromkeys(name for verdicts in mine for name in verdicts):
            yield _row(variant, workload, [verdicts.get(workload) for verdicts in mine])


def _row(variant: str, workload: str, cells: Sequence[ComparedSpeed | None]) -> ComparedRow:
    there = [cell for cell in cells if cell is not None]
    timed = [cell for cell in there if cell.interval is not None and not cell.vague]
    several = len(timed) > 1
    return ComparedRow(
        variant=variant,
        workload=workload,
        cells=tuple(cells),
        change=(timed[-1].ratio or 1.0) / (timed[0].ratio or 1.0) if several else None,
        moved=_moved(timed[0], timed[-1]) if several else None,
        verdict_changed=len(there) > 1 and there[0].verdict != there[-1].verdict,
    )


def _moved(first: ComparedSpeed, last: ComparedSpeed) -> Moved:
    assert first.interval is not None
    assert last.interval is not None
    if last.interval[0] > first.interval[1]:
        return "higher"
    return "lower" if last.interval[1] < first.interval[0] else "within"
