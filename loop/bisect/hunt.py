"""The search over commits: the rules say what to try, the probes try it, everything is kept."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from loop.base.machine_failures import Folders, Gauge
from loop.base.processes import Tick
from loop.bisect.builds import Builder, Untestable
from loop.bisect.candidates import Line, earlier, kernels, merged_lines, sources, with_branches
from loop.bisect.gate import Gate
from loop.bisect.latency import PART
from loop.bisect.model import (
    Broken,
    Lost,
    Metric,
    Outcome,
    Problem,
    SearchEnd,
    SearchTry,
    Try,
    WeighedCommit,
    read,
)
from loop.bisect.search import next_tries
from loop.bisect.trying import Probed, ProbeMany, ProbeMemory, Prober, Question, side_by_side, watching
from loop.model.bisect import UNCOMMITTED, BisectAnswer, Candidate, Probe
from loop.repository import history
from loop.repository.git import look_at_bytes, shown
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench
from loop.workers.program import Refusal, WorkerLost

TOUCHED = 10.0
"""Prior weight of a commit that touches the kernel's files, where others have 1."""
NAMED = 4
"""Sources that are named where no commit changes any."""
JOB_PAIRS = 6
"""Pairs of a probe at least, where each is a job of its own."""
SHOWN = 1e-3
"""Probability below which a commit is left out of the answer."""


