"""One side's worker, kept from request to request, and replaced when it is lost."""

import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any, TypeVar

from loop.base.processes import Tick
from loop.machine.machine import cores
from loop.workers.bench import Bench, Side
from loop.workers.messages import ToWorker
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost
from loop.workers.worker import Worker

R = TypeVar("R")
AFTER_HANG_S = 60.0
"""Once a first call hung, the first calls of other processes of the session may take so long at most."""
TOO_LONG = "the first call took longer than {:g} s: killed; `first_call_s` in target.yaml allows more"


class KeptWorker:
    """The worker of one side. One that is lost is replaced; a side that does not load is not tried again.

    On a CPU it uses every core, however many a measurement uses: a check with one thread shows no data race.
    """

    def __init__(self, bench: Bench, side: Side) -> None:
        alone = bench.device == "cuda" or side.threads is not None
        self.bench, self.side = bench, side if alone else replace(side, threads=cores())
        self._worker: Worker | None = None
        self._loaded = False
        self.fresh = True
        """Whether its process has answered no request yet."""
        self._no_use: Refusal | None = None

    def start(self) -> Worker:
        """Start the worker, unless it runs; it loads the side while we go on."""
        if self._worker is None:
            self._worker, self._loaded, self.fresh = self.bench.open(self.side), False, True
        return self._worker

    def load(self) -> Generator[Tick, None, Worker]:
        """The worker, once it has loaded the side. Raises WorkerLost, or Refusal where it does not load."""
        if self._no_use is not None:
            raise self._no_use
        worker = self.start()
        if not self._loaded:
            try:
                yield from self._receive(worker, START_LIMIT_S, f"loading {self.side.name}")
            except Refusal as refusal:
                self._no_use = refusal
                self.close()
                raise
            self._loaded = True
        return worker

    def ask(
        self, request: ToWorker[R], *, limit_s: float, note: str, first_call_s: float = 0.0
    ) -> Generator[Tick, None, R]:
        """The reply to a request, once the side is loaded. Raises WorkerLost, or Refusal when it says no.

        The first request of a process may take `first_call_s`, where that is more: a kernel may tune itself.
        """
        worker = yield from self.load()
        begun = time.monotonic()
        worker.send(request)
        if self.fresh:
            limit_s = max(limit_s, first_call_s)
        try:
            reply: R = yield from self._receive(worker, limit_s, note)
        except WorkerLost as lost:
            if lost.kind == "hung" and self.fresh and first_call_s:
                self.bench.first_call_s = min(self.bench.first_call_s, AFTER_HANG_S)
                raise WorkerLost("hung", TOO_LONG.format(limit_s), lost.errors, lost.cause) from lost
            raise
        if self.fresh:
            seconds, self.fresh = time.monotonic() - begun, False
            self.bench.slowest_first_s = max(self.bench.slowest_first_s, seconds)
            self.bench.first_calls_s += seconds
        return reply

    def _receive(self, worker: Worker, limit_s: float, note: str) -> Generator[Tick, None, Any]:
        try:
            return (yield from worker.receive(limit_s, note))
        except WorkerLost:
            self.close()
            raise

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None
