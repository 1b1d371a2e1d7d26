"""Try a commit: its speed next to the good end, its correctness, or a command's exit code."""

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
from loop.bisect.candidates import Builder, CommitLine, Untestable, check_out
from loop.bisect.model import SearchEnd
from loop.gate.verify import Job, verify
from loop.machine.machine import machine
from loop.model.base import Model
from loop.model.bisect import UNCOMMITTED, Candidate, Metric, Probe
from loop.model.measurement import VariantChecks
from loop.model.target import Workload
from loop.model.workloads import count_operations
from loop.repository.worktree import Worktree
from loop.timing import samples, schedule, verdicts
from loop.timing.samples import Pending, Terms, Timings
from loop.workers.bench import Side
from loop.workers.program import WorkerLost

REFERENCE_SIDE, CANDIDATE_SIDE = "other", "tried"
Result = TypeVar("Result")
LogRatios = Mapping[str, Sequence[float]]
"""Workload to one log(time of the bad end / time of the good one) a block."""
GATE_LIMIT_S = 120.0
"""The gate starts no block later than this."""
CLIP = 0.08
"""Blocks are clipped at this log ratio: on a busy machine some are off by half, which says nothing
of a kernel."""
MOST_FAILING_WORKLOADS = 4
"""A search for a wrong result uses this many of the failing workloads: the smallest."""
PASSES, PASSES_S = 20, 30.0
"""The bad end is right if all workloads pass this often, on fresh values; within this time."""
WHY = "gate: "
"""Prefix of a workload's name in the table of probes."""
Gated = Generator[Tick, None, tuple[SearchEnd | None, tuple[Probe, ...]]]
"""Returns a `SearchEnd` if there is nothing to search for, else None; and a probe a workload."""
Tries = Generator[Tick, None, tuple[float, ...]]
"""Yields ticks, returns the observed values. Raises Untestable."""


def map_ticks(
    working: Generator[Tick, None, Result], see: Callable[[Tick], Tick]
) -> Generator[Tick, None, Result]:
    """Run `working` with each tick replaced by `see(tick)`; an exception in `see` ends it."""
    try:
        while True:
            yield see(next(working))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        working.close()


class SavedProbe(Model):
    """One line of a `ProbeMemory`."""

    format: int
    probe: Probe


@dataclass(frozen=True)
class ProbeMemory:
    """Saved probes of one search: a file with one line a probe, in order."""

    path: Path

    def probes(self) -> list[Probe]:
        """All undamaged probes; a damaged line is reported, and tried again."""
        try:
            return [line.probe for line in sums.sealed_lines(self.path, SavedProbe)]
        except FileNotFoundError:
            return []

    def append(self, probe: Probe) -> None:
        """Append a probe to the file at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sums.append_sealed(self.path, json.dumps({"format": 1, "probe": json.loads(to_json(probe))}))


def open_probe_memory(*question: str) -> ProbeMemory:
    """The saved probes of a search; `question`: what is searched, kernel and machine."""
    return ProbeMemory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")


class Prober:
    """Tries candidates and reports observations."""

    metric: Metric
    builder: Builder | None = None
    """Builds candidates, and knows which are the same program; None for a command."""
    workloads: Sequence[Workload] = ()
    """Workloads that commits are judged on; empty for a command."""
    checks_made: int = 0
    """Checks so far, over all commits; 0 if not counted."""
    warning: str = ""
    """Added to the answer's reason; may be empty."""

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes for these workloads."""
        raise NotImplementedError

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """`count` observations of a candidate. Raises Untestable.

        Latency: log(its time / that of `against`), above 0 is slower. Correctness: 1 good, 0 bad.
        """
        raise NotImplementedError

    def ask_gate(self, line: CommitLine) -> Gated:
        """Whether to search at all. Reduces `workloads` to those that show the regression.

        Raises Untestable if an end cannot be built, or is wrong.
        """
        yield from ()
        return None, ()


class KernelProbe(Prober):
    """The common part of both kernel probes: builds, today's workloads, and today's gate."""

    builder: Builder
    tries_layouts = False
    """Whether to try other tensor layouts too."""

    def __init__(self, builder: Builder, workloads: Sequence[Workload], seed: int) -> None:
        self.builder, self.bench, self.workloads, self.seed = builder, builder.bench, workloads, seed
        self.checks_made = 0
        self.checks_by_build: dict[str, VariantChecks] = {}
        """Build id to its checks."""

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes for these workloads."""
        return self._memory(self.metric)

    def _memory(self, asked: str) -> ProbeMemory:
        bench, gpus = self.bench, ", ".join(machine().gpus[:1])
        where = machine().processor if bench.device == "cpu" else gpus
        kind = ["emulated"] if self.builder.emulated else []
        names = [workload.name for workload in self.workloads]
        return open_probe_memory(
            asked, str(bench.folder), self.builder.variant, where, str(bench.threads), *kind, *names
        )

    def build_side(self, name: str, candidate: Candidate) -> Generator[Tick, None, Side]:
        """Build a candidate as a side named `name`. Raises Untestable if it does not build."""
        build = yield from self.builder.build(candidate)
        return self.bench.make_side(self.builder.variant, build, emulated=self.builder.emulated).copy_as(name)

    def verify_side(self, side: Side, seed: int, *, enough: bool = True) -> Generator[Tick, None, VariantChecks]:
        """Verify a side by today's gate, values by `seed`; `enough`: stop at the first failure."""
        wanted = [workload.model_copy(update={"seed": workload.seed + seed}) for workload in self.workloads]
        (checks,) = yield from verify(self.bench, [Job(side, wanted, layouts=self.tries_layouts, enough=enough)])
        self.checks_made += len(checks.checks)
        return checks


