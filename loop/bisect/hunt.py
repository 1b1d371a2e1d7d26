"""One search over commits: `search` chooses the next try, a prober makes it, and it is saved."""

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

from loop.base.machine_failures import Folders, FolderWatch
from loop.base.places import state_folder
from loop.base.processes import Tick
from loop.bisect.candidates import (
    Builder,
    CommitLine,
    Untestable,
    branches_of_merge,
    expand_merges,
    list_sources,
    name_programs,
)
from loop.bisect.model import ProbeRequest, SearchEnd, SearchProblem
from loop.bisect.search import LEAST_PART, Observations, next_move
from loop.bisect.trying import CorrectnessProbe, LatencyProbe, Prober, map_ticks
from loop.model.bisect import UNCOMMITTED, BisectAnswer, Candidate, Metric, Probe
from loop.model.target import Workload
from loop.repository import reading, worktree
from loop.repository.git import read_bytes, shown_text
from loop.repository.worktree import Worktree
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench
from loop.workers.program import Refusal, WorkerLost

NAMED = 4
"""Most source files that a message names."""
SHOWN = 1e-3
"""The answer omits commits with a smaller share."""
SAID: dict[Metric, str] = {"latency": "is slower", "correctness": "is wrong"}


@dataclass(frozen=True)
class Regression:
    """A variant that the gate found slower or wrong."""

    variant: str
    metric: Metric
    workloads: tuple[Workload, ...] = ()
    """Workloads on which the regression shows."""
    emulated: bool = False

    @property
    def what(self) -> str:
        """`split_k is wrong under the emulator`."""
        return f"{self.variant} {SAID[self.metric]}{' under the emulator' if self.emulated else ''}"


