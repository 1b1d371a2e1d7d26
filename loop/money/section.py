"""What the report says of money: charges, savings and their return; decisions with both their sides."""

from collections.abc import Iterator, Sequence
from typing import Any

from loop.model.metering import ModelUse
from loop.model.money import EVIDENCE, Bill, Charge, EvidenceClass, Saving
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.money.model import KeepOutput, OptionValue, PivotOutput, StopCost, hours_text
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

WHO = {"gpu": "GPU", "engineer": "engineer, waiting", "ai": "AI", "energy": "energy"}
HELD = {True: "met", False: "not met", None: "unknown"}


def money(bill: Bill) -> dict[str, Any]:
    """Cost, saving and what came of it, as the template reads them. None and empty: nothing to show."""
    avoided = columns(
        "Pattern", ">Avoided", ">Lowest to highest", ">Worth", "Evidence", "Without the pattern it took"
    )
    tokens = columns("Model", ">Calls", ">Read", ">From a cache", ">Into a cache", ">Written", ">Cost")
    return {
        "total": say.usd(bill.usd),
        "charges": _charges(bill),
        "unmeasured": tuple(_unmeasured(bill)),
        "savings": filled(avoided, tuple(map(_saving, bill.savings))),
        "returns": tuple(_return(bill, evidence) for evidence in EVIDENCE if evidence in bill.saved_usd),
        "tokens": filled(tokens, tuple(map(_tokens, bill.ai.models if bill.ai else ()))),
        "notes": tuple(_notes(bill)),
        "gains": tuple(_gains(bill)),
    }


def _charges(bill: Bill) -> Table | None:
    heads = columns("What", "Rate", ">Dollars an hour", ">Used", ">Cost", "Use is")
    rows = tuple(
        (WHO[one.resource], one.rate, *_by_time(one), say.usd(one.usd), one.basis) for one in bill.charges
    )
    total = (("Sum", "", "", "", say.usd(bill.usd), ""),) if len(rows) > 1 else ()
    return filled(heads, (*rows, *total))


def _by_time(charge: Charge) -> tuple[str, str]:
    """Dollars an hour and time; dashes for what is not paid by the hour."""
    if charge.seconds <= 0 or charge.resource == "energy":
        return "-", "-"
    return say.rate(charge.usd / charge.seconds * 3600), say.seconds(charge.seconds)


def _tokens(use: ModelUse) -> tuple[str, ...]:
    used = use.tokens
    counts = (used.input, used.cache_read, used.cache_write + used.cache_write_1h, used.output)
    cost = "unknown" if use.usd is None else say.usd(use.usd)
    return use.model, str(use.calls or "-"), *(f"{count:,}" for count in counts), cost


def _notes(bill: Bill) -> Iterator[str]:
    yield from bill.notes
    if any(charge.resource == "energy" for charge in bill.charges):
        yield f"energy: the GPU took {bill.energy_j:,.0f} J while it was timed"
    yield from bill.ai.notes if bill.ai else ()


def _gains(bill: Bill) -> Iterator[str]:
    brought = bill.gains
    if not brought.accepted:
        return
    kept = say.count(brought.accepted, "kept change")
    if not brought.accepted_us or brought.accepted_us <= 0:
        yield f"{kept}; what a call gained by it was not timed"
        return
    a_us = say.usd(bill.usd / brought.accepted_us)
    yield f"{kept}: {say.latency(brought.accepted_us)} less a call, {a_us} for each microsecond of them"


def _unmeasured(bill: Bill) -> Iterator[str]:
    """Nobody measured it, or nobody knows its price."""
    known = {"ai": bill.ai is not None, "energy": bill.energy_j is not None, "gpu": True}
    for one in bill.unmeasured:
        why = one.reason if known.get(one.resource) else f"not measured ({one.reason})"
        yield f"{WHO[one.resource]}: {why}"


def _saving(saving: Saving) -> tuple[str, ...]:
    between = f"{saving.minutes_low:.1f} to {say.minutes(saving.minutes_high)}"
    return (
        saving.pattern,
        say.minutes(saving.minutes),
        between if saving.minutes_high > saving.minutes_low else "-",
        say.usd(saving.usd),
        saving.evidence,
        saving.source,
    )


def _return(bill: Bill, evidence: EvidenceClass) -> str:
    saved = say.usd(bill.saved_usd[evidence])
    words = f"On {evidence} evidence ({EVIDENCE[evidence]}): {saved} avoided, "
    if evidence not in bill.roi:
        return f"{words}ROI undefined, for nothing was charged"
    sums = f"({saved} - {say.usd(bill.usd)}) / {say.usd(bill.usd)}"
    return f"{words}ROI {say.significant(bill.roi[evidence])} = {sums}{_between(bill, evidence)}"


def _between(bill: Bill, evidence: EvidenceClass) -> str:
    """The return by the least and by the most favourable rows, where they differ."""
    ends = [one.interval_usd for one in bill.savings if one.evidence == evidence]
    low, high = (sum(values) for values in zip(*ends, strict=True))
    if high - low < 0.005:
        return ""
    returns = [say.significant((value - bill.usd) / bill.usd) for value in (low, high)]
    return f"; {' to '.join(returns)} by the rows it rests on"


def decisions(finished: Sequence[Finished]) -> dict[str, Any]:
    """Of each kind the last that was decided; `verdict` is empty where nobody asked for options or rules."""
    kept = outputs_of(finished, KeepOutput)[-1:]
    weighed = [output.pivot for output in outputs_of(finished, PivotOutput) if output.pivot][-1:]
    rules = [(rule.rule, HELD[rule.holds], rule.why) for one in weighed for rule in one.rules]
    options = [_option(option) for one in weighed for option in one.options]
    return {
        "lines": tuple(line for output in kept for line in _keep(output)),
        "rules": filled(columns("Stop rule", "Met", "Why"), rules),
        "options": filled(columns("Option", ">Cost", ">Probability", ">Expected value", "What follows"), options),
        "verdict": weighed[0].decision if weighed else "",
    }


def _keep(output: KeepOutput) -> Iterator[str]:
    yield output.message
    if output.stop is None or output.break_even_hours is None:
        return
    stop, (low, high) = output.stop, output.break_even_hours
    yield f"Idling: {say.rate(output.gpu_usd_per_hour)} an hour"
    yield f"A stop: {span(say.usd(stop.low_usd), say.usd(stop.high_usd))}; {stop.source}{_waiting(stop)}"
    yield f"Break-even: {span(hours_text(low), hours_text(high))} of idling"


def _waiting(stop: StopCost) -> str:
    if stop.waiting in (None, "nobody"):
        return ", while nobody waits" if stop.waiting else ""
    return f", while an {stop.waiting} waits at {say.rate(stop.waiting_usd_per_hour)} an hour"


def _option(option: OptionValue) -> tuple[str, ...]:
    likely = "unknown" if option.probability is None else f"{100 * option.probability:.0f} %"
    worth = span(*map(say.usd, option.expected_usd)) if option.expected_usd else "unknown"
    return option.name, span(*map(say.usd, option.usd)), likely, worth, option.note


def span(low: str, high: str) -> str:
    """`4 min`, or `4 min to 6 min` where both ends differ."""
    return low if low == high else f"{low} to {high}"
