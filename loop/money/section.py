"""What a report says of money: one line on cost and return, the account behind it, decisions with both sides."""

from collections.abc import Iterator, Sequence
from typing import Any

from loop.model.money import Bill, Charge, ModelUse, Prior, Saving, Unmeasured
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.money.model import KeepOutput, Pivot, PivotOutput, StopCost, hours_text
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

WHO = {"gpu": "GPU", "engineer": "engineer", "ai": "AI", "energy": "energy"}
HELD = {True: "met", False: "not met", None: "unknown whether it is met"}


def money_line(bill: Bill, seconds: float) -> str:
    """`Cost: nothing was billed; 1 min 49 s of this machine. ROI not measurable yet: nothing was billed.`"""
    return f"Cost: {cost(bill, seconds)}. {roi(bill)}."


def cost(bill: Bill, seconds: float) -> str:
    """`$1.53 (GPU $0.02 measured, engineer $1.51 stated)`; what has no known price is named, never zero."""
    sums: dict[tuple[str, str], float] = {}
    for one in bill.charges:
        sums[one.resource, one.basis] = sums.get((one.resource, one.basis), 0.0) + one.usd
    priced = [f"{WHO[resource]} {say.usd(usd)} {basis}" for (resource, basis), usd in sums.items()]
    billed = f"{say.usd(bill.usd)} ({', '.join(priced)})" if priced else "nothing was billed"
    unknown = [WHO[one.resource] for one in bill.unmeasured if _was_used(bill, one)]
    more = f"; {' and '.join(unknown)}: price unknown" if unknown else ""
    silent = bill.ai is not None and bill.ai.usd is None and not bill.ai.models
    more += "; no AI cost stated" if silent else ""
    return f"{billed}{more}" if priced or more else f"{billed}; {say.seconds(seconds)} of this machine"


def _was_used(bill: Bill, missing: Unmeasured) -> bool:
    """Whether something was surely used whose price is not known; energy is shown in joules."""
    return missing.resource == "gpu" or (missing.resource == "ai" and bill.ai is not None and bool(bill.ai.models))


def roi(bill: Bill) -> str:
    """`ROI -0.61: 1.2 min spared, as measured here, are worth $0.0117`; else what is missing."""
    if bill.roi is not None:
        spared = say.seconds(60 * sum(one.minutes for one in bill.savings))
        worth = f"{spared} spared, measured here, are worth {say.usd(bill.saved_usd)}"
        return f"ROI {say.significant(bill.roi)}: {worth}"
    missing = "no time without a pattern was measured here" if bill.usd else "nothing was billed"
    return f"ROI not measurable yet: {missing}"


def money(bill: Bill, seconds: float) -> dict[str, Any]:
    """Cost, what was spared, and what others lost, as the template reads them. None and empty: nothing to show."""
    tokens = columns("Model", ">Calls", ">Read", ">From a cache", ">Into a cache", ">Written", ">Cost")
    spared = columns("Pattern", ">Spared", ">Worth", "As measured here")
    priors = columns(
        "Pattern", ">Another project lost", ">Such failures here", ">Weighed by them", "Whose minutes"
    )
    return {
        "charges": _charges(bill),
        "savings": filled(spared, tuple(map(_saving, bill.savings))),
        "line": money_line(bill, seconds),
        "priors": filled(priors, tuple(map(_prior, bill.priors))),
        "tokens": filled(tokens, tuple(map(_tokens, bill.ai.models if bill.ai else ()))),
        "remarks": (*_unmeasured(bill), *_notes(bill)),
    }


def _charges(bill: Bill) -> Table | None:
    heads = columns("What", "Rate", ">Dollars an hour", ">Used", ">Cost", "Basis")
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
    kept, brought = say.count(bill.gains.accepted, "kept change"), bill.gains.accepted_us
    if bill.gains.accepted and (brought is None or brought <= 0):
        yield f"{kept}; what a call gained by it was not timed"
    elif brought:
        a_us = f", {say.usd(bill.usd / brought)} for each microsecond of them" if bill.usd else ""
        yield f"{kept}: {say.latency(brought)} less a call{a_us}"


def _unmeasured(bill: Bill) -> Iterator[str]:
    """Nobody measured it, or nobody knows its price."""
    known = {"ai": bill.ai is not None, "energy": bill.energy_j is not None, "gpu": True}
    for one in bill.unmeasured:
        why = one.reason if known.get(one.resource) else f"not measured ({one.reason})"
        yield f"{WHO[one.resource]}: {why}"


def _saving(saving: Saving) -> tuple[str, ...]:
    return saving.pattern, say.seconds(60 * saving.minutes), say.usd(saving.usd), saving.source


def _prior(one: Prior) -> tuple[str, ...]:
    seen = f"{one.failures} of {say.count(one.sessions, 'session')}"
    weighed = say.minutes(one.share * one.minutes) if one.sessions else "-"
    return one.pattern, say.minutes(one.minutes), seen, weighed, one.source


def decisions(finished: Sequence[Finished]) -> tuple[str, ...]:
    """Of each kind the last that was decided, in lines."""
    kept = outputs_of(finished, KeepOutput)[-1:]
    weighed = [output.pivot for output in outputs_of(finished, PivotOutput) if output.pivot][-1:]
    return tuple(line for lines in (*map(_kept, kept), *map(pivot_lines, weighed)) for line in lines)


def _kept(output: KeepOutput) -> Iterator[str]:
    yield output.message
    if output.stop is not None:
        yield from sides(output.stop, output.gpu_usd_per_hour)


def sides(stop: StopCost, gpu_usd_per_hour: float) -> Iterator[str]:
    """What idling and a stop cost, and after how long they cost the same."""
    even = (hours_text(usd / gpu_usd_per_hour) for usd in (stop.low_usd, stop.high_usd))
    yield f"Idling: {say.rate(gpu_usd_per_hour)} an hour"
    yield f"A stop: {span(say.usd(stop.low_usd), say.usd(stop.high_usd))}; {stop.source}{_waiting(stop)}"
    yield f"Break-even: {span(*even)} of idling"


def _waiting(stop: StopCost) -> str:
    if stop.waiting in (None, "nobody"):
        return ", while nobody waits" if stop.waiting else ""
    return f", while an {stop.waiting} waits at {say.rate(stop.waiting_usd_per_hour)} an hour"


def pivot_lines(weighed: Pivot) -> Iterator[str]:
    """What follows, then each stop rule and each option; expected is probability times value less cost."""
    yield weighed.decision
    yield from (f"{rule.rule}: {HELD[rule.holds]}; {rule.why}" for rule in weighed.rules)
    for one in weighed.options:
        worth = f", expected {span(*map(say.usd, one.expected_usd))}" if one.expected_usd else ""
        yield f"{one.name}: costs {span(*map(say.usd, one.usd))}{worth}; {one.note}"


def span(low: str, high: str) -> str:
    """`4 min`, or `4 min to 6 min` where both ends differ."""
    return low if low == high else f"{low} to {high}"