@dataclass
class Bisection:
    """One search, from the first try to the answer."""

    line: CommitLine
    prober: Prober
    sets: tuple[str, ...] = ()
    """Workload sets of the target that commits are judged on."""
    left_out: tuple[str, ...] = ()
    """Workload sets that commits are not judged on."""
    merge: Candidate | None = None
    """The merge whose branches are searched (without asking the gate again); else None."""
    probes: list[Probe] = field(default_factory=list)
    """Observations of the line's commits, from this search and earlier ones."""
    step_by_culprit: dict[str, float] = field(default_factory=dict)
    """Culprit to the size of its step (see `Culprit.step`), once there is an answer."""

    def run(self) -> Generator[Tick, None, BisectAnswer]:
        """Search until there is an answer. Raises MachineFailure if the machine failed."""
        line, prober, builder = self.line, self.prober, self.prober.builder
        with ExitStack() as stack:
            if builder is not None:
                if self.merge is None:
                    yield from hold_device(builder.bench, stack)
                for candidate in (line.good, line.commits[-1]):
                    with contextlib.suppress(Untestable):
                        yield from builder.build(candidate)
                if self.problem.last_position == 0:
                    names, count = list_sources(line, builder), len(line.candidates)
                    what = f" ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})" if names else ""
                    which = (
                        f"none of the {count} commits changes" if count > 1 else "the one commit does not change"
                    )
                    why = f"not in the code: {which} what {builder.variant} is built from{what}"
                    return self._build_answer(SearchEnd("no_regression", why))
            if self.merge is None:
                try:
                    end, probes = yield from prober.ask_gate(line)
                    if end is not None:
                        self.probes += probes
                        return self._build_answer(end)
                except (Untestable, WorkerLost, Refusal):
                    pass  # The first try of this end reports why.
            committed = {candidate.commit for candidate in line.commits} - {UNCOMMITTED}
            # Lost tries are repeated.
            known = [probe for probe in prober.memory.probes() if probe.status != "lost"]
            self.probes += [probe for probe in known if {probe.commit, probe.against} <= committed]
            while isinstance(move := next_move(self.problem, self.probes), ProbeRequest):
                yield from self._make_probe(move)
            return (yield from self._search_merges(self._build_answer(move)))

    @property
    def problem(self) -> SearchProblem:
        """The input of `search`; not cached, since each build may read files no other reads."""
        commits = tuple(candidate.commit for candidate in self.line.commits)
        return SearchProblem(commits, name_programs(self.line, self.prober.builder), self.prober.metric)

    def _make_probe(self, attempt: ProbeRequest) -> Generator[Tick, None, None]:
        """Make a try and save its result, with ticks that tell how the search stands.

        Raises MachineFailure if the machine failed; not saved, since the commit is not at fault.
        """
        candidate, against = self.line.commits[attempt.commit], self.line.commits[attempt.against]
        standing = f"probe {len(self.probes) + 1}, {candidate.short_commit}: {attempt.why}"
        gauge, begun = FolderWatch(Folders.of()), time.monotonic()

        def see(tick: Tick) -> Tick:
            gauge.measure_if_due()
            return Tick(f"{standing}; {tick.note}")

        values, reason = tuple[float, ...](), ""
        status: Literal["measured", "broken", "lost"] = "measured"
        try:
            values = yield from map_ticks(self.prober.observe(candidate, max(attempt.count, 1), against), see)
        except Untestable as untestable:
            status, reason = "broken", str(untestable)
        except (WorkerLost, Refusal) as lost:
            status, reason = "lost", str(lost)
        if failure := gauge.failure(has_failed=status != "measured" or 0.0 in values, messages=reason):
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
        self.prober.memory.append(probe)
        self.probes.append(probe)

    def _search_merges(self, answer: BisectAnswer) -> Generator[Tick, None, BisectAnswer]:
        """Replace each merge among the culprits by culprits on its branches, if there are any."""
        for merge in answer.culprits:
            branches: list[BisectAnswer] = []
            for line in branches_of_merge(self.line, merge, joined=self.prober.metric == "correctness"):
                inner = replace(self, line=line, merge=merge, probes=[], step_by_culprit={})
                branch = yield from inner.run()
                why = ""
                if branch.culprits == (merge,):
                    why = "its commits are good"
                elif (
                    inner.step_by_culprit
                    and math.fsum(inner.step_by_culprit.values()) < LEAST_PART * self.step_by_culprit[merge.commit]
                ):
                    why = f"too little of it came from {branch.why}"
                innocent = {"outcome": "no_regression", "culprits": (), "range": (), "why": why}
                branches.append(branch.model_copy(update=innocent) if why else branch)
                if branches[-1].culprits or branches[-1].range:
                    break
            if branches:
                answer = self._replace_merge(answer, merge, branches)
        return answer

    def _replace_merge(
        self, answer: BisectAnswer, merge: Candidate, branches: Sequence[BisectAnswer]
    ) -> BisectAnswer:
        """The answer with a merge replaced by its branches' results; the last may name culprits."""
        last, every = branches[-1], (answer, *branches)
        culprits, run = last.culprits, last.range
        why, ratio = f"{last.why}; it came with the merge {merge.short_commit} ({merge.subject})", answer.ratio
        if not culprits and not run:
            results = "; ".join(f"{branch.outcome.replace('_', ' ')}, {branch.why}" for branch in branches)
            why = f"{answer.why}; on the branch that it merges: {results}"
            if any(branch.outcome == "inconclusive" for branch in branches):  # Any commit of the merge may be it.
                run = expand_merges(self.line, (merge,))
            else:
                culprits = (merge,)
        elif len(answer.culprits) == 1:
            ratio = last.ratio
        at, run = answer.culprits.index(merge), (*answer.range, *run)
        blamed = (*answer.culprits[:at], *culprits, *answer.culprits[at + 1 :])
        fields = {
            "outcome": "several" if len(blamed) + bool(run) > 1 else "range" if run else "culprit",
            "why": why,
            "culprits": blamed,
            "range": run,
            "posterior": answer.posterior | last.posterior,
            "ratio": ratio,
            "probes": tuple(probe for part in every for probe in part.probes),
            "builds": sum(part.builds for part in every),
            "skipped": {commit: reason for part in every for commit, reason in part.skipped.items()},
            "difference": self._read_diffs(blamed),
        }
        return answer.model_copy(update=fields)

    def _build_answer(self, end: SearchEnd) -> BisectAnswer:
        """Turn the result of `search` (indices) into an answer (commits)."""
        ends, problem, prober = self.line.commits, self.problem, self.prober
        self.step_by_culprit = {ends[culprit.first].commit: culprit.step for culprit in end.confirmed}
        culprits = tuple(ends[index] for index in end.culprits)
        observations = Observations(problem, self.probes)
        shares = zip(problem.first_commits, end.probabilities, strict=False)
        return BisectAnswer(
            outcome=end.outcome,
            why="; ".join(filter(None, (end.why, prober.warning))),
            swapped=end.swapped,
            culprits=culprits,
            range=expand_merges(self.line, ends[end.range[0] : end.range[1] + 1]) if end.range else (),
            posterior={ends[first].commit: share for first, share in shares if share >= SHOWN},
            ratio=math.exp(-end.confirmed[0].step) if end.confirmed and prober.metric == "latency" else None,
            probes=tuple(self.probes),
            builds=len(observations.built_positions) + len(observations.untestable_reasons),
            skipped={probe.commit: probe.reason for probe in self.probes if probe.status == "broken"},
            sets=self.sets,
            left_out=self.left_out,
            workloads=tuple(dict.fromkeys(workload.name for workload in prober.workloads)),
            checks=prober.checks_made,
            difference=self._read_diffs(culprits),
        )

    def _read_diffs(self, culprits: Sequence[Candidate]) -> str:
        """Diffs of the culprits, in the target's folder."""
        words = ("diff", "--no-ext-diff", "--no-color", "HEAD", "--", ".")
        return "\n".join(
            shown_text(read_bytes(self.line.folder, *words))
            if culprit.commit == UNCOMMITTED
            else reading.difference(self.line.folder, f"{culprit.commit}^", culprit.commit)
            for culprit in culprits
        )


@contextlib.contextmanager
def open_kernel_bisection(
    regression: Regression, line: CommitLine, bench: Bench, seed: int
) -> Iterator[Bisection]:
    """A search for a kernel's regression, in a temporary worktree."""
    kind = CorrectnessProbe if regression.metric == "correctness" else LatencyProbe
    with open_worktree(line) as tree:
        builder = Builder(bench, tree, regression.variant, emulated=regression.emulated)
        yield Bisection(line, kind(builder, regression.workloads, seed))


@contextlib.contextmanager
def open_worktree(line: CommitLine) -> Iterator[Worktree]:
    """A temporary worktree for one search; also removes those left by killed processes."""
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
