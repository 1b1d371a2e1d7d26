"""Compare our own binaries: a variant with itself, with itself made slower, and with its known good."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Annotated

from pydantic import Field

from loop.base.processes import Tick
from loop.base.ratios import times
from loop.base.stats import geometric_mean
from loop.gate.kernel import workloads
from loop.gate.known_good import KnownGoodGone, known_good_build
from loop.gate.verify import Job, verify
from loop.model.base import Model
from loop.model.measurement import Build, Measurement, NullControl, PositiveControl
from loop.model.record import KnownGood
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict, SpeedVerdict, Verdict
from loop.model.workloads import accepts, operations
from loop.steps.context import Context, Result, Working
from loop.timing import schedule, verdicts
from loop.timing.contest import Contest, Rival, itself, slowed, together
from loop.timing.doubts import doubts
from loop.timing.model import CompareOutput
from loop.timing.ratios import measurements
from loop.timing.readiness import Ready, hold_device, ready, warnings, with_warnings
from loop.timing.samples import MIN_ROUNDS, Pair, Timings
from loop.timing.terms import Terms
from loop.workers.bench import Bench, Side
from loop.workers.device_memory import fitting

IN_ROUNDS = 0.95
"""Share of the step's time for rounds; the rest is for what is decided from them."""
RIVALS = 4
"""Sides of a contest: a variant, itself once more, itself made slower, its known good."""


class CompareTerms(Model):
    """How much is compared."""

    rounds: Annotated[int, Field(ge=verdicts.MIN_BLOCKS, le=200)] = verdicts.MAX_BLOCKS
    """Blocks at most; it ends as soon as everything is decided."""
    least: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = MIN_ROUNDS
    """Blocks that are made even when they take longer than the step's budget."""
    candidate: Annotated[int, Field(ge=0)] = 0
    """Which candidate of a campaign is judged: the more there were, the more evidence `faster` needs."""
    more_s: Annotated[float, Field(ge=0)] = 0.0
    """Seconds in which a candidate that is not clear, and may be faster, is timed further before it is judged."""
    slowdown: Annotated[float, Field(gt=0.02, le=1)] = 0.05
    """Share by which the positive control is slower."""


def compare(context: Context, arguments: CompareTerms) -> Working[CompareOutput]:
    """Each compiled variant that is right, and each candidate: null control, positive control, known good."""
    found = yield from ready(context)
    if found.builds is None:
        return Result(CompareOutput(ok=False, message=f"nothing to compare: {found.why_not}", hint=found.hint))
    mine = {name: one for name, one in found.builds.items() if one.compiled or arguments.candidate}
    return (yield from compare_ready(context, replace(found, builds=mine), arguments))


def compare_ready(context: Context, found: Ready, arguments: CompareTerms) -> Working[CompareOutput]:
    """The same of variants that are known to be right."""
    builds = found.builds or {}
    missing = [
        f"{name} against itself and its known good: a process that imports torch takes too long for so many blocks"
        for name in found.right
        if name not in builds
    ]
    chosen = workloads(context, context.task.plan.workloads)
    types = {workload.dtype for workload in chosen}
    variants = context.bench.target.variants
    compiled = [builds[n] for n in found.right if n in builds and types & set(variants[n].dtypes)]
    begun = monotonic()
    contests = yield from _contests(context, compiled, chosen, arguments, missing)
    made: list[Compared] = []
    held: list[Timings] = []
    warned: dict[str, None] = {}
    groups = _groups(context.bench, contests, arguments)
    for number, group in enumerate(groups):
        limit_s = max(0.0, IN_ROUNDS * context.budget_s - (monotonic() - begun)) / (len(groups) - number)
        shared = arguments.model_copy(update={"more_s": arguments.more_s / len(groups)})
        timings, said = yield from _hold(context, group, shared, limit_s)
        held.append(timings)
        for contest in group:
            controls = Controls(contest if contest.controls else group[0], timings)
            made.append((yield from _outcome(context, contest, timings, controls)))
        warned |= dict.fromkeys(said)
    segments = [segment for timings in held for segment in timings.segments]
    known = tuple({context.past.known_good[one.candidate.name] for one in contests if one.known_good})
    return Result(_output(made, held, tuple(warned), missing, known), samples={"compare": segments})


