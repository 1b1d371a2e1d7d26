"""Is there anything to search for? What the gate says of both ends today, and on which workloads it shows."""

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from loop.base.processes import Tick
from loop.bisect.candidates import Line
from loop.bisect.trying import (
    TRIED,
    CorrectnessProbe,
    LatencyProbe,
    Logs,
    ProbeMemory,
    Prober,
    gate_decision,
    mean_of,
    memory_of,
)
from loop.model.bisect import UNCOMMITTED, Probe
from loop.model.workloads import operations
from loop.timing import verdicts

WHY = "gate: "
"""Before the name of a workload, in the table of probes."""


@dataclass(frozen=True)
class Ruling:
    """What the gate says."""

    outcome: Literal["search", "no_regression", "inconclusive"]
    why: str
    slower: tuple[str, ...] = ()
    """Names of the workloads on which the bad end is slower."""
    swapped: bool = False
    """Whether the bad end is faster somewhere, and slower nowhere."""
    probes: tuple[Probe, ...] = ()
    """What it rests on: one a workload."""


def memory_for(metric: str, asked: Sequence[str], prober: Prober) -> ProbeMemory:
    """Where a search on the prober's workloads keeps what it observes; `asked`: what else that depends on."""
    return memory_of(metric, *asked, *(workload.name for workload in prober.workloads))


@dataclass
class SpeedGate:
    """Decides before a search for a slower kernel whether there is one to search for, and where it shows.

    The rule is that of a session: a verdict on two binaries, in blocks of fresh process pairs. What it cannot tell
    no search can: that has to allow for what builds of the same source differ by, too.
    """

    timer: LatencyProbe
    asked: tuple[str, ...]

    def memory(self) -> ProbeMemory:
        """That of a search on the workloads in question."""
        return memory_for("latency", self.asked, self.timer)

    def passed(self, line: Line) -> Generator[Tick, None, Ruling]:
        """The ruling. The search goes on from its blocks, on those workloads only on which the bad end is slower.

        Raises Untestable where an end cannot be built, or is wrong.
        """
        kept, bad = memory_for("gate", self.asked, self.timer), line.ends[-1].commit
        ends = (bad, line.good.commit)
        before = [probe for probe in kept.probes() if (probe.commit, probe.against) == ends]
        logs: Logs = {probe.workload: probe.values for probe in before}
        if bad == UNCOMMITTED or not all(logs.get(workload.name) for workload in self.timer.workloads):
            logs = yield from self.timer.ends(line.ends[-1], line.good)
            for name, values in logs.items():
                kept.keep(_probe(line, name, values, workload=name))
        decided = ruling(logs)
        if decided.slower:
            self.timer.workloads = [w for w in self.timer.workloads if w.name in decided.slower]
            memory = self.memory()
            if not memory.probes():
                memory.keep(_probe(line, decided.why, mean_of([logs[name] for name in decided.slower])))
        return replace(decided, probes=tuple(_probe(line, name, values) for name, values in logs.items()))


def ruling(logs: Logs) -> Ruling:
    """What the blocks say. Workloads that stay open are judged together, by their mean."""
    decisions = {name: gate_decision(values, len(logs)) for name, values in logs.items()}
    slower = tuple(name for name, decision in decisions.items() if decision.verdict == "slower")
    if slower:
        return Ruling("search", f"slower on {len(slower)} of {len(logs)} workloads", slower)
    open_ = tuple(name for name, decision in decisions.items() if decision.verdict == "inconclusive")
    together = gate_decision(mean_of([logs[name] for name in open_]), 1) if open_ else None
    if together and together.verdict == "slower":
        return Ruling("search", f"slower in the mean of {len(open_)} of {len(logs)} workloads", open_)
    if together and together.verdict == "inconclusive":
        many = f"{len(open_)} of {len(logs)} workloads"
        why = f"the gate cannot tell whether the bad end is slower on {many}: {together.reason}"
        return Ruling("inconclusive", why)
    faster = sum(decision.verdict == "faster" for decision in decisions.values())
    same = len(decisions) - faster - len(open_)
    parts = [f"within {verdicts.SAME:.0%} of the good one on {same} of {len(decisions)} workloads"] if same else []
    parts += [f"within {verdicts.SAME:.0%} of it in the mean of {len(open_)}"] if open_ else []
    parts += [f"faster on {faster} (are they swapped?)"] if faster else []
    why = f"not reproduced: by the gate the bad end is {', '.join(parts)}"
    return Ruling("no_regression", why, swapped=faster > 0)


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

    def memory(self) -> ProbeMemory:
        """That of a search on the workloads in question."""
        return memory_for("correctness", self.asked, self.prober)

    def passed(self, line: Line) -> Generator[Tick, None, Ruling]:
        """The ruling. A bad end that is right each time is no regression.

        Raises Untestable where it cannot be built.
        """
        bad, begun, passes = line.ends[-1], time.monotonic(), 0
        side = yield from self.prober.side(TRIED, bad)
        while passes < PASSES and (passes == 0 or time.monotonic() - begun < PASSES_S):
            verified = yield from self.prober.checks(side, passes, enough=passes > 0)
            failed = {check.workload.name: check.workload for check in verified.checks if not check.passed}
            if failed:
                size, every = partial(operations, self.prober.bench.target), self.prober.workloads
                self.prober.workloads = sorted(failed.values(), key=size)[:PLACES]
                alone = yield from self.prober.checks(side, passes + 1)
                if alone.first_failure is None:  # It takes other calls before them in the same process.
                    self.prober.workloads = every
                return Ruling("search", f"wrong on {len(failed)} of {len(verified.checks)} checks")
            if not verified.right:
                return Ruling("search", "the variant takes none of these workloads")
            passes += 1
        often = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(self.prober.workloads)} workloads, {often}"
        fields = {"commit": bad.commit, "against": line.good.commit, "why": f"{WHY}{why}", "status": "measured"}
        probe = Probe.model_validate({**fields, "values": (1.0,) * passes}, strict=False)
        return Ruling("no_regression", f"not reproduced: the bad end is {why}", probes=(probe,))


Gate = SpeedGate | FailingGate
