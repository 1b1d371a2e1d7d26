"""Compare our own binaries: a variant with itself, itself made slower, and its known-good build."""

import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from time import monotonic
from typing import Annotated

from pydantic import Field

from loop.base.processes import Tick
from loop.base.stats import geometric_mean, times, winsorise
from loop.gate.kernel import KnownGoodGone, known_good_build, workloads
from loop.gate.verify import Job, verify
from loop.model.base import Model
from loop.model.measurement import Build, Measurement, NullControl, PositiveControl
from loop.model.output import Output
from loop.model.record import KnownGood
from loop.model.target import Workload
from loop.model.verdict import SpeedVerdict, Verdict
from loop.model.workloads import count_operations, is_supported
from loop.steps.context import Context, Result, RunningAction
from loop.timing import samples, schedule, verdicts
from loop.timing.doubts import doubts
from loop.timing.readiness import ReadyVariants, hold_device, ready_variants, warnings, with_warnings
from loop.timing.samples import MIN_ROUNDS, Pair, Terms, Timings
from loop.timing.verdicts import measurements, noise_between_rounds
from loop.workers.bench import Side, fit_workloads


class CompareOutput(Output):
    """Each variant against itself and against its known-good build."""

    actions = ("kernel.compare", "change.paired")

    measurements: tuple[Measurement, ...] = ()
    """One for each variant, workload and comparison."""
    null_controls: tuple[NullControl, ...] = ()
    """Each variant against itself: a difference here is noise."""
    positive_controls: tuple[PositiveControl, ...] = ()
    """Each variant against a copy slowed on purpose: shows that a slowdown would be seen."""
    known_good: tuple[KnownGood, ...] = ()
    """The known-good builds that the variants were compared with."""
    rounds: int = 0
    """Blocks that were timed. A block is one round in a fresh set of processes."""
    outputs: int = 0
    """Outputs of timed calls that were checked against the reference."""
    warnings: tuple[str, ...] = ()
    """What disturbed the timing, such as other programs on the same GPU."""


HOPEFUL_LOG_RATIO = math.log1p(verdicts.MARGIN) / 2
"""Mean log ratio above which an undecided candidate may still beat the margin."""
SLOWDOWN = 0.05
"""Share by which the positive control is slower than the variant."""
ROUNDS_SHARE = 0.95
"""Share of the step's time for rounds; the rest is for the verdicts."""


@dataclass(frozen=True)
class Rival:
    """A side that the candidate is compared with, and the workloads of that comparison."""

    side: Side
    workloads: Sequence[Workload]


def null_rival(candidate: Side, workloads: Sequence[Workload]) -> Rival:
    """The null control: the same binary under another name."""
    return Rival(candidate.copy_as(f"{candidate.name} again"), workloads)


def slowed_rival(candidate: Side, share: float, workloads: Sequence[Workload]) -> Rival:
    """The positive control: the same binary, slowed by a share of its time (0.05 is 5 %)."""
    return Rival(candidate.copy_as(f"{candidate.name} slowed by {share:.0%}", slowdown_share=share), workloads)


def is_hopeful(
    verdict_words: Collection[verdicts.Word], log_ratios_by_workload: Sequence[Sequence[float]]
) -> bool:
    """Whether more blocks may lead to keeping a candidate: nowhere clear yet, faster in the mean.

    `words`: the verdict so far on each workload; `logs`: log ratios of the blocks on each.
    """
    means = [winsorise(values).mean for values in log_ratios_by_workload if values]
    return {"inconclusive"} <= {*verdict_words} <= {"inconclusive", "same"} and fmean(means) > HOPEFUL_LOG_RATIO


