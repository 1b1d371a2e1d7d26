"""What may be said of several sessions together. Pure: no clock, no disk.

A ratio was measured against a library beside the candidate, so ratios of one target, device and baseline may stand
side by side. Latencies may not: they hang on the machine, the day and the hour.
"""

from collections.abc import Iterator, Mapping, Sequence

from loop.base.stats import geometric_mean
from loop.learning.model import ComparedSession, Comparison, Difference, Judged, Moved, Point, Row, Series
from loop.repository.between import Revisions

PLACE = ("machine", "system", "processor", "cores", "threads", "GPU", "driver", "torch")
"""Facts that the baseline's time hangs on: where one differs, so does what a ratio is against."""


def compare(sessions: Sequence[ComparedSession], revisions: Sequence[Revisions] = ()) -> Comparison:
    """Sessions beside each other, with what may not be compared and why."""
    first = next((one for one in sessions if one.status != "open"), None)
    apart = {one.id: _apart(first, one) for one in sessions} if first is not None else {}
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
        values = tuple(one.facts.get(fact) for one in sessions)
        if len({value for value in values if value is not None}) > 1:
            yield Difference(fact=fact, values=values)


def _same(sessions: Sequence[ComparedSession]) -> dict[str, str]:
    values = {fact: {one.facts.get(fact) for one in sessions} for fact in _facts(sessions)}
    return {fact: str(*known) for fact, known in values.items() if len(known) == 1 and None not in known}


def _facts(sessions: Sequence[ComparedSession]) -> list[str]:
    return list(dict.fromkeys(fact for one in sessions for fact in one.facts))


def _rows(sessions: Sequence[ComparedSession], together: set[str]) -> Iterator[Row]:
    """Every variant on every workload that one of the sessions has a verdict on."""
    shown = [one.verdicts if one.id in together else {} for one in sessions]
    variants = dict.fromkeys(variant for verdicts in shown for variant in verdicts)
    for variant in variants:
        mine = [verdicts.get(variant, {}) for verdicts in shown]
        for workload in dict.fromkeys(name for found in mine for name in found):
            yield _row(variant, workload, [found.get(workload) for found in mine])


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


def trends(sessions: Sequence[ComparedSession], variant: str | None = None) -> tuple[Series, ...]:
    """One series for each variant, device, baseline and choice of workload sets, oldest session first."""
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[ComparedSession]] = {}
    for one in sessions:
        for name in dict.fromkeys((*one.verdicts, *one.incorrect)):
            if variant in (None, name):
                groups.setdefault((name, one.device, one.baseline, one.sets), []).append(one)
    return tuple(
        Series(variant=name, device=device, baseline=baseline, sets=sets, points=tuple(_points(name, mine)))
        for (name, device, baseline, sets), mine in sorted(groups.items(), key=lambda pair: pair[0][0])
    )


def _points(variant: str, sessions: Sequence[ComparedSession]) -> Iterator[Point]:
    """A point is connected with the one before it where both were measured against the same thing."""
    timed: set[str] = set()
    known: dict[str, str] = {}
    for one in sessions:
        judged = {name: cell for name, cell in one.verdicts.get(variant, {}).items() if cell.ratio}
        breaks = list(_changes(known, one.facts))
        if judged and timed and set(judged) != timed:
            breaks.append(f"other workloads: {len(judged)}, before {len(timed)}")
        yield _point(variant, one, list(judged.values()), breaks)
        timed = set(judged) or timed
        known |= {fact: value for fact, value in one.facts.items() if value is not None}


def _changes(known: Mapping[str, str], facts: Mapping[str, str | None]) -> Iterator[str]:
    """Facts that the baseline hangs on and that differ from what was last known of them."""
    for fact in PLACE:
        value, was = facts.get(fact), known.get(fact)
        if value is not None and was is not None and value != was:
            yield f"{fact} {was} -> {value}"


def _point(variant: str, one: ComparedSession, judged: Sequence[Judged], breaks: Sequence[str]) -> Point:
    wrong = variant in one.incorrect
    unsure = any(cell.vague for cell in judged)
    ratios = [cell.ratio for cell in judged if cell.ratio] if not wrong and not unsure else []
    return Point(
        session=one.id,
        started=one.started,
        commit=one.commit,
        dirty=one.dirty,
        state="incorrect" if wrong else "none" if not judged else "unsure" if unsure else "right",
        ratio=geometric_mean(ratios) if ratios else None,
        workloads=len(judged),
        kept=tuple(each for each in one.kept if each.variant == variant),
        breaks=tuple(breaks),
    )
