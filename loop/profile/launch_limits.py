"""Does a launch fill its device? What host code told, with the compiler's report, against a GPU's limits. Pure.

Rounding as in NVIDIA's occupancy calculator for compute capability 8.0 to 9.0.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loop.base.expressions import Expression
from loop.model.device_profile import DeviceFacts
from loop.model.profile import Occupancy
from loop.model.resources import (
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    Placement,
    WorkloadLaunches,
    short_name,
)
from loop.model.target import CommandVariant, Launch, Variant, Workload
from loop.model.workloads import formula_values

WARP = 32
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many."""
WARP_UNIT = 4
"""Warps that hold registers come in fours: one for each quarter of a multiprocessor."""
SHARED_UNIT, SHARED_RESERVED = 128, 1024
"""Bytes of shared memory are given in such units, and the system takes so many for each block."""
THREADS_PER_BLOCK = 1024
"""No GPU launches a block of more."""


@dataclass(frozen=True)
class Block:
    """What one block asks for; None is not known."""

    threads: int
    registers: int | None = None
    """Registers a thread."""
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
    limits = dict(_limits(block, device))
    limited_by = min(limits, key=lambda name: limits[name])
    known = {"registers": block.registers, "shared memory": block.shared_bytes}
    return Resident(limits[limited_by], limited_by, tuple(name for name, value in known.items() if value is None))


def _limits(block: Block, device: DeviceFacts) -> Iterator[tuple[str, int]]:
    warps = math.ceil(block.threads / WARP)
    yield "blocks a multiprocessor", device.blocks_per_sm
    yield "threads", device.threads_per_sm // (warps * WARP) if 1 <= block.threads <= THREADS_PER_BLOCK else 0
    if block.registers is not None:
        yield "registers", _by_registers(warps, block.registers, device)
    if block.shared_bytes is not None:
        yield "shared memory", _by_shared(block.shared_bytes, device)


def _by_registers(warps: int, registers: int, device: DeviceFacts) -> int:
    a_warp = _round_up(max(registers, 1) * WARP, REGISTER_UNIT)
    held = device.registers_per_sm // a_warp // WARP_UNIT * WARP_UNIT
    return held // warps if warps else 0


def _by_shared(wanted: int, device: DeviceFacts) -> int:
    if wanted > device.shared_per_block:
        return 0
    return device.shared_per_sm // _round_up(wanted + SHARED_RESERVED, SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Host:
    """The processor that CPU variants run on."""

    cores: int
    """Threads that a process may use."""
    lanes: int
    """Elements of type float32 in its widest vector."""


def launch_of(variant: Variant) -> Launch | None:
    """The launch shape that the manifest declares."""
    return None if isinstance(variant, CommandVariant) else variant.launch


def on_host(
    name: str, launch: Launch, workload: Workload, host: Host, *, at_hand: bool = True
) -> Occupancy | None:
    """Pieces of work against threads; None for a workload without work. Raises ExpressionError."""
    values = {**formula_values(workload), "cores": host.cores, "lanes": host.lanes}
    items = whole(launch.blocks, values)
    on = f"{host.cores} thread{'s' if host.cores > 1 else ''}"
    return _on(name, workload, on, at_hand, items, host.cores, Resident(1, "one piece a thread"))


def on_gpu(
    name: str, launch: Launch, workload: Workload, device: DeviceFacts, *, at_hand: bool
) -> Occupancy | None:
    """Blocks against places on a GPU; None for a workload without work. Raises ExpressionError."""
    values = formula_values(workload)
    asked = {field: getattr(launch, field) for field in ("registers", "shared_bytes")}
    block = Block(
        whole(launch.threads, values),
        **{field: None if value is None else whole(value, values) for field, value in asked.items()},
    )
    return on_places(
        name, workload, device, whole(launch.blocks, values), resident(block, device), at_hand=at_hand
    )


def on_places(
    name: str, workload: Workload, device: DeviceFacts, blocks: int, held: Resident, *, at_hand: bool
) -> Occupancy | None:
    """Blocks against the places of a GPU whose multiprocessors hold so many; None without blocks."""
    return _on(name, workload, device.name, at_hand, blocks, device.sms, held)


def whole(formula: int | str, values: Mapping[str, object]) -> int:
    """The value of a formula, rounded up. Raises ExpressionError where it has none."""
    if isinstance(formula, int):
        return formula
    return math.ceil(Expression.parse(formula, arithmetic=True).evaluate_number(values))


def _on(
    name: str, workload: Workload, on: str, at_hand: bool, items: int, units: int, held: Resident
) -> Occupancy | None:
    if items <= 0:
        return None
    slots = units * held.blocks
    waves = items / slots if slots else 0.0
    return Occupancy(
        variant=name,
        workload=workload.name,
        on=on,
        at_hand=at_hand,
        items=items,
        units=units,
        resident=held.blocks,
        limited_by=held.limited_by,
        share=min(1.0, waves),
        waves=waves,
        used=waves / math.ceil(waves) if waves else 0.0,
        unknown=held.unknown,
    )


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

    @property
    def shape(self) -> tuple[object, ...]:
        """What launches of one shape have in common."""
        return self.variant, self.symbol, self.block, self.held


