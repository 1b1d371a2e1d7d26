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
Standing = Literal["proposed", "applied", "validated", "doubtful", "retired"]
Run = tuple[PatternRun, float, str]
"""A run that counts, its weight where the last session ran, and its session."""


class SuccessRate(Model):
    """The share of runs that answered: its mean, and the 5 % and 95 % quantiles of Jeffreys' Beta."""

    mean: float
    """Mean."""
    low: float
    """Lower end of its 90 % interval."""
    high: float
    """Upper end."""


class PatternStatistics(Model):
    """What the sessions say of one pattern."""

    name: str
    """Name of the pattern."""
    status: Standing
    """How it stands."""
    why: str
    """What that rests on."""
    passed: int = 0
    """Runs that passed."""
    found: int = 0
    """Runs that found something wrong."""
    broken: int = 0
    """Runs that did neither."""
    success: SuccessRate | None = None
    """Share of runs that answered; None before the first."""
    seconds: float
    """Median of what the next run takes."""
    low_s: float
    """Lower end of its 80 % interval."""
    high_s: float
    """Upper end."""
    weight: float = 0.0
    """Sum of the weights of the timed runs."""
    saved_minutes: float = 0.0
    """Sum of the minutes that it spared, as measured."""
    saved_usd: float = 0.0
    """The same in dollars."""
    saved_sessions: int = 0
    """Sessions in which it spared something."""
    last_used: str | None = None
    """When it ran last, ISO 8601."""
    last_session: str | None = None
    """In which session."""
    sources: tuple[str, ...] = ()
    """Sessions that its definition names as its source."""

    @property
    def applied(self) -> int:
        """Runs that count."""
        return self.passed + self.found + self.broken


def gather(project: Project, patterns: Mapping[str, Read[Pattern]]) -> dict[str, PatternStatistics]:
    """The statistics of all patterns, defined or ever run, for the environment of the last session."""
    rows = [row for row in index.rows(project.sessions) if not row.recorded]
    return of_patterns({name: read.value for name, read in patterns.items()}, rows)


def of_patterns(patterns: Mapping[str, Pattern], rows: Sequence[SessionRow]) -> dict[str, PatternStatistics]:
    """The statistics of every pattern that is defined or was ever run. `rows`: oldest first."""
    runs: dict[str, list[Run]] = {name: [] for name in patterns}
    savings: dict[str, list[Saving]] = {}
    for row in rows:
        weight = alike(row.environment, rows[-1].environment)
        for run in row.runs:
            if run.success is not None:
                runs.setdefault(run.pattern, []).append((run, weight, row.id))
        for saving in row.savings:
            savings.setdefault(saving.pattern, []).append(saving)
    return {
        name: _of_pattern(name, patterns.get(name), mine, savings.get(name, ())) for name, mine in runs.items()
    }


def _of_pattern(
    name: str, pattern: Pattern | None, runs: Sequence[Run], savings: Sequence[Saving]
) -> PatternStatistics:
    """Times are shrunk to the author's estimate; to a minute for a pattern that is not defined any more."""
    good = sum(weight for run, weight, _ in runs if run.success)
    bad = sum(weight for run, weight, _ in runs if not run.success)
    share = rate(good, bad)
    times = [(run.seconds, weight) for run, weight, _ in runs if run.whole and run.seconds > 0]
    duration = expected(60 * pattern.estimate.minutes if pattern else 60.0, times)
    low, high = duration.interval()
    passed = sum(run.status == "passed" for run, _, _ in runs)
    answered = sum(bool(run.success) for run, _, _ in runs)
    status, why = _standing(good, bad, share) if runs else ("proposed", "it was never run")
    started = runs[-1][0].started if runs else None
    return PatternStatistics(
        name=name,
        status=status,
        why=why,
        passed=passed,
        found=answered - passed,
        broken=len(runs) - answered,
        success=share if runs else None,
        seconds=duration.seconds,
        low_s=low,
        high_s=high,
        weight=duration.weight,
        saved_minutes=math.fsum(saving.minutes for saving in savings),
        saved_usd=math.fsum(saving.usd for saving in savings),
        saved_sessions=len(savings),
        last_used=started.astimezone(datetime.UTC).isoformat() if started else None,
        last_session=runs[-1][2] if runs else None,
        sources=tuple(dict.fromkeys(note.session for note in pattern.evidence)) if pattern else (),
    )


def rate(good: float, bad: float) -> SuccessRate:
    """The share of answers by Jeffreys' Beta(1/2, 1/2); counts may be sums of weights."""
    a, b = 0.5 + good, 0.5 + bad
    return SuccessRate(mean=a / (a + b), low=beta_quantile(0.05, a, b), high=beta_quantile(0.95, a, b))


def _standing(good: float, bad: float, share: SuccessRate) -> tuple[Standing, str]:
    """Where a pattern stands, and why. `good` and `bad`: runs by weight."""
    count = good + bad
    interval = f"{100 * share.mean:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    why = f"{good:.3g} of {count:.3g} runs by weight answered: {interval}"
    if count >= ENOUGH and share.high < RETIRED:
        return "retired", why
    if count >= FEW and share.mean < BAR:
        return "doubtful", why
    return ("validated" if good >= ENOUGH and share.low >= BAR else "applied"), why


def lines(known: PatternStatistics) -> list[str]:
    """One pattern's statistics in sentences."""
    sources = ", ".join(known.sources)
    text = [
        f"{known.name} is {known.status}: {known.why}",
        f"comes from {sources}" if sources else "no session is named as its source",
    ]
    if known.applied:
        counts = f"{known.passed} passed, {known.found} found something wrong, {known.broken} broke"
        text.append(f"run {known.applied} times: {counts}")
    basis = f"runs worth {known.weight:.3g} here" if known.weight else "its author's estimate alone"
    between = (
        f"between {seconds_text(known.low_s)} and {seconds_text(known.high_s)} in {100 * LEVEL:.0f} % of cases"
    )
    text.append(f"the next run takes {seconds_text(known.seconds)}, {between}, from {basis}")
    if known.saved_sessions:
        saved = f"{say.minutes(known.saved_minutes)}, {say.usd(known.saved_usd)}"
        text.append(f"saved {saved}, as measured in {say.count(known.saved_sessions, 'session')}")
    if known.last_used:
        text.append(f"last used {known.last_used[:10]}, in {known.last_session}")
    return text
