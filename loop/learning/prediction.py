"""Predict how long a plan takes, from authors' estimates and from past sessions.

Run times of a pattern are log-normal with unknown centre and spread; the author's estimate is the
prior. The next time follows Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., section
3.3). A run's weight depends on its similarity: variants and workloads, environment, warm or cold
cache, age. The centre is a weighted median, so one disturbed run changes little.
"""

import datetime
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.places import Project
from loop.base.screen import Screen, seconds_text, short_duration
from loop.base.stats import beta_quantile, median, t_quantile
from loop.library.definitions import Definition
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.money import RateCard, Saving
from loop.model.plan import Pattern, PlannedPattern, Predicted
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.money.bill import charged_rates, hourly_usd, no_price, rate_for_gpu
from loop.profile.bottleneck import outcome_text, outcomes
from loop.report import format as say
from loop.report.markdown import Table, columns, filled_table
from loop.steps.setting import Setting
from loop.store import index
from loop.store import rows as row_of
from loop.store.index import RECENT_SESSIONS

FACTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""Fields of `Environment`, each with the factor on a run's weight if the field differs."""
SPREAD, SPREAD_RUNS = 0.25, 3.0
"""Prior standard deviation of log seconds between runs, and the number of runs it counts as."""
PRIOR_RUNS = (SPREAD / 1.2) ** 2
"""Number of runs that an author's estimate counts as: authors err by a factor of 3 and more."""
LEVEL = 0.8
"""Probability that an interval of time or cost contains the actual value."""
FORGET = 0.8
"""Factor on a run's weight for each later run of the same work."""
OTHER_WORK = 0.1
"""Factor on the weight of a run with other variants or workloads."""
OTHER_CACHE = 0.05
"""Factor on a run's weight if it compiled and the next run will not, or the reverse."""
MEASURED = 0.5
"""Sum of weights from which a prediction is labelled `measured`."""
RECENT = 10
"""Number of latest sessions for the time that `loop` itself takes between steps."""


@dataclass(frozen=True)
class Duration:
    """Predicted time of the next run: Student's t on log seconds."""

    centre: float
    """Logarithm of the median seconds."""
    scale: float
    """Scale of Student's t."""
    freedom: float
    weight: float
    """Sum of the weights of past runs; 0: only the author's estimate."""

    @property
    def seconds(self) -> float:
        """Median in seconds."""
        return math.exp(self.centre)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval in seconds that contains the time with probability `LEVEL`."""
        freedom = min(round(2 * self.freedom) / 2, 200.0)  # In half steps, to cache few quantiles.
        half = t_quantile(0.5 + LEVEL / 2, freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def expected_duration(estimate_s: float, runs: Iterable[tuple[float, float]]) -> Duration:
    """Predict the next run. `estimate_s`: author's estimate; `runs`: seconds and weight of each."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    guess = math.log(estimate_s)
    middle = weighted_median(logs) if weight > 0 else guess
    deviation = 1.4826 * weighted_median([(abs(log - middle), w) for log, w in logs]) if weight > 0 else 0.0
    worth, freedom = PRIOR_RUNS + weight, SPREAD_RUNS + weight
    variance = (SPREAD_RUNS * SPREAD**2 + weight * deviation**2) / freedom
    centre = (PRIOR_RUNS * guess + weight * middle) / worth
    return Duration(centre, math.sqrt(variance * (1 + 1 / worth)), freedom, weight)


def weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """Smallest value at which half of the weight is reached. `pairs`: values and weights."""
    half, below = sum(weight for _, weight in pairs) / 2, 0.0
    ordered = sorted(pairs)
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


def weight_of_environment(here: Environment, there: Environment) -> float:
    """Weight of a run in environment `there` for one in `here`; 1 if all known facts agree.

    An unknown fact counts as equal, except that no GPU differs from any GPU.
    """
    pairs = ((name, getattr(here, name), getattr(there, name)) for name in FACTS)
    return math.prod(FACTS[name] for name, a, b in pairs if a != b and (name == "gpu" or (a and b)))


