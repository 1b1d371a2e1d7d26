"""The result of a campaign: its kept changes against the start, measured again at the end.

The best of many candidates looks better than it is. So the last incumbent is timed again against
the start: in fresh processes, with new values, and also on workloads held out during the campaign.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Annotated

from pydantic import Field

from loop.base.documents import content_hash
from loop.base.processes import Tick
from loop.base.stats import ratio_interval
from loop.builds import build
from loop.gate import kernel
from loop.gate.verify import Job, verify
from loop.model.base import Model
from loop.model.change import Confirmed, ConfirmOutput
from loop.model.measurement import Build, Segment
from loop.model.target import Workload
from loop.model.workloads import is_supported
from loop.optimize.session_changes import SessionChanges
from loop.steps.context import Context, Result, RunningAction
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.timing.samples import MIN_ROUNDS, Terms, Timings
from loop.workers.bench import fit_workloads

ROUNDS_SHARE = 0.9
"""Share of the step's time for rounds."""


class ConfirmTerms(Model):
    """How many rounds the final measurement takes."""

    rounds: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = 20
    """Rounds, each in fresh processes, if time allows."""
    least: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = 5
    """Rounds that are timed however long they take."""


def confirm(context: Context, arguments: ConfirmTerms) -> RunningAction[ConfirmOutput]:
    """Time the kept changes against the start: new seed, fresh processes, held-out workloads."""
    changes, cache = SessionChanges(context.finished), context.bench.cache
    start_ids, current_ids = changes.start_builds, changes.incumbents
    changed = [name for name, build_id in current_ids.items() if start_ids.get(name, build_id) != build_id]
    if not changed:
        return Result(ConfirmOutput(ok=True, message="nothing was kept"))
    confirmed, failures, missing, segments = list[Confirmed](), list[str](), list[str](), list[Segment]()
    for name in changed:
        old_build = build.find_build_by_id(name, start_ids[name], cache)
        new_build = build.find_build_by_id(name, current_ids[name], cache)
        if old_build is None or new_build is None:
            missing.append(f"{name} against the start: a build has left the cache")
            continue
        figure, failure, timings = yield from _confirm_variant(context, old_build, new_build, arguments)
        confirmed += [figure] if figure else []
        failures += [f"{name} is wrong on fresh values: {failure}"] if failure else []
        segments += timings.segments
    speedups = [f"{figure.variant} {figure.speedup_text}" for figure in confirmed]
    output = ConfirmOutput(
        ok=not failures,
        message="; ".join(failures or speedups or missing),
        confirmed=tuple(confirmed),
        seed=unused_seed(context),
        not_exercised=tuple(missing),
    )
    return Result(output, {"confirm": segments})


def unused_seed(context: Context) -> int:
    """A seed for the final measurement, by a hash of the session's: no proposer has seen its values."""
    return int(content_hash(f"confirm {context.task.seed} {context.task.session}")[:6], 16)


def held_out_workloads(context: Context, timed: Sequence[Workload]) -> list[Workload]:
    """Workloads of sets that no brief, check or judgement (`timed`) of a candidate used."""
    used = {workload.name for workload in (*timed, *kernel.workloads(context, kernel.planned_check_sets(context)))}
    others = kernel.workloads(context, kernel.unplanned_sets(context), unused_seed(context))
    return list({workload.name: workload for workload in others if workload.name not in used}.values())


def _confirm_variant(
    context: Context, old_build: Build, new_build: Build, arguments: ConfirmTerms
) -> Generator[Tick, None, tuple[Confirmed | None, str, Timings]]:
    """Time one variant: its figure (None if wrong or untimed), failure (or ""), and the raw samples."""
    bench, name, seed = context.bench, new_build.variant, unused_seed(context)
    sides = [bench.make_side(name, old_build).copy_as("start"), bench.make_side(name, new_build).copy_as("now")]
    timed = kernel.workloads(context, context.task.plan.workloads, seed)
    unseen = held_out_workloads(context, timed)
    supported = [workload for workload in (*timed, *unseen) if is_supported(sides[1], workload)]
    (checks,) = yield from verify(bench, [Job(sides[1], supported, layouts=False)])
    if checks.first_failure:
        return None, checks.first_failure.message, Timings()
    terms = Terms(arguments.rounds, ROUNDS_SHARE * context.budget_s, seed, least_rounds=arguments.least)
    with ExitStack() as stack:
        yield from hold_device(bench, stack)
        fitting = fit_workloads(bench, supported, sides, with_windows=True)
        timings = yield from schedule.measure(bench, sides, fitting.workloads, terms)
    log_ratios, intervals = {}, {}  # By workload, of those with enough valid rounds.
    for workload in (*timed, *unseen):
        ratios = samples.log_ratios(timings.segments_of(workload.name), "start", "now")
        if len(ratios) >= MIN_ROUNDS:
            ratio, low, high = ratio_interval(ratios)
            log_ratios[workload.name], intervals[workload.name] = ratios, (low, ratio, high)
    timed_logs = [log_ratios[workload.name] for workload in timed if workload.name in log_ratios]
    if not timed_logs:
        return None, "", timings
    # Mean over workloads of each round.
    ratio, low, high = ratio_interval([sum(ratios) / len(ratios) for ratios in zip(*timed_logs, strict=False)])
    fields: dict[str, dict[str, tuple[float, float, float]]] = {}
    for field, group in (("workloads", timed), ("held_out", unseen)):
        names = {workload.name for workload in group}
        fields[field] = {name: interval for name, interval in intervals.items() if name in names}
    return Confirmed(variant=name, ratio=ratio, interval=(low, high), **fields), "", timings
