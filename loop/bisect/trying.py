"""Trying a commit: its speed beside the good end, its correctness by the gate, or what a command says of it."""

import json
import math
import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import CannotStart, LoopError, WorkFailed
from loop.base.places import state_folder
from loop.base.processes import Completed, Tick, run
from loop.bisect.candidates import Builder, Line, Untestable, check_out
from loop.bisect.model import SearchEnd
from loop.gate.verify import Job, verify
from loop.machine.machine import machine
from loop.model.base import Model
from loop.model.bisect import UNCOMMITTED, Candidate, Metric, Probe
from loop.model.measurement import VariantChecks
from loop.model.target import Workload
from loop.model.workloads import operations
from loop.repository.worktree import Worktree
from loop.timing import samples, schedule, verdicts
from loop.timing.samples import Pending, Terms, Timings
from loop.workers.bench import Side
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
PLACES = 4
"""A search for what made a kernel wrong uses so many of the workloads that fail: the smallest."""
PASSES, PASSES_S = 20, 30.0
"""All workloads are verified so often, on fresh values, before the bad end is called right; in that time."""
WHY = "gate: "
"""Before the name of a workload, in the table of probes."""
Gated = Generator[Tick, None, tuple[SearchEnd | None, tuple[Probe, ...]]]
"""Returns why nothing is searched, None where something is; and what that rests on, a probe a workload."""
Tries = Generator[Tick, None, tuple[float, ...]]
"""Yields signs of life, returns the values that were observed. Raises Untestable."""


def with_ticks(
    working: Generator[Tick, None, Result], see: Callable[[Tick], Tick]
) -> Generator[Tick, None, Result]:
    """The same work, each sign of life as `see` has it; what that raises ends the work."""
    try:
        while True:
            yield see(next(working))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        working.close()


class Remembered(Model):
    """One line of a `ProbeMemory`."""

    format: int
    probe: Probe


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


class Prober:
    """Something that can try a candidate."""

    metric: Metric
    builder: Builder | None = None
    """What builds candidates here, and so knows which are the same program; None where nobody does."""
    workloads: Sequence[Workload] = ()
    """What commits are judged on; nothing where a command judges."""
    checks_made: int = 0
    """Checks that were made so far, of all commits; 0 where nobody counts them."""
    remark: str = ""
    """What is told beside the answer; empty where nothing is."""

    @property
    def memory(self) -> ProbeMemory:
        """What was observed so far on the workloads in question."""
        raise NotImplementedError

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """`count` observations of a candidate. Raises Untestable.

        Latency: log(its time / that of `against`), above 0 is slower. Correctness: 1 for good, 0 for bad.
        """
        raise NotImplementedError

    def gate(self, line: Line) -> Gated:
        """Whether there is anything to search for. Leaves in `workloads` those on which it shows.

        Raises Untestable where an end cannot be built, or is wrong.
        """
        yield from ()
        return None, ()


class KernelProbe(Prober):
    """What both probes of a kernel share: builds, today's workloads, and checks by today's gate."""

    builder: Builder
    layouts = False
    """Whether inputs of other layouts are tried as well."""

    def __init__(self, builder: Builder, workloads: Sequence[Workload], seed: int) -> None:
        self.builder, self.bench, self.workloads, self.seed = builder, builder.bench, workloads, seed
        self.checks_made = 0
        self.checked: dict[str, VariantChecks] = {}
        """Build to what the gate found of it."""

    @property
    def memory(self) -> ProbeMemory:
        """That of a search on the workloads in question."""
        return self._memory(self.metric)

    def _memory(self, asked: str) -> ProbeMemory:
        bench, gpus = self.bench, ", ".join(machine().gpus[:1])
        where = machine().processor if bench.device == "cpu" else gpus
        kind = ["emulated"] if self.builder.emulated else []
        names = [workload.name for workload in self.workloads]
        return memory_of(asked, str(bench.folder), self.builder.variant, where, str(bench.threads), *kind, *names)

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
        self.checks_made += len(checks.checks)
        return checks


