"""What the kernels of a variant take, whether they keep their budgets, and what rose to their harm.

More spills are always a rise: each thread moves these bytes through memory. More registers or shared memory are
one where a multiprocessor holds fewer warps for them: up to there they are free. A budget that the manifest
declares for spills, or for blocks a multiprocessor, accepts what keeps it.
"""

import math
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from loop.base.processes import Tick
from loop.builds import resources as compiled
from loop.builds.binaries import demangle
from loop.calls.call import Terms
from loop.model.device_profile import DeviceFacts
from loop.model.measurement import Build
from loop.model.promises import ResourceBudget
from loop.model.resources import (
    BlocksHeld,
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    KernelTakes,
    Placement,
    ResourcesTaken,
    Rise,
    WorkloadLaunches,
)
from loop.model.resources import short_name as short
from loop.model.target import CAbiVariant, Target, Workload
from loop.model.workloads import accepts, expand
from loop.profile.launch_limits import WARP, Block, Reports, Resident, place
from loop.workers.bench import Bench
from loop.workers.messages import Launches
from loop.workers.program import Refusal, WorkerLost
from loop.workers.worker import Worker

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")


def runs_on(code: str, device: str) -> bool:
    """Whether a GPU runs machine code of that architecture: its own major number, no higher minor one.

    `sm_90a` runs on `sm_90` alone, `sm_100f` on its family.
    """
    code_match, there = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not code_match or not there or code_match[1] != there[1]:
        return False
    return code_match[2] == there[2] if code_match[3] == "a" else int(code_match[2]) <= int(there[2])


def code_for(kernels: Sequence[KernelResources], device: str) -> tuple[KernelResources, ...]:
    """Of code for several architectures that which the GPU takes: the nearest to its own."""
    fitting = {
        (int(match[2]), match[3]): kernel.architecture
        for kernel in kernels
        if runs_on(kernel.architecture, device) and (match := ARCHITECTURE.match(kernel.architecture))
    }
    nearest = fitting[max(fitting)] if fitting else None
    return tuple(kernel for kernel in kernels if kernel.architecture == nearest)


def budget_of(name: str, budgets: Iterable[ResourceBudget]) -> ResourceBudget | None:
    """The first budget that is meant for a kernel."""
    return next((budget for budget in budgets if budget.fits(name)), None)


def spilling(library: CompiledLibrary, budgets: Sequence[ResourceBudget]) -> Iterator[tuple[KernelResources, int]]:
    """Kernels that spill more than they may, and what they may. Without a budget that is nothing."""
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        allowed = budget.spill_bytes if budget else 0
        if kernel.spill_bytes > allowed:
            yield kernel, allowed


