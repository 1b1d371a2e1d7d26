"""Kernels on a GPU that need not be at hand: compiler's report, launches of a dry run, budgets."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import StringConstraints, ValidationError

from loop.base.processes import Waiting, run_side_by_side
from loop.builds import build
from loop.builds.resources import (
    REPORT_HINT,
    KernelResources,
    demangle_symbols,
    is_nvcc,
    read_report,
    requests_report,
    short_name,
)
from loop.calls.call import Refused
from loop.gate.kernel import compile_all
from loop.machine.machine import cores, detect_gpus
from loop.model.base import Model
from loop.model.measurement import Build
from loop.model.profile import DeviceFacts
from loop.model.target import CAbiVariant, ResourceBudget, Workload
from loop.model.workloads import expand_sets, is_supported
from loop.profile.launch_limits import (
    CompiledLibrary,
    KernelLaunch,
    Occupancy,
    Placement,
    ResourcesOutput,
    gpu_at_hand,
    launch_residency,
    make_occupancy,
)
from loop.report import format as say
from loop.report.markdown import Table
from loop.report.sections import Section
from loop.steps.context import Context, Result, RunningAction
from loop.workers.bench import Bench
from loop.workers.messages import ListLaunches
from loop.workers.program import Worker, WorkerLost

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")
LIMIT_S = 20.0  # Time limit in seconds of one dry-run call, which computes nothing.
NO_REPORT = "its compiler was not asked what kernels take"
DRY_RUN_HINT = "in a dry run no tensor may be touched by the host"
FEWER_RESOURCES_HINT = "take a smaller tile, more warps or fewer registers"
BUDGET_HINT = f"{FEWER_RESOURCES_HINT}; or allow it under `budgets` in target.yaml"
NO_LAUNCH = "say in target.yaml how it is built for the emulator (`emulation`)"
MOST_ROWS = 12  # Most kernels in the table; kernels with problems come first.
NOTE = "Shared memory and blocks are those of the launches that the host code makes."


@dataclass
class KernelFindings:
    """Reports and launches of a target's CUDA kernels, with problems and gaps."""

    architecture: str
    device: DeviceFacts | None
    variants: Mapping[str, CAbiVariant] = field(default_factory=dict)  # Those that are inspected.
    libraries: list[CompiledLibrary] = field(default_factory=list)  # The compiler's reports.
    launches: dict[str, Mapping[str, Sequence[KernelLaunch]]] = field(default_factory=dict)
    """Variant to the launches of each workload, by its name."""
    names: dict[str, str] = field(default_factory=dict)  # Symbol of a launched kernel, demangled.
    problems: dict[str, str] = field(default_factory=dict)  # Problem that fails the step: remedy.
    missing: list[str] = field(default_factory=list)  # Gaps, each with reason and remedy.

    def list_placements(self, device: DeviceFacts) -> tuple[Placement, ...]:
        """Each launch with its occupancy on a GPU. A kernel's report is found by symbol or name.
        Notes in `missing` the launched kernels without a report: their registers are unknown."""
        placements, unreported = list[Placement](), dict[str, None]()
        for variant, calls in self.launches.items():
            libraries = [library for library in self.libraries if variant in library.variants]
            reports = [k for library in libraries for k in library.kernels if k.entry]
            pairs = [(name, launch) for name, launches in calls.items() for launch in launches]
            for workload, launch in pairs:
                symbol = launch.kernel
                name = self.names.get(symbol, symbol)
                kernel = next((k for k in reports if k.symbol == symbol or k.name == name), None)
                shared = (kernel.shared_bytes if kernel else launch.shared_static) + launch.shared
                registers = kernel.registers if kernel else None
                blocks, limited_by = launch_residency(launch, registers, shared, device)
                placement = Placement(
                    variant=variant,
                    kernel=short_name(kernel.name if kernel else name),
                    symbol=kernel.symbol if kernel else symbol,
                    blocks=math.prod(launch.grid),
                    threads=launch.threads,
                    shared_bytes=shared,
                    registers=registers,
                    resident=blocks,
                    limited_by=limited_by,
                    workload=workload,
                )
                placements.append(placement)
                if libraries and registers is None:
                    unreported[placement.kernel] = None
        if unreported:
            names = ", ".join(unreported)
            self.missing.append(f"registers of {names}: launched, and not in the compiler's report")
        return tuple(placements)


