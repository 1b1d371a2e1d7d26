"""Does it keep the relations that need no reference? A variant computes, the judge holds its outputs together."""

from collections.abc import Generator, Sequence
from typing import Any

from loop.bench.room import Bench, Side
from loop.bench.verify import CALL_LIMIT_S
from loop.bench.worker import START_LIMIT_S, Refusal, Worker, WorkerLost
from loop.model.measurement import PropertyCheck
from loop.model.target import Workload
from loop.processes import Tick

MOST_CALLS = 64
"""Outputs that a property may ask for."""


def relate(
    bench: Bench, side: Side, properties: Sequence[str], workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[PropertyCheck, ...]]:
    """Try each property on each workload whose type the side takes. Raises LoopError when the judge is lost."""
    found: list[PropertyCheck] = []
    teller = Teller(bench, side)
    try:
        for workload in (one for one in workloads if one.dtype in side.dtypes):
            yield from bench.expect(workload)
            for name in properties:
                found.append((yield from teller.check(name, workload)))
    finally:
        teller.close()
    return tuple(found)


class Teller:
    """One side's worker. One that is lost is replaced; one that does not load is not tried again."""

    def __init__(self, bench: Bench, side: Side) -> None:
        self.bench, self.side = bench, side
        self.worker: Worker | None = None
        self.no_use = ""

    def check(self, name: str, workload: Workload) -> Generator[Tick, None, PropertyCheck]:
        """Try one property on one workload."""
        try:
            worker = yield from self._open()
            return (yield from _walk(self.bench, self.side, worker, name, workload))
        except WorkerLost as lost:
            self.close()
            return _check(self.side, name, workload, "failed", f"{lost} on {workload.name}")
        except Refusal as refusal:
            return _check(self.side, name, workload, "failed", f"{refusal} on {workload.name}")

    def _open(self) -> Generator[Tick, None, Worker]:
        if self.no_use:
            raise Refusal(self.no_use)
        if self.worker is None:
            self.worker = self.bench.open(self.side)
            try:
                yield from self.worker.receive(START_LIMIT_S, f"loading {self.side.name}")
            except Refusal as refusal:
                self.no_use = str(refusal)
                raise
        return self.worker

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.close()
        self.worker = None


def _walk(
    bench: Bench, side: Side, worker: Worker, name: str, workload: Workload
) -> Generator[Tick, None, PropertyCheck]:
    """Give the judge each output it asks for, until it has a finding."""
    note = f"{name} of {side.name} on {workload.name}"
    call = bench.call(workload, side.name).to_json()
    reply = yield from bench.judge(
        "relate", CALL_LIMIT_S, note, call=call, property=name, seed=workload.seed % 2**31
    )
    for _ in range(MOST_CALLS):
        if "call" not in reply:
            return _judged(side, name, workload, reply)
        computed = yield from worker.ask("call", limit_s=CALL_LIMIT_S, note=note, call=reply["call"])
        reply = yield from bench.judge("related", CALL_LIMIT_S, note, path=computed["outputs"][0])
    message = f"{name} asks for more than {MOST_CALLS} calls on {workload.name}"
    return _check(side, name, workload, "failed", message)


def _judged(side: Side, name: str, workload: Workload, finding: dict[str, Any]) -> PropertyCheck:
    if not finding["applies"]:
        return _check(side, name, workload, "inapplicable", f"does not apply to {workload.name}")
    if not finding["wrong"]:
        return _check(side, name, workload, "holds", f"off by {finding['largest']:.1e} at most")
    message = (
        f"{name} does not hold on {workload.name}: {finding['wrong']} of {finding['total']} elements, "
        f"off by up to {finding['largest']:.2g} (allowed {finding['allowed']:.1e})"
    )
    return _check(side, name, workload, "failed", message)


def _check(side: Side, name: str, workload: Workload, status: str, message: str) -> PropertyCheck:
    return PropertyCheck.model_validate(
        {"variant": side.name, "property": name, "workload": workload.name, "status": status, "message": message}
    )