@dataclass(frozen=True)
class Forecast:
    """Predicted time of a whole plan, and of each pattern."""

    whole: Duration
    patterns: Mapping[str, Duration]
    steps: Mapping[str, Mapping[str, float]]
    """Pattern to step to median seconds, for steps that ran before."""

    def priced(self, usd_per_hour: float, least_usd: float = 0.0) -> Predicted:
        """The prediction with its cost in dollars. `least_usd`: minimum charge."""
        (low, high), middle = self.whole.interval, self.whole.seconds
        usd, low_usd, high_usd = (max(least_usd, s / 3600 * usd_per_hour) for s in (middle, low, high))
        return Predicted(seconds=middle, low_s=low, high_s=high, usd=usd, low_usd=low_usd, high_usd=high_usd)


def forecast(patterns: Sequence[Pattern], rows: Sequence[SessionRow], now: SessionRow) -> Forecast:
    """Predict the time of `patterns`; a pattern counts as often as it is listed.

    `rows`: earlier sessions, oldest first. `now`: the session to predict, which has not run.
    """
    recent = [row for row in rows[-RECENT_SESSIONS:] if not row.recorded]
    durations, steps = {}, {}
    for pattern in patterns:
        runs = list(_weighted(pattern.name, recent, now))
        seconds: dict[str, list[tuple[float, float]]] = {}  # Step to (seconds, weight).
        for row, _, weight in runs:
            for step in row.steps:
                if step.pattern == pattern.name and step.status in ("passed", "failed"):
                    seconds.setdefault(step.step, []).append((step.seconds, weight))
        steps[pattern.name] = {name: weighted_median(pairs) for name, pairs in seconds.items()}
        timed = [(run.seconds, weight) for _, run, weight in runs]
        durations[pattern.name] = expected_duration(60 * pattern.estimate.minutes, timed)
    parts = [durations[pattern.name] for pattern in patterns]
    own = [row.own_seconds for row in recent if row.complete][-RECENT:]
    total = sum(part.seconds for part in parts) + (median(own) if own else 0.0)
    shares = [(part.seconds / total, part) for part in parts]
    whole = Duration(
        centre=math.log(total),
        scale=sum(share * part.scale for share, part in shares),  # Assumes that patterns are slow together.
        freedom=sum(share * part.freedom for share, part in shares),
        weight=sum(share * part.weight for share, part in shares),
    )
    return Forecast(whole, durations, steps)


def _work(row: SessionRow) -> tuple[object, ...]:
    """Key of a session's work: equal for equal work on any machine."""
    variants = frozenset((*row.variants, *row.emulated))
    return row.target, row.device, variants, frozenset(row.workloads), row.threads


def _weighted(
    name: str, rows: Sequence[SessionRow], now: SessionRow
) -> Iterator[tuple[SessionRow, PatternRun, float]]:
    """Complete runs of a pattern, latest first, each with its weight for the session `now`."""
    whole = [(row, run) for row in rows for run in row.runs if run.pattern == name and run.whole]
    compiles = any(run.built for _, run in whole)
    warm = any(  # A session here has filled the build cache for this work.
        row.ground == now.ground
        and {*row.variants, *row.emulated} >= {*now.variants, *now.emulated}
        and weight_of_environment(row.environment, now.environment) == 1
        and any(run.is_success for run in row.runs)
        for row in rows
    )
    later: Counter[object] = Counter()
    for row, run in reversed(whole):
        key = (_work(row), row.environment, run.built)
        weight = weight_of_environment(row.environment, now.environment) * FORGET ** later[key]
        weight *= 1.0 if _work(row) == _work(now) else OTHER_WORK
        weight *= OTHER_CACHE if compiles and run.built == warm else 1.0
        later[key] += 1
        yield row, run, weight


def judged_predictions(rows: Sequence[SessionRow]) -> list[tuple[Predicted, float]]:
    """Prediction and actual seconds of each completed session that stored a prediction."""
    return [(row.predicted, row.seconds) for row in rows if row.predicted and row.complete and row.seconds > 0]


ENOUGH, FEW = 5.0, 3.0
"""Weighted runs needed to validate or retire a pattern (first), and to doubt it (second)."""
BAR, RETIRED = 0.6, 0.5
"""Least share of answers of a validated pattern, and share below which a pattern is retired."""
Run = tuple[PatternRun, float, str]
"""A run, its weight in the environment of the last session, and its session's id."""


