"""Trying a commit: its speed beside the good end, its correctness by the gate, or what a command says of it."""

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import LoopError
from loop.base.places import state_folder
from loop.base.processes import Tick
from loop.bisect.builds import Builder, Untestable
from loop.gate.verify import Job, verify
from loop.model.base import Model
from loop.model.bisect import Candidate, Probe
from loop.model.measurement import VariantChecks
from loop.model.target import Workload
from loop.timing import samples, schedule, verdicts
from loop.timing.samples import Timings
from loop.timing.terms import Pending, Terms
from loop.workers.bench import Bench, Side
from loop.workers.program import WorkerLost

OTHER, TRIED = "other", "tried"
Result = TypeVar("Result")
Logs = Mapping[str, Sequence[float]]
"""Workload to one log(time of the bad end / time of the good one) a block."""
GATE_LIMIT_S = 120.0
"""The gate begins no block later."""
CLIP = 0.08
"""A block that is further off counts as if it were just there: on a busy machine some are off by half, which says
nothing of a kernel."""
Tries = Generator[Tick, None, tuple[float, ...]]
"""Yields signs of life, returns the values that were observed. Raises Untestable."""


def watching(working: Generator[Tick, None, Result], see: Callable[[Tick], Tick]) -> Generator[Tick, None, Result]:
    """The same work, each sign of life as `see` has it; what that raises ends the work."""
    try:
        while True:
            yield see(next(working))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        working.close()


class Prober:
    """Something that can try a candidate."""

    workloads: Sequence[Workload]
    """What commits are judged on; nothing where a command judges."""
    made: int = 0
    """Checks that were made so far, of all commits; 0 where nobody counts them."""
    remark: str = ""
    """What is told beside the answer; empty where nothing is."""
    found_wrong: bool = False
    """Whether a commit was wrong, and so could not be timed."""

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """`count` observations of a candidate. Raises Untestable.

        Latency: log(its time / that of `against`), above 0 is slower. Correctness: 1 for good, 0 for bad.
        """
        raise NotImplementedError


@dataclass
class KernelProbe(Prober):
    """What both probes of a kernel share: builds, and today's workloads."""

    bench: Bench
    builder: Builder
    workloads: Sequence[Workload]
    seed: int
    checked: dict[str, VariantChecks] = field(default_factory=dict)
    """Build to what the gate found of it."""
    layouts = False
    """Whether inputs of other layouts are tried as well."""

    def side(self, name: str, candidate: Candidate) -> Generator[Tick, None, Side]:
        """A candidate as the bench takes it. Raises Untestable where it cannot be built."""
        build = yield from self.builder.build(candidate)
        return self.bench.side(self.builder.variant, build, emulated=self.builder.emulated).renamed(name)

    def checks(self, side: Side, seed: int, *, enough: bool = True) -> Generator[Tick, None, VariantChecks]:
        """What today's gate says of a side on today's workloads, with fresh values by the seed.

        `enough`: the first failure ends it.
        """
        wanted = [workload.model_copy(update={"seed": workload.seed + seed}) for workload in self.workloads]
        (checks,) = yield from verify(self.bench, [Job(side, wanted, layouts=self.layouts, enough=enough)])
        self.made += len(checks.checks)
        return checks


