"""Resources and occupancy of kernels on a GPU that need not be at hand, against budgets."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import StringConstraints

from loop.model.profile import Occupancy
from loop.model.resources import CompiledLibrary, KernelResources, Placement
from loop.model.target import CAbiVariant, ResourceBudget
from loop.profile import inspection
from loop.profile.inspection import KernelFindings
from loop.profile.launch_limits import gpu_at_hand, largest_occupancies
from loop.profile.model import ResourcesOutput
from loop.report import format as say
from loop.report.markdown import Table
from loop.report.sections import Section
from loop.steps.context import Context, Result, RunningAction
from loop.steps.reused_results import ResultLifetime, dependency_hash, reuse_result

FEWER_RESOURCES_HINT = "take a smaller tile, more warps or fewer registers"
BUDGET_HINT = f"{FEWER_RESOURCES_HINT}; or allow it under `budgets` in target.yaml"
NO_LAUNCH = "say in target.yaml how it is built for the emulator (`emulation`)"
MOST_ROWS = 12
"""Most kernels in the table; kernels with problems come first."""
NOTE = "Shared memory and blocks are those of the launches that the host code makes."


class ResourceTerms(ResultLifetime):
    """Parameters of `kernel.resources`."""

    device: Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}$")] | None = None
    """Architecture to compile for: a key of the manifest's `devices`, which need not be at hand.
    Default: the GPU at hand, else the first of the manifest."""
    built: bool = False
    """True: ask only host code that is already built for the emulator for its launches."""
    spills: Literal["fail", "tell"] = "fail"
    """`fail`: a kernel that spills without a budget fails the step; `tell`: it is only reported."""


def resources(context: Context, arguments: ResourceTerms) -> RunningAction[ResourcesOutput]:
    """Compile for a GPU, read the compiler's report and the launches, and check the budgets."""
    architecture, variants = arguments.device or context.bench.architecture, inspection.cuda_variants(context)
    if not variants:
        output = ResourcesOutput(ok=True, message="no variant is compiled by nvcc", device=architecture)
        return Result(output, idle=True)
    findings = KernelFindings(architecture, context.bench.gpu_of_architecture(architecture))
    if findings.device is None:
        findings.missing.append(f"occupancy on {architecture}: the manifest has no such device under `devices`")
    builds = yield from inspection.build_for_gpu(context, variants, findings)
    inputs = (architecture, str(arguments.built), arguments.spills)
    build_ids = [f"{build.variant} {build.build_id}" for build in builds]
    digest = dependency_hash(context, "kernel.resources", *inputs, *build_ids)
    if not findings.problems:
        earlier = reuse_result(context, ResourcesOutput, digest, arguments)
        if earlier is not None:
            return Result(earlier)
    inspection.read_reports(variants, builds, findings)
    yield from inspection.find_launches(context, variants, findings, only_built=arguments.built)
    output = _check_findings(context, variants, findings, may_spill=arguments.spills == "tell")
    return Result(output.model_copy(update={"rests_on": digest}))


def _check_findings(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, *, may_spill: bool
) -> ResourcesOutput:
    """Check reports and launches against GPU limits and budgets. `may_spill`: spills do not fail."""
    device, architecture = findings.device, findings.architecture
    placements = tuple(findings.list_placements(device)) if device else ()
    timed: set[str] = set()
    for variant in chosen.values():
        timed |= {workload.name for workload in inspection.timed_workloads(context, variant)}
    launches = merge_launches(placements, timed)
    occupancies = _timed_occupancies(context, chosen, findings, placements)
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
    findings.note_unreported_kernels(launches)
    gpu_name = device.name if device else architecture
    refused = [_refusal_text(launch, gpu_name) for launch in launches if launch.resident == 0]
    impossible = tuple(dict.fromkeys(refused))
    over_budget = broken if may_spill else [*spilled, *broken]
    problems = [*findings.problems, *over_budget, *impossible]
    hints = [*findings.problems.values(), *([BUDGET_HINT] if over_budget else [FEWER_RESOURCES_HINT])]
    if problems:
        message = f"{problems[0]}{f'; and {len(problems) - 1} more' if len(problems) > 1 else ''}"
    else:
        message = _compiled_line(architecture, findings.libraries)
        residents = [launch.resident for launch in launches]
        if residents:
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


def merge_launches(placed: Sequence[Placement], timed: set[str]) -> tuple[Placement, ...]:
    """Each distinct launch once, and whether a workload whose name is in `timed` has it."""
    merged: dict[str, Placement] = {}
    for placement in placed:
        key = placement.model_dump_json(exclude={"workload"})
        first = merged.setdefault(key, placement)
        if placement.workload in timed:
            merged[key] = first.model_copy(update={"timed": True})
    return tuple(merged.values())


