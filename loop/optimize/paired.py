"""Compare all waiting candidates with the incumbent at the same time, in jobs of an executor.

A job has both targets. It compiles them, verifies changed variants, and times pairs on one locked
device. The step `change.compare` finds a job's result by its id: a hash of both targets, the terms
and the session. Once another candidate is kept, the incumbent differs, and so does the id.
"""

import shutil
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationError

from loop.base.errors import LoopError, WorkFailed
from loop.base.places import MANIFEST, Project
from loop.base.processes import Tick
from loop.base.stats import geometric_mean
from loop.builds.build import buildable_variants
from loop.gate import kernel
from loop.gate.verify import Job, verify
from loop.jobs.folder import JobFolder
from loop.library import targets
from loop.library.definitions import read_file
from loop.model.campaign import Proposal
from loop.model.change import jobs_of
from loop.model.jobs import JobRun
from loop.model.record import KnownGood
from loop.model.target import Target
from loop.model.verdict import SpeedVerdict
from loop.model.workloads import is_supported
from loop.optimize.session_changes import INCUMBENT, ChangeAtHand, SessionChanges
from loop.repository import export_commit
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, RunningAction
from loop.steps.spread import Part, output_of_job, run_jobs, samples_of
from loop.timing.against_known_good import CompareOutput, CompareTerms, compare_ready
from loop.timing.readiness import ReadyVariants

CANDIDATE_FOLDER, INCUMBENT_FOLDER = "candidate", "incumbent"
"""The two folders of a job."""


class PairedTerms(CompareTerms):
    """How to compare a candidate with the incumbent."""

    beside: str = Field(default=INCUMBENT_FOLDER, min_length=1)
    """Folder with the incumbent, next to the target's folder."""


def paired(context: Context, arguments: PairedTerms) -> RunningAction[CompareOutput]:
    """Compile a candidate and the incumbent, verify changed variants, and time both in pairs.

    Runs inside a job; the job's target is the candidate, the incumbent lies in folder `beside`.
    """
    bench, task = context.bench, context.task
    builds, failures = yield from kernel.compile_all(context, buildable_variants(bench, task.variants))
    folder = bench.folder.parent / arguments.beside
    with bench.copy_for_folder(folder, read_file(folder / MANIFEST, Target).value) as incumbent_bench:
        incumbent_context = replace(context, bench=incumbent_bench, task=replace(task, folder=folder))
        variants = buildable_variants(incumbent_bench, task.variants)
        incumbents, incumbent_failures = yield from kernel.compile_all(incumbent_context, variants)
    for failure in (*failures, *incumbent_failures):
        return Result(CompareOutput(ok=False, message=failure.message, hint=failure.hint))
    known_good = {}
    for build in incumbents:
        known_good[build.variant] = KnownGood(session=INCUMBENT, build_id=build.build_id, commit=None)
    changed = {build.variant: build for build in builds if known_good[build.variant].build_id != build.build_id}
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
    comparison_context = replace(context, past=replace(context.past, known_good=known_good))
    return (yield from compare_ready(comparison_context, ReadyVariants(tuple(changed), changed), arguments))


def is_compared_by_job(at_hand: ChangeAtHand) -> bool:
    """Whether a job compares the change: with an executor, unless it is tuned (no manifest has its workloads)."""
    brief = at_hand.brief_output.brief
    return bool(at_hand.context.task.campaign.executor) and brief is not None and brief.tuning is None


def compare_by_job(
    at_hand: ChangeAtHand, arguments: CompareTerms
) -> Generator[Tick, None, tuple[Result[CompareOutput], tuple[JobRun, ...]]]:
    """The result of the job that compares the current change, and the job. Raises WorkFailed."""
    context = at_hand.context
    number = at_hand.brief_output.candidate or SessionChanges(context.finished).next_number
    with tempfile.TemporaryDirectory(prefix="loop-paired-") as folder:
        part = _make_part(context, at_hand.tree, Path(folder), number, arguments)
        (job,) = yield from _run_jobs(context, [part])
    return Result(output_of_job(job, CompareOutput), samples_of(job)), (job.run_record,)


def order_by_gain(
    context: Context, tree: Worktree, proposals: Sequence[Proposal]
) -> Generator[Tick, None, tuple[list[Proposal], tuple[JobRun, ...]]]:
    """Compare all proposals in parallel jobs; returns them with most gain first, and the jobs.

    Proposals that conflict with kept changes, or that no job could compare, come last. Without an
    executor, or for fewer than two, the order stays and no job runs.
    """
    step = context.task.first_step("change.compare")
    if step is None or not context.task.campaign.executor or len(proposals) < 2:
        return list(proposals), ()
    terms, parts = CompareTerms.model_validate(step.arguments), dict[int, Part]()
    with tempfile.TemporaryDirectory(prefix="loop-paired-") as folder:
        for proposal in proposals:
            try:
                tree.apply(Path(proposal.patch))
                place = Path(folder) / str(proposal.number)
                parts[proposal.number] = _make_part(context, tree, place, proposal.number, terms)
            except LoopError:
                continue
            finally:
                tree.revert()
        jobs = yield from _run_jobs(context, [*parts.values()])
    gains = dict(zip(parts, map(_mean_speedup, jobs), strict=True))  # By number of the proposal.
    ordered = sorted(proposals, key=lambda proposal: -gains.get(proposal.number, 0.0))
    return ordered, tuple(job.run_record for job in jobs)


def _run_jobs(context: Context, parts: Sequence[Part]) -> Generator[Tick, None, list[JobFolder]]:
    """Run the jobs to their end, on devices like that of the first job that timed something."""
    step = context.task.first_step("change.compare")
    if step is not None:  # Fixed limits, as a running step's grow and change the job id.
        context = replace(context, budget_s=step.budget_s, kill_after_s=step.kill_after_s)
    timed_jobs = (job for job in jobs_of(context.finished) if job.timed and job.state == "done")
    group = next((job.group for job in timed_jobs), "")
    return (yield from run_jobs(context, "change.paired", parts, group))


def _make_part(context: Context, tree: Worktree, place: Path, number: int, terms: CompareTerms) -> Part:
    """The job that compares the worktree's edit with the incumbent; copies both below `place`."""
    _copy_target(tree.target, place / CANDIDATE_FOLDER)
    with tempfile.TemporaryDirectory(prefix="loop-incumbent-") as exported:
        _copy_target(export_commit(tree.target, tree.head, Path(exported)), place / INCUMBENT_FOLDER)
    return Part(
        title=f"compare candidate {number} with the incumbent",
        arguments=PairedTerms.model_validate({**dict(terms), "candidate": number}),
        variants=[*buildable_variants(context.bench, context.task.variants)],
        sets=context.task.plan.workloads,
        measures_time=True,
        returns_samples=True,
        folder=place,
        target=CANDIDATE_FOLDER,
    )


def _copy_target(target: Path, place: Path) -> None:
    """Copy a target's definitions and sources to `place`."""
    for file in targets.source_files(Project(target, target / "sessions", bundled=False)):
        copy = place / file.relative_to(target)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)


def _mean_speedup(job: JobFolder) -> float:
    """Mean speedup over the incumbent, by a candidate's job; 0 if the job failed, or it is wrong or not timed."""
    try:
        output = output_of_job(job, CompareOutput)
    except (WorkFailed, ValidationError):
        return 0.0
    ratios = [verdict.ratio for verdict in output.verdicts if isinstance(verdict, SpeedVerdict)]
    return geometric_mean(ratios) if output.ok and ratios else 0.0
