"""Does it keep the relations that need no reference? A variant computes, the judge holds its outputs together."""

from collections.abc import Generator, Sequence

from loop.base.processes import Tick
from loop.calls.call import Call
from loop.gate.verify import CALL_LIMIT_S, files_of
from loop.model.measurement import PropertyCheck
from loop.model.target import Signature, Workload
from loop.model.workloads import accepts, unsupported
from loop.workers.bench import Bench, Side
from loop.workers.judge_messages import Agreement, GiveOutput, Relate
from loop.workers.kept import KeptWorker
from loop.workers.program import Refusal, WorkerLost
from loop.workers.worker_messages import Compute

MOST_CALLS = 64
"""Outputs that a property may ask for."""


def relate(
    bench: Bench, side: Side, properties: Sequence[str], workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[PropertyCheck, ...]]:
    """Try each property on each workload whose type the side takes. Raises LoopError when the judge is lost."""
    found: list[PropertyCheck] = []
    worker = KeptWorker(bench, side)
    try:
        for workload in (one for one in workloads if accepts(side, one)):
            yield from bench.expect(workload)
            for name in properties:
                found.append((yield from _try(worker, name, workload)))
    finally:
        worker.close()
    return tuple(found)


def _try(worker: KeptWorker, name: str, workload: Workload) -> Generator[Tick, None, PropertyCheck]:
    """One property on one workload."""
    try:
        return (yield from _walk(worker, name, workload))
    except (WorkerLost, Refusal) as failure:
        return _check(worker.side, name, workload, "failed", f"{failure} on {workload.name}")


def _walk(worker: KeptWorker, name: str, workload: Workload) -> Generator[Tick, None, PropertyCheck]:
    """Give the judge each output it asks for, until it has a finding."""
    bench, side = worker.bench, worker.side
    yield from worker.load()
    note = f"{name} of {side.name} on {workload.name}"
    begin = Relate(bench.call(workload, side.name), name, workload.seed % 2**31)
    reply = yield from bench.judge(begin, CALL_LIMIT_S, note)
    for _ in range(MOST_CALLS):
        call = reply.call
        if call is None:
            return _judged(side, name, workload, reply.agreement)
        asked = asked_for(bench.target.signature, workload, call)
        if unsupported(side, asked):
            return _check(side, name, workload, "inapplicable", f"asks for {asked.name}, which is not supported")
        computed = yield from worker.ask(Compute(call), limit_s=CALL_LIMIT_S, note=note)
        reply = yield from bench.judge(GiveOutput(files_of(call, computed)[0]), CALL_LIMIT_S, note)
    message = f"{name} asks for more than {MOST_CALLS} calls on {workload.name}"
    return _check(side, name, workload, "failed", message)


def asked_for(signature: Signature, workload: Workload, call: Call) -> Workload:
    """The workload that a call of a property stands for: its shapes and attributes may be others."""
    texts = zip(signature.inputs.values(), call.inputs, strict=True)
    sizes = {name: size for text, one in texts for name, size in zip(text.split(), one.shape, strict=True)}
    words = " ".join(f"{name}{size}" for name, size in sizes.items())
    changes = {"name": words, "sizes": {**workload.sizes, **sizes}, "attributes": call.attributes}
    return workload.model_copy(update=changes)


def _judged(side: Side, name: str, workload: Workload, finding: Agreement | None) -> PropertyCheck:
    if finding is None:
        return _check(side, name, workload, "inapplicable", f"does not apply to {workload.name}")
    if not finding.wrong:
        return _check(side, name, workload, "holds", f"off by {finding.largest:.1e} at most")
    message = (
        f"{name} does not hold on {workload.name}: {finding.wrong} of {finding.total} elements, "
        f"off by up to {finding.largest:.2g} (allowed {finding.allowed:.1e})"
    )
    return _check(side, name, workload, "failed", message)


def _check(side: Side, name: str, workload: Workload, status: str, message: str) -> PropertyCheck:
    return PropertyCheck.model_validate(
        {"variant": side.name, "property": name, "workload": workload.name, "status": status, "message": message}
    )
