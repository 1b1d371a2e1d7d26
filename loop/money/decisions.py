"""Decisions about money: keep or stop an idle GPU, continue or pivot."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, model_validator

from loop.base.errors import UsageError
from loop.base.stats import sum_if_all_known
from loop.library.definitions import read_file
from loop.model.base import Model, Printed
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.money import RateCard
from loop.model.output import Output
from loop.model.plan import Text
from loop.money.bill import explain_missing_price, rate_for_gpu
from loop.report import format as say
from loop.report.screen import Screen
from loop.steps.context import Context, Result, RunningAction

Waiting = Literal["nobody", "agent", "engineer"]
Dollars = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
Hours = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]
ENVIRONMENT_PATTERN = "environment-validation"
JUDGING_STEPS = ("verify", "measure")  # Steps of a first good measurement, in any pattern.
MOST_RESTARTS = 10  # Latest restarts that count; older ones say little about today's machine.


class StopCost(Model):
    """Cost of stopping the GPU and restarting it later."""

    usd: float
    source: str
    waiting: Waiting
    """Who waits for the restart."""
    waiting_usd_per_hour: float

    def compare_with_idling(self, gpu_usd_per_hour: float) -> tuple[str, ...]:
        """Lines: cost of idling, cost of a stop, and the idle time at which both are equal."""
        waiting = ", while nobody waits"
        if self.waiting != "nobody":
            rate = say.rate(self.waiting_usd_per_hour)
            waiting = f", while an {self.waiting} waits at {rate} an hour"
        return (
            f"Idling: {say.rate(gpu_usd_per_hour)} an hour",
            f"A stop: {say.usd(self.usd)}; {self.source}{waiting}",
            f"Break-even: {say.hours(self.usd / gpu_usd_per_hour)} of idling",
        )


class KeepOrStop(Printed):
    """Cost of keeping an idle GPU against stopping it, and the decision."""

    schema_version: int = 4
    idle_hours: float
    """Expected hours until the GPU is needed again."""
    gpu_usd_per_hour: float
    idle_usd: float
    stop_usd: float
    break_even_hours: float
    """Idle hours at which keeping costs as much as stopping."""
    decision: Literal["keep", "stop"]
    """The cheaper choice; `keep` if both cost the same."""
    stop: StopCost

    @property
    def sentence(self) -> str:
        """The decision with both costs and the break-even."""
        costs = f"idle ${self.idle_usd:.2f} against ${self.stop_usd:.2f} for a stop"
        break_even = say.hours(self.break_even_hours)
        return f"{self.decision.capitalize()} it: {costs} (break-even {break_even})."

    def show(self, screen: Screen) -> None:
        """Print the decision, then both costs."""
        for line in (self.sentence, *self.stop.compare_with_idling(self.gpu_usd_per_hour)):
            screen.prose(line)


class KeepOutput(Output):
    """Whether to keep the GPU after the work is done."""

    actions = ("session.keep_or_stop",)

    gpu_usd_per_hour: float = 0.0
    stop: StopCost | None = None
    """Cost of a stop; None if no restart time is known."""
    expected: KeepOrStop | None = None
    """The decision for the given idle time; None if none was given."""


class MachineOption(Model):
    """One option for how to continue."""

    name: Text
    usd: tuple[Dollars, Dollars]
    """Lowest and highest cost in dollars."""
    probability: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Probability of success, 0 to 1; leave it out if unknown."""
    value_usd: Dollars | None = None

    @model_validator(mode="after")
    def check_order(self) -> "MachineOption":
        """Refuse a range of dollars whose first end is the higher one."""
        if self.usd[0] > self.usd[1]:
            raise ValueError("expected a range from least to most")
        return self


class Options(Model):
    """The file of options for `pivot`, with a person's estimates."""

    format: Literal[1]
    question: Text
    value_usd: Dollars | None = None
    """Value of success in dollars, for options that state none."""
    options: Annotated[tuple[MachineOption, ...], Field(min_length=1, max_length=50)]


