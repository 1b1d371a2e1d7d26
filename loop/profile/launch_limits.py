"""Does a launch fill its device? What host code told, with the compiler's report, against a GPU's limits. Pure.

Rounding as in NVIDIA's occupancy calculator for compute capability 8.0 to 9.0.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loop.base.expressions import Expression
from loop.gate.model import DeviceOutput
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.plan import Text
from loop.model.profile import DeviceFacts, Occupancy, at_hand
from loop.model.resources import (
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    Placement,
    WorkloadLaunches,
    short_name,
)
from loop.model.target import Launch, Variant, Workload
from loop.model.workloads import accepts, expand
from loop.profile.model import ParallelismOutput, ResourcesOutput
from loop.report import format as say
from loop.steps.context import Context, Result, Working

WARP = 32
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
WARP_UNIT = 4
"""Warps that hold registers come in fours: one for each quarter of a multiprocessor."""
SHARED_UNIT, SHARED_RESERVED = 128, 1024
"""Bytes of shared memory are given in such units, and the system takes so many for each block."""
THREADS_PER_BLOCK = 1024
"""No GPU launches a block of more."""


class Block(NamedTuple):
    """What one block asks for: threads, registers a thread, bytes of shared memory; None is not known."""

    threads: int
    registers: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Resident:
    """Blocks that one multiprocessor holds at a time."""

    blocks: int
    limited_by: str
    unknown: tuple[str, ...] = ()
    """What the block asks for and nobody declared: with it fewer may fit."""


def resident(block: Block, device: DeviceFacts) -> Resident:
    """How many such blocks one multiprocessor holds at a time, and what keeps it from holding more."""
    warps, unknown = math.ceil(block.threads / WARP), []
    limits = {"blocks a multiprocessor": device.blocks_per_sm, "threads": 0}
    if 1 <= block.threads <= THREADS_PER_BLOCK:
        limits["threads"] = device.threads_per_sm // (warps * WARP)
    if block.registers is None:
        unknown.append("registers")
    else:
        a_warp = _round_up(max(block.registers, 1) * WARP, REGISTER_UNIT)
        warps_held = device.registers_per_sm // a_warp // WARP_UNIT * WARP_UNIT
        limits["registers"] = warps_held // warps if warps else 0
    if block.shared_bytes is None:
        unknown.append("shared memory")
    else:
        bytes_held = _round_up(block.shared_bytes + SHARED_RESERVED, SHARED_UNIT)
        fits = block.shared_bytes <= device.shared_per_block
        limits["shared memory"] = device.shared_per_sm // bytes_held if fits else 0
    limited_by = min(limits, key=lambda name: limits[name])
    return Resident(limits[limited_by], limited_by, tuple(unknown))


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def on_host(
    name: str, launch: Launch, workload: Workload, threads: int, lanes: int, *, at_hand: bool
) -> Occupancy | None:
    """Pieces of work against a processor's threads; None for a workload without work. Raises ExpressionError.

    `lanes`: elements of type float32 in the processor's widest vector.
    """
    items = whole(launch.blocks, {**workload.formula_values, "cores": threads, "lanes": lanes})
    on = f"{threads} thread{'s' if threads > 1 else ''}"
    return filled(name, workload, on, items, threads, Resident(1, "one piece a thread"), at_hand=at_hand)


def on_gpu(
    name: str, launch: Launch, workload: Workload, device: DeviceFacts, *, at_hand: bool
) -> Occupancy | None:
    """Blocks against places on a GPU; None for a workload without work. Raises ExpressionError."""
    values = workload.formula_values
    registers, shared = (
        None if formula is None else whole(formula, values) for formula in (launch.registers, launch.shared_bytes)
    )
    limit = resident(Block(whole(launch.threads, values), registers, shared), device)
    return filled(name, workload, device.name, whole(launch.blocks, values), device.sms, limit, at_hand=at_hand)


def filled(
    name: str, workload: Workload, on: str, items: int, units: int, limit: Resident, *, at_hand: bool
) -> Occupancy | None:
    """How `items` pieces of work fill `units` that hold so many each; None without work."""
    if items <= 0:
        return None
    slots = units * limit.blocks
    waves = items / slots if slots else 0.0
    return Occupancy(
        variant=name,
        workload=workload.name,
        on=on,
        at_hand=at_hand,
        items=items,
        units=units,
        resident=limit.blocks,
        limited_by=limit.limited_by,
        share=min(1.0, waves),
        waves=waves,
        used=waves / math.ceil(waves) if waves else 0.0,
        unknown=limit.unknown,
    )


def whole(formula: int | str, values: Mapping[str, object]) -> int:
    """The value of a formula, rounded up. Raises ExpressionError where it has none."""
    if isinstance(formula, int):
        return formula
    return math.ceil(Expression.parse(formula).evaluate_number(values))


GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Blocks along x, y and z (CUDA C++ programming guide, technical specifications by compute capability)."""
BLOCK_LIMITS = (1024, 1024, 64)
"""Threads along x, y and z, likewise."""