def _contests(
    context: Context,
    builds: Sequence[Build],
    chosen: Sequence[Workload],
    arguments: CompareTerms,
    missing: list[str],
) -> Generator[Tick, None, list[Contest]]:
    """A contest for each build; what cannot be compared is added to `missing`."""
    contests: list[Contest] = []
    for build in builds:
        name, side = build.variant, context.bench.side(build.variant, build)
        taken = [w for w in chosen if accepts(side, w)]
        room = fitting(context.bench, taken, [side] * RIVALS, wide=True)
        missing += [f"{name} against itself and its known good on {text}" for text in room.left_out]
        if room.workloads:
            contest = yield from _contest(context, build, room.workloads, arguments, missing)
            if context.bench.device == "cpu" or not contests:
                contest = _controlled(context.bench, contest, room.workloads, arguments)
            contests += [contest] if contest.sides[1:] else []
    if context.bench.device == "cuda" and len(contests) > 1:
        others = ", ".join(one.candidate.name for one in contests[1:])
        missing.append(f"{others} against itself: on a GPU the first that is timed with it stands for it")
    return contests


def _groups(bench: Bench, contests: Sequence[Contest], arguments: CompareTerms) -> list[Sequence[Contest]]:
    """Contests that are held together, block by block: all, or fewer where a GPU has not the room for all.

    The first of a group has controls. On a GPU it stands for the others: each process takes a share of a second to
    begin there, and what disturbs one disturbs all.
    """
    if not contests:
        return []
    first, *others = contests
    group = [first if first.controls else _controlled(bench, first, first.workloads, arguments), *others]
    sides = [side for contest in group for side in contest.sides]
    every = list({one.name: one for contest in group for one in contest.workloads}.values())
    if len(group) == 1 or not fitting(bench, every, sides, wide=True).left_out:
        return [group]
    half = len(group) // 2
    return [*_groups(bench, group[:half], arguments), *_groups(bench, group[half:], arguments)]


def _controlled(bench: Bench, contest: Contest, timed: Sequence[Workload], arguments: CompareTerms) -> Contest:
    """The contest with its two controls."""
    longest = max(timed, key=partial(operations, bench.target))
    slower = slowed(contest.candidate, arguments.slowdown, [longest])
    return replace(contest, controls=(itself(contest.candidate, timed), slower))


def _contest(
    context: Context, build: Build, timed: Sequence[Workload], arguments: CompareTerms, missing: list[str]
) -> Generator[Tick, None, Contest]:
    """What a variant is compared with; why there is no known good is added to `missing`."""
    name = build.variant
    candidate, goods = context.bench.side(name, build), list[Rival]()
    try:
        earlier = yield from known_good_build(context, name, build)
        good = context.bench.side(name, earlier).renamed(f"{name} known good")
        yield from _still_right(context, good, timed)
        goods.append(Rival(good, timed))
    except KnownGoodGone as gone:
        missing.append(f"{name} against its known good: {gone}")
    most = verdicts.MORE_BLOCKS if arguments.more_s else verdicts.MAX_BLOCKS
    return Contest(candidate, goods, arguments.candidate, most=most)


def _still_right(context: Context, good: Side, timed: Sequence[Workload]) -> Generator[Tick, None, None]:
    """Raise KnownGoodGone when the known good does not load or is not right by today's manifest."""
    (checks,) = yield from verify(context.bench, [Job(good, timed, layouts=False, enough=True)])
    if checks.first_failure:
        raise KnownGoodGone(f"by today's manifest it is not right: {checks.first_failure.message}")


def _hold(
    context: Context, contests: Sequence[Contest], arguments: CompareTerms, limit_s: float
) -> Generator[Tick, None, tuple[Timings, tuple[str, ...]]]:
    """Measure until everything is decided or the time is over; with what disturbed it.

    Of the first variant, and of each that has a known good, as many blocks are made as a verdict needs, whatever
    they take: on a GPU, whose processes start slowly, no regression would be found otherwise.

    What may be kept and is not clear then is timed further, beside the null control. Its blocks go on, and so does
    its evidence: whenever one stops, blocks of fresh processes that are not faster reach what `faster` needs no
    more often. Where a GPU keeps processes this rests on `allowance`, which is estimated.
    """
    least = min(arguments.rounds, max(arguments.least, verdicts.MIN_BLOCKS))
    most = max(arguments.rounds, verdicts.MORE_BLOCKS) if arguments.more_s else arguments.rounds
    terms = Terms(most, limit_s + arguments.more_s, context.task.seed, least=least)
    essential = [one for one in contests if one is contests[0] or one.known_good]
    sides = [side for contest in contests for side in contest.sides]
    every = list({one.name: one for contest in contests for one in contest.workloads}.values())
    with ExitStack() as stack:
        shared = yield from hold_device(context.bench, stack)
        begun = monotonic()

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            late = timings.rounds >= arguments.least and monotonic() - begun > limit_s
            if arguments.more_s and (late or timings.rounds >= arguments.rounds):
                return together(contests, timings, again=True)
            return together(essential if late else contests, timings)

        found = yield from schedule.measure(context.bench, sides, every, terms, pending)
    return found, warnings(context.bench, shared, found)