class PatternStatistics(Model):
    """Statistics of one pattern over all sessions."""

    name: str
    """Name of the pattern."""
    status: Literal["proposed", "applied", "validated", "doubtful", "retired"]
    """Status of the pattern, from the share of runs that gave an answer."""
    why: str
    """The evidence for the status."""
    passed: int
    """Number of runs that passed."""
    found: int
    """Number of runs that found something wrong."""
    broken: int
    """Number of runs that gave no answer."""
    success: tuple[float, float, float] | None
    """Share of runs with an answer: 5 % quantile, mean, 95 % quantile; None without runs."""
    seconds: float
    """Predicted median seconds of the next run."""
    interval_s: tuple[float, float]
    """80 % interval of the next run, in seconds."""
    weight: float
    """Sum of the weights of the timed runs."""
    saved_minutes: float
    """Measured minutes that the pattern saved."""
    saved_usd: float
    """The same savings in dollars."""
    last_used: str | None
    """Time of the latest run, ISO 8601; None without runs."""
    last_session: str | None
    """Session of the latest run; None without runs."""

    @property
    def applied(self) -> int:
        """Number of runs that count."""
        return self.passed + self.found + self.broken


def gather_statistics(
    project: Project, patterns: Mapping[str, Definition[Pattern]]
) -> dict[str, PatternStatistics]:
    """Statistics of all patterns of a project, for the last session's environment."""
    rows = [row for row in index.rows(project.sessions) if not row.recorded]
    return of_patterns({name: read.value for name, read in patterns.items()}, rows)


def of_patterns(patterns: Mapping[str, Pattern], rows: Sequence[SessionRow]) -> dict[str, PatternStatistics]:
    """Statistics of patterns. `rows`: sessions, oldest first; each counts by its likeness to the last one."""
    weights = [weight_of_environment(row.environment, rows[-1].environment) for row in rows]
    statistics = {}
    for name, pattern in patterns.items():
        runs = [
            (run, weight, row.id)
            for row, weight in zip(rows, weights, strict=True)
            for run in row.runs
            if run.is_success is not None and run.pattern == name
        ]
        savings = [saving for row in rows for saving in row.savings if saving.pattern == name]
        statistics[name] = _of_pattern(pattern, runs, savings)
    return statistics


def _of_pattern(pattern: Pattern, runs: Sequence[Run], savings: Sequence[Saving]) -> PatternStatistics:
    """Statistics of one pattern; its time combines runs with the author's estimate."""
    good = sum(weight for run, weight, _ in runs if run.is_success)
    bad = sum(weight for run, weight, _ in runs if not run.is_success)
    times = [(run.seconds, weight) for run, weight, _ in runs if run.whole and run.seconds > 0]
    duration = expected_duration(60 * pattern.estimate.minutes, times)
    passed = sum(run.status == "passed" for run, _, _ in runs)
    answered = sum(bool(run.is_success) for run, _, _ in runs)
    low, mean, high = share = answer_share(good, bad)
    status: Literal["applied", "validated", "doubtful", "retired"] = "applied"
    if good + bad >= ENOUGH and high < RETIRED:
        status = "retired"
    elif good + bad >= FEW and mean < BAR:
        status = "doubtful"
    elif good >= ENOUGH and low >= BAR:
        status = "validated"
    interval = f"{100 * mean:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
    why = f"{good:.3g} of {good + bad:.3g} runs by weight answered: {interval}"
    started = runs[-1][0].started if runs else None
    return PatternStatistics(
        name=pattern.name,
        status=status if runs else "proposed",
        why=why if runs else "it was never run",
        passed=passed,
        found=answered - passed,
        broken=len(runs) - answered,
        success=share if runs else None,
        seconds=duration.seconds,
        interval_s=duration.interval,
        weight=duration.weight,
        saved_minutes=math.fsum(saving.minutes for saving in savings),
        saved_usd=math.fsum(saving.usd for saving in savings),
        last_used=started.astimezone(datetime.UTC).isoformat() if started else None,
        last_session=runs[-1][2] if runs else None,
    )


def answer_share(good: float, bad: float) -> tuple[float, float, float]:
    """Share of answers, by Jeffreys' prior Beta(1/2, 1/2): 5 % quantile, mean, 95 % quantile.

    `good`, `bad`: counts, or sums of weights.
    """
    a, b = 0.5 + good, 0.5 + bad
    return beta_quantile(0.05, a, b), a / (a + b), beta_quantile(0.95, a, b)