@dataclass
class Contest:
    """One candidate and its rivals. A decided pair is no longer timed, so its verdict stays."""

    candidate: Side
    rivals: Sequence[Rival]
    """The known-good build, or empty if there is none."""
    candidate_number: int = 0
    """Number of the candidate within its campaign, from 1; 0 outside a campaign."""
    controls: Sequence[Rival] = ()
    """Null control and positive control, in this order; empty if another contest's count."""
    most_blocks: int = verdicts.MAX_BLOCKS
    """Blocks after which an undecided pair becomes `inconclusive`."""

    @property
    def sides(self) -> list[Side]:
        """Every side that is timed."""
        return [self.candidate, *(rival.side for rival in (*self.controls, *self.rivals))]

    @property
    def workloads(self) -> list[Workload]:
        """Every workload of any rival, without duplicates."""
        rivals = (*self.controls, *self.rivals)
        return list({workload.name: workload for rival in rivals for workload in rival.workloads}.values())

    def pending_sides(self, timings: Timings) -> Mapping[str, Sequence[str]]:
        """Names of the sides that still have to be timed, by workload."""
        pending: dict[str, list[str]] = {}
        for rival in (*self.controls, *self.rivals):
            for workload in rival.workloads:
                if self._decide(timings, workload, rival, self.most_blocks) is None:
                    pending.setdefault(workload.name, [self.candidate.name]).append(rival.side.name)
        return pending

    def is_promising(self, timings: Timings) -> bool:
        """Whether more blocks may lead to keeping the candidate, and its null control is clean."""
        pairs = [(workload, rival) for rival in self.rivals for workload in rival.workloads]
        words = [self.decide_now(timings, *pair).verdict for pair in pairs]
        failed = any(self.differing_workloads(timings, rival) for rival in self.controls[:1])
        return not failed and is_hopeful(words, [self.log_ratios(timings, *pair) for pair in pairs])

    def _reference_and_candidate(self, rival: Rival) -> tuple[str, str]:
        """Names of reference and candidate; a slowed copy is the candidate, any other rival not."""
        names = (rival.side.name, self.candidate.name)
        return (names[1], names[0]) if rival.side.slowdown_share else names

    def log_ratios(self, timings: Timings, workload: Workload, rival: Rival) -> list[float]:
        """Log ratios of the blocks, one a block."""
        return samples.log_ratios(timings.segments_of(workload.name), *self._reference_and_candidate(rival))

    def _decide(self, timings: Timings, workload: Workload, rival: Rival, most: int) -> verdicts.Decision | None:
        shared = samples.process_variance(
            timings.segments_of(workload.name), *self._reference_and_candidate(rival)
        )
        logs, allowed = self.log_ratios(timings, workload, rival), verdicts.allowance(shared)
        return verdicts.by_evidence(logs, len(self.workloads), allowed, self.candidate_number, most)

    def decide_now(self, timings: Timings, workload: Workload, rival: Rival) -> verdicts.Decision:
        """The decision so far; `inconclusive` if the evidence does not suffice."""
        decision = self._decide(timings, workload, rival, 0)
        assert decision is not None
        return decision

    def differing_workloads(self, timings: Timings, rival: Rival) -> dict[str, str]:
        """Workloads on which rival and candidate differ, each with `faster` or `slower`."""
        words = {w.name: self.decide_now(timings, w, rival).verdict for w in rival.workloads}
        return {name: word for name, word in words.items() if word in ("faster", "slower")}

    def null_control(self, timings: Timings) -> NullControl:
        """The result of timing the variant against itself."""
        rival = self.controls[0]
        words = [self.decide_now(timings, workload, rival).verdict for workload in rival.workloads]
        logs = [self.log_ratios(timings, workload, rival) for workload in rival.workloads]
        return NullControl(
            variant=self.candidate.name,
            comparisons=len(words),
            same=words.count("same"),
            inconclusive=words.count("inconclusive"),
            false=tuple(f"{word} on {place}" for place, word in self.differing_workloads(timings, rival).items()),
            blocks=max(map(len, logs), default=0),
            block_sd=noise_between_rounds(logs),
        )

    def positive_control(self, timings: Timings) -> PositiveControl:
        """Whether timing detected the deliberate slowdown, on the one workload that tries it."""
        rival = self.controls[1]
        workload = rival.workloads[0]
        decision = self.decide_now(timings, workload, rival)
        return PositiveControl(
            variant=self.candidate.name,
            workload=workload.name,
            slowdown=rival.side.slowdown_share,
            verdict=decision.verdict,
            e_value=decision.e_value,
            blocks=len(self.log_ratios(timings, workload, rival)),
            reason=decision.reason,
        )


def pending_of_contests(contests: Iterable[Contest], timings: Timings) -> Mapping[str, Sequence[str]]:
    """What all contests still have to time, by workload; each gets its share of each round."""
    pending: dict[str, list[str]] = {}
    for contest in contests:
        for workload, names in contest.pending_sides(timings).items():
            pending.setdefault(workload, []).extend(names)
    return pending


class CompareTerms(Model):
    """How many blocks `kernel.compare` times."""

    rounds: Annotated[int, Field(ge=verdicts.MIN_BLOCKS, le=200)] = verdicts.MAX_BLOCKS
    """Blocks at most; timing ends as soon as every pair is decided."""
    least: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = MIN_ROUNDS
    """Blocks that are timed even if they exceed the step's budget."""
    candidate: Annotated[int, Field(ge=0)] = 0
    """Number of the candidate in its campaign. Later candidates need more evidence for `faster`."""
    more_s: Annotated[float, Field(ge=0)] = 0.0
    """Seconds of extra timing for a candidate that is undecided and may be faster."""