def runs_on(code: str, device: str) -> bool:
    """True if a GPU of architecture `device` runs machine code for `code`: the major numbers must
    be equal, and the code's minor no higher. Code for `sm_90a` runs on `sm_90` alone."""
    code_match, device_match = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not code_match or not device_match or code_match[1] != device_match[1]:
        return False
    code_minor, device_minor = int(code_match[2]), int(device_match[2])
    return code_minor == device_minor if code_match[3] == "a" else code_minor <= device_minor


def variant_names(context: Context) -> tuple[str, ...]:
    """All variants of the session, in the manifest's order."""
    names = {*context.task.variants, *context.task.emulated}
    return tuple(name for name in context.bench.target.variants if name in names)


def build_for_gpu(context: Context, findings: KernelFindings) -> Waiting[tuple[Build, ...]]:
    """Build each variant for the GPU of `findings`; returns the builds. Notes failures in
    `findings`, and variants that are made for another GPU."""
    bench, architecture = context.bench, findings.architecture
    variants = dict[str, CAbiVariant]()
    for name in findings.variants:
        variant = bench.target.compiled_variant(name, architecture)
        if variant.architecture in (None, architecture):
            variants[name] = variant
        else:
            why = f"it is made for {variant.architecture}"
            findings.missing.append(f"{name} on {architecture}: {why}")
    # A report needs machine code alone; host code and linking took a quarter of the time. nvcc
    # makes no such file for several GPUs or sources: they get a library, as does what runs here or
    # is built already.
    cubins, places = dict[str, CAbiVariant](), {"cache": bench.cache, "include": bench.include}
    will_run = bench.device == "cuda" and bench.architecture == architecture
    for name, variant in variants.items():
        if not will_run and build.find_build(name, variant, context.task.folder, **places) is None:
            recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, "-cubin")})
            cubins[name] = variant.model_copy(update={"build": recipe})
    built, _ = yield from compile_all(context, cubins, will_run=False)
    done = {library.variant for library in built}
    others = {name: variant for name, variant in variants.items() if name not in done}
    purpose = f"compiler's report for {architecture}"
    return (*built, *(yield from _build_variants(context, others, purpose, findings)))


def _build_variants(
    context: Context, variants: Mapping[str, CAbiVariant], purpose: str, findings: KernelFindings
) -> Waiting[tuple[Build, ...]]:
    """Build these variants; returns the builds. A failure is a problem of `findings`, or missing
    if no compiler is there. `purpose`: of the builds."""
    built, failures = yield from compile_all(context, variants, will_run=False)
    for failed in failures:
        if failed.no_compiler:
            findings.missing.append(f"{purpose}: {failed.message}; {failed.hint}")
        else:
            findings.problems[failed.message] = failed.hint
    return built


def read_reports(built: Sequence[Build], findings: KernelFindings) -> None:
    """Note in `findings` the compiler's report on each library, which equal build ids share."""
    architecture, missing = findings.architecture, findings.missing
    builds_by_id = dict[str, list[Build]]()
    for library in built:
        builds_by_id.setdefault(library.build_id, []).append(library)
    for builds in builds_by_id.values():
        names = tuple(library.variant for library in builds)
        label = ", ".join(names)
        kernels, was_cut = read_report(builds[0])
        architectures = dict.fromkeys(kernel.architecture for kernel in kernels)
        runnable = [code for code in architectures if runs_on(code, architecture)]
        if runnable:
            if was_cut:
                missing.append(f"some kernels of {label}: the compiler's log was too long to keep")
            nearest = max(runnable)  # All have the GPU's major number.
            code = tuple(kernel for kernel in kernels if kernel.architecture == nearest)
            findings.libraries.append(CompiledLibrary(variants=names, kernels=code))
        elif kernels:
            why = f"its code is for {', '.join(architectures)} only"
            remedy = "let `-arch={arch}` stand in its `build.flags`"
            missing.append(f"{label} on {architecture}: {why}; {remedy}")
        elif requests_report(findings.variants[names[0]].build.flags):
            missing.append(f"compiler's report for {architecture}: {label} has no own kernel")
        else:
            findings.problems[f"{label}: {NO_REPORT}"] = REPORT_HINT