def statistics_lines(known: PatternStatistics) -> list[str]:
    """A pattern's statistics in sentences."""
    text = [f"{known.name} is {known.status}: {known.why}"]
    if known.applied:
        counts = f"{known.passed} passed, {known.found} found something wrong, {known.broken} broke"
        text.append(f"run {known.applied} times: {counts}")
    basis = f"runs worth {known.weight:.3g} here" if known.weight else "its author's estimate alone"
    low, high = map(seconds_text, known.interval_s)
    between = f"between {low} and {high} in {100 * LEVEL:.0f} % of cases"
    text.append(f"the next run takes {seconds_text(known.seconds)}, {between}, from {basis}")
    if known.saved_minutes:
        text.append(f"saved {say.minutes(known.saved_minutes)}, {say.usd(known.saved_usd)}, as measured")
    if known.last_used:
        text.append(f"last used {known.last_used[:10]}, in {known.last_session}")
    return text


def how_predictions_held(rows: Sequence[SessionRow]) -> str:
    """Sentences: how accurate predicted times and gains were; empty without any outcome.

    `rows`: oldest first. Results of earlier advice in the last session are listed one by one.
    """
    sentences = []
    if timed := judged_predictions(rows):
        inside = sum(known.low_s <= seconds <= known.high_s for known, seconds in timed)
        error = median([abs(math.log(seconds / known.seconds)) for known, seconds in timed])
        held_times = (
            f"Of {say.count(len(timed), 'predicted session')}, {inside} took a time inside the 80 % interval"
        )
        sentences.append(
            f"{held_times}; half of the predictions were off by less than {100 * math.expm1(error):.0f} %."
        )
    gains = outcomes(rows)
    if gains:
        inside = sum(outcome.side_of_promise == "inside" for outcome in gains)
        promised = f"Of {say.count(len(gains), 'gain')} that advice promised"
        sentences.append(f"{promised}, {inside} lay inside the interval.")
    for outcome in gains:
        if outcome.session == rows[-1].id and outcome.basis == "later session":
            advice = f"Advice on {outcome.promise.advice} for {outcome.variant} on {outcome.workload}"
            sentences.append(f"{advice} promised {outcome_text(outcome)}.")
    return " ".join(sentences)


Row = tuple[str, str, str, str, str]


