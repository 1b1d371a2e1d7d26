"""What every step that times something shares: right variants, a free device, and doubts about what was seen."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from loop.base.expressions import Expression
from loop.base.locks import Held, locked
from loop.base.processes import Tick
from loop.base.stats import CONFIDENCE, median
from loop.gate.kernel import builds
from loop.machine.gpus import gpus
from loop.model.measurement import Build, Measurement, Segment, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import Against, NoSpeedVerdict
from loop.model.workloads import formula_values
from loop.steps.context import Context
from loop.timing import compare, disturbance, integrity, timing
from loop.timing import roof_facts as roofs
from loop.timing.deferral import defers
from loop.timing.device_sharing import warn_after, warn_before, warn_of_programs
from loop.workers.bench import Bench, Side


@dataclass(frozen=True)
class Ready:
    """Variants that may be timed, or why none may."""

    right: tuple[str, ...] = ()
    builds: Mapping[str, Build] | None = None
    why_not: str = ""
    hint: str | None = None


def ready(context: Context) -> Generator[Tick, None, Ready]:
    """The variants that were found right in this session, with the builds that were checked."""
    verified = context.latest("kernel.verify")
    checks = VerifyOutput.model_validate(verified) if verified else None
    if checks is None or not checks.right:
        return Ready(why_not="no variant is right" if checks else "nothing was verified")
    made, _ = yield from builds(context)
    stale = changed_since(checks.variants, made)
    if stale:
        return Ready(why_not=f"{stale} was edited after it was verified", hint="run the session again")
    return Ready(checks.right, {one.variant: one for one in made})


def changed_since(verified: Iterable[VariantChecks], made: Iterable[Build]) -> str | None:
    """The first variant whose build is not the one that was verified."""
    now = {one.variant: one.build_id for one in made}
    return next((c.variant for c in verified if c.build_id and now.get(c.variant) != c.build_id), None)


def hold_device(context: Context, stack: ExitStack) -> Generator[Tick, None, str]:
    """Wait until no other session measures on this device; two at once would disturb each other.

    What else disturbs it is said, and what that will cost: who other than loop uses the GPU, or keeps the cores of
    a CPU busy. Empty when nobody does.
    """
    folder = context.bench.cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    gpu = gpus().first if context.bench.device == "cuda" else None
    while True:
        try:
            stack.enter_context(locked(folder / (gpu.uuid if gpu else context.bench.device)))
        except Held as held:
            yield Tick(f"waiting for {held.holder} to finish measuring")
            time.sleep(0.1)
        else:
            cpu = context.bench.device == "cpu"
            return (yield from warn_of_programs() if cpu else warn_before(context.bench))


def warnings(bench: Bench, before: str, timings: timing.Timings) -> tuple[str, ...]:
    """What was said of others on the device before something was timed there, or is to be said now."""
    return tuple(said for said in (before or warn_after(bench), disturbance.said(timings.segments)) if said)


def with_warnings(message: str, warned: Sequence[str]) -> str:
    """The line of a step that timed something, with what disturbed it."""
    return "; ".join([message, *(f"warning: {text}" for text in warned)])


def of(timings: timing.Timings, workload: Workload) -> list[Segment]:
    """The segments of one workload."""
    return [segment for segment in timings.segments if segment.workload == workload.name]


@dataclass(frozen=True)
class Pair:
    """A side and what it is compared with."""

    candidate: Side
    variant: str
    """Name of the variant that the candidate stands for."""
    reference: str
    """Name of the side it is compared with."""
    against: Against


def measurements(
    bench: Bench,
    pairs: Sequence[Pair],
    timed: Sequence[Workload],
    timings: timing.Timings,
    confidence: float = CONFIDENCE,
) -> tuple[Measurement, ...]:
    """One a pair and workload that both sides were timed on for two rounds at least."""
    text = bench.target.flops
    flops = Expression.parse(text, arithmetic=True) if text else None
    found = []
    for pair, workload in ((pair, workload) for pair in pairs for workload in timed):
        segments = of(timings, workload)
        if len(compare.log_ratios(segments, pair.reference, pair.candidate.name)) < timing.MIN_ROUNDS:
            continue
        clocked = compare.Clocked(
            variant=pair.variant,
            candidate=pair.candidate.name,
            workload=workload,
            against=pair.against,
            reference=pair.reference,
            reference_peak_bytes=_peak(timings, pair.reference, workload),
            candidate_peak_bytes=_peak(timings, pair.candidate.name, workload),
            own_clock=pair.candidate.name in timings.own_clock,
            flops=flops.evaluate_number(formula_values(workload)) if flops else None,
            confidence=confidence,
        )
        found.append(compare.measured(segments, clocked))
    return tuple(found)


def _peak(timings: timing.Timings, side: str, workload: Workload) -> int | None:
    found = timings.peaks.get((side, workload.name))
    return int(median(found)) if found else None


def doubts(
    bench: Bench, timings: timing.Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, tuple[NoSpeedVerdict, ...]]:
    """Verdicts on what cannot be trusted, one a variant and workload."""
    found = yield from every_doubt(bench, timings, measured, pairs)
    return tuple({(one.variant, one.workload): one for one in reversed(found)}.values())[::-1]


def every_doubt(
    bench: Bench, timings: timing.Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, list[NoSpeedVerdict]]:
    """All there is to doubt: wrong outputs, remembered results, clocks, cores, impossible speed."""
    too_fast = yield from _impossible(bench, measured, pairs)
    lying = yield from _clocks(bench, timings.clocks)
    names = {pair.candidate.name: pair.variant for pair in pairs}
    against = pairs[0].against
    return [
        *integrity.wrong_while_timed(timings.wrong, against, names),
        *_noticed(timings, against, names, lying),
        *too_fast,
        *_held_back(timings, pairs),
    ]


def _clocks(
    bench: Bench, clocks: Mapping[str, Sequence[tuple[float, float]]]
) -> Generator[Tick, None, dict[str, str]]:
    """Sides whose clock cannot be believed, and why; accused only after the lag of this GPU was measured."""
    if not any(map(integrity.clock_lies, clocks.values())):
        return {}
    usual_s = yield from bench.lag()
    return {side: reason for side, lags in clocks.items() if (reason := integrity.clock_lies(lags, usual_s))}


def _noticed(
    timings: timing.Timings, against: Against, names: Mapping[str, str], lying: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    for (side, workload), probes in timings.probes.items():
        reason = integrity.remembers(probes)
        if reason and side in names:
            yield integrity.invalid(names[side], workload, against, reason)
    for side, variant in names.items():
        places = [segment.workload for segment in timings.segments if segment.side == side]
        for reason in (lying.get(side, ""), timings.strays.get(side, "")):
            if reason and places:
                yield integrity.invalid(variant, places[0], against, reason)
        for workload in dict.fromkeys(places):
            own = [one for one in timings.segments if (one.side, one.workload) == (side, workload)]
            for reason in (defers(own), _foresees(timings, side, workload, own)):
                if reason:
                    yield integrity.invalid(variant, workload, against, reason)


def _foresees(timings: timing.Timings, side: str, workload: str, own: Sequence[Segment]) -> str:
    """Why a side seems to compute before its calls are timed."""
    ready = {one: taken for (one, name), taken in timings.readied.items() if name == workload}
    return integrity.foresees(
        ready.get(side, ()), ready.values(), [second for one in own for second in one.seconds]
    )


def _held_back(timings: timing.Timings, pairs: Iterable[Pair]) -> Iterator[NoSpeedVerdict]:
    """Pairs of which the GPU left too few rounds, because it held one side back."""
    for name in dict.fromkeys(segment.workload for segment in timings.segments):
        segments = [segment for segment in timings.segments if segment.workload == name]
        for pair in pairs:
            sides = (pair.reference, pair.candidate.name)
            why = compare.held_back(segments, *sides)
            if why and len(compare.log_ratios(segments, *sides)) < timing.MIN_ROUNDS:
                yield integrity.invalid(pair.variant, name, pair.against, why)


def _impossible(
    bench: Bench, measured: Sequence[Measurement], pairs: Iterable[Pair]
) -> Generator[Tick, None, list[NoSpeedVerdict]]:
    kinds = {(pair.variant, pair.against): str(pair.candidate.terms["kind"]) for pair in pairs}
    found = []
    for one in measured:
        reason = yield from roofs.impossible(bench, one, kinds.get((one.variant, one.against), ""))
        if reason:
            found.append(integrity.invalid(one.variant, one.workload.name, one.against, reason))
    return found