class OptionValue(Model):
    """An option with its expected value."""

    name: str
    usd: tuple[float, float]
    """Lowest and highest cost in dollars."""
    expected_usd: tuple[float, float] | None
    """Probability times value minus cost, worst and best; None if either is unknown."""
    note: str
    """The conclusion in words."""

    @classmethod
    def weigh(cls, option: MachineOption, value_usd: float | None = None) -> "OptionValue":
        """Expected value of an option, and whether it pays. `value_usd`: if it has none."""
        (low, high), probability = option.usd, option.probability
        success_usd = option.value_usd if option.value_usd is not None else value_usd
        expected_usd = None
        if probability == 0:
            success_usd = 0.0  # What success is worth does not matter.
        if success_usd is None:
            needed = dict.fromkeys(f"${usd / (probability or 1):,.0f}" for usd in option.usd)
            unknown = "value: success" if probability else "probability and value: their product"
            note = f"unknown {unknown} has to be worth {' to '.join(needed)}"
        elif probability is not None:
            expected_usd = (probability * success_usd - high, probability * success_usd - low)
            note = "does not pay even at its lowest cost"
            if expected_usd[0] >= 0:
                note = "pays even at its highest cost"
            elif expected_usd[1] > 0:
                note = "pays only at its lower cost"
            note = note if probability else "it cannot succeed"
        elif success_usd <= 0 or low > success_usd:
            note = "unknown probability: it costs more than success is worth, at any probability"
        else:
            percents = dict.fromkeys(f"{100 * usd / success_usd:.0f}" for usd in option.usd)
            note = f"unknown probability: it pays from a probability of {' to '.join(percents)} %"
            note += ", and not at all at its highest cost" if high > success_usd else ""
        return cls(name=option.name, usd=option.usd, expected_usd=expected_usd, note=note)


class StopRule(Model):
    """A reason to stop that was agreed in advance."""

    rule: str
    holds: bool | None
    """Whether the rule is met; None if the records do not tell."""
    why: str