def find_launches(context: Context, findings: KernelFindings, *, only_built: bool) -> Waiting[None]:
    """Ask host code in a dry run which kernels it launches; adds answers to `findings`. Leaves out
    variants without `emulation` in target.yaml, or made for another GPU. `only_built`: True: only
    what is built for the emulator; False: build it, with the values that were tuned for the GPU."""
    target, bench, missing = context.bench.target, context.bench, findings.missing
    places = {"cache": bench.cache, "include": bench.include}
    variants: dict[str, CAbiVariant] = {}
    for name, variant in findings.variants.items():
        if variant.emulation is None or variant.architecture not in (None, findings.architecture):
            continue
        emulated = target.emulated_variant(name, "" if only_built else findings.architecture)
        if target.generator or target.signature.has_unknown_outputs:
            missing.append(f"launches of {name}: its shapes are known only when tensors are made")
        elif only_built and build.find_build(name, emulated, context.task.folder, **places) is None:
            missing.append(f"launches of {name}: it is not built for the emulator here")
        else:
            variants[name] = emulated
    builds = yield from _build_variants(context, variants, "launches", findings)
    built = [findings.variants[library.variant] for library in builds]
    workloads = [_workloads_to_launch(context, variant) for variant in built]
    dry_runs = (ask_for_launches(bench, *pair) for pair in zip(builds, workloads, strict=True))
    answers, symbols = (yield from run_side_by_side(dry_runs, cores())), set[str]()
    for library, (calls, declined, lost) in zip(builds, answers, strict=True):
        name = library.variant
        if lost:
            findings.problems[f"{name} does not say what it launches {lost}"] = DRY_RUN_HINT
        if declined:
            place, why = next(iter(declined.items()))
            more = f", and {len(declined) - 1} more" if len(declined) > 1 else ""
            missing.append(f"launches of {name} on {place}{more}: {why}")
        if any(calls.values()):
            findings.launches[name] = calls
        elif not declined and not lost:
            missing.append(f"launches of {name}: its emulated build tells of none in a dry run")
        symbols |= {launch.kernel for launches in calls.values() for launch in launches}
    findings.names = demangle_symbols(sorted(symbols))


def _workloads_to_launch(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads, then each other shape of the target, in every type of the variant."""
    target, timed = context.bench.target, timed_workloads(context, variant)
    expanded = (expand_sets(target, target.workloads, dtype) for dtype in variant.dtypes)
    supported = [w for workloads in expanded for w in workloads if is_supported(variant, w)]
    by_shape: dict[str, Workload] = {}
    for workload in (*supported, *timed):  # Of one shape a timed one stays.
        # Everything a launch may depend on: type, sizes and attributes, but not tensor values.
        shape = str((workload.dtype, sorted((workload.sizes | workload.attributes).items())))
        by_shape[shape] = workload
    return [*timed, *(workload for workload in by_shape.values() if workload not in timed)]


def timed_workloads(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads that the variant supports, in the type that is measured on a GPU."""
    target = context.bench.target
    dtype = target.dtypes.get("cuda", variant.dtypes[0])
    workloads = expand_sets(target, context.task.plan.workloads, dtype)
    return [workload for workload in workloads if is_supported(variant, workload)]


def ask_for_launches(
    bench: Bench, build: Build, workloads: Sequence[Workload]
) -> Waiting[tuple[dict[str, tuple[KernelLaunch, ...]], dict[str, str], str]]:
    """The launches of each workload, by its name, as host code built for the emulator (`build`)
    reports them in a dry run; the errors that calls returned, by workload; and where and why the
    run was lost, if it was: a crash, no answer or an unreadable one. No launches follow that."""
    launches_by_workload, declined = dict[str, tuple[KernelLaunch, ...]](), dict[str, str]()
    terms = bench.make_side(build.variant, build).terms
    path = bench.scratch / f"launches-{build.variant}.jsonl"
    path.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            request = ListLaunches(terms, str(path), bench.make_call(workload, "dry"))
            note = f"launches of {workload.name}"
            try:
                reply = yield from worker.ask(request, limit_s=LIMIT_S, note=note)
                records = [r for r in reply.launches if "remark" not in r]  # A remark is no launch.
                launches = [KernelLaunch.model_validate(r, extra="ignore") for r in records]
            except (Refused, WorkerLost) as error:
                return launches_by_workload, declined, f"on {workload.name}: {error}"
            except ValidationError as error:
                why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
                return launches_by_workload, declined, f"on {workload.name}: {why}"
            launches_by_workload[workload.name] = tuple(launches)
            if reply.entry_error:
                declined[workload.name] = reply.entry_error
    return launches_by_workload, declined, ""


class ResourceTerms(Model):
    """Parameters of `kernel.resources`."""

    device: Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}$")] | None = None
    """Architecture to compile for: a key of the manifest's `devices`, which need not be at hand.
    Default: the GPU at hand, else the first of the manifest."""
    built: bool = False
    """True: ask only host code that is already built for the emulator for its launches."""
    spills: Literal["fail", "tell"] = "fail"
    """`fail`: a kernel that spills without a budget fails the step; `tell`: it is only reported."""


