"""Which kernels a call launches, in what shape: asked of the host code, in a dry run of its emulated build.

So no launch has to be declared by hand, and none can be declared wrong.
"""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loop.base.processes import Tick
from loop.calls.call import Terms
from loop.model.measurement import Build
from loop.model.resources import KernelLaunch, WorkloadLaunches
from loop.model.target import Workload
from loop.workers.bench import Bench
from loop.workers.program import Refusal, WorkerLost
from loop.workers.worker import Worker
from loop.workers.worker_messages import Launches

LIMIT_S = 20.0
"""For one call: nothing is computed."""


def ask_launches(
    bench: Bench, made: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """What each workload launches; `made` is the variant's emulated build.

    An error that the variant returns concerns one workload. When the library cannot be asked at all, or crashes or
    hangs, the workload at which that shows is the last of the answer.
    """
    found: list[WorkloadLaunches] = []
    terms = bench.side(made.variant, made).terms
    told = bench.scratch / f"launches-{made.variant}.jsonl"
    told.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            found.append((yield from _ask(bench, worker, terms, told, workload)))
            if found[-1].status == "lost":
                break
    return tuple(found)


def _ask(
    bench: Bench, worker: Worker, terms: Terms, told: Path, workload: Workload
) -> Generator[Tick, None, WorkloadLaunches]:
    request = Launches(terms, str(told), bench.call(workload, "dry"))
    note = f"launches of {workload.name}"
    try:
        reply = yield from worker.ask(request, limit_s=LIMIT_S, note=note)
        launches = tuple(_launch(one) for one in reply.launches)
    except Refusal as refusal:
        return WorkloadLaunches(workload=workload, status="lost", why=str(refusal))
    except WorkerLost as lost:
        return WorkloadLaunches(workload=workload, status="lost", why=str(lost))
    except ValidationError as error:
        why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
        return WorkloadLaunches(workload=workload, status="lost", why=why)
    status = "declined" if reply.declined else "told"
    return WorkloadLaunches(workload=workload, status=status, launches=launches, why=reply.declined)


def _launch(told: dict[str, Any]) -> KernelLaunch:
    """A launch as an emulator tells it; what else it knows, of bank conflicts say, is left out."""
    return KernelLaunch.model_validate({name: told[name] for name in KernelLaunch.model_fields if name in told})
