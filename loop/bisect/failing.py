"""On which workloads is the bad end wrong today? What `verify` says of it, before anything is searched."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

from loop.base.processes import Tick
from loop.bisect.candidates import Line
from loop.bisect.gate import WHY, Ruling
from loop.bisect.trying import TRIED, CorrectnessProbe, ProbeMemory, memory_of
from loop.model.bisect import Probe
from loop.model.workloads import operations

PLACES = 4
"""A search for what made a kernel wrong uses so many of the workloads that fail: the smallest."""
PASSES, LIMIT_S = 20, 30.0
"""All workloads are verified so often, on fresh values, before the bad end is called right; in that time."""


@dataclass
class FailingGate:
    """Verifies the bad end on all workloads in question, and leaves the search those that fail."""

    prober: CorrectnessProbe
    question: tuple[str, ...]
    """What else the observations of the search depend on, for its memory."""

    def memory(self) -> ProbeMemory:
        """Where a search on the workloads in question keeps what it observes."""
        return memory_of("correctness", *self.question, *(one.name for one in self.prober.workloads))

    @property
    def compiled(self) -> int:
        """Builds that were not in the cache."""
        return self.prober.builder.compiled

    def passed(self, line: Line) -> Generator[Tick, None, Ruling]:
        """The ruling. A bad end that is right each time is no regression.

        Raises Untestable where it cannot be built.
        """
        bad, begun, passes = line.ends[-1], time.monotonic(), 0
        side = yield from self.prober.side(TRIED, bad)
        while passes < PASSES and (passes == 0 or time.monotonic() - begun < LIMIT_S):
            found = yield from self.prober.checks(side, passes, enough=passes > 0)
            failed = {check.workload.name: check.workload for check in found.checks if not check.passed}
            if failed:
                size = partial(operations, self.prober.bench.target)
                self.prober.workloads = sorted(failed.values(), key=size)[:PLACES]
                return Ruling("search", f"wrong on {len(failed)} of {len(found.checks)} checks")
            if not found.right:
                return Ruling("search", "the variant takes none of these workloads")
            passes += 1
        often = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(self.prober.workloads)} workloads, {often}"
        fields = {"commit": bad.commit, "against": line.good.commit, "why": f"{WHY}{why}", "status": "measured"}
        seen = Probe.model_validate({**fields, "values": (1.0,) * passes}, strict=False)
        return Ruling("no_regression", f"not reproduced: the bad end is {why}", probes=(seen,))
