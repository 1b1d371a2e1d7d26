"""What would a GPU do that is not at hand? Compiled kernels and launches against its limits, and their budgets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import StringConstraints

from loop.model.profile import Occupancy
from loop.model.resources import Bound, KernelResources, Placement, ResourcesTaken, Rise
from loop.model.target import CAbiVariant
from loop.profile import launch_limits
from loop.profile import taking as judge
from loop.profile.inspection import (
    Findings,
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
from loop.profile.taking import budgets_of, rises, taken
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
    """What becomes of the step where a kernel spills and no budget allows it. More than a session recorded before
    fails it either way."""


def resources(context: Context, arguments: ResourceTerms) -> Working[ResourcesOutput]:
    """Compile for a GPU, read the compiler's report, ask the host code what it launches, judge, and compare."""
    architecture, chosen = arguments.device or context.bench.architecture, cuda_variants(context)
    found = Findings(architecture, context.bench.gpu_for(architecture))
    if found.device is None and chosen:
        found.missing.append(f"occupancy on {architecture}: the manifest has no such device under `devices`")
    if found.device is not None and chosen and not found.device.flops_per_s:
        found.missing.append(f"the least time of a call: figures are from {found.device.source}")
    made = yield from compiled(context, chosen, found)
    before = [f"{name} {known.taken.model_dump_json()}" for name, known in sorted(context.past.resources.items())]
    builds = [f"{one.variant} {one.build_id}" for one in made]
    ground = rests_on(
        context, "kernel.resources", architecture, str(arguments.built), arguments.spills, *builds, *before
    )
    earlier = None if found.problems else take_over(context, ResourcesOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    yield from read_compilers(chosen, made, found)
    yield from ask_host_code(context, chosen, found, built=arguments.built)
    output = _output(context, chosen, found, tell=arguments.spills == "tell")
    return Result(output.model_copy(update={"rests_on": ground}))


def _output(
    context: Context, chosen: Mapping[str, CAbiVariant], found: Findings, *, tell: bool
) -> ResourcesOutput:
    placed = tuple(found.placed(found.device)) if found.device else ()
    timed = {one.name for variant in chosen.values() for one in timed_workloads(context, variant)}
    shapes, fillings = placements(placed, timed), tuple(_fillings(context, chosen, found, placed))
    spilled, broken = _judge(chosen, found, shapes)
    impossible = tuple(dict.fromkeys([*_not_launched(shapes, found), *_not_placed(fillings)]))
    taken, risen = _compared(context, found)
    rose = [
        f"{one.text}, since {context.past.resources[one.variant, found.architecture].session}" for one in risen
    ]
    tolerable = [*rose, *(() if tell else spilled), *broken]
    problems = [*found.problems, *tolerable, *impossible]
    hints = [*found.hints, *([ALLOW] if tolerable else [FEWER] if impossible else [])]
    return ResourcesOutput(
        ok=not problems,
        message=_cut(problems) if problems else _describe(chosen, found, shapes, spilled),
        hint=hints[0] if hints else None,
        not_exercised=tuple(dict.fromkeys(found.missing)),
        nothing_done=not (problems or found.libraries or fillings),
        learned=tuple(f"On {found.architecture}, {text}." for text in (*spilled, *impossible)),
        device=found.architecture,
        device_name=found.device.name if found.device else "",
        libraries=tuple(found.libraries),
        placements=shapes,
        fillings=fillings,
        bounds=tuple(_bounds(context, chosen, found)),
        spilled=spilled,
        broken=broken,
        impossible=impossible,
        taken=taken,
        risen=risen,
    )


def _compared(context: Context, found: Findings) -> tuple[tuple[ResourcesTaken, ...], tuple[Rise, ...]]:
    """What each variant takes, and what of it rose since a session last recorded it."""
    target, now, risen = context.bench.target, list[ResourcesTaken](), list[Rise]()
    for name in (name for library in found.libraries for name in library.variants):
        one = taken(name, found, found.compilers[name], found.device)
        before = context.past.resources.get((name, found.architecture))
        if one is not None:
            now.append(one)
            risen += rises(before.taken, one, budgets_of(target, name)) if before else ()
    return tuple(now), tuple(risen)


def _judge(
    chosen: Mapping[str, CAbiVariant], found: Findings, shapes: Sequence[Placement]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Spills that are not allowed, and budgets that are not kept."""
    spilled, broken = list[str](), list[str]()
    for library in found.libraries:
        budgets = [budget for name in library.variants for budget in chosen[name].budgets]
        spilled += [_spill(kernel, allowed) for kernel, allowed in judge.spilling(library, budgets)]
        broken += judge.broken(library, budgets, shapes)
        idle = list(judge.unchecked(library, budgets, shapes))
        if idle:
            found.missing.append(f"budget of {_few(idle)}: no workload launches it, so its blocks are not known")
    others = list(dict.fromkeys(found.unreported()))
    if others:
        found.missing.append(f"registers of {_few(others)}: launched, and not in the compiler's report")
    return tuple(spilled), tuple(broken)


def _spill(kernel: KernelResources, allowed: int) -> str:
    budget = f", budget {allowed}" if allowed else ""
    return f"{kernel.short} spills {kernel.spill_bytes} bytes{budget}"


def _few(names: Sequence[str]) -> str:
    """`a`, or `a and 3 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _not_launched(shapes: Sequence[Placement], found: Findings) -> Iterator[str]:
    for one in shapes:
        if one.resident == 0:
            on = found.device.name if found.device else found.architecture
            yield f"{one.kernel} cannot be launched on {on} for {one.workload}: {one.limited_by}{_asked(one)}"


def _asked(one: Placement) -> str:
    """What a block asks for, where one of these is too much."""
    registers = "" if one.registers is None else f"{one.registers} registers each, "
    asked = f" ({one.threads} threads, {registers}{one.shared_bytes} bytes of shared memory)"
    return asked if one.limited_by in ("threads", "registers", "shared memory") else ""


def _not_placed(fillings: Sequence[Occupancy]) -> Iterator[str]:
    """The same of launches that are only declared."""
    for one in fillings:
        if one.resident == 0 and not one.kernel:
            yield f"{one.variant} cannot be launched on {one.on} for {one.workload}: {one.limited_by}"


def _fillings(
    context: Context, chosen: Mapping[str, CAbiVariant], found: Findings, placed: Sequence[Placed]
) -> Iterator[Occupancy]:
    """How the timed calls fill the GPU: by what the host code told, else by the launch that is declared."""
    device = found.device
    if device is None:
        return
    at_hand = gpu_at_hand(context) == device
    for name, variant in chosen.items():
        timed = timed_workloads(context, variant)
        names = {one.name for one in timed}
        if name in found.told:
            yield from fill(
                [one for one in placed if one.variant == name and one.workload.name in names],
                device,
                at_hand=at_hand,
            )
        elif variant.launch is not None:
            found.missing.append(
                f"launches of {name}: static arithmetic only, on the launch that the manifest declares"
            )
            declared = (launch_limits.on_gpu(name, variant.launch, one, device, at_hand=at_hand) for one in timed)
            yield from (one for one in declared if one is not None)
        elif variant.emulation is None:
            found.missing.append(f"launches of {name}: nothing tells them; {NO_LAUNCH}")


def _bounds(context: Context, chosen: Mapping[str, CAbiVariant], found: Findings) -> Iterator[Bound]:
    """The roofline of every timed workload."""
    timed = {one.name: one for variant in chosen.values() for one in timed_workloads(context, variant)}
    for one in timed.values() if found.device else ():
        assert found.device is not None
        bound = judge.bound(context.bench.target, one, found.device)
        if bound is not None:
            yield bound


def _cut(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"


def _describe(
    chosen: Mapping[str, CAbiVariant], found: Findings, shapes: Sequence[Placement], spilled: Sequence[str]
) -> str:
    """What was found in order, and nothing that was not looked at."""
    if not chosen:
        return "none of the variants is compiled by nvcc"
    kernels = [kernel for one in found.libraries for kernel in one.kernels if kernel.entry]
    parts = [_compiled(kernels, found, spilled)] if kernels else [f"nothing was compiled for {found.architecture}"]
    if shapes and found.device:
        least, most = min(one.resident for one in shapes), max(one.resident for one in shapes)
        known = "" if kernels else " by threads and shared memory alone"
        parts.append(f"{least} to {most} blocks a multiprocessor of {found.device.name}{known}")
    return "; ".join(parts)


def _compiled(kernels: Sequence[KernelResources], found: Findings, spilled: Sequence[str]) -> str:
    most = max(kernel.registers or 0 for kernel in kernels)
    spills = max(kernel.spill_bytes for kernel in kernels)
    allowed = f"spills of up to {spills} bytes, as budgeted" if spills else "no spill"
    text = f"{len(spilled)} of them spill, up to {spills} bytes" if spilled else allowed
    return f"{len(kernels)} kernels for {found.architecture}: {text}, at most {most} registers"
