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
from loop.learning.durations import LEVEL, alike, expected, place_of
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
"""A run that says something, what it is worth where the last session ran, and its session."""


class Rate(Model):
    """The share of runs that answered: its mean, and the 5 % and 95 % quantiles of Jeffreys' Beta."""

    mean: float
    """In the middle."""
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
    success: Rate | None = None
    """Share of runs that answered; None before the first."""
    seconds: float
    """What the next run takes: the median."""
    low_s: float
    """Lower end of its 80 % interval."""
    high_s: float
    """Upper end."""
    weight: float = 0.0
    """How many runs here this is worth."""
    saved_minutes: float = 0.0
    """Minutes that it spared, as measured here, summed up."""
    saved_usd: float = 0.0
    """The same in dollars."""
    saved_sessions: int = 0
    """Sessions in which it spared something."""
    last_used: str | None = None
    """When it was run last, ISO 8601."""
    last_session: str | None = None
    """In which session."""
    sources: tuple[str, ...] = ()
    """Sessions that its definition names as its source."""

    @property
    def applied(self) -> int:
        """Runs that say something."""
        return self.passed + self.found + self.broken


def gather(project: Project, patterns: Mapping[str, Read[Pattern]]) -> dict[str, PatternStatistics]:
    """The statistics of all patterns, defined or ever run, for the environment of the last session."""
    rows = [row for row in index.rows(project.sessions) if not row.recorded]
    return of_patterns({name: read.value for name, read in patterns.items()}, rows)


def of_patterns(patterns: Mapping[str, Pattern], rows: Sequence[SessionRow]) -> dict[str, PatternStatistics]:
    """The statistics of every pattern that is defined or was ever run. `rows`: oldest first."""
    runs: dict[str, list[Run]] = {name: [] for name in patterns}
    spared: dict[str, list[Saving]] = {}
    for row in rows:
        weight = alike(place_of(row), place_of(rows[-1]))
        for run in row.runs:
            if run.success is not None:
                runs.setdefault(run.pattern, []).append((run, weight, row.id))
        for saving in row.savings:
            spared.setdefault(saving.pattern, []).append(saving)
    return {name: _of_pattern(name, patterns.get(name), mine, spared.get(name, ())) for name, mine in runs.items()}


def _of_pattern(
    name: str, pattern: Pattern | None, runs: Sequence[Run], spared: Sequence[Saving]
) -> PatternStatistics:
    """The statistics of one pattern.

    Times are shrunk to the author's estimate; to a minute for a pattern that is not defined any more.
    """
    good = sum(weight for run, weight, _ in runs if run.success)
    bad = sum(weight for run, weight, _ in runs if not run.success)
    share = rate(good, bad)
    times = [(run.seconds, weight) for run, weight, _ in runs if run.whole and run.seconds > 0]
    duration = expected(60 * pattern.estimate.minutes if pattern else 60.0, times)
    low, high = duration.interval()
    passed = sum(run.status == "passed" for run, _, _ in runs)
    answered = sum(bool(run.success) for run, _, _ in runs)
    status, why = _standing(good, bad, share) if runs else ("proposed", "it was never run")
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
        saved_minutes=math.fsum(saving.minutes for saving in spared),
        saved_usd=math.fsum(saving.usd for saving in spared),
        saved_sessions=len(spared),
        last_used=_began(runs[-1][0]) if runs else None,
        last_session=runs[-1][2] if runs else None,
        sources=tuple(dict.fromkeys(note.session for note in pattern.evidence)) if pattern else (),
    )


def rate(good: float, bad: float) -> Rate:
    """The share of answers by Jeffreys' Beta(1/2, 1/2); counts may be sums of weights."""
    a, b = 0.5 + good, 0.5 + bad
    return Rate(mean=a / (a + b), low=beta_quantile(0.05, a, b), high=beta_quantile(0.95, a, b))


def _standing(good: float, bad: float, share: Rate) -> tuple[Standing, str]:
    """Where a pattern stands, and why. `good` and `bad`: runs by weight."""
    count, percent = good + bad, [100 * value for value in (share.mean, share.low, share.high)]
    interval = "{:.0f} % [{:.0f}, {:.0f}]".format(*percent)
    why = f"{good:.3g} of {count:.3g} runs by weight answered: {interval}"
    if count >= ENOUGH and share.high < RETIRED:
        return "retired", why
    if count >= FEW and share.mean < BAR:
        return "doubtful", why
    return ("validated" if good >= ENOUGH and share.low >= BAR else "applied"), why


def _began(run: PatternRun) -> str | None:
    return run.started.astimezone(datetime.UTC).isoformat() if run.started else None


def lines(one: PatternStatistics) -> list[str]:
    """One pattern's statistics in sentences."""
    text = [f"{one.name} is {one.status}: {one.why}"]
    text.append(f"comes from {', '.join(one.sources)}" if one.sources else "no session is named as its source")
    if one.applied:
        counts = f"{one.passed} passed, {one.found} found something wrong, {one.broken} broke"
        text.append(f"run {one.applied} times: {counts}")
    source = f"runs worth {one.weight:.3g} here" if one.weight else "its author's estimate alone"
    between = f"between {seconds_text(one.low_s)} and {seconds_text(one.high_s)}"
    text.append(
        f"the next run takes {seconds_text(one.seconds)}, {between} in {100 * LEVEL:.0f} % of cases, from {source}"
    )
    if one.saved_sessions:
        sessions = say.count(one.saved_sessions, "session")
        saved = f"{say.minutes(one.saved_minutes)}, {say.usd(one.saved_usd)}"
        text.append(f"saved {saved}, as measured in {sessions}")
    if one.last_used:
        text.append(f"last used {one.last_used[:10]}, in {one.last_session}")
    return text