@dataclass
class Hunt:
    """One search."""

    line: Line
    prober: Prober
    memory: ProbeMemory
    metric: Metric
    gate: Gate | None = None
    """Says first whether there is anything to search for."""
    builder: Builder | None = None
    """What builds its commits here, and so knows which of them are the same kernel; None where nobody does."""
    device: Bench | None = None
    """Nobody else measures on its device meanwhile."""
    many: ProbeMany | None = None
    """Tries several commits at the same time; None: the prober tries one after the other."""
    width: int = 3
    """So many at the same time. Where they are tried one after the other: so many are built beside that one."""
    sets: tuple[str, ...] = ()
    """Workload sets of the target that commits are judged on."""
    left_out: tuple[str, ...] = ()
    """Those that they are not judged on."""
    journal: list[SearchTry] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    """Culprit to how much it brought, once there is an answer."""

    def run(self) -> Generator[Tick, None, BisectAnswer]:
        """Search until there is an answer."""
        with ExitStack() as stack:
            if self.device is not None:
                yield from hold_device(self.device, stack)
            return (yield from self._run())

    def _run(self) -> Generator[Tick, None, BisectAnswer]:
        if self.builder is not None:
            yield from self.builder.prepare([self.line.good, self.line.ends[-1]])
            if self.problem.positions.last == 0:
                return self._told(SearchEnd("no_regression", self._unchanged(self.builder)))
        if self.gate is not None:
            ruling = yield from self._ruled(self.gate)
            if ruling is not None:
                return ruling
        self._remember()
        while True:
            wanted = self._next()
            if isinstance(wanted, SearchEnd):
                return (yield from self._into_merges(self._told(wanted)))
            yield from self._tried(wanted)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Of the good end and each candidate what tells its kernel from others."""
        if self.builder is None:
            return tuple(candidate.tree for candidate in self.line.ends)
        return kernels(self.line, self.builder)

    def _unchanged(self, builder: Builder) -> str:
        """Why no commit is to blame."""
        names = sources(self.line, builder)
        what = f" ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})" if names else ""
        count = len(self.line.candidates)
        which = f"none of the {count} commits changes" if count > 1 else "the one commit does not change"
        return f"not in the code: {which} what {builder.variant} is built from{what}"

    def _ruled(self, gate: Gate) -> Generator[Tick, None, BisectAnswer | None]:
        """The answer, where the gate says that there is nothing to search. It may say where to look, too."""
        try:
            ruling = yield from gate.passed(self.line)
        except (Untestable, WorkerLost, Refusal):
            return None  # The first look at the ends says why.
        self.memory = gate.memory()
        if ruling.outcome == "search":
            return None
        self.probes += ruling.probes
        answer = self._told(SearchEnd(ruling.outcome, ruling.why, swapped=ruling.swapped))
        return answer.model_copy(update={"builds": self.builder.compiled if self.builder else 0})

    def _into_merges(self, answer: BisectAnswer) -> Generator[Tick, None, BisectAnswer]:
        """Where merges are to blame, the commits of their branches that are; a merge where none is alone."""
        for merge in answer.culprits:
            branches: list[BisectAnswer] = []
            for branch in merged_lines(self.line, merge, joined=self.metric == "correctness"):
                branches.append((yield from self._branch(branch, merge)))
                if branches[-1].culprits or branches[-1].range:
                    break
            answer = self._merged(answer, merge, branches) if branches else answer
        return answer

    def _branch(self, branch: Line, merge: Candidate) -> Generator[Tick, None, BisectAnswer]:
        """What a branch of a merge has to do with it; it begins earlier where its beginning cannot be tried."""
        inner = replace(self, line=branch, gate=None, device=None, journal=[], probes=[], steps={})
        answer = yield from inner.run()
        before = earlier(branch) if branch.good.commit in answer.skipped and not answer.range else None
        if before is not None:
            return (yield from self._branch(before, merge))
        innocent = {"outcome": "no_regression", "culprits": (), "range": ()}
        if answer.culprits == (merge,):
            return answer.model_copy(update={**innocent, "why": "its commits are good"})
        if inner.steps and math.fsum(inner.steps.values()) < PART * self.steps[merge.commit]:
            return answer.model_copy(update={**innocent, "why": f"too little of it came from {answer.why}"})
        return answer

    def _merged(self, answer: BisectAnswer, merge: Candidate, branches: Sequence[BisectAnswer]) -> BisectAnswer:
        """The answer with what the branches of a merge came to in its place; the last may have the culprit."""
        last = branches[-1]
        named = bool(last.culprits or last.range)
        culprits, run = (last.culprits, last.range) if named else self._unnamed(merge, branches)
        at = answer.culprits.index(merge)
        blamed = (*answer.culprits[:at], *culprits, *answer.culprits[at + 1 :])
        run = (*answer.range, *run)
        alone = named and len(answer.culprits) == 1
        every = [answer, *branches]
        fields = {
            "outcome": "several" if len(blamed) + bool(run) > 1 else "range" if run else "culprit",
            "why": _why_merged(answer, merge, branches),
            "culprits": blamed,
            "range": run,
            "posterior": last.posterior if alone else {**answer.posterior, **last.posterior},
            "ratio": last.ratio if alone else answer.ratio,
            "probes": tuple(probe for part in every for probe in part.probes),
            "builds": sum(part.builds for part in every),
            "skipped": {commit: why for part in every for commit, why in part.skipped.items()},
            "difference": "\n".join(self._differences(blamed)),
        }
        return answer.model_copy(update=fields)

    def _unnamed(
        self, merge: Candidate, branches: Sequence[BisectAnswer]
    ) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
        """Culprits and range where no branch has one: the merge itself, or anything that it brought."""
        if any(branch.outcome == "inconclusive" for branch in branches):
            return (), with_branches(self.line, (merge,))
        return (merge,), ()

    @property
    def problem(self) -> Problem:
        """What the rules are asked."""
        pairs = zip(self.line.ends, self.kernels, strict=True)
        commits = tuple(
            WeighedCommit(self._weight(candidate), kernel, candidate.short) for candidate, kernel in pairs
        )
        return Problem(commits, self.metric, told=not self.line.whole)

    def _weight(self, candidate: Candidate) -> float:
        if candidate.commit in self.line.innocent:
            return 0.0
        return TOUCHED if candidate.touches or self.builder is not None else 1.0

    def _remember(self) -> None:
        """What was observed before of these very commits; what was lost is asked for again."""
        places = {
            candidate.commit: number
            for number, candidate in enumerate(self.line.ends)
            if candidate.commit != UNCOMMITTED
        }
        for probe in self.memory.probes():
            if probe.status != "lost" and probe.commit in places and probe.against in places:
                against = places[probe.against]
                count = len(probe.values)
                self._note(probe, Try(places[probe.commit], count, probe.why, against, probe.claim))

    def _note(self, probe: Probe, wanted: Try) -> None:
        self.probes.append(probe)
        self.journal.append(SearchTry(wanted, _outcome_of(probe)))

    def _next(self) -> Sequence[Try] | SearchEnd:
        """What is tried now: one after the other, or several on machines of their own."""
        wanted = next_tries(self.problem, self.journal, self.width if self.many is not None else 1)
        if self.many is None or self.metric == "correctness" or isinstance(wanted, SearchEnd):
            return wanted
        return [replace(attempt, batch=max(attempt.batch, JOB_PAIRS)) for attempt in wanted]

    def _tried(self, wanted: Sequence[Try]) -> Generator[Tick, None, None]:
        """Ask for these at the same time, and keep what counts, with signs of life that say how the search stands.

        Raises MachineFailure where the machine failed meanwhile.
        """
        questions, gauge = [self._question(attempt, wanted) for attempt in wanted], Gauge(Folders.of())
        names = ", ".join(dict.fromkeys(attempt.candidate.short for attempt in questions))
        standing = f"probe {len(self.probes) + 1}, {names}: {wanted[0].why}"

        def see(tick: Tick) -> Tick:
            """A sign of life with how the search stands."""
            gauge.tick()
            return Tick(f"{standing}; {tick.note}")

        many = self.many or side_by_side([self.prober])
        answers = yield from watching(many(questions), see)
        bad = any(answer.status != "measured" or 0.0 in answer.values for answer in answers)
        failure = gauge.failure(bad=bad, text="; ".join(answer.reason for answer in answers if answer.reason))
        if failure is not None:  # It says nothing of the commits, and is not remembered.
            raise failure
        pairs = list(zip(wanted, answers, strict=True))
        for asked, outcome in [pair for pair in pairs if pair[1].status != "lost"] or pairs[:1]:
            probe = self._probe(asked, outcome)
            self.memory.keep(probe)
            self._note(probe, asked)

    def _question(self, wanted: Try, beside: Sequence[Try]) -> Question:
        """A try as a prober takes it."""
        return Question(
            candidate=self.line.ends[wanted.commit],
            count=wanted.batch,
            against=self.line.ends[wanted.against],
            ahead=() if len(beside) > 1 else self._ahead(),
        )

    def _probe(self, wanted: Try, answer: Probed) -> Probe:
        """What is kept of a try."""
        fields = {
            "commit": self.line.ends[wanted.commit].commit,
            "against": self.line.ends[wanted.against].commit,
            "why": wanted.why,
            "status": answer.status,
            "values": answer.values,
            "reason": answer.reason,
            "claim": wanted.claim,
            "seconds": answer.seconds,
        }
        return Probe.model_validate(fields, strict=False)

    def _ahead(self) -> list[Candidate]:
        """Builds that may be asked for next."""
        tries = next_tries(self.problem, self.journal, 1 + self.width)
        return [] if isinstance(tries, SearchEnd) else [self.line.ends[attempt.commit] for attempt in tries]

    def _told(self, concluded: SearchEnd) -> BisectAnswer:
        """The rules' answer in commits."""
        ends, culprits_found = self.line.ends, concluded.found
        self.steps = {ends[one.first].commit: one.step for one in culprits_found}
        culprits = tuple(ends[index] for index in concluded.culprits)
        broken = {probe.commit: probe.reason for probe in self.probes if probe.status == "broken"}
        run = concluded.range
        first = (*concluded.culprits, *(run or ()), len(ends))[0]
        observations = read(self.problem, self.journal)
        return BisectAnswer(
            outcome=concluded.outcome,
            why="; ".join(filter(None, (concluded.why, self.prober.remark))),
            swapped=concluded.swapped,
            culprits=culprits,
            range=with_branches(self.line, ends[run[0] : run[1] + 1]) if run else (),
            posterior={ends[i].commit: share for i, share in enumerate(concluded.shares) if share >= SHOWN},
            ratio=math.exp(-culprits_found[0].step) if culprits_found and self.metric == "latency" else None,
            probes=tuple(self.probes),
            builds=len(observations.built) + len(observations.broken),
            skipped=broken,
            log=bisect_log(self.line, first, broken, certain=concluded.outcome == "culprit"),
            sets=self.sets,
            left_out=self.left_out,
            workloads=tuple(dict.fromkeys(one.name for one in self.prober.workloads)),
            checks=self.prober.made,
            difference="\n".join(self._differences(culprits)),
        )

    def _differences(self, culprits: Sequence[Candidate]) -> Iterator[str]:
        """What each culprit changed in the kernel's sources."""
        for culprit in culprits:
            if culprit.commit == UNCOMMITTED:
                words = ("diff", "--no-ext-diff", "--no-color", "HEAD", "--", ".")
                yield shown(look_at_bytes(self.line.folder, *words))
            else:
                yield history.difference(self.line.folder, f"{culprit.commit}^", culprit.commit)


