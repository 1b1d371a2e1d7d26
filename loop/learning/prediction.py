"""Predict how long a plan takes, from authors' estimates and from past sessions.

Run times of a pattern are log-normal with unknown centre and spread. The author's estimate is the
prior; the next time follows Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., 3.3). A
run weighs by likeness and age. The centre is a weighted median: one disturbed run changes little.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from loop.base.stats import t_quantile
from loop.library.rates import rates
from loop.model.index import PatternRun, SessionRow
from loop.model.money import RateCard
from loop.model.plan import Pattern, Predicted
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.money.bill import charged_rates, hourly_usd, rate_for_gpu
from loop.report import format as say
from loop.report.markdown import Table, drop_empty_columns
from loop.steps.setting import Setting
from loop.store import sessions

FACTORS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""Fields of `Environment`, each with the factor on a run's weight if the field differs."""
PRIOR_SPREAD, SPREAD_RUNS = 0.25, 3.0
"""Prior standard deviation of log seconds between runs, and the number of runs it counts as."""
PRIOR_RUNS = (PRIOR_SPREAD / 1.2) ** 2
"""Number of runs that an author's estimate counts as: authors err by a factor of 3 and more."""
INTERVAL_LEVEL = 0.8  # Probability that an interval of time or cost contains the actual value.
AGE_FACTOR = 0.8  # Factor on a run's weight for each later run of the same work.
OTHER_WORK_FACTOR = 0.1  # Factor on the weight of a run with other variants or workloads.
OTHER_CACHE_FACTOR = 0.05  # Factor on a run's weight if only it, or only the next run, compiles.
MEASURED_WEIGHT = 0.5  # Sum of weights from which a prediction is labelled `measured`.
OVERHEAD_SESSIONS = 10  # Latest sessions that tell what `loop` itself takes between steps.


@dataclass(frozen=True)
class Duration:
    """Predicted time of a pattern's next run: Student's t on log seconds."""

    log_centre: float
    log_scale: float
    degrees_of_freedom: float
    weight: float  # Sum of the weights of past runs; 0: only the author's estimate.

    @property
    def seconds(self) -> float:
        """Median in seconds."""
        return math.exp(self.log_centre)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval in seconds that contains the time with probability `INTERVAL_LEVEL`."""
        # Rounded, to cache few quantiles.
        freedom = min(round(2 * self.degrees_of_freedom) / 2, 200.0)
        half_width = t_quantile(0.5 + INTERVAL_LEVEL / 2, freedom) * self.log_scale
        return math.exp(self.log_centre - half_width), math.exp(self.log_centre + half_width)


def weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """Smallest value at which half of the weight is reached. `pairs`: values and weights."""
    half_weight, weight_below = sum(weight for _, weight in pairs) / 2, 0.0
    ordered = sorted(pairs)
    for value, weight in ordered:
        weight_below += weight
        if weight_below >= half_weight:
            return value
    return ordered[-1][0]


def predict_pattern(
    pattern: Pattern, rows: Sequence[SessionRow], session: SessionRow
) -> tuple[Duration, dict[str, float]]:
    """Time of a pattern's next run, and median seconds of its steps that ran before. `rows`:
    earlier sessions, oldest first. `session`: the one to predict, which has not run."""
    runs = list(_weighted_runs(pattern.name, rows, session))
    times_by_step: dict[str, list[tuple[float, float]]] = {}  # Step to (seconds, weight).
    for row, _, weight in runs:
        for step in row.steps:
            if step.pattern == pattern.name and step.status in ("passed", "failed"):
                times_by_step.setdefault(step.step, []).append((step.seconds, weight))
    logs = [(math.log(max(run.seconds, 1e-6)), weight) for _, run, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    prior_log = middle = math.log(60 * pattern.estimate.minutes)
    deviation = 0.0
    if weight > 0:
        middle = weighted_median(logs)
        # 1.4826 makes the median deviation an estimate of a normal standard deviation.
        deviation = 1.4826 * weighted_median([(abs(log - middle), weight) for log, weight in logs])
    total_weight, freedom = PRIOR_RUNS + weight, SPREAD_RUNS + weight
    variance = (SPREAD_RUNS * PRIOR_SPREAD**2 + weight * deviation**2) / freedom
    # A weighted mean of the author's estimate and of the runs' weighted median, on the log scale.
    centre = (PRIOR_RUNS * prior_log + weight * middle) / total_weight
    duration = Duration(centre, math.sqrt(variance * (1 + 1 / total_weight)), freedom, weight)
    return duration, {name: weighted_median(pairs) for name, pairs in times_by_step.items()}


def predict_session(
    durations: Sequence[Duration], rows: Sequence[SessionRow], usd_per_hour: float, least_usd: float
) -> Predicted:
    """Time of a plan, if its patterns are slow together, and its cost: at least `least_usd`."""
    overheads_s = [row.own_seconds for row in rows if row.complete][-OVERHEAD_SESSIONS:]
    overhead_s = median(overheads_s) if overheads_s else 0.0
    triples = [(duration.seconds, *duration.interval) for duration in durations]
    times_s = [overhead_s + sum(parts_s) for parts_s in zip(*triples, strict=True)]
    charges_usd = [max(least_usd, time_s / 3600 * usd_per_hour) for time_s in times_s]
    names = ("seconds", "low_s", "high_s", "usd", "low_usd", "high_usd")
    return Predicted(**dict(zip(names, (*times_s, *charges_usd), strict=True)))


def _work_key(row: SessionRow) -> tuple[object, ...]:
    """Key of a session's work (target, variants, workloads, threads), the same on any machine."""
    variants = frozenset((*row.variants, *row.emulated))
    return row.target, row.device, variants, frozenset(row.workloads), row.threads


