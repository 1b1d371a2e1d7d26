"""Why is it as fast as it is? Facts on each variant's worst workload, and the leaf they lead to."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.measurement import Build, Measurement
from loop.model.output import MeasureOutput, outputs_of
from loop.model.profile import FACTS, DeviceProfile, Fact, KernelRun, Occupancy, Profile, SeverityRule, TreeRule
from loop.model.record import Finished
from loop.model.workloads import counted, working_set
from loop.profile import bottleneck
from loop.profile import profile as outside
from loop.profile.bottleneck import Notes, Reach
from loop.profile.launch_limits import filling_of, gpu_at_hand
from loop.profile.model import ParallelismOutput, ProfileOutput
from loop.profile.profile import SHARES, facts, source, watch
from loop.report import format as say
from loop.report.markdown import Table, columns, filled
from loop.steps.context import Context, Result, Working
from loop.timing.doubts import measure_roof
from loop.timing.readiness import hold_device, ready
from loop.workers.messages import Observed

SAID_ABOVE = ("device", "ratio", "time_us")
"""Facts that stand in the sentence."""
MOST_KERNELS = 4
"""Kernels of a call that are shown."""


@dataclass(frozen=True)
class Leaf:
    """Where one variant does worst, why, and what to do about it."""

    variant: str
    where: str
    severity: str
    tool: str
    """Empty where nothing needs to be done."""
    bottleneck: str
    when: str
    """The condition that matched; empty where none did."""
    fix: str
    gain: str
    undecided: tuple[str, ...]
    """Rules before it that could not be decided."""


@dataclass(frozen=True)
class Bottleneck:
    """The section on bottlenecks."""

    leaves: tuple[Leaf, ...]
    facts: Table | None
    notes: tuple[str, ...]
    """Where facts come from, and why others are unknown."""
    parallelism: Table | None
    kernels: Table | None = None
    """What a profiler of the GPU saw, kernel by kernel."""
    calls: tuple[str, ...] = ()
    """What each profiled call came to."""


def bottlenecks(finished: Sequence[Finished]) -> Bottleneck:
    """Everything that was profiled, and how launches fill their devices."""
    profiles = [profile for output in outputs_of(finished, ProfileOutput) for profile in output.profiles]
    fillings = [filling for output in outputs_of(finished, ParallelismOutput) for filling in output.fillings]
    return Bottleneck(
        leaves=tuple(leaf(profile) for profile in profiles),
        facts=_facts(profiles),
        notes=tuple(note for profile in profiles for note in _notes(profile)),
        parallelism=_parallelism(fillings),
        kernels=kernels(profiles),
        calls=totals(profiles),
    )


def leaf(profile: Profile) -> Leaf:
    """Where the tree led for one profile."""
    ratio, time_us = profile.facts.get("ratio"), profile.facts.get("time_us")
    figures = [say.times(ratio)] if isinstance(ratio, float) else []
    figures += [say.latency(time_us)] if isinstance(time_us, float) else []
    promised = profile.promise.text if profile.promise else ""
    return Leaf(
        variant=profile.variant,
        where=f"{profile.workload} ({', '.join(figures)})" if figures else profile.workload,
        severity=profile.severity or "stop, it may be left alone",
        tool=profile.tool or "",
        bottleneck=profile.bottleneck or "not decided",
        when=profile.when or "",
        fix=profile.fix or "",
        gain=f"{profile.gain or ''}{f' ({promised})' if promised else ''}",
        undecided=profile.undecided,
    )


def _facts(profiles: Sequence[Profile]) -> Table | None:
    """One column for each variant, one row for each known fact."""
    heads = columns("Fact", *(f">{profile.variant}" for profile in profiles), "What it is")
    rows = tuple(
        (name, *(value(profile.facts.get(name)) for profile in profiles), meaning)
        for name, meaning in FACTS.items()
        if name not in SAID_ABOVE and any(profile.facts.get(name) is not None for profile in profiles)
    )
    return filled(heads, rows)


def value(fact: Fact) -> str:
    """A fact as text."""
    if fact is None:
        return "unknown"
    return str(fact) if isinstance(fact, str | int) else say.significant(fact)


def _notes(profile: Profile) -> Iterator[str]:
    for names, text in _grouped(profile.sources):
        yield f"{profile.variant}, {names}: {text}"
    for names, why in _grouped(profile.unknown):
        yield f"{profile.variant}, {names} unknown: {why}"


def _grouped(notes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Facts that share a note, together with it."""
    for text in dict.fromkeys(notes.values()):
        yield say.listed([name for name, other in notes.items() if other == text]), text


