"""Does a launch fill its device? Occupancy of a GPU, and pieces of work per thread.

Rounding as in NVIDIA's occupancy calculator for compute capability 8.0 to 9.0.
"""

import math
from collections.abc import Mapping, Sequence

from loop.base.expressions import Expression
from loop.gate.model import DeviceOutput
from loop.machine.machine import vector_lanes
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.plan import Text
from loop.model.profile import DeviceFacts, Occupancy, facts_of_present_gpu
from loop.model.resources import KernelLaunch, Placement
from loop.model.target import Launch, Variant, Workload
from loop.model.workloads import expand_sets, is_supported
from loop.profile.model import ParallelismOutput, ResourcesOutput
from loop.report import format as say
from loop.steps.context import Context, Result, RunningAction

WARP = 32
REGISTER_UNIT = 256
"""Registers are allocated to a warp in units of this size."""
WARP_UNIT = 4
"""Resident warps come in multiples of four, one for each quarter of a multiprocessor."""
SHARED_UNIT, SHARED_RESERVED = 128, 1024
"""Allocation unit of shared memory in bytes, and bytes that the system reserves for each block."""
THREADS_PER_BLOCK = 1024
"""Most threads in a block on any GPU."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Most blocks along x, y, z (CUDA C++ programming guide, technical specifications)."""
BLOCK_LIMITS = (1024, 1024, 64)
"""Most threads of a block along x, y, z, from the same table."""

Held = tuple[int, str]
"""Resident blocks per multiprocessor, and the resource that limits them."""
Placed = tuple[KernelLaunch, Placement]
"""One launch of a call, and its occupancy on the GPU."""