@dataclass(kw_only=True)
class Reports:
    """What compilers and host code said of a target's kernels."""

    libraries: Sequence[CompiledLibrary] = ()
    told: dict[str, Sequence[WorkloadLaunches]] = field(default_factory=dict)
    """Variant to what its host code launches."""
    names: dict[str, str] = field(default_factory=dict)
    """Demangled names of the kernels launched."""

    def compiled(self, variant: str) -> bool:
        """Whether there is a compiler's report on a variant."""
        return any(variant in one.variants for one in self.libraries)

    def kernel(self, variant: str, symbol: str) -> KernelResources | None:
        """The compiler's report on a kernel that a variant launches: that of its name, whatever its linkage."""
        own = [
            kernel for one in self.libraries if variant in one.variants for kernel in one.kernels if kernel.entry
        ]
        name = self.names.get(symbol, symbol)
        return next((kernel for kernel in own if symbol == kernel.symbol or name == kernel.name), None)

    def unreported(self) -> Iterator[str]:
        """Kernels that are launched, and that the compiler's report on their variant does not have."""
        for variant, calls in self.told.items():
            symbols = dict.fromkeys(launch.kernel for call in calls for launch in call.launches)
            if self.compiled(variant):
                yield from (self.names.get(s, s) for s in symbols if self.kernel(variant, s) is None)

    def placed(self, device: DeviceFacts) -> Iterator[Placed]:
        """Every launch on a GPU."""
        for variant, calls in self.told.items():
            for call in calls:
                yield from (self._place(variant, call.workload, launch, device) for launch in call.launches)

    def _place(self, variant: str, workload: Workload, launch: KernelLaunch, device: DeviceFacts) -> Placed:
        kernel = self.kernel(variant, launch.kernel)
        block, held = place(launch, kernel, device)
        name = kernel.name if kernel else self.names.get(launch.kernel, launch.kernel)
        symbol = kernel.symbol if kernel else launch.kernel
        return Placed(variant, workload, launch, short_name(name), symbol, block, held)


def place(launch: KernelLaunch, kernel: KernelResources | None, device: DeviceFacts) -> tuple[Block, Resident]:
    """What a block of a launch asks for, and how many of it one multiprocessor holds; 0: it cannot be launched."""
    static = kernel.shared_bytes if kernel else launch.shared_static
    block = Block(launch.threads, kernel.registers if kernel else None, static + launch.shared)
    reason = _impossible(launch)
    return block, Resident(0, reason) if reason else resident(block, device)


def _impossible(launch: KernelLaunch) -> str:
    """The limit that every GPU sets to a launch and this one breaks; empty when it breaks none."""
    for what, sizes, limits in (("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return f"{what}.{axis} is {size:,}, not 1 to {limit:,}"
    return ""


def placements(placed: Sequence[Placed], timed: Collection[str] = ()) -> tuple[Placement, ...]:
    """The shapes of launch among them, each once; `timed`: names of the workloads that are timed."""
    shapes: dict[tuple[object, ...], list[Placed]] = {}
    for one in placed:
        shapes.setdefault(one.shape, []).append(one)
    return tuple(_placement(same, timed) for same in shapes.values())


def _placement(same: Sequence[Placed], timed: Collection[str]) -> Placement:
    first = same[0]
    return Placement(
        variant=first.variant,
        kernel=first.name,
        symbol=first.symbol,
        threads=first.block.threads,
        shared_bytes=first.block.shared_bytes or 0,
        registers=first.block.registers,
        resident=first.held.blocks,
        limited_by=first.held.limited_by,
        workload=first.workload.name,
        workloads=len({one.workload.name for one in same}),
        timed=any(one.workload.name in timed for one in same),
    )


def fillings(placed: Sequence[Placed], device: DeviceFacts, *, at_hand: bool) -> tuple[Occupancy, ...]:
    """Of each call how its largest launch, by threads, fills the GPU."""
    calls: dict[tuple[str, str], list[Placed]] = {}
    for one in placed:
        calls.setdefault((one.variant, one.workload.name), []).append(one)
    largest = [
        max(launches, key=lambda one: one.launch.blocks * one.launch.threads) for launches in calls.values()
    ]
    return tuple(filling for one in largest if (filling := _filling(one, device, at_hand)))


def _filling(one: Placed, device: DeviceFacts, at_hand: bool) -> Occupancy | None:
    found = on_places(one.variant, one.workload, device, one.launch.blocks, one.held, at_hand=at_hand)
    unknown = ("registers",) if one.block.registers is None else ()
    return found.model_copy(update={"kernel": one.name, "unknown": unknown}) if found else None