def broken(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Every budget that is not kept, a line each; also one that fits no kernel, for nothing keeps it."""
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        if own is None:
            continue
        placed = [placement for placement in placements if placement.symbol == kernel.symbol]
        shared = max((placement.shared_bytes for placement in placed), default=kernel.shared_bytes)
        limits = {
            "registers": (kernel.registers, own.registers),
            "bytes of stack": (kernel.stack_bytes, own.stack_bytes),
            "bytes of shared memory": (shared, own.shared_bytes),
        }
        for what, (takes, most) in limits.items():
            if most is not None and takes is not None and takes > most:
                yield f"{kernel.short}: {takes} {what}, budget {most}"
        fewest = min((placement.resident for placement in placed), default=None)
        if own.blocks_per_sm is not None and fewest is not None and fewest < own.blocks_per_sm:
            yield f"{kernel.short}: {fewest} blocks a multiprocessor, budget {own.blocks_per_sm} at least"
    for budget in budgets:
        if not any(budget.fits(kernel.name) for kernel in library.kernels):
            yield f"the budget for {budget.kernel!r} fits no kernel of {', '.join(library.variants)}"


def unchecked(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Kernels whose budget needs a launch, and that no known workload launches."""
    placed = {placement.symbol for placement in placements}
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        needs_launch = budget is not None and (budget.blocks_per_sm or budget.shared_bytes is not None)
        if needs_launch and kernel.entry and kernel.symbol not in placed:
            yield kernel.short


LIMIT_S = 20.0
"""For one call: nothing is computed."""


def ask_launches(
    bench: Bench, build: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """What each workload launches, told by the host code in a dry run; `build` is the variant's emulated one.

    An error that the variant returns concerns one workload. When the library cannot be asked at all, or crashes or
    hangs, the workload at which that shows is the last of the answer.
    """
    calls: list[WorkloadLaunches] = []
    terms = bench.side(build.variant, build).terms
    path = bench.scratch / f"launches-{build.variant}.jsonl"
    path.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            calls.append((yield from _ask(bench, worker, terms, path, workload)))
            if calls[-1].status == "lost":
                break
    return tuple(calls)


def _ask(
    bench: Bench, worker: Worker, terms: Terms, path: Path, workload: Workload
) -> Generator[Tick, None, WorkloadLaunches]:
    request = Launches(terms, str(path), bench.call(workload, "dry"))
    note, known = f"launches of {workload.name}", KernelLaunch.model_fields
    try:
        reply = yield from worker.ask(request, limit_s=LIMIT_S, note=note)
        records = [record for record in reply.launches if "remark" not in record]  # Bank conflicts are left out.
        launches = tuple(
            KernelLaunch.model_validate({name: record[name] for name in known if name in record})
            for record in records
        )
    except (Refusal, WorkerLost) as error:
        return WorkloadLaunches(workload=workload, status="lost", why=str(error))
    except ValidationError as error:
        why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
        return WorkloadLaunches(workload=workload, status="lost", why=why)
    status = "declined" if reply.declined else "told"
    remarks = tuple(str(record["remark"]) for record in reply.launches if "remark" in record)
    return WorkloadLaunches(
        workload=workload, status=status, launches=launches, remarks=remarks, why=reply.declined
    )


USUAL_THREADS = 128
"""A block of so many is reckoned with where no host code tells of a launch."""


def taken(variant: str, reports: Reports, compiler: str, device: DeviceFacts | None) -> ResourcesTaken | None:
    """What a variant's kernels take; by shape, that launch of which a multiprocessor holds fewest warps.

    None without the compiler's report on the variant.
    """
    library = next((library for library in reports.libraries if variant in library.variants), None)
    if library is None:
        return None
    held: dict[str, dict[str, BlocksHeld]] = {}
    for placed in reports.placed(device) if device else ():
        if placed.variant == variant:
            by_shape, launch = held.setdefault(placed.symbol, {}), _held(placed.block, placed.held)
            shape = shape_of(placed.workload)
            by_shape[shape] = min(by_shape.get(shape, launch), launch, key=lambda blocks: blocks.warps)
    kernels = tuple(_takes(kernel, held.get(kernel.symbol), device) for kernel in library.kernels)
    return ResourcesTaken(variant=variant, device=library.architecture, compiler=compiler, kernels=kernels)


def shape_of(workload: Workload) -> str:
    """What a launch may depend on, not the values: `float16 B=1 causal=True`."""
    return " ".join(
        [workload.dtype, *(f"{name}={value}" for name, value in (workload.sizes | workload.attributes).items())]
    )


def budgets_of(target: Target, variant: str) -> Sequence[ResourceBudget]:
    """The budgets that the manifest declares for a variant."""
    declared = target.variants[variant]
    return declared.budgets if isinstance(declared, CAbiVariant) else ()


def calls_of(target: Target, variant: CAbiVariant) -> list[Workload]:
    """Every shape of the target's workloads in every type of a variant."""
    every = [workload for dtype in variant.dtypes for workload in expand(target, target.workloads, dtype)]
    return [*{shape_of(workload): workload for workload in every if accepts(variant, workload)}.values()]


def _takes(kernel: KernelResources, held: dict[str, BlocksHeld] | None, device: DeviceFacts | None) -> KernelTakes:
    if not held and device and kernel.entry:
        block = KernelLaunch(kernel=kernel.symbol, grid=(1, 1, 1), block=(USUAL_THREADS, 1, 1), shared=0)
        held = {"": _held(*place(block, kernel, device))}
    return KernelTakes(
        kernel=kernel.name,
        registers=kernel.registers,
        spill_stores=kernel.spill_stores,
        spill_loads=kernel.spill_loads,
        held=held or {},
    )


def _held(block: Block, resident: Resident) -> BlocksHeld:
    return BlocksHeld(
        blocks=resident.blocks,
        warps=resident.blocks * math.ceil(block.threads / WARP),
        shared_bytes=block.shared_bytes or 0,
        limited_by=resident.limited_by,
    )


def rises(before: ResourcesTaken, now: ResourcesTaken, budgets: Sequence[ResourceBudget]) -> tuple[Rise, ...]:
    """What rose to the kernels' harm, of kernels that were there before; nothing of another compiler or GPU."""
    if (before.device, before.compiler) != (now.device, now.compiler):
        return ()
    known = {kernel.kernel: kernel for kernel in before.kernels}
    every: list[Rise] = []
    for kernel in now.kernels:
        then, budget = known.get(kernel.kernel), budget_of(kernel.kernel, budgets)
        if then is not None:
            every += [*_spills(now.variant, then, kernel, budget), *_falls(now.variant, then, kernel, budget)]
    return tuple(every)


def _spills(variant: str, then: KernelTakes, now: KernelTakes, budget: ResourceBudget | None) -> Iterator[Rise]:
    if budget and (now.spill_stores or now.spill_loads) <= budget.spill_bytes:
        return
    figures = {
        "spill stores": (then.spill_stores, now.spill_stores),
        "spill loads": (then.spill_loads, now.spill_loads),
    }
    for resource, (old, new) in figures.items():
        if new > old:
            fields = {"variant": variant, "kernel": short(now.kernel), "resource": resource}
            yield Rise.model_validate({**fields, "before": old, "now": new})


def _falls(variant: str, then: KernelTakes, now: KernelTakes, budget: ResourceBudget | None) -> Iterator[Rise]:
    """Registers and shared memory that reduce resident warps, each at the call where they cost most."""
    worst: dict[str, Rise] = {}
    least = budget.blocks_per_sm if budget else None
    for call, held in now.held.items():
        before = then.held.get(call)
        if before is None or held.warps >= before.warps or (least is not None and held.blocks >= least):
            continue
        figures = {
            "registers": (then.registers or 0, now.registers or 0),
            "shared memory": (before.shared_bytes, held.shared_bytes),
        }
        old, new = figures.get(held.limited_by, (0, 0))
        if new > old:
            fields = {"resource": held.limited_by, "before": old, "now": new, "warps": (before.warps, held.warps)}
            rise = Rise.model_validate({"variant": variant, "kernel": short(now.kernel), **fields})
            worst[held.limited_by] = min(worst.get(held.limited_by, rise), rise, key=_warps_left)
    yield from worst.values()


def _warps_left(rise: Rise) -> float:
    before, now = rise.warps or (1, 1)
    return now / before


def look(
    bench: Bench, build: Build, emulated: Build | None, architecture: str, calls: Sequence[Workload]
) -> Generator[Tick, None, ResourcesTaken | str]:
    """What one build takes, its launches by its emulated one; or why that cannot be said."""
    read = yield from compiled.read_report(build)
    kernels = code_for(read.kernels, architecture)
    if not kernels:
        return f"the compiler reports on no kernel for {architecture}"
    library = CompiledLibrary(
        variants=(build.variant,), build_id=build.build_id, architecture=kernels[0].architecture, kernels=kernels
    )
    reports = Reports(libraries=[library])
    if emulated is not None:
        launched = yield from ask_launches(bench, emulated, calls)
        lost = next((call for call in launched if call.status == "lost"), None)
        if lost is not None:
            return f"it does not say what it launches on {lost.workload.name}: {lost.why}"
        symbols = {launch.kernel for call in launched for launch in call.launches}
        reports.launches, reports.names = {build.variant: launched}, (yield from demangle(sorted(symbols)))
    takes = taken(build.variant, reports, build.compiler, bench.gpu_for(architecture))
    assert takes is not None
    return takes