def check_budgets(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> tuple[list[str], list[str], list[str]]:
    """Check one library: spills beyond the budget, other exceeded budgets, and kernels whose budget needs a
    launch that no workload makes. Without a budget a kernel must not spill. A budget that matches no kernel
    counts as exceeded: otherwise a renamed kernel would silently lose its budget."""
    spilled, broken, unchecked = list[str](), list[str](), list[str]()
    for kernel in library.kernels:
        budget = next((budget for budget in budgets if budget.kernel in kernel.name), None)
        allowed_bytes = budget.spill_bytes if budget else 0
        if kernel.spill_bytes > allowed_bytes:
            limit_text = f", budget {allowed_bytes}" if allowed_bytes else ""
            spilled.append(f"{kernel.short_name} spills {kernel.spill_bytes} bytes{limit_text}")
        if budget is None:
            continue
        launches = [placement for placement in placements if placement.symbol == kernel.symbol]
        needs_launch = budget.blocks_per_sm or budget.shared_bytes is not None
        if not launches and kernel.entry and needs_launch:
            unchecked.append(kernel.short_name)
        shared = max((launch.shared_bytes for launch in launches), default=kernel.shared_bytes)
        for unit, amount, limit in (
            ("registers", kernel.registers, budget.registers),
            ("bytes of stack", kernel.stack_bytes, budget.stack_bytes),
            ("bytes of shared memory", shared, budget.shared_bytes),
        ):
            if limit is not None and amount is not None and amount > limit:
                broken.append(f"{kernel.short_name}: {amount} {unit}, budget {limit}")
        fewest, least = min((launch.resident for launch in launches), default=None), budget.blocks_per_sm
        if least is not None and fewest is not None and fewest < least:
            broken.append(f"{kernel.short_name}: {fewest} blocks a multiprocessor, budget {least} at least")
    for budget in budgets:
        if not any(budget.kernel in kernel.name for kernel in library.kernels):
            broken.append(f"the budget for {budget.kernel!r} fits no kernel of {', '.join(library.variants)}")
    return spilled, broken, unchecked


def _refusal_text(launch: Placement, gpu_name: str) -> str:
    """Message for a launch that the GPU refuses, with the resources it asks for."""
    needs = ""
    if launch.limited_by in ("threads", "registers", "shared memory"):
        registers = "" if launch.registers is None else f" {launch.registers} registers each,"
        needs = f" ({launch.threads} threads,{registers} {launch.shared_bytes} bytes of shared memory)"
    return f"{launch.kernel} cannot be launched on {gpu_name} for {launch.workload}: {launch.limited_by}{needs}"


def _timed_occupancies(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, placements: Sequence[Placement]
) -> list[Occupancy]:
    """How each timed call fills the GPU, by the launches that host code reported; notes in
    `findings` variants without any. Nothing for a GPU without facts."""
    device, occupancies = findings.device, list[Occupancy]()
    if device is None:
        return occupancies
    at_hand = gpu_at_hand(context) == device
    for name, variant in chosen.items():
        if name in findings.launches:
            names = {workload.name for workload in inspection.timed_workloads(context, variant)}
            reported = [launch for launch in placements if launch.variant == name and launch.workload in names]
            occupancies += largest_occupancies(reported, device, at_hand=at_hand)
        elif variant.emulation is None:  # Else the dry run in the emulator noted why it told none.
            findings.missing.append(f"launches of {name}: nothing tells them; {NO_LAUNCH}")
    return occupancies


def section(output: ResourcesOutput) -> Section | None:
    """Section of the report on one GPU: kernels of timed calls, and those with problems; None without any."""
    if not (output.libraries or output.placements or output.fillings):
        return None
    rows = kernel_rows(output)
    hidden = len(rows) - MOST_ROWS
    lines = list(summary_lines(output))
    lines += [f"{say.count(hidden, 'more kernel')} of them not shown"] if hidden > 0 else []
    heads = ("Kernel", ">Registers", ">Spilled", ">Shared memory", ">Blocks a multiprocessor")
    title = f"What the kernels would do on {output.device_name or output.device}"
    table = Table(heads, tuple(rows[:MOST_ROWS])) if rows else None
    return Section(title, tuple(lines), table, note=NOTE if table else "", modelled=True)


def _compiled_line(device: str, libraries: Sequence[CompiledLibrary]) -> str:
    """A sentence on the compiler's report: kernels, most registers, spills."""
    kernels = [kernel for library in libraries for kernel in library.kernels]
    if not kernels:
        return f"nothing was compiled for {device}: registers and spills are not known"
    entries = [kernel for kernel in kernels if kernel.entry]
    most_registers = max((kernel.registers or 0 for kernel in entries), default=0)
    spilling = sum(kernel.spill_bytes > 0 for kernel in kernels)
    spills = f"{spilling} of them {'spills' if spilling == 1 else 'spill'}" if spilling else "none spills"
    return (
        f"compiled for {device}: {say.count(len(entries), 'kernel')}, at most {most_registers} registers, {spills}"
    )


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
    """Rows (name, registers, spilled bytes, shared memory, resident blocks) of kernels with problems, then of
    others in timed calls. A kernel in several libraries has one row; launches without a report come last."""
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
        shared = [launch.shared_bytes for launch in launches] or [report.shared_bytes if report else 0]
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
