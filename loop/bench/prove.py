"""What is the gate worth? Each control of a variant through the same checks as a real candidate."""

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loop.bench.controls import HONEST, Control, controls
from loop.bench.room import BASELINE, Bench, Side
from loop.bench.verify import CALL_LIMIT_S, Checker, Job
from loop.bench.worker import Worker
from loop.model.measurement import ControlResult, Layout
from loop.model.target import Workload
from loop.processes import Tick

DESKS_AT_ONCE = 8
TELLING = 4096
"""Product of the sizes from which a workload is large enough for a mistake to show."""
WORKLOADS, SEEDS = 3, 2
"""A control is tried on so many workloads at most, each with so many sets of values."""


@dataclass
class Desk:
    """A worker that several trials share: it has loaded the honest variant, and errs call by call."""

    bench: Bench
    side: Side
    worker: Worker | None = None
    loaded: bool = False
    digests: dict[str, list[str]] = field(default_factory=dict)
    """Calls to the digests of the honest variant's outputs."""


class Trial(Checker):
    """One control at a desk."""

    def __init__(self, desk: Desk, control: Control, job: Job) -> None:
        super().__init__(desk.bench, job)
        self.desk, self.control = desk, control
        self.idle = True
        """Whether so far every output was that of the honest variant, bit by bit."""

    def start(self) -> Worker:
        """Start the desk's worker, unless it runs."""
        if self.desk.worker is None:
            self.desk.worker, self.desk.loaded = self.bench.open(self.desk.side), False
        self.worker, self.loaded = self.desk.worker, self.desk.loaded
        return self.desk.worker

    def close(self) -> None:
        """End the desk's worker."""
        if self.desk.worker is not None:
            self.desk.worker.close()
        self.desk.worker = self.worker = None

    def ask(self, call: dict[str, Any], layout: Layout, note: str) -> Generator[Tick, None, dict[str, Any]]:
        """Have the worker make a call, with the mistake unless it has loaded it."""
        worker = yield from self.open()
        self.desk.loaded = True
        mistake = self.side.mistake if self.desk.side.mistake is None else None
        reply = yield from worker.ask(
            "call", limit_s=CALL_LIMIT_S, note=note, call=call, layout=layout, mistake=mistake
        )
        self.idle &= reply["digests"] == self.desk.digests.setdefault(call["key"], reply["digests"])
        return reply

    @property
    def result(self) -> ControlResult:
        """What the checks have found so far."""
        failure = self.checks.first_failure
        return outcome(self.control, self.desk.side.name, "verify", failure.message if failure else "")
