"""Does a launch fill its device? Occupancy of a GPU, and pieces of work per thread.

Rounding as in NVIDIA's occupancy calculator for compute capability 8.0 to 9.0.
"""

import math
from typing import Annotated

from pydantic import Field

from loop.base.expressions import Expression
from loop.builds.resources import KernelResources
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.output import Output
from loop.model.profile import DeviceFacts
from loop.model.target import Launch, Workload
from loop.model.workloads import expand_sets, is_supported
from loop.report import format as say
from loop.steps.context import Context, NoArguments, Result, RunningAction

WARP = 32
REGISTER_UNIT = 256  # Registers are allocated to a warp in units of this size.
WARP_UNIT = 4  # Resident warps come in multiples of four, one for each quarter of a multiprocessor.
SHARED_UNIT, SHARED_RESERVED = 128, 1024
"""Allocation unit of shared memory in bytes, and bytes that the system reserves for each block."""
THREADS_PER_BLOCK = 1024  # Most threads in a block on any GPU.
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Most blocks along x, y, z (CUDA C++ programming guide, technical specifications)."""
BLOCK_LIMITS = (1024, 1024, 64)  # Most threads of a block along x, y, z, from the same table.
Dim3 = tuple[int, int, int]
Residency = tuple[int, str]  # Resident blocks per multiprocessor, and what limits them.


class KernelLaunch(Model):
    """One kernel launch that a variant's host code made in a dry run."""

    kernel: str
    grid: Dim3
    block: Dim3
    shared: Annotated[int, Field(ge=0)]
    shared_static: Annotated[int, Field(ge=0)] = 0
    """Bytes of static shared memory per block, as the emulator knows; the compiler's are exact."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


class Placement(Model):
    """Occupancy of one launch shape: how many such blocks fit on a multiprocessor."""

    variant: str
    kernel: str
    symbol: str
    blocks: int = Field(default=0, exclude=True)
    """Blocks of the launch, in its whole grid."""
    threads: int
    shared_bytes: int
    registers: int | None
    resident: int
    """Blocks resident on one multiprocessor at a time; 0 if the kernel cannot be launched."""
    limited_by: str
    workload: str
    timed: bool = False


class CompiledLibrary(Model):
    """The compiler's report on one built library."""

    variants: tuple[str, ...]
    kernels: tuple[KernelResources, ...]
    """Kernels for the architecture that the GPU runs, and device functions that use the stack."""


class Occupancy(Model):
    """Occupancy: how well one launch fills the device."""

    variant: str
    workload: str
    on: str
    """The device: threads of this machine, or the name of the GPU."""
    at_hand: bool
    items: int
    """Number of blocks launched; on a CPU pieces of work."""
    units: int
    resident: int
    """Blocks resident per multiprocessor; 1 per CPU thread; 0 if a block does not fit."""
    limited_by: str
    share: float
    """Maximum share of slots (units x resident) in use at a time. Below 1 some stay empty."""
    waves: float
    """Items / slots. Below 1 the device is never full."""
    used: float
    """Items / (slots x number of waves, rounded up): the average share of slots in use."""
    unknown: tuple[str, ...] = ()
    """Resources that are not known. With them, fewer blocks may fit."""
    kernel: str = ""


class ParallelismOutput(Output):
    """How launches fill their devices."""

    actions = ("kernel.parallelism",)

    fillings: tuple[Occupancy, ...] = ()
    """An occupancy for each variant and workload with a known launch."""


class ResourcesOutput(Output):
    """Resources and occupancy of nvcc's kernels on a GPU, which need not be at hand."""

    actions = ("kernel.resources",)

    device: str = ""
    """Architecture of the GPU, such as `sm_89`."""
    device_name: str = ""
    """Name of the GPU; empty if the manifest has no facts about it."""
    libraries: tuple[CompiledLibrary, ...] = ()
    """The compiler's report on each library; empty without nvcc."""
    placements: tuple[Placement, ...] = ()
    """Distinct launches of the host code, with their occupancy."""
    fillings: tuple[Occupancy, ...] = ()
    """How each timed call fills the GPU, by its largest launch."""
    spilled: tuple[str, ...] = ()
    """Kernels that spill more bytes than their budget allows."""
    broken: tuple[str, ...] = ()
    """Budgets that are exceeded."""
    impossible: tuple[str, ...] = ()
    """Launches that the GPU refuses."""