def _weighted_runs(
    name: str, rows: Sequence[SessionRow], session: SessionRow
) -> Iterator[tuple[SessionRow, PatternRun, float]]:
    """Runs of pattern `name` whose steps all ended, latest first, with session and weight: at most
    1, less for another environment, other work, an earlier run, or if only one compiles."""
    runs: list[tuple[SessionRow, PatternRun, float]] = []  # With the weight of their environment.
    has_warm_cache = False  # Whether a session here has filled the build cache for this work.
    for row in rows:
        environment_weight = 1.0
        for fact, factor in FACTORS.items():
            present, past = getattr(session.environment, fact), getattr(row.environment, fact)
            # An unknown fact counts as equal, except that no GPU differs from any GPU.
            if present != past and (fact == "gpu" or (present and past)):
                environment_weight *= factor
        complete = [run for run in row.runs if run.pattern == name and run.whole]
        runs += [(row, run, environment_weight) for run in complete]
        has_same_files, is_here = row.ground == session.ground, environment_weight == 1
        has_variants = {*row.variants, *row.emulated} >= {*session.variants, *session.emulated}
        has_built = any(run.whole for run in row.runs)
        has_warm_cache |= has_same_files and is_here and has_variants and has_built
    may_compile = any(run.built for _, run, _ in runs)
    later_runs: Counter[object] = Counter()  # Of the same work in the same environment.
    for row, run, weight in reversed(runs):
        work = (_work_key(row), row.environment, run.built)
        weight *= AGE_FACTOR ** later_runs[work]
        weight *= 1.0 if _work_key(row) == _work_key(session) else OTHER_WORK_FACTOR
        # With a warm cache the next run will not compile, with a cold one it will.
        weight *= OTHER_CACHE_FACTOR if may_compile and run.built == has_warm_cache else 1.0
        later_runs[work] += 1
        yield row, run, weight