def compare(context: Context, arguments: CompareTerms) -> RunningAction[CompareOutput]:
    """Compare each compiled variant that is right, and each candidate: controls, known good."""
    state = yield from ready_variants(context)
    if state.builds is None:
        return Result(CompareOutput(ok=False, message=f"nothing to compare: {state.why_not}", hint=state.hint))
    builds = {name: build for name, build in state.builds.items() if build.compiled or arguments.candidate}
    return (yield from compare_ready(context, replace(state, builds=builds), arguments))


def compare_ready(context: Context, state: ReadyVariants, arguments: CompareTerms) -> RunningAction[CompareOutput]:
    """The same as `compare`, for variants already known to be right."""
    builds, begun = state.builds or {}, monotonic()
    missing = [
        f"{name} against itself and its known good: a process that imports torch takes too long for so many blocks"
        for name in state.right
        if name not in builds
    ]
    right = [builds[name] for name in state.right if name in builds]
    contests = yield from _contests(context, right, arguments, missing)
    timings, warned = Timings(), tuple[str, ...]()
    if contests:
        limit_s = max(0.0, ROUNDS_SHARE * context.budget_s - (monotonic() - begun))
        timings, warned = yield from _time(context, contests, arguments, limit_s)
    measured, judged, texts = list[Measurement](), list[Verdict](), list[str]()
    for contest in contests:
        own, mine = yield from _judge(context, contest, contests[0], timings)
        measured += own
        judged += mine
        texts.append(_describe(contest, mine, timings))
    controlled = [contest for contest in contests if contest.controls]
    output = CompareOutput(
        ok=not any(verdict.verdict in ("invalid", "incorrect", "slower") for verdict in judged),
        message=with_warnings("; ".join(texts) or "no compiled variant to compare", warned),
        warnings=warned,
        verdicts=tuple(judged),
        known_good=tuple({context.past.known_good[c.candidate.name] for c in contests if c.rivals}),
        measurements=tuple(measured),
        null_controls=tuple(contest.null_control(timings) for contest in controlled),
        positive_controls=tuple(contest.positive_control(timings) for contest in controlled),
        rounds=timings.rounds,
        outputs=timings.checked_outputs,
        not_exercised=tuple(missing),
    )
    return Result(output, samples={"compare": timings.segments})


def _contests(
    context: Context, right: Sequence[Build], arguments: CompareTerms, missing: list[str]
) -> Generator[Tick, None, list[Contest]]:
    """What each variant is compared with; appends to `missing` what cannot be compared, and why.

    On a GPU the controls of the first variant stand for the others: starting a process takes a
    share of a second there, and a disturbance affects all.
    """
    bench, chosen = context.bench, workloads(context, context.task.plan.workloads)
    types = {workload.dtype for workload in chosen}
    candidates = [
        bench.make_side(b.variant, b) for b in right if types & set(bench.target.variants[b.variant].dtypes)
    ]
    controlled = candidates if bench.device == "cpu" else candidates[:1]
    timed = [side for side in candidates for _ in range(4 if side in controlled else 2)]
    room = fit_workloads(bench, chosen, timed, with_windows=True)
    names = ", ".join(side.name for side in candidates)
    missing += [f"{names} against itself and its known good on {text}" for text in room.exclusions]
    if len(candidates) > len(controlled):
        others = ", ".join(side.name for side in candidates[len(controlled) :])
        missing.append(f"{others} against itself: on a GPU the first that is timed with it stands for it")
    builds, contests = {build.variant: build for build in right}, list[Contest]()
    most = verdicts.MORE_BLOCKS if arguments.more_s else verdicts.MAX_BLOCKS
    for candidate in candidates:
        name, accepted = candidate.name, [w for w in room.workloads if is_supported(candidate, w)]
        if not accepted:
            continue
        rivals, controls = list[Rival](), list[Rival]()
        try:
            earlier = yield from known_good_build(context, name, builds[name])
            good = bench.make_side(name, earlier).copy_as(f"{name} known good")
            (checks,) = yield from verify(bench, [Job(good, accepted, layouts=False, enough=True)])
            if checks.first_failure:
                raise KnownGoodGone(f"by today's manifest it is not right: {checks.first_failure.message}")
            rivals.append(Rival(good, accepted))
        except KnownGoodGone as gone:
            missing.append(f"{name} against its known good: {gone}")
        if candidate in controlled:  # Slow down the longest workload only.
            longest = max(accepted, key=partial(count_operations, bench.target))
            controls = [null_rival(candidate, accepted), slowed_rival(candidate, SLOWDOWN, [longest])]
        if rivals or controls:
            contests.append(Contest(candidate, rivals, arguments.candidate, controls, most))
    return contests


