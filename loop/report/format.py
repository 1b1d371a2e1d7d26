"""Formats numbers and bills for people. The report formats all its numbers here."""

import datetime
import math
from collections import defaultdict
from collections.abc import Sequence

from loop.model.change import KeptChange
from loop.model.measurement import Interval
from loop.model.money import Bill

RESOURCE_NAMES = {"gpu": "GPU", "engineer": "engineer", "ai": "AI"}


def significant(value: float, digits: int = 3) -> str:
    """Format a number with so many significant digits and no exponent: 0.0123, 1.23, 123, 1,230."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{decimals}f}"


def plain_ratio(value: float, decimals: int = 2) -> str:
    """Format a ratio: `1.62`; below 0.1 with `decimals` significant digits, as in `0.0033`."""
    return f"{value:,.{decimals}f}" if value >= 0.1 else significant(value, decimals)


def speedup_text(value: float, decimals: int = 2) -> str:
    """Format a speedup: `1.62x`, `0.0033x`."""
    return f"{plain_ratio(value, decimals)}x"


def latency(us: float) -> str:
    """Microseconds to three digits: `12.3 µs`, or `1.23 ms` from 1,000 on."""
    return f"{significant(us)} µs" if us < 999.5 else f"{significant(us / 1000)} ms"


def seconds(value: float) -> str:
    """`0.12 s`, `3.4 s`, `45 s`, `2 min 05 s`."""
    if value < 10:
        return f"{value:.2g} s" if value >= 0.095 else f"{value:.2f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{round(value) // 60} min {round(value) % 60:02d} s"


def ratio(value: float, interval: Interval) -> str:
    """`1.62x [1.58, 1.66]`: ratio and interval; an end beyond is printed as `<0.001` or `>1000`."""
    ends = []
    for end in interval:
        within = ">1000" if end > 1000 else plain_ratio(end)
        ends.append("<0.001" if end < 0.001 else within)
    return f"{speedup_text(value)} [{', '.join(ends)}]"


def gain_text(kept: KeptChange) -> str:
    """`2.25x as fast as what it replaced (2 changes), faster on 2 of 2 workloads`."""
    changes_text = f" ({count(kept.changes, 'change')})" if kept.changes > 1 else ""
    tuning_text = f" on the workloads of {kept.tuning}" if kept.tuning else ""
    workloads = count(len(kept.workloads), "workload")
    faster_count = sum(low > 1 for low, _, _ in kept.workloads.values())
    faster_text = f", faster on {faster_count} of {workloads}" if kept.workloads else ""
    ratio_text = f"{speedup_text(kept.ratio)} as fast as what it replaced"
    return f"{ratio_text}{changes_text}{tuning_text}{faster_text}"


def usd(value: float) -> str:
    """`$1.28`; amounts under a dollar keep two significant digits."""
    sign, amount = ("-" if value < 0 else ""), abs(value)
    if amount >= 0.995 or amount == 0:
        return f"{sign}${amount:,.2f}"
    return f"{sign}${significant(amount, 2)}"


def billed_usd(value: float) -> str:
    """`$1.28`; a dash where nothing was billed."""
    return usd(value) if value else "-"


def rate(usd_per_hour: float) -> str:
    """`$0.70683`, `$50.00`: as many decimals as the rate has, two at least."""
    text = f"{usd_per_hour:.5f}".rstrip("0")
    return f"${text}" if len(text.partition(".")[2]) >= 2 else f"${usd_per_hour:.2f}"


def hours(value: float) -> str:
    """`12 min`, `4.0 h`."""
    return f"{60 * value:.0f} min" if value < 1 else f"{value:.1f} h"


def day(moment: datetime.datetime) -> str:
    """`2026-11-21 08:42 UTC`."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def count(number: int, noun: str) -> str:
    """`1 workload`, `1,100 workloads`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def cost_and_return(bill: Bill, duration_s: float) -> str:
    """`Cost: $1.53 (GPU $0.02 measured). ROI ...`. `duration_s`: shown if nothing was billed."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for charge in bill.charges:
        sums[charge.resource, charge.basis] += charge.usd
    parts = [f"{RESOURCE_NAMES[name]} {usd(cost)} {basis}" for (name, basis), cost in sums.items()]
    billed_text = f"{usd(bill.usd)} ({', '.join(parts)})" if parts else "nothing was billed"
    has_ai_tokens = bill.ai is not None and bool(bill.ai.models)
    used_resources = ("gpu", "ai") if has_ai_tokens else ("gpu",)
    unpriced = [RESOURCE_NAMES[m.resource] for m in bill.unmeasured if m.resource in used_resources]
    gaps = f"; {' and '.join(unpriced)}: price unknown" if unpriced else ""
    if bill.ai is not None and bill.ai.usd is None and not has_ai_tokens:
        gaps += "; no AI cost stated"
    unbilled_text = "" if parts or gaps else f"; {seconds(duration_s)} of this machine"
    reason = "no time without a pattern was measured here" if bill.usd else "nothing was billed"
    roi_text = f"ROI not measurable yet: {reason}"
    if bill.roi is not None:
        spared = seconds(60 * sum(saving.minutes for saving in bill.savings))
        worth = f"are worth {usd(bill.saved_usd)}"
        roi_text = f"ROI {significant(bill.roi)}: {spared} spared, measured here, {worth}"
    return f"Cost: {billed_text}{gaps}{unbilled_text}. {roi_text}."
