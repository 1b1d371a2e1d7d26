"""Is it right? A variant computes in its own process, the judge compares in another."""

from collections.abc import Generator, Sequence
from typing import Any

from loop.bench.room import JUDGE_LIMIT_S, Bench, Side
from loop.bench.worker import START_LIMIT_S, Refusal, Worker, WorkerLost
from loop.model.measurement import Check, Mismatch, VariantChecks
from loop.model.target import Workload
from loop.processes import Tick

CALL_LIMIT_S = 20.0
"""A call that has not come back by then hangs."""


def verify(
    bench: Bench, jobs: Sequence[tuple[Side, Sequence[Workload]]]
) -> Generator[Tick, None, tuple[VariantChecks, ...]]:
    """Check each side on those of its workloads whose type it takes. Raises LoopError when the judge is lost.

    All workers are started first: their imports go on while the judge works out the first answers.
    """
    checkers = [Checker(bench, side, {workload.name for workload in workloads}) for side, workloads in jobs]
    try:
        for checker in checkers:
            checker.start()
        for workload in {workload.name: workload for _, workloads in jobs for workload in workloads}.values():
            yield from bench.expect(workload)
            for checker in checkers:
                if checker.concerns(workload):
                    yield from checker.check(workload)
    finally:
        for checker in checkers:
            checker.close()
    return tuple(checker.checks for checker in checkers)


class Checker:
    """One side's worker and what was found of it so far. A worker that was lost is replaced."""

    def __init__(self, bench: Bench, side: Side, names: set[str]) -> None:
        self.bench, self.side, self.names = bench, side, names
        self.worker: Worker | None = None
        self.loaded = False
        self.found: list[Check] = []

    @property
    def checks(self) -> VariantChecks:
        """What was found so far."""
        return VariantChecks(variant=self.side.name, build_id=self.side.build_id, checks=tuple(self.found))

    def concerns(self, workload: Workload) -> bool:
        """Whether this side is to be checked on a workload."""
        return workload.name in self.names and workload.dtype in self.side.dtypes

    def check(self, workload: Workload) -> Generator[Tick, None, None]:
        """Add one check."""
        try:
            self.found.append((yield from self._compute(workload)))
        except WorkerLost as lost:
            self.close()
            self.found.append(_unusable(workload, lost.kind, f"{lost.how} on {workload.name}"))
        except Refusal as refusal:
            self.found.append(_unusable(workload, "refused", f"{refusal} on {workload.name}"))

    def _compute(self, workload: Workload) -> Generator[Tick, None, Check]:
        call = self.bench.call(workload, self.side.name).to_json()
        note = f"{self.side.name} on {workload.name}"
        worker = yield from self._open()
        reply = yield from worker.ask("call", limit_s=CALL_LIMIT_S, note=note, call=call)
        finding = yield from self.bench.judge("compare", JUDGE_LIMIT_S, note, call=call)
        return _judged(self.side, workload, reply, finding)

    def _open(self) -> Generator[Tick, None, Worker]:
        worker = self.start()
        if not self.loaded:
            try:
                yield from worker.receive(START_LIMIT_S, f"loading {self.side.name}")
            except Refusal:
                self.close()
                raise
            self.loaded = True
        return worker

    def start(self) -> Worker:
        """Start the worker, unless it runs; it loads the side while we go on."""
        if self.worker is None:
            self.worker, self.loaded = self.bench.open(self.side), False
        return self.worker

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.close()
        self.worker = None


def _unusable(workload: Workload, status: str, message: str) -> Check:
    return Check.model_validate({"workload": workload, "status": status, "message": message})


def _judged(side: Side, workload: Workload, reply: dict[str, Any], finding: dict[str, Any]) -> Check:
    repeats = len(set(reply["digests"])) == 1
    worst, first = (_mismatch(finding.get(key)) for key in ("worst", "first"))
    if finding["wrong"] and worst is not None:
        message = (
            f"{finding['wrong']} of {finding['total']} elements wrong on {workload.name}; worst {where(worst)}"
        )
    elif finding["message"]:
        message = f"{finding['message']} on {workload.name}"
    elif side.deterministic and not repeats:
        message = f"the same inputs gave two different outputs on {workload.name}"
    else:
        message = ""
    return Check(
        workload=workload,
        status="wrong" if message else "right",
        message=message or f"largest error {finding['max_error']:.1e}",
        max_error=finding["max_error"],
        plain_max_error=finding["plain_max_error"],
        wrong=finding["wrong"],
        total=finding["total"],
        worst=worst,
        first=first,
    )


def _mismatch(found: dict[str, Any] | None) -> Mismatch | None:
    return Mismatch.model_validate(found) if found else None


def where(mismatch: Mismatch) -> str:
    """`B=0 H=0 Sq=3 D=1: expected 0.12, got nan (allowed error 1e-05)`."""
    place = " ".join(f"{name}={index}" for name, index in mismatch.index.items())
    expected, got = (_value(value) for value in (mismatch.expected, mismatch.got))
    return f"{place}: expected {expected}, got {got} (allowed error {mismatch.allowed:.1e})"


def _value(value: float | None) -> str:
    return "nan" if value is None else f"{value:.6g}"
