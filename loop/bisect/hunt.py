"""The search over commits: the rules say what to try, the probes try it, everything is kept."""

import dataclasses
import math
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from loop.bench.worker import Refusal, WorkerLost
from loop.bisect.builds import Broken
from loop.bisect.candidates import Line, merged_line
from loop.bisect.log import bisect_log
from loop.bisect.memory import Memory
from loop.bisect.probes import Prober, Question
from loop.model.bisect import UNCOMMITTED, Answer, Candidate, Claim, Probe
from loop.processes import Tick
from loop.repository import history
from loop.repository.git import git
from loop.repository.worktree import top_of
from loop.rules import bisection, suspects
from loop.rules.suspects import Asked, Commit, Costs, Metric, Noise, Problem, Try

NUMBERED = re.compile(
    r"(?<=commit )\d+|(?<=commits )\d+|(?<= to )\d+(?=:)|(?<=is )\d+(?= slower)|(?<=slower than )\d+|"
    r"(?<=does )\d+(?= fail)|(?<=often than )\d+|(?<=the last one )\d+"
)
"""Where the rules speak of a commit by its number."""
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
    journal: list[Asked] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)

    def run(self) -> Generator[Tick, None, Answer]:
        """Search until there is an answer."""
        self._remember()
        while True:
            wanted = bisection.decide(self.problem, self.journal)
            if isinstance(wanted, suspects.Answer):
                return (yield from self._into_merges(self._told(wanted)))
            probe = yield from self._tried(wanted)
            self.memory.keep(probe)
            self._note(probe, wanted)

    def _into_merges(self, answer: Answer) -> Generator[Tick, None, Answer]:
        """Where a merge is to blame, the commit of its branch that is; the merge itself where none is alone."""
        branch = merged_line(self.line, answer.culprits[0]) if len(answer.culprits) == 1 else None
        if branch is None:
            return answer
        merge = answer.culprits[0]
        inner = Hunt(branch, self.prober, self.memory, self.metric, self.costs, self.noise, self.inside)
        found = yield from inner.run()
        both = {"probes": (*answer.probes, *found.probes), "builds": answer.builds + found.builds}
        both |= {"skipped": {**answer.skipped, **found.skipped}}
        if found.outcome in ("culprit", "several"):
            fields = {"culprits": found.culprits, "posterior": found.posterior, "difference": found.difference}
            why = f"{found.why}; it came with the merge {merge.short} ({merge.subject})"
            return answer.model_copy(update={**both, **fields, "why": why, "ratio": found.ratio})
        why = f"{answer.why}; on the branch that it merges: {found.outcome.replace('_', ' ')}, {found.why}"
        return answer.model_copy(update={**both, "why": why})

    @property
    def problem(self) -> Problem:
        """What the rules are asked."""
        commits = tuple(
            Commit(weight=suspects.TOUCHED if one.touches else 1.0, group=one.tree) for one in self.line.ends
        )
        return Problem(commits, self.metric, self.costs, self.noise)

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
        """One question to the prober, with signs of life that say how the search stands."""
        candidate, against = self.line.ends[wanted.commit], self.line.ends[wanted.against]
        asked = Question(candidate, wanted.batch, against, wanted.relink)
        begun = time.monotonic()
        status, reason, values = "measured", "", tuple[float, ...]()
        try:
            values = yield from self._noted(self.prober.tried(asked), wanted)
        except Broken as broken:
            status, reason = "broken", str(broken)
        except (WorkerLost, Refusal) as lost:
            status, reason = "lost", str(lost)
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

    def _noted(
        self, working: Generator[Tick, None, tuple[float, ...]], wanted: Try
    ) -> Generator[Tick, None, tuple[float, ...]]:
        """The same, each sign of life with how the search stands."""
        standing = f"probe {len(self.probes) + 1}, {self.line.ends[wanted.commit].short}: {self.named(wanted.why)}"
        try:
            while True:
                tick = next(working)
                yield Tick(f"{standing}; {tick.note}")
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            working.close()

    def _told(self, found: suspects.Answer) -> Answer:
        """The rules' answer in commits."""
        ends = self.line.ends
        culprits = tuple(ends[index] for index in found.culprits)
        broken = {probe.commit: probe.reason for probe in self.probes if probe.status == "broken"}
        first = found.culprits[0] if found.culprits else found.range[0] if found.range else len(ends)
        return Answer(
            outcome=found.outcome,
            why=self.named(found.why),
            culprits=culprits,
            range=ends[found.range[0] : found.range[1] + 1] if found.range else (),
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
                yield git(self.line.folder, "diff", "--no-ext-diff", "--no-color", "HEAD", "--", self.inside)
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