def resources(context: Context, arguments: ResourceTerms) -> RunningAction[ResourcesOutput]:
    """Compile for a GPU, read the compiler's report and the launches, and check the budgets.
    Passes if nvcc compiles no variant."""
    architecture = arguments.device or context.bench.architecture
    # Also those emulated here; placeholders in their flags stay.
    chosen = {name: context.bench.target.variants[name] for name in variant_names(context)}
    variants = {n: v for n, v in chosen.items() if isinstance(v, CAbiVariant) and is_nvcc(v.build)}
    if not variants:
        message = "no variant is compiled by nvcc"
        return Result(ResourcesOutput(ok=True, message=message, device=architecture), idle=True)
    gpu, bench = detect_gpus().first, context.bench
    is_here = gpu is not None and gpu.architecture == architecture
    device = bench.gpu if is_here else bench.target.devices.get(architecture)
    findings = KernelFindings(architecture, device, variants)
    if device is None:
        why = "the manifest has no such device under `devices`"
        findings.missing.append(f"occupancy on {architecture}: {why}")
    builds = yield from build_for_gpu(context, findings)
    read_reports(builds, findings)
    yield from find_launches(context, findings, only_built=arguments.built)
    return Result(_make_output(context, findings, may_spill=arguments.spills == "tell"))


def _make_output(context: Context, findings: KernelFindings, *, may_spill: bool) -> ResourcesOutput:
    """Check reports and launches against limits and budgets; notes gaps."""
    device, architecture, chosen = findings.device, findings.architecture, findings.variants
    placements = findings.list_placements(device) if device else ()
    timed = {w.name for variant in chosen.values() for w in timed_workloads(context, variant)}
    merged: dict[str, Placement] = {}  # Each distinct launch once; is it of a timed workload?
    for placement in placements:
        key = placement.model_dump_json(exclude={"workload"})
        first = merged.setdefault(key, placement)
        if placement.workload in timed:
            merged[key] = first.model_copy(update={"timed": True})
    launches = tuple(merged.values())
    occupancies = _timed_occupancies(context, findings, placements)
    spilled, broken, unchecked = list[str](), list[str](), list[str]()
    for library in findings.libraries:
        budgets = [budget for name in library.variants for budget in chosen[name].budgets]
        spills, exceeded, without_launch = check_budgets(library, budgets, launches)
        spilled += spills
        broken += exceeded
        unchecked += without_launch
    if unchecked:
        more = f" and {len(unchecked) - 1} more" if len(unchecked) > 1 else ""
        unknown = "no workload launches it, so its blocks are not known"
        findings.missing.append(f"budget of {unchecked[0]}{more}: {unknown}")
    gpu_name, refused = device.name if device else architecture, list[str]()
    for launch in (launch for launch in launches if launch.resident == 0):
        needs = ""
        if launch.limited_by in ("threads", "registers", "shared memory"):
            registers = "" if launch.registers is None else f" {launch.registers} registers each,"
            shared = f"{launch.shared_bytes} bytes of shared memory"
            needs = f" ({launch.threads} threads,{registers} {shared})"
        place = f"on {gpu_name} for {launch.workload}"
        refused.append(f"{launch.kernel} cannot be launched {place}: {launch.limited_by}{needs}")
    impossible = tuple(dict.fromkeys(refused))
    over_budget = broken if may_spill else [*spilled, *broken]
    problems = [*findings.problems, *over_budget, *impossible]
    hints = [*findings.problems.values(), BUDGET_HINT if over_budget else FEWER_RESOURCES_HINT]
    message = _compiled_line(architecture, findings.libraries)
    residents = [launch.resident for launch in launches]
    if problems:
        message = f"{problems[0]}{f'; and {len(problems) - 1} more' if len(problems) > 1 else ''}"
    elif residents:
        message += f"; {min(residents)} to {max(residents)} blocks a multiprocessor of {gpu_name}"
    return ResourcesOutput(
        ok=not problems,
        message=message,
        hint=hints[0] if problems else None,
        not_exercised=tuple(dict.fromkeys(findings.missing)),
        learned=tuple(f"On {architecture}, {text}." for text in (*spilled, *impossible)),
        device=architecture,
        device_name=device.name if device else "",
        libraries=tuple(findings.libraries),
        placements=launches,
        fillings=tuple(occupancies),
        spilled=tuple(spilled),
        broken=tuple(broken),
        impossible=impossible,
    )