def _parallelism(fillings: Sequence[Occupancy]) -> Table | None:
    """One row a variant: the workload that fills its device least."""
    heads = columns(
        "Variant", "On", "Filled least on", ">Pieces of work", ">Places", ">Filled", ">Waves", "Limited by"
    )
    names = dict.fromkeys(filling.variant for filling in fillings)
    ordered = sorted(fillings, key=lambda filling: (filling.share, filling.used))
    rows = tuple(_filling(next(filling for filling in ordered if filling.variant == name)) for name in names)
    return filled(heads, rows)


def _filling(filling: Occupancy) -> tuple[str, ...]:
    unknown = (
        f" ({' and '.join(filling.unknown)} not declared)" if filling.unknown and filling.resident > 1 else ""
    )
    return (
        filling.variant,
        filling.on if filling.at_hand else f"{filling.on} (not at hand)",
        filling.workload,
        str(filling.items),
        f"{filling.units} x {filling.resident}",
        f"{100 * filling.share:.0f} %",
        say.significant(filling.waves),
        filling.limited_by + unknown,
    )


def kernels(profiles: Sequence[Profile]) -> Table | None:
    """A row a kernel of each profiled call, the longest of a call first."""
    heads = columns(
        *("Variant", "Kernel", ">Launches", ">Time", ">DRAM", ">SM", ">Warps", ">Bank conflicts", ">Registers"),
        "Its warps wait for",
    )
    watched = [(profile.variant, profile.watched) for profile in profiles if profile.watched is not None]
    rows = [(name, *_kernel(kernel)) for name, watched in watched for kernel in watched.kernels[:MOST_KERNELS]]
    return filled(heads, rows)


def _kernel(kernel_profile: KernelRun) -> tuple[str, ...]:
    shares = (kernel_profile.dram, kernel_profile.sm, kernel_profile.warps_active, kernel_profile.bank_conflicts)
    return (
        kernel_profile.kernel,
        str(kernel_profile.launches),
        "-" if kernel_profile.us is None else say.latency(kernel_profile.us),
        *(percent(share) for share in shares),
        "-" if kernel_profile.registers is None else str(kernel_profile.registers),
        ", ".join(f"{reason} {percent(share)}" for reason, share in kernel_profile.stalls.items()) or "-",
    )


def percent(share: float | None) -> str:
    """`37 %`, `0.3 %`; what is unknown is a dash."""
    if share is None:
        return "-"
    return f"{say.significant(100 * share, 2) if 0 < share < 0.01 else f'{100 * share:.0f}'} %"


def totals(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What each profiled call came to, in a sentence."""
    return tuple(
        f"{profile.variant}, by {profile.watched.by}: {', '.join(_parts(profile.watched))}"
        for profile in profiles
        if profile.watched is not None
    )


def _parts(watched: DeviceProfile) -> Iterator[str]:
    took = "" if watched.us is None else f", {say.latency(watched.us)} together"
    many = "1 launch" if watched.launches == 1 else f"{watched.launches} launches"
    yield f"{many} of {say.count(len(watched.kernels), 'kernel')} in one call{took}"
    if watched.cut:
        yield "the first ones, for it may launch more"
    hidden = len(watched.kernels) - MOST_KERNELS
    if hidden > 0:
        yield f"{say.count(hidden, 'more kernel')} not shown"


COUNTED = ("instructions", "ipc", "cache_misses")
Known = tuple[Reach, str]
"""What a device reaches, and where that is known from or why it is not."""
QUIET, TRIES = 0.8, 3
"""Share of its best moments that a measurement of the roof has to reach, and how often it is tried."""
ON_ROOF = ("flops_share", "bandwidth_share", "roof")
ON_GPU = (*SHARES, "stall")


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
        notes.watched, why = yield from watch(context, side, measured.workload, variants)
        if notes.watched is not None:
            notes.tell(facts(notes.watched), source(notes.watched))
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