@dataclass(frozen=True)
class Placed:
    """One launch on the GPU."""

    variant: str
    workload: Workload
    launch: KernelLaunch
    name: str
    """The kernel, demangled, without parameters."""
    symbol: str
    """Its mangled name, the compiler's where it reported on it."""
    block: Block
    held: Resident


@dataclass
class KernelFindings:
    """What compilers and host code say of a target's kernels, variant by variant."""

    architecture: str
    device: DeviceFacts | None
    libraries: Sequence[CompiledLibrary] = ()
    """The compiler's reports."""
    launches: dict[str, Sequence[WorkloadLaunches]] = field(default_factory=dict)
    """Variant to what its host code launches."""
    names: dict[str, str] = field(default_factory=dict)
    """Demangled names of the kernels launched."""
    problems: dict[str, str] = field(default_factory=dict)
    """What fails the step, and what mends it."""
    missing: list[str] = field(default_factory=list)
    """What was not looked at, why, and what mends it."""

    def kernel(self, variant: str, symbol: str) -> KernelResources | None:
        """The compiler's report on a kernel that a variant launches: that of its name, whatever its linkage."""
        name = self.names.get(symbol, symbol)
        for library in self.libraries:
            for kernel in library.kernels if variant in library.variants else ():
                if kernel.entry and (symbol == kernel.symbol or name == kernel.name):
                    return kernel
        return None

    def unreported(self) -> Iterator[str]:
        """Kernels that are launched, and that the compiler's report on their variant does not have."""
        compiled = {variant for library in self.libraries for variant in library.variants}
        for variant, calls in self.launches.items():
            symbols = dict.fromkeys(launch.kernel for call in calls for launch in call.launches)
            if variant in compiled:
                yield from (self.names.get(s, s) for s in symbols if self.kernel(variant, s) is None)

    def placed(self, device: DeviceFacts) -> Iterator[Placed]:
        """Every launch on a GPU."""
        for variant, calls in self.launches.items():
            for call in calls:
                for launch in call.launches:
                    kernel = self.kernel(variant, launch.kernel)
                    block, limit = place(launch, kernel, device)
                    name = kernel.name if kernel else self.names.get(launch.kernel, launch.kernel)
                    symbol = kernel.symbol if kernel else launch.kernel
                    yield Placed(variant, call.workload, launch, short_name(name), symbol, block, limit)