def count_resident_blocks(
    device: DeviceFacts, threads: int, registers: int | None = None, shared_bytes: int | None = None
) -> Residency:
    """Blocks that a multiprocessor holds at a time, what limits them; 0 if a block does not fit.
    `threads`, `shared_bytes`: of a block; `registers`: of a thread. None: unknown, so no limit."""
    warps = math.ceil(threads / WARP)
    limits = {"blocks a multiprocessor": device.blocks_per_sm, "threads": 0}
    if 1 <= threads <= THREADS_PER_BLOCK:
        limits["threads"] = device.threads_per_sm // (warps * WARP)
        if registers is not None:
            registers_per_warp = math.ceil(max(registers, 1) * WARP / REGISTER_UNIT) * REGISTER_UNIT
            resident_warps = device.registers_per_sm // registers_per_warp // WARP_UNIT * WARP_UNIT
            limits["registers"] = resident_warps // warps
    if shared_bytes is not None:
        allocated_bytes = math.ceil((shared_bytes + SHARED_RESERVED) / SHARED_UNIT) * SHARED_UNIT
        fits = shared_bytes <= device.shared_per_block
        limits["shared memory"] = device.shared_per_sm // allocated_bytes if fits else 0
    limited_by = min(limits, key=lambda name: limits[name])
    return limits[limited_by], limited_by


