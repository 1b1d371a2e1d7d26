"""Do compiled kernels keep their budgets? Which code a GPU would run, spills, limits, and the roofline. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from loop.base.expressions import Expression
from loop.model.device_profile import DeviceFacts
from loop.model.promises import ResourceBudget
from loop.model.resources import Bound, CompiledLibrary, KernelResources, Placement
from loop.model.target import Target, Workload
from loop.model.workloads import formula_values

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
    if target.flops is None or target.bytes is None or peak is None:
        return None
    values = formula_values(workload)
    flops, moved = (
        Expression.parse(t, arithmetic=True).evaluate_number(values) for t in (target.flops, target.bytes)
    )
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