def place(launch: KernelLaunch, kernel: KernelResources | None, device: DeviceFacts) -> tuple[Block, Resident]:
    """What a block of a launch asks for, and how many of it one multiprocessor holds; 0: it cannot be launched."""
    static = kernel.shared_bytes if kernel else launch.shared_static
    block = Block(launch.threads, kernel.registers if kernel else None, static + launch.shared)
    for what, sizes, limits in (("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return block, Resident(0, f"{what}.{axis} is {size:,}, not 1 to {limit:,}")
    return block, resident(block, device)


def placements(placed: Sequence[Placed], timed: Collection[str] = ()) -> tuple[Placement, ...]:
    """The shapes of launch among them, each once; `timed`: names of the workloads that are timed."""
    shapes: dict[tuple[object, ...], list[Placed]] = {}
    for launch in placed:
        shapes.setdefault((launch.variant, launch.symbol, launch.block, launch.held), []).append(launch)
    return tuple(
        Placement(
            variant=first.variant,
            kernel=first.name,
            symbol=first.symbol,
            threads=first.block.threads,
            shared_bytes=first.block.shared_bytes or 0,
            registers=first.block.registers,
            resident=first.held.blocks,
            limited_by=first.held.limited_by,
            workload=first.workload.name,
            workloads=len({launch.workload.name for launch in (first, *others)}),
            timed=any(launch.workload.name in timed for launch in (first, *others)),
        )
        for first, *others in shapes.values()
    )


def fillings(placed: Sequence[Placed], device: DeviceFacts, *, at_hand: bool) -> tuple[Occupancy, ...]:
    """For each variant and workload: how the launch with the most threads of that call fills the GPU."""
    calls: dict[tuple[str, str], list[Placed]] = {}
    for launch in placed:
        calls.setdefault((launch.variant, launch.workload.name), []).append(launch)
    every = []
    for launches in calls.values():
        largest = max(launches, key=lambda each: each.launch.blocks * each.launch.threads)
        items, name = largest.launch.blocks, largest.variant
        filling = filled(name, largest.workload, device.name, items, device.sms, largest.held, at_hand=at_hand)
        unknown = ("registers",) if largest.block.registers is None else ()
        if filling:
            every.append(filling.model_copy(update={"kernel": largest.name, "unknown": unknown}))
    return tuple(every)


class ParallelismTerms(Model):
    """Which GPU is reckoned with."""

    device: Text = "sm_89"
    """A GPU of the manifest's `devices`, where none of them is at hand."""


def parallelism(context: Context, arguments: ParallelismTerms) -> Working[ParallelismOutput]:
    """Every variant whose launch is told or declared, those for a GPU also where there is none."""
    yield from ()
    target, default = context.bench.target, arguments.device
    known = {filling.variant for filling in _told(context)}
    missing: list[str] = []
    fillings: list[Occupancy] = []
    for name, variant in target.variants.items():
        if getattr(variant, "launch", None) is None and name not in known:
            asked = name in context.task.variants
            missing += [f"parallelism of {name}: the manifest declares no launch"] if asked else []
        elif variant.device == "cuda" and _gpu_of(context, variant, default) is None:
            missing.append(f"parallelism of {name}: the manifest has no device {default}")
        device: Device = context.bench.device if variant.device == "any" else variant.device
        dtype = target.dtypes.get(device, variant.dtypes[0])
        for workload in expand(target, context.task.plan.workloads, dtype):
            filling = filling_of(context, name, workload, default) if accepts(variant, workload) else None
            fillings += [filling] if filling else []
    return Result(_output(fillings, missing))


def filling_of(context: Context, name: str, workload: Workload, default: str = "sm_89") -> Occupancy | None:
    """How far one launch fills its device; None without a launch, a known device, or work.

    What `kernel.resources` found of the same GPU earlier in the session stands before what the manifest declares.
    """
    variant = context.bench.target.variants[name]
    bench, launch, device = context.bench, getattr(variant, "launch", None), _gpu_of(context, variant, default)
    if device is not None:
        for filling in _told(context):
            if (filling.variant, filling.workload, filling.on) == (name, workload.name, device.name):
                return filling
    if launch is None or (device is None and variant.device == "cuda"):
        return None
    if device is None:
        return on_host(name, launch, workload, bench.threads, vector_lanes(), at_hand=bench.device == "cpu")
    here = bench.device == "cuda" and device == gpu_at_hand(context)
    return on_gpu(name, launch, workload, device, at_hand=here)


def _told(context: Context) -> Sequence[Occupancy]:
    """The launches that host code reported earlier in this session."""
    latest = context.latest("kernel.resources")
    fillings = ResourcesOutput.model_validate(latest, strict=False).fillings if latest else ()
    return [filling for filling in fillings if filling.kernel]


def _gpu_of(context: Context, variant: Variant, default: str) -> DeviceFacts | None:
    """The GPU that a variant is reckoned with; None for a variant that runs on the processor."""
    if variant.device == "cuda" or (variant.device == "any" and context.bench.device == "cuda"):
        return gpu_at_hand(context) or context.bench.target.devices.get(default)
    return None


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the GPU that the session runs on, by the environment's own check where it was made."""
    latest = context.latest("environment.device")
    if not latest:
        return context.bench.gpu
    device = DeviceOutput.model_validate(latest, strict=False)
    return at_hand(context.bench.target.devices, device.capability, device.name, device.facts)


def _output(fillings: Sequence[Occupancy], missing: Sequence[str]) -> ParallelismOutput:
    impossible = next((filling for filling in fillings if filling.resident == 0), None)
    parts, learned = [], []
    for name in dict.fromkeys(filling.variant for filling in fillings):
        own = [filling for filling in fillings if filling.variant == name]
        least, starved = min(own, key=lambda filling: filling.share), sum(filling.starved for filling in own)
        where = f"{name} on {least.on}{'' if least.at_hand else ', which is not at hand'}"
        if not starved:
            parts.append(f"{where}: filled on all of {len(own)} workloads")
            continue
        least_on = f"least on {least.workload} ({least.share:.0%})"
        parts.append(f"{where}: not filled on {starved} of {len(own)} workloads, {least_on}")
        learned.append(
            f"{name} has {say.count(least.items, 'piece')} of work for {least.units * least.resident} places of "
            f"{least.on} on {least.workload}: split the work further before anything smaller is optimised."
        )
    message = "; ".join(parts) or "no variant declares its launch"
    if impossible:
        what = f"{impossible.variant} cannot be launched on {impossible.on} for {impossible.workload}"
        message = f"{what}: {impossible.limited_by}"
    return ParallelismOutput(
        ok=not impossible,
        message=message,
        hint="fewer threads, registers or less shared memory a block" if impossible else None,
        not_exercised=tuple(missing),
        learned=tuple(learned),
        fillings=tuple(fillings),
        starved=tuple(dict.fromkeys(filling.variant for filling in fillings if filling.starved)),
        least_share=min((filling.share for filling in fillings), default=None),
    )
