"""One search over commits: `search` chooses the next try, a prober makes it, and it is saved."""

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import psutil

from loop.base.places import state_folder
from loop.base.processes import Tick, Waiting
from loop.bisect import search, trying
from loop.bisect.search import ProbeRequest, SearchEnd, SearchProblem
from loop.bisect.trying import Builder, CommitLine, KernelProbe, Prober, Untestable, map_ticks
from loop.calls.call import Refused
from loop.machine.failures import Folders, FolderWatch
from loop.model.bisect import UNCOMMITTED, BisectAnswer, Candidate, Metric, Probe
from loop.model.measurement import Build
from loop.model.target import Workload
from loop.repository import worktree
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench
from loop.workers.program import WorkerLost


@dataclass(frozen=True)
class Regression:
    """A variant that the gate found slower or wrong."""

    variant: str
    metric: Metric
    workloads: tuple[Workload, ...] = ()  # Workloads on which the regression shows.
    emulated: bool = False

    @property
    def summary(self) -> str:
        """Such as `split_k is wrong under the emulator`."""
        predicate = "is slower" if self.metric == "latency" else "is wrong"
        return f"{self.variant} {predicate}{' under the emulator' if self.emulated else ''}"


@dataclass
class Bisection:
    """One search, from the first probe to the answer."""

    line: CommitLine
    prober: Prober
    sets: tuple[str, ...] = ()  # Workload sets of the target that commits are judged on.
    left_out: tuple[str, ...] = ()  # Workload sets that commits are not judged on.
    merge: Candidate | None = None  # The merge whose branches are searched, if it is such a search.
    probes: list[Probe] = field(default_factory=list)  # From this search and earlier ones.

    def run(self) -> Waiting[BisectAnswer]:
        """Build both ends, ask the gate, take saved probes, then probe. Raises MachineFailure."""
        line, prober, builder = self.line, self.prober, self.prober.builder
        is_first_search, end = self.merge is None, None  # Searches of merges follow another.
        with contextlib.ExitStack() as stack:
            if builder is not None and is_first_search:
                yield from hold_device(builder.bench, stack)
            yield from self._build(line.good, line.commits[-1])
            if is_first_search and self.problem.last_position > 0:
                # The first probe of an end reports why it cannot be tested.
                with contextlib.suppress(Untestable, WorkerLost, Refused):
                    end = yield from prober.ask_gate(line)
            # Uncommitted changes differ from call to call, and lost probes are repeated.
            committed = {candidate.commit for candidate in line.commits} - {UNCOMMITTED}
            saved = [probe for probe in prober.memory.probes() if probe.status != "lost"]
            self.probes += [probe for probe in saved if {probe.commit, probe.against} <= committed]
            if end is not None:
                return self._build_answer(end)
            measured = {probe.commit for probe in self.probes if probe.status == "measured"}
            yield from self._build(*(c for c in line.commits if c.commit in measured))
            while True:
                move = search.next_move(self.problem, self.probes)
                if isinstance(move, ProbeRequest):
                    yield from self._make_probe(move)
                    continue
                # A blamed commit that was not built, as after saved probes, may turn out to be a
                # known program: not to blame. One commit of each program stands for the others.
                problem, positions = self.problem, self.problem.positions
                runs = [positions[culprit.first : culprit.last + 1] for culprit in move.confirmed]
                blamed = sorted({position for run in runs for position in run})
                commits = [line.commits[problem.commit_at(position)] for position in blamed]
                builds = builder.build_by_tree if builder else {}
                unbuilt = [c for c in commits if builder and c.tree not in builds]
                if unbuilt:
                    yield from self._build(unbuilt[len(unbuilt) // 2])
                    continue
                if move.confirmed:  # A blamed program, or the one before, may have been taken back.
                    yield from self._build(*line.commits, compiles=False)
                if positions == self.problem.positions:
                    return (yield from self._search_merges(self._build_answer(move)))

    def _build(self, *candidates: Candidate, compiles: bool = True) -> Waiting[None]:
        """Build candidates, to know which are one program. `compiles`: as in `Builder.build`."""
        for candidate in candidates:
            yield Tick(f"building {candidate.short_commit}")
            with contextlib.suppress(Untestable):  # The first probe of it reports why.
                if self.prober.builder:
                    yield from self.prober.builder.build(candidate, compiles=compiles)

    @property
    def problem(self) -> SearchProblem:
        """The input of `search.next_move`. Not cached: a build may turn out as a known program."""
        builder, commits, programs = self.prober.builder, list[str](), list[str]()
        for candidate in self.line.commits:
            build = builder.build_by_tree.get(candidate.tree) if builder else None
            # A program's name is its build's id; before a build, or if it fails, its tree's hash.
            programs.append(build.build_id if isinstance(build, Build) else candidate.tree)
            commits.append(candidate.commit)
        return SearchProblem(tuple(commits), tuple(programs), self.prober.metric)

    def _make_probe(self, request: ProbeRequest) -> Waiting[None]:
        """Observe a commit and save the result; ticks show the reason. Does nothing if its
        program is known: another request may be due then. Raises MachineFailure, saving nothing, if
        the machine failed: a full disk can make a commit untestable, or wrong (value 0)."""
        candidate, against = self.line.commits[request.commit], self.line.commits[request.against]
        progress = f"probe {len(self.probes) + 1}, {candidate.short_commit}: {request.why}"
        watch, start_time = FolderWatch(Folders.for_process()), time.monotonic()

        def watch_folders(tick: Tick) -> Tick:
            watch.measure()
            return Tick(f"{progress}; {tick.note}")

        values, reason = tuple[float, ...](), ""
        status: Literal["measured", "broken", "lost"] = "measured"
        try:
            if self.prober.builder:
                positions = self.problem.positions
                yield from map_ticks(self.prober.builder.build(candidate), watch_folders)
                if positions != self.problem.positions:
                    return
            observing = self.prober.observe(candidate, max(request.count, 1), against)
            values = yield from map_ticks(observing, watch_folders)
        except Untestable as untestable:
            status, reason = "broken", str(untestable)
        except (WorkerLost, Refused) as lost:
            status, reason = "lost", str(lost)
        has_failed = status != "measured" or 0.0 in values
        if failure := watch.failure(has_failed=has_failed, messages=reason):
            raise failure
        probe = Probe(
            commit=candidate.commit,
            against=against.commit,
            why=request.why,
            status=status,
            values=values,
            reason=reason,
            claim=request.claim,
            seconds=time.monotonic() - start_time,
        )
        self.prober.memory.append(probe)
        self.probes.append(probe)

    def _search_merges(self, answer: BisectAnswer) -> Waiting[BisectAnswer]:
        """If a merge alone is blamed: what a search of its branches blames, unless too little."""
        if len(answer.culprits) != 1 or answer.range:
            return answer
        (merge,) = answer.culprits
        # A failure may need both branches together, so the merge itself ends the branch.
        joined = self.prober.metric == "correctness"
        for line in trying.branches_of_merge(self.line, merge, joined=joined):
            branch = yield from replace(self, line=line, merge=merge, probes=[]).run()
            fields = {
                "probes": (*answer.probes, *branch.probes),
                "builds": answer.builds + branch.builds,
                "skipped": answer.skipped | branch.skipped,
            }
            is_blamed = branch.culprits != (merge,) and bool(branch.culprits or branch.range)
            branch_step, whole_step = (-math.log(part.ratio or 1.0) for part in (branch, answer))
            if is_blamed and branch_step >= search.LEAST_SHARE * whole_step:
                # The search of an octopus's branch may end at the octopus itself.
                origin = "" if merge == self.merge else f"; it came with the merge {merge.name}"
                return branch.model_copy(update={**fields, "why": f"{branch.why}{origin}"})
            branch_text = f"{branch.outcome.replace('_', ' ')}, {branch.why}"
            if branch.culprits:
                little = f"too little of it came from {branch.why}"
                branch_text = f"no regression, {little if is_blamed else 'its commits are good'}"
            why = f"{answer.why}; on the branch that it merges: {branch_text}"
            answer = answer.model_copy(update={**fields, "why": why})
        return answer

    def _build_answer(self, end: SearchEnd) -> BisectAnswer:
        """Turn the result of `search.next_move` (indices, positions) into an answer (commits)."""
        commits, prober = self.line.commits, self.prober
        culprits = tuple(commits[index] for index in end.culprits)
        run = commits[end.range[0] : end.range[1] + 1] if end.range else ()
        is_timed = end.confirmed and prober.metric == "latency"
        patches, options = list[bytes](), ("diff", "--no-ext-diff", "--no-textconv", "--no-color")
        for commit in (culprit.commit for culprit in culprits):
            ends = ("HEAD",) if commit == UNCOMMITTED else (f"{commit}^", commit)
            patches.append(worktree.git_bytes(self.line.folder, *options, *ends, "--", "."))
        observations = search.Observations(self.problem, self.probes)
        broken = [probe for probe in self.probes if probe.status == "broken"]
        return BisectAnswer(
            outcome=end.outcome,
            why="; ".join(filter(None, (end.why, prober.warning))),
            swapped=end.swapped,
            culprits=culprits,
            range=run,
            ratio=math.exp(-end.confirmed[0].step) if is_timed else None,
            probes=tuple(self.probes),
            builds=len(observations.built_positions) + len(observations.untestable_reasons),
            skipped={probe.commit: probe.reason for probe in broken},
            sets=self.sets,
            left_out=self.left_out,
            workloads=tuple(dict.fromkeys(workload.name for workload in prober.workloads)),
            checks=prober.checks_made,
            difference=b"\n".join(patches).decode(errors="replace"),
        )


@contextlib.contextmanager
def open_kernel_bisection(
    regression: Regression, line: CommitLine, bench: Bench, seed: int
) -> Iterator[Bisection]:
    """A search for a kernel's regression, in a temporary worktree."""
    with open_worktree(line) as tree:
        builder = Builder(bench, tree, regression.variant, emulated=regression.emulated)
        yield Bisection(line, KernelProbe(regression.metric, builder, regression.workloads, seed))


@contextlib.contextmanager
def open_worktree(line: CommitLine) -> Iterator[worktree.Worktree]:
    """A temporary worktree for one search. First removes what killed processes left."""
    root = state_folder() / "worktrees"
    for folder in root.glob("bisect-*"):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and (int(owner) == os.getpid() or not psutil.pid_exists(int(owner))):
            shutil.rmtree(folder, ignore_errors=True)
    tree = worktree.make_at_commit(line.folder, root / f"bisect-{os.getpid()}", line.good.commit)
    try:
        yield tree
    finally:
        tree.remove()
