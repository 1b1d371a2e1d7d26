"""What kernels take, whether they keep their budgets, and what the host code of a variant launches."""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from loop.base.processes import Tick
from loop.calls.call import Terms
from loop.model.measurement import Build
from loop.model.promises import ResourceBudget
from loop.model.resources import CompiledLibrary, KernelLaunch, KernelResources, Placement, WorkloadLaunches
from loop.model.target import CAbiVariant, Target, Workload
from loop.model.workloads import accepts, expand
from loop.workers.bench import Bench
from loop.workers.messages import Launches
from loop.workers.program import Refusal, WorkerLost
from loop.workers.worker import Worker

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")


def runs_on(code: str, device: str) -> bool:
    """Whether a GPU runs machine code of that architecture: its own major number, no higher minor one.

    `sm_90a` runs on `sm_90` alone, `sm_100f` on its family.
    """
    code_match, there = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not code_match or not there or code_match[1] != there[1]:
        return False
    return code_match[2] == there[2] if code_match[3] == "a" else int(code_match[2]) <= int(there[2])


def code_for(kernels: Sequence[KernelResources], device: str) -> tuple[KernelResources, ...]:
    """Of code for several architectures that which the GPU takes: the nearest to its own."""
    fitting = {
        (int(match[2]), match[3]): kernel.architecture
        for kernel in kernels
        if runs_on(kernel.architecture, device) and (match := ARCHITECTURE.match(kernel.architecture))
    }
    nearest = fitting[max(fitting)] if fitting else None
    return tuple(kernel for kernel in kernels if kernel.architecture == nearest)


def budget_of(name: str, budgets: Iterable[ResourceBudget]) -> ResourceBudget | None:
    """The first budget that is meant for a kernel."""
    return next((budget for budget in budgets if budget.fits(name)), None)


def spilling(library: CompiledLibrary, budgets: Sequence[ResourceBudget]) -> Iterator[tuple[KernelResources, int]]:
    """Kernels that spill more than they may, and what they may. Without a budget that is nothing."""
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        allowed = budget.spill_bytes if budget else 0
        if kernel.spill_bytes > allowed:
            yield kernel, allowed


def broken(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Every budget that is not kept, a line each; also one that fits no kernel, for nothing keeps it."""
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        if own is None:
            continue
        placed = [placement for placement in placements if placement.symbol == kernel.symbol]
        shared = max((placement.shared_bytes for placement in placed), default=kernel.shared_bytes)
        limits = {
            "registers": (kernel.registers, own.registers),
            "bytes of stack": (kernel.stack_bytes, own.stack_bytes),
            "bytes of shared memory": (shared, own.shared_bytes),
        }
        for what, (takes, most) in limits.items():
            if most is not None and takes is not None and takes > most:
                yield f"{kernel.short}: {takes} {what}, budget {most}"
        fewest = min((placement.resident for placement in placed), default=None)
        if own.blocks_per_sm is not None and fewest is not None and fewest < own.blocks_per_sm:
            yield f"{kernel.short}: {fewest} blocks a multiprocessor, budget {own.blocks_per_sm} at least"
    for budget in budgets:
        if not any(budget.fits(kernel.name) for kernel in library.kernels):
            yield f"the budget for {budget.kernel!r} fits no kernel of {', '.join(library.variants)}"


def unchecked(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Kernels whose budget needs a launch, and that no known workload launches."""
    placed = {placement.symbol for placement in placements}
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        needs_launch = budget is not None and (budget.blocks_per_sm or budget.shared_bytes is not None)
        if needs_launch and kernel.entry and kernel.symbol not in placed:
            yield kernel.short


LIMIT_S = 20.0
"""For one call: nothing is computed."""


def ask_launches(
    bench: Bench, build: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """What each workload launches, told by the host code in a dry run; `build` is the variant's emulated one.

    An error that the variant returns concerns one workload. When the library cannot be asked at all, or crashes or
    hangs, the workload at which that shows is the last of the answer.
    """
    calls: list[WorkloadLaunches] = []
    terms = bench.side(build.variant, build).terms
    path = bench.scratch / f"launches-{build.variant}.jsonl"
    path.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            calls.append((yield from _ask(bench, worker, terms, path, workload)))
            if calls[-1].status == "lost":
                break
    return tuple(calls)


def _ask(
    bench: Bench, worker: Worker, terms: Terms, path: Path, workload: Workload
) -> Generator[Tick, None, WorkloadLaunches]:
    request = Launches(terms, str(path), bench.call(workload, "dry"))
    note, known = f"launches of {workload.name}", KernelLaunch.model_fields
    try:
        reply = yield from worker.ask(request, limit_s=LIMIT_S, note=note)
        records = [record for record in reply.launches if "remark" not in record]
        launches = tuple(
            KernelLaunch.model_validate({name: record[name] for name in known if name in record})
            for record in records
        )
    except (Refusal, WorkerLost) as error:
        return WorkloadLaunches(workload=workload, status="lost", why=str(error))
    except ValidationError as error:
        why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
        return WorkloadLaunches(workload=workload, status="lost", why=why)
    status = "declined" if reply.declined else "told"
    return WorkloadLaunches(workload=workload, status=status, launches=launches, why=reply.declined)


def shape_of(workload: Workload) -> str:
    """What a launch may depend on, not the values: `float16 B=1 causal=True`."""
    return " ".join(
        [workload.dtype, *(f"{name}={value}" for name, value in (workload.sizes | workload.attributes).items())]
    )


def calls_of(target: Target, variant: CAbiVariant) -> list[Workload]:
    """Every shape of the target's workloads in every type of a variant."""
    every = [workload for dtype in variant.dtypes for workload in expand(target, target.workloads, dtype)]
    return [*{shape_of(workload): workload for workload in every if accepts(variant, workload)}.values()]
