"""Time builds against each other outside the gate's steps.

- `check`: `loop kernels check` says in seconds whether an edit compiles, is right, and about how
  fast it is. It decides nothing. Only the gate keeps a change, with more workloads and evidence.
- `paired`: the step of a job that compares a candidate with the incumbent. `compare_beforehand`
  runs such jobs for all waiting candidates at the same time.
- `confirm`: the last incumbent against the start, at the end of a campaign.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Waiting
from loop.base.stats import ratio_interval
from loop.builds.build import buildable_variants, find_build_by_id
from loop.gate import kernel
from loop.gate.model import BuildOutput
from loop.gate.verify import Job, TimeAllowance, verify
from loop.jobs.folder import JobFolder
from loop.library import targets
from loop.library.definitions import Project, read_file
from loop.model.base import Model
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, ConfirmOutput, Outcome, jobs_of
from loop.model.measurement import BASELINE, Build, Segment, SpeedVerdict, VariantChecks, Verdict
from loop.model.output import Output, outputs_by_run
from loop.model.record import JobRun, KnownGood
from loop.model.target import Target
from loop.model.workloads import count_operations, is_supported
from loop.optimize.model import confirmed_text
from loop.optimize.session_changes import INCUMBENT, SessionChanges
from loop.report import format as say
from loop.repository.worktree import Worktree, export_commit
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.steps.spread import Part, result_of_job, run_jobs
from loop.timing import samples, schedule
from loop.timing.against_known_good import CompareOutput, CompareTerms, compare_ready
from loop.timing.readiness import ReadyVariants, hold_device
from loop.workers.bench import fit_workloads

CHECK_NOTE_FILE = "loop-check.json"  # In `.git` of a candidate's worktree: see `CheckNote`.
LEAST_WORKLOADS, VERIFY_S = 6, 3.0  # Workloads verified in any case; seconds for others.
CHECK_ROUNDS, CHECK_S = 5, 1.5  # Rounds, each in new processes; most seconds of timing.


class CheckNote(Model):
    """Data from the campaign for the checks of its candidates."""

    format: int = 1
    incumbents: dict[str, str]
    """Variant to the build id that it has to beat."""
    builds: str
    """The build cache with those builds."""
    workload: str
    """The workload that the check times: the variant's worst."""
    sets: tuple[str, ...]
    """The workload sets that a proposer may see."""


class QuickSpeed(Model):
    """An estimate of a variant's speed; not a verdict."""

    variant: str
    against: str
    """The other side: `the incumbent`, or `baseline`."""
    workload: str
    ratio: float
    """Time of the other side / time of the variant: above 1 the variant is faster."""
    interval: tuple[float, float]
    """99 % interval of the ratio; wide, because rounds are few."""


