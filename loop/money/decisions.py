"""Decisions about money: keep or stop an idle GPU, continue or pivot; preemption notices."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from loop.base.errors import UsageError
from loop.base.processes import Tick
from loop.base.stats import median, sum_if_all_known, times
from loop.gate.model import BuildOutput
from loop.library.definitions import read_file
from loop.model.base import Model
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.money import RateCard
from loop.model.output import read_output
from loop.model.plan import Text
from loop.model.record import Finished, latest_attempts
from loop.money.bill import no_price, rate_for_gpu
from loop.money.model import (
    Hours,
    KeepOrStop,
    KeepOutput,
    MachineOption,
    Options,
    OptionValue,
    Pivot,
    PivotOutput,
    PreemptionOutput,
    StopCost,
    StopRule,
    Waiting,
    hours_text,
)
from loop.report import format as say
from loop.steps.context import Context, NoArguments, Result, RunningAction

ENVIRONMENT = "environment-validation"
GOOD = ("verify", "measure")
"""Ids of the steps that a first good measurement needs, in any pattern."""
RECENT = 10
"""Number of latest restarts that count; older ones say little about today's machine."""


def decide_keep_or_stop(idle_hours: float, gpu_usd_per_hour: float, stop: StopCost) -> KeepOrStop:
    """Cost of idling and of a stop, break-even and decision. `gpu_usd_per_hour` is above 0."""
    idle_usd = idle_hours * gpu_usd_per_hour
    return KeepOrStop(
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        idle_usd=idle_usd,
        stop_usd=stop.usd,
        break_even_hours=stop.usd / gpu_usd_per_hour,
        decision="stop" if idle_usd > stop.usd * (1 + 1e-9) else "keep",  # Equal within rounding: keep.
        stop=stop,
    )


def stop_cost(
    minutes: float, source: str, gpu_usd_per_hour: float, waiting: Waiting, waiting_usd_per_hour: float
) -> StopCost:
    """Cost of a stop: minutes of the restart times the rates of the GPU and of the waiting person.

    `source`: where the minutes come from, in words.
    """
    return StopCost(
        usd=minutes / 60 * (gpu_usd_per_hour + waiting_usd_per_hour),
        source=f"a restart of {minutes:.1f} min, {source}",
        waiting=waiting,
        waiting_usd_per_hour=waiting_usd_per_hour,
    )


def who_waits(card: RateCard, waiting: Waiting | None) -> tuple[Waiting, float]:
    """Who waits for a restart, and their dollars an hour. `waiting` None: as the rate card says.

    Raises UsageError if the card has no price for them.
    """
    named = card.find_rate(card.waiting)
    stated: Waiting = "nobody" if named is None else "agent" if named.resource == "ai" else "engineer"
    who = waiting or stated
    if who == "nobody":
        return who, 0.0
    resource = "ai" if who == "agent" else "engineer"
    first = (named, card.find_rate(card.ai), *card.rates)
    rate = next((rate for rate in first if rate is not None and rate.resource == resource), None)
    if rate is None:
        raise UsageError(
            f"the rate card has no price for an {who}", hint="add one to rates.yaml, or let nobody wait"
        )
    return who, rate.usd_per_hour


def restart_of(
    rows: Iterable[SessionRow], device: Device, finished: Sequence[Finished] = ()
) -> tuple[float, str] | None:
    """Median minutes of a restart in the latest cold sessions, and their source; None without any.

    A cold session on the latest GPU compiled and measured, as a stopped machine must. Its time:
    environment check, build, verification, measurement. `finished`: steps of this session.
    """
    restarts = []
    for row in rows:
        if row.device == device and not row.recorded:
            built = next((run.seconds for run in row.runs if run.built and run.status == "passed"), None)
            environment = next((run.seconds for run in row.runs if run.pattern == ENVIRONMENT), 0.0)
            good = {step.step: step.seconds for step in reversed(row.steps) if step.status == "passed"}
            seconds = sum_if_all_known([environment, built, *map(good.get, GOOD)])
            restarts += [(row.environment.gpu, seconds)] if seconds is not None else []
    cold = [seconds for gpu, seconds in restarts if gpu == restarts[-1][0]][-RECENT:]
    own_s = own_restart_s(finished)
    cold += [own_s] if own_s is not None else []
    if not cold:
        return None
    where = "a GPU" if device == "cuda" else "a processor: a GPU's restart was not measured"
    return median(cold) / 60, f"measured in {say.count(len(cold), 'cold session')} on {where}, without boot"