def prediction_table(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """Predicted and actual times; None if the session stored no prediction or ran no step."""
    predicted = record.head.predicted
    if predicted is None or not finished:
        return None
    times = predicted.seconds, predicted.low_s, predicted.high_s
    costs = predicted.usd, predicted.low_usd, predicted.high_usd
    figures: list[tuple[str, tuple[float, float, float], float, Callable[[float], str]]] = [
        ("The session", times, record.seconds, say.seconds),
        ("Its cost", costs, record.bill.usd, say.usd),
    ]
    steps = latest_attempts(finished)
    for run, name in dict.fromkeys((step.run, step.pattern) for step in steps):
        planned = record.head.plan.find_pattern(name)
        run_steps = [step for step in steps if (step.run, step.pattern) == (run, name)]
        if len(run_steps) != len(planned.pattern.steps) or sessions.was_cut_short(run_steps):
            continue
        if planned.low_s is not None and planned.high_s is not None:
            times = planned.seconds, planned.low_s, planned.high_s
            figures.append((name, times, sum(step.seconds for step in run_steps), say.seconds))
    rows: list[tuple[str, ...]] = []
    for name, (middle, low, high), actual, to_text in figures:
        where = "below" if actual < low else "above" if actual > high else "yes"
        interval = f"{to_text(low)} to {to_text(high)}"
        rows.append((name, to_text(middle), interval, to_text(actual), where))
    return drop_empty_columns(("What", ">Predicted", ">80 % interval", ">Actual", "Held"), rows)


def with_prediction(head: SessionHead, setting: Setting) -> SessionHead:
    """The session's head, with the predicted time of each pattern, time and cost of the plan."""
    rows = sessions.rows(setting.project.sessions, last=sessions.RECENT_SESSIONS)
    rows = [row for row in rows if not row.recorded]
    session, plan, card = sessions.session_row(head, None, ()), head.plan, rates(setting.project)
    ai_rate = card.find_rate(card.ai)
    usd_per_hour = hourly_usd(card, head) + (ai_rate.usd_per_hour if ai_rate else 0.0)
    charged = charged_rates(card, head.device, head.gpu)
    least_usd = sum(rate.minimum_s / 3600 * rate.usd_per_hour for rate in charged)
    patterns, duration_by_pattern = [], {}
    for planned in plan.patterns:
        duration, step_s = predict_pattern(planned.pattern, rows, session)
        duration_by_pattern[planned.pattern.name] = duration
        low, high = duration.interval
        evidence = "measured" if duration.weight >= MEASURED_WEIGHT else "prior"
        times = {"seconds": duration.seconds, "low_s": low, "high_s": high, "evidence": evidence}
        patterns.append(planned.model_copy(update={**times, "step_s": step_s}))
    timed_plan = plan.model_copy(update={"patterns": tuple(patterns)})
    listed = [duration_by_pattern[name] for name in plan.plan.patterns]
    predicted = predict_session(listed, rows, usd_per_hour, least_usd)
    return head.model_copy(update={"plan": timed_plan, "predicted": predicted})


def unpriced_gpu(card: RateCard, head: SessionHead) -> str | None:
    """Name of the session's GPU if its price is unknown: no prediction contains it; else None."""
    is_priced = head.device != "cuda" or rate_for_gpu(card, head.gpu) is not None
    return None if is_priced else head.gpu or "a GPU"


def predicted_cost_text(card: RateCard, head: SessionHead) -> str:
    """`$1.32 ($0.58 to $2.98)` and a missing GPU price; empty if nothing would be charged."""
    predicted, gpu = head.predicted, unpriced_gpu(card, head)
    if predicted is None or not (predicted.high_usd or gpu):
        return ""
    gpu_text = f" without {gpu}, of unknown price" if gpu else ""
    return f"${predicted.usd:.2f} (${predicted.low_usd:.2f} to ${predicted.high_usd:.2f}){gpu_text}"


def predicted_time_text(head: SessionHead) -> str:
    """The time of a plan, with its interval: `48 s (80 %: 40 s to 60 s)`."""
    predicted = head.predicted
    if predicted is None:
        patterns = [head.plan.find_pattern(name) for name in head.plan.plan.patterns]
        return say.seconds(sum(pattern.seconds for pattern in patterns))
    interval_text = f"{say.seconds(predicted.low_s)} to {say.seconds(predicted.high_s)}"
    return f"{say.seconds(predicted.seconds)} (80 %: {interval_text})"
