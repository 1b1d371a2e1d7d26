"""What would a GPU do that is not at hand? Compiled kernels and launches against its limits, and their budgets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import StringConstraints

from loop.model.profile import Occupancy
from loop.model.resources import KernelResources, Placement
from loop.model.target import CAbiVariant
from loop.profile import launch_limits
from loop.profile import taking as judge
from loop.profile.inspection import (
    KernelFindings,
    ask_host_code,
    compiled,
    cuda_variants,
    read_compilers,
    timed_workloads,
)
from loop.profile.launch_limits import Placed, placements
from loop.profile.launch_limits import fillings as fill
from loop.profile.model import ResourcesOutput
from loop.profile.parallelism import gpu_at_hand
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
    spilled, broken = _judge(chosen, findings, shapes)
    impossible = tuple(dict.fromkeys(_not_launched(shapes, fillings, findings)))
    tolerable = [*(() if tell else spilled), *broken]
    problems = [*findings.problems, *tolerable, *impossible]
    hints = [*findings.hints, *([ALLOW] if tolerable else [FEWER] if impossible else [])]
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
        spilled=spilled,
        broken=broken,
        impossible=impossible,
    )


def _judge(
    chosen: Mapping[str, CAbiVariant], findings: KernelFindings, shapes: Sequence[Placement]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Spills that no budget allows, and budgets that are exceeded."""
    spilled, broken = list[str](), list[str]()
    for library in findings.libraries:
        budgets = [budget for name in library.variants for budget in chosen[name].budgets]
        for kernel, allowed in judge.spilling(library, budgets):
            budget = f", budget {allowed}" if allowed else ""
            spilled.append(f"{kernel.short} spills {kernel.spill_bytes} bytes{budget}")
        broken += judge.broken(library, budgets, shapes)
        idle = list(judge.unchecked(library, budgets, shapes))
        if idle:
            findings.missing.append(
                f"budget of {_few(idle)}: no workload launches it, so its blocks are not known"
            )
    others = list(dict.fromkeys(findings.unreported()))
    if others:
        findings.missing.append(f"registers of {_few(others)}: launched, and not in the compiler's report")
    return tuple(spilled), tuple(broken)


def _few(names: Sequence[str]) -> str:
    """`a`, or `a and 3 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _not_launched(
    shapes: Sequence[Placement], fillings: Sequence[Occupancy], findings: KernelFindings
) -> Iterator[str]:
    """Launches that the GPU refuses: those that host code makes, with what a block asks for, and declared ones."""
    for placement in shapes:
        if placement.resident == 0:
            on = findings.device.name if findings.device else findings.architecture
            needs = f"{placement.threads} threads, {placement.shared_bytes} bytes of shared memory"
            if placement.registers is not None:
                needs = needs.replace("threads, ", f"threads, {placement.registers} registers each, ")
            too_much = placement.limited_by in ("threads", "registers", "shared memory")
            what = f"{placement.kernel} cannot be launched on {on} for {placement.workload}"
            yield f"{what}: {placement.limited_by}{f' ({needs})' if too_much else ''}"
    for filling in fillings:
        if filling.resident == 0 and not filling.kernel:
            what = f"{filling.variant} cannot be launched on {filling.on} for {filling.workload}"
            yield f"{what}: {filling.limited_by}"


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
    parts = (
        [_compiled(kernels, findings, spilled)]
        if kernels
        else [f"nothing was compiled for {findings.architecture}"]
    )
    if shapes and findings.device:
        least, most = (
            min(placement.resident for placement in shapes),
            max(placement.resident for placement in shapes),
        )
        known = "" if kernels else " by threads and shared memory alone"
        parts.append(f"{least} to {most} blocks a multiprocessor of {findings.device.name}{known}")
    return "; ".join(parts)


def _compiled(kernels: Sequence[KernelResources], findings: KernelFindings, spilled: Sequence[str]) -> str:
    most = max(kernel.registers or 0 for kernel in kernels)
    spills = max(kernel.spill_bytes for kernel in kernels)
    allowed = f"spills of up to {spills} bytes, as budgeted" if spills else "no spill"
    text = f"{len(spilled)} of them spill, up to {spills} bytes" if spilled else allowed
    return f"{len(kernels)} kernels for {findings.architecture}: {text}, at most {most} registers"