class CheckOutput(Output):
    """The result of a check."""

    actions: ClassVar[tuple[str, ...]] = ("kernel.check",)

    built: tuple[str, ...] = ()
    """Variants that compile."""
    verified: tuple[str, ...] = ()
    wrong: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Variant to its failures, one line each."""
    variants: tuple[VariantChecks, ...] = ()
    speeds: tuple[QuickSpeed, ...] = ()
    """One for each variant that is right."""


def check(context: Context, arguments: NoArguments) -> RunningAction[CheckOutput]:
    """Compile, verify on a few workloads, and time once against the incumbent or the baseline.
    Passes if all compile and are right; decides nothing about a change."""
    bench, note, folder = context.bench, None, context.task.folder
    for place in (folder, *folder.parents):
        if (place / ".git").is_dir():
            with suppress(OSError, LoopError):  # Outside a campaign there is no note.
                note = sums.read_sealed(CheckNote, place / ".git" / CHECK_NOTE_FILE)
            break
    buildable = buildable_variants(bench, context.task.variants)
    builds, failures = yield from kernel.compile_all(context, buildable)
    fields: dict[str, Any] = {"built": tuple(build.variant for build in builds)}
    for failure in failures:
        return Result(CheckOutput(ok=False, message=failure.message, hint=failure.hint, **fields))
    if not builds:
        return Result(CheckOutput(ok=False, message="nothing to compile"))
    # Small ones first; in a campaign, of the sets that a proposer may see.
    target = bench.target
    names = [name for name in (note.sets if note else target.workloads) if name in target.workloads]
    distinct = kernel.distinct_workloads(kernel.workloads(context, names))
    workloads = sorted(distinct, key=lambda workload: count_operations(target, workload))
    allowance = TimeAllowance(VERIFY_S, workloads[LEAST_WORKLOADS:])
    jobs = [Job(bench.make_side(build.variant, build), workloads) for build in builds]
    checks = yield from verify(bench, jobs, allowance)
    verified = tuple(workload.name for workload in workloads if workload not in allowance.left_out)
    missing = kernel.describe_unverified_sets(context, fields["built"], allowance.left_out)
    wrong = {part.variant: part.failure_lines for part in checks if part.failure_lines}
    fields |= {"verified": verified, "wrong": wrong, "variants": checks}
    fields["not_exercised"] = tuple(missing)
    for name, lines in wrong.items():
        return Result(CheckOutput(ok=False, message=f"{name}: {lines[0]}", **fields))
    speeds: list[QuickSpeed] = []
    with ExitStack() as stack:
        yield from hold_device(bench, stack)
        for correct_build in builds:
            try:
                speed = yield from _estimate(context, correct_build, note)
                speeds += [speed] if speed else []
            except (schedule.Untimed, LoopError) as error:
                missing.append(f"speed of {correct_build.variant}: {error}")
    message = "right; no speed"
    if speeds:
        texts = []
        for speed in speeds:
            ratio_text = f"{speed.variant} {say.speedup_text(speed.ratio)}"
            texts.append(f"{ratio_text} {speed.against} on {speed.workload}")
        message = f"right on {say.count(len(verified), 'workload')}; about {', '.join(texts)}"
    fields |= {"speeds": tuple(speeds), "not_exercised": tuple(missing)}
    return Result(CheckOutput(ok=True, message=message, **fields))


def _estimate(context: Context, build: Build, note: CheckNote | None) -> Waiting[QuickSpeed | None]:
    """Estimate a variant's speed against the incumbent, or without one against the baseline. Times
    the campaign's workload, else the last that it takes. None without one or enough rounds."""
    bench, name = context.bench, build.variant
    side, rival, against = bench.make_side(name, build), bench.make_side(BASELINE), BASELINE
    incumbent_id = note.incumbents.get(name) if note else None
    if note and incumbent_id:
        incumbent = find_build_by_id(name, incumbent_id, Path(note.builds))
        if incumbent is not None:
            rival = replace(bench.make_side(name, incumbent), name="incumbent")
            against = INCUMBENT
    workloads = kernel.workloads(context, note.sets if note else context.task.plan.workloads)
    supported = [workload for workload in workloads if is_supported(side, workload)]
    if not supported:
        return None
    of_campaign = [workload for workload in supported if note and workload.name == note.workload]
    workload = of_campaign[0] if of_campaign else supported[-1]
    limits = samples.Limits(CHECK_ROUNDS, CHECK_S, context.task.seed)
    timings = yield from schedule.measure(bench, [rival, side], [workload], limits)
    log_ratios = samples.log_ratios(timings.segments_of(workload.name), rival.name, name)
    if len(log_ratios) < samples.MIN_ROUNDS:
        return None
    ratio, low, high = ratio_interval(log_ratios)
    fields = {"ratio": ratio, "interval": (low, high)}
    return QuickSpeed(variant=name, against=against, workload=workload.name, **fields)


# A job has both targets, and times pairs on one locked device. The step `change.compare` finds its
# result by its id, a hash of targets, terms and session: after each kept change the id is another.
CANDIDATE_FOLDER, INCUMBENT_FOLDER = "candidate", "incumbent"  # The two folders of a job.


def paired(context: Context, arguments: CompareTerms) -> RunningAction[CompareOutput]:
    """Compile a candidate and the incumbent, verify changed variants, and time both in pairs. Runs
    inside a job, whose target is the candidate; the incumbent lies next to it."""
    bench, task = context.bench, context.task
    variants = buildable_variants(bench, task.variants)
    builds, failures = yield from kernel.compile_all(context, variants)
    folder = bench.folder.parent / INCUMBENT_FOLDER
    target = read_file(folder / MANIFEST, Target).value
    with bench.copy_for_folder(folder, target) as old_bench:
        old_context = replace(context, bench=old_bench, task=replace(task, folder=folder))
        variants = buildable_variants(old_bench, task.variants)
        old_builds, old_failures = yield from kernel.compile_all(old_context, variants)
    for failure in (*failures, *old_failures):
        return Result(CompareOutput(ok=False, message=failure.message, hint=failure.hint))
    known_good, changed = dict[str, KnownGood](), dict[str, Build]()
    for old in old_builds:
        known_good[old.variant] = KnownGood(session=INCUMBENT, build_id=old.build_id, commit=None)
    for build in builds:
        if known_good[build.variant].build_id != build.build_id:
            changed[build.variant] = build
    workloads = kernel.workloads(context, task.plan.workloads)
    jobs = []
    for name, build in changed.items():
        side = bench.make_side(name, build)
        supported = tuple(workload for workload in workloads if is_supported(side, workload))
        jobs.append(Job(side, supported, layouts=False, fail_fast=True))
    for checks in (yield from verify(bench, jobs)):
        if checks.first_failure:
            why = f"{checks.variant} is wrong: {checks.first_failure.message}"
            return Result(CompareOutput(ok=False, message=why))
    context = replace(context, past=replace(context.past, known_good=known_good))
    ready = ReadyVariants(tuple(changed), changed)
    return (yield from compare_ready(context, ready, arguments))