def own_restart_s(finished: Sequence[Finished]) -> float | None:
    """Seconds from start to first good measurement in the running session; None if not cold."""
    passed = [step for step in latest_attempts(finished) if step.status == "passed"]
    built = next(((step, output) for step in passed if (output := read_output(step, BuildOutput))), None)
    if built is None or not built[1].builds or any(build.cached for build in built[1].builds):
        return None
    before = sum(step.seconds for step in passed if step.pattern in (ENVIRONMENT, built[0].pattern))
    good = {step.action: step.seconds for step in reversed(passed)}
    return sum_if_all_known([before, *(good.get(f"kernel.{name}") for name in GOOD)])


def advice(break_even_hours: float) -> str:
    """A sentence: what to do while the idle time is unknown.

    Stopping after the break-even time costs at most twice the best possible choice (rent or buy:
    Karlin, Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching").
    """
    within = hours_text(break_even_hours)
    return f"Keep the GPU for {within} of idling, then stop it: that costs at most twice what foresight would."


def leave_options(
    rate: float, stop: StopCost | None, gap_hours: float | None, planned: tuple[str, float] | None
) -> tuple[Literal["keep", "stop"], list[str]]:
    """Keep or stop a machine of `rate` dollars an hour; and a line for each option's cost.

    `gap_hours`: usual time between sessions. `planned`: end of the user's need and hours until
    then: keep. If the gap or the restart is unknown: stop, as only its own cost is known.
    """
    first = f"{say.usd(stop.usd)} for {stop.source}" if stop else "no restart was measured, so its cost is unknown"
    lines = [f"A stop it now: {first}"]
    decision: Literal["keep", "stop"] = "keep" if planned else "stop"
    hours = planned[1] if planned else gap_hours
    if hours is not None:
        until = f"until {planned[0]}, as planned" if planned else "until the next session, as gaps were so far"
        lines.append(f"B keep it {until} ({hours_text(hours)}): {say.usd(hours * rate)}")
        if stop and not planned:
            decision = decide_keep_or_stop(hours, rate, stop).decision
    if stop:
        lines.append(f"C keep it for {hours_text(stop.usd / rate)}, then stop it: at most {say.usd(2 * stop.usd)}")
    return decision, lines


def gap_hours(rows: Iterable[SessionRow]) -> float | None:
    """Median hours between a session's end and the next one's start; None without a gap."""
    timed = [(row.started.timestamp(), row.seconds) for row in rows if row.started is not None and row.seconds]
    recent = sorted(timed)[-RECENT - 1 :]
    gaps = [(later - begun - seconds) / 3600 for (begun, seconds), (later, _) in pairwise(recent)]
    return median([gap for gap in gaps if gap > 0]) if any(gap > 0 for gap in gaps) else None


OVERRUN = 1.5
"""Factor over the budget beyond which the assumptions of a session's plan were wrong."""
WITHOUT_PROGRESS = 2
"""Sessions in a row without measurable progress that meet the stop rule."""
MARGIN = 0.02
"""Growth of a ratio below which it counts as unchanged: `same` needs an interval within 2 %."""


def weigh_option(option: MachineOption, value_usd: float | None = None) -> OptionValue:
    """Expected value of an option: probability x value - cost, at both ends of its cost.

    `value_usd`: default value. If an input is unknown, the note states the value it would need.
    """
    (low, high), p = option.usd, option.probability
    value = option.value_usd if option.value_usd is not None else value_usd
    expected = None if p is None or value is None else (p * value - high, p * value - low)
    if expected is not None:
        note = "pays only at its lower cost" if expected[1] > 0 else "does not pay even at its lowest cost"
        note = "pays even at its highest cost" if expected[0] >= 0 else note
    elif value is None:
        least = "" if p == 0 else " to ".join(dict.fromkeys(f"${end / (p or 1):,.0f}" for end in option.usd))
        what = "unknown probability and value: their product" if p is None else "unknown value: success"
        note = f"{what} has to be worth {least}" if least else "it cannot succeed"
    elif value <= 0 or low > value:
        note = "unknown probability: it costs more than success is worth, whatever the probability"
    else:
        ends = list(dict.fromkeys(f"{100 * end / value:.0f}" for end in option.usd))
        never = ", and not at all at its highest cost" if high > value else ""
        note = f"unknown probability: it pays from a probability of {' to '.join(ends)} %{never}"
    return OptionValue(name=option.name, usd=option.usd, expected_usd=expected, note=note)


