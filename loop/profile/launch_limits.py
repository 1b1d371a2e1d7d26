"""Launches that host code told, joined with the compiler's report, against the limits of a GPU. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from loop.model.device import DeviceFacts
from loop.model.profile import Filling
from loop.model.resources import (
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    Placement,
    WorkloadLaunches,
    short_name,
)
from loop.model.target import Workload
from loop.profile.occupancy import Block, Resident, on_places, resident

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


def fillings(placed: Sequence[Placed], device: DeviceFacts, *, at_hand: bool) -> tuple[Filling, ...]:
    """Of each call how its largest launch, by threads, fills the GPU."""
    calls: dict[tuple[str, str], list[Placed]] = {}
    for one in placed:
        calls.setdefault((one.variant, one.workload.name), []).append(one)
    largest = [
        max(launches, key=lambda one: one.launch.blocks * one.launch.threads) for launches in calls.values()
    ]
    return tuple(filling for one in largest if (filling := _filling(one, device, at_hand)))


def _filling(one: Placed, device: DeviceFacts, at_hand: bool) -> Filling | None:
    found = on_places(one.variant, one.workload, device, one.launch.blocks, one.held, at_hand=at_hand)
    unknown = ("registers",) if one.block.registers is None else ()
    return found.model_copy(update={"kernel": one.name, "unknown": unknown}) if found else None