@dataclass
class LatencyProbe(KernelProbe):
    """The speed of a commit's kernel beside that of the good end, in one pair of processes after another."""

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Log ratios, one a pair of processes. A kernel that is wrong has no speed: it is broken here."""
        sides = yield from self.sides(candidate, against)
        self.seed += 1
        timings = yield from self.timed(sides, Terms(count, math.inf, self.seed))
        return mean_of([logs_of(timings, workload) for workload in self.workloads])

    def ends(self, bad: Candidate, good: Candidate) -> Generator[Tick, None, Logs]:
        """Blocks of fresh process pairs of both ends, until each workload has a verdict. Raises Untestable."""
        sides = yield from self.sides(bad, good)
        decided = set[str]()

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            """Both sides on every workload that is not decided."""
            for workload in self.workloads:
                if workload.name not in decided:
                    logs = logs_of(timings, workload)
                    if gate_decision(logs, len(self.workloads)).verdict != "inconclusive":
                        decided.add(workload.name)
            return {workload.name: (OTHER, TRIED) for workload in self.workloads if workload.name not in decided}

        timings = yield from self.timed(sides, Terms(verdicts.MAX_BLOCKS, GATE_LIMIT_S, self.seed), pending)
        return {workload.name: logs_of(timings, workload) for workload in self.workloads}

    def sides(self, candidate: Candidate, against: Candidate) -> Generator[Tick, None, list[Side]]:
        """What a candidate is held against and itself, built; the candidate is right. Raises Untestable."""
        tried = yield from self.side(TRIED, candidate)
        assert tried.build_id is not None
        if tried.build_id not in self.checked:
            self.checked[tried.build_id] = yield from self.checks(tried, 0)
        failure = self.checked[tried.build_id].first_failure
        if failure is not None:
            self.found_wrong = True
            raise Untestable(f"incorrect, so it has no speed: {failure.message}")
        return [(yield from self.side(OTHER, against)), tried]

    def timed(
        self, sides: Sequence[Side], terms: Terms, pending: Pending | None = None
    ) -> Generator[Tick, None, Timings]:
        """Both sides turn about on today's workloads. Raises Untestable where one of them cannot be timed."""
        try:
            timings = yield from schedule.measure(self.bench, sides, self.workloads, terms, pending)
        except LoopError as error:
            raise Untestable(error.message) from error
        if timings.wrong:
            side, check = timings.wrong[0]
            raise Untestable(f"{side} gave a wrong answer while it was timed: {check.message}")
        return timings


def gate_decision(logs: Sequence[float], workloads: int) -> verdicts.Decision:
    """The gate's verdict on log(time of the bad end / time of the good one); its rule has faster as above 0."""
    far = verdicts.far_off([-value for value in logs], verdicts.needed_evidence(workloads))
    return far or verdicts.conclude([min(max(-value, -CLIP), CLIP) for value in logs], workloads)


def mean_of(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """One value a pair of processes: the mean over workloads."""
    return tuple(fmean(values) for values in zip(*series, strict=False))


def logs_of(timings: Timings, workload: Workload) -> list[float]:
    """One log(time tried / time of the other) a pair of processes, of a workload."""
    return [-value for value in samples.log_ratios(timings.of(workload.name), OTHER, TRIED)]


@dataclass
class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    layouts = True

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        side = yield from self.side(TRIED, candidate)
        values: list[float] = []
        for number in range(count):
            try:
                verified = yield from self.checks(side, number)
            except WorkerLost as lost:
                raise Untestable(str(lost)) from lost
            if all(check.status in ("unsupported", "not judged") for check in verified.checks):
                names = ", ".join(workload.name for workload in self.workloads)
                raise Untestable(f"takes none of these workloads: {names}")
            values.append(0.0 if verified.first_failure else 1.0)
        return tuple(values)


class Remembered(Model):
    """One line."""

    format: int
    """Format number."""
    probe: Probe
    """What was observed."""


@dataclass(frozen=True)
class ProbeMemory:
    """Probes of one question: a file with a line for each, in the order in which they were made."""

    path: Path

    def probes(self) -> list[Probe]:
        """All whole lines; what is damaged is named, and tried again."""
        try:
            return [line.probe for line in sums.sealed_lines(self.path, Remembered)]
        except FileNotFoundError:
            return []

    def keep(self, probe: Probe) -> None:
        """Add one; it is written before anything else happens."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sums.append_sealed(self.path, json.dumps({"format": 1, "probe": json.loads(to_json(probe))}))


def memory_of(*question: str) -> ProbeMemory:
    """The memory of a question: what is asked, of which kernel, on which machine."""
    return ProbeMemory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")
