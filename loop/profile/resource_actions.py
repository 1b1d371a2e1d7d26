"""What would a GPU do that is not at hand? Compiled kernels and launches against its limits, and their budgets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import StringConstraints

from loop.model.profile import Occupancy
from loop.model.resources import KernelResources, Placement
from loop.model.target import CAbiVariant
from loop.profile import inspection as judge
from loop.profile import launch_limits
from loop.profile.inspection import ask_host_code, compiled, cuda_variants, read_compilers, timed_workloads
from loop.profile.launch_limits import KernelFindings, Placed, gpu_at_hand, placements
from loop.profile.launch_limits import fillings as fill
from loop.profile.model import ResourcesOutput
from loop.report import format as say
from loop.report.markdown import Column, Table
from loop.report.sections import Section
from loop.steps.context import Context, Result, Working
from loop.steps.taken_over import Lasting, rests_on, take_over

FEWER = "take a smaller tile, more warps or fewer registers"
ALLOW = f"{FEWER}; or allow it under `budgets` in target.yaml"
NO_LAUNCH = "declare `launch`, or how it is built for the emulator (`emulation`), in target.yaml"


class ResourceTerms(Lasting):
    """Which GPU is reckoned with."""

    device: Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}$")] | None = None
    """What kernels are compiled for: a key of the manifest's `devices`, which need not be at hand. Without one the
    GPU at hand, else the first of the manifest's."""
    built: bool = False
    """Whether only host code that is built for the emulator already is asked for its launches."""
    spills: Literal["fail", "tell"] = "fail"
    """What becomes of the step where a kernel spills and no budget allows it."""


