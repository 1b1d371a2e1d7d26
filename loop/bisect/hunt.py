"""The search over commits: the rules say what to try, the probes try it, everything is kept."""

import dataclasses
import math
import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from loop.base.machine_failures import Folders, Gauge
from loop.base.processes import Tick
from loop.bisect import bisection, suspects
from loop.bisect.builds import Broken, Layout
from loop.bisect.candidates import Line, earlier, merged_lines, with_branches
from loop.bisect.gate import Gate
from loop.bisect.log import bisect_log
from loop.bisect.memory import Memory
from loop.bisect.suspects import Asked, Commit, Costs, Metric, Noise, Problem, Try
from loop.bisect.trying import Prober, Question
from loop.model.bisect import UNCOMMITTED, Answer, Candidate, Claim, Probe
from loop.repository import history
from loop.repository.git import look
from loop.repository.worktree import top_of
from loop.workers.program import Refusal, WorkerLost

NUMBERED = re.compile(
    r"(?<=commit )\d+|(?<=commits )\d+|(?<= to )\d+(?=:)|(?<=is )\d+(?= slower)|(?<=slower than )\d+|"
    r"(?<=does )\d+(?= fail)|(?<=often than )\d+|(?<=the last one )\d+"
)
"""Where the rules speak of a commit by its number."""
PART = 0.15
"""Of what a merge brought: commits of its branch that bring less are not to blame for it."""
SHOWN = 1e-3
"""Probability below which a commit is left out of the answer."""


