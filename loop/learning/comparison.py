"""What may be said of several sessions together. Pure: no clock, no disk.

A ratio was measured against a library beside the candidate, so ratios of one target, device and baseline may stand
side by side. Latencies may not, unless one machine measured them on one day in one environment.
"""

from collections.abc import Iterator, Mapping, Sequence

from loop.model.comparison import Comparison, Difference, Judged, Moved, Revisions, Row, Seen

PLACE = ("machine", "system", "processor", "cores", "threads", "GPU", "driver", "torch")
"""Facts that the baseline's time hangs on: where one differs, so does what a ratio is against."""


def compare(sessions: Sequence[Seen], revisions: Sequence[Revisions] = ()) -> Comparison:
    """Sessions beside each other, with what may not be compared and why."""
    first = next((one for one in sessions if _speaks(one)), None)
    apart = {one.id: _apart(first, one) for one in sessions if first is not None and one is not first}
    together = [one for one in sessions if one is first or not apart.get(one.id, "-")]
    refused = [*_kept_out(sessions, first, apart), *_times(together)]
    return Comparison(
        sessions=tuple(sessions),
        environment=tuple(differences(sessions)),
        same=_same(sessions),
        revisions=tuple(revisions),
        rows=tuple(_rows(sessions, {one.id for one in together})),
        times_comparable=len(together) > 1 and not list(_times(together)),
        unknown=tuple(fact for fact in PLACE if any(one.facts.get(fact) is None for one in together)),
        refused=tuple(refused),
    )


def _speaks(session: Seen) -> bool:
    """Whether it has verdicts of its own."""
    return not session.recorded and session.status != "open"


def _apart(first: Seen, other: Seen) -> str:
    """Why the ratios of a session may not stand beside those of another; empty where they may."""
    if other.recorded:
        return "it was recorded elsewhere: what its report states is shown, on which workloads is not known"
    if other.status == "open":
        return "it has not ended: it has no verdict yet"
    for what, one, two in (
        ("target", first.target, other.target),
        ("device", first.device, other.device),
        ("baseline", first.baseline, other.baseline),
    ):
        if one != two:
            return f"another {what}, {two} and not {one}"
    return ""


def _kept_out(sessions: Sequence[Seen], first: Seen | None, apart: Mapping[str, str]) -> Iterator[str]:
    if first is None:
        yield "ratios: none of these sessions has a verdict of its own"
        return
    for one in sessions:
        if apart.get(one.id):
            yield f"ratios of {one.id}: {apart[one.id]}"


def _times(sessions: Sequence[Seen]) -> Iterator[str]:
    """Why latencies of these sessions may not be compared; nothing where they may."""
    if len(sessions) < 2:
        return
    changed = [one.fact for one in differences(sessions) if one.fact in PLACE]
    days = {one.started.date() for one in sessions if one.started}
    if "machine" in changed or "GPU" in changed or "processor" in changed:
        yield "latencies: they are of different machines; only ratios are shown"
    elif changed:
        yield f"latencies: {', '.join(changed)} changed between the sessions; only ratios are shown"
    if len(days) > 1:
        yield "latencies: they are of different days; only ratios are shown"


def differences(sessions: Sequence[Seen]) -> Iterator[Difference]:
    """Facts with more than one known value."""
    for fact in _facts(sessions):
        values = tuple(one.facts.get(fact) for one in sessions)
        if len({value for value in values if value is not None}) > 1:
            yield Difference(fact=fact, values=values)


def _same(sessions: Sequence[Seen]) -> dict[str, str]:
    found = {}
    for fact in _facts(sessions):
        values = {one.facts.get(fact) for one in sessions}
        if len(values) == 1 and None not in values:
            found[fact] = str(values.pop())
    return found


def _facts(sessions: Sequence[Seen]) -> list[str]:
    return list(dict.fromkeys(fact for one in sessions for fact in one.facts))


def _rows(sessions: Sequence[Seen], together: set[str]) -> Iterator[Row]:
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
