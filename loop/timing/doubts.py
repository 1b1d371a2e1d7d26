"""Can a timing be trusted? What was noticed beside the samples, turned into verdicts without a speed."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from statistics import median_low

from loop.base.processes import Tick
from loop.base.stats import median
from loop.model.causes import Cause
from loop.model.measurement import BASELINE, Check, Measurement, Segment
from loop.model.verdict import Against, NoSpeedVerdict
from loop.model.workloads import operations
from loop.timing import bounds, samples
from loop.timing.samples import MIN_ROUNDS, MemoryProbe, Pair, Timings
from loop.timing.verdicts import invalid
from loop.workers.bench import Bench

REMEMBERS = 2.0
"""A call on values it has just seen may be quicker, for they are in the cache, but not by this factor."""
LEAST_GAIN_S = 3e-6
"""Differences below this are the clock's."""
DEFERS, DEFERS_S = 5.0, 20e-6
"""A call does its work later where that takes so many times what it took until it returned, and at least this."""
LAG_SHARE, LAG_S = 0.04, 60e-6
"""What a sample may take longer by the judge's clock than by the device's: a share, and the launches."""


def doubts(
    bench: Bench, timings: Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, tuple[NoSpeedVerdict, ...]]:
    """Verdicts on what cannot be trusted, one a variant and workload."""
    verdicts = yield from every_doubt(bench, timings, measured, pairs)
    return tuple({(verdict.variant, verdict.workload): verdict for verdict in reversed(verdicts)}.values())[::-1]


def every_doubt(
    bench: Bench, timings: Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, list[NoSpeedVerdict]]:
    """All there is to doubt: wrong outputs, remembered results, clocks, impossible speed."""
    lying: dict[str, str] = {}
    if any(map(clock_lies, timings.clocks.values())):  # Accused only after the lag of this GPU was measured.
        usual_s = yield from bench.lag()
        clocks = timings.clocks.items()
        lying = {side: reason for side, lags in clocks if (reason := clock_lies(lags, usual_s))}
    names = {pair.candidate.name: pair.variant for pair in pairs}
    verdicts = [
        *wrong_while_timed(timings.wrong, pairs[0].against, names),
        *_noticed(timings, pairs[0].against, names, lying),
    ]
    kinds = {(pair.variant, pair.against): str(pair.candidate.kind) for pair in pairs}
    for measurement in sorted(measured, key=lambda each: -operations(bench.target, each.workload)):
        variant, against = measurement.variant, measurement.against
        reason = yield from bounds.impossible(bench, measurement, kinds.get((variant, against), ""))
        if reason:
            verdicts.append(invalid(variant, measurement.workload.name, against, "impossible", reason))
    for name in dict.fromkeys(segment.workload for segment in timings.segments):
        segments = timings.of(name)
        for pair in pairs:
            why = samples.held_back(segments, *pair.sides)
            if why and len(samples.log_ratios(segments, *pair.sides)) < MIN_ROUNDS:
                verdicts.append(invalid(pair.variant, name, pair.against, "held back", why))
    return verdicts


