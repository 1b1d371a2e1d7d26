"""What the sessions say of a pattern: how often it works, how long it takes, what it saves, and where that holds.

A run succeeds when it comes to an answer: it passed, or it failed because it found something wrong, which is what
a gate is for. It breaks when it ends with an error of its own. Interrupted and skipped runs say nothing.
"""

import datetime
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from loop.base.stats import beta_quantile
from loop.learning import durations
from loop.learning.calibration import Calibration
from loop.learning.durations import Duration, Sums
from loop.learning.environments import Place, alike, changed
from loop.learning.experience import NOTHING, Experience
from loop.learning.model import Saved, Tally
from loop.model.history import HistorySession
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.money import Saving

Standing = Literal["proposed", "applied", "validated", "doubtful", "retired"]
LEVEL = 0.9
"""Of the interval of a success rate."""
ENOUGH = 5.0
"""Successes, by weight, that a validated pattern has at least."""
BAR = 0.6
"""A pattern is validated when the lower bound of its success rate is above this."""
FEW = 3.0
"""Runs, by weight, below which nothing is doubted."""
DOUBT = 0.6
"""A pattern is doubtful when its success rate is below this, and retired when its upper bound is below RETIRED."""
RETIRED = 0.5
RULE = (
    f"retired: {ENOUGH:.0f} or more runs, and under {100 * RETIRED:.0f} % answered by the upper bound",
    f"doubtful: {FEW:.0f} or more runs, and under {100 * DOUBT:.0f} % answered in the mean",
    f"validated: {ENOUGH:.0f} or more runs answered, and {100 * BAR:.0f} % or more by the lower bound",
    "applied: run, and none of these; proposed: never run",
    "mean, bounds (5 %, 95 %): of Beta(answered + 1/2, broken + 1/2), by weight",
)
"""Where a pattern stands: the first line that holds."""


