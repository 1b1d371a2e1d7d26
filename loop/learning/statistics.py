"""What the sessions say of a pattern: how often it answers, how long it takes, what it spares.

A run answers when it passed, or failed because it found something wrong, which is what a gate is for. It breaks
when it ends with an error of its own. Interrupted and skipped runs say nothing.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from loop.base.places import Project
from loop.base.screen import seconds_text
from loop.base.stats import beta_quantile
from loop.learning.prediction import LEVEL, alike, expected
from loop.library.definitions import Read
from loop.model.base import Model
from loop.model.index import PatternRun, SessionRow
from loop.model.money import Saving
from loop.model.pattern import Pattern
from loop.report import format as say
from loop.store import index

ENOUGH, FEW = 5.0, 3.0
"""Runs, by weight, from which a pattern can be validated or retired, and from which it can be doubted."""
BAR, RETIRED = 0.6, 0.5
"""Share of answers that a validated pattern has at least, and below which a pattern is retired."""
Run = tuple[PatternRun, float, str]
"""A run that counts, its weight where the last session ran, and its session."""


class PatternStatistics(Model):
    """What the sessions say of one pattern."""

    name: str
    """Name of the pattern."""
    status: Literal["proposed", "applied", "validated", "doubtful", "retired"]
    """How it stands."""
    why: str
    """What that rests on."""
    passed: int
    """Runs that passed."""
    found: int
    """Runs that found something wrong."""
    broken: int
    """Runs that did neither."""
    success: tuple[float, float, float] | None
    """Share of runs that answered: 5 % quantile, mean, 95 % quantile; None before the first."""
    seconds: float
    """Median of what the next run takes."""
    interval_s: tuple[float, float]
    """Its 80 % interval."""
    weight: float
    """Sum of the weights of the timed runs."""
    saved_minutes: float
    """Sum of the minutes that it spared, as measured."""
    saved_usd: float
    """The same in dollars."""
    last_used: str | None
    """When it ran last, ISO 8601."""
    last_session: str | None
    """In which session."""

    @property
    def applied(self) -> int:
        """Runs that count."""
        return self.passed + self.found + self.broken


def gather(project: Project, patterns: Mapping[str, Read[Pattern]]) -> dict[str, PatternStatistics]:
    """The statistics of all patterns, for the environment of the last session."""
    rows = [row for row in index.rows(project.sessions) if not row.recorded]
    return of_patterns({name: read.value for name, read in patterns.items()}, rows)


def of_patterns(patterns: Mapping[str, Pattern], rows: Sequence[SessionRow]) -> dict[str, PatternStatistics]:
    """The statistics of patterns. `rows`: sessions, oldest first."""
    runs: dict[str, list[Run]] = {name: [] for name in patterns}
    savings: dict[str, list[Saving]] = {name: [] for name in patterns}
    for row in rows:
        weight = alike(row.environment, rows[-1].environment)
        for run in row.runs:
            if run.success is not None and run.pattern in patterns:
                runs[run.pattern].append((run, weight, row.id))
        for saving in row.savings:
            if saving.pattern in patterns:
                savings[saving.pattern].append(saving)
    return {name: _of_pattern(pattern, runs[name], savings[name]) for name, pattern in patterns.items()}


def _of_pattern(pattern: Pattern, runs: Sequence[Run], savings: Sequence[Saving]) -> PatternStatistics:
    """Times are shrunk to the author's estimate."""
    good = sum(weight for run, weight, _ in runs if run.success)
    bad = sum(weight for run, weight, _ in runs if not run.success)
    times = [(run.seconds, weight) for run, weight, _ in runs if run.whole and run.seconds > 0]
    duration = expected(60 * pattern.estimate.minutes, times)
    passed = sum(run.status == "passed" for run, _, _ in runs)
    answered = sum(bool(run.success) for run, _, _ in runs)
    low, mean, high = share = rate(good, bad)
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


def rate(good: float, bad: float) -> tuple[float, float, float]:
    """The share of answers by Jeffreys' Beta(1/2, 1/2): 5 % quantile, mean, 95 % quantile.

    `good`, `bad`: counts, or sums of weights.
    """
    a, b = 0.5 + good, 0.5 + bad
    return beta_quantile(0.05, a, b), a / (a + b), beta_quantile(0.95, a, b)


def lines(known: PatternStatistics) -> list[str]:
    """One pattern's statistics in sentences."""
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