def check_budgets(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> tuple[list[str], list[str], list[str]]:
    """Check one library: spills beyond the budget, other exceeded budgets, and kernels whose budget
    needs a launch that no workload makes. Without a budget a kernel must not spill. A budget that
    matches no kernel counts as exceeded: else a renamed kernel would silently lose its budget."""
    spilled, broken, unchecked = list[str](), list[str](), list[str]()
    for kernel in library.kernels:
        name = kernel.short_name
        budget = next((budget for budget in budgets if budget.kernel in kernel.name), None)
        allowed_bytes = budget.spill_bytes if budget else 0
        if kernel.spill_bytes > allowed_bytes:
            limit_text = f", budget {allowed_bytes}" if allowed_bytes else ""
            spilled.append(f"{name} spills {kernel.spill_bytes} bytes{limit_text}")
        if budget is None:
            continue
        launches = [placement for placement in placements if placement.symbol == kernel.symbol]
        needs_launch = budget.blocks_per_sm or budget.shared_bytes is not None
        if not launches and kernel.entry and needs_launch:
            unchecked.append(name)
        shared = max((launch.shared_bytes for launch in launches), default=kernel.shared_bytes)
        for unit, amount, limit in (
            ("registers", kernel.registers, budget.registers),
            ("bytes of stack", kernel.stack_bytes, budget.stack_bytes),
            ("bytes of shared memory", shared, budget.shared_bytes),
        ):
            if limit is not None and amount is not None and amount > limit:
                broken.append(f"{name}: {amount} {unit}, budget {limit}")
        fewest = min((launch.resident for launch in launches), default=None)
        least = budget.blocks_per_sm
        if least is not None and fewest is not None and fewest < least:
            broken.append(f"{name}: {fewest} blocks a multiprocessor, budget {least} at least")
    for budget in budgets:
        if not any(budget.kernel in kernel.name for kernel in library.kernels):
            names = ", ".join(library.variants)
            broken.append(f"the budget for {budget.kernel!r} fits no kernel of {names}")
    return spilled, broken, unchecked


def _timed_occupancies(
    context: Context, findings: KernelFindings, placements: Sequence[Placement]
) -> list[Occupancy]:
    """How each timed call fills the GPU, by its largest launch (by threads) of those that host code
    reported; notes in `findings` variants without any. Nothing for a GPU without facts."""
    device, occupancies = findings.device, list[Occupancy]()
    if device is None:
        return occupancies
    at_hand = gpu_at_hand(context) == device
    for name, variant in findings.variants.items():
        timed = {workload.name for workload in timed_workloads(context, variant)}
        largest: dict[str, Placement] = {}
        for launch in placements:
            if launch.variant == name and launch.workload in timed:
                other = largest.setdefault(launch.workload, launch)
                if launch.blocks * launch.threads > other.blocks * other.threads:
                    largest[launch.workload] = launch
        for workload, launch in largest.items():
            unknown = ("registers",) if launch.registers is None else ()
            fields = {"kernel": launch.kernel, "unknown": unknown, "at_hand": at_hand}
            on, sms = device.name, device.sms
            residency = (launch.resident, launch.limited_by)
            occupancy = make_occupancy(name, workload, on, launch.blocks, sms, residency, **fields)
            occupancies += [occupancy] if occupancy else []
        # Without `emulation` nothing told them; else the dry run noted why it told none.
        if name not in findings.launches and variant.emulation is None:
            findings.missing.append(f"launches of {name}: nothing tells them; {NO_LAUNCH}")
    return occupancies


def section(output: ResourcesOutput) -> Section | None:
    """Section of the report on one GPU: kernels of timed calls, those with problems; None: none."""
    if not (output.libraries or output.placements or output.fillings):
        return None
    rows = kernel_rows(output)
    hidden = len(rows) - MOST_ROWS
    lines = list(summary_lines(output))
    lines += [f"{say.count(hidden, 'more kernel')} of them not shown"] if hidden > 0 else []
    heads = ("Kernel", ">Registers", ">Spilled", ">Shared memory", ">Blocks a multiprocessor")
    title = f"What the kernels would do on {output.device_name or output.device}"
    table = Table(heads, tuple(rows[:MOST_ROWS])) if rows else None
    return Section(title, tuple(lines), table, note=NOTE if table else "")


def _compiled_line(device: str, libraries: Sequence[CompiledLibrary]) -> str:
    """A sentence on the compiler's report: kernels, most registers, spills."""
    kernels = [kernel for library in libraries for kernel in library.kernels]
    if not kernels:
        return f"nothing was compiled for {device}: registers and spills are not known"
    entries = [kernel for kernel in kernels if kernel.entry]
    count = say.count(len(entries), "kernel")
    most_registers = max((kernel.registers or 0 for kernel in entries), default=0)
    spilling = sum(kernel.spill_bytes > 0 for kernel in kernels)  # Also functions that they call.
    spills = f"spills in {say.count(spilling, 'function')}" if spilling else "none spills"
    return f"compiled for {device}: {count}, at most {most_registers} registers, {spills}"


def summary_lines(output: ResourcesOutput) -> tuple[str, ...]:
    """A sentence on the compiler's report, then one for each variant on how it fills the GPU."""
    lines = [_compiled_line(output.device, output.libraries)]
    for name in dict.fromkeys(occupancy.variant for occupancy in output.fillings):
        occupancies = [occupancy for occupancy in output.fillings if occupancy.variant == name]
        full = sum(occupancy.share >= 1 for occupancy in occupancies)
        waves = [occupancy.waves for occupancy in occupancies]
        waves_text = _join_ends(say.significant(min(waves), 2), say.significant(max(waves), 2))
        filled = f"{full} of {say.count(len(occupancies), 'workload')}"
        lines.append(f"{name}: {waves_text} waves, filled on {filled}")
    return tuple(lines)


def kernel_rows(output: ResourcesOutput) -> list[tuple[str, str, str, str, str]]:
    """Rows (name, registers, spilled bytes, shared memory, resident blocks) of kernels with
    problems, then of others in timed calls; without a report last. One row for all libraries."""
    unmatched = list(output.placements)
    launches_by_kernel: dict[tuple[str, KernelResources | None], list[Placement]] = {}
    for library in output.libraries:
        for kernel in library.kernels:
            of_kernel = [launch for launch in unmatched if launch.symbol == kernel.symbol]
            launches = [launch for launch in of_kernel if launch.variant in library.variants]
            unmatched = [launch for launch in unmatched if launch not in launches]
            launches_by_kernel.setdefault((kernel.short_name, kernel), []).extend(launches)
    for launch in unmatched:
        launches_by_kernel.setdefault((launch.kernel, None), []).append(launch)
    problem_rows, timed_rows = [], []
    for (name, report), launches in launches_by_kernel.items():
        shared = [launch.shared_bytes for launch in launches]
        shared = shared or [report.shared_bytes if report else 0]
        shared_kib = _join_ends(f"{min(shared) / 1024:.3g}", f"{max(shared) / 1024:.3g}")
        residents = [launch.resident for launch in launches]
        row = (
            name,
            "-" if report is None or report.registers is None else str(report.registers),
            "-" if report is None else f"{report.spill_bytes} B",
            f"{shared_kib} KiB",
            _join_ends(str(min(residents)), str(max(residents))) if residents else "-",
        )
        if (report and report.spill_bytes) or 0 in residents:
            problem_rows.append(row)
        elif any(launch.timed for launch in launches):
            timed_rows.append(row)
    return [*problem_rows, *timed_rows]


def _join_ends(low: str, high: str) -> str:
    """A range as text: `2 to 4`, or `3` if both ends are equal."""
    return low if low == high else f"{low} to {high}"
