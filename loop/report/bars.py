"""Bars and curves made of letters, for Markdown: they say at a glance what the figures beside them say in full."""

import math
from collections.abc import Sequence

CELLS = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(actual: float, target: float) -> str:
    """How much of its target something took: `████▌░░░░░ 45 %`; `██████████▶ 120 %` beyond it."""
    if target <= 0 or actual < 0:
        return ""
    share = actual / target
    said = f"{100 * share:.0f} %" if share < 10 else f"{share:.0f} times"
    if share > 1:
        return f"{'█' * CELLS}▶ {said}"
    whole, part = divmod(round(share * CELLS * 8), 8)
    filled = "█" * whole + (EIGHTHS[part] if part else "")
    return f"{filled}{'░' * (CELLS - len(filled))} {said}"


def sparkline(values: Sequence[float]) -> str:
    """A curve of positive values, by their logarithms, from the least to the most; empty for fewer than two."""
    known = [math.log(value) for value in values if value > 0 and math.isfinite(value)]
    if len(known) < 2 or len(known) != len(values):
        return ""
    low, high = min(known), max(known)
    return "".join(block(value, low, high) for value in known)


def block(value: float, low: float, high: float, *, flat: float = 1e-9) -> str:
    """One letter of a curve between two ends; the middle one where these differ by less than `flat`."""
    if high - low < flat:
        return HEIGHTS[3]
    return HEIGHTS[round((value - low) / (high - low) * (len(HEIGHTS) - 1))]