@dataclass
class Hunt:
    """One search."""

    line: Line
    prober: Prober
    memory: Memory
    metric: Metric
    costs: Costs
    noise: Noise
    inside: str = "."
    """Folder whose difference is shown, from the target's."""
    gate: Gate | None = None
    """Says first whether there is anything to search for."""
    journal: list[Asked] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    """Culprit to how much it brought, once there is an answer."""

    def run(self) -> Generator[Tick, None, Answer]:
        """Search until there is an answer."""
        if self.gate is not None:
            ruling = yield from self._ruled(self.gate)
            if ruling is not None:
                return ruling
        self._remember()
        while True:
            wanted = bisection.decide(self.problem, self.journal)
            if isinstance(wanted, suspects.Answer):
                return (yield from self._into_merges(self._told(wanted)))
            probe = yield from self._tried(wanted)
            self.memory.keep(probe)
            self._note(probe, wanted)

    def _ruled(self, gate: Gate) -> Generator[Tick, None, Answer | None]:
        """The answer, where the gate says that there is nothing to search. It may say where to look, too."""
        try:
            ruling = yield from gate.passed(self.line)
        except (Broken, WorkerLost, Refusal):
            return None  # The first look at the ends says why.
        self.memory = gate.memory()
        if ruling.outcome == "search":
            return None
        self.probes += ruling.probes
        found = self._told(suspects.Answer(ruling.outcome, (), None, (), ruling.why))
        return found.model_copy(update={"builds": gate.prober.builder.compiled})

    def _into_merges(self, answer: Answer) -> Generator[Tick, None, Answer]:
        """Where merges are to blame, the commits of their branches that are; a merge where none is alone."""
        for merge in answer.culprits:
            found: list[Answer] = []
            for branch in merged_lines(self.line, merge, joined=self.metric == "correctness"):
                found.append((yield from self._branch(branch, merge)))
                if found[-1].culprits or found[-1].range:
                    break
            answer = self._merged(answer, merge, found)
        return answer

    def _branch(self, branch: Line, merge: Candidate) -> Generator[Tick, None, Answer]:
        """What a branch of a merge has to do with it; it begins earlier where its beginning cannot be tried."""
        inner = Hunt(branch, self.prober, self.memory, self.metric, self.costs, self.noise, self.inside)
        found = yield from inner.run()
        before = earlier(branch) if branch.good.commit in found.skipped and not found.range else None
        if before is not None:
            return (yield from self._branch(before, merge))
        innocent = {"outcome": "no_regression", "culprits": (), "range": ()}
        if found.culprits == (merge,):
            return found.model_copy(update={**innocent, "why": "its commits are good"})
        if inner.steps and math.fsum(inner.steps.values()) < PART * self.steps[merge.commit]:
            return found.model_copy(update={**innocent, "why": f"too little of it came from {found.why}"})
        return found

    def _merged(self, answer: Answer, merge: Candidate, found: Sequence[Answer]) -> Answer:
        """The answer with what was found on the branches of a merge in the place of it."""
        if not found:
            return answer
        last, culprits, run = found[-1], found[-1].culprits, found[-1].range
        why = f"{last.why}; it came with the merge {merge.short} ({merge.subject})"
        if not culprits and not run:
            said = "; ".join(f"{one.outcome.replace('_', ' ')}, {one.why}" for one in found)
            why = f"{answer.why}; on the branch that it merges: {said}"
            unsure = any(one.outcome == "inconclusive" for one in found)
            culprits, run = ((), with_branches(self.line, (merge,))) if unsure else ((merge,), ())
        blamed = tuple(new for one in answer.culprits for new in (culprits if one == merge else (one,)))
        run = (*answer.range, *run)
        single = len(answer.culprits) == 1 and (last.culprits or last.range)
        skipped = {commit: reason for one in found for commit, reason in one.skipped.items()}
        fields = {
            "outcome": "several" if len(blamed) + bool(run) > 1 else "range" if run else "culprit",
            "why": why,
            "culprits": blamed,
            "range": run,
            "posterior": last.posterior if single else {**answer.posterior, **last.posterior},
            "ratio": last.ratio if single else answer.ratio,
            "probes": (*answer.probes, *(probe for one in found for probe in one.probes)),
            "builds": answer.builds + sum(one.builds for one in found),
            "skipped": {**answer.skipped, **skipped},
            "difference": "\n".join(self._differences(blamed)),
        }
        return answer.model_copy(update=fields)

    @property
    def problem(self) -> Problem:
        """What the rules are asked."""
        commits = tuple(Commit(weight=self._weight(one), group=one.tree) for one in self.line.ends)
        return Problem(commits, self.metric, self.costs, self.noise)

    def _weight(self, one: Candidate) -> float:
        if one.commit in self.line.innocent:
            return 0.0
        return suspects.TOUCHED if one.touches else 1.0

    def named(self, text: str) -> str:
        """What the rules say, with commits by their hashes."""
        return NUMBERED.sub(lambda match: self.line.ends[int(match[0])].short, text)

    def _remember(self) -> None:
        """What was observed before of these very commits."""
        places = {one.commit: number for number, one in enumerate(self.line.ends) if one.commit != UNCOMMITTED}
        for probe in self.memory.probes():
            if probe.commit in places and probe.against in places:
                fields = {"commit": places[probe.commit], "against": places[probe.against], "relink": probe.relink}
                wanted = Try(batch=len(probe.values), why=probe.why, claim=_claim_of(probe.claim), **fields)
                self._note(probe, wanted)

    def _note(self, probe: Probe, wanted: Try) -> None:
        self.probes.append(probe)
        self.journal.append(Asked(wanted, _outcome_of(probe, self.metric)))

    def _tried(self, wanted: Try) -> Generator[Tick, None, Probe]:
        """One question to the prober, with signs of life that say how the search stands.

        Raises MachineFailure where the machine failed meanwhile.
        """
        candidate, against = self.line.ends[wanted.commit], self.line.ends[wanted.against]
        asked = Question(candidate, wanted.batch, against, wanted.relink, bool(wanted.claim), self._ahead(wanted))
        begun, gauge = time.monotonic(), Gauge(Folders.of())
        status, reason, values = "measured", "", tuple[float, ...]()
        try:
            values = yield from self._noted(self.prober.tried(asked), wanted, gauge)
        except Broken as broken:
            status, reason = "broken", str(broken)
        except (WorkerLost, Refusal) as lost:
            status, reason = "lost", str(lost)
        failure = gauge.failure(bad=status != "measured" or 0.0 in values, said=reason)
        if failure is not None:  # It says nothing of the commit, and is not remembered.
            raise failure
        fields = {
            "commit": candidate.commit,
            "against": against.commit,
            "why": self.named(wanted.why),
            "status": status,
            "values": values,
            "reason": reason,
            "relink": wanted.relink,
            "claim": _stored(wanted.claim),
            "seconds": time.monotonic() - begun,
        }
        return Probe.model_validate(fields, strict=False)

    def _ahead(self, wanted: Try) -> list[Layout]:
        """Builds that may be asked for next, where they cost anything."""
        if not self.costs.build:
            return []
        steps = bisection.ahead(self.problem, self.journal, wanted)
        found = [(self.line.ends[one.commit], one.relink) for one in steps]
        return found + [(self.line.ends[one.against], one.relink) for one in steps if one.claim]

    def _noted(
        self, working: Generator[Tick, None, tuple[float, ...]], wanted: Try, gauge: Gauge
    ) -> Generator[Tick, None, tuple[float, ...]]:
        """The same, each sign of life with how the search stands."""
        standing = f"probe {len(self.probes) + 1}, {self.line.ends[wanted.commit].short}: {self.named(wanted.why)}"
        try:
            while True:
                tick = next(working)
                gauge.tick()
                yield Tick(f"{standing}; {tick.note}")
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            working.close()

    def _told(self, found: suspects.Answer) -> Answer:
        """The rules' answer in commits."""
        ends = self.line.ends
        self.steps = {ends[one.first].commit: one.step for one in found.found}
        culprits = tuple(ends[index] for index in found.culprits)
        broken = {probe.commit: probe.reason for probe in self.probes if probe.status == "broken"}
        first = found.culprits[0] if found.culprits else found.range[0] if found.range else len(ends)
        return Answer(
            outcome=found.outcome,
            why="; ".join(filter(None, (self.named(found.why), self.prober.remark))),
            culprits=culprits,
            range=with_branches(self.line, ends[found.range[0] : found.range[1] + 1]) if found.range else (),
            posterior={ends[i].commit: share for i, share in enumerate(found.posterior) if share >= SHOWN},
            ratio=math.exp(-found.found[0].step) if found.found and self.metric == "latency" else None,
            probes=tuple(self.probes),
            builds=sum(suspects.builds(self.problem, self.journal).values()),
            skipped=broken,
            log=bisect_log(self.line, first, broken, certain=found.outcome == "culprit"),
            difference="\n".join(self._differences(culprits)),
        )

    def _differences(self, culprits: tuple[Candidate, ...]) -> Iterator[str]:
        """What each culprit changed in the kernel's sources."""
        top = top_of(self.line.folder)
        assert top is not None
        for one in culprits:
            if one.commit == UNCOMMITTED:
                yield look(self.line.folder, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", self.inside)
            else:
                yield history.difference(self.line.folder, f"{one.commit}^", one.commit, self.inside)


def _claim_of(claim: Claim | None) -> suspects.Claim | None:
    if claim is None:
        return None
    fields = claim.model_dump()
    return suspects.Claim(**{**fields, "clip": math.inf if claim.clip is None else claim.clip})


def _stored(claim: suspects.Claim | None) -> Claim | None:
    if claim is None:
        return None
    fields = dataclasses.asdict(claim)
    return Claim(**{**fields, "clip": None if math.isinf(claim.clip) else claim.clip})


def _outcome_of(probe: Probe, metric: Metric) -> suspects.Outcome:
    if probe.status == "broken":
        return suspects.Broken(probe.reason)
    if probe.status == "lost":
        return suspects.Lost(probe.reason)
    return probe.values if metric == "latency" else tuple(value == 1.0 for value in probe.values)