class LatencyProbe(KernelProbe):
    """The speed of a commit's kernel beside that of the good end, in one pair of processes after another.

    What the gate cannot tell no search can: that has to allow for what builds of the same source differ by, too.
    """

    metric = "latency"

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Log ratios, one a pair of processes. A kernel that is wrong has no speed: it is broken here."""
        sides = yield from self.sides(candidate, against)
        self.seed += 1
        timings = yield from self.timed(sides, Terms(count, math.inf, self.seed))
        return mean_of([logs_of(timings, workload) for workload in self.workloads])

    def gate(self, line: Line) -> Gated:
        """The verdict of a session on both ends, in blocks of fresh process pairs until each workload has one.

        The search goes on from these blocks, on those workloads only on which the bad end is slower.
        """
        kept, bad, good = self._memory("gate"), line.ends[-1], line.good
        before = [probe for probe in kept.probes() if (probe.commit, probe.against) == (bad.commit, good.commit)]
        logs: Logs = {probe.workload: probe.values for probe in before}
        if bad.commit == UNCOMMITTED or not all(logs.get(workload.name) for workload in self.workloads):
            logs = yield from self._blocks(line)
            for name, values in logs.items():
                kept.keep(_probe(line, name, values, workload=name))
        end, slower, why = ruling_of_blocks(logs)
        if slower:
            self.workloads = [workload for workload in self.workloads if workload.name in slower]
            if not self.memory.probes():
                self.memory.keep(_probe(line, why, mean_of([logs[name] for name in slower])))
        return end, tuple(_probe(line, name, values) for name, values in logs.items())

    def _blocks(self, line: Line) -> Generator[Tick, None, Logs]:
        """Both ends timed until each workload has a verdict, or the time is over."""
        sides = yield from self.sides(line.ends[-1], line.good)

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            """Both sides on every workload that is not decided."""
            decisions = {w.name: gate_decision(logs_of(timings, w), len(self.workloads)) for w in self.workloads}
            open_ = [name for name, decision in decisions.items() if decision.verdict == "inconclusive"]
            return dict.fromkeys(open_, (OTHER, TRIED))

        terms = Terms(verdicts.MAX_BLOCKS, GATE_LIMIT_S, self.seed)
        timings = yield from self.timed(sides, terms, pending)
        return {workload.name: logs_of(timings, workload) for workload in self.workloads}

    def sides(self, candidate: Candidate, against: Candidate) -> Generator[Tick, None, list[Side]]:
        """What a candidate is held against and itself, built; the candidate is right. Raises Untestable."""
        tried = yield from self.side(TRIED, candidate)
        assert tried.build_id is not None
        if tried.build_id not in self.checked:
            self.checked[tried.build_id] = yield from self.checks(tried, 0)
        failure = self.checked[tried.build_id].first_failure
        if failure is not None:
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
    return far or verdicts.conclude_now([min(max(-value, -CLIP), CLIP) for value in logs], workloads)


def mean_of(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """One value a pair of processes: the mean over workloads."""
    return tuple(fmean(values) for values in zip(*series, strict=False))


def logs_of(timings: Timings, workload: Workload) -> list[float]:
    """One log(time tried / time of the other) a pair of processes, of a workload."""
    return [-value for value in samples.log_ratios(timings.of(workload.name), OTHER, TRIED)]


def ruling_of_blocks(logs: Logs) -> tuple[SearchEnd | None, tuple[str, ...], str]:
    """What the blocks say: why nothing is searched (else None), where the bad end is slower, and why.

    Workloads that stay open are judged together, by their mean.
    """
    words = {name: gate_decision(values, len(logs)).verdict for name, values in logs.items()}
    slower, open_, faster = (
        tuple(name for name in logs if words[name] == word) for word in ("slower", "inconclusive", "faster")
    )
    if slower:
        return None, slower, f"slower on {len(slower)} of {len(logs)} workloads"
    together = gate_decision(mean_of([logs[name] for name in open_]), 1) if open_ else None
    if together and together.verdict == "slower":
        return None, open_, f"slower in the mean of {len(open_)} of {len(logs)} workloads"
    if together and together.verdict == "inconclusive":
        many = f"{len(open_)} of {len(logs)} workloads"
        why = f"the gate cannot tell whether the bad end is slower on {many}: {together.reason}"
        return SearchEnd("inconclusive", why), (), why
    same = len(logs) - len(faster) - len(open_)
    parts = [f"within {verdicts.SAME:.0%} of the good one on {same} of {len(logs)} workloads"] if same else []
    parts += [f"within {verdicts.SAME:.0%} of it in the mean of {len(open_)}"] if open_ else []
    parts += [f"faster on {len(faster)} (are they swapped?)"] if faster else []
    why = f"not reproduced: by the gate the bad end is {', '.join(parts)}"
    return SearchEnd("no_regression", why, swapped=bool(faster)), (), why


def _probe(line: Line, why: str, values: Sequence[float], workload: str = "") -> Probe:
    """The blocks of a workload, or of several, as they are kept."""
    return Probe(
        commit=line.ends[-1].commit,
        against=line.good.commit,
        why=WHY + why,
        workload=workload,
        status="measured",
        values=tuple(value for value in values if math.isfinite(value)),
    )


class CorrectnessProbe(KernelProbe):
    """Whether a commit's kernel is right by today's gate."""

    metric = "correctness"
    layouts = True

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """1 for right, 0 for wrong, each on fresh values."""
        side = yield from self.side(TRIED, candidate)
        values: list[float] = []
        for number in range(count):
            try:
                checks = yield from self.checks(side, number)
            except WorkerLost as lost:
                raise Untestable(str(lost)) from lost
            if all(check.status in ("unsupported", "not judged") for check in checks.checks):
                names = ", ".join(workload.name for workload in self.workloads)
                raise Untestable(f"takes none of these workloads: {names}")
            values.append(0.0 if checks.first_failure else 1.0)
        return tuple(values)

    def gate(self, line: Line) -> Gated:
        """Whether the bad end fails any workload; one that is right each time is no regression."""
        begun, passes, every = time.monotonic(), 0, self.workloads
        side = yield from self.side(TRIED, line.ends[-1])
        while passes < PASSES and (passes == 0 or time.monotonic() - begun < PASSES_S):
            checks = yield from self.checks(side, passes, enough=passes > 0)
            failed = {check.workload.name: check.workload for check in checks.checks if not check.passed}
            if failed:
                size = partial(operations, self.bench.target)
                self.workloads = sorted(failed.values(), key=size)[:PLACES]
                alone = yield from self.checks(side, passes + 1)
                if alone.first_failure is None:  # It takes other calls before them in the same process.
                    self.workloads = every
            if failed or not checks.right:  # Else the variant takes none of these workloads.
                return None, ()
            passes += 1
        often = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(every)} workloads, {often}"
        end = SearchEnd("no_regression", f"not reproduced: the bad end is {why}")
        return end, (_probe(line, why, (1.0,) * passes),)


SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: cannot be judged; cannot be started; not there."""
FIRST_LIMIT_S = 600.0
"""How long the command may take on the good end, unless the user says otherwise."""
TIMES, LEAST_S = 10.0, 10.0
"""On other commits it may take so many times what it took there, and so long in any case."""


