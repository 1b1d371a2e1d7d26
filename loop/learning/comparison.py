"""What may be said of several sessions together. Pure: no clock, no disk.

A ratio was measured against a library beside the candidate, so ratios of one target, device and baseline may stand
side by side. Latencies may not: they hang on the machine, the day and the hour.
"""

from collections.abc import Iterator, Sequence

from loop.learning.model import ComparedSession, Comparison, Difference, Judged, Moved, Row
from loop.repository.between import Revisions


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


def _rows(sessions: Sequence[ComparedSession], together: set[str]) -> Iterator[Row]:
    """Every variant on every workload that one of the sessions has a verdict on."""
    shown = [session.verdicts if session.id in together else {} for session in sessions]
    variants = dict.fromkeys(variant for verdicts in shown for variant in verdicts)
    for variant in variants:
        mine = [verdicts.get(variant, {}) for verdicts in shown]
        for workload in dict.fromkeys(name for verdicts in mine for name in verdicts):
            yield _row(variant, workload, [verdicts.get(workload) for verdicts in mine])


def _row(variant: str, workload: str, cells: Sequence[Judged | None]) -> Row:
    there = [cell for cell in cells if cell is not None]
    timed = [cell for cell in there if cell.interval is not None and not cell.vague]
    several = len(timed) > 1
    return Row(
        variant=variant,
        workload=workload,
        cells=tuple(cells),
        change=(timed[-1].ratio or 1.0) / (timed[0].ratio or 1.0) if several else None,
        moved=_moved(timed[0], timed[-1]) if several else None,
        verdict_changed=len(there) > 1 and there[0].verdict != there[-1].verdict,
    )


def _moved(first: Judged, last: Judged) -> Moved:
    assert first.interval is not None
    assert last.interval is not None
    if last.interval[0] > first.interval[1]:
        return "higher"
    return "lower" if last.interval[1] < first.interval[0] else "within"