def _why_merged(answer: BisectAnswer, merge: Candidate, branches: Sequence[BisectAnswer]) -> str:
    """In words: why the last branch is to blame, else why the merge is and what each branch came to."""
    last = branches[-1]
    if last.culprits or last.range:
        return f"{last.why}; it came with the merge {merge.short} ({merge.subject})"
    results = "; ".join(f"{branch.outcome.replace('_', ' ')}, {branch.why}" for branch in branches)
    return f"{answer.why}; on the branch that it merges: {results}"


def _outcome_of(probe: Probe | Probed) -> Outcome:
    if probe.status == "measured":
        return probe.values
    return Broken(probe.reason) if probe.status == "broken" else Lost(probe.reason)


def bisect_log(line: Line, first_bad: int, skipped: Mapping[str, str], *, certain: bool = True) -> str:
    """The log of a search that ended at a candidate: its number among the ends, 0 being the good one.

    Commits before it are good, it and those after it bad, those that could not be tried skipped. What is in no
    commit is left out: git knows nothing of it.
    """
    return "\n".join(_lines(line, first_bad, skipped, certain=certain)) + "\n"


def _lines(line: Line, first_bad: int, skipped: Mapping[str, str], *, certain: bool) -> Iterator[str]:
    """Both ends, then the first bad commit, the one before it and all skipped ones: git infers the others."""
    committed = [
        (number, candidate) for number, candidate in enumerate(line.ends) if candidate.commit != UNCOMMITTED
    ]
    last, bad = committed[-1]
    yield "git bisect start --first-parent"
    if last < first_bad < len(line.ends):  # What is uncommitted is to blame: git knows of no bad commit.
        yield from _said("good", bad)
        return
    yield from _said("bad", bad)
    yield from _said("good", line.good)
    for number, candidate in committed[1:last]:
        word = "skip" if candidate.commit in skipped else "bad" if number >= first_bad else "good"
        if word == "skip" or number in (first_bad - 1, first_bad):
            yield from _said(word, candidate)
    if certain and first_bad < len(line.ends) and line.ends[first_bad].commit != UNCOMMITTED:
        yield f"# first bad commit: [{line.ends[first_bad].commit}] {line.ends[first_bad].subject}"


def _said(word: str, candidate: Candidate) -> Iterator[str]:
    yield f"# {word}: [{candidate.commit}] {candidate.subject}"
    yield f"git bisect {word} {candidate.commit}"