def resources(context: Context, arguments: ResourceTerms) -> Working[ResourcesOutput]:
    """Compile for a GPU, read the compiler's report, ask the host code what it launches, and judge."""
    architecture, chosen = arguments.device or context.bench.architecture, cuda_variants(context)
    findings = KernelFindings(architecture, context.bench.gpu_for(architecture))
    if findings.device is None and chosen:
        findings.missing.append(f"occupancy on {architecture}: the manifest has no such device under `devices`")
    built = yield from compiled(context, chosen, findings)
    builds = [f"{build.variant} {build.build_id}" for build in built]
    ground = rests_on(context, "kernel.resources", architecture, str(arguments.built), arguments.spills, *builds)
    earlier = None if findings.problems else take_over(context, ResourcesOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    yield from read_compilers(chosen, built, findings)
    yield from ask_host_code(context, chosen, findings, built=arguments.built)
    output = _output(context, chosen, findings, tell=arguments.spills == "tell")
    return Result(output.model_copy(update={"rests_on": ground}))


def _output(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, *, tell: bool
) -> ResourcesOutput:
    placed = tuple(findings.placed(findings.device)) if findings.device else ()
    timed = {workload.name for variant in chosen.values() for workload in timed_workloads(context, variant)}
    shapes, fillings = placements(placed, timed), tuple(_fillings(context, chosen, findings, placed))
    spilled, broken, impossible = list[str](), list[str](), list[str]()
    for library in findings.libraries:
        budgets = [budget for name in library.variants for budget in chosen[name].budgets]
        for kernel, allowed in judge.spilling(library, budgets):
            budget = f", budget {allowed}" if allowed else ""
            spilled.append(f"{kernel.short} spills {kernel.spill_bytes} bytes{budget}")
        broken += judge.broken(library, budgets, shapes)
        if idle := list(judge.unchecked(library, budgets, shapes)):
            what = f"budget of {_few(idle)}: no workload launches it"
            findings.missing.append(f"{what}, so its blocks are not known")
    if others := list(dict.fromkeys(findings.unreported())):
        findings.missing.append(f"registers of {_few(others)}: launched, and not in the compiler's report")
    on = findings.device.name if findings.device else findings.architecture
    for shape in (shape for shape in shapes if shape.resident == 0):
        registers = "" if shape.registers is None else f" {shape.registers} registers each,"
        needs = f" ({shape.threads} threads,{registers} {shape.shared_bytes} bytes of shared memory)"
        too_much = shape.limited_by in ("threads", "registers", "shared memory")
        what = f"{shape.kernel} cannot be launched on {on} for {shape.workload}"
        impossible.append(f"{what}: {shape.limited_by}{needs if too_much else ''}")
    for filling in (filling for filling in fillings if filling.resident == 0 and not filling.kernel):
        what = f"{filling.variant} cannot be launched on {filling.on} for {filling.workload}"
        impossible.append(f"{what}: {filling.limited_by}")
    impossible = list(dict.fromkeys(impossible))
    tolerable = [*(() if tell else spilled), *broken]
    problems = [*findings.problems, *tolerable, *impossible]
    hints = [*findings.problems.values(), *([ALLOW] if tolerable else [FEWER] if impossible else [])]
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return ResourcesOutput(
        ok=not problems,
        message=f"{problems[0]}{more}" if problems else _describe(chosen, findings, shapes, spilled),
        hint=hints[0] if hints else None,
        not_exercised=tuple(dict.fromkeys(findings.missing)),
        learned=tuple(f"On {findings.architecture}, {text}." for text in (*spilled, *impossible)),
        device=findings.architecture,
        device_name=findings.device.name if findings.device else "",
        libraries=tuple(findings.libraries),
        placements=shapes,
        fillings=fillings,
        spilled=tuple(spilled),
        broken=tuple(broken),
        impossible=tuple(impossible),
    )


def _few(names: Sequence[str]) -> str:
    """`a`, or `a and 3 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _fillings(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, placed: Sequence[Placed]
) -> Iterator[Occupancy]:
    """How timed calls fill the GPU: by the host code's launches, else by the declared launch."""
    device = findings.device
    if device is None:
        return
    at_hand = gpu_at_hand(context) == device
    for name, variant in chosen.items():
        timed = timed_workloads(context, variant)
        names = {workload.name for workload in timed}
        if name in findings.launches:
            yield from fill(
                [launch for launch in placed if launch.variant == name and launch.workload.name in names],
                device,
                at_hand=at_hand,
            )
        elif variant.launch is not None:
            findings.missing.append(
                f"launches of {name}: static arithmetic only, on the launch that the manifest declares"
            )
            declared = (
                launch_limits.on_gpu(name, variant.launch, workload, device, at_hand=at_hand) for workload in timed
            )
            yield from (filling for filling in declared if filling is not None)
        elif variant.emulation is None:
            findings.missing.append(f"launches of {name}: nothing tells them; {NO_LAUNCH}")


def _describe(
    chosen: Mapping[str, CAbiVariant],
    findings: KernelFindings,
    shapes: Sequence[Placement],
    spilled: Sequence[str],
) -> str:
    if not chosen:
        return "none of the variants is compiled by nvcc"
    kernels = [kernel for library in findings.libraries for kernel in library.kernels if kernel.entry]
    text = f"nothing was compiled for {findings.architecture}"
    if kernels:
        most, spills = max(kernel.registers or 0 for kernel in kernels), max(k.spill_bytes for k in kernels)
        spilling = f"spills of up to {spills} bytes, as budgeted" if spills else "no spill"
        if spilled:
            spilling = f"{len(spilled)} of them spill, up to {spills} bytes"
        text = f"{len(kernels)} kernels for {findings.architecture}: {spilling}, at most {most} registers"
    if shapes and findings.device:
        residents = [shape.resident for shape in shapes]
        known = "" if kernels else " by threads and shared memory alone"
        blocks = f"{min(residents)} to {max(residents)} blocks a multiprocessor"
        text += f"; {blocks} of {findings.device.name}{known}"
    return text


MOST_ROWS = 12
"""Kernels that are shown; those that are in trouble come first."""
NAMESPACE = re.compile(r"\w+::")
NOTE = "Shared memory and blocks are those of the launches that the host code makes."


def section(output: ResourcesOutput) -> Section | None:
    """What one GPU would do: kernels that the timed calls launch, and those that spill or do not fit."""
    if not (output.libraries or output.placements or output.fillings):
        return None
    rows = kernel_rows(output)
    hidden = len(rows) - MOST_ROWS
    lines = list(summary_lines(output))
    lines += [f"{say.count(hidden, 'more kernel')} of them not shown"] if hidden > 0 else []
    heads = (
        Column("Kernel"),
        Column("Registers", right=True),
        Column("Spilled", right=True),
        Column("Shared memory", right=True),
        Column("Blocks a multiprocessor", right=True),
    )
    shown = tuple((row.name, *row.figures) for row in rows[:MOST_ROWS])
    title = f"What the kernels would do on {output.device_name or output.device}"
    table = Table(heads, shown) if shown else None
    return Section(title, tuple(lines), table, note=NOTE if table else "", modelled=True)


def summary_lines(output: ResourcesOutput) -> tuple[str, ...]:
    """What the compiler's report comes to, and how the timed calls fill the GPU, a sentence each."""
    kernels = [kernel for library in output.libraries for kernel in library.kernels]
    lines = [f"nothing was compiled for {output.device}: registers and spills are not known"]
    if kernels:
        entries = [kernel for kernel in kernels if kernel.entry]
        most = max((kernel.registers or 0 for kernel in entries), default=0)
        spilling = sum(kernel.spill_bytes > 0 for kernel in kernels)
        spills = f"{spilling} of them {'spills' if spilling == 1 else 'spill'}" if spilling else "none spills"
        count = say.count(len(entries), "kernel")
        lines = [f"compiled for {output.device}: {count}, at most {most} registers, {spills}"]
    for name in dict.fromkeys(filling.variant for filling in output.fillings):
        mine = [filling for filling in output.fillings if filling.variant == name]
        full = sum(not filling.starved for filling in mine)
        waves = _range([say.significant(pick(filling.waves for filling in mine), 2) for pick in (min, max)])
        source = "" if mine[0].kernel else ", by the launch that the manifest declares"
        lines.append(f"{name}: {waves} waves, filled on {full} of {say.count(len(mine), 'workload')}{source}")
    return tuple(lines)


@dataclass(frozen=True)
class KernelRow:
    """One kernel, its figures as text."""

    name: str
    figures: tuple[str, str, str, str]
    """Registers, spilled bytes, shared memory, resident blocks."""
    trouble: bool


def kernel_rows(output: ResourcesOutput) -> tuple[KernelRow, ...]:
    """Kernels that spill or cannot be launched, then those that timed calls launch; the journal has all.

    A kernel comes once where several libraries hold it; launches without a compiler's report come last.
    """
    rest = list(output.placements)
    groups: dict[tuple[str, KernelResources | None], list[Placement]] = {}
    for library in output.libraries:
        for kernel in library.kernels:
            own = [p for p in rest if p.symbol == kernel.symbol and p.variant in library.variants]
            rest = [placement for placement in rest if placement not in own]
            groups.setdefault((kernel.short, kernel), []).extend(own)
    for placement in rest:
        groups.setdefault((placement.kernel, None), []).append(placement)
    begins = {match[0] if (match := NAMESPACE.match(name)) else "" for name, _ in groups}
    common = begins.pop() if len(begins) == 1 else ""
    rows = []
    for (name, report), placed in groups.items():
        shared = [launch.shared_bytes for launch in placed] or [report.shared_bytes if report else 0]
        residents = [launch.resident for launch in placed]
        figures = (
            "-" if report is None or report.registers is None else str(report.registers),
            "-" if report is None else f"{report.spill_bytes} B",
            f"{_range([f'{size / 1024:.3g}' for size in (min(shared), max(shared))])} KiB",
            _range([str(min(residents)), str(max(residents))]) if residents else "-",
        )
        trouble = bool((report and report.spill_bytes) or 0 in residents)
        if trouble or any(launch.timed for launch in placed):
            rows.append(KernelRow(re.sub(rf"\b{common}", "", name), figures, trouble))
    return tuple(sorted(rows, key=lambda row: not row.trouble))


def _range(ends: Sequence[str]) -> str:
    """`3`, or `2 to 4`."""
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
