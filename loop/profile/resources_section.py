"""What the report says of a GPU that need not be at hand: kernels by their compiler, and launches."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loop.model.profile import Occupancy
from loop.model.resources import KernelResources, Placement
from loop.profile.model import ResourcesOutput
from loop.report import format as say
from loop.report.markdown import Column, Table
from loop.report.sections import Section

MOST_ROWS = 12
"""Kernels that are shown; those that are in trouble come first."""
NAMESPACE = re.compile(r"\w+::")
Group = tuple[str, KernelResources | None]
"""A kernel by its short name, and its compiler's report."""


NOTE = "Shared memory and blocks are those of the launches that the host code makes."


def section(output: ResourcesOutput) -> Section | None:
    """What one GPU would do: kernels that the timed calls launch, and those that spill or do not fit."""
    if not (output.libraries or output.placements or output.fillings):
        return None
    rows = kernel_rows(output)
    hidden = len(rows) - MOST_ROWS
    lines = list(summary_lines(output))
    lines += [f"{say.count(hidden, 'more kernel')} of them not shown"] if hidden > 0 else []
    heads = (
        Column("Kernel"),
        Column("Registers", right=True),
        Column("Spilled", right=True),
        Column("Shared memory", right=True),
        Column("Blocks a multiprocessor", right=True),
    )
    shown = tuple((row.name, *row.figures) for row in rows[:MOST_ROWS])
    title = f"What the kernels would do on {output.device_name or output.device}"
    table = Table(heads, shown) if shown else None
    return Section(title, tuple(lines), table, note=NOTE if table else "", modelled=True)


def summary_lines(output: ResourcesOutput) -> tuple[str, ...]:
    """What the compiler's report comes to, and how the timed calls fill the GPU, a sentence each."""
    return _code(output), *_waves(output.fillings)


@dataclass(frozen=True)
class KernelRow:
    """One kernel, its figures as text."""

    name: str
    figures: tuple[str, str, str, str]
    """Registers, spilled bytes, shared memory, resident blocks."""
    trouble: bool


def kernel_rows(output: ResourcesOutput) -> tuple[KernelRow, ...]:
    """Kernels that spill or cannot be launched, then those that timed calls launch; the journal has all."""
    groups = _groups(output)
    rows = [
        (_row(kernel, placed), any(launch.timed for launch in placed)) for (_, kernel), placed in groups.items()
    ]
    chosen = [row for row, timed in rows if row.trouble or timed]
    begins = {match[0] if (match := NAMESPACE.match(name)) else "" for name, _ in groups}
    common = begins.pop() if len(begins) == 1 else ""
    named = [replace(row, name=re.sub(rf"\b{common}", "", row.name)) for row in chosen]
    return tuple(sorted(named, key=lambda row: not row.trouble))


def _groups(output: ResourcesOutput) -> dict[Group, list[Placement]]:
    """Every kernel with its launches, once where several libraries hold it; then launches without a report."""
    placements = list(output.placements)
    groups: dict[Group, list[Placement]] = {}
    for library in output.libraries:
        for kernel in library.kernels:
            mine = [
                placement
                for placement in placements
                if placement.symbol == kernel.symbol and placement.variant in library.variants
            ]
            placements = [placement for placement in placements if placement not in mine]
            groups.setdefault((kernel.short, kernel), []).extend(mine)
    for placement in placements:
        groups.setdefault((placement.kernel, None), []).append(placement)
    return groups


def _row(kernel: KernelResources | None, placed: Sequence[Placement]) -> KernelRow:
    shared = [launch.shared_bytes for launch in placed] or [kernel.shared_bytes if kernel else 0]
    residents = [launch.resident for launch in placed]
    figures = (
        "-" if kernel is None or kernel.registers is None else str(kernel.registers),
        "-" if kernel is None else f"{kernel.spill_bytes} B",
        f"{_range([f'{size / 1024:.3g}' for size in (min(shared), max(shared))])} KiB",
        _range([str(min(residents)), str(max(residents))]) if residents else "-",
    )
    name = kernel.short if kernel else placed[0].kernel
    return KernelRow(name, figures, bool((kernel and kernel.spill_bytes) or 0 in residents))


def _range(ends: Sequence[str]) -> str:
    """`3`, or `2 to 4`."""
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _code(output: ResourcesOutput) -> str:
    kernels = [kernel for library in output.libraries for kernel in library.kernels]
    if not kernels:
        return f"nothing was compiled for {output.device}: registers and spills are not known"
    entries = [kernel for kernel in kernels if kernel.entry]
    most = max(kernel.registers or 0 for kernel in entries) if entries else 0
    spilling = [kernel for kernel in kernels if kernel.spill_bytes]
    spills = (
        f"{len(spilling)} of them {'spills' if len(spilling) == 1 else 'spill'}" if spilling else "none spills"
    )
    return f"compiled for {output.device}: {say.count(len(entries), 'kernel')}, at most {most} registers, {spills}"


def _waves(fillings: Sequence[Occupancy]) -> Iterator[str]:
    for name in dict.fromkeys(filling.variant for filling in fillings):
        mine = [filling for filling in fillings if filling.variant == name]
        full = sum(not filling.starved for filling in mine)
        waves = _range([say.significant(pick(filling.waves for filling in mine), 2) for pick in (min, max)])
        source = "" if mine[0].kernel else ", by the launch that the manifest declares"
        yield f"{name}: {waves} waves, filled on {full} of {say.count(len(mine), 'workload')}{source}"