def weigh_all(options: Options | None, rules: Sequence[StopRule]) -> Pivot:
    """Combine stop rules and options. The decision also names options without an expected value."""
    weighed = tuple(weigh_option(option, options.value_usd) for option in options.options) if options else ()
    known = [(option.name, option.expected_usd) for option in weighed if option.expected_usd is not None]
    best = None  # Its worst case beats every rival's best case, and zero.
    for name, (worst, _) in known:
        if worst > 0 and all(worst > other[1] for rival, other in known if rival != name):
            best = name
    if not weighed:
        choice = "No options were given: write them down, with cost, probability and value, and weigh them."
    elif not known:
        choice = "No option has an expected value: say how likely it succeeds, and what success is worth."
    else:
        choice = "The ranges of the expected values overlap: it depends."
        if all(high <= 0 for _, (_, high) in known):
            choice = "No option with a known value pays: doing none of them is the best known choice."
        choice = f"Of what is known, {best} has the highest expected value." if best is not None else choice
        unknown = "; ".join(option.name for option in weighed if option.expected_usd is None)
        choice += f" Unknown stays: {unknown}." if unknown else ""
    met = "; ".join(rule.rule for rule in rules if rule.holds)
    if met:
        choice = f"Do not go on as before: {met}. {choice}"
    elif rules:
        hedge = ", as far as the records tell" if any(rule.holds is None for rule in rules) else ""
        choice = f"No stop rule is met{hedge}. {choice}"
    question = options.question if options else None
    facts = {"stop": bool(met), "best": best, "decision": choice, "question": question}
    return Pivot(rules=tuple(rules), options=weighed, **facts)


def stop_rules(
    rows: Sequence[SessionRow], budget_s: float | None = None, spent_s: float | None = None
) -> list[StopRule]:
    """Check the stop rules on ended sessions of one target and device, oldest first.

    `budget_s`, `spent_s`: of the running session; None: use the last session's prediction.
    """
    ended = [row for row in rows if not row.recorded and row.status in ("passed", "failed")]
    return [no_progress(ended), over_budget(ended, budget_s, spent_s), verdicts_got_worse(ended)]


def no_progress(rows: Sequence[SessionRow]) -> StopRule:
    """Stop rule: two sessions with nothing newly correct and no new best ratio beyond noise."""
    rule = f"{WITHOUT_PROGRESS} sessions without measurable progress"
    if len(rows) <= WITHOUT_PROGRESS:
        return StopRule(rule=rule, holds=None, why="too few sessions have ended: three have to")
    for place in range(len(rows) - 1, len(rows) - 1 - WITHOUT_PROGRESS, -1):
        if progress := "; ".join(_progress(rows[:place], rows[place])):
            return StopRule(rule=rule, holds=False, why=f"{rows[place].id}: {progress}")
    names = " and ".join(row.id for row in rows[-WITHOUT_PROGRESS:])
    return StopRule(rule=rule, holds=True, why=f"nothing new in {names}")


def _progress(before: Sequence[SessionRow], now: SessionRow) -> Iterator[str]:
    """Progress that a session made: it passes again, a correct variant, a new best ratio."""
    if before and before[-1].status == "failed" and now.status == "passed":
        yield "it passes again"
    for variant in now.variants:
        past = [row for row in before if variant in row.variants]
        ratio = now.ratios.get(variant)
        if past and variant in past[-1].incorrect and ratio is not None and variant not in now.incorrect:
            yield f"{variant} is right"
        if ratio is None or variant in now.inconclusive:
            continue
        sure = [row.ratios[variant] for row in past if variant in row.ratios and variant not in row.inconclusive]
        if not sure:
            yield f"{variant} at {times(ratio)}"
        elif ratio > max(sure) * (1 + MARGIN):
            yield f"{variant} at {times(ratio)}, its best before was {times(max(sure))}"


def over_budget(rows: Sequence[SessionRow], budget_s: float | None, spent_s: float | None) -> StopRule:
    """Stop rule: the running session against its budget, or the last against its prediction."""
    rule, who = f"budget + {100 * (OVERRUN - 1):.0f} %", "this session"
    if budget_s is None or spent_s is None:
        last = rows[-1] if rows else None
        if last is None or last.predicted is None:
            return StopRule(rule=rule, holds=None, why="no session with a prediction")
        who, spent_s, budget_s = last.id, last.seconds, last.predicted.seconds
    why = f"{who} took {spent_s / 60:.1f} min of {budget_s / 60:.1f} ({100 * spent_s / budget_s:.0f} %)"
    return StopRule(rule=rule, holds=spent_s > OVERRUN * budget_s, why=why)