def compare_in_jobs(
    context: Context, tree: Worktree, patches: Mapping[int, Path | None], arguments: CompareTerms
) -> Waiting[dict[int, JobFolder]]:
    """Compare candidates with the incumbent in parallel jobs of the campaign's executor. `patches`:
    number of a candidate to its patch; None: the edit that is in the worktree `tree`. Returns the
    ended jobs by number, without candidates whose patch conflicts with the incumbent."""
    parts = dict[int, Part]()
    with tempfile.TemporaryDirectory(prefix="loop-paired-") as folder:
        exported = export_commit(tree.target, tree.head, Path(folder) / INCUMBENT_FOLDER)
        for number, patch in patches.items():
            place = Path(folder) / str(number)
            try:
                if patch is not None:
                    tree.apply(patch)
                sources = {CANDIDATE_FOLDER: tree.target, INCUMBENT_FOLDER: exported}
                for name, target in sources.items():
                    project = Project(target, target / "sessions", bundled=False)
                    for file in targets.source_files(project):
                        copy = place / name / file.relative_to(target)
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy(file, copy)
            except LoopError:
                if patch is None:
                    raise
                continue
            finally:
                if patch is not None:
                    tree.revert()
            parts[number] = Part(
                title=f"compare candidate {number} with the incumbent",
                arguments=arguments.model_copy(update={"candidate": number}),
                variants=[*buildable_variants(context.bench, context.task.variants)],
                sets=context.task.plan.workloads,
                measures_time=True,
                returns_samples=True,
                folder=place,
                target=CANDIDATE_FOLDER,
            )
        step = context.task.first_step("change.compare")
        if step is not None:  # The plan's limits: a running step's grow; a job's id has them.
            context = replace(context, budget_s=step.budget_s, kill_after_s=step.kill_after_s)
        # On devices like that of the first job that timed something.
        timed_jobs = (job for job in jobs_of(context.finished) if job.timed and job.state == "done")
        group = next((job.group for job in timed_jobs), "")
        jobs = yield from run_jobs(context, "change.paired", [*parts.values()], group)
    return dict(zip(parts, jobs, strict=True))


def decide_on_change(
    failed_message: str | None, verdicts: Sequence[Verdict], least_gain: float
) -> tuple[Outcome, str, float | None]:
    """Whether to keep a change, why, and its gain (geometric mean over workloads; None: not timed).
    It has to be right, nowhere slower, somewhere faster beyond noise, in the mean by `least_gain`
    (0.02 is 2 %). `failed_message`: of a failed step. `verdicts`: against the incumbent."""
    speeds = [v for v in verdicts if isinstance(v, SpeedVerdict) and v.against == "known_good"]
    gain = geometric_mean([speed.ratio for speed in speeds]) if speeds else None
    untimed = next((verdict for verdict in verdicts if not isinstance(verdict, SpeedVerdict)), None)
    if failed_message is not None:
        return "reverted", failed_message, gain
    if untimed is not None:
        return "reverted", f"{untimed.variant} is {untimed.verdict}: {untimed.reason}", gain
    if gain is None:
        return "reverted", "it was not compared with the incumbent", None
    words = [speed.verdict for speed in speeds]
    speed_text = f"{say.speedup_text(gain, 3)} the incumbent's speed"
    slower = [speed for speed in speeds if speed.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda speed: speed.ratio)
        where = f"slower on {len(slower)} of {len(speeds)} workloads"
        return "reverted", f"{where}: {say.speedup_text(worst.ratio, 3)} on {worst.workload}", gain
    if "faster" not in words:
        unclear = [speed.reason for speed in speeds if speed.verdict == "inconclusive"]
        why = f"not shown to be faster ({unclear[0]})" if unclear else "no gain beyond noise"
        counts = ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))
        return "reverted", f"{why}: {speed_text}, {counts}", gain
    if gain < 1 + least_gain:
        return "reverted", f"{speed_text}, and {1 + least_gain:.3g}x was asked for", gain
    where = f"faster on {words.count('faster')} of {len(speeds)} workloads"
    return "kept", f"{speed_text}, {where}", gain


