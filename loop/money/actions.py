"""Decisions with money: keep the GPU or stop it, go on or pivot; and whether the machine is about to go."""

import time

from loop.base.processes import Tick
from loop.library.definitions import read_file
from loop.model.base import Model
from loop.model.pattern import Text
from loop.money import keep_or_stop as keeping
from loop.money import pivot as pivoting
from loop.money.bill import gpu_rate, no_price
from loop.money.model import Hours, KeepOutput, Options, PivotOutput, PreemptionOutput, Waiting
from loop.steps.context import Context, NoArguments, Result, Working

SETTLED_WITHIN_S = 1.0
"""Longest wait for a metadata server's first answer; the watch goes on."""


def preemption(context: Context, arguments: NoArguments) -> Working[PreemptionOutput]:
    """Which cloud this machine is in, and whether it is about to take it away."""
    watch, begun = context.watch, time.monotonic()
    while watch is not None and not watch.settled and time.monotonic() - begun < SETTLED_WITHIN_S:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    cloud = watch.cloud if watch else None
    notice = watch.notice.text if watch and watch.notice else ""
    reasons = watch.unwatched() if watch else ()
    quiet = reasons[0] if reasons else "preemption watch: nothing is watched outside a session"
    message = notice or (f"{cloud} is asked every second" if cloud else quiet)
    return Result(PreemptionOutput(ok=not notice, message=message, cloud=cloud, notice=notice))


class KeepTerms(Model):
    """What is known of the gap that follows."""

    idle_hours: Hours | None = None
    """Hours until the GPU is needed again; leave it out where nobody knows."""
    waiting: Waiting | None = None
    """Who waits for a restart. Default: whoever the rate card names."""


def keep_or_stop(context: Context, arguments: KeepTerms) -> Working[KeepOutput]:
    """Both sides of keeping the GPU, by the restart that was measured and the prices of the card."""
    yield from ()
    card, gpus, device = context.task.card, context.task.machine.gpus, context.bench.device
    gpu = gpus[0] if gpus else None
    rate = gpu_rate(card, gpu) if card else None
    if card is None or rate is None:
        return _undecided(no_price(card, gpu) if card else "there is no rate card")
    restart = keeping.restart_of(context.past.sessions, device, context.finished)
    if restart is None:
        return _undecided(
            "no restart was measured: nothing was compiled and then timed here or in a session before"
        )
    price, hours = rate.usd_per_hour, arguments.idle_hours
    stop = keeping.stop_cost(*restart, price, *keeping.who_waits(card, arguments.waiting))
    expected = None if hours is None else keeping.decide(hours, price, stop)
    message = keeping.sentence(expected) if expected else keeping.advice(stop.usd / price)
    return Result(KeepOutput(ok=True, message=message, gpu_usd_per_hour=price, stop=stop, expected=expected))


def _undecided(why: str) -> Result[KeepOutput]:
    return Result(KeepOutput(ok=True, message=why, not_exercised=(f"keep or stop the GPU: {why}",)))


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
    weighed = pivoting.pivot(options, rules)
    hint = None if options else f"write the options to {path}; `loop cost pivot --help` shows the form"
    return Result(PivotOutput(ok=True, message=weighed.decision, hint=hint, pivot=weighed))
