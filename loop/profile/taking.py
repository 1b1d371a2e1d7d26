"""What the kernels of a variant take, whether they keep their budgets, and what rose to their harm.

More spills are always a rise: each thread moves these bytes through memory. More registers or shared memory are
one where a multiprocessor holds fewer warps for them: up to there they are free. A budget that the manifest
declares for spills, or for blocks a multiprocessor, accepts what keeps it.
"""

import math
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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
    Bound,
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
from loop.model.workloads import accepts, counted, expand
from loop.profile.launch_limits import WARP, Block, Reports, Resident, place
from loop.workers.bench import Bench
from loop.workers.program import Refusal, WorkerLost
from loop.workers.worker import Worker
from loop.workers.worker_messages import Launches

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")


def runs_on(code: str, device: str) -> bool:
    """Whether a GPU runs machine code of that architecture: its own major number, no higher minor one.

    `sm_90a` runs on `sm_90` alone, `sm_100f` on its family.
    """
    made, there = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not made or not there or made[1] != there[1]:
        return False
    return made[2] == there[2] if made[3] == "a" else int(made[2]) <= int(there[2])


def code_for(kernels: Sequence[KernelResources], device: str) -> tuple[KernelResources, ...]:
    """Of code for several architectures that which the GPU takes: the nearest to its own."""
    fitting = sorted({one.architecture for one in kernels if runs_on(one.architecture, device)}, key=_nearness)
    return tuple(one for one in kernels if fitting and one.architecture == fitting[-1])


def _nearness(architecture: str) -> tuple[int, str]:
    found = ARCHITECTURE.match(architecture)
    assert found is not None
    return int(found[2]), found[3]


def bound(target: Target, workload: Workload, device: DeviceFacts) -> Bound | None:
    """The least time of a call by the roofline (Williams, Waterman, Patterson 2009); None where nothing tells it.

    Operations over the peak of the element type, or bytes that have to move over the memory's. Raises
    ExpressionError.
    """
    peak = device.flops_per_s.get(workload.dtype)
    flops, moved = (counted(formula, workload) for formula in (target.flops, target.bytes))
    if flops is None or moved is None or peak is None or not device.bytes_per_s:
        return None
    compute, memory = flops / peak * 1e6, moved / device.bytes_per_s * 1e6
    by: Literal["compute", "memory"] = "compute" if compute > memory else "memory"
    return Bound(workload=workload.name, us=max(compute, memory), by=by) if max(compute, memory) > 0 else None


def budget_of(name: str, budgets: Iterable[ResourceBudget]) -> ResourceBudget | None:
    """The first budget that is meant for a kernel."""
    return next((one for one in budgets if one.fits(name)), None)


def spilling(library: CompiledLibrary, budgets: Sequence[ResourceBudget]) -> Iterator[tuple[KernelResources, int]]:
    """Kernels that spill more than they may, and what they may. Without a budget that is nothing."""
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        allowed = own.spill_bytes if own else 0
        if kernel.spill_bytes > allowed:
            yield kernel, allowed