class Pivot(Printed):
    """Whether to continue, and with which option."""

    schema_version: int = 3
    question: str | None = None
    """The decision to make; None without a file of options."""
    stop: bool
    rules: tuple[StopRule, ...]
    options: tuple[OptionValue, ...] = ()
    best: str | None = None
    """Option whose worst case beats every rival's best case and zero; None if there is none."""
    decision: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The conclusion, then a line for each stop rule and each option (costs, note)."""
        lines = [self.decision]
        for rule in self.rules:
            met = {True: "met", False: "not met", None: "unknown whether it is met"}[rule.holds]
            lines.append(f"{rule.rule}: {met}; {rule.why}")
        for option in self.options:
            costs = " to ".join(dict.fromkeys(map(say.usd, option.usd)))
            if option.expected_usd is not None:
                expected = " to ".join(dict.fromkeys(map(say.usd, option.expected_usd)))
                costs += f", expected {expected}"
            lines.append(f"{option.name}: costs {costs}; {option.note}")
        return tuple(lines)

    def show(self, screen: Screen) -> None:
        """Print the conclusion, the stop rules and the options."""
        for line in self.lines:
            screen.prose(line)


class PivotOutput(Output):
    """Whether to continue, decided by a step of a session."""

    actions = ("session.pivot",)

    pivot: Pivot | None = None


def decide_keep_or_stop(idle_hours: float, gpu_usd_per_hour: float, stop: StopCost) -> KeepOrStop:
    """Cost of idling and of a stop, break-even and decision. `gpu_usd_per_hour` is above 0."""
    idle_usd = idle_hours * gpu_usd_per_hour
    is_stop_cheaper = idle_usd > stop.usd * (1 + 1e-9)  # Equal within rounding: keep.
    return KeepOrStop(
        decision="stop" if is_stop_cheaper else "keep",
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        idle_usd=idle_usd,
        stop_usd=stop.usd,
        break_even_hours=stop.usd / gpu_usd_per_hour,
        stop=stop,
    )


def price_restart(
    minutes: float, source: str, card: RateCard, usd_per_hour: float, waiting: Waiting | None = None
) -> StopCost:
    """Cost of a stop: minutes of the restart, from `source`, at the rates of the GPU and of who
    waits (`waiting`; None: whom the rate card names). Raises UsageError if that has no price."""
    waiter, waiting_usd = card.find_rate(card.waiting), 0.0
    if waiting is None:
        waiting = "nobody" if waiter is None else "agent" if waiter.resource == "ai" else "engineer"
    if waiting != "nobody":
        resource = "ai" if waiting == "agent" else "engineer"
        rates = filter(None, (waiter, card.find_rate(card.ai), *card.rates))  # In use: first.
        prices = [rate.usd_per_hour for rate in rates if rate.resource == resource]
        if not prices:
            problem = f"the rate card has no price for an {waiting}"
            raise UsageError(problem, "add one to rates.yaml, or let nobody wait")
        waiting_usd = prices[0]
    text = f"a restart of {minutes:.1f} min, {source}"
    usd = minutes / 60 * (usd_per_hour + waiting_usd)
    return StopCost(usd=usd, source=text, waiting=waiting, waiting_usd_per_hour=waiting_usd)


def measured_stop(
    rows: Iterable[SessionRow],
    device: Device,
    card: RateCard,
    usd_per_hour: float,
    waiting: Waiting | None = None,
) -> StopCost | None:
    """Cost of a stop by the median restart of the latest cold sessions on one GPU; None without
    any. A cold session compiled and measured, as a stopped machine must."""
    restarts: list[tuple[str | None, float]] = []  # GPU and seconds, oldest first.
    for row in rows:
        if row.device == device and not row.recorded:
            built = [run for run in row.runs if run.built and run.status == "passed"]
            build_s = built[0].seconds if built else None
            validated = [run for run in row.runs if run.pattern == ENVIRONMENT_PATTERN]
            environment_s = validated[0].seconds if validated else 0.0
            passed = [step for step in reversed(row.steps) if step.status == "passed"]
            step_s = {step.step: step.seconds for step in passed}
            restart_s = sum_if_all_known([environment_s, build_s, *map(step_s.get, JUDGING_STEPS)])
            if restart_s is not None:
                restarts.append((row.environment.gpu, restart_s))
    latest_gpu = restarts[-1][0] if restarts else None
    cold_s = [seconds for gpu, seconds in restarts if gpu == latest_gpu][-MOST_RESTARTS:]
    if not cold_s:
        return None
    machine = "a GPU" if device == "cuda" else "a processor: a GPU's restart was not measured"
    source = f"measured in {say.count(len(cold_s), 'cold session')} on {machine}, without boot"
    return price_restart(median(cold_s) / 60, source, card, usd_per_hour, waiting)


def weigh_leaving(
    usd_per_hour: float, stop: StopCost | None, gap_hours: float | None
) -> tuple[Literal["keep", "stop"], list[str]]:
    """Keep or stop a machine when a session ends; and a line for each option's cost. `gap_hours`:
    usual time to the next session. If gap or restart (`stop`) is unknown: stop."""
    unknown = "no restart was measured, so its cost is unknown"
    lines = [f"A stop it now: {f'{say.usd(stop.usd)} for {stop.source}' if stop else unknown}"]
    decision: Literal["keep", "stop"] = "stop"
    if gap_hours is not None:
        until = f"until the next session, as gaps were so far ({say.hours(gap_hours)})"
        lines.append(f"B keep it {until}: {say.usd(gap_hours * usd_per_hour)}")
        if stop:
            decision = decide_keep_or_stop(gap_hours, usd_per_hour, stop).decision
    if stop:
        hours_kept = say.hours(stop.usd / usd_per_hour)
        lines.append(f"C keep it for {hours_kept}, then stop it: at most {say.usd(2 * stop.usd)}")
    return decision, lines


def gap_hours(rows: Iterable[SessionRow]) -> float | None:
    """Median hours between a session's end and the next one's start, of the latest; or None."""
    spans = [(row.started.timestamp(), row.seconds) for row in rows if row.started and row.seconds]
    latest_spans = sorted(spans)[-MOST_RESTARTS - 1 :]
    gaps_h = []
    for (start, seconds), (next_start, _) in pairwise(latest_spans):
        if next_start - start > seconds:  # Sessions that overlap leave no gap.
            gaps_h.append((next_start - start - seconds) / 3600)
    return median(gaps_h) if gaps_h else None


OVERRUN_FACTOR = 1.5  # Factor over the budget beyond which a session's plan was wrong.
IDLE_SESSIONS = 2  # Sessions in a row without measurable progress that meet the stop rule.
NOISE_MARGIN = 0.02
"""Growth of a ratio below which it is unchanged, as `same` needs an interval within 2 %."""


def weigh_pivot(options: Options | None, rules: Sequence[StopRule]) -> Pivot:
    """Combine stop rules and options. The decision also names options without an expected value."""
    values: tuple[OptionValue, ...] = ()
    if options:
        values = tuple(OptionValue.weigh(option, options.value_usd) for option in options.options)
    ranges = {value.name: value.expected_usd for value in values if value.expected_usd is not None}
    best = None  # Its worst case beats every rival's best case, and zero.
    for name, (worst, _) in ranges.items():
        rival_bests = [rival_best for rival, (_, rival_best) in ranges.items() if rival != name]
        best = name if worst > max([0.0, *rival_bests]) else best
    if not values:
        decision = "No options were given: write them down, with cost, probability and value."
    elif not ranges:
        decision = "No option has an expected value: say how likely success is, and its worth."
    else:
        decision = "The ranges of the expected values overlap: it depends."
        if best is not None:
            decision = f"Of what is known, {best} has the highest expected value."
        elif all(highest <= 0 for _, highest in ranges.values()):
            decision = "No option with a known value pays: doing none is the best known choice."
        unknown = "; ".join(value.name for value in values if value.expected_usd is None)
        decision += f" Unknown stays: {unknown}." if unknown else ""
    met_rules = "; ".join(rule.rule for rule in rules if rule.holds)
    if met_rules:
        decision = f"Do not go on as before: {met_rules}. {decision}"
    elif rules:
        hedge = ", as far as the records tell" if any(rule.holds is None for rule in rules) else ""
        decision = f"No stop rule is met{hedge}. {decision}"
    question = options.question if options else None
    fields = {"stop": bool(met_rules), "rules": tuple(rules), "options": values}
    return Pivot(question=question, best=best, decision=decision, **fields)


def check_stop_rules(
    rows: Sequence[SessionRow], budget_s: float | None = None, used_s: float | None = None
) -> list[StopRule]:
    """Check the stop rules on ended sessions, oldest first. `budget_s`, `used_s`: of this session;
    without them, its prediction is the budget of the last one."""
    ended = [row for row in rows if not row.recorded and row.status in ("passed", "failed")]
    name = "this session"
    latest = ended[-1] if ended else None
    if used_s is None and latest is not None and latest.predicted is not None:
        name, used_s, budget_s = latest.id, latest.seconds, latest.predicted.seconds
    rule = f"budget + {100 * (OVERRUN_FACTOR - 1):.0f} %"
    budget = StopRule(rule=rule, holds=None, why="no session with a prediction")
    if used_s is not None and budget_s is not None:
        share = f"{used_s / 60:.1f} min of {budget_s / 60:.1f} ({100 * used_s / budget_s:.0f} %)"
        is_over = used_s > OVERRUN_FACTOR * budget_s
        budget = StopRule(rule=rule, holds=is_over, why=f"{name} took {share}")
    return [check_progress(ended), budget, check_correctness(ended)]


def check_progress(rows: Sequence[SessionRow]) -> StopRule:
    """Stop rule: in the last two sessions nothing passes again, no variant became correct, and no
    ratio is a new best beyond noise. Unknown with less than three sessions."""
    rule = f"{IDLE_SESSIONS} sessions without measurable progress"
    if len(rows) <= IDLE_SESSIONS:
        return StopRule(rule=rule, holds=None, why="too few sessions have ended: three have to")
    for index in range(len(rows) - 1, len(rows) - 1 - IDLE_SESSIONS, -1):
        earlier, latest = rows[:index], rows[index]
        is_mended = earlier[-1].status == "failed" and latest.status == "passed"
        progress = ["it passes again"] if is_mended else []
        for variant, ratio in latest.ratios.items():
            past_rows = [row for row in earlier if variant in row.variants]
            if past_rows and variant in past_rows[-1].incorrect and variant not in latest.incorrect:
                progress.append(f"{variant} is right")
            conclusive = [row for row in past_rows if variant not in row.inconclusive]
            best = max((row.ratios.get(variant, 0.0) for row in conclusive), default=0.0)
            if variant not in latest.inconclusive and ratio > best * (1 + NOISE_MARGIN):
                before = f", its best before was {say.speedup_text(best)}" if best else ""
                progress.append(f"{variant} at {say.speedup_text(ratio)}{before}")
        if progress:
            return StopRule(rule=rule, holds=False, why=f"{latest.id}: {'; '.join(progress)}")
    names = " and ".join(row.id for row in rows[-IDLE_SESSIONS:])
    return StopRule(rule=rule, holds=True, why=f"nothing new in {names}")


def check_correctness(rows: Sequence[SessionRow]) -> StopRule:
    """Stop rule: a variant that is incorrect in the last session was timed and correct in the one
    before that had it, on other files. Unknown with less than two sessions."""
    rule = "a fix that worsens correctness"
    if len(rows) < 2:
        return StopRule(rule=rule, holds=None, why="there is no session to compare with")
    latest = rows[-1]
    for variant in latest.incorrect:
        earlier = next((row for row in reversed(rows[:-1]) if variant in row.variants), None)
        if earlier is None or earlier.ground == latest.ground:  # The same files.
            continue
        if variant in earlier.ratios and variant not in earlier.incorrect:
            why = f"{variant} was right in {earlier.id}, is wrong in {latest.id}"
            return StopRule(rule=rule, holds=True, why=why)
    return StopRule(rule=rule, holds=False, why=f"no variant became wrong in {latest.id}")


class KeepTerms(Model):
    """Parameters of `session.keep_or_stop`."""

    idle_hours: Hours | None = None
    """Hours until the GPU is needed again; leave it out if unknown."""
    waiting: Waiting | None = None
    """Who waits for a restart. Default: as the rate card says."""


def keep_or_stop(context: Context, arguments: KeepTerms) -> RunningAction[KeepOutput]:
    """Weigh keeping the GPU against stopping it, by measured restart and price. If either is
    unknown, the step has nothing to do, and its output names that as not exercised."""
    yield from ()
    card, gpu = context.task.card, next(iter(context.task.machine.gpus), None)
    stop, usd_per_hour = None, 0.0
    rate = rate_for_gpu(card, gpu) if card else None
    why = explain_missing_price(card, gpu) if card else "there is no rate card"
    if card is not None and rate is not None:
        why = "no restart was measured: in no session before was anything compiled and then timed"
        usd_per_hour = rate.usd_per_hour
        terms = (card, usd_per_hour, arguments.waiting)
        stop = measured_stop(context.past.sessions, context.bench.device, *terms)
    if stop is None:
        output = KeepOutput(ok=True, message=why, not_exercised=(f"keep or stop the GPU: {why}",))
        return Result(output, idle=True)
    hours = arguments.idle_hours
    choice = None if hours is None else decide_keep_or_stop(hours, usd_per_hour, stop)
    message = f"Keep the GPU for {say.hours(stop.usd / usd_per_hour)} of idling, then stop it"
    message += ": that costs at most twice what foresight would."
    message = choice.sentence if choice else message
    fields = {"gpu_usd_per_hour": usd_per_hour, "stop": stop, "expected": choice}
    return Result(KeepOutput(ok=True, message=message, **fields))


class PivotTerms(Model):
    """Parameters of `session.pivot`."""

    options: Text = "pivot.yaml"
    """File with the options, relative to the target's folder; without it only stop rules count."""


def pivot(context: Context, arguments: PivotTerms) -> RunningAction[PivotOutput]:
    """Check the stop rules on the sessions so far, and rank the options by expected value."""
    yield from ()
    path = context.task.folder / arguments.options
    options = read_file(path, Options).value if path.is_file() else None
    used_s = sum(record.seconds for record in context.finished)
    rows = [row for row in context.past.sessions if row.device == context.bench.device]
    rules = check_stop_rules(rows, context.task.plan.budget.minutes * 60, used_s)
    choice = weigh_pivot(options, rules)
    hint = f"write the options to {path}; `loop cost pivot --help` shows the form"
    fields = {"hint": None if options else hint, "pivot": choice}
    return Result(PivotOutput(ok=True, message=choice.decision, **fields))
