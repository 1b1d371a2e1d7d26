"""What the report says of money, and of sessions before this one."""

from collections.abc import Iterable, Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.model.history import History, HistorySession
from loop.model.metering import ModelUse
from loop.model.money import Bill, Charge, Saving
from loop.model.record import SessionHead, SessionRecord
from loop.model.verdict import SpeedVerdict
from loop.report import format as say
from loop.report.findings import speed_verdicts
from loop.report.markdown import Table, columns, filled

RECENT = 5
"""Earlier sessions that are shown."""
WHO = {"gpu": "GPU", "engineer": "engineer, waiting", "ai": "AI", "energy": "energy"}
CLASSES = {
    "measured": "this project's own records",
    "history": "the recorded history",
    "prior": "an author's estimate",
}


def charges(bill: Bill) -> Table | None:
    """Use times rate; None when nothing was charged."""
    heads = columns("What", "Rate", ">Dollars an hour", ">Used", ">Cost", "Use is")
    rows = tuple(
        (WHO[one.resource], one.rate, *_by_time(one), say.usd(one.usd), one.basis) for one in bill.charges
    )
    total = (("Sum", "", "", "", say.usd(bill.usd), ""),) if len(rows) > 1 else ()
    return filled(heads, (*rows, *total))


def _by_time(one: Charge) -> tuple[str, str]:
    """Dollars an hour and time; dashes for what is not paid by the hour."""
    if one.seconds <= 0 or one.resource == "energy":
        return "-", "-"
    return say.rate(one.usd / one.seconds * 3600), say.seconds(one.seconds)


def tokens(bill: Bill) -> Table | None:
    """What each model was used for; None where nobody told."""
    heads = columns("Model", ">Calls", ">Read", ">From a cache", ">Into a cache", ">Written", ">Cost")
    models = bill.ai.models if bill.ai else ()
    return filled(heads, tuple(_model_row(one) for one in models))


def _model_row(one: ModelUse) -> tuple[str, ...]:
    used = one.tokens
    counts = (used.input, used.cache_read, used.cache_write + used.cache_write_1h, used.output)
    calls = str(one.calls) if one.calls else "-"
    return (
        one.model,
        calls,
        *(f"{count:,}" for count in counts),
        "unknown" if one.usd is None else say.usd(one.usd),
    )


def notes(bill: Bill) -> tuple[str, ...]:
    """What a reader has to know of these figures."""
    priced = any(one.resource == "energy" for one in bill.charges)
    energy = [f"energy: the GPU took {bill.energy_j:,.0f} J while it was timed"] if priced else []
    return (*bill.notes, *energy, *(bill.ai.notes if bill.ai else ()))


def gains(bill: Bill) -> tuple[str, ...]:
    """What the session's cost comes to for what it brought."""
    brought = bill.gains
    if not brought.accepted:
        return ()
    kept = say.count(brought.accepted, "kept change")
    if not brought.accepted_us or brought.accepted_us <= 0:
        return (f"{kept}; what a call gained by it was not timed",)
    a_us = say.usd(bill.usd / brought.accepted_us)
    return (f"{kept}: {say.latency(brought.accepted_us)} less a call, {a_us} for each microsecond of them",)


def unmeasured(bill: Bill) -> tuple[str, ...]:
    """What has no figure, and why: nobody measured it, or nobody knows its price."""
    known = {"ai": bill.ai is not None, "energy": bill.energy_j is not None, "gpu": True}
    return tuple(
        f"{WHO[one.resource]}: {one.reason}"
        if known.get(one.resource)
        else f"{WHO[one.resource]}: not measured ({one.reason})"
        for one in bill.unmeasured
    )


def savings(bill: Bill) -> Table | None:
    """Avoided time, pattern by pattern with its evidence; None when nothing is known to be avoided."""
    heads = columns(
        "Pattern", ">Avoided", ">Lowest to highest", ">Worth", "Evidence", "Without the pattern it took"
    )
    rows = tuple(_saving_row(saving) for saving in bill.savings)
    return filled(heads, rows)


def _saving_row(saving: Saving) -> tuple[str, ...]:
    between = f"{saving.minutes_low:.1f} to {say.minutes(saving.minutes_high)}"
    return (
        saving.pattern,
        say.minutes(saving.minutes),
        between if saving.minutes_high > saving.minutes_low else "-",
        say.usd(saving.usd),
        saving.evidence,
        saving.source,
    )


def returns(bill: Bill) -> tuple[str, ...]:
    """ROI with its arithmetic, one line a class of evidence."""
    return tuple(_return(bill, evidence) for evidence in CLASSES if evidence in bill.saved_usd)


def _return(bill: Bill, evidence: str) -> str:
    saved, roi = ({str(key): value for key, value in figures.items()} for figures in (bill.saved_usd, bill.roi))
    words = f"On {evidence} evidence ({CLASSES[evidence]}): {say.usd(saved[evidence])} avoided, "
    if evidence not in roi:
        return f"{words}ROI undefined, for nothing was charged"
    sums = f"({say.usd(saved[evidence])} - {say.usd(bill.usd)}) / {say.usd(bill.usd)}"
    return f"{words}ROI {say.significant(roi[evidence])} = {sums}{_between(bill, evidence)}"


def _between(bill: Bill, evidence: str) -> str:
    """The return by the least and by the most favourable rows, where they differ."""
    ends = [one.interval_usd for one in bill.savings if one.evidence == evidence]
    low, high = (sum(values) for values in zip(*ends, strict=True))
    if high - low < 0.005:
        return ""
    returns = [say.significant((value - bill.usd) / bill.usd) for value in (low, high)]
    return f"; {' to '.join(returns)} by the rows it rests on"


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