@dataclass(frozen=True)
class Rate:
    """A share with its interval: Jeffreys' Beta(1/2, 1/2) and the runs there were."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Scope:
    """One environment in which a pattern was applied."""

    place: tuple[str | None, ...]
    successes: int
    broken: int
    weight: float
    """What its runs are worth where the last session ran."""


@dataclass(frozen=True)
class Statistics:
    """Everything the sessions say of one pattern."""

    pattern: str
    standing: Standing
    why: str
    successes: int
    """Runs that came to an answer."""
    passed: int
    """Those that passed; the others found something wrong."""
    broken: int
    """Runs that ended with an error of their own."""
    success: Rate
    duration: Duration
    saved: Saved | None
    """What it measurably spared; None for nothing."""
    scopes: tuple[Scope, ...]
    """Environments, those with most runs first."""
    last: str
    """When it was last begun, ISO 8601; empty where it never was."""
    session: str
    """The last session in which it was."""
    recorded: tuple[HistorySession, ...] = ()
    """Sessions recorded elsewhere that applied it."""
    sources: tuple[str, ...] = ()
    """Sessions that its definition names as its evidence."""
    advice: Mapping[str, Calibration] | None = None
    """Promised against actual gain by leaf of its decision tree; None where it has no tree."""
    experience: Experience = NOTHING
    """What its runs here took, cost and found."""

    @property
    def applied(self) -> int:
        """Runs that say something."""
        return self.successes + self.broken


def rate(successes: float, failures: float, level: float = LEVEL) -> Rate:
    """The share of successes; counts may be weighted sums."""
    a, b = 0.5 + successes, 0.5 + failures
    tail = (1 - level) / 2
    return Rate(a / (a + b), beta_quantile(tail, a, b), beta_quantile(1 - tail, a, b))


def latest(tallies: Iterable[Tally]) -> Place | None:
    """The environment of the last run of all."""
    last = max(tallies, key=lambda one: one.last or "", default=None)
    return last.place if last else None


def tallies(rows: Iterable[SessionRow]) -> list[Tally]:
    """Runs of each pattern in each environment, summed up; those that were not let to say nothing."""
    groups: dict[tuple[str, Environment], list[tuple[SessionRow, PatternRun]]] = {}
    for row in rows:
        for run in row.runs:
            if run.success is not None:
                groups.setdefault((run.pattern, row.environment), []).append((row, run))
    return [_tally(pattern, where, mine) for (pattern, where), mine in groups.items()]


def _tally(pattern: str, where: Environment, runs: Sequence[tuple[SessionRow, PatternRun]]) -> Tally:
    logs = [math.log(run.seconds) for _, run in runs if run.whole and run.seconds > 0]
    return Tally(
        pattern=pattern,
        place=tuple(where.model_dump().values()),
        successes=sum(bool(run.success) for _, run in runs),
        passed=sum(run.status == "passed" for _, run in runs),
        broken=sum(not run.success for _, run in runs),
        timed=len(logs),
        log_sum=math.fsum(logs),
        log_squares=math.fsum(log * log for log in logs),
        last=max((run.started.astimezone(datetime.UTC).isoformat() for _, run in runs if run.started), default=""),
        session=max(row.id for row, _ in runs),
    )


def savings(rows: Iterable[SessionRow]) -> list[Saved]:
    """What each pattern spared, summed up."""
    groups: dict[str, list[Saving]] = {}
    for row in rows:
        for one in row.savings:
            groups.setdefault(one.pattern, []).append(one)
    return [
        Saved(
            pattern=pattern,
            sessions=len(mine),
            minutes=math.fsum(one.minutes for one in mine),
            usd=math.fsum(one.usd for one in mine),
        )
        for pattern, mine in groups.items()
    ]


def of_patterns(
    estimates_s: Mapping[str, float],
    tallies: Sequence[Tally],
    saved: Sequence[Saved],
    here: Place | None = None,
    recorded: Collection[HistorySession] = (),
    experiences: Mapping[str, Experience] = MappingProxyType({}),
) -> dict[str, Statistics]:
    """The statistics of every pattern that has an estimate or was ever run.

    `here`: the environment they are for; the last session's where none is given. A pattern without an estimate,
    one that is not defined any more, is shrunk to a minute. `recorded`: sessions of recorded histories.
    `experiences`: what runs took, cost and found, by pattern.
    """
    here = here if here is not None else latest(tallies)
    names = dict.fromkeys((*estimates_s, *(one.pattern for one in tallies)))
    runs = {name: [one for one in tallies if one.pattern == name] for name in names}
    spared = {one.pattern: one for one in saved}
    elsewhere = {name: tuple(row for row in recorded if name in row.applied) for name in names}
    found = {
        name: of_pattern(name, estimates_s.get(name, 60.0), runs[name], spared.get(name), here, elsewhere[name])
        for name in names
    }
    return {name: replace(one, experience=experiences.get(name, NOTHING)) for name, one in found.items()}


def of_pattern(
    name: str,
    estimate_s: float,
    tallies: Sequence[Tally],
    saved: Saved | None,
    here: Place | None,
    recorded: tuple[HistorySession, ...] = (),
) -> Statistics:
    """The statistics of one pattern, its runs weighted by how like `here` their environment was."""
    weights = [alike(one.place, here) if here is not None else 1.0 for one in tallies]
    good = sum(weight * one.successes for weight, one in zip(weights, tallies, strict=True))
    bad = sum(weight * one.broken for weight, one in zip(weights, tallies, strict=True))
    pairs = zip(weights, tallies, strict=True)
    sums = (Sums(w * one.timed, w * one.log_sum, w * one.log_squares) for w, one in pairs)
    success, last = rate(good, bad), max(tallies, key=lambda one: one.last or "", default=None)
    standing, why = _standing(good, bad, success, tallies, here) if tallies else _not_run(recorded)
    return Statistics(
        pattern=name,
        standing=standing,
        why=why,
        successes=sum(one.successes for one in tallies),
        passed=sum(one.passed for one in tallies),
        broken=sum(one.broken for one in tallies),
        success=success,
        duration=durations.expected(estimate_s, sum(sums, Sums())),
        saved=saved,
        scopes=_scopes(tallies, weights),
        last=(last.last or "") if last else "",
        session=(last.session or "") if last else "",
        recorded=recorded,
    )


def _scopes(tallies: Sequence[Tally], weights: Sequence[float]) -> tuple[Scope, ...]:
    found = [
        Scope(tuple(one.place), one.successes, one.broken, weight)
        for one, weight in zip(tallies, weights, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -(one.successes + one.broken)))


def _not_run(recorded: Sequence[HistorySession]) -> tuple[Standing, str]:
    if recorded:
        return "applied", "it was not run here, but in sessions recorded elsewhere"
    return "proposed", "it was never run"


def _standing(
    good: float, bad: float, success: Rate, tallies: Sequence[Tally], here: Place | None
) -> tuple[Standing, str]:
    """Where a pattern stands, and why. `good` and `bad`: runs by weight."""
    count, share = good + bad, f"{100 * success.mean:.0f} % [{100 * success.low:.0f}, {100 * success.high:.0f}]"
    why = f"{good:.3g} of {count:.3g} runs by weight answered{_moved(tallies, here)}: {share}"
    if count >= ENOUGH and success.high < RETIRED:
        return "retired", why
    if count >= FEW and success.mean < DOUBT:
        return "doubtful", why
    return ("validated" if good >= ENOUGH and success.low >= BAR else "applied"), why


def _moved(tallies: Sequence[Tally], here: Place | None) -> str:
    """What has changed since most of the runs."""
    runs = sum(one.successes + one.broken for one in tallies)
    facts = dict.fromkeys(fact for one in tallies if here is not None for fact in changed(one.place, here))
    return f" ({runs} in all; {', '.join(facts)} changed)" if facts else ""