@dataclass(frozen=True)
class Compared:
    """What came of a variant's contest."""

    name: str
    measurements: tuple[Measurement, ...]
    null: NullControl | None
    """None where another variant's stands for it, and so does its positive control."""
    positive: PositiveControl | None
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Controls:
    """The two controls of a contest: its own, or those of the one that stands for it."""

    contest: Contest
    timings: Timings

    @property
    def null(self) -> NullControl:
        """The variant against itself."""
        return self.contest.null_control(self.timings, self.contest.controls[0])

    @property
    def positive(self) -> PositiveControl:
        """The variant made slower on purpose."""
        return self.contest.positive_control(self.timings, self.contest.controls[1])

    def false(self, contest: Contest) -> list[NoSpeedVerdict]:
        """A verdict on a contest's timing, where what has the controls came out faster or slower than itself."""
        reason = "against itself {} came out {} on {}: timing cannot be trusted on this machine now"
        told = self.contest.told_apart(self.timings, self.contest.controls[0]).items()
        name, own = self.contest.candidate.name, {one.name for one in contest.workloads}
        return [
            verdicts.invalid(
                contest.candidate.name, place, "self", "differs from itself", reason.format(name, word, place)
            )
            for place, word in told
            if place in own
        ]


def _outcome(
    context: Context, contest: Contest, timings: Timings, controls: Controls
) -> Generator[Tick, None, Compared]:
    name, own = contest.candidate.name, controls.contest is contest
    pairs = [Pair(contest.candidate, name, rival.side.name, "self") for rival in contest.controls[:1]]
    pairs += [Pair(contest.candidate, name, rival.side.name, "known_good") for rival in contest.rivals]
    measured = measurements(context.bench.target, pairs, contest.workloads, timings)
    positive = controls.positive
    distrusted = [*(yield from doubts(context.bench, timings, measured, pairs)), *controls.false(contest)]
    judged: Sequence[Verdict] = distrusted or [
        _verdict(contest, timings, one, contest.rivals[0], positive)
        for one in measured
        if one.against == "known_good"
    ]
    return Compared(name, measured, controls.null if own else None, positive if own else None, judged)


def _verdict(
    contest: Contest, timings: Timings, measured: Measurement, good: Rival, positive: PositiveControl
) -> SpeedVerdict:
    found = contest.decision(timings, measured.workload, good)
    word, reason = found.verdict, found.reason
    if word == "same" and not positive.seen:
        word = "inconclusive"
        reason = f"a slowdown of {positive.slowdown:.0%} put in on purpose was not seen: {positive.reason}"
    return SpeedVerdict(
        variant=measured.variant,
        workload=measured.workload.name,
        against="known_good",
        verdict=word,
        ratio=measured.ratio,
        interval=measured.interval,
        e_value=found.e_value,
        reason=reason,
    )


def _describe(one: Compared) -> str:
    bad = next((verdict for verdict in one.verdicts if not isinstance(verdict, SpeedVerdict)), None)
    if bad:
        return f"{bad.variant} is {bad.verdict}: {bad.reason}"
    said = []
    if one.null and one.positive:
        said.append(f"against itself: same on {one.null.same} of {one.null.comparisons}")
        said[0] += f", inconclusive on {one.null.inconclusive}" if one.null.inconclusive else ""
        said.append(f"{one.positive.slowdown:.0%} slowdown {'seen' if one.positive.seen else 'not seen'}")
    said += _against_good([verdict for verdict in one.verdicts if isinstance(verdict, SpeedVerdict)])
    return f"{one.name} {'; '.join(said)}"


def _against_good(verdicts: Sequence[SpeedVerdict]) -> list[str]:
    if not verdicts:
        return []
    words = [one.verdict for one in verdicts]
    counts = ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))
    return [f"against the known good {counts}, {times(geometric_mean([one.ratio for one in verdicts]), 3)}"]


def _output(
    made: Sequence[Compared],
    held: Sequence[Timings],
    warned: tuple[str, ...],
    missing: Sequence[str],
    known: tuple[KnownGood, ...],
) -> CompareOutput:
    judged = tuple(verdict for one in made for verdict in one.verdicts)
    described = [_describe(one) for one in made]
    return CompareOutput(
        ok=not any(one.verdict in ("invalid", "incorrect", "slower") for one in judged),
        message=with_warnings("; ".join(described) or "no compiled variant to compare", warned),
        warnings=warned,
        verdicts=judged,
        known_good=known,
        measurements=tuple(measured for one in made for measured in one.measurements),
        null_controls=tuple(one.null for one in made if one.null),
        positive_controls=tuple(one.positive for one in made if one.positive),
        rounds=max((timings.rounds for timings in held), default=0),
        outputs=sum(timings.outputs for timings in held),
        not_exercised=tuple(missing),
    )
