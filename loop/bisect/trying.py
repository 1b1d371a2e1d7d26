"""Trying a commit: its speed beside the good end, its correctness by the gate, or what a command says of it."""

import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeVar

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import LoopError
from loop.base.places import state_folder
from loop.base.processes import Tick, together
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
from loop.workers.program import Refusal, WorkerLost

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


@dataclass(frozen=True)
class Question:
    """One candidate to be tried."""

    candidate: Candidate
    count: int
    """Observations that are wanted."""
    against: Candidate
    """What a latency is held against, in the same pair."""
    ahead: Sequence[Candidate] = ()
    """What may be asked for next, whatever comes of this."""


class Prober:
    """Something that can try a candidate."""

    workloads: Sequence[Workload]
    """What commits are judged on; nothing where a command or a compiler judges."""
    made: int = 0
    """Checks that were made so far, of all commits; 0 where nobody counts them."""
    remark: str = ""
    """What is told beside the answer; empty where nothing is."""
    found_wrong: bool = False
    """Whether a commit was wrong, and so could not be timed."""

    def tried(self, asked: Question) -> Tries:
        """The observations. Latency: log(its time / that of the other), above 0 is slower; else 1 for good, 0 for
        bad. Raises Untestable."""
        raise NotImplementedError


@dataclass(frozen=True)
class Probed:
    """What came of a question."""

    status: Literal["measured", "broken", "lost"]
    """As of a probe."""
    values: tuple[float, ...] = ()
    """Log ratios, one a pair; or 1 for right and 0 for wrong."""
    reason: str = ""
    """Why it is broken or lost."""
    seconds: float = 0.0
    """How long it took, building included."""


def observed(tries: Tries) -> Generator[Tick, None, Probed]:
    """What comes of a try."""
    begun = time.monotonic()
    status: Literal["measured", "broken", "lost"]
    status, values, reason = "measured", tuple[float, ...](), ""
    try:
        values = yield from tries
    except Untestable as untestable:
        status, reason = "broken", str(untestable)
    except (WorkerLost, Refusal) as lost:
        status, reason = "lost", str(lost)
    return Probed(status=status, values=values, reason=reason, seconds=time.monotonic() - begun)


ProbeMany = Callable[[Sequence[Question]], Generator[Tick, None, list[Probed]]]
"""Answers to several questions that are asked at the same time, in order."""


def side_by_side(probers: Sequence[Prober]) -> ProbeMany:
    """Each question to a prober of its own: for what does not disturb the others."""

    def many(questions: Sequence[Question]) -> Generator[Tick, None, list[Probed]]:
        pairs = zip(probers, questions, strict=False)
        return together([observed(prober.tried(asked)) for prober, asked in pairs], len(probers))

    return many


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

    def tried(self, asked: Question) -> Tries:
        """Log ratios, one a pair of processes. A kernel that is wrong has no speed: it is broken here."""
        sides = yield from self.sides(asked)
        self.seed += 1
        terms = Terms(asked.count, math.inf, self.seed)
        timings = yield from self.timed(sides, terms)
        return mean_of([logs_of(timings, workload) for workload in self.workloads])

    def ends(self, bad: Candidate, good: Candidate) -> Generator[Tick, None, Logs]:
        """Blocks of fresh process pairs of both ends, until each workload has a verdict. Raises Untestable."""
        sides = yield from self.sides(Question(bad, 0, good))
        decided = set[str]()

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            """Both sides on every workload that is not decided."""
            for workload in self.workloads:
                if workload.name not in decided:
                    logs = logs_of(timings, workload)
                    if gate_decision(logs, len(self.workloads)).verdict != "inconclusive":
                        decided.add(workload.name)
            return {workload.name: (OTHER, TRIED) for workload in self.workloads if workload.name not in decided}

        terms = Terms(verdicts.MAX_BLOCKS, GATE_LIMIT_S, self.seed)
        timings = yield from self.timed(sides, terms, pending)
        return {workload.name: logs_of(timings, workload) for workload in self.workloads}

    def sides(self, asked: Question) -> Generator[Tick, None, list[Side]]:
        """What it is held against and the candidate, built; the candidate is right."""
        yield from self.builder.prepare([asked.candidate, asked.against], asked.ahead)
        tried = yield from self.side(TRIED, asked.candidate)
        assert tried.build_id is not None
        if tried.build_id not in self.checked:
            self.checked[tried.build_id] = yield from self.checks(tried, 0)
        failure = self.checked[tried.build_id].first_failure
        if failure is not None:
            self.found_wrong = True
            raise Untestable(f"incorrect, so it has no speed: {failure.message}")
        return [(yield from self.side(OTHER, asked.against)), tried]

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
    segments = [segment for segment in timings.segments if segment.workload == workload.name]
    return [-value for value in samples.log_ratios(segments, OTHER, TRIED)]


@dataclass
class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    layouts = True

    def tried(self, asked: Question) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        yield from self.builder.prepare([asked.candidate], asked.ahead)
        side = yield from self.side(TRIED, asked.candidate)
        values: list[float] = []
        for number in range(asked.count):
            try:
                verified = yield from self.checks(side, number)
            except WorkerLost as lost:
                raise Untestable(str(lost)) from lost
            if all(check.status in ("unsupported", "not judged") for check in verified.checks):
                raise Untestable(
                    f"takes none of these workloads: {', '.join(workload.name for workload in self.workloads)}"
                )
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

    path: Path | None
    """None: nothing is kept."""

    def probes(self) -> list[Probe]:
        """All whole lines; what is damaged is named, and tried again."""
        try:
            return [line.probe for line in sums.sealed_lines(self.path, Remembered)] if self.path else []
        except FileNotFoundError:
            return []

    def keep(self, probe: Probe) -> None:
        """Add one; it is written before anything else happens."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sums.append_sealed(self.path, json.dumps({"format": 1, "probe": json.loads(to_json(probe))}))


def memory_of(*question: str) -> ProbeMemory:
    """The memory of a question: what is asked, of which kernel, on which machine."""
    return ProbeMemory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")
