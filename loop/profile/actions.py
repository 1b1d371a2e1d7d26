"""Why is it as fast as it is? Facts on each variant's worst workload, and the leaf they lead to."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Annotated

from pydantic import Field

from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.measurement import Build, Measurement
from loop.model.output import MeasureOutput
from loop.model.profile import Fact, Occupancy, Profile, SeverityRule, TreeRule
from loop.model.workloads import counted, working_set
from loop.profile import bottleneck, device_counters
from loop.profile import profile as outside
from loop.profile.bottleneck import Notes, Reach
from loop.profile.model import ProfileOutput
from loop.profile.parallelism import filling_of, gpu_at_hand
from loop.report import format as say
from loop.steps.context import Context, Result, Working
from loop.timing.readiness import hold_device, ready
from loop.timing.roof import measure_roof
from loop.workers.messages import Observed

COUNTED = ("instructions", "ipc", "cache_misses")
Known = tuple[Reach, str]
"""What a device reaches, and where that is known from or why it is not."""
QUIET, TRIES = 0.8, 3
"""Share of its best moments that a measurement of the roof has to reach, and how often it is tried."""
ON_ROOF = ("flops_share", "bandwidth_share", "roof")
ON_GPU = (*device_counters.SHARES, "stall")


class ProfileTerms(Model):
    """The decision tree."""

    tree: Annotated[tuple[TreeRule, ...], Field(min_length=1)]
    """Leaves in order; the first that matches is taken."""
    severity: Annotated[tuple[SeverityRule, ...], Field(min_length=1)]
    """How urgent a result is, likewise."""


def profile(context: Context, arguments: ProfileTerms) -> Working[ProfileOutput]:
    """Profile each variant that has a speed, on the workload with its lowest ratio."""
    state = yield from ready(context)
    chosen = _worst(context)
    if state.builds is None or not chosen:
        why = state.why_not or "no variant has a speed"
        hint = state.hint or f"measure first: {context.command('run', 'pattern', 'baseline-first')}"
        return Result(ProfileOutput(ok=False, message=f"nothing to profile: {why}", hint=hint))
    profiles = []
    roofs: dict[Dtype, Known] = {}
    with ExitStack() as stack:
        yield from hold_device(context.bench, stack)
        for measured in chosen:
            if measured.workload.dtype not in roofs:
                roofs[measured.workload.dtype] = yield from _roof(context, chosen, measured.workload.dtype)
            roof = roofs[measured.workload.dtype]
            notes = yield from _look(context, measured, state.builds.get(measured.variant), len(chosen), roof)
            terms = arguments.tree, arguments.severity
            profiles.append(bottleneck.profile(measured, notes, *terms))
    return Result(_output(profiles))


def _worst(context: Context) -> Sequence[Measurement]:
    """Of each variant whose speed can be trusted the measurement with its lowest ratio.

    Examples and baselines are left out where there are others: nobody is about to make them faster.
    """
    latest = context.latest("kernel.measure")
    if not latest:
        return ()
    output = MeasureOutput.model_validate(latest, strict=False)
    variants = context.bench.target.variants
    measurements = bottleneck.worst(output, variants)
    return [measurement for name, measurement in measurements.items() if variants[name].role == "main"] or [
        *measurements.values()
    ]


def _look(
    context: Context, measured: Measurement, build: Build | None, variants: int, roof: Known
) -> Generator[Tick, None, Notes]:
    """Everything that can be known of one variant on one workload."""
    notes, bench = Notes(), context.bench
    notes.tell({"device": bench.device, "ratio": measured.ratio, "time_us": measured.candidate_us})
    _look_at_roof(context, measured, roof, notes)
    _look_at_launch(context, measured, notes)
    yield from _look_at_code(context, measured.variant, build, notes)
    side = bench.side(measured.variant, build)
    if bench.device == "cuda":
        notes.watched, why = yield from device_counters.watch(context, side, measured.workload, variants)
        if notes.watched is not None:
            notes.tell(device_counters.facts(notes.watched), device_counters.source(notes.watched))
        notes.silent(why or "ncu gave no such counter", *ON_GPU)
        notes.silent("counted on a processor only", *COUNTED)
    else:
        notes.silent("there is no GPU", *ON_GPU)
        counts = yield from outside.count(bench, side, measured.workload)
        notes.tell(_per_call(counts), f"counted over {counts.calls} calls")
        notes.silent(counts.why or "not counted", *COUNTED)
    return notes


def _look_at_roof(context: Context, measured: Measurement, roof: Known, notes: Notes) -> None:
    target, workload, (reach, source) = context.bench.target, measured.workload, roof
    flops, moved = (counted(text, workload) for text in (target.flops, target.bytes))
    seconds = measured.candidate_us * 1e-6
    facts = bottleneck.roofline(flops, moved, seconds, reach)
    notes.tell(facts)
    notes.sources |= {name: source for name in ON_ROOF if facts[name] is not None}
    why = source if facts["intensity"] is not None else "it needs `flops`, `bytes` and a peak"
    if exceeded := bottleneck.exceeded(flops, moved, seconds, reach):
        why = f"it came to {exceeded} ({source}): that roof is wrong, or the manifest's formula counts too much"
    notes.silent(why, *ON_ROOF)
    notes.silent("the manifest declares no `flops`", *(("flops",) if flops is None else ()))
    notes.silent("the manifest declares no `bytes`", *(("bytes",) if moved is None else ()))
    notes.silent("it needs `flops` and `bytes`", "intensity")


def _roof(context: Context, chosen: Sequence[Measurement], dtype: Dtype) -> Generator[Tick, None, Known]:
    """What the device reaches, one figure for all variants of a type; where that is from, or why it is unknown.

    A processor's is measured on the largest working set, and counts only where nothing else ran meanwhile.
    """
    bench = context.bench
    if bench.device == "cuda":
        device = gpu_at_hand(context)
        if device is None:
            return Reach(None, None), "no peak of this GPU is in the manifest"
        return Reach(device.flops_per_s.get(dtype), device.bytes_per_s or None), device.source
    largest = max(
        working_set(bench.target, measurement.workload)
        for measurement in chosen
        if measurement.workload.dtype == dtype
    )
    for _ in range(TRIES):
        try:
            roof = yield from measure_roof(bench.cache, dtype, bench.threads, largest)
        except LoopError as error:
            return Reach(None, None), error.message
        if roof.flops_per_s >= QUIET * roof.most_flops_per_s:  # Arithmetic needs nothing but its core.
            figures = f"{roof.flops_per_s / 1e9:.3g} GFLOP/s and {roof.bytes_per_s / 1e9:.3g} GB/s"
            return Reach(
                roof.flops_per_s, roof.bytes_per_s
            ), f"of {figures}, measured here on {say.count(bench.threads, 'thread')}"
    return Reach(None, None), "the roof of this machine is not shown: other programs ran while it was measured"


def _look_at_launch(context: Context, measured: Measurement, notes: Notes) -> None:
    filling: Occupancy | None = filling_of(context, measured.variant, measured.workload)
    if filling is None:
        notes.silent("the manifest declares no launch", "work_items", "slots")
        notes.tell({"units": context.bench.threads if context.bench.device == "cpu" else None})
        return notes.silent("the manifest declares no launch", "units")
    facts = {"work_items": filling.items, "units": filling.units, "slots": filling.units * filling.resident}
    source = "told by the host code" if filling.kernel else "declared in the manifest"
    return notes.tell(facts, f"the launch {source}, on {filling.on}")


def _look_at_code(context: Context, name: str, build: Build | None, notes: Notes) -> Generator[Tick, None, None]:
    variant = context.bench.compiled([name]).get(name)
    if variant is None or build is None:
        return notes.silent("nothing of it is compiled by loop", "vectorised", "vector_share")
    limit_s = min(outside.REPORT_LIMIT_S, context.kill_after_s / 2)
    report = yield from outside.compiler_report(context.bench, variant, limit_s)
    facts = {"vectorised": report.vectorised, "vector_share": report.vector_share}
    notes.tell(facts, "the compiler's report")
    return notes.silent(report.why or "no x86 listing", "vectorised", "vector_share")


def _per_call(counted: Observed) -> dict[str, Fact]:
    """Counters of one call, and instructions a cycle; what the processor did not give is missing."""
    counts = {name: value for name, value in counted.counters.items() if value is not None}
    facts: dict[str, Fact] = {
        name: counts[name] / max(counted.calls, 1) for name in ("instructions", "cache_misses") if name in counts
    }
    if counts.get("cycles") and "instructions" in counts:
        facts["ipc"] = counts["instructions"] / counts["cycles"]
    return facts


def _output(profiles: Sequence[Profile]) -> ProfileOutput:
    whys: dict[str, None] = {}
    parts, learned = [], []
    for profile in profiles:
        counters = ON_GPU if profile.facts.get("device") == "cuda" else COUNTED
        whys |= dict.fromkeys(profile.unknown[name] for name in counters if name in profile.unknown)
        leaf, severity = profile.bottleneck or "undecided", profile.severity or "stop"
        parts.append(f"{profile.variant} {severity}, {leaf} on {profile.workload}")
        if profile.severity and profile.bottleneck:
            cause = f"{profile.variant} is held back by {profile.bottleneck}"
            learned.append(f"{cause} on {profile.workload}, where it does worst: {profile.fix}.")
    return ProfileOutput(
        ok=True,
        message="; ".join(parts),
        not_exercised=tuple(f"hardware counters: {why}" for why in whys),
        learned=tuple(learned),
        profiles=tuple(profiles),
    )
