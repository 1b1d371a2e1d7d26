"""The search over commits: the rules say what to try, the prober tries it, everything is kept."""

import contextlib
import math
import os
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Literal

import psutil

from loop.base.machine_failures import Folders, Gauge
from loop.base.places import state_folder
from loop.base.processes import Tick
from loop.bisect.candidates import Builder, Line, Untestable, kernels, merged_lines, sources, with_branches
from loop.bisect.model import Metric, Problem, SearchEnd, Try, WeighedCommit, read
from loop.bisect.search import PART, next_move
from loop.bisect.trying import CorrectnessProbe, KernelProbe, LatencyProbe, ProbeMemory, Prober, watching
from loop.machine.machine import machine
from loop.model.bisect import UNCOMMITTED, BisectAnswer, Candidate, Probe
from loop.model.target import Workload
from loop.repository import reading, worktree
from loop.repository.git import read_bytes, shown
from loop.repository.worktree import Worktree
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench
from loop.workers.program import Refusal, WorkerLost

TOUCHED = 10.0
"""Prior weight of a commit that touches the kernel's files, where others have 1."""
NAMED = 4
"""Sources that are named where no commit changes any."""
SHOWN = 1e-3  # Share below which a commit is left out of the answer.


@dataclass
class Hunt:
    """One search."""

    line: Line
    prober: Prober
    memory: ProbeMemory
    metric: Metric
    searched: bool = True
    """Whether a kernel's gate is asked first if there is anything to search for; not of a merge's branches."""
    builder: Builder | None = None
    """What builds its commits here, and so knows which of them are the same kernel; None where nobody does."""
    device: Bench | None = None
    """Nobody else measures on its device meanwhile."""
    sets: tuple[str, ...] = ()
    """Workload sets of the target that commits are judged on."""
    left_out: tuple[str, ...] = ()
    """Those that they are not judged on."""
    probes: list[Probe] = field(default_factory=list)
    """What was observed of the line's commits, so far and before."""
    steps: dict[str, float] = field(default_factory=dict)
    """Culprit to how much it brought, once there is an answer."""

    def run(self) -> Generator[Tick, None, BisectAnswer]:
        """Search until there is an answer. Raises MachineFailure where the machine failed meanwhile."""
        line, builder = self.line, self.builder
        with ExitStack() as stack:
            if self.device is not None:
                yield from hold_device(self.device, stack)
            if builder is not None:
                yield from builder.prepare([line.good, line.ends[-1]])
                if self.problem.last == 0:
                    names, count = sources(line, builder), len(line.candidates)
                    what = f" ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})" if names else ""
                    which = (
                        f"none of the {count} commits changes" if count > 1 else "the one commit does not change"
                    )
                    why = f"not in the code: {which} what {builder.variant} is built from{what}"
                    return self._answer(SearchEnd("no_regression", why))
            if isinstance(self.prober, KernelProbe) and self.searched:
                try:
                    end, probes = yield from self.prober.passed(line)
                    if end is not None:
                        builds = builder.compiled if builder else 0
                        return self._answer(end).model_copy(update={"builds": builds, "probes": probes})
                except (Untestable, WorkerLost, Refusal):
                    pass  # The first look at the ends says why.
                self.memory = self.prober.memory()
            committed = {candidate.commit for candidate in line.ends} - {UNCOMMITTED}
            # What was lost is asked for again.
            known = [probe for probe in self.memory.probes() if probe.status != "lost"]
            self.probes += [probe for probe in known if {probe.commit, probe.against} <= committed]
            while isinstance(move := next_move(self.problem, self.probes), Try):
                yield from self._observe(move)
            return (yield from self._into_merges(self._answer(move)))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Of the good end and each candidate what tells its kernel from others."""
        if self.builder is None:
            return tuple(candidate.tree for candidate in self.line.ends)
        return kernels(self.line, self.builder)

    @property
    def problem(self) -> Problem:
        """What the rules are asked."""
        commits = []
        for candidate, kernel in zip(self.line.ends, self.kernels, strict=True):
            weight = TOUCHED if candidate.touches or self.builder is not None else 1.0
            commits.append(WeighedCommit(candidate.commit, weight, kernel))
        return Problem(tuple(commits), self.metric)

    def _observe(self, attempt: Try) -> Generator[Tick, None, None]:
        """Make a try, and keep what came of it, with signs of life that say how the search stands.

        Raises MachineFailure where the machine failed meanwhile: that says nothing of the commit, and is not kept.
        """
        candidate, against = self.line.ends[attempt.commit], self.line.ends[attempt.against]
        standing = f"probe {len(self.probes) + 1}, {candidate.short}: {attempt.why}"
        gauge, begun = Gauge(Folders.of()), time.monotonic()

        def see(tick: Tick) -> Tick:
            gauge.tick()
            return Tick(f"{standing}; {tick.note}")

        values, reason = tuple[float, ...](), ""
        status: Literal["measured", "broken", "lost"] = "measured"
        try:
            values = yield from watching(self.prober.tried(candidate, max(attempt.batch, 1), against), see)
        except Untestable as untestable:
            status, reason = "broken", str(untestable)
        except (WorkerLost, Refusal) as lost:
            status, reason = "lost", str(lost)
        if failure := gauge.failure(bad=status != "measured" or 0.0 in values, text=reason):
            raise failure
        probe = Probe(
            commit=candidate.commit,
            against=against.commit,
            why=attempt.why,
            status=status,
            values=values,
            reason=reason,
            claim=attempt.claim,
            seconds=time.monotonic() - begun,
        )
        self.memory.keep(probe)
        self.probes.append(probe)

    def _into_merges(self, answer: BisectAnswer) -> Generator[Tick, None, BisectAnswer]:
        """Where merges are to blame, the commits of their branches that are; a merge where none is alone."""
        for merge in answer.culprits:
            branches: list[BisectAnswer] = []
            for line in merged_lines(self.line, merge, joined=self.metric == "correctness"):
                inner = replace(self, line=line, searched=False, device=None, probes=[], steps={})
                branch = yield from inner.run()
                why = ""
                if branch.culprits == (merge,):
                    why = "its commits are good"
                elif inner.steps and math.fsum(inner.steps.values()) < PART * self.steps[merge.commit]:
                    why = f"too little of it came from {branch.why}"
                innocent = {"outcome": "no_regression", "culprits": (), "range": (), "why": why}
                branches.append(branch.model_copy(update=innocent) if why else branch)
                if branches[-1].culprits or branches[-1].range:
                    break
            if branches:
                answer = self._merged(answer, merge, branches)
        return answer

    def _merged(self, answer: BisectAnswer, merge: Candidate, branches: Sequence[BisectAnswer]) -> BisectAnswer:
        """The answer with what the branches of a merge came to in its place; the last may have the culprit."""
        last, run, at = branches[-1], answer.range, answer.culprits.index(merge)
        named = bool(last.culprits or last.range)
        culprits: tuple[Candidate, ...] = (merge,)
        if named:
            culprits, run = last.culprits, (*run, *last.range)
            why = f"{last.why}; it came with the merge {merge.short} ({merge.subject})"
        else:
            results = "; ".join(f"{branch.outcome.replace('_', ' ')}, {branch.why}" for branch in branches)
            why = f"{answer.why}; on the branch that it merges: {results}"
            if any(branch.outcome == "inconclusive" for branch in branches):  # Anything that it brought.
                culprits, run = (), (*run, *with_branches(self.line, (merge,)))
        blamed = (*answer.culprits[:at], *culprits, *answer.culprits[at + 1 :])
        alone, every = named and len(answer.culprits) == 1, [answer, *branches]
        fields = {
            "outcome": "several" if len(blamed) + bool(run) > 1 else "range" if run else "culprit",
            "why": why,
            "culprits": blamed,
            "range": run,
            "posterior": last.posterior if alone else {**answer.posterior, **last.posterior},
            "ratio": last.ratio if alone else answer.ratio,
            "probes": tuple(probe for part in every for probe in part.probes),
            "builds": sum(part.builds for part in every),
            "skipped": {commit: reason for part in every for commit, reason in part.skipped.items()},
            "difference": self._differences(blamed),
        }
        return answer.model_copy(update=fields)

    def _answer(self, end: SearchEnd) -> BisectAnswer:
        """The rules' answer in commits."""
        ends = self.line.ends
        self.steps = {ends[culprit.first].commit: culprit.step for culprit in end.found}
        culprits = tuple(ends[index] for index in end.culprits)
        observations = read(self.problem, self.probes)
        return BisectAnswer(
            outcome=end.outcome,
            why="; ".join(filter(None, (end.why, self.prober.remark))),
            swapped=end.swapped,
            culprits=culprits,
            range=with_branches(self.line, ends[end.range[0] : end.range[1] + 1]) if end.range else (),
            posterior={ends[i].commit: share for i, share in enumerate(end.shares) if share >= SHOWN},
            ratio=math.exp(-end.found[0].step) if end.found and self.metric == "latency" else None,
            probes=tuple(self.probes),
            builds=len(observations.built) + len(observations.broken),
            skipped={probe.commit: probe.reason for probe in self.probes if probe.status == "broken"},
            sets=self.sets,
            left_out=self.left_out,
            workloads=tuple(dict.fromkeys(workload.name for workload in self.prober.workloads)),
            checks=self.prober.made,
            difference=self._differences(culprits),
        )

    def _differences(self, culprits: Sequence[Candidate]) -> str:
        """What each culprit changed in the kernel's sources."""
        words = ("diff", "--no-ext-diff", "--no-color", "HEAD", "--", ".")
        return "\n".join(
            shown(read_bytes(self.line.folder, *words))
            if culprit.commit == UNCOMMITTED
            else reading.difference(self.line.folder, f"{culprit.commit}^", culprit.commit)
            for culprit in culprits
        )


