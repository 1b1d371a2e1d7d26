"""How long will a plan take? From the authors' estimates at first, then from the sessions.

Times of one pattern are log-normal with unknown centre and spread. A prior stands for the author's estimate.
The next time follows Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3). A run counts by
how like it is to what is asked: the same variants and workloads, the same environment, a cache as warm, how many
such runs came since. The centre is a weighted median, so one disturbed run moves little.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.base.stats import median, t_quantile
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Predicted
from loop.store.index import LOOKED_BACK

FACTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""Fields of `Environment`, each with the weight of a run where it differs."""
SPREAD, SPREAD_WORTH = 0.25, 3.0
"""Standard deviation of log seconds between runs as it is assumed before any, and the runs that this is worth."""
PRIOR_WORTH = (SPREAD / 1.2) ** 2
"""Runs that an author's estimate is worth: authors are off by a factor of 3 and more."""
LEVEL = 0.8
"""Probability of every interval of a time or cost."""
FORGET = 0.8
"""Each later run of the same work multiplies the weight of an earlier one by this."""
OTHER_WORK = 0.1
"""Weight of a run on other variants or workloads."""
OTHER_CACHE = 0.05
"""Weight of a run that compiled for one that will not, and the other way round."""
MEASURED = 0.5
"""Sum of weights from which a prediction is called measured."""
RECENT = 10
"""Sessions that show what loop itself takes between steps."""


@dataclass(frozen=True)
class Duration:
    """What the next run will probably take."""

    centre: float
    """Logarithm of the median seconds."""
    scale: float
    """Scale of Student's t of the logarithm."""
    freedom: float
    """Its degrees of freedom."""
    weight: float
    """Sum of the weights of the runs behind it; 0: only the estimate."""

    @property
    def seconds(self) -> float:
        """Median."""
        return math.exp(self.centre)

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds between which it lies with probability `LEVEL`."""
        freedom = min(round(2 * self.freedom) / 2, 200.0)  # Half steps: few quantiles to compute.
        half = t_quantile(0.5 + LEVEL / 2, freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def expected(estimate_s: float, runs: Iterable[tuple[float, float]]) -> Duration:
    """The next run, from an estimate in seconds and from pairs of seconds and weight."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    guess = math.log(estimate_s)
    middle = weighted_median(logs) if weight > 0 else guess
    deviation = 1.4826 * weighted_median([(abs(log - middle), w) for log, w in logs]) if weight > 0 else 0.0
    worth, freedom = PRIOR_WORTH + weight, SPREAD_WORTH + weight
    variance = (SPREAD_WORTH * SPREAD**2 + weight * deviation**2) / freedom
    centre = (PRIOR_WORTH * guess + weight * middle) / worth
    return Duration(centre, math.sqrt(variance * (1 + 1 / worth)), freedom, weight)


def weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """The value that half of the weight lies below. `pairs`: values with their weights."""
    half, below = sum(weight for _, weight in pairs) / 2, 0.0
    ordered = sorted(pairs)
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


def alike(here: Environment, there: Environment) -> float:
    """Weight of a run in one environment for another: 1 where all known facts agree.

    An unknown fact is no difference, except that no GPU differs from any GPU.
    """
    pairs = ((name, getattr(here, name), getattr(there, name)) for name in FACTS)
    return math.prod(FACTS[name] for name, a, b in pairs if a != b and (name == "gpu" or (a and b)))


@dataclass(frozen=True)
class Forecast:
    """The time of a whole plan, and of each of its patterns."""

    whole: Duration
    patterns: Mapping[str, Duration]
    steps: Mapping[str, Mapping[str, float]]
    """Seconds of each step that was run before, by pattern."""

    def priced(self, usd_per_hour: float, least_usd: float = 0.0) -> Predicted:
        """With its cost; `least_usd`: what is charged at least."""
        (low, high), middle = self.whole.interval, self.whole.seconds
        usd, low_usd, high_usd = (max(least_usd, s / 3600 * usd_per_hour) for s in (middle, low, high))
        return Predicted(seconds=middle, low_s=low, high_s=high, usd=usd, low_usd=low_usd, high_usd=high_usd)


def forecast(patterns: Sequence[Pattern], rows: Sequence[SessionRow], now: SessionRow) -> Forecast:
    """The time of `patterns`, each as often as it is listed.

    `rows`: earlier sessions, oldest first. `now`: the session that is asked about, which has not run yet.
    """
    recent = [row for row in rows[-LOOKED_BACK:] if not row.recorded]
    runs = {pattern.name: list(_weighted(pattern.name, recent, now)) for pattern in patterns}
    durations = {
        pattern.name: expected(
            60 * pattern.estimate.minutes, [(run.seconds, weight) for _, run, weight in runs[pattern.name]]
        )
        for pattern in patterns
    }
    parts = [durations[pattern.name] for pattern in patterns]
    own = [row.own_seconds for row in recent if row.complete][-RECENT:]
    total = sum(part.seconds for part in parts) + (median(own) if own else 0.0)
    shares = [(part.seconds / total, part) for part in parts]
    whole = Duration(
        centre=math.log(total),
        scale=sum(share * part.scale for share, part in shares),  # As if all were slow together.
        freedom=sum(share * part.freedom for share, part in shares),
        weight=sum(share * part.weight for share, part in shares),
    )
    return Forecast(whole, durations, {name: _steps(name, mine) for name, mine in runs.items()})


def _work(row: SessionRow) -> tuple[object, ...]:
    """Equal for the same work, wherever it is done."""
    variants = frozenset((*row.variants, *row.emulated))
    return row.target, row.device, variants, frozenset(row.workloads), row.threads


def _weighted(
    name: str, rows: Sequence[SessionRow], now: SessionRow
) -> Iterator[tuple[SessionRow, PatternRun, float]]:
    """The whole runs of a pattern, the last first, each with what it says about the work that is asked about."""
    whole = [(row, run) for row in rows for run in row.runs if run.pattern == name and run.whole]
    compiles = any(run.built for _, run in whole)
    warm = any(  # Some session built these files for these variants in this environment.
        row.ground == now.ground
        and {*row.variants, *row.emulated} >= {*now.variants, *now.emulated}
        and alike(row.environment, now.environment) == 1
        and any(run.success for run in row.runs)
        for row in rows
    )
    later: Counter[object] = Counter()
    for row, run in reversed(whole):
        key = (_work(row), row.environment, run.built)
        weight = alike(row.environment, now.environment) * FORGET ** later[key]
        weight *= 1.0 if _work(row) == _work(now) else OTHER_WORK
        weight *= OTHER_CACHE if compiles and run.built == warm else 1.0
        later[key] += 1
        yield row, run, weight


def _steps(pattern: str, runs: Sequence[tuple[SessionRow, PatternRun, float]]) -> dict[str, float]:
    """Seconds of each step that was run before: the weighted median."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    for row, _, weight in runs:
        for step in row.steps:
            if step.pattern == pattern and step.status in ("passed", "failed"):
                seconds.setdefault(step.step, []).append((step.seconds, weight))
    return {name: weighted_median(pairs) for name, pairs in seconds.items()}


def judged(rows: Sequence[SessionRow]) -> list[tuple[Predicted, float]]:
    """Prediction and seconds of each session that stored a prediction and ended with its plan."""
    return [(row.predicted, row.seconds) for row in rows if row.predicted and row.complete and row.seconds > 0]
