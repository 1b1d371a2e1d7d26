"""Resources and occupancy of kernels on a GPU that need not be at hand, against budgets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import StringConstraints

from loop.model.profile import Occupancy
from loop.model.resources import CompiledLibrary, KernelResources, Placement
from loop.model.target import CAbiVariant, ResourceBudget
from loop.profile.inspection import (
    KernelFindings,
    compiled_variants,
    cuda_variants,
    list_launches,
    read_compilers,
    timed_workloads,
)
from loop.profile.launch_limits import cannot_launch, declared_occupancy, gpu_at_hand, largest_occupancies
from loop.profile.model import ResourcesOutput
from loop.report import format as say
from loop.report.markdown import Table
from loop.report.sections import Section
from loop.steps.context import Context, Result, RunningAction
from loop.steps.reused_results import ResultLifetime, dependency_hash, reuse_result

FEWER = "take a smaller tile, more warps or fewer registers"
ALLOW = f"{FEWER}; or allow it under `budgets` in target.yaml"
NO_LAUNCH = "declare `launch`, or how it is built for the emulator (`emulation`), in target.yaml"
MOST_ROWS = 12
"""Most kernels in the table; kernels with problems come first."""
NAMESPACE = re.compile(r"\w+::")
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
    architecture, variants = arguments.device or context.bench.architecture, cuda_variants(context)
    findings = KernelFindings(architecture, context.bench.gpu_of_architecture(architecture))
    if findings.device is None and variants:
        findings.missing.append(f"occupancy on {architecture}: the manifest has no such device under `devices`")
    builds = yield from compiled_variants(context, variants, findings)
    inputs = (architecture, str(arguments.built), arguments.spills)
    build_ids = [f"{build.variant} {build.build_id}" for build in builds]
    ground = dependency_hash(context, "kernel.resources", *inputs, *build_ids)
    if not findings.problems:
        earlier = reuse_result(context, ResourcesOutput, ground, arguments)
        if earlier is not None:
            return Result(earlier)
    read_compilers(variants, builds, findings)
    yield from list_launches(context, variants, findings, built=arguments.built)
    output = _judge(context, variants, findings, tell=arguments.spills == "tell")
    return Result(output.model_copy(update={"rests_on": ground}))


def _judge(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, *, tell: bool
) -> ResourcesOutput:
    """Check reports and launches against GPU limits and budgets. `tell`: spills do not fail."""
    device, architecture = findings.device, findings.architecture
    placed = tuple(findings.placed(device)) if device else ()
    timed = {workload.name for variant in chosen.values() for workload in timed_workloads(context, variant)}
    shapes, filled = merge_launches(placed, timed), tuple(_fillings(context, chosen, findings, placed))
    spilled, broken, unchecked = list[str](), list[str](), list[str]()
    for library in findings.libraries:
        budgets = [budget for name in library.variants for budget in chosen[name].budgets]
        lines = check_budgets(library, budgets, shapes)
        for every, own in zip((spilled, broken, unchecked), lines, strict=True):
            every += own
    if unchecked:
        more = f" and {len(unchecked) - 1} more" if len(unchecked) > 1 else ""
        unknown = "no workload launches it, so its blocks are not known"
        findings.missing.append(f"budget of {unchecked[0]}{more}: {unknown}")
    findings.note_unreported(shapes)
    on = device.name if device else architecture
    refused = [_refusal_text(shape, on) for shape in shapes if shape.resident == 0]
    # Fillings with a kernel come from reported launches, which `shapes` has; the others from the manifest.
    refused += [cannot_launch(each) for each in filled if each.resident == 0 and not each.kernel]
    impossible = tuple(dict.fromkeys(refused))
    tolerable = [*(() if tell else spilled), *broken]
    problems = [*findings.problems, *tolerable, *impossible]
    hints = [*findings.problems.values(), *([ALLOW] if tolerable else [FEWER] if impossible else [])]
    if problems:
        message = f"{problems[0]}{f'; and {len(problems) - 1} more' if len(problems) > 1 else ''}"
    elif not chosen:
        message = "none of the variants is compiled by nvcc"
    else:
        blocks = [shape.resident for shape in shapes]
        held = f"; {min(blocks)} to {max(blocks)} blocks a multiprocessor of {on}" if blocks else ""
        message = f"{_compiled_line(architecture, findings.libraries)}{held}"
    return ResourcesOutput(
        ok=not problems,
        message=message,
        hint=hints[0] if hints else None,
        not_exercised=tuple(dict.fromkeys(findings.missing)),
        learned=tuple(f"On {architecture}, {text}." for text in (*spilled, *impossible)),
        device=architecture,
        device_name=device.name if device else "",
        libraries=tuple(findings.libraries),
        placements=shapes,
        fillings=filled,
        spilled=tuple(spilled),
        broken=tuple(broken),
        impossible=impossible,
    )


def merge_launches(placed: Sequence[Placement], timed: set[str]) -> tuple[Placement, ...]:
    """Distinct launches, each once. `timed`: names of the workloads that are timed."""
    shapes: dict[str, list[Placement]] = {}
    for placement in placed:
        shapes.setdefault(placement.model_dump_json(exclude={"workload"}), []).append(placement)
    merged = []
    for same in shapes.values():
        workloads = {placement.workload for placement in same}
        merged.append(same[0].model_copy(update={"workloads": len(workloads), "timed": bool(workloads & timed)}))
    return tuple(merged)


def check_budgets(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> tuple[list[str], list[str], list[str]]:
    """Check one library. Returns three lists of lines: excessive spills, other exceeded budgets, and kernels whose
    budget needs a launch that no workload makes. Without a budget a kernel must not spill. A budget that matches
    no kernel counts as exceeded: otherwise a renamed kernel would silently lose its budget."""
    spilled, broken, unchecked = list[str](), list[str](), list[str]()
    for kernel in library.kernels:
        own = next((budget for budget in budgets if budget.kernel in kernel.name), None)
        allowed = own.spill_bytes if own else 0
        if kernel.spill_bytes > allowed:
            most = f", budget {allowed}" if allowed else ""
            spilled.append(f"{kernel.short_name} spills {kernel.spill_bytes} bytes{most}")
        if own is None:
            continue
        placed = [placement for placement in placements if placement.symbol == kernel.symbol]
        if not placed and kernel.entry and (own.blocks_per_sm or own.shared_bytes is not None):
            unchecked.append(kernel.short_name)
        shared = max((placement.shared_bytes for placement in placed), default=kernel.shared_bytes)
        limits = {
            "registers": (kernel.registers, own.registers),
            "bytes of stack": (kernel.stack_bytes, own.stack_bytes),
            "bytes of shared memory": (shared, own.shared_bytes),
        }
        for what, (takes, limit) in limits.items():
            if limit is not None and takes is not None and takes > limit:
                broken.append(f"{kernel.short_name}: {takes} {what}, budget {limit}")
        fewest = min((placement.resident for placement in placed), default=None)
        if own.blocks_per_sm is not None and fewest is not None and fewest < own.blocks_per_sm:
            blocks = f"{fewest} blocks a multiprocessor, budget {own.blocks_per_sm} at least"
            broken.append(f"{kernel.short_name}: {blocks}")
    for budget in budgets:
        if not any(budget.kernel in kernel.name for kernel in library.kernels):
            names = ", ".join(library.variants)
            broken.append(f"the budget for {budget.kernel!r} fits no kernel of {names}")
    return spilled, broken, unchecked


def _refusal_text(shape: Placement, on: str) -> str:
    """Message for a launch that the GPU refuses, with the resources it asks for."""
    needs = ""
    if shape.limited_by in ("threads", "registers", "shared memory"):
        registers = "" if shape.registers is None else f" {shape.registers} registers each,"
        needs = f" ({shape.threads} threads,{registers} {shape.shared_bytes} bytes of shared memory)"
    return f"{shape.kernel} cannot be launched on {on} for {shape.workload}: {shape.limited_by}{needs}"


def _fillings(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, placed: Sequence[Placement]
) -> Iterator[Occupancy]:
    """How timed calls fill the GPU, by reported launches, else by the manifest's."""
    device = findings.device
    if device is None:
        return
    at_hand = gpu_at_hand(context) == device
    for name, variant in chosen.items():
        timed = timed_workloads(context, variant)
        names = {workload.name for workload in timed}
        if name in findings.launches:
            own = [launch for launch in placed if launch.variant == name and launch.workload in names]
            yield from largest_occupancies(own, device, at_hand=at_hand)
        elif variant.launch is not None:
            only = "static arithmetic only, on the launch that the manifest declares"
            findings.missing.append(f"launches of {name}: {only}")
            every = [
                declared_occupancy(name, variant.launch, workload, device, at_hand=at_hand) for workload in timed
            ]
            yield from (filling for filling in every if filling is not None)
        elif variant.emulation is None:  # Else the dry run in the emulator noted why it told none.
            findings.missing.append(f"launches of {name}: nothing tells them; {NO_LAUNCH}")


