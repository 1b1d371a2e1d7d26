"""A target's ratios over sessions, and where they may not be connected. Pure: no clock, no disk."""

from collections.abc import Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.learning.comparison import PLACE
from loop.model.comparison import Judged, Point, Seen, Series


def trends(sessions: Sequence[Seen], variant: str | None = None) -> tuple[Series, ...]:
    """One series for each variant, device, baseline and choice of workload sets, oldest session first."""
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[Seen]] = {}
    for one in sessions:
        for name in dict.fromkeys((*one.verdicts, *one.incorrect)):
            if variant in (None, name):
                key = (name, one.device or "", one.baseline or "", one.sets)
                groups.setdefault(key, []).append(one)
    return tuple(
        Series(variant=name, device=device, baseline=baseline, sets=sets, points=tuple(_points(name, mine)))
        for (name, device, baseline, sets), mine in sorted(groups.items(), key=lambda pair: pair[0][0])
    )


def _points(variant: str, sessions: Sequence[Seen]) -> Iterator[Point]:
    """A point is connected with the one before it where both were measured against the same thing."""
    before: Seen | None = None
    timed: set[str] = set()
    known: dict[str, str] = {}
    for one in sessions:
        found = {name: judged for name, judged in one.verdicts.get(variant, {}).items() if judged.ratio}
        breaks = list(_changes(known, one)) if before else []
        if found and timed and set(found) != timed:
            breaks.append(f"other workloads: {len(found)}, before {len(timed)}")
        yield _point(variant, one, list(found.values()), breaks)
        before, timed = one, set(found) or timed
        known |= {fact: value for fact, value in one.facts.items() if value is not None}


def _changes(known: dict[str, str], now: Seen) -> Iterator[str]:
    """Facts that the baseline hangs on and that differ from what was last known of them."""
    for fact in PLACE:
        value, was = now.facts.get(fact), known.get(fact)
        if value is not None and was is not None and value != was:
            yield f"{fact} {was} -> {value}"


def _point(variant: str, one: Seen, judged: Sequence[Judged], breaks: Sequence[str]) -> Point:
    assert one.started is not None
    wrong = variant in one.incorrect
    unsure = any(found.vague for found in judged)
    says = [found.ratio for found in judged if found.ratio] if not wrong and not unsure else []
    return Point(
        session=one.id,
        started=one.started,
        commit=one.commit,
        dirty=one.dirty,
        state="incorrect" if wrong else "none" if not judged else "unsure" if unsure else "right",
        ratio=geometric_mean(says) if says else None,
        workloads=len(judged),
        breaks=tuple(breaks),
    )