def compare_beforehand(
    context: Context, tree: Worktree, proposals: Sequence[Proposal], least_gain: float
) -> Waiting[tuple[list[Proposal], set[int], tuple[JobRun, ...]]]:
    """Compare all proposals with the incumbent in parallel jobs. Returns proposals in the order to
    judge them, numbers of those without a gain, and the jobs. Those without come first, as other
    steps cannot save them; then those with most gain; last those not compared."""
    step = context.task.first_step("change.compare")
    if step is None or not proposals or not context.task.campaign.executor:
        return list(proposals), set(), ()
    patches = {proposal.number: Path(proposal.patch) for proposal in proposals}
    terms = CompareTerms.model_validate(step.arguments)
    jobs = yield from compare_in_jobs(context, tree, patches, terms)
    gain_by_number, not_faster = dict[int, float](), set[int]()
    for number, job in jobs.items():
        with suppress(WorkFailed, ValidationError, RuntimeError):
            output = result_of_job(job, CompareOutput).output
            outcome, _, gain = decide_on_change(None, output.verdicts, least_gain)
            if gain is not None:
                gain_by_number[number] = gain
                not_faster |= {number} if outcome == "reverted" else set()
    ordered = sorted(proposals, key=lambda each: -gain_by_number.get(each.number, 0))
    ordered.sort(key=lambda each: each.number not in not_faster)
    return ordered, not_faster, tuple(job.run_record for job in jobs.values())


CONFIRM_ROUNDS, LEAST_CONFIRM_ROUNDS = 20, 5  # In fresh processes: if time allows; at least.
ROUNDS_SHARE = 0.9  # Share of the step's time for rounds.


def confirm(context: Context, arguments: NoArguments) -> RunningAction[ConfirmOutput]:
    """Time the kept changes against the session's start with a new seed, fresh processes and
    held-out workloads: the best of many looks better than it is."""
    bench, new_ids = context.bench, SessionChanges(context.finished).incumbents
    # No proposer has seen the values of this seed.
    seed = int(content_hash(f"confirm {context.task.seed} {context.task.session}")[:6], 16)
    outputs = outputs_by_run(context.finished, BuildOutput)  # Of changes: another class.
    old_ids = {build.variant: build.build_id for build in outputs[0][1].builds} if outputs else {}
    changed = [name for name, new_id in new_ids.items() if old_ids.get(name, new_id) != new_id]
    if not changed:
        return Result(ConfirmOutput(ok=True, message="nothing was kept"), idle=True)
    timed = kernel.workloads(context, context.task.plan.workloads, seed)
    # Workloads of sets that no brief, check or judgement of a candidate used.
    checked = kernel.workloads(context, kernel.planned_check_sets(context))
    used = {workload.name for workload in (*timed, *checked)}
    others = kernel.workloads(context, kernel.unplanned_sets(context), seed)
    unseen = {workload.name: workload for workload in others if workload.name not in used}
    all_workloads = (*timed, *unseen.values())
    rounds_s = ROUNDS_SHARE * context.budget_s
    limits = samples.Limits(CONFIRM_ROUNDS, rounds_s, seed, least_rounds=LEAST_CONFIRM_ROUNDS)
    confirmed, segments = list[Confirmed](), list[Segment]()
    failures, missing = list[str](), list[str]()
    for name in changed:
        old_build = find_build_by_id(name, old_ids[name], bench.cache)
        new_build = find_build_by_id(name, new_ids[name], bench.cache)
        if old_build is None or new_build is None:
            missing.append(f"{name} against the start: a build has left the cache")
            continue
        start = replace(bench.make_side(name, old_build), name="start")
        now = replace(bench.make_side(name, new_build), name="now")
        supported = [workload for workload in all_workloads if is_supported(now, workload)]
        (checks,) = yield from verify(bench, [Job(now, supported, layouts=False)])
        if checks.first_failure:
            failures.append(f"{name} is wrong on fresh values: {checks.first_failure.message}")
            continue
        with ExitStack() as stack:
            yield from hold_device(bench, stack)
            fitting = fit_workloads(bench, supported, [start, now], with_windows=True)
            timings = yield from schedule.measure(bench, [start, now], fitting.workloads, limits)
        segments += timings.segments
        timed_ratios: list[Sequence[float]] = []
        ranges: dict[str, Any] = {"workloads": {}, "held_out": {}}
        for workload in all_workloads:
            ratios = samples.log_ratios(timings.segments_of(workload.name), "start", "now")
            if len(ratios) >= samples.MIN_ROUNDS:
                ratio, low, high = ratio_interval(ratios)
                is_timed = workload in timed
                ranges["workloads" if is_timed else "held_out"][workload.name] = low, ratio, high
                timed_ratios += [ratios] if is_timed else []
        if timed_ratios:  # Mean over workloads of each round.
            means = [sum(ratios) / len(ratios) for ratios in zip(*timed_ratios, strict=False)]
            ratio, low, high = ratio_interval(means)
            confirmed.append(Confirmed(variant=name, ratio=ratio, interval=(low, high), **ranges))
    texts = failures or [confirmed_text(figure) for figure in confirmed] or missing
    fields = {"confirmed": tuple(confirmed), "seed": seed, "not_exercised": tuple(missing)}
    output = ConfirmOutput(ok=not failures, message="; ".join(texts), **fields)
    return Result(output, {"confirm": segments})
