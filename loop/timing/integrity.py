"""Can a timing be trusted? What was noticed beside the samples, turned into reasons why it cannot. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from loop.base.stats import median
from loop.model.measurement import Check
from loop.model.verdict import Against, NoSpeedVerdict

REMEMBERS = 2.0
"""A call on values it has just seen may be quicker, for they are in the cache, but not by this factor."""
LEAST_GAIN_S = 3e-6
"""Differences below this are the clock's."""
FORESEES, FORESEES_S = 3.0, 20e-6
"""Making a call ready may take so many times what it takes others and what the call takes, and so much more."""
Ready = Sequence[tuple[float, int]]
"""Seconds that making calls ready took, and how many there were, sample by sample."""
LAG_SHARE, LAG_S = 0.04, 60e-6
"""What a sample may take longer by the judge's clock than by the device's: a share, and the launches."""


def remembers(probes: Sequence[tuple[float, float]]) -> str:
    """Why a variant seems to keep earlier results; empty when it does not.

    `probes`: seconds of a call on values it had not seen, and on values it had just seen, one a process. Every
    process has to show it: a single one may have been interrupted.
    """
    if not probes:
        return ""
    fresh_s, again_s = min(probes, key=lambda probe: probe[0] / max(probe[1], 1e-9))
    if fresh_s < REMEMBERS * again_s or fresh_s - again_s < LEAST_GAIN_S:
        return ""
    return (
        f"it remembers results: {fresh_s * 1e6:.1f} us on values it had not seen, "
        f"{again_s * 1e6:.1f} us on the same again"
    )


def foresees(ready: Ready, others: Iterable[Ready], call: Sequence[float]) -> str:
    """Why a side seems to compute before its calls are timed; empty when it does not. `call`: seconds of one.

    Samples of a quick side hold more calls, and bring the inputs into the caches once: neither a call nor a sample
    may take so much longer to make ready than another side's.
    """
    usual = [(_each(one), _whole(one)) for one in others if one]
    if not ready or not usual or not call:
        return ""
    each_s, whole_s, call_s = _each(ready), _whole(ready), median(call)
    usual_s, usual_whole_s = (min(column) for column in zip(*usual, strict=True))
    if each_s < FORESEES * max(usual_s, call_s) or each_s < usual_s + FORESEES_S:
        return ""
    if whole_s < FORESEES * usual_whole_s:
        return ""
    return (
        f"it computes before it is timed: {each_s * 1e6:.1f} us to make a call ready, {usual_s * 1e6:.1f} us "
        f"for another side, and {call_s * 1e6:.1f} us to make it"
    )


def _each(ready: Ready) -> float:
    return median([taken_s / calls for taken_s, calls in ready])


def _whole(ready: Ready) -> float:
    return median([taken_s for taken_s, _ in ready])


def clock_lies(lags: Sequence[tuple[float, float]], usual_s: float = 0.0) -> str:
    """Why a device's clock cannot be believed; empty when it agrees. `lags`: seconds by ours and by the device's.

    `usual_s`: what a sample of empty kernels takes longer by ours, where that was measured.

    Three of four samples have to show it: one that the system interrupted on its way back says nothing.
    """
    if not lags:
        return ""
    excess = sorted(ours - own - LAG_SHARE * ours - LAG_S - usual_s for ours, own in lags)
    if excess[len(excess) // 4] <= 0:
        return ""
    ours, own = (median([pair[side] for pair in lags]) * 1e3 for side in (0, 1))
    return (
        "its clock was changed, or it works on another stream: "
        f"samples took {ours:.2f} ms, and {own:.2f} ms by the events of the stream"
    )


def invalid(variant: str, workload: str, against: Against, reason: str) -> NoSpeedVerdict:
    """A verdict on a timing that cannot be trusted."""
    return NoSpeedVerdict(variant=variant, workload=workload, against=against, verdict="invalid", reason=reason)


def wrong_while_timed(
    found: Iterable[tuple[str, Check]], against: Against, names: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    """A verdict for each timed output that was wrong; `names`: side to the variant it stands for."""
    for side, check in found:
        word = "invalid" if check.status == "tampered" else "incorrect"
        yield NoSpeedVerdict(
            variant=names.get(side, side),
            workload=check.workload.name,
            against=against,
            verdict=word,
            reason=f"while it was timed: {check.message}",
        )
