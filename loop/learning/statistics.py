"""What the sessions say of a pattern: how often it works, how long it takes, what it saves, and where that holds.

A run succeeds when it comes to an answer: it passed, or it failed because it found something wrong, which is what
a gate is for. It breaks when it ends with an error of its own. Interrupted and skipped runs say nothing.
"""

import datetime
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loop.base.stats import beta_quantile
from loop.learning.calibration import Calibration, Outcome, calibration
from loop.learning.durations import Duration, Place, alike, changed, expected, place_of, summed
from loop.learning.model import Answered, Saved
from loop.model.history import HistorySession
from loop.model.index import PatternRun, SessionRow
from loop.model.money import Saving

Run = tuple[SessionRow, PatternRun]
SHOWN = 3
"""Findings that are kept, the newest."""


@dataclass(frozen=True)
class Finding:
    """What one session found wrong by a pattern."""

    session: str
    step: str
    text: str
    """What is left of its message without numbers and paths."""


@dataclass(frozen=True)
class Experience:
    """Everything that the runs of one pattern took, cost and found."""

    minutes: float = 0.0
    """Of all its runs."""
    usd: float = 0.0
    """Its share of each session's bill: its seconds over the session's."""
    held: Calibration | None = None
    """Predicted against actual time of its whole runs; None where none was predicted."""
    found: tuple[Finding, ...] = ()
    """The newest first, each kind once."""


NOTHING = Experience()


def answered(rows: Iterable[SessionRow]) -> dict[str, list[Run]]:
    """By pattern the runs that say something of it, each with its session. `rows`: oldest first."""
    runs: dict[str, list[Run]] = {}
    for row in rows:
        for run in row.runs:
            if run.success is not None:
                runs.setdefault(run.pattern, []).append((row, run))
    return runs


def experience(runs: Sequence[Run]) -> Experience:
    """Of the runs of one pattern, oldest first."""
    return Experience(
        minutes=math.fsum(run.seconds for _, run in runs) / 60,
        usd=math.fsum(row.usd * min(1.0, run.seconds / row.seconds) for row, run in runs if row.seconds > 0),
        held=calibration([held for _, run in runs if (held := _held(run))]),
        found=tuple(_findings(runs))[:SHOWN],
    )


def _held(run: PatternRun) -> Outcome | None:
    """A whole run beside its prediction; None where it is one of neither."""
    if run.predicted_s is None or not run.whole or run.seconds <= 0:
        return None
    low, expected, high = run.predicted_s
    return Outcome(low, expected, high, run.seconds)


def _findings(runs: Sequence[Run]) -> Iterator[Finding]:
    """What was found, the newest first; each kind with the last session that found it."""
    seen: set[tuple[str, str]] = set()
    for row, run in reversed(runs):
        for one in row.failures if run.found else ():
            if one.pattern == run.pattern and (one.step, one.signature) not in seen:
                seen.add((one.step, one.signature))
                yield Finding(row.id, one.step, one.signature)


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
    success: Answered
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


def rate(successes: float, failures: float, level: float = LEVEL) -> Answered:
    """The share of successes by Jeffreys' Beta(1/2, 1/2); counts may be weighted sums."""
    a, b = 0.5 + successes, 0.5 + failures
    tail = (1 - level) / 2
    low, high = beta_quantile(tail, a, b), beta_quantile(1 - tail, a, b)
    return Answered(mean=a / (a + b), low=low, high=high, level=level)


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
    estimates_s: Mapping[str, float], rows: Sequence[SessionRow], recorded: Collection[HistorySession] = ()
) -> dict[str, Statistics]:
    """The statistics of every pattern that has an estimate or was ever run.

    `rows`: sessions of this project, oldest first; the last one's environment counts. `recorded`: sessions of
    recorded histories. A pattern without an estimate, one that is not defined any more, is shrunk to a minute.
    """
    runs = answered(rows)
    spared = {one.pattern: one for one in savings(rows)}
    here = place_of(rows[-1]) if rows else None
    return {
        name: of_pattern(
            name, estimates_s.get(name, 60.0), runs.get(name, []), spared.get(name), here,
            tuple(row for row in recorded if name in row.applied),
        )
        for name in dict.fromkeys((*estimates_s, *runs))
    }  # fmt: skip


def of_pattern(
    name: str,
    estimate_s: float,
    runs: Sequence[Run],
    saved: Saved | None,
    here: Place | None,
    recorded: tuple[HistorySession, ...] = (),
) -> Statistics:
    """The statistics of one pattern, its runs weighted by how like `here` their environment was."""
    scopes = _scopes(runs, here)
    weights = {one.place: one.weight for one in scopes}
    good = sum(one.weight * one.successes for one in scopes)
    bad = sum(one.weight * one.broken for one in scopes)
    times = [(run.seconds, weights[place_of(row)]) for row, run in runs if run.whole and run.seconds > 0]
    success = rate(good, bad)
    standing, why = _standing(good, bad, success, scopes, here) if runs else _not_run(recorded)
    last = runs[-1] if runs else None
    return Statistics(
        pattern=name,
        standing=standing,
        why=why,
        successes=sum(one.successes for one in scopes),
        passed=sum(run.status == "passed" for _, run in runs),
        broken=sum(one.broken for one in scopes),
        success=success,
        duration=expected(estimate_s, summed(times)),
        saved=saved,
        scopes=scopes,
        last=_began(last[1]) if last else "",
        session=last[0].id if last else "",
        recorded=recorded,
        experience=experience(runs),
    )


def _scopes(runs: Sequence[Run], here: Place | None) -> tuple[Scope, ...]:
    """Environments with their runs, those with most first."""
    found: dict[tuple[str | None, ...], list[bool]] = {}
    for row, run in runs:
        found.setdefault(place_of(row), []).append(bool(run.success))
    scopes = (
        Scope(place, sum(good), len(good) - sum(good), alike(place, here) if here is not None else 1.0)
        for place, good in found.items()
    )
    return tuple(sorted(scopes, key=lambda one: -(one.successes + one.broken)))


def _began(run: PatternRun) -> str:
    return run.started.astimezone(datetime.UTC).isoformat() if run.started else ""


def _not_run(recorded: Sequence[HistorySession]) -> tuple[Standing, str]:
    if recorded:
        return "applied", "it was not run here, but in sessions recorded elsewhere"
    return "proposed", "it was never run"


def _standing(
    good: float, bad: float, success: Answered, scopes: Sequence[Scope], here: Place | None
) -> tuple[Standing, str]:
    """Where a pattern stands, and why. `good` and `bad`: runs by weight."""
    count, share = good + bad, f"{100 * success.mean:.0f} % [{100 * success.low:.0f}, {100 * success.high:.0f}]"
    why = f"{good:.3g} of {count:.3g} runs by weight answered{_moved(scopes, here)}: {share}"
    if count >= ENOUGH and success.high < RETIRED:
        return "retired", why
    if count >= FEW and success.mean < DOUBT:
        return "doubtful", why
    return ("validated" if good >= ENOUGH and success.low >= BAR else "applied"), why


def _moved(scopes: Sequence[Scope], here: Place | None) -> str:
    """What has changed since most of the runs."""
    runs = sum(one.successes + one.broken for one in scopes)
    facts = dict.fromkeys(fact for one in scopes if here is not None for fact in changed(one.place, here))
    return f" ({runs} in all; {', '.join(facts)} changed)" if facts else ""
