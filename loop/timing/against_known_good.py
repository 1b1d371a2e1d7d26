"""Compare our own binaries: a variant with itself, itself made slower, and its known-good build."""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, geometric_mean
from time import monotonic
from typing import Annotated

from pydantic import Field

from loop.base.processes import Waiting
from loop.base.stats import winsorise
from loop.gate.kernel import NoKnownGood, SameAsKnownGood, known_good_build, machine_code, workloads
from loop.gate.verify import Job, verify
from loop.model.base import Model
from loop.model.measurement import Measurement, NullControl, PositiveControl, SpeedVerdict, Verdict
from loop.model.output import Output
from loop.model.record import KnownGood
from loop.model.target import Workload
from loop.model.workloads import count_operations, is_supported
from loop.report.format import speedup_text
from loop.steps.context import Context, Result, RunningAction
from loop.timing import samples, schedule, verdicts
from loop.timing.doubts import find_doubts
from loop.timing.readiness import ReadyVariants, disturbance_warnings, hold_device, ready_variants
from loop.timing.samples import MIN_ROUNDS, ROUNDS_SHARE, Limits, Pair, Timings
from loop.timing.verdicts import invalid_verdict, measurements, noise_between_rounds
from loop.workers.bench import Side, fit_workloads


class CompareOutput(Output):
    """Each variant against itself and against its known-good build."""

    actions = ("kernel.compare", "change.paired")

    measurements: tuple[Measurement, ...] = ()
    null_controls: tuple[NullControl, ...] = ()
    """Each variant against itself: a difference here is noise."""
    positive_controls: tuple[PositiveControl, ...] = ()
    """Each variant against a copy slowed on purpose: is a slowdown seen? Not in a campaign."""
    known_good: tuple[KnownGood, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Variants with the machine code of their known good: not timed, as they cannot be slower."""
    no_known_good: tuple[str, ...] = ()
    """Variants without a build that passed in an earlier session on such a device."""
    rounds: int = 0
    """Blocks that were timed. A block is one round in a fresh set of processes."""
    outputs: int = 0
    """Outputs of timed calls that were checked against the reference."""
    warnings: tuple[str, ...] = ()
    """What disturbed the timing, such as other programs on the same GPU."""


HOPEFUL_LOG_RATIO = math.log1p(verdicts.MARGIN) / 2  # Above it, a candidate may still win.
SLOWDOWN = 0.05  # Share by which the positive control is slower than the variant.


@dataclass(frozen=True)
class Rival:
    """A side that the candidate is compared with, and the workloads of that comparison."""

    side: Side
    workloads: Sequence[Workload]


def null_rival(candidate: Side, workloads: Sequence[Workload]) -> Rival:
    """The null control: the same binary under another name."""
    return Rival(replace(candidate, name=f"{candidate.name} again"), workloads)


def slowed_rival(candidate: Side, share: float, workloads: Sequence[Workload]) -> Rival:
    """The positive control: the same binary, slowed by a share of its time (0.05 is 5 %)."""
    slowed_name = f"{candidate.name} slowed by {share:.0%}"
    slowed = replace(candidate, name=slowed_name, slowdown_share=share)
    return Rival(slowed, workloads)


def is_hopeful(
    verdict_words: Collection[verdicts.Word], log_ratios_by_workload: Sequence[Sequence[float]]
) -> bool:
    """Whether more blocks may lead to keeping a candidate: it is faster in the mean, and undecided:
    of the `verdict_words`, one a workload, some are `inconclusive` and all others `same`."""
    is_undecided = {"inconclusive"} <= {*verdict_words} <= {"inconclusive", "same"}
    means = [winsorise(log_ratios).mean for log_ratios in log_ratios_by_workload if log_ratios]
    return is_undecided and fmean(means) > HOPEFUL_LOG_RATIO


@dataclass
class Contest:
    """One candidate and its rivals. A decided pair is no longer timed, so its verdict stays."""

    candidate: Side
    rivals: Sequence[Rival]  # The known-good build, or empty if there is none.
    candidate_number: int = 0  # Within its campaign, from 1; 0 outside a campaign.
    controls: Sequence[Rival] = ()  # Null, then positive (not in a campaign); empty: of another.
    most_blocks: int = verdicts.MAX_BLOCKS  # After these an undecided pair stays so.
    same_within: float = verdicts.SAME_MARGIN  # Greatest difference that is `same`, share of time.

    @property
    def sides(self) -> list[Side]:
        """Every side that is timed: the candidate and all that it is compared with."""
        return [self.candidate, *(rival.side for rival in (*self.controls, *self.rivals))]

    @property
    def workloads(self) -> list[Workload]:
        """The candidate's workloads, which known good and null control share."""
        return [*(*self.rivals, *self.controls)[0].workloads]

    def pending_sides(self, timings: Timings) -> Mapping[str, Sequence[str]]:
        """Names of the sides of undecided pairs with less than `most_blocks`, by workload. The null
        control goes on where another pair of the workload does; alone, it ends after MIN_BLOCKS. In
        a campaign it begins when the candidate is faster. Empty if that is evidently not faster."""
        side_names: dict[str, list[str]] = {}
        evidence = [decision.against_faster for decision in self.decisions(timings, *self.rivals)]
        if min(evidence, default=0.0) >= verdicts.FUTILE_EVIDENCE:
            return side_names
        null = self.controls[0] if self.controls else None
        for rival in (*self.rivals, *reversed(self.controls)):  # The null control comes last.
            is_late = rival is null and self.candidate_number > 0
            if is_late and (side_names or not self.lacks_null_control(timings)):
                break
            for workload in rival.workloads:
                is_alone = rival is null and workload.name not in side_names
                most_blocks = verdicts.MIN_BLOCKS if is_alone else self.most_blocks
                decision = self.decide_now(timings, workload, rival)
                if decision.verdict == "inconclusive" and len(decision.log_ratios) < most_blocks:
                    names = side_names.setdefault(workload.name, [self.candidate.name])
                    names.append(rival.side.name)
        return side_names

    def lacks_null_control(self, timings: Timings) -> bool:
        """Whether a campaign's candidate is faster and nowhere slower, but lacks the blocks against
        itself to be believed. False outside a campaign: its null control is timed at once."""
        if not self.candidate_number or not self.controls:
            return False
        words = [decision.verdict for decision in self.decisions(timings, *self.rivals)]
        null_decisions = self.decisions(timings, self.controls[0])
        blocks = min(len(decision.log_ratios) for decision in null_decisions)
        return "faster" in words and "slower" not in words and blocks < verdicts.MIN_BLOCKS

    def is_promising(self, timings: Timings) -> bool:
        """Whether more blocks may lead to keeping the candidate. Not if it differs from itself."""
        if self.controls and self.differing_workloads(timings, self.controls[0]):
            return False
        decisions = self.decisions(timings, *self.rivals)
        words = [decision.verdict for decision in decisions]
        log_ratios = [decision.log_ratios for decision in decisions]
        return self.lacks_null_control(timings) or is_hopeful(words, log_ratios)

    def decide_now(self, timings: Timings, workload: Workload, rival: Rival) -> verdicts.Decision:
        """The decision so far on candidate and rival, from one log(rival's time / candidate's time)
        a block that counts; for the slowed copy the inverse, because `slower` is to be its verdict.
        `inconclusive` if the evidence does not suffice. Shared processes widen the margin."""
        names = (rival.side.name, self.candidate.name)
        names = names[::-1] if rival.side.slowdown_share else names
        rounds = samples.counted_rounds(timings.segments_of(workload.name), *names)
        margin = 3 * math.sqrt(samples.process_variance(rounds))
        log_ratios = [log_ratio for _, log_ratio in rounds]
        return verdicts.by_evidence(
            log_ratios, len(self.workloads), margin, self.candidate_number, self.same_within
        )

    def decisions(self, timings: Timings, *rivals: Rival) -> list[verdicts.Decision]:
        """The decision so far for each workload of these rivals."""
        pairs = [(workload, rival) for rival in rivals for workload in rival.workloads]
        return [self.decide_now(timings, workload, rival) for workload, rival in pairs]

    def differing_workloads(self, timings: Timings, rival: Rival) -> dict[str, str]:
        """Name of each workload with a clear difference to the rival, to `faster` or `slower`."""
        pairs = zip(rival.workloads, self.decisions(timings, rival), strict=True)
        words = {workload.name: decision.verdict for workload, decision in pairs}
        return {name: word for name, word in words.items() if word in ("faster", "slower")}

    def null_control(self, timings: Timings) -> NullControl:
        """The result of timing the variant against itself. Only for a contest with `controls`."""
        rival = self.controls[0]  # The second is the slowed copy.
        decisions = self.decisions(timings, rival)
        words = [decision.verdict for decision in decisions]
        differences = self.differing_workloads(timings, rival)
        return NullControl(
            variant=self.candidate.name,
            comparisons=len(words),
            same=words.count("same"),
            inconclusive=words.count("inconclusive"),
            false=tuple(f"{word} on {workload}" for workload, word in differences.items()),
            blocks=max(len(decision.log_ratios) for decision in decisions),
            block_sd=noise_between_rounds(decision.log_ratios for decision in decisions),
        )

    def positive_control(self, timings: Timings) -> PositiveControl | None:
        """Whether timing detected the deliberate slowdown on its workload; None without one."""
        if len(self.controls) < 2:
            return None
        rival = self.controls[1]  # The first is the null control.
        workload, decision = rival.workloads[0], self.decisions(timings, rival)[0]
        return PositiveControl(
            variant=self.candidate.name,
            workload=workload.name,
            slowdown=rival.side.slowdown_share,
            verdict=decision.verdict,
            e_value=decision.e_value,
            blocks=len(decision.log_ratios),
            reason=decision.reason,
        )


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
    """Compare each compiled variant that is right, and each candidate: controls, known good.
    Fails if a variant is slower than its known good, or if a timing or output of it was wrong."""
    state = yield from ready_variants(context)
    if state.builds is None:
        message = f"nothing to compare: {state.why_not}"
        return Result(CompareOutput(ok=False, message=message, hint=state.hint))
    # Python variants only as a campaign's candidate (not number 0): importing torch takes long.
    is_campaign = bool(arguments.candidate)
    builds = {name: b for name, b in state.builds.items() if b.compiled or is_campaign}
    return (yield from compare_ready(context, replace(state, builds=builds), arguments))


def compare_ready(
    context: Context, state: ReadyVariants, arguments: CompareTerms
) -> RunningAction[CompareOutput]:
    """The same as `compare`, for variants already known to be right."""
    reason = "a process that imports torch takes too long for so many blocks"
    left_out = [name for name in state.right if name not in (state.builds or {})]
    not_exercised = [f"{name} against itself and its known good: {reason}" for name in left_out]
    start_time = monotonic()
    contests, unchanged = yield from _plan_contests(context, state, arguments, not_exercised)
    timings, warning_texts = Timings(), tuple[str, ...]()
    if contests:
        limit_s = max(0.0, ROUNDS_SHARE * context.budget_s - (monotonic() - start_time))
        timings, warning_texts = yield from _time_contests(context, contests, arguments, limit_s)
    all_measurements, all_verdicts, summaries = list[Measurement](), list[Verdict](), list[str]()
    for contest in contests:
        judging = _judge_contest(context, contest, contests[0], timings)
        contest_measurements, contest_verdicts = yield from judging
        all_measurements += contest_measurements
        all_verdicts += contest_verdicts
        summaries.append(_summarise_contest(contest, contest_verdicts, timings))
    null_controls = [contest.null_control(timings) for contest in contests if contest.controls]
    positive_controls = [contest.positive_control(timings) for contest in contests]
    failing_words = {"invalid", "incorrect", "slower"} & {each.verdict for each in all_verdicts}
    message = "; ".join(summaries) or "; ".join(not_exercised) or "no compiled variant is right"
    output = CompareOutput(
        ok=not failing_words,
        message="; ".join([message, *(f"warning: {text}" for text in warning_texts)]),
        warnings=warning_texts,
        verdicts=tuple(all_verdicts),
        known_good=tuple({context.past.known_good[c.candidate.name] for c in contests if c.rivals}),
        measurements=tuple(all_measurements),
        null_controls=tuple(control for control in null_controls if control.blocks),
        positive_controls=tuple(filter(None, positive_controls)),
        rounds=timings.rounds,
        outputs=timings.checked_outputs,
        not_exercised=tuple(not_exercised),
        unchanged=tuple(unchanged),
        no_known_good=tuple(name for name in state.right if name not in context.past.known_good),
    )
    return Result(output, samples={"compare": timings.segments}, idle=not contests)


def _plan_contests(
    context: Context, state: ReadyVariants, arguments: CompareTerms, skipped: list[str]
) -> Waiting[tuple[list[Contest], list[str]]]:
    """What each variant is compared with: itself, itself slowed down, and its known-good build,
    built and verified here; then the variants with the machine code of their known good, which
    cannot be slower and are not compared. Appends to `skipped` what is not compared, and why. On a
    GPU the controls of the first variant stand for the others: starting a process is slow there."""
    bench, planned = context.bench, workloads(context, context.task.plan.workloads)
    dtypes = {workload.dtype for workload in planned}
    builds, contests = state.builds or {}, list[Contest]()
    candidates = [bench.make_side(name, builds[name]) for name in state.right if name in builds]
    candidates = [candidate for candidate in candidates if dtypes & set(candidate.dtypes)]
    is_cpu = bench.device == "cpu"
    # One process each for a candidate and its known-good build, and two more for its controls.
    all_sides = [*candidates, *(candidates if is_cpu else candidates[:1])] * 2
    fitting = fit_workloads(bench, planned, all_sides, with_windows=True)
    names = ", ".join(side.name for side in candidates)
    itself = "against itself and its known good"
    skipped += [f"{names} {itself} on {text}" for text in fitting.exclusions]
    unchanged = list[str]()
    most_blocks = verdicts.MORE_BLOCKS if arguments.more_s else verdicts.MAX_BLOCKS
    for candidate in candidates:
        name = candidate.name
        accepted = [w for w in fitting.workloads if is_supported(candidate, w)]
        if not accepted:
            continue
        rivals, controls = list[Rival](), list[Rival]()
        try:
            good_build = yield from known_good_build(context, name, builds[name])
            # A campaign needs a verdict on its candidate even so.
            if not arguments.candidate and machine_code(good_build) == machine_code(builds[name]):
                reason = "it has the machine code of the known good: only comments or names differ"
                raise SameAsKnownGood(reason)
            known_good = replace(bench.make_side(name, good_build), name=f"{name} known good")
            job = Job(known_good, accepted, layouts=False, fail_fast=True)
            (checks,) = yield from verify(bench, [job])
            if failure := checks.first_failure:
                raise NoKnownGood(f"by today's manifest it is not right: {failure.message}")
            rivals.append(Rival(known_good, accepted))
        except SameAsKnownGood as error:
            skipped.append(f"{name} {itself}: {error}")
            unchanged.append(name)
            continue
        except NoKnownGood as error:
            skipped.append(f"{name} against its known good: {error}")
        null_control = null_rival(candidate, accepted)
        if arguments.candidate:  # No slowed copy: only `same` needs it, which keeps no candidate.
            controls = [null_control]
        elif is_cpu or not contests:  # Slow down the longest workload only.
            longest = max(accepted, key=partial(count_operations, bench.target))
            controls = [null_control, slowed_rival(candidate, SLOWDOWN, [longest])]
        else:
            skipped.append(f"{name} against itself: on a GPU the first that is timed stands for it")
        if rivals or controls:
            contest = Contest(candidate, rivals, arguments.candidate, controls, most_blocks)
            contests.append(replace(contest, same_within=context.task.plan.same_within))
    return contests, unchanged


def _time_contests(
    context: Context, contests: Sequence[Contest], arguments: CompareTerms, limit_s: float
) -> Waiting[tuple[Timings, tuple[str, ...]]]:
    """Time the contests until every pair is decided or time is over; timings, and warnings. The
    first variant, and each with a known-good build, gets the blocks of a verdict even over the
    limit, else slow process starts on a GPU would hide every regression. A promising candidate is
    timed `more_s` seconds more; by the sequential rule this makes no false `faster` more likely."""
    least_rounds = min(arguments.rounds, max(arguments.least, verdicts.MIN_BLOCKS))
    bench, most_rounds = context.bench, arguments.rounds
    if arguments.more_s:
        most_rounds = max(most_rounds, verdicts.MORE_BLOCKS)
    limits = Limits(most_rounds, limit_s + arguments.more_s, context.task.seed, least_rounds)
    essential = [contest for contest in contests if contest is contests[0] or contest.rivals]
    sides = [side for contest in contests for side in contest.sides]
    timed = [*{w.name: w for contest in contests for w in contest.workloads}.values()]
    with ExitStack() as stack:
        lock_warning = yield from hold_device(bench, stack)
        start_time = monotonic()

        def pending_sides(timings: Timings) -> Mapping[str, Sequence[str]]:
            """By workload; after the limit, or in extra time, fewer contests go on."""
            is_over_limit = timings.rounds >= arguments.least and monotonic() - start_time > limit_s
            continued = essential if is_over_limit else contests
            if arguments.more_s and (is_over_limit or timings.rounds >= arguments.rounds):
                continued = [contest for contest in contests if contest.is_promising(timings)]
            side_names: dict[str, list[str]] = {}
            for contest in continued:
                for workload, names in contest.pending_sides(timings).items():
                    side_names.setdefault(workload, []).extend(names)
            return side_names

        timings = yield from schedule.measure(bench, sides, timed, limits, pending_sides)
    return timings, disturbance_warnings(bench, lock_warning, timings)


def _judge_contest(
    context: Context, contest: Contest, fallback: Contest, timings: Timings
) -> Waiting[tuple[tuple[Measurement, ...], list[Verdict]]]:
    """Measurements and verdicts of a contest; without controls of its own, those of `fallback`
    apply. A doubt, or a difference from itself, allows no other verdict. `same` without a seen
    positive control, and a campaign's `faster` without a null control, become `inconclusive`."""
    control_contest = contest if contest.controls else fallback
    pairs = [Pair(contest.candidate, rival.side.name, "self") for rival in contest.controls[:1]]
    pairs += [Pair(contest.candidate, rival.side.name, "known_good") for rival in contest.rivals]
    measured = measurements(context.bench.target, pairs, contest.workloads, timings)
    own_sides = {side.name for side in contest.sides}
    wrong_outputs = [(side, check) for side, check in timings.wrong_outputs if side in own_sides]
    own_timings = replace(timings, wrong_outputs=wrong_outputs)
    judged: list[Verdict] = [*(yield from find_doubts(context.bench, own_timings, measured, pairs))]
    own_workloads = {workload.name for workload in contest.workloads}
    differences = control_contest.differing_workloads(timings, control_contest.controls[0])
    for workload, word in differences.items():
        if workload in own_workloads:
            claim = f"against itself {control_contest.candidate.name} came out {word} on {workload}"
            reason = f"{claim}: timing cannot be trusted on this machine now"
            name = contest.candidate.name
            judged.append(invalid_verdict(name, workload, "self", "differs from itself", reason))
    if judged:
        return measured, judged
    positive = control_contest.positive_control(timings)
    for measurement in (m for m in measured if m.against == "known_good"):
        decision = contest.decide_now(timings, measurement.workload, contest.rivals[0])
        verdict, reason = decision.verdict, decision.reason
        if verdict == "same" and positive and positive.verdict != "slower":
            verdict, share = "inconclusive", f"{positive.slowdown:.0%}"
            reason = f"a slowdown of {share} put in on purpose was not seen: {positive.reason}"
        if verdict == "faster" and contest.lacks_null_control(timings):
            verdict, needed = "inconclusive", f"{verdicts.MIN_BLOCKS} blocks against itself"
            reason = f"faster, but it lacks the {needed} that this needs: measure longer"
        judged.append(verdicts.speed_verdict(measurement, verdict, reason, decision.e_value))
    return measured, judged


def _summarise_contest(contest: Contest, judged: Sequence[Verdict], timings: Timings) -> str:
    """One line on a variant: why its timing is invalid, else controls and known-good result."""
    speeds, parts = list[SpeedVerdict](), list[str]()
    for verdict in judged:
        if not isinstance(verdict, SpeedVerdict):
            return f"{verdict.variant} is {verdict.verdict}: {verdict.reason}"
        speeds.append(verdict)
    if contest.controls:
        null, positive = contest.null_control(timings), contest.positive_control(timings)
        if null.blocks:
            unclear = f", inconclusive on {null.inconclusive}" if null.inconclusive else ""
            parts.append(f"against itself: same on {null.same} of {null.comparisons}{unclear}")
        if positive:
            answer = "yes" if positive.verdict == "slower" else "no"
            parts.append(f"would a slowdown of {positive.slowdown:.0%} be seen: {answer}")
    if speeds:
        mean = speedup_text(geometric_mean([speed.ratio for speed in speeds]), 3)
        same_text = f"same (within {contest.same_within:.0%})"
        words = verdicts.tally_words(speeds).replace("same", same_text)
        parts.append(f"against the known good {words}, mean {mean}")
    return f"{contest.candidate.name} {'; '.join(parts)}"