class LatencyProbe(KernelProbe):
    """The speed of a commit's kernel next to the good end's, in one pair of processes at a time.

    It detects less than the gate, because it has to allow for noise between builds, too.
    """

    metric = "latency"

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Log ratios, one a pair of processes. Raises Untestable if the kernel is wrong."""
        sides = yield from self.build_sides(candidate, against)
        self.seed += 1
        timings = yield from self.time_sides(sides, Terms(count, math.inf, self.seed))
        return mean_over_workloads([pair_log_ratios(timings, workload) for workload in self.workloads])

    def ask_gate(self, line: CommitLine) -> Gated:
        """The verdict on both ends, in blocks of fresh process pairs until each workload has one.

        The search continues from these blocks, on the workloads where the bad end is slower.
        """
        kept, bad, good = self._memory("gate"), line.commits[-1], line.good
        before = [probe for probe in kept.probes() if (probe.commit, probe.against) == (bad.commit, good.commit)]
        logs: LogRatios = {probe.workload: probe.values for probe in before}
        if bad.commit == UNCOMMITTED or not all(logs.get(workload.name) for workload in self.workloads):
            logs = yield from self._time_blocks(line)
            for name, values in logs.items():
                kept.append(_gate_probe(line, name, values, workload=name))
        end, slower, why = judge_blocks(logs)
        if slower:
            self.workloads = [workload for workload in self.workloads if workload.name in slower]
            if not self.memory.probes():
                self.memory.append(_gate_probe(line, why, mean_over_workloads([logs[name] for name in slower])))
        return end, tuple(_gate_probe(line, name, values) for name, values in logs.items())

    def _time_blocks(self, line: CommitLine) -> Generator[Tick, None, LogRatios]:
        """Time both ends until each workload has a verdict, or time is over."""
        sides = yield from self.build_sides(line.commits[-1], line.good)

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            """Both sides, for every undecided workload."""
            decisions = {
                w.name: decide_workload(pair_log_ratios(timings, w), len(self.workloads)) for w in self.workloads
            }
            open_ = [name for name, decision in decisions.items() if decision.verdict == "inconclusive"]
            return dict.fromkeys(open_, (REFERENCE_SIDE, CANDIDATE_SIDE))

        terms = Terms(verdicts.MAX_BLOCKS, GATE_LIMIT_S, self.seed)
        timings = yield from self.time_sides(sides, terms, pending)
        return {workload.name: pair_log_ratios(timings, workload) for workload in self.workloads}

    def build_sides(self, candidate: Candidate, against: Candidate) -> Generator[Tick, None, list[Side]]:
        """`against` and the candidate, built. Raises Untestable if the candidate is wrong."""
        tried = yield from self.build_side(CANDIDATE_SIDE, candidate)
        assert tried.build_id is not None
        if tried.build_id not in self.checks_by_build:
            self.checks_by_build[tried.build_id] = yield from self.verify_side(tried, 0)
        failure = self.checks_by_build[tried.build_id].first_failure
        if failure is not None:
            raise Untestable(f"incorrect, so it has no speed: {failure.message}")
        return [(yield from self.build_side(REFERENCE_SIDE, against)), tried]

    def time_sides(
        self, sides: Sequence[Side], terms: Terms, pending: Pending | None = None
    ) -> Generator[Tick, None, Timings]:
        """Time both sides, alternating. Raises Untestable if one cannot be timed."""
        try:
            timings = yield from schedule.measure(self.bench, sides, self.workloads, terms, pending)
        except LoopError as error:
            raise Untestable(error.message) from error
        if timings.wrong_outputs:
            side, check = timings.wrong_outputs[0]
            raise Untestable(f"{side} gave a wrong answer while it was timed: {check.message}")
        return timings


def decide_workload(logs: Sequence[float], workloads: int) -> verdicts.Decision:
    """The gate's verdict on log(bad end's time / good end's) a block; its own sign is opposite."""
    far = verdicts.far_off([-value for value in logs], verdicts.needed_evidence(workloads))
    return far or verdicts.conclude_now([min(max(-value, -CLIP), CLIP) for value in logs], workloads)


