"""What the report says of sessions before this one: ratios side by side."""

from collections.abc import Iterable, Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.model.history import History, HistorySession
from loop.model.record import SessionHead, SessionRecord
from loop.model.verdict import SpeedVerdict
from loop.report import format as say
from loop.report.findings import speed_verdicts
from loop.report.markdown import Table, columns, filled

RECENT = 5
"""Earlier sessions that are shown."""


def earlier(record: SessionRecord, before: Iterable[SessionRecord]) -> Table | None:
    """Earlier sessions of this target and device, newest first: ratios only, on the workloads in common."""
    heads = columns(
        "Session", "Sources", "Machine", "Variant", ">Workloads in common", ">Ratio then", ">Ratio now"
    )
    head = record.head
    mine = [
        one
        for one in before
        if (one.head.target, one.head.device) == (head.target, head.device) and one.head.id != head.id
    ]
    mine.sort(key=lambda one: one.head.started)
    rows = tuple(row for one in reversed(mine[-RECENT:]) for row in _earlier_rows(record, one))
    return filled(heads, rows)


def _earlier_rows(now: SessionRecord, then: SessionRecord) -> Iterator[tuple[str, ...]]:
    sources = (then.head.revision.commit or "unknown")[:12] + (" + changes" if then.head.revision.dirty else "")
    machine = "this one" if _place(now.head) == _place(then.head) else "another"
    for variant in dict.fromkeys((*now.head.variants, *then.head.variants)):
        if variant in then.head.variants:
            figures = _in_common(_ratios(now, variant), _ratios(then, variant))
            yield then.head.id, sources, machine, variant, *figures


def _in_common(now: dict[str, SpeedVerdict], then: dict[str, SpeedVerdict]) -> tuple[str, str, str]:
    common = [name for name in then if name in now]
    if not common:
        return "0", _alone(then), _alone(now)
    first, second = (_mean([side[name] for name in common]) for side in (then, now))
    return str(len(common)), first, second


def _mean(judged: Sequence[SpeedVerdict]) -> str:
    """A mean of noise is noise: where an interval says nothing there is none."""
    return (
        "disturbed" if any(one.vague for one in judged) else say.times(geometric_mean([v.ratio for v in judged]))
    )


def _alone(judged: dict[str, SpeedVerdict]) -> str:
    """A mean that has nothing to stand beside."""
    return f"{_mean([*judged.values()])} over {len(judged)}" if judged else "no speed"


def _ratios(record: SessionRecord, variant: str) -> dict[str, SpeedVerdict]:
    judged: list[SpeedVerdict] = speed_verdicts(record.verdicts)
    return {one.workload: one for one in judged if one.variant == variant}


def _place(head: SessionHead) -> tuple[object, ...]:
    machine = head.machine
    return machine.name, machine.processor, machine.cores, machine.gpus, head.threads


def recorded(histories: Sequence[History]) -> tuple[str, ...]:
    """The ratios of recorded histories, a line each: for orientation, never for comparison."""
    return tuple(text for history in histories for text in _recorded(history))


def _recorded(history: History) -> Iterator[str]:
    rows = [session for session in history.sessions if session.speedup is not None]
    if rows:
        where = history.gpu.get("name", "another machine")
        yield f"Recorded elsewhere ({where}), not comparable: {'; '.join(_row(row) for row in rows)}"


def _row(session: HistorySession) -> str:
    wrong = " (its output was wrong)" if session.correct is False else ""
    return f"{session.id} {say.times(session.speedup or 0.0)}{wrong}"