def _noticed(
    timings: Timings, against: Against, names: Mapping[str, str], lying: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    remembering = {place: remembers(probes) for place, probes in timings.probes.items()}
    for (side, workload), reason in remembering.items():
        # Where the baseline looks like it, too, it is the machine.
        if reason and side in names and (side == BASELINE or not remembering.get((BASELINE, workload))):
            yield invalid(names[side], workload, against, "remembers", reason)
    for side, variant in names.items():
        places = list(dict.fromkeys(segment.workload for segment in timings.segments if segment.side == side))
        anywhere: dict[Cause, str] = {"clock": lying.get(side, "")}
        doubted = [(places[0], anywhere)] if places else []
        doubted += [(workload, _elsewhere(timings, side, workload)) for workload in places]
        for workload, reasons in doubted:
            for cause, reason in reasons.items():
                if reason:
                    yield invalid(variant, workload, against, cause, reason)


def _elsewhere(timings: Timings, side: str, workload: str) -> dict[Cause, str]:
    """Why a side seems to compute before or after its timed calls, by cause; empty texts where it does not."""
    own = [segment for segment in timings.of(workload) if segment.side == side]
    # While another side is timed, the variant's processes are stopped. A disturbed one tells of a busy machine,
    # and slow calls accuse nobody.
    busy = samples.warning(segment for segment in timings.of(workload) if segment.side != side)
    unshown = "" if busy else unproven(timings.unproven(side, workload))
    return {"defers": defers(own), "foresees": unshown}


def remembers(probes: Sequence[MemoryProbe]) -> str:
    """Why a variant seems to keep earlier results; empty when it does not. `probes`: one a process.

    More than half of the processes that had a core to themselves have to show it: even they may be interrupted.
    Where none had, every process has to.
    """
    if not probes:
        return ""
    clean = [probe for probe in probes if probe.clean]
    by_gain = sorted(clean or probes, key=lambda probe: probe.fresh_s / max(probe.again_s, 1e-9))
    fresh_s, again_s, _ = by_gain[(len(clean) - 1) // 2 if clean else 0]
    if fresh_s < REMEMBERS * again_s or fresh_s - again_s < LEAST_GAIN_S:
        return ""
    return (
        f"it remembers results: {fresh_s * 1e6:.1f} us on values it had not seen, "
        f"{again_s * 1e6:.1f} us on the same again"
    )


def unproven(times: tuple[float, float] | None) -> str:
    """A sentence on a side whose judged calls were far slower than its others; empty where there are none."""
    if times is None:
        return ""
    usual_s, judged_s = times
    return (
        "nothing shows that it computes while it is timed: calls whose results were looked at took "
        f"{judged_s * 1e6:.1f} us or more, the others {usual_s * 1e6:.1f} us"
    )


def clock_lies(lags: Sequence[tuple[float, float]], usual_s: float = 0.0) -> str:
    """Why a device's clock cannot be believed; empty when it agrees. `lags`: seconds by ours and by the device's.

    `usual_s`: what a sample of empty kernels takes longer by ours, where that was measured.

    Three of four samples have to show it: one that the system interrupted on its way back says nothing.
    """
    if not lags:
        return ""
    excess = sorted(ours_s - own - LAG_SHARE * ours_s - LAG_S - usual_s for ours_s, own in lags)
    if excess[len(excess) // 4] <= 0:
        return ""
    ours_s, own = (median([pair[side] for pair in lags]) * 1e3 for side in (0, 1))
    return (
        "its clock was changed, or it works on another stream: "
        f"samples took {ours_s:.2f} ms, and {own:.2f} ms by the events of the stream"
    )


def defers(segments: Sequence[Segment]) -> str:
    """Why a side seems to compute when its result is looked at; empty when it does not.

    More than half of its rounds have to show it: one in which the system came between says nothing.
    """
    some = [(segment.left_s, median(segment.seconds) - segment.left_s) for segment in segments if segment.seconds]
    if not some:
        return ""
    left_s, call_s = (median_low([pair[n] for pair in some]) for n in (0, 1))
    if left_s < DEFERS * call_s or left_s < DEFERS_S:
        return ""
    return (
        f"it computes when its result is looked at: {call_s * 1e6:.1f} us until a call returned, "
        f"{left_s * 1e6:.1f} us more until its result was there"
    )


def wrong_while_timed(
    outputs: Iterable[tuple[str, Check]], against: Against, names: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    """A verdict for each timed output that was wrong; `names`: side to the variant it stands for."""
    for side, check in outputs:
        yield NoSpeedVerdict(
            variant=names.get(side, side),
            workload=check.workload.name,
            against=against,
            verdict="invalid" if check.status == "tampered" else "incorrect",
            cause=check.cause,
            reason=f"while it was timed: {check.message}",
        )