def mean_over_workloads(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean over workloads, one value a pair of processes."""
    return tuple(fmean(values) for values in zip(*series, strict=False))


def pair_log_ratios(timings: Timings, workload: Workload) -> list[float]:
    """One log(time of the tried side / time of the other) a pair of processes."""
    return [
        -value for value in samples.log_ratios(timings.segments_of(workload.name), REFERENCE_SIDE, CANDIDATE_SIDE)
    ]


def judge_blocks(logs: LogRatios) -> tuple[SearchEnd | None, tuple[str, ...], str]:
    """The result if there is nothing to search for, else None; slower workloads; and why.

    Undecided workloads are judged together, by their mean.
    """
    words = {name: decide_workload(values, len(logs)).verdict for name, values in logs.items()}
    slower, open_, faster = (
        tuple(name for name in logs if words[name] == word) for word in ("slower", "inconclusive", "faster")
    )
    if slower:
        return None, slower, f"slower on {len(slower)} of {len(logs)} workloads"
    together = decide_workload(mean_over_workloads([logs[name] for name in open_]), 1) if open_ else None
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


def _gate_probe(line: CommitLine, why: str, values: Sequence[float], workload: str = "") -> Probe:
    """The blocks of one or more workloads as a probe, to be saved."""
    return Probe(
        commit=line.commits[-1].commit,
        against=line.good.commit,
        why=WHY + why,
        workload=workload,
        status="measured",
        values=tuple(value for value in values if math.isfinite(value)),
    )


class CorrectnessProbe(KernelProbe):
    """Whether today's gate finds a commit's kernel right."""

    metric = "correctness"
    layouts = True

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """1 for right, 0 for wrong; each with fresh values."""
        side = yield from self.build_side(CANDIDATE_SIDE, candidate)
        values: list[float] = []
        for number in range(count):
            try:
                checks = yield from self.verify_side(side, number)
            except WorkerLost as lost:
                raise Untestable(str(lost)) from lost
            if all(check.status in ("unsupported", "not judged") for check in checks.checks):
                names = ", ".join(workload.name for workload in self.workloads)
                raise Untestable(f"takes none of these workloads: {names}")
            values.append(0.0 if checks.first_failure else 1.0)
        return tuple(values)

    def ask_gate(self, line: CommitLine) -> Gated:
        """Whether the bad end fails any workload; if it always passes, there is no regression."""
        begun, passes, every = time.monotonic(), 0, self.workloads
        side = yield from self.build_side(CANDIDATE_SIDE, line.commits[-1])
        while passes < PASSES and (passes == 0 or time.monotonic() - begun < PASSES_S):
            checks = yield from self.verify_side(side, passes, enough=passes > 0)
            failed = {check.workload.name: check.workload for check in checks.checks if not check.passed}
            if failed:
                size = partial(count_operations, self.bench.target)
                self.workloads = sorted(failed.values(), key=size)[:MOST_FAILING_WORKLOADS]
                alone = yield from self.verify_side(side, passes + 1)
                if alone.first_failure is None:  # It fails only after other calls in one process.
                    self.workloads = every
            if failed or not checks.is_right:  # Not `right`: it accepts no workload.
                return None, ()
            passes += 1
        often = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(every)} workloads, {often}"
        end = SearchEnd("no_regression", f"not reproduced: the bad end is {why}")
        return end, (_gate_probe(line, why, (1.0,) * passes),)


SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: the command cannot judge; cannot start; is not found."""
FIRST_LIMIT_S = 600.0
"""Limit of the command on the good end, unless the user sets one."""
TIMES, LEAST_S = 10.0, 10.0
"""Limit on other commits: this many times its time on the good end, and at least this long."""


@dataclass
class CommandProbe(Prober):
    """Runs a command in a worktree that holds a commit; its exit code says good or bad.

    The good end runs first. If it cannot, the search ends. Its time sets the limit for the others,
    and a commit that exceeds the limit is skipped.
    """

    command: Sequence[str]
    worktree: Worktree
    limit_s: float | None
    """The user's limit; None: from the time on the good end."""
    good: Candidate
    good_end_run: Completed | None = None
    """The result on the good end, until `tried` returns it."""
    good_end_s: float | None = None
    """Seconds on the good end; None before it ran."""
    metric = "correctness"

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes for this command, repository and machine."""
        tree, limit = self.worktree, str(self.limit_s)
        where = (str(tree.repository), str(tree.target.relative_to(tree.root)), machine().name)
        return open_probe_memory("exit", *where, limit, *self.command)

    @property
    def warning(self) -> str:  # type: ignore[override]
        """Submodules that the worktree lacks."""
        return self.worktree.lacks()

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Tries:
        """Exit codes as 1 for good and 0 for bad."""
        if self.good_end_s is None:
            self.good_end_run = yield from self._run_on_good_end()
            self.good_end_s = self.good_end_run.seconds
        values, limit_s = [], self.limit_s or max(LEAST_S, TIMES * self.good_end_s)
        for _ in range(count):
            done = self.good_end_run if candidate.commit == self.good.commit else None
            if done is not None:
                self.good_end_run = None
            else:
                done = yield from self._run(candidate, limit_s)
            if done.timed_out:
                hangs = f"the command hangs: killed after {limit_s:.3g} s, {self.good_end_s:.2g} s on the good end"
                raise Untestable(f"{hangs} (`timeout S COMMAND` makes that bad)")
            if done.code == SKIP:
                raise Untestable(f"exit {SKIP}: the command cannot judge it{_last_error_line(done)}")
            values.append(float(done.code == 0))
        return tuple(values)

    def _run_on_good_end(self) -> Generator[Tick, None, Completed]:
        """Run the command on the good end. Raises LoopError if it cannot run there."""
        limit_s = self.limit_s or FIRST_LIMIT_S
        done = yield from self._run(self.good, limit_s)
        by_hand = f"git worktree add TRY {self.good.short_commit}; cd TRY; {shlex.join(self.command)}"
        if done.code in (NOT_RUN, NOT_FOUND):
            how = f"exit {done.code}{_last_error_line(done)}"
            why = f"the command cannot be run at the good end, {self.good.short_commit}: {how}"
            raise WorkFailed(why, hint=f"try it by hand: {by_hand}")
        if done.timed_out:
            why = f"the command did not end at the good end, {self.good.short_commit}: killed after {limit_s:g} s"
            raise WorkFailed(why, hint=f"--probe-limit-s SECONDS, if it takes longer; by hand: {by_hand}")
        return done

    def _run(self, candidate: Candidate, limit_s: float) -> Generator[Tick, None, Completed]:
        """Run the command on a commit; as in a shell, a program that does not exist gives 127."""
        check_out(self.worktree, candidate)
        folder = self.worktree.target
        if not folder.is_dir():
            raise Untestable(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short_commit}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=limit_s, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def _last_error_line(done: Completed) -> str:
    lines = done.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
