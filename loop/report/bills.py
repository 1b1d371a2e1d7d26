"""A session's bill in words: cost, return, and what has no figure."""

from collections import defaultdict

from loop.model.money import Bill
from loop.report import format as say

RESOURCE_NAMES = {"gpu": "GPU", "engineer": "engineer", "ai": "AI"}


def money_line(bill: Bill, seconds: float) -> str:
    """Cost and return of a session, two sentences. `seconds`: its duration, shown if nothing was billed."""
    return f"Cost: {cost_text(bill, seconds)}. {roi_text(bill)}."


def cost_text(bill: Bill, seconds: float) -> str:
    """`$1.53 (GPU $0.02 measured, engineer $1.51 stated)`. `seconds`: shown if nothing was billed."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for charge in bill.charges:
        sums[charge.resource, charge.basis] += charge.usd
    parts = [f"{RESOURCE_NAMES[name]} {say.usd(usd)} {basis}" for (name, basis), usd in sums.items()]
    billed_text = f"{say.usd(bill.usd)} ({', '.join(parts)})" if parts else "nothing was billed"
    has_ai_tokens = bill.ai is not None and bool(bill.ai.models)
    used_resources = ("gpu", "ai") if has_ai_tokens else ("gpu",)
    unpriced = [RESOURCE_NAMES[m.resource] for m in bill.unmeasured if m.resource in used_resources]
    gaps = f"; {' and '.join(unpriced)}: price unknown" if unpriced else ""
    if bill.ai is not None and bill.ai.usd is None and not has_ai_tokens:
        gaps += "; no AI cost stated"
    if parts or gaps:
        return f"{billed_text}{gaps}"
    return f"{billed_text}; {say.seconds(seconds)} of this machine"


def roi_text(bill: Bill) -> str:
    """`ROI -0.61: 1.2 min spared, measured here, are worth $0.0117`; else the reason for no ROI."""
    if bill.roi is not None:
        spared = say.seconds(60 * sum(saving.minutes for saving in bill.savings))
        worth = f"{spared} spared, measured here, are worth {say.usd(bill.saved_usd)}"
        return f"ROI {say.significant(bill.roi)}: {worth}"
    missing = "no time without a pattern was measured here" if bill.usd else "nothing was billed"
    return f"ROI not measurable yet: {missing}"