@dataclass
class CommandProbe(Prober):
    """What a command says of a commit, run in a worktree that holds it.

    It runs on the good end first: what cannot be run there says nothing of a commit, and what it takes there sets
    the limit for the others. A commit on which it takes longer is skipped.
    """

    command: Sequence[str]
    tree: Worktree
    limit_s: float | None
    """What the user allows; None: by what it takes on the good end."""
    good: Candidate
    first: Completed | None = None
    """What came of it on the good end, until it is asked for."""
    took_s: float | None = None
    """How long that took; None before."""
    metric = "correctness"

    @property
    def memory(self) -> ProbeMemory:
        """That of this command, in this repository, on this machine."""
        tree, limit = self.tree, str(self.limit_s)
        where = (str(tree.repository), str(tree.target.relative_to(tree.root)), machine().name)
        return memory_of("exit", *where, limit, *self.command)

    @property
    def remark(self) -> str:  # type: ignore[override]
        """What is told beside the answer."""
        return self.tree.lacks()

    def tried(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Exit codes, as 1 for good and 0 for bad."""
        if self.took_s is None:
            self.first = yield from self._on_good_end()
            self.took_s = self.first.seconds
        values, limit_s = [], self.limit_s or max(LEAST_S, TIMES * self.took_s)
        for _ in range(count):
            done = self.first if candidate.commit == self.good.commit else None
            if done is not None:
                self.first = None
            else:
                done = yield from self._run(candidate, limit_s)
            if done.timed_out:
                hangs = f"the command hangs: killed after {limit_s:.3g} s, {self.took_s:.2g} s on the good end"
                raise Untestable(f"{hangs} (`timeout S COMMAND` makes that bad)")
            if done.code == SKIP:
                raise Untestable(f"exit {SKIP}: the command cannot judge it{_last(done)}")
            values.append(float(done.code == 0))
        return tuple(values)

    def _on_good_end(self) -> Generator[Tick, None, Completed]:
        """Run it there. Raises LoopError where that cannot be done."""
        limit_s = self.limit_s or FIRST_LIMIT_S
        done = yield from self._run(self.good, limit_s)
        by_hand = f"git worktree add TRY {self.good.short}; cd TRY; {shlex.join(self.command)}"
        if done.code in (NOT_RUN, NOT_FOUND):
            why = f"the command cannot be run at the good end, {self.good.short}: exit {done.code}{_last(done)}"
            raise WorkFailed(why, hint=f"try it by hand: {by_hand}")
        if done.timed_out:
            why = f"the command did not end at the good end, {self.good.short}: killed after {limit_s:g} s"
            raise WorkFailed(why, hint=f"--probe-limit-s SECONDS, if it takes longer; by hand: {by_hand}")
        return done

    def _run(self, candidate: Candidate, limit_s: float) -> Generator[Tick, None, Completed]:
        """What came of it. As in a shell, a program that is not there ends with 127."""
        check_out(self.tree, candidate)
        folder = self.tree.target
        if not folder.is_dir():
            raise Untestable(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=limit_s, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def _last(done: Completed) -> str:
    lines = done.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