def verdicts_got_worse(rows: Sequence[SessionRow]) -> StopRule:
    """Stop rule: a correct variant became incorrect after its files changed."""
    rule = "a fix that worsens correctness"
    if len(rows) < 2:
        return StopRule(rule=rule, holds=None, why="there is no session to compare with")
    now = rows[-1]
    for variant in now.incorrect:
        past = next((row for row in reversed(rows[:-1]) if variant in row.variants), None)
        if past and variant in past.ratios and variant not in past.incorrect and past.ground != now.ground:
            why = f"{variant} was right in {past.id}, is wrong in {now.id}"
            return StopRule(rule=rule, holds=True, why=why)
    return StopRule(rule=rule, holds=False, why=f"no variant became wrong in {now.id}")


SETTLED_WITHIN_S = 1.0
"""Longest wait in seconds for a metadata server's first answer; the watch goes on."""


def preemption(context: Context, arguments: NoArguments) -> RunningAction[PreemptionOutput]:
    """Report the machine's cloud, and whether the cloud is about to take the machine away."""
    watch, begun = context.watch, time.monotonic()
    while watch is not None and not watch.settled and time.monotonic() - begun < SETTLED_WITHIN_S:
        yield Tick("asking for the cloud's metadata server")
        time.sleep(0.02)
    cloud = watch.cloud if watch else None
    notice = watch.notice if watch else ""
    reasons = watch.unwatched() if watch else ()
    quiet = reasons[0] if reasons else "preemption watch: nothing is watched outside a session"
    message = notice or (f"{cloud} is asked every second" if cloud else quiet)
    return Result(PreemptionOutput(ok=not notice, message=message, cloud=cloud, notice=notice))


class KeepTerms(Model):
    """Parameters of `session.keep_or_stop`."""

    idle_hours: Hours | None = None
    """Hours until the GPU is needed again; leave it out if unknown."""
    waiting: Waiting | None = None
    """Who waits for a restart. Default: as the rate card says."""


def keep_or_stop(context: Context, arguments: KeepTerms) -> RunningAction[KeepOutput]:
    """Weigh keeping the GPU against stopping it, by the measured restart and the card's prices."""
    yield from ()
    card, gpu = context.task.card, next(iter(context.task.machine.gpus), None)
    rate = rate_for_gpu(card, gpu) if card else None
    restart = restart_of(context.past.sessions, context.bench.device, context.finished)
    if card is None or rate is None or restart is None:
        why = "no restart was measured: nothing was compiled and then timed here or in a session before"
        if rate is None:
            why = no_price(card, gpu) if card else "there is no rate card"
        return Result(KeepOutput(ok=True, message=why, not_exercised=(f"keep or stop the GPU: {why}",)))
    price, hours = rate.usd_per_hour, arguments.idle_hours
    stop = stop_cost(*restart, price, *who_waits(card, arguments.waiting))
    expected = None if hours is None else decide_keep_or_stop(hours, price, stop)
    message = expected.sentence if expected else advice(stop.usd / price)
    return Result(KeepOutput(ok=True, message=message, gpu_usd_per_hour=price, stop=stop, expected=expected))


class PivotTerms(Model):
    """Parameters of `session.pivot`."""

    options: Text = "pivot.yaml"
    """File with the options, relative to the target's folder; without it only stop rules count."""


def pivot(context: Context, arguments: PivotTerms) -> RunningAction[PivotOutput]:
    """Check the stop rules on the sessions so far, and rank the options by expected value."""
    yield from ()
    path = context.task.folder / arguments.options
    options = read_file(path, Options).value if path.is_file() else None
    spent_s = sum(record.seconds for record in context.finished)
    rows = [row for row in context.past.sessions if row.device == context.bench.device]
    rules = stop_rules(rows, context.task.plan.budget.minutes * 60, spent_s)
    weighed = weigh_all(options, rules)
    hint = None if options else f"write the options to {path}; `loop cost pivot --help` shows the form"
    return Result(PivotOutput(ok=True, message=weighed.decision, hint=hint, pivot=weighed))