def section(output: ResourcesOutput) -> Section | None:
    """Section of the report on one GPU: the kernels of timed calls, and those with problems."""
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
    most = max((kernel.registers or 0 for kernel in entries), default=0)
    spilling = sum(kernel.spill_bytes > 0 for kernel in kernels)
    spills = f"{spilling} of them {'spills' if spilling == 1 else 'spill'}" if spilling else "none spills"
    return f"compiled for {device}: {say.count(len(entries), 'kernel')}, at most {most} registers, {spills}"


def summary_lines(output: ResourcesOutput) -> tuple[str, ...]:
    """A sentence on the compiler's report, then one for each variant on how it fills the GPU."""
    lines = [_compiled_line(output.device, output.libraries)]
    for name in dict.fromkeys(filling.variant for filling in output.fillings):
        mine = [filling for filling in output.fillings if filling.variant == name]
        full = sum(filling.share >= 1 for filling in mine)
        waves = _range([say.significant(pick(filling.waves for filling in mine), 2) for pick in (min, max)])
        source = "" if mine[0].kernel else ", by the launch that the manifest declares"
        lines.append(f"{name}: {waves} waves, filled on {full} of {say.count(len(mine), 'workload')}{source}")
    return tuple(lines)


def kernel_rows(output: ResourcesOutput) -> list[tuple[str, str, str, str, str]]:
    """Rows (name, registers, spilled bytes, shared memory, resident blocks) of kernels. Kernels with problems come
    first, then those of timed calls. A kernel in several libraries has one row; launches without a compiler's
    report come last. Without problems or timed calls a kernel has no row."""
    rest = list(output.placements)
    groups: dict[tuple[str, KernelResources | None], list[Placement]] = {}
    for library in output.libraries:
        for kernel in library.kernels:
            own = [p for p in rest if p.symbol == kernel.symbol and p.variant in library.variants]
            rest = [placement for placement in rest if placement not in own]
            groups.setdefault((kernel.short_name, kernel), []).extend(own)
    for placement in rest:
        groups.setdefault((placement.kernel, None), []).append(placement)
    begins = {match[0] if (match := NAMESPACE.match(name)) else "" for name, _ in groups}
    common = begins.pop() if len(begins) == 1 else ""
    troubled, plain = [], []
    for (name, report), placed in groups.items():
        shared = [launch.shared_bytes for launch in placed] or [report.shared_bytes if report else 0]
        residents = [launch.resident for launch in placed]
        row = (
            re.sub(rf"\b{common}", "", name),
            "-" if report is None or report.registers is None else str(report.registers),
            "-" if report is None else f"{report.spill_bytes} B",
            f"{_range([f'{size / 1024:.3g}' for size in (min(shared), max(shared))])} KiB",
            _range([str(min(residents)), str(max(residents))]) if residents else "-",
        )
        if (report and report.spill_bytes) or 0 in residents:
            troubled.append(row)
        elif any(launch.timed for launch in placed):
            plain.append(row)
    return [*troubled, *plain]


def _range(ends: Sequence[str]) -> str:
    """Two ends as `3`, or `2 to 4`."""
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