BUILD_LIMIT_S = 600.0
SAID: dict[Metric, str] = {"latency": "is slower", "correctness": "is wrong"}


@dataclass(frozen=True)
class Regression:
    """What the gate says against a variant."""

    variant: str
    metric: Metric
    workloads: tuple[Workload, ...] = ()
    """Where it shows."""
    emulated: bool = False

    @property
    def what(self) -> str:
        """`split_k is wrong under the emulator`."""
        return f"{self.variant} {SAID[self.metric]}{' under the emulator' if self.emulated else ''}"


@contextlib.contextmanager
def kernel_hunt(regression: Regression, line: Line, bench: Bench, seed: int) -> Iterator[Hunt]:
    """The search on today's workloads."""
    variant, emulated, metric = regression.variant, regression.emulated, regression.metric
    where = machine().processor if bench.device == "cpu" else ", ".join(machine().gpus[:1])
    asked = (str(bench.folder), variant, where, str(bench.threads), *(["emulated"] if emulated else []))
    kind = CorrectnessProbe if metric == "correctness" else LatencyProbe
    with own_tree(line) as tree:
        builder = Builder(bench, tree, variant, BUILD_LIMIT_S, line.good, emulated=emulated, inside=line.inside)
        prober = kind(bench, builder, regression.workloads, seed, asked)
        yield Hunt(line, prober, prober.memory(), metric, builder=builder, device=bench)


@contextlib.contextmanager
def own_tree(line: Line) -> Iterator[Worktree]:
    """A worktree for the time of a search; those of processes that were killed are taken away first."""
    root = state_folder() / "worktrees"
    for left in root.glob("bisect-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    tree = worktree.make_at(line.folder, root / f"bisect-{os.getpid()}", line.good.commit)
    try:
        yield tree
    finally:
        worktree.remove(tree)
