"""A regression that the gate has found: which commit brought it, down to what is in no commit yet."""

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import Field

from loop.base.documents import write_atomic
from loop.base.errors import LoopError, WorkFailed
from loop.base.processes import Tick
from loop.bisect.candidates import Line
from loop.bisect.kernels import hunt_in_jobs, kernel_hunt, own_trees
from loop.bisect.probe_job import ProbeTask, compiler_of
from loop.bisect.regressions import Regression, lines, regressions
from loop.bisect.trying import watching
from loop.model.base import Model
from loop.model.bisect import BisectAnswer, BisectOutput
from loop.model.jobs import JobRun
from loop.model.workloads import entry_of, spelled
from loop.steps.context import Context, Result, Working

LOG = "bisect.log"
ANSWERS = ("culprit", "several", "range")
"""Outcomes that name commits."""


class Searched(Model):
    """How a commit is searched."""

    width: int = Field(default=1, ge=1)
    """Commits at a time. On one device they are built so, and timed one after the other."""


def bisect(context: Context, arguments: Searched) -> Working[BisectOutput]:
    """Search from where the first variant that regressed was good to the checkout, for the commit that did it."""
    found = regressions(context)
    missing: list[str] = []
    hint = None
    for place, one in enumerate(found):
        ends, why = lines(context, one)
        if ends:
            rest = [f"a search for why {other.what}: one at a time" for other in found[place + 1 :]]
            return (yield from _searched(context, one, ends, [*missing, *rest], arguments.width))
        missing.append(f"a search for why {one.what}: {why}")
        hint = hint or f"name a good revision: {_command(context, one, 'REV')}"
    message = missing[0] if missing else "nothing has regressed"
    nothing = BisectOutput(
        ok=True, message=message, hint=hint, not_exercised=tuple(missing), nothing_done=bool(missing)
    )
    return Result(nothing)


def _searched(
    context: Context, one: Regression, ends: Sequence[Line], missing: Sequence[str], width: int
) -> Working[BisectOutput]:
    """The answer from the last good end; from one before it, where what fails failed there already."""
    begun, ran = time.monotonic(), list[JobRun]()
    try:
        for line in ends:
            answer = yield from _in_time(_search(context, one, line, width, ran), context, one, line, begun)
            if answer.outcome in ANSWERS or line.ends[-1].commit in answer.skipped:
                break
    except LoopError as error:
        failed = BisectOutput(ok=False, message=error.message, hint=error.hint, not_exercised=tuple(missing))
        return Result(failed.model_copy(update={"jobs": tuple(ran)}))
    return Result(_output(context, one, answer, missing).model_copy(update={"jobs": tuple(ran)}))


def _in_time(
    working: Generator[Tick, None, BisectAnswer], context: Context, one: Regression, line: Line, begun: float
) -> Generator[Tick, None, BisectAnswer]:
    """The same; raises WorkFailed when the step's time is over, with the command that goes on."""

    def see(tick: Tick) -> Tick:
        if time.monotonic() - begun > context.budget_s:
            raise WorkFailed(
                f"{one.what}: no commit named within {context.budget_s:g} s; what was observed is kept",
                hint=f"it goes on with: {_command(context, one, line.good.short)}",
            )
        return tick

    return watching(working, see)


def _command(context: Context, one: Regression, good: str) -> str:
    signature, words = context.bench.target.signature, ["--variant", one.variant, "--metric", one.metric]
    words += [word for w in one.workloads for word in ("--workloads", spelled(entry_of(signature, w)))]
    return context.command("bisect", *words, "--seed", str(context.task.seed), "--good", good)


def _search(
    context: Context, one: Regression, line: Line, width: int, ran: list[JobRun]
) -> Generator[Tick, None, BisectAnswer]:
    campaign, metric = context.task.campaign, one.metric
    with ExitStack() as stack:
        if campaign.executor and metric != "resources":
            terms = ProbeTask(
                variant=one.variant,
                metric=metric,
                emulated=one.emulated,
                compiler=compiler_of(context.bench.target, one.variant, emulated=one.emulated),
                device=context.bench.device,
                threads=context.bench.threads,
                workloads=one.workloads,
                seed=context.task.seed,
                candidate=line.candidates[-1],
                against=line.good,
                count=0,
            )
            at_a_time = max(width, campaign.width)
            jobs = hunt_in_jobs(campaign.executor, line, terms, at_a_time, ran)
            return (yield from stack.enter_context(jobs).run())
        trees = stack.enter_context(own_trees(line, "session", width))
        hunt = kernel_hunt(
            context.bench, line, trees, one.variant, one.metric, one.workloads, context.task.seed,
            emulated=one.emulated,
        )  # fmt: skip
        return (yield from hunt.run())


def _output(context: Context, one: Regression, answer: BisectAnswer, missing: Sequence[str]) -> BisectOutput:
    names = ", ".join(f"{culprit.short} ({culprit.subject})" for culprit in (*answer.culprits, *answer.range))
    what = f"{answer.outcome.replace('_', ' ')} {names}".strip()
    log = ""
    if context.task.workshop is not None and answer.log:
        log = str(context.task.workshop.notes.parent / LOG)
        write_atomic(Path(log), answer.log)
    return BisectOutput(
        ok=answer.outcome in ("culprit", "several", "no_regression"),
        message=f"{one.variant}, {one.metric}: {what}; {answer.why}",
        not_exercised=tuple(missing),
        learned=(f"{one.variant} regressed with {names}.",) if answer.culprits else (),
        variant=one.variant,
        metric=one.metric,
        answer=answer,
        log=log,
    )
