"""The report's section on money: cost and return, the bill behind them, and decisions."""

from collections.abc import Iterator, Sequence

from loop.model.money import Bill
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.money.model import KeepOutput, PivotOutput
from loop.report import format as say
from loop.report.markdown import columns, filled_table
from loop.report.sections import Section

WHO = {"gpu": "GPU", "engineer": "engineer", "ai": "AI"}


def money_line(bill: Bill, seconds: float) -> str:
    """`Cost: nothing was billed; 1 min 49 s of this machine. ROI not measurable yet: nothing was billed.`"""
    return f"Cost: {cost(bill, seconds)}. {roi(bill)}."


def cost(bill: Bill, seconds: float) -> str:
    """`$1.53 (GPU $0.02 measured, engineer $1.51 stated)`; names what has no known price."""
    sums: dict[tuple[str, str], float] = {}
    for charge in bill.charges:
        sums[charge.resource, charge.basis] = sums.get((charge.resource, charge.basis), 0.0) + charge.usd
    priced = [f"{WHO[resource]} {say.usd(usd)} {basis}" for (resource, basis), usd in sums.items()]
    billed = f"{say.usd(bill.usd)} ({', '.join(priced)})" if priced else "nothing was billed"
    used = {"gpu": True, "ai": bill.ai is not None and bool(bill.ai.models)}
    unknown = [WHO[missing.resource] for missing in bill.unmeasured if used.get(missing.resource)]
    more = f"; {' and '.join(unknown)}: price unknown" if unknown else ""
    silent = bill.ai is not None and bill.ai.usd is None and not bill.ai.models
    more += "; no AI cost stated" if silent else ""
    return f"{billed}{more}" if priced or more else f"{billed}; {say.seconds(seconds)} of this machine"


def roi(bill: Bill) -> str:
    """`ROI -0.61: 1.2 min spared, measured here, are worth $0.0117`; else the reason for no ROI."""
    if bill.roi is not None:
        spared = say.seconds(60 * sum(saving.minutes for saving in bill.savings))
        worth = f"{spared} spared, measured here, are worth {say.usd(bill.saved_usd)}"
        return f"ROI {say.significant(bill.roi)}: {worth}"
    missing = "no time without a pattern was measured here" if bill.usd else "nothing was billed"
    return f"ROI not measurable yet: {missing}"


def sections(bill: Bill, seconds: float, finished: Sequence[Finished]) -> Iterator[Section]:
    """A session's bill, savings and decisions. `seconds`: duration of the session."""
    rows: list[tuple[str, ...]] = []
    for charge in bill.charges:
        hourly, used = "-", "-"  # Not charged by the hour.
        if charge.seconds > 0:
            hourly, used = say.rate(charge.usd / charge.seconds * 3600), say.seconds(charge.seconds)
        rows.append((WHO[charge.resource], charge.rate, hourly, used, say.usd(charge.usd), charge.basis))
    rows += [("Sum", "", "", "", say.usd(bill.usd), "")] if len(rows) > 1 else []
    heads = columns("What", "Rate", ">Dollars an hour", ">Used", ">Cost", "Basis")
    yield Section(note=money_line(bill, seconds), table=filled_table(heads, rows))
    models = []
    for use in bill.ai.models if bill.ai else ():
        tokens = use.tokens
        counts = tokens.input, tokens.cache_read, tokens.cache_write + tokens.cache_write_1h, tokens.output
        usd = "unknown" if use.usd is None else say.usd(use.usd)
        models.append((use.model, str(use.calls or "-"), *(f"{count:,}" for count in counts), usd))
    if models:
        heads = columns("Model", ">Calls", ">Read", ">From a cache", ">Into a cache", ">Written", ">Cost")
        yield Section(note="Tokens of AI, each counted once:", table=filled_table(heads, models))
    yield Section(lines=tuple(_remarks(bill)))
    saved = [(s.pattern, say.seconds(60 * s.minutes), say.usd(s.usd), s.source) for s in bill.savings]
    yield Section(table=filled_table(columns("Pattern", ">Spared", ">Worth", "As measured here"), saved))
    yield Section("Decisions", lines=decisions(finished))


def _remarks(bill: Bill) -> Iterator[str]:
    """Resources without a figure and why, then notes, then the gain of kept changes."""
    for missing in bill.unmeasured:
        measured = missing.resource == "gpu" or (missing.resource == "ai" and bill.ai is not None)
        yield f"{WHO[missing.resource]}: {missing.reason if measured else f'not measured ({missing.reason})'}"
    yield from bill.notes
    yield from bill.ai.notes if bill.ai else ()
    count, brought = say.count(bill.gains.accepted, "kept change"), bill.gains.accepted_us
    if bill.gains.accepted and (brought is None or brought <= 0):
        yield f"{count}; what a call gained by it was not timed"
    elif brought:
        a_us = f", {say.usd(bill.usd / brought)} for each microsecond of them" if bill.usd else ""
        yield f"{count}: {say.latency(brought)} less a call{a_us}"


def decisions(finished: Sequence[Finished]) -> tuple[str, ...]:
    """The last keep-or-stop and the last pivot decision, as lines."""
    lines: list[str] = []
    for decision in outputs_of(finished, KeepOutput)[-1:]:
        lines.append(decision.message)
        if decision.stop is not None:
            lines += decision.stop.sides(decision.gpu_usd_per_hour)
    for pivot in [output.pivot for output in outputs_of(finished, PivotOutput) if output.pivot][-1:]:
        lines += pivot.lines
    return tuple(lines)