def _time(
    context: Context, contests: Sequence[Contest], arguments: CompareTerms, limit_s: float
) -> Generator[Tick, None, tuple[Timings, tuple[str, ...]]]:
    """Time the contests until every pair is decided or time is over; timings, and warnings.

    The first variant, and each with a known-good build, gets the blocks that a verdict needs, even
    beyond the limit. Otherwise slow process starts on a GPU would hide every regression.

    A candidate that is undecided but promising is timed further. Its blocks and evidence continue.
    Under the sequential rule, the stopping time does not make a false `faster` more likely.
    """
    least = min(arguments.rounds, max(arguments.least, verdicts.MIN_BLOCKS))
    most = max(arguments.rounds, verdicts.MORE_BLOCKS) if arguments.more_s else arguments.rounds
    terms = Terms(most, limit_s + arguments.more_s, context.task.seed, least_rounds=least)
    essential = [contest for contest in contests if contest is contests[0] or contest.rivals]
    sides = [side for contest in contests for side in contest.sides]
    timed = {workload.name: workload for contest in contests for workload in contest.workloads}
    with ExitStack() as stack:
        shared = yield from hold_device(context.bench, stack)
        begun = monotonic()

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            late = timings.rounds >= arguments.least and monotonic() - begun > limit_s
            if arguments.more_s and (late or timings.rounds >= arguments.rounds):
                return pending_of_contests(
                    [contest for contest in contests if contest.is_promising(timings)], timings
                )
            return pending_of_contests(essential if late else contests, timings)

        timings = yield from schedule.measure(context.bench, sides, [*timed.values()], terms, pending)
    return timings, warnings(context.bench, shared, timings)


def _judge(
    context: Context, contest: Contest, first: Contest, timings: Timings
) -> Generator[Tick, None, tuple[tuple[Measurement, ...], list[Verdict]]]:
    """Measurements and verdicts of a contest; if it has no controls, those of `first` apply."""
    controlled = contest if contest.controls else first
    name, (null, _) = contest.candidate.name, controlled.controls
    pairs = [Pair(contest.candidate, name, rival.side.name, "self") for rival in contest.controls[:1]]
    pairs += [Pair(contest.candidate, name, rival.side.name, "known_good") for rival in contest.rivals]
    measured = measurements(context.bench.target, pairs, contest.workloads, timings)
    judged: list[Verdict] = [*(yield from doubts(context.bench, timings, measured, pairs))]
    places = {workload.name for workload in contest.workloads}
    for place, apart in controlled.differing_workloads(timings, null).items():
        if place in places:
            what = f"against itself {controlled.candidate.name} came out {apart} on {place}"
            reason = f"{what}: timing cannot be trusted on this machine now"
            judged.append(verdicts.invalid_verdict(name, place, "self", "differs from itself", reason))
    if judged:
        return measured, judged
    positive = controlled.positive_control(timings)
    for measurement in (each for each in measured if each.against == "known_good"):
        decision = contest.decide_now(timings, measurement.workload, contest.rivals[0])
        word, reason = decision.verdict, decision.reason
        if word == "same" and not positive.is_slowdown_seen:
            word = "inconclusive"
            reason = f"a slowdown of {positive.slowdown:.0%} put in on purpose was not seen: {positive.reason}"
        judged.append(verdicts.speed_verdict(measurement, word, reason, decision.e_value))
    return measured, judged


def _describe(contest: Contest, judged: Sequence[Verdict], timings: Timings) -> str:
    """One line on a variant: why its timing is invalid, else controls and known-good result."""
    bad = next((verdict for verdict in judged if not isinstance(verdict, SpeedVerdict)), None)
    if bad:
        return f"{bad.variant} is {bad.verdict}: {bad.reason}"
    parts = []
    if contest.controls:
        null, positive = contest.null_control(timings), contest.positive_control(timings)
        unclear = f", inconclusive on {null.inconclusive}" if null.inconclusive else ""
        parts.append(f"against itself: same on {null.same} of {null.comparisons}{unclear}")
        parts.append(f"{positive.slowdown:.0%} slowdown {'seen' if positive.is_slowdown_seen else 'not seen'}")
    speeds = [verdict for verdict in judged if isinstance(verdict, SpeedVerdict)]
    if speeds:
        mean = times(geometric_mean([speed.ratio for speed in speeds]), 3)
        parts.append(f"against the known good {verdicts.tally_words(speeds)}, {mean}")
    return f"{contest.candidate.name} {'; '.join(parts)}"
