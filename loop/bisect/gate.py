"""Is there anything to search for? What the gate says of both ends today, and on which workloads it shows."""

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

from loop.base.processes import Tick
from loop.bisect.candidates import Line
from loop.bisect.model import SearchEnd
from loop.bisect.trying import (
    TRIED,
    CorrectnessProbe,
    LatencyProbe,
    Logs,
    ProbeMemory,
    gate_decision,
    mean_of,
    memory_of,
)
from loop.model.bisect import UNCOMMITTED, Probe
from loop.model.workloads import operations
from loop.timing import verdicts

WHY = "gate: "
"""Before the name of a workload, in the table of probes."""
Passed = Generator[Tick, None, tuple[SearchEnd | None, tuple[Probe, ...]]]
"""Returns why nothing is searched, None where something is; and what that rests on, a probe a workload."""


@dataclass
class SpeedGate:
    """Decides before a search for a slower kernel whether there is one to search for, and where it shows.

    The rule is that of a session: a verdict on two binaries, in blocks of fresh process pairs. What it cannot tell
    no search can: that has to allow for what builds of the same source differ by, too.
    """

    timer: LatencyProbe
    asked: tuple[str, ...]
    """What a search depends on besides its metric and workloads."""

    def memory(self, metric: str = "latency") -> ProbeMemory:
        """That of a search on the workloads in question, or of the gate."""
        return memory_of(metric, *self.asked, *(workload.name for workload in self.timer.workloads))

    def passed(self, line: Line) -> Passed:
        """The ruling. The search goes on from its blocks, on those workloads only on which the bad end is slower.

        Raises Untestable where an end cannot be built, or is wrong.
        """
        kept, bad, good = self.memory("gate"), line.ends[-1], line.good
        before = [probe for probe in kept.probes() if (probe.commit, probe.against) == (bad.commit, good.commit)]
        logs: Logs = {probe.workload: probe.values for probe in before}
        if bad.commit == UNCOMMITTED or not all(logs.get(workload.name) for workload in self.timer.workloads):
            logs = yield from self.timer.ends(bad, good)
            for name, values in logs.items():
                kept.keep(_probe(line, name, values, workload=name))
        end, slower, why = ruling(logs)
        if slower:
            self.timer.workloads = [w for w in self.timer.workloads if w.name in slower]
            memory = self.memory()
            if not memory.probes():
                memory.keep(_probe(line, why, mean_of([logs[name] for name in slower])))
        return end, tuple(_probe(line, name, values) for name, values in logs.items())


def ruling(logs: Logs) -> tuple[SearchEnd | None, tuple[str, ...], str]:
    """What the blocks say: why nothing is searched (else None), where the bad end is slower, and why.

    Workloads that stay open are judged together, by their mean.
    """
    decisions = {name: gate_decision(values, len(logs)) for name, values in logs.items()}
    slower = tuple(name for name, decision in decisions.items() if decision.verdict == "slower")
    if slower:
        return None, slower, f"slower on {len(slower)} of {len(logs)} workloads"
    open_ = tuple(name for name, decision in decisions.items() if decision.verdict == "inconclusive")
    together = gate_decision(mean_of([logs[name] for name in open_]), 1) if open_ else None
    if together and together.verdict == "slower":
        return None, open_, f"slower in the mean of {len(open_)} of {len(logs)} workloads"
    if together and together.verdict == "inconclusive":
        many = f"{len(open_)} of {len(logs)} workloads"
        why = f"the gate cannot tell whether the bad end is slower on {many}: {together.reason}"
        return SearchEnd("inconclusive", why), (), why
    faster = sum(decision.verdict == "faster" for decision in decisions.values())
    same = len(decisions) - faster - len(open_)
    parts = [f"within {verdicts.SAME:.0%} of the good one on {same} of {len(decisions)} workloads"] if same else []
    parts += [f"within {verdicts.SAME:.0%} of it in the mean of {len(open_)}"] if open_ else []
    parts += [f"faster on {faster} (are they swapped?)"] if faster else []
    why = f"not reproduced: by the gate the bad end is {', '.join(parts)}"
    return SearchEnd("no_regression", why, swapped=faster > 0), (), why


def _probe(line: Line, why: str, values: Sequence[float], workload: str = "") -> Probe:
    """The blocks of a workload, or of several, as they are kept."""
    finite = tuple(value for value in values if math.isfinite(value))
    ends = {"commit": line.ends[-1].commit, "against": line.good.commit}
    fields = {**ends, "why": WHY + why, "workload": workload}
    return Probe.model_validate({**fields, "status": "measured", "values": finite}, strict=False)


PLACES = 4
"""A search for what made a kernel wrong uses so many of the workloads that fail: the smallest."""
PASSES, PASSES_S = 20, 30.0
"""All workloads are verified so often, on fresh values, before the bad end is called right; in that time."""


@dataclass
class FailingGate:
    """Verifies the bad end on all workloads in question, and leaves the search those that fail."""

    prober: CorrectnessProbe
    asked: tuple[str, ...]
    """What a search depends on besides its metric and workloads."""

    def memory(self) -> ProbeMemory:
        """That of a search on the workloads in question."""
        return memory_of("correctness", *self.asked, *(workload.name for workload in self.prober.workloads))

    def passed(self, line: Line) -> Passed:
        """The ruling. A bad end that is right each time is no regression.

        Raises Untestable where it cannot be built.
        """
        begun, passes = time.monotonic(), 0
        side = yield from self.prober.side(TRIED, line.ends[-1])
        while passes < PASSES and (passes == 0 or time.monotonic() - begun < PASSES_S):
            verified = yield from self.prober.checks(side, passes, enough=passes > 0)
            failed = {check.workload.name: check.workload for check in verified.checks if not check.passed}
            if failed:
                size, every = partial(operations, self.prober.bench.target), self.prober.workloads
                self.prober.workloads = sorted(failed.values(), key=size)[:PLACES]
                alone = yield from self.prober.checks(side, passes + 1)
                if alone.first_failure is None:  # It takes other calls before them in the same process.
                    self.prober.workloads = every
            if failed or not verified.right:  # Else the variant takes none of these workloads.
                return None, ()
            passes += 1
        often = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(self.prober.workloads)} workloads, {often}"
        return SearchEnd("no_regression", f"not reproduced: the bad end is {why}"), (
            _probe(line, why, (1.0,) * passes),
        )


Gate = SpeedGate | FailingGate
