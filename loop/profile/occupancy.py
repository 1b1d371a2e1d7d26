"""Does a launch fill its device? Resident blocks by the limits of a multiprocessor, and places against work. Pure.

Rounding as in NVIDIA's occupancy calculator for compute capability 8.0 to 9.0.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loop.base.expressions import Expression
from loop.model.device import DeviceFacts
from loop.model.profile import Filling
from loop.model.target import CommandVariant, Launch, Target, Variant, Workload
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


def on_host(name: str, launch: Launch, workload: Workload, host: Host, *, at_hand: bool = True) -> Filling | None:
    """Pieces of work against threads; None for a workload without work. Raises ExpressionError."""
    values = {**formula_values(workload), "cores": host.cores, "lanes": host.lanes}
    items = whole(launch.blocks, values)
    on = f"{host.cores} thread{'s' if host.cores > 1 else ''}"
    return _filling(name, workload, on, at_hand, items, host.cores, Resident(1, "one piece a thread"))


def on_gpu(name: str, launch: Launch, workload: Workload, device: DeviceFacts, *, at_hand: bool) -> Filling | None:
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
) -> Filling | None:
    """Blocks against the places of a GPU whose multiprocessors hold so many; None without blocks."""
    return _filling(name, workload, device.name, at_hand, blocks, device.sms, held)


def whole(formula: int | str, values: Mapping[str, object]) -> int:
    """The value of a formula, rounded up. Raises ExpressionError where it has none."""
    if isinstance(formula, int):
        return formula
    return math.ceil(Expression.parse(formula, arithmetic=True).evaluate_number(values))


def _filling(
    name: str, workload: Workload, on: str, at_hand: bool, items: int, units: int, held: Resident
) -> Filling | None:
    if items <= 0:
        return None
    slots = units * held.blocks
    waves = items / slots if slots else 0.0
    return Filling(
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


def device_key(target: Target, capability: str | None, default: str) -> tuple[str, bool]:
    """The key of the GPU to reckon with in a target's table, and whether it is the one at hand."""
    key = f"sm_{capability.replace('.', '')}" if capability else ""
    return (key, True) if key in target.devices else (default, False)