def broken(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Every budget that is not kept, a line each; also one that is meant for no kernel, for nothing keeps it."""
    placed = _by_symbol(placements)
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        if own is not None:
            yield from (f"{kernel.short}: {text}" for text in _excess(kernel, own, placed.get(kernel.symbol, ())))
    for one in budgets:
        if not any(one.fits(kernel.name) for kernel in library.kernels):
            yield f"the budget for {one.kernel!r} fits no kernel of {', '.join(library.variants)}"


def _by_symbol(placements: Sequence[Placement]) -> Mapping[str, list[Placement]]:
    found: dict[str, list[Placement]] = {}
    for one in placements:
        found.setdefault(one.symbol, []).append(one)
    return found


def _excess(kernel: KernelResources, own: ResourceBudget, placed: Sequence[Placement]) -> Iterator[str]:
    shared = max((one.shared_bytes for one in placed), default=kernel.shared_bytes)
    found = {
        "registers": (kernel.registers, own.registers),
        "bytes of stack": (kernel.stack_bytes, own.stack_bytes),
        "bytes of shared memory": (shared, own.shared_bytes),
    }
    for what, (takes, most) in found.items():
        if most is not None and takes is not None and takes > most:
            yield f"{takes} {what}, budget {most}"
    held = min((one.resident for one in placed), default=None)
    if own.blocks_per_sm is not None and held is not None and held < own.blocks_per_sm:
        yield f"{held} blocks a multiprocessor, budget {own.blocks_per_sm} at least"


def unchecked(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Budgets that need a launch, for kernels that no known workload launches."""
    placed = _by_symbol(placements)
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        if (
            own
            and kernel.entry
            and kernel.symbol not in placed
            and (own.blocks_per_sm or own.shared_bytes is not None)
        ):
            yield kernel.short


LIMIT_S = 20.0
"""For one call: nothing is computed."""


def ask_launches(
    bench: Bench, made: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """What each workload launches, told by the host code in a dry run; `made` is the variant's emulated build.

    An error that the variant returns concerns one workload. When the library cannot be asked at all, or crashes or
    hangs, the workload at which that shows is the last of the answer.
    """
    found: list[WorkloadLaunches] = []
    terms = bench.side(made.variant, made).terms
    told = bench.scratch / f"launches-{made.variant}.jsonl"
    told.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            found.append((yield from _ask(bench, worker, terms, told, workload)))
            if found[-1].status == "lost":
                break
    return tuple(found)


def _ask(
    bench: Bench, worker: Worker, terms: Terms, told: Path, workload: Workload
) -> Generator[Tick, None, WorkloadLaunches]:
    request = Launches(terms, str(told), bench.call(workload, "dry"))
    note = f"launches of {workload.name}"
    try:
        reply = yield from worker.ask(request, limit_s=LIMIT_S, note=note)
        launches = tuple(_launch(one) for one in reply.launches if "remark" not in one)
    except Refusal as refusal:
        return WorkloadLaunches(workload=workload, status="lost", why=str(refusal))
    except WorkerLost as lost:
        return WorkloadLaunches(workload=workload, status="lost", why=str(lost))
    except ValidationError as error:
        why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
        return WorkloadLaunches(workload=workload, status="lost", why=why)
    status = "declined" if reply.declined else "told"
    remarks = tuple(str(one["remark"]) for one in reply.launches if "remark" in one)
    return WorkloadLaunches(
        workload=workload, status=status, launches=launches, remarks=remarks, why=reply.declined
    )


def _launch(told: dict[str, Any]) -> KernelLaunch:
    """A launch as an emulator tells it; what else it knows, of bank conflicts say, is left out."""
    return KernelLaunch.model_validate({name: told[name] for name in KernelLaunch.model_fields if name in told})


USUAL_THREADS = 128
"""A block of so many is reckoned with where no host code tells of a launch."""


def taken(variant: str, reports: Reports, compiler: str, device: DeviceFacts | None) -> ResourcesTaken | None:
    """What a variant's kernels take; None without the compiler's report on it."""
    library = next((one for one in reports.libraries if variant in one.variants), None)
    if library is None:
        return None
    held: dict[str, dict[str, BlocksHeld]] = {}
    for one in reports.placed(device) if device else ():
        if one.variant == variant:
            calls, now = held.setdefault(one.symbol, {}), _held(one.block, one.held)
            call = shape_of(one.workload)
            calls[call] = min(calls.get(call, now), now, key=lambda launch: launch.warps)
    kernels = tuple(_takes(kernel, held.get(kernel.symbol), device) for kernel in library.kernels)
    return ResourcesTaken(variant=variant, device=library.architecture, compiler=compiler, kernels=kernels)


def shape_of(one: Workload) -> str:
    """What a launch may depend on, not the values: `float16 B=1 causal=True`."""
    return " ".join([one.dtype, *(f"{name}={value}" for name, value in (one.sizes | one.attributes).items())])


def budgets_of(target: Target, variant: str) -> Sequence[ResourceBudget]:
    """The budgets that the manifest declares for a variant."""
    declared = target.variants[variant]
    return declared.budgets if isinstance(declared, CAbiVariant) else ()


def calls_of(target: Target, variant: CAbiVariant) -> list[Workload]:
    """Every shape of the target's workloads in every type of a variant."""
    every = [one for dtype in variant.dtypes for one in expand(target, target.workloads, dtype)]
    return [*{shape_of(one): one for one in every if accepts(variant, one)}.values()]


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
    known = {one.kernel: one for one in before.kernels}
    pairs = [(known[one.kernel], one) for one in now.kernels if one.kernel in known]
    return tuple(
        rise
        for then, one in pairs
        for rise in (
            *_spills(now.variant, then, one, budget_of(one.kernel, budgets)),
            *_falls(now.variant, then, one, budget_of(one.kernel, budgets)),
        )
    )


def _spills(variant: str, then: KernelTakes, now: KernelTakes, budget: ResourceBudget | None) -> Iterator[Rise]:
    if budget and (now.spill_stores or now.spill_loads) <= budget.spill_bytes:
        return
    name = short(now.kernel)
    if now.spill_stores > then.spill_stores:
        yield Rise(
            variant=variant, kernel=name, resource="spill stores", before=then.spill_stores, now=now.spill_stores
        )
    if now.spill_loads > then.spill_loads:
        yield Rise(
            variant=variant, kernel=name, resource="spill loads", before=then.spill_loads, now=now.spill_loads
        )


def _falls(variant: str, then: KernelTakes, now: KernelTakes, budget: ResourceBudget | None) -> Iterator[Rise]:
    """Registers and shared memory for which fewer warps are held, each at the call where that shows most."""
    name, worst = short(now.kernel), dict[str, Rise]()
    for call, held in now.held.items():
        before = then.held.get(call)
        kept = budget is not None and budget.blocks_per_sm is not None and held.blocks >= budget.blocks_per_sm
        if before is None or held.warps >= before.warps or kept:
            continue
        figures = {
            "registers": (then.registers or 0, now.registers or 0),
            "shared memory": (before.shared_bytes, held.shared_bytes),
        }
        old, new = figures.get(held.limited_by, (0, 0))
        if new > old:
            fields = {"resource": held.limited_by, "before": old, "now": new, "warps": (before.warps, held.warps)}
            rise = Rise.model_validate({"variant": variant, "kernel": name, **fields})
            worst[held.limited_by] = min(worst.get(held.limited_by, rise), rise, key=_left)
    yield from worst.values()


def _left(rise: Rise) -> float:
    """Share of the warps that are left."""
    before, now = rise.warps or (1, 1)
    return now / before


def look(
    bench: Bench, made: Build, emulated: Build | None, architecture: str, calls: Sequence[Workload]
) -> Generator[Tick, None, ResourcesTaken | str]:
    """What one build takes, its launches by its emulated one; or why that cannot be said."""
    read = yield from compiled.read_report(made)
    kernels = code_for(read.kernels, architecture)
    if not kernels:
        return f"the compiler reports on no kernel for {architecture}"
    library = CompiledLibrary(
        variants=(made.variant,), build_id=made.build_id, architecture=kernels[0].architecture, kernels=kernels
    )
    reports = Reports(libraries=[library])
    if emulated is not None:
        told = yield from ask_launches(bench, emulated, calls)
        lost = next((one for one in told if one.status == "lost"), None)
        if lost is not None:
            return f"it does not say what it launches on {lost.workload.name}: {lost.why}"
        symbols = {launch.kernel for one in told for launch in one.launches}
        reports.told, reports.names = {made.variant: told}, (yield from demangle(sorted(symbols)))
    found = taken(made.variant, reports, made.compiler, bench.gpu_for(architecture))
    assert found is not None
    return found
