"""Profile each variant on its worst workload, and name its bottleneck by a decision tree."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import Field

from loop.base.errors import LoopError
from loop.base.expressions import Expression, ExpressionError
from loop.base.processes import Waiting
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.measurement import Build, Measurement, SpeedVerdict
from loop.model.output import MeasureOutput, Output
from loop.model.profile import FACTS, DeviceProfile, Fact, Profile, SeverityRule, TreeRule
from loop.model.workloads import evaluate_work, tensor_bytes
from loop.profile import profile as profiler
from loop.profile.launch_limits import Occupancy, find_occupancy, gpu_at_hand
from loop.profile.profile import PeakRates, measure_roof
from loop.report import format as say
from loop.report.markdown import Table, drop_empty_columns
from loop.steps.context import Context, Result, RunningAction
from loop.timing.readiness import hold_device, ready_variants

Rule = TypeVar("Rule", TreeRule, SeverityRule)
SUFFICIENT_RATIO = 1.5  # Ratio to the baseline from which a call needs no further work.
FACTS_IN_SENTENCE = ("device", "ratio", "time_us")
"""Facts left out of the table, because the sentence above it states them."""
MOST_KERNELS = 4  # Most kernels of a call that the report shows.
ROOF_FACTS = ("flops_share", "bandwidth_share", "roof")  # Facts that need a device's peak rate.
COUNTER_FACTS = (*profiler.SHARES, "stall")  # Facts that only a GPU's hardware counters tell.


def first_match(
    rules: Sequence[Rule], facts: Mapping[str, Fact]
) -> tuple[Rule | None, dict[int, tuple[str, ...]]]:
    """The first rule that matches, or None, and the undecided rules before it: index to the unknown
    facts that it reads. A rule is decided without a fact that its earlier parts make irrelevant: on
    a CPU `device == 'cuda' and dram > 0.7` is false. ExpressionError: one fails on known facts."""
    known = {name: value for name, value in facts.items() if value is not None}
    undecided: dict[int, tuple[str, ...]] = {}
    for index, rule in enumerate(rules):
        condition = Expression.parse(rule.when)
        try:
            if condition.evaluate_bool(known):
                return rule, undecided
        except ExpressionError:
            unknown = tuple(sorted(condition.names - known.keys()))
            if not unknown:
                raise
            undecided[index] = unknown
    return None, undecided


def saved_time_share(ratio: float, weight: float = 1.0) -> float:
    """The part of `weight` (a call's time) saved once it is `SUFFICIENT_RATIO` times as fast as the
    baseline. `ratio`: its speed against the baseline."""
    return weight * (1 - 1 / max(1.0, SUFFICIENT_RATIO / ratio))


def worst_measurements(output: MeasureOutput, names: Collection[str]) -> dict[str, Measurement]:
    """For each timed variant of `names` its measurement with the most time to save, most first. A
    variant's inconclusive workloads, whose ratios are noise, count only if it has no other."""
    speeds = [verdict for verdict in output.verdicts if isinstance(verdict, SpeedVerdict)]
    verdicts = {(speed.variant, speed.workload): speed.verdict for speed in speeds}
    timed_variants = {variant for variant, _ in verdicts} & {*names}
    ranked: list[tuple[bool, float, float, int]] = []
    """Conclusive measurements first, then the largest saving, then the lowest ratio; then index."""
    for index, measurement in enumerate(output.measurements):
        workload = measurement.workload
        verdict = verdicts.get((measurement.variant, workload.name), "inconclusive")
        saving = saved_time_share(measurement.ratio, workload.weight)
        if measurement.against == "baseline" and measurement.variant in timed_variants:
            ranked.append((verdict == "inconclusive", -saving, measurement.ratio, index))
    worst: dict[str, Measurement] = {}
    for *_, index in sorted(ranked):
        worst.setdefault(output.measurements[index].variant, output.measurements[index])
    return worst


@dataclass
class Notes:
    """Facts collected about one variant on one workload."""

    facts: dict[str, Fact] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # Fact to its source, if not obvious.
    unknown: dict[str, str] = field(default_factory=dict)  # Fact to the reason why it is unknown.
    device_profile: DeviceProfile | None = None  # One call as a GPU profiler recorded it, if any.

    def add(self, facts: Mapping[str, Fact], source: str = "") -> None:
        """Add facts. `source`: where the facts come from; empty if that is obvious."""
        self.facts |= facts
        if source:
            self.sources |= {name: source for name, value in facts.items() if value is not None}

    def explain_unknown(self, why: str, *names: str) -> None:
        """Note why these facts are unknown; facts that are known stay."""
        self.unknown |= {name: why for name in names if self.facts.get(name) is None}


def make_profile(
    measured: Measurement, notes: Notes, tree: Sequence[TreeRule], severity: Sequence[SeverityRule]
) -> Profile:
    """The profile with its facts and the first matching rules' advice. Raises ExpressionError."""
    facts = {name: notes.facts.get(name) for name in FACTS}
    unknown_facts = [name for name, value in facts.items() if value is None]
    leaf, unknown_by_rule = first_match(tree, facts)
    severity_rule, _ = first_match(severity, facts)
    rules = unknown_by_rule.items()
    undecided = [f"{tree[n].bottleneck}: {' and '.join(names)} unknown" for n, names in rules]
    return Profile(
        variant=measured.variant,
        workload=measured.workload.name,
        facts=facts,
        sources=dict(notes.sources),
        watched=notes.device_profile,
        unknown={name: notes.unknown.get(name, "not told") for name in unknown_facts},
        severity=severity_rule.severity if severity_rule else None,
        tool=severity_rule.tool if severity_rule else None,
        undecided=tuple(undecided),
        bottleneck=leaf.bottleneck if leaf else None,
        when=leaf.when if leaf else None,
        fix=leaf.fix if leaf else None,
        gain=leaf.gain if leaf else None,
    )


def describe_leaf(profile: Profile) -> tuple[Profile, str]:
    """The profile with its leaf of the tree as texts; its workload with known speed and time."""
    ratio, time_us = profile.facts.get("ratio"), profile.facts.get("time_us")
    figures = [say.speedup_text(ratio)] if isinstance(ratio, float) else []
    figures += [say.latency(time_us)] if isinstance(time_us, float) else []
    severity = profile.severity or "stop, it may be left alone"
    bottleneck = profile.bottleneck or "not decided"
    texts = {"severity": severity, "bottleneck": bottleneck, "gain": profile.gain or ""}
    workload = f"{profile.workload} ({', '.join(figures)})" if figures else profile.workload
    return profile.model_copy(update=texts), workload


def facts_table(profiles: Sequence[Profile]) -> Table | None:
    """A row for each known fact that no sentence states, a column for each variant; None: none."""
    heads = ("Fact", *(f">{profile.variant}" for profile in profiles), "What it is")
    rows = []
    for name, meaning in FACTS.items():
        values = [profile.facts.get(name) for profile in profiles]
        if name not in FACTS_IN_SENTENCE and any(value is not None for value in values):
            rows.append((name, *map(fact_text, values), meaning))
    return drop_empty_columns(heads, rows)


def fact_text(fact: Fact) -> str:
    """A fact as text; `unknown` for None."""
    if fact is None:
        return "unknown"
    return str(fact) if isinstance(fact, str | int) else say.significant(fact)


def note_lines(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Where facts come from (`plain, dram and sm: ncu`), why facts are unknown; one line a note."""
    lines = []
    for profile in profiles:
        for note_by_fact, suffix in ((profile.sources, ""), (profile.unknown, " unknown")):
            for note in dict.fromkeys(note_by_fact.values()):
                facts = [fact for fact, other in note_by_fact.items() if other == note]
                lines.append(f"{profile.variant}, {say.listed_words(facts)}{suffix}: {note}")
    return tuple(lines)


def parallelism_table(occupancies: Sequence[Occupancy]) -> Table | None:
    """For the report, a row a variant: the workload that fills its device least. None: no row."""
    number_heads = (">Pieces of work", ">Places", ">Filled", ">Waves")  # `>`: aligned right.
    heads = ("Variant", "On", "Filled least on", *number_heads, "Limited by")
    rows = []
    for name in dict.fromkeys(occupancy.variant for occupancy in occupancies):
        of_variant = [occupancy for occupancy in occupancies if occupancy.variant == name]
        least = min(of_variant, key=lambda occupancy: (occupancy.share, occupancy.used))
        limit = least.limited_by
        if least.unknown and least.resident > 1:  # With unknown resources, fewer may fit.
            limit += f" ({' and '.join(least.unknown)} not declared)"
        row = (
            name,
            least.on if least.at_hand else f"{least.on} (not at hand)",
            least.workload,
            str(least.items),
            f"{least.units} x {least.resident}",
            f"{100 * least.share:.0f} %",
            say.significant(least.waves),
            limit,
        )
        rows.append(row)
    return drop_empty_columns(heads, rows)


def kernels_table(profiles: Sequence[Profile]) -> Table | None:
    """A row for each kernel of each profiled call, the longest kernels first; None without rows."""
    number_heads = (">Launches", ">Time", ">DRAM", ">SM", ">Warps", ">Bank conflicts", ">Registers")
    heads = ("Variant", "Kernel", *number_heads, "Its warps wait for")
    rows = []
    for profile in profiles:
        for kernel in profile.watched.kernels[:MOST_KERNELS] if profile.watched else ():
            shares = (kernel.dram, kernel.sm, kernel.warps_active, kernel.bank_conflicts)
            stalls = [f"{reason} {percent(share)}" for reason, share in kernel.stalls.items()]
            row = (
                profile.variant,
                kernel.kernel,
                str(kernel.launches),
                "-" if kernel.us is None else say.latency(kernel.us),
                *(percent(share) for share in shares),
                "-" if kernel.registers is None else str(kernel.registers),
                ", ".join(stalls) or "-",
            )
            rows.append(row)
    return drop_empty_columns(heads, rows)


def percent(share: float | None) -> str:
    """A share (0 to 1) as `37 %` or `0.3 %`; a dash for None."""
    if share is None:
        return "-"
    return f"{say.significant(100 * share, 2) if 0 < share < 0.01 else f'{100 * share:.0f}'} %"


def total_lines(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """A sentence for each profiled call: launches, kernels, total time."""
    lines = []
    for variant, call in ((profile.variant, profile.watched) for profile in profiles):
        if call is None:
            continue
        total_time = "" if call.us is None else f", {say.latency(call.us)} together"
        launches = "1 launch" if call.launches == 1 else f"{call.launches} launches"
        parts = [f"{launches} of {say.count(len(call.kernels), 'kernel')} in one call{total_time}"]
        parts += ["the first ones, for it may launch more"] if call.cut else []
        hidden = len(call.kernels) - MOST_KERNELS
        parts += [f"{say.count(hidden, 'more kernel')} not shown"] if hidden > 0 else []
        lines.append(f"{variant}, by {call.by}: {', '.join(parts)}")
    return tuple(lines)


class ProfileOutput(Output):
    """The bottleneck of each variant on its worst workload."""

    actions = ("kernel.profile",)

    profiles: tuple[Profile, ...] = ()
    """A profile for each variant that was timed."""


class ProfileTerms(Model):
    """Parameters of `kernel.profile`: the decision tree."""

    tree: Annotated[tuple[TreeRule, ...], Field(min_length=1)]
    """Rules in order; the first that matches names the bottleneck."""
    severity: Annotated[tuple[SeverityRule, ...], Field(min_length=1)]
    """Rules in order; the first that matches states how urgent the result is."""


def profile(context: Context, arguments: ProfileTerms) -> RunningAction[ProfileOutput]:
    """Profile each timed variant on the workload where it is worst, and name its bottleneck: main
    variants only, if one was timed. `arguments`: rules of which the first that matches names the
    bottleneck (`tree`) or says how urgent it is (`severity`). Fails if nothing was timed."""
    state = yield from ready_variants(context)
    output = context.latest_output("kernel.measure", MeasureOutput)
    chosen: list[Measurement] = []
    if output:  # Main variants only, if there are any: examples and baselines are not optimised.
        variants = context.bench.target.variants
        worst = worst_measurements(output, variants)
        main = [measured for name, measured in worst.items() if variants[name].role == "main"]
        chosen = main or [*worst.values()]
    if state.builds is None or not chosen:
        message = f"nothing to profile: {state.why_not or 'no variant has a speed'}"
        hint = state.hint or f"measure first: {context.command('run', 'pattern', 'baseline-first')}"
        return Result(ProfileOutput(ok=False, message=message, hint=hint))
    profiles, roofs = list[Profile](), dict[Dtype, PeakRates]()
    with ExitStack() as stack:
        yield from hold_device(context.bench, stack)
        for measured in chosen:
            dtype, build = measured.workload.dtype, state.builds.get(measured.variant)
            if dtype not in roofs:
                roofs[dtype] = yield from _peak_rates(context, chosen, dtype)
            notes = yield from _collect_facts(context, measured, build, len(chosen), roofs[dtype])
            profiles.append(make_profile(measured, notes, arguments.tree, arguments.severity))
    missing, parts, learned = list[str](), list[str](), list[str]()
    for profile in profiles:
        if profile.facts.get("device") == "cuda":
            missing += [profile.unknown[name] for name in COUNTER_FACTS if name in profile.unknown]
        severity = profile.severity or "stop"  # No rule of severity matched: it is fast enough.
        bottleneck = f"{profile.bottleneck or 'undecided'} on {profile.workload}"
        parts.append(f"{profile.variant} {severity}, {bottleneck}")
        if profile.severity and profile.bottleneck:
            cause = f"{profile.variant} is held back by {profile.bottleneck}"
            learned.append(f"{cause} on {profile.workload}, where it does worst: {profile.fix}.")
    profile_output = ProfileOutput(
        ok=True,
        message="; ".join(parts),
        not_exercised=tuple(f"hardware counters: {reason}" for reason in dict.fromkeys(missing)),
        learned=tuple(learned),
        profiles=tuple(profiles),
    )
    return Result(profile_output)


def _collect_facts(
    context: Context, measured: Measurement, build: Build | None, variants: int, roof: PeakRates
) -> Waiting[Notes]:
    """Collect all facts about one variant on one workload. `variants`: how many share the time."""
    notes, bench, target, workload = Notes(), context.bench, context.bench.target, measured.workload
    notes.add({"device": bench.device, "ratio": measured.ratio, "time_us": measured.candidate_us})
    flops = evaluate_work(target.flops, workload)
    moved_bytes = evaluate_work(target.bytes, workload)
    facts, exceeded = roof.facts(flops, moved_bytes, measured.candidate_us * 1e-6)
    notes.add(facts)
    notes.sources |= {name: roof.source for name in ROOF_FACTS if facts[name] is not None}
    why = roof.source if facts["intensity"] is not None else "it needs `flops`, `bytes` and a peak"
    if exceeded:
        problem = "that roof is wrong, or the manifest counts too much"
        why = f"it came to {exceeded} ({roof.source}): {problem}"
    notes.explain_unknown(why, *ROOF_FACTS)
    notes.explain_unknown("the manifest declares no `flops`", "flops")
    notes.explain_unknown("the manifest declares no `bytes`", "bytes")
    notes.explain_unknown("it needs `flops` and `bytes`", "intensity")
    occupancy = find_occupancy(context, measured.variant, workload)
    if occupancy is None:
        notes.add({"units": bench.threads if bench.device == "cpu" else None})
        notes.explain_unknown("the manifest declares no launch", "work_items", "slots", "units")
    else:
        slots = occupancy.units * occupancy.resident
        # Only launches that the host code reported name their kernel.
        origin = "told by the host code" if occupancy.kernel else "declared in the manifest"
        launch_facts = {"work_items": occupancy.items, "units": occupancy.units, "slots": slots}
        notes.add(launch_facts, f"the launch {origin}, on {occupancy.on}")
    variant = bench.compiled_variants([measured.variant]).get(measured.variant)
    if variant is None or build is None:
        notes.explain_unknown("nothing of it is compiled by loop", "vectorised", "vector_share")
    else:
        limit_s = min(profiler.REPORT_LIMIT_S, context.kill_after_s / 2)
        report, why = yield from profiler.compiler_report(bench, variant, limit_s)
        notes.add(report, "the compiler's report")
        notes.explain_unknown(why or "no x86 listing", "vectorised", "vector_share")
    why_unknown = "there is no GPU"
    if bench.device == "cuda":
        side = bench.make_side(measured.variant, build)
        profile, why = yield from profiler.profile_call(context, side, workload, variants)
        why_unknown = why or "ncu gave no such counter"
        notes.device_profile = profile
        if profile is not None:
            longest, count, share = profile.kernels[0], len(profile.kernels), ""
            if count > 1:
                share = f", the first of {count} kernels"
                if profile.us and longest.us is not None:
                    share = f", {longest.us / profile.us:.0%} of the time of {count} kernels"
            counters: dict[str, Fact] = {fact: getattr(longest, fact) for fact in profiler.SHARES}
            counters["stall"] = next(iter(longest.stalls), None)
            notes.add(counters, f"{profile.by}, of {longest.kernel}{share}")
    notes.explain_unknown(why_unknown, *COUNTER_FACTS)
    return notes


def _peak_rates(context: Context, timed: Sequence[Measurement], dtype: Dtype) -> Waiting[PeakRates]:
    """Peak rates of the device for an element type; a processor's are measured now, on the largest
    working set of `timed`. Rates that are unknown are None, and `source` says why."""
    bench, device = context.bench, gpu_at_hand(context)
    if device is not None:
        return PeakRates(device.flops_per_s.get(dtype), device.bytes_per_s or None, device.source)
    if bench.device == "cuda":
        return PeakRates(source="no peak of this GPU is in the manifest")
    workloads = [measured.workload for measured in timed if measured.workload.dtype == dtype]
    largest = max(sum(tensor_bytes(bench.target, workload).values()) for workload in workloads)
    try:
        return (yield from measure_roof(bench.scratch, dtype, bench.threads, largest))
    except LoopError as error:
        return PeakRates(source=error.message)