def launch_residency(
    launch: KernelLaunch, registers: int | None, shared_bytes: int, device: DeviceFacts
) -> Residency:
    """Resident blocks of a launch on one multiprocessor; 0 with a reason: it cannot be launched."""
    shapes = ("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)
    for name, sizes, limits in shapes:
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return 0, f"{name}.{axis} is {size:,}, not 1 to {limit:,}"
    return count_resident_blocks(device, launch.threads, registers, shared_bytes)


def make_occupancy(
    variant: str, workload: str, on: str, items: int, units: int, limit: Residency, **fields: object
) -> Occupancy | None:
    """How a launch of `items` blocks fills `units` multiprocessors (on a processor: pieces of work
    and threads); None for no items. `on`: the device. `fields`: further fields of `Occupancy`."""
    if items <= 0:
        return None
    resident, limited_by = limit
    waves = items / (units * resident) if units * resident else 0.0
    used = waves / math.ceil(waves) if waves else 0.0
    figures = {"share": min(1.0, waves), "waves": waves, "used": used}
    figures |= {"items": items, "units": units, "resident": resident}
    labels = {"variant": variant, "workload": workload, "on": on, "limited_by": limited_by}
    return Occupancy.model_validate({**labels, **figures, **fields})


def parallelism(context: Context, arguments: NoArguments) -> RunningAction[ParallelismOutput]:
    """Compute how each reported or declared launch fills its device, which need not be here. Fails
    if one does not fit its GPU."""
    yield from ()
    target = context.bench.target
    reported = context.latest_output("kernel.resources", ResourcesOutput)
    with_reports = {occupancy.variant for occupancy in reported.fillings} if reported else set()
    missing, occupancies = list[str](), list[Occupancy]()
    for name, variant in target.variants.items():
        if getattr(variant, "launch", None) is None and name not in with_reports:
            if name in context.task.variants:
                missing.append(f"parallelism of {name}: the manifest declares no launch")
        elif variant.device == "cuda" and not (gpu_at_hand(context) or target.devices):
            missing.append(f"parallelism of {name}: the manifest has no `devices`")
        device: Device = context.bench.device if variant.device == "any" else variant.device
        dtype = target.dtypes.get(device, variant.dtypes[0])
        workloads = expand_sets(target, context.task.plan.workloads, dtype)
        supported = [workload for workload in workloads if is_supported(variant, workload)]
        of_workloads = [find_occupancy(context, name, workload) for workload in supported]
        occupancies += filter(None, of_workloads)
    parts, learned = list[str](), list[str]()
    for name in dict.fromkeys(occupancy.variant for occupancy in occupancies):
        of_variant = [occupancy for occupancy in occupancies if occupancy.variant == name]
        least = min(of_variant, key=lambda occupancy: occupancy.share)
        not_filled = sum(occupancy.share < 1 for occupancy in of_variant)
        where = f"{name} on {least.on}{'' if least.at_hand else ', which is not at hand'}"
        if not not_filled:
            parts.append(f"{where}: filled on all of {len(of_variant)} workloads")
            continue
        extent = f"{not_filled} of {len(of_variant)} workloads"
        least_on = f"least on {least.workload} ({least.share:.0%})"
        parts.append(f"{where}: not filled on {extent}, {least_on}")
        pieces, places = say.count(least.items, "piece"), least.units * least.resident
        learned.append(
            f"{name} has {pieces} of work for {places} places of {least.on} on {least.workload}: "
            "split the work further before anything smaller is optimised."
        )
    message, hint = "; ".join(parts or missing[:1]) or "no variant declares its launch", None
    impossible = next((occupancy for occupancy in occupancies if occupancy.resident == 0), None)
    if impossible:
        place = f"{impossible.on} for {impossible.workload}: {impossible.limited_by}"
        message = f"{impossible.kernel or impossible.variant} cannot be launched on {place}"
        hint = "fewer threads, registers or less shared memory a block"
    output = ParallelismOutput(
        ok=not impossible,
        message=message,
        hint=hint,
        not_exercised=tuple(missing),
        learned=tuple(learned),
        fillings=tuple(occupancies),
    )
    return Result(output, idle=not occupancies)


def find_occupancy(context: Context, name: str, workload: Workload) -> Occupancy | None:
    """How a variant's launch fills its device: as `kernel.resources` reported it, or else by the
    manifest. None without a launch, a known device, or work. Raises ExpressionError."""
    bench, variant = context.bench, context.bench.target.variants[name]
    launch: Launch | None = getattr(variant, "launch", None)  # Only compiled variants have it.
    device = None
    if variant.device == "cuda" or (variant.device == "any" and bench.device == "cuda"):
        device = gpu_at_hand(context) or next(iter(bench.target.devices.values()), None)
    reported = context.latest_output("kernel.resources", ResourcesOutput)
    for occupancy in reported.fillings if reported else ():
        place = (occupancy.variant, occupancy.workload, occupancy.on)
        if device and place == (name, workload.name, device.name):
            return occupancy
    if launch is None or (device is None and variant.device == "cuda"):
        return None
    values = workload.formula_values
    if device is None:
        values = {**values, "cores": bench.threads, "lanes": vector_lanes()}

    def rounded_up(formula: int | str) -> int:
        if isinstance(formula, int):
            return formula
        return math.ceil(Expression.parse(formula).evaluate_number(values))

    items = rounded_up(launch.blocks)
    if device is None:
        on, limit = say.count(bench.threads, "thread"), (1, "one piece a thread")
        at_hand = bench.device == "cpu"
        return make_occupancy(name, workload.name, on, items, bench.threads, limit, at_hand=at_hand)
    formulas = {"registers": launch.registers, "shared memory": launch.shared_bytes}
    amounts = {key: rounded_up(formula) for key, formula in formulas.items() if formula is not None}
    threads, registers = rounded_up(launch.threads), amounts.get("registers")
    limit = count_resident_blocks(device, threads, registers, amounts.get("shared memory"))
    unknown = tuple(resource for resource in formulas if resource not in amounts)
    fields = {"at_hand": device == gpu_at_hand(context), "unknown": unknown}
    return make_occupancy(name, workload.name, device.name, items, device.sms, limit, **fields)


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the session's GPU; None on a processor, and for a GPU without any."""
    return context.bench.gpu if context.bench.device == "cuda" else None
