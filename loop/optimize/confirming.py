"""The figure that a campaign reports: what was kept against the start, measured anew when all is over.

Of many candidates the one that looks best looks better than it is. So the last incumbent is timed once more
against the builds of the start: fresh processes, values that no candidate was judged on, and workloads held out
all along.
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
from loop.model.measurement import Build
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.optimize.session_changes import SessionChanges
from loop.steps.context import Context, Result, Working
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.timing.samples import MIN_ROUNDS, Terms, Timings
from loop.workers.bench import fitting

IN_ROUNDS = 0.9
"""Share of the step's time for rounds."""


class ConfirmTerms(Model):
    """How much is measured at the end."""

    rounds: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = 20
    """Rounds, each in fresh processes, as far as the time allows."""
    least: Annotated[int, Field(ge=MIN_ROUNDS, le=200)] = 5
    """Rounds that are made however long they take."""


def confirm(context: Context, arguments: ConfirmTerms) -> Working[ConfirmOutput]:
    """What was kept against the start: fresh seeds, fresh processes, also workloads that were held out."""
    past = SessionChanges(context.finished)
    start, now = past.start, past.incumbents
    changed = [name for name, build_id in now.items() if start.get(name, build_id) != build_id]
    if not changed:
        return Result(ConfirmOutput(ok=True, message="nothing was kept"))
    cache = context.bench.cache
    confirmed: list[Confirmed] = []
    wrong: list[str] = []
    missing: list[str] = []
    timings: list[Timings] = []
    for name in changed:
        old, new = (build.find_id(name, ids[name], cache) for ids in (start, now))
        if old is None or new is None:
            missing.append(f"{name} against the start: a build has left the cache")
            continue
        failures, figure, timed = yield from _one(context, old, new, arguments)
        wrong += failures
        confirmed += [figure] if figure else []
        timings.append(timed)
    texts = [f"{figure.variant} {figure.words}" for figure in confirmed]
    return Result(
        ConfirmOutput(
            ok=not wrong,
            message="; ".join(wrong or texts or missing),
            confirmed=tuple(confirmed),
            seed=fresh_seed(context),
            not_exercised=tuple(missing),
        ),
        {"confirm": [segment for timing in timings for segment in timing.segments]},
    )


def fresh_seed(context: Context) -> int:
    """A seed that follows from the session's, and that nothing before used."""
    return int(content_hash(f"confirm {context.task.seed} {context.task.session}")[:6], 16)


def held_out(context: Context, timed: Sequence[Workload]) -> tuple[Workload, ...]:
    """Workloads of sets that no brief named, no check showed and no candidate was judged on."""
    plan, target = context.task.plan, context.bench.target
    known = {workload.name for workload in (*timed, *kernel.workloads(context, kernel.extra_sets(context)))}
    others = [name for name in target.workloads if name not in (*plan.workloads, *plan.checks)]
    every = kernel.workloads(context, others, fresh_seed(context))
    return tuple({workload.name: workload for workload in every if workload.name not in known}.values())


def _one(
    context: Context, old: Build, new: Build, arguments: ConfirmTerms
) -> Generator[Tick, None, tuple[list[str], Confirmed | None, Timings]]:
    """One variant: what is wrong with it, how fast it is, and the raw samples."""
    bench, name = context.bench, new.variant
    sides = [bench.side(name, old).renamed("start"), bench.side(name, new).renamed("now")]
    timed = kernel.workloads(context, context.task.plan.workloads, fresh_seed(context))
    unseen = held_out(context, timed)
    accepted = [workload for workload in (*timed, *unseen) if accepts(sides[1], workload)]
    (checks,) = yield from verify(bench, [Job(sides[1], accepted, layouts=False)])
    if checks.first_failure:
        failures = [f"{name} is wrong on fresh values: {checks.first_failure.message}"]
        return failures, None, Timings()
    terms = Terms(arguments.rounds, IN_ROUNDS * context.budget_s, fresh_seed(context), least=arguments.least)
    with ExitStack() as stack:
        yield from hold_device(context.bench, stack)
        room = fitting(bench, accepted, sides, wide=True)
        timings = yield from schedule.measure(bench, sides, room.workloads, terms)
    logs = {
        workload.name: samples.log_ratios(timings.of(workload.name), "start", "now")
        for workload in (*timed, *unseen)
    }
    counting = {name: ratios for name, ratios in logs.items() if len(ratios) >= MIN_ROUNDS}
    by_workload = [counting[workload.name] for workload in timed if workload.name in counting]
    if not by_workload:  # No round of any counts.
        return [], None, timings
    ratio, low, high = ratio_interval([sum(ratios) / len(ratios) for ratios in zip(*by_workload, strict=False)])
    intervals = {name: ratio_interval(ratios) for name, ratios in counting.items()}
    by_name = {name: (lowest, middle, highest) for name, (middle, lowest, highest) in intervals.items()}
    confirmed = Confirmed(
        variant=name,
        ratio=ratio,
        interval=(low, high),
        workloads={workload.name: by_name[workload.name] for workload in timed if workload.name in by_name},
        held_out={workload.name: by_name[workload.name] for workload in unseen if workload.name in by_name},
    )
    return [], confirmed, timings
