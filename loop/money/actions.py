"""Decisions with money: keep the GPU or stop it, go on or pivot; and whether the machine is about to go."""

import time

from pydantic import Field

from loop.base.errors import UsageError
from loop.base.processes import Tick
from loop.library.definitions import read_file
from loop.model.base import Model
from loop.model.decision import Hours, KeepOutput, Options, PivotOutput, PreemptionOutput, Restart, Waiting
from loop.model.money import RateCard
from loop.model.pattern import Text
from loop.money import keeping_gpu, pivoting
from loop.money.charging import gpu_rate
from loop.steps.context import Context, NoArguments, Result, Working

SETTLED_WITHIN_S = 1.0
"""How long the first answer of a metadata server is waited for; the watch goes on all the same."""


def preemption(context: Context, arguments: NoArguments) -> Working[PreemptionOutput]:
    """Which cloud this machine is in, and whether it is about to take it away."""
    watch, begun = context.watch, time.monotonic()
    while watch is not None and not watch.settled and time.monotonic() - begun < SETTLED_WITHIN_S:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    cloud = watch.cloud if watch else None
    notice = watch.notice.text if watch and watch.notice else ""
    message = notice or (f"{cloud} is asked every second" if cloud else _unwatched(context))
    return Result(PreemptionOutput(ok=not notice, message=message, cloud=cloud, notice=notice))


def _unwatched(context: Context) -> str:
    said = context.watch.unwatched() if context.watch else ()
    return said[0] if said else "preemption watch: nothing is watched outside a session"


class KeepTerms(Model):
    """What is known of the gap that follows."""

    idle_hours: Hours | None = None
    """Hours until the GPU is needed again; leave it out where nobody knows."""
    waiting: Waiting | None = None
    """Who waits for a restart. Default: whoever the rate card names."""
    boot_minutes: float = Field(default=0.0, ge=0, lt=1e4, allow_inf_nan=False)
    """Minutes from a stopped machine to a shell: no session can measure them."""
    context_usd: float = Field(default=0.0, ge=0, lt=1e6, allow_inf_nan=False)
    """What is lost with the machine besides, in dollars."""


def keep_or_stop(context: Context, arguments: KeepTerms) -> Working[KeepOutput]:
    """Both sides of keeping the GPU, by the restart that was measured and the prices of the card."""
    yield from ()
    gpu = context.task.machine.gpus[0] if context.task.machine.gpus else None
    card = context.task.card
    rate = gpu_rate(card, gpu) if card else None
    restart = _restart(context, arguments)
    if card is None or rate is None:
        return _undecided("the rate card has no price for this GPU")
    if restart is None:
        return _undecided(
            "no restart was measured: nothing was compiled and then timed here or in a session before"
        )
    return Result(_weighed(context, arguments, card, rate.usd_per_hour, restart))


def _undecided(why: str) -> Result[KeepOutput]:
    return Result(KeepOutput(ok=True, message=why, not_exercised=(f"keep or stop the GPU: {why}",)))


def _weighed(
    context: Context, terms: KeepTerms, card: RateCard, usd_per_hour: float, restart: Restart
) -> KeepOutput:
    try:
        who, waiting = keeping_gpu.who_waits(card, terms.waiting)
    except ValueError as error:
        raise UsageError(str(error), hint="add one to rates.yaml, or let nobody wait") from error
    stop = keeping_gpu.stop_cost(restart, usd_per_hour, who, waiting, terms.context_usd)
    even = stop.low_usd / usd_per_hour, stop.high_usd / usd_per_hour
    gaps = keeping_gpu.gaps_hours(context.past.sessions, context.bench.device)
    ways = keeping_gpu.policies(gaps, usd_per_hour, (stop.low_usd + stop.high_usd) / 2)
    expected = None
    if terms.idle_hours is not None:
        expected = keeping_gpu.decide(terms.idle_hours, usd_per_hour, stop)
    return KeepOutput(
        ok=True,
        message=keeping_gpu.sentence(expected) if expected else keeping_gpu.advice(even, ways),
        gpu_usd_per_hour=usd_per_hour,
        stop=stop,
        break_even_hours=even,
        idle=keeping_gpu.idle_seen(gaps),
        policies=ways,
        expected=expected,
    )


def _restart(context: Context, terms: KeepTerms) -> Restart | None:
    """This session's own where a compiler ran in it, beside earlier ones."""
    device = context.bench.device
    earlier = keeping_gpu.restart_of(context.past.sessions, device, terms.boot_minutes)
    own_s = keeping_gpu.own_restart_s(context.finished)
    if own_s is None:
        return earlier
    minutes = own_s / 60 + terms.boot_minutes
    return Restart(
        low_minutes=min(minutes, earlier.low_minutes if earlier else minutes),
        high_minutes=max(minutes, earlier.high_minutes if earlier else minutes),
        boot_minutes=terms.boot_minutes,
        device=device,
        sessions=(*(earlier.sessions if earlier else ()), context.task.session),
        missing=() if keeping_gpu.checked_environment(context.finished) else keeping_gpu.UNCHECKED,
    )


class PivotTerms(Model):
    """Where the options are."""

    options: Text = "pivot.yaml"
    """File with the options, from the target's folder; without one the stop rules stand alone."""


def pivot(context: Context, arguments: PivotTerms) -> Working[PivotOutput]:
    """Stop rules against the sessions so far, and the options by expected value."""
    yield from ()
    path = context.task.folder / arguments.options
    options = read_file(path, Options).value if path.is_file() else None
    spent_s = sum(record.seconds for record in context.finished)
    rows = [row for row in context.past.sessions if row.device == context.bench.device]
    rules = pivoting.stop_rules(rows, context.task.plan.budget.minutes * 60, spent_s)
    found = pivoting.pivot(options, rules)
    hint = None if options else f"write the options to {path}; `loop cost pivot --help` shows the form"
    return Result(PivotOutput(ok=True, message=found.decision, hint=hint, pivot=found))
