"""What the report says of a GPU that need not be at hand: kernels by their compiler, launches, the roofline."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loop.model.profile import Occupancy
from loop.model.resources import KernelResources, Placement
from loop.profile.model import ResourcesOutput
from loop.report import format as say
from loop.report.markdown import Chapter, Column, Table

MOST_ROWS = 12
"""Kernels that are shown; those that are in trouble come first."""
NAMESPACE = re.compile(r"\w+::")
Group = tuple[str, KernelResources | None]
"""A kernel by its short name, and its compiler's report."""


NOTE = (
    "Shared memory and blocks are those of the launches that the host code makes; "
    "matrix instructions are counted in the innermost loop that has any."
)


def chapter(output: ResourcesOutput) -> Chapter | None:
    """What one GPU would do: kernels that the timed calls launch, and those that spill or do not fit."""
    if not (output.libraries or output.placements or output.fillings):
        return None
    rows = kernel_rows(output)
    left = len(rows) - MOST_ROWS
    lines = list(summary_lines(output))
    lines += [f"{say.count(left, 'more kernel')} of them not shown"] if left > 0 else []
    heads = (
        Column("Kernel"),
        Column("Registers", right=True),
        Column("Spilled", right=True),
        Column("Shared memory", right=True),
        Column("Blocks a multiprocessor", right=True),
        Column("Matrix instructions", right=True),
    )
    shown = tuple((row.name, *row.figures) for row in rows[:MOST_ROWS])
    title = f"What the kernels would do on {output.device_name or output.device}"
    return Chapter(title, tuple(lines), NOTE, Table(heads, shown) if shown else None, modelled=True)


def summary_lines(output: ResourcesOutput) -> tuple[str, ...]:
    """What the compiler's report comes to, and how the timed calls fill the GPU, a sentence each."""
    return _code(output), *_waves(output.fillings), *_bounds(output)


@dataclass(frozen=True)
class KernelRow:
    """One kernel, its figures as text."""

    name: str
    figures: tuple[str, str, str, str, str]
    """Registers, spilled bytes, shared memory, resident blocks, share of matrix instructions."""
    trouble: bool


def kernel_rows(output: ResourcesOutput) -> tuple[KernelRow, ...]:
    """Kernels that spill or cannot be launched, then those that timed calls launch; the journal has all."""
    groups = _groups(output)
    rows = [(_row(kernel, placed), any(one.timed for one in placed)) for (_, kernel), placed in groups.items()]
    chosen = [row for row, timed in rows if row.trouble or timed]
    common = _common_namespace([name for name, _ in groups])
    named = [replace(row, name=re.sub(rf"\b{common}", "", row.name)) for row in chosen]
    return tuple(sorted(named, key=lambda row: not row.trouble))


def _groups(output: ResourcesOutput) -> dict[Group, list[Placement]]:
    """Every kernel with its launches, once where several libraries hold the same; then those without a report."""
    left = list(output.placements)
    groups: dict[Group, list[Placement]] = {}
    for library in output.libraries:
        for kernel in library.kernels:
            mine = [one for one in left if one.symbol == kernel.symbol and one.variant in library.variants]
            left = [one for one in left if one not in mine]
            groups.setdefault((kernel.short, kernel), []).extend(mine)
    for one in left:
        groups.setdefault((one.kernel, None), []).append(one)
    return groups


def _common_namespace(names: Sequence[str]) -> str:
    """`tiny::` where all names begin with it."""
    first = {match[0] if (match := NAMESPACE.match(name)) else "" for name in names}
    return first.pop() if len(first) == 1 else ""


def _row(kernel: KernelResources | None, placed: Sequence[Placement]) -> KernelRow:
    static = kernel.shared_bytes if kernel else 0
    held = [one.resident for one in placed]
    figures = (
        "-" if kernel is None or kernel.registers is None else str(kernel.registers),
        "-" if kernel is None else f"{kernel.spill_bytes} B",
        _kib([one.shared_bytes for one in placed] or [static]),
        _range([str(min(held)), str(max(held))]) if held else "-",
        f"{100 * kernel.loop.share:.0f} %" if kernel and kernel.loop else "-",
    )
    name = kernel.short if kernel else placed[0].kernel
    return KernelRow(name, figures, bool((kernel and kernel.spill_bytes) or 0 in held))


def _kib(sizes: Sequence[int]) -> str:
    return f"{_range([f'{size / 1024:.3g}' for size in (min(sizes), max(sizes))])} KiB"


def _range(ends: Sequence[str]) -> str:
    """`3`, or `2 to 4`."""
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _code(output: ResourcesOutput) -> str:
    kernels = [one for library in output.libraries for one in library.kernels]
    if not kernels:
        return f"nothing was compiled for {output.device}: registers and spills are not known"
    entries = [one for one in kernels if one.entry]
    most = max(one.registers or 0 for one in entries) if entries else 0
    spilling = [one for one in kernels if one.spill_bytes]
    spills = (
        f"{len(spilling)} of them {'spills' if len(spilling) == 1 else 'spill'}" if spilling else "none spills"
    )
    return f"compiled for {output.device}: {say.count(len(entries), 'kernel')}, at most {most} registers, {spills}"


def _waves(fillings: Sequence[Occupancy]) -> Iterator[str]:
    for name in dict.fromkeys(one.variant for one in fillings):
        mine = [one for one in fillings if one.variant == name]
        full = sum(not one.starved for one in mine)
        waves = _range([say.significant(pick(one.waves for one in mine), 2) for pick in (min, max)])
        told = "" if mine[0].kernel else ", by the launch that the manifest declares"
        yield f"{name}: {waves} waves, filled on {full} of {say.count(len(mine), 'workload')}{told}"


def _bounds(output: ResourcesOutput) -> Iterator[str]:
    if output.bounds:
        times = sorted(one.us for one in output.bounds)
        least = _range([say.latency(times[0]), say.latency(times[-1])])
        bound = Counter(one.by for one in output.bounds)
        by = [f"{word} binds on {bound[word]}" for word in ("compute", "memory") if bound[word]]
        yield f"roofline: the least time of a call is {least}; {' and '.join(by)} of {len(times)}"