def resident(
    device: DeviceFacts, threads: int, registers: int | None = None, shared_bytes: int | None = None
) -> Held:
    """Resident blocks per multiprocessor, and their limit; a resource of None does not limit."""
    warps = math.ceil(threads / WARP)
    limits = {"blocks a multiprocessor": device.blocks_per_sm, "threads": 0}
    if 1 <= threads <= THREADS_PER_BLOCK:
        limits["threads"] = device.threads_per_sm // (warps * WARP)
        if registers is not None:
            a_warp = _round_up(max(registers, 1) * WARP, REGISTER_UNIT)
            warps_held = device.registers_per_sm // a_warp // WARP_UNIT * WARP_UNIT
            limits["registers"] = warps_held // warps
    if shared_bytes is not None:
        bytes_held = _round_up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
        fits = shared_bytes <= device.shared_per_block
        limits["shared memory"] = device.shared_per_sm // bytes_held if fits else 0
    limited_by = min(limits, key=lambda name: limits[name])
    return limits[limited_by], limited_by


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def blocks_held(launch: KernelLaunch, registers: int | None, shared_bytes: int, device: DeviceFacts) -> Held:
    """Resident blocks of a launch on one multiprocessor; 0 with a reason: it cannot be launched."""
    for what, sizes, limits in (("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return 0, f"{what}.{axis} is {size:,}, not 1 to {limit:,}"
    return resident(device, launch.threads, registers, shared_bytes)


def fill_of_launch(
    variant: str, workload: str, on: str, items: int, units: int, held: Held, **facts: object
) -> Occupancy | None:
    """How `items` blocks fill `units` processors of `held` blocks each; None for no items. `variant`, `workload`
    and `on` label the result. `facts`: further fields of `Occupancy`."""
    if items <= 0:
        return None
    blocks, limited_by = held
    slots = units * blocks
    waves = items / slots if slots else 0.0
    known = {"variant": variant, "workload": workload, "on": on, "items": items, "units": units}
    figures = {"share": min(1.0, waves), "waves": waves, "used": waves / math.ceil(waves) if waves else 0.0}
    return Occupancy.model_validate({**known, "resident": blocks, "limited_by": limited_by, **figures, **facts})


def declared_filling(
    name: str, launch: Launch, workload: Workload, device: DeviceFacts | int, *, at_hand: bool
) -> Occupancy | None:
    """How the manifest's launch fills a GPU or `device` processor threads; None: no work. Raises ExpressionError
    for a formula without a value."""
    values = workload.formula_values
    if isinstance(device, int):
        items = rounded_up(launch.blocks, {**values, "cores": device, "lanes": vector_lanes()})
        on, held = say.count(device, "thread"), (1, "one piece a thread")
        return fill_of_launch(name, workload.name, on, items, device, held, at_hand=at_hand)
    takes = {"registers": launch.registers, "shared memory": launch.shared_bytes}
    unknown = tuple(what for what, formula in takes.items() if formula is None)
    known = [None if formula is None else rounded_up(formula, values) for formula in takes.values()]
    held = resident(device, rounded_up(launch.threads, values), *known)
    items = rounded_up(launch.blocks, values)
    return fill_of_launch(
        name, workload.name, device.name, items, device.sms, held, at_hand=at_hand, unknown=unknown
    )


def rounded_up(formula: int | str, values: Mapping[str, object]) -> int:
    """The value of a formula, rounded up. Raises ExpressionError if it has no value."""
    if isinstance(formula, int):
        return formula
    return math.ceil(Expression.parse(formula).evaluate_number(values))


def fillings(placed: Sequence[Placed], device: DeviceFacts, *, at_hand: bool) -> list[Occupancy]:
    """For each variant and workload: how its largest launch (by threads) fills the GPU."""
    calls: dict[tuple[str, str], list[Placed]] = {}
    for launch, placement in placed:
        calls.setdefault((placement.variant, placement.workload), []).append((launch, placement))
    every = []
    for (variant, workload), launches in calls.items():
        launch, largest = max(launches, key=lambda each: each[0].blocks * each[0].threads)
        held = largest.resident, largest.limited_by
        facts = {"kernel": largest.kernel, "unknown": ("registers",) if largest.registers is None else ()}
        filling = fill_of_launch(
            variant, workload, device.name, launch.blocks, device.sms, held, at_hand=at_hand, **facts
        )
        every += [filling] if filling else []
    return every


class ParallelismTerms(Model):
    """Parameters of `kernel.parallelism`."""

    device: Text = "sm_89"
    """A GPU of the manifest's `devices`, used if no GPU is at hand."""


def parallelism(context: Context, arguments: ParallelismTerms) -> RunningAction[ParallelismOutput]:
    """Compute how each reported or declared launch fills its device; works without a GPU."""
    yield from ()
    target, default = context.bench.target, arguments.device
    known = {filling.variant for filling in _reported_occupancies(context)}
    missing: list[str] = []
    every: list[Occupancy] = []
    for name, variant in target.variants.items():
        if getattr(variant, "launch", None) is None and name not in known:
            is_asked = name in context.task.variants
            missing += [f"parallelism of {name}: the manifest declares no launch"] if is_asked else []
        elif variant.device == "cuda" and _gpu_of(context, variant, default) is None:
            missing.append(f"parallelism of {name}: the manifest has no device {default}")
        device: Device = context.bench.device if variant.device == "any" else variant.device
        dtype = target.dtypes.get(device, variant.dtypes[0])
        for workload in expand_sets(target, context.task.plan.workloads, dtype):
            filling = filling_of(context, name, workload, default) if is_supported(variant, workload) else None
            every += [filling] if filling else []
    return Result(_output(every, missing))


def filling_of(context: Context, name: str, workload: Workload, default: str = "sm_89") -> Occupancy | None:
    """How a variant's launch fills its device; None without a launch, a known device, or work. A launch that
    `kernel.resources` reported earlier takes precedence over the manifest."""
    bench, variant = context.bench, context.bench.target.variants[name]
    launch, device = getattr(variant, "launch", None), _gpu_of(context, variant, default)
    for filling in _reported_occupancies(context) if device is not None else ():
        if (filling.variant, filling.workload, filling.on) == (name, workload.name, device.name if device else ""):
            return filling
    if launch is None or (device is None and variant.device == "cuda"):
        return None
    if device is None:
        return declared_filling(name, launch, workload, bench.threads, at_hand=bench.device == "cpu")
    is_here = bench.device == "cuda" and device == gpu_at_hand(context)
    return declared_filling(name, launch, workload, device, at_hand=is_here)


def _reported_occupancies(context: Context) -> Sequence[Occupancy]:
    """Occupancies from launches that host code reported earlier in this session."""
    reported = context.latest_output("kernel.resources", ResourcesOutput)
    return [filling for filling in reported.fillings if filling.kernel] if reported else []


def _gpu_of(context: Context, variant: Variant, default: str) -> DeviceFacts | None:
    """Facts of the GPU to compute a variant's occupancy for; None if it runs on the processor."""
    if variant.device == "cuda" or (variant.device == "any" and context.bench.device == "cuda"):
        return gpu_at_hand(context) or context.bench.target.devices.get(default)
    return None


def gpu_at_hand(context: Context) -> DeviceFacts | None:
    """Facts of the session's GPU, from `environment.device` if that step ran; None: no GPU."""
    device = context.latest_output("environment.device", DeviceOutput)
    if device is None:
        return context.bench.gpu
    return facts_of_present_gpu(context.bench.target.devices, device.capability, device.name, device.facts)


def _output(fillings: Sequence[Occupancy], missing: Sequence[str]) -> ParallelismOutput:
    """Result of `kernel.parallelism`; not ok if some launch does not fit its GPU."""
    parts, learned = [], []
    for name in dict.fromkeys(filling.variant for filling in fillings):
        own = [filling for filling in fillings if filling.variant == name]
        least, starved = (
            min(own, key=lambda filling: filling.share),
            sum(filling.has_empty_slots for filling in own),
        )
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
    impossible = next((filling for filling in fillings if filling.resident == 0), None)
    return ParallelismOutput(
        ok=not impossible,
        message=cannot_launch(impossible) if impossible else message,
        hint="fewer threads, registers or less shared memory a block" if impossible else None,
        not_exercised=tuple(missing),
        learned=tuple(learned),
        fillings=tuple(fillings),
        starved=tuple(dict.fromkeys(filling.variant for filling in fillings if filling.has_empty_slots)),
        least_share=min((filling.share for filling in fillings), default=None),
    )


def cannot_launch(filling: Occupancy) -> str:
    """Message for a launch that the GPU refuses."""
    what = f"{filling.kernel or filling.variant} cannot be launched on {filling.on} for {filling.workload}"
    return f"{what}: {filling.limited_by}"
