"""Work that is left until a result is looked at: it counts as work of the call. Pure."""

from collections.abc import Mapping, Sequence

from loop.base.stats import median
from loop.model.measurement import Segment

BASELINE = "baseline"
USUAL, LEAST_S = 1.25, 1e-6
"""Handing a result over may take so much longer than the baseline's, and so much more, before it counts."""
DEFERS, DEFERS_S = 5.0, 20e-6
"""A call does its work later where that takes so many times what it took until it returned, and at least this."""

Handed = Mapping[tuple[str, str, int], Sequence[float]]
"""Side, workload and round to seconds a call."""


def charged(segments: Sequence[Segment], handed: Handed, number: int) -> list[Segment]:
    """The segments of one round and workload, each sample longer by what its side left for later.

    Handing over is a copy of the result: what it takes beyond the copy of the baseline's result is work. Without a
    baseline in the round, the quickest side stands for it.
    """
    names = {one.side for one in segments}
    workload = segments[0].workload if segments else ""
    taken = {name: median(some) for name in names if (some := handed.get((name, workload, number)))}
    if not taken:
        return list(segments)
    usual = taken.get(BASELINE, min(taken.values()))
    return [_charged(one, taken.get(one.side, 0.0) - USUAL * usual - LEAST_S) for one in segments]


def _charged(segment: Segment, left_s: float) -> Segment:
    if left_s <= 0:
        return segment
    return segment.model_copy(update={"seconds": tuple(one + left_s for one in segment.seconds), "left_s": left_s})


def defers(segments: Sequence[Segment]) -> str:
    """Why a side seems to compute when its result is looked at; empty when it does not."""
    some = [(one.left_s, median(one.seconds) - one.left_s) for one in segments if one.seconds]
    if not some:
        return ""
    left_s, call_s = (median([pair[n] for pair in some]) for n in (0, 1))
    if left_s < DEFERS * call_s or left_s < DEFERS_S:
        return ""
    return (
        f"it computes when its result is looked at: {call_s * 1e6:.1f} us until a call returned, "
        f"{left_s * 1e6:.1f} us more until its result was there"
    )
