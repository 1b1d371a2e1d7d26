"""How long will a plan take? From the authors' estimates at first, then from the sessions.

Times of one pattern are log-normal with unknown centre and spread. A normal-inverse-gamma prior stands for the
author's estimate, and the next time follows Student's t (Gelman et al., Bayesian Data Analysis, 3rd ed., section
3.3). A run counts by how like it is to what is asked: the same variants and workloads, the same environment, a
cache as warm, and how many such runs have come since. One disturbed run moves little. Intervals become as wide as
earlier predictions were wrong.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

from loop.base.stats import median, t_quantile
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Predicted
from loop.store.index import LOOKED_BACK

FACTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""Fields of `Environment`, each with the weight of a run where it differs."""
SPREAD, SPREAD_WORTH = 0.25, 3.0
"""Standard deviation of log seconds between runs as it is assumed before any, and the runs that this is worth."""
BIAS = 1.2
"""Standard deviation of log(actual / author's estimate): authors are off by a factor of 3 and more."""
SLOWED = 0.9
"""Time grows with this power of (1 + other programs for each core)."""
LEVEL = 0.8
"""Probability of every interval of a time or cost."""
FORGET = 0.8
"""Each later run of the same work multiplies the weight of an earlier one by this."""
OTHER_WORK = 0.1
"""Weight of a run on other variants or workloads."""
OTHER_CACHE = 0.05
"""Weight of a run that compiled for one that will not, and the other way round."""
DRAWN_IN = 2.5
"""Robust standard deviations from the middle; a logarithm beyond is moved there."""
SHARED = 0.5
"""Correlation of the logarithms of two patterns' times in one session."""
MEASURED = 0.5
"""Sum of weights from which a prediction is called measured."""
RECENT = 10
"""Sessions that show what loop itself takes between steps."""
JUDGED = 40
"""Predictions that widen or narrow the next intervals."""
PRIOR = 12
"""Predictions that the rule's own widths are worth."""
NARROWEST, WIDEST = 0.4, 5.0
"""Bounds of the factor on a half width."""


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

    def interval(self, level: float = LEVEL, widened: float = 1.0) -> tuple[float, float]:
        """Seconds between which it lies with probability `level`. `widened`: factor on the half width."""
        freedom = min(round(2 * self.freedom) / 2, 200.0)  # Half steps: few quantiles to compute.
        half = widened * t_quantile(0.5 + level / 2, freedom) * self.scale
        return math.exp(self.centre - half), math.exp(self.centre + half)


def expected(estimate_s: float, runs: Iterable[tuple[float, float]], bias: float = BIAS) -> Duration:
    """The next run, from an estimate in seconds and from pairs of seconds and weight."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in runs]
    weight = math.fsum(weight for _, weight in logs)
    total = math.fsum(weight * log for log, weight in logs)
    guess = math.log(estimate_s)
    mean = total / weight if weight > 0 else guess
    within = math.fsum(weight * (log - mean) ** 2 for log, weight in logs)
    prior_worth = (SPREAD / bias) ** 2
    worth, freedom = prior_worth + weight, SPREAD_WORTH + weight
    variance = (SPREAD_WORTH * SPREAD**2 + within) / freedom  # An author's mistake is no spread of the runs.
    return Duration((prior_worth * guess + total) / worth, math.sqrt(variance * (1 + 1 / worth)), freedom, weight)


def slowed(load: float | None) -> float:
    """How many times as long a run takes with `load` other programs for each core."""
    return math.exp(SLOWED * math.log1p(load or 0.0))


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
    widened: float
    """Factor on the half widths of intervals."""
    patterns: Mapping[str, Duration]
    steps: Mapping[str, Mapping[str, float]]
    """Seconds of each step that was run before, by pattern."""

    @property
    def interval(self) -> tuple[float, float]:
        """80 % interval of the whole, in seconds."""
        return self.whole.interval(widened=self.widened)

    def priced(self, usd_per_hour: float, least_usd: float = 0.0) -> Predicted:
        """With its cost; `least_usd`: what is charged at least."""
        (low, high), middle = self.interval, self.whole.seconds
        usd, low_usd, high_usd = (max(least_usd, s / 3600 * usd_per_hour) for s in (middle, low, high))
        return Predicted(
            seconds=middle, low_s=low, high_s=high, widened=self.widened,
            usd=usd, low_usd=low_usd, high_usd=high_usd,
        )  # fmt: skip


def forecast(patterns: Sequence[Pattern], rows: Sequence[SessionRow], now: SessionRow) -> Forecast:
    """The time of `patterns`, each as often as it is listed.

    `rows`: earlier sessions, oldest first. `now`: the session that is asked about, which has not run yet.
    """
    recent = [row for row in rows[-LOOKED_BACK:] if not row.recorded]
    runs = {pattern.name: list(_weighted(pattern.name, recent, now)) for pattern in patterns}
    durations = {}
    for pattern in patterns:
        pairs = drawn_in([(past.run.seconds / past.slowed, past.weight) for past in runs[pattern.name]])
        idle = expected(60 * pattern.estimate.minutes, pairs)
        durations[pattern.name] = replace(idle, centre=idle.centre + math.log(slowed(now.load)))
    whole = together([durations[pattern.name] for pattern in patterns])
    own = [row.own_seconds / slowed(row.load) for row in recent if row.complete]
    between = median(own[-RECENT:]) * slowed(now.load) if own else 0.0  # What loop takes beside the steps.
    total = whole.seconds + between
    return Forecast(
        whole=replace(whole, centre=math.log(total), scale=whole.scale * whole.seconds / total),
        widened=widening(rows),
        patterns=durations,
        steps={name: _steps(name, mine, now.load) for name, mine in runs.items()},
    )


def _variants(row: SessionRow) -> frozenset[str]:
    return frozenset((*row.variants, *row.emulated))


def _work(row: SessionRow) -> tuple[object, ...]:
    """Equal for the same work, wherever it is done."""
    return row.target, row.device, _variants(row), frozenset(row.workloads), row.threads


class Weighted(NamedTuple):
    """An earlier run of a pattern."""

    row: SessionRow
    run: PatternRun
    weight: float
    """What it says about the work that is asked about."""
    slowed: float
    """How many times as long it took because of other programs; where the load is not known, as many as now."""


def _weighted(name: str, rows: Sequence[SessionRow], now: SessionRow) -> Iterator[Weighted]:
    """The whole runs of a pattern, the last first, each with its weight."""
    whole = [(row, run) for row in rows for run in row.runs if run.pattern == name and run.whole]
    compiles = any(run.built for _, run in whole)
    warm = any(  # Some session built these files for these variants in this environment.
        row.ground == now.ground
        and _variants(row) >= _variants(now)
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
        yield Weighted(row, run, weight, slowed(now.load if row.load is None else row.load))


def _steps(pattern: str, runs: Sequence[Weighted], load: float | None) -> dict[str, float]:
    """Seconds of each step that was run before: the weighted median."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    for past in runs:
        for step in past.row.steps:
            if step.pattern == pattern and step.status in ("passed", "failed"):
                seconds.setdefault(step.step, []).append((step.seconds / past.slowed, past.weight))
    return {name: slowed(load) * weighted_median(pairs) for name, pairs in seconds.items()}


def weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """The value that half of the weight lies below."""
    half, below = sum(weight for _, weight in pairs) / 2, 0.0
    ordered = sorted(pairs)
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


def drawn_in(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pairs of seconds and weight, with seconds far from the weighted middle brought nearer (winsorised)."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in pairs]
    if not logs:
        return []
    middle = weighted_median(logs)
    spread = 1.4826 * weighted_median([(abs(log - middle), weight) for log, weight in logs])
    reach = DRAWN_IN * max(spread, SPREAD)
    return [(math.exp(min(max(log, middle - reach), middle + reach)), weight) for log, weight in logs]


def together(parts: Sequence[Duration]) -> Duration:
    """The sum of several times as one log-normal: medians add up, spreads by their shares."""
    total = sum(part.seconds for part in parts)
    shares = [(part.seconds / total, part) for part in parts]
    alone = sum((share * part.scale) ** 2 for share, part in shares)
    added = sum(share * part.scale for share, part in shares)
    return Duration(
        centre=math.log(total),
        scale=math.sqrt((1 - SHARED) * alone + SHARED * added**2),
        freedom=sum(share * part.freedom for share, part in shares),
        weight=sum(share * part.weight for share, part in shares),
    )


def judged(rows: Sequence[SessionRow]) -> list[tuple[Predicted, float]]:
    """Prediction and seconds of each session that stored a prediction and ended with its plan."""
    return [(row.predicted, row.seconds) for row in rows if row.predicted and row.complete and row.seconds > 0]


def widening(rows: Sequence[SessionRow]) -> float:
    """Factor on the next half width with which LEVEL of the earlier intervals would have held (split conformal).

    A score is the distance between time and prediction, in half widths before widening. Scores of a normal
    distribution stand beside them (Vovk et al., Algorithmic Learning in a Random World, section 2.2; the prior
    scores are ours).
    """
    normal = NormalDist()
    edge = normal.inv_cdf(0.5 + LEVEL / 2)
    scores = [normal.inv_cdf(0.5 + (k + 0.5) / PRIOR / 2) / edge for k in range(PRIOR)]
    for known, seconds in judged(rows)[-JUDGED:]:
        if 0 < known.low_s < known.high_s:
            half = math.log(known.high_s / known.low_s) / 2 / known.widened
            scores.append(abs(math.log(seconds / known.seconds)) / half)
    scores.sort()
    rank = LEVEL * (len(scores) + 1)
    below = min(int(rank), len(scores)) - 1
    above = min(below + 1, len(scores) - 1)
    factor = scores[below] + (rank - int(rank)) * (scores[above] - scores[below])
    return min(max(factor, NARROWEST), WIDEST)
