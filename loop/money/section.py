"""The report's section on money: cost and return, the bill behind them, and decisions."""

from collections.abc import Iterator, Sequence

from loop.model.money import Bill
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.money.decisions import KeepOutput, PivotOutput
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.sections import Section


def sections(bill: Bill, seconds: float, finished: Sequence[Finished]) -> Iterator[Section]:
    """A session's bill, savings and decisions. `seconds`: duration of the session."""
    rows: list[tuple[str, ...]] = []
    for charge in bill.charges:
        rate, used = "-", "-"  # Not charged by the hour.
        if charge.seconds > 0:
            rate, used = say.rate(charge.usd / charge.seconds * 3600), say.seconds(charge.seconds)
        name = say.RESOURCE_NAMES[charge.resource]
        rows.append((name, charge.rate, rate, used, say.usd(charge.usd), charge.basis))
    if len(rows) > 1:
        rows.append(("Sum", "", "", "", say.usd(bill.usd), ""))
    heads = ("What", "Rate", ">Dollars an hour", ">Used", ">Cost", "Basis")
    yield Section(note=say.cost_and_return(bill, seconds), table=drop_empty_columns(heads, rows))
    models = []
    for use in bill.ai.models if bill.ai else ():
        usd = "unknown" if use.usd is None else say.usd(use.usd)
        models.append((use.model, f"{use.tokens:,}", usd))
    yield Section(table=drop_empty_columns(("Model", ">Tokens", ">Cost"), models))
    remarks = []
    for missing in bill.unmeasured:
        is_in_use = missing.resource == "gpu" or (missing.resource == "ai" and bill.ai is not None)
        reason = missing.reason if is_in_use else f"not measured ({missing.reason})"
        remarks.append(f"{say.RESOURCE_NAMES[missing.resource]}: {reason}")
    yield Section(lines=(*remarks, *bill.notes, *(bill.ai.notes if bill.ai else ())))
    savings = [
        (s.pattern, say.seconds(60 * s.minutes), say.usd(s.usd), s.source) for s in bill.savings
    ]
    saving_heads = ("Pattern", ">Spared", ">Worth", "As measured here")
    yield Section(table=drop_empty_columns(saving_heads, savings))
    yield Section("Decisions", lines=decision_lines(finished))


def decision_lines(finished: Sequence[Finished]) -> tuple[str, ...]:
    """The last keep-or-stop and the last pivot decision, as lines."""
    lines: list[str] = []
    for decision in outputs_of(finished, KeepOutput)[-1:]:
        lines.append(decision.message)
        if decision.stop is not None:
            lines += decision.stop.compare_with_idling(decision.gpu_usd_per_hour)
    pivots = [output.pivot for output in outputs_of(finished, PivotOutput) if output.pivot]
    for pivot in pivots[-1:]:
        lines += pivot.lines
    return tuple(lines)