def prediction_table(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """Predicted and actual times; None if the session stored no prediction or ran no step."""
    known = record.head.predicted
    if known is None or not finished:
        return None

    def row(
        what: str, middle: float, low: float, high: float, actual: float, words: Callable[[float], str]
    ) -> Row:
        result = "below" if actual < low else "above" if actual > high else "yes"
        return what, words(middle), f"{words(low)} to {words(high)}", words(actual), result

    rows = [
        row("The session", known.seconds, known.low_s, known.high_s, record.seconds, say.seconds),
        row("Its cost", known.usd, known.low_usd, known.high_usd, record.bill.usd, say.usd),
    ]
    steps = latest_attempts(finished)
    for run, name in dict.fromkeys((step.run, step.pattern) for step in steps):
        planned = record.head.plan.find_pattern(name)
        mine = [step for step in steps if (step.run, step.pattern) == (run, name)]
        whole = len(mine) == len(planned.pattern.steps)  # Every step ran.
        if whole and planned.low_s is not None and planned.high_s is not None:
            seconds = sum(step.seconds for step in mine)
            rows.append(row(name, planned.seconds, planned.low_s, planned.high_s, seconds, say.seconds))
    return filled_table(columns("What", ">Predicted", ">80 % interval", ">Actual", "Held"), rows)


def with_prediction(head: SessionHead, setting: Setting) -> SessionHead:
    """The session head, with the predicted time and cost of its plan."""
    rows = index.rows(setting.project.sessions, last=index.RECENT_SESSIONS)
    now, plan, card = row_of.session_row(head, None, ()), head.plan, rates(setting.project)
    reachable = forecast([planned.pattern for planned in plan.patterns], rows, now)
    listed = forecast([plan.find_pattern(name).pattern for name in plan.plan.patterns], rows, now)
    ai = card.find_rate(card.ai)
    usd_per_hour = hourly_usd(card, head) + (ai.usd_per_hour if ai else 0.0)
    least_usd = sum(
        rate.minimum_s / 3600 * rate.usd_per_hour for rate in charged_rates(card, head.device, head.gpu)
    )
    patterns = []
    for planned in plan.patterns:
        duration = reachable.patterns[planned.pattern.name]
        low, high = duration.interval
        evidence = "measured" if duration.weight >= MEASURED else "prior"
        times = {"seconds": duration.seconds, "low_s": low, "high_s": high, "evidence": evidence}
        steps = dict(reachable.steps[planned.pattern.name])
        patterns.append(planned.model_copy(update={**times, "step_s": steps}))
    foreseen = plan.model_copy(update={"patterns": tuple(patterns)})
    return head.model_copy(update={"plan": foreseen, "predicted": listed.priced(usd_per_hour, least_usd)})


def unpriced_gpu(card: RateCard, head: SessionHead) -> str | None:
    """Name of a GPU the session would hold without a price; its cost is in no prediction."""
    free = head.device != "cuda" or rate_for_gpu(card, head.gpu) is not None
    return None if free else head.gpu or "a GPU"


def predicted_cost(card: RateCard, head: SessionHead) -> str:
    """`$1.32 ($0.58 to $2.98)` and a missing GPU price; empty if nothing would be charged."""
    known, missing = head.predicted, unpriced_gpu(card, head)
    if known is None or not (known.high_usd or missing):
        return ""
    more = f" without {missing}, of unknown price" if missing else ""
    return f"${known.usd:.2f} (${known.low_usd:.2f} to ${known.high_usd:.2f}){more}"


def expected_text(head: SessionHead) -> str:
    """The time of a plan, with its interval: `48 s (80 %: 40 s to 60 s)`."""
    known = head.predicted
    if known is None:
        return seconds_text(head.plan.seconds)
    between = f"{seconds_text(known.low_s)} to {seconds_text(known.high_s)}"
    return f"{seconds_text(known.seconds)} (80 %: {between})"


def in_parentheses(variants: Sequence[str]) -> str:
    """Names as ` (cpu, eager)`; empty if there are none."""
    return f" ({', '.join(variants)})" if variants else ""


class Foreseen(Printed):
    """Output of `--dry-run --json`: predicted time and cost of a session."""

    schema_version: Literal[3] = 3
    """Number of this schema."""

    plan: str
    """Name of the plan."""
    success: str | None
    """Objective of the plan."""
    target: str
    """Name of the target."""
    device: str
    """Device of the session: `cpu` or `cuda`."""
    variants: tuple[str, ...]
    """Names of the variants."""
    patterns: tuple[PlannedPattern, ...]
    """Patterns of the plan and those it may branch to, each with its time."""
    predicted: Predicted | None
    """Predicted time and cost, with intervals."""
    unpriced_gpu: str | None
    """GPU without a price on the rate card; no predicted cost includes it."""


def show_plan(head: SessionHead, card: RateCard, screen: Screen, *, as_json: bool) -> int:
    """Print the patterns of `--dry-run` with predicted time and cost; nothing runs."""
    plan, missing = head.plan.plan, unpriced_gpu(card, head)
    if as_json:
        about = {"success": plan.success, "patterns": head.plan.patterns, "predicted": head.predicted}
        where = {"target": head.target, "device": head.device, "variants": head.variants}
        screen.data(to_json(Foreseen(plan=plan.name, unpriced_gpu=missing, **about, **where)))
        return ExitCode.OK
    screen.prose(f"plan {plan.name}: {plan.title}")
    screen.prose(f"target {head.target}{in_parentheses(head.variants)} on {head.device}")
    if head.emulated:
        screen.prose(f"under the emulator: {', '.join(head.emulated)}")
    screen.data("")
    rows = []
    for place, planned in enumerate(head.plan.patterns, start=1):
        steps = ", ".join(step.id for step in planned.pattern.steps)
        known = planned.low_s is not None and planned.high_s is not None
        between = f"{short_duration(planned.low_s or 0)}-{short_duration(planned.high_s or 0)}" if known else "-"
        number, aside = (str(place), "") if planned.planned else ("-", " (only as an answer)")
        times = short_duration(planned.seconds), between, planned.evidence
        rows.append((number, planned.pattern.name, *times, steps + aside))
    screen.table(("#", "pattern", "predicted", "80 %", "from", "steps"), rows)
    screen.data("")
    for line in plan.aim_lines():
        screen.prose(line)
    parts = filter(None, (expected_text(head), predicted_cost(card, head)))
    screen.prose(f"predicted: {', '.join(parts)}; planned: {plan.budget.minutes:g} min")
    if missing:
        screen.say(no_price(card, head.gpu))
    return ExitCode.OK
