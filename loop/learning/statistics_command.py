"""`loop patterns stats`: what the sessions say of each pattern."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from loop.base.documents import nearest, to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import Project, project
from loop.base.screen import Screen, seconds_text, short
from loop.learning import calibration, durations, statistics
from loop.learning.calibration import Calibration
from loop.learning.model import PatternStatistics, PlaceRuns, Spent, Takes
from loop.learning.statistics import Statistics
from loop.library import definitions
from loop.library.definitions import Read
from loop.library.histories import histories, recorded
from loop.model.base import Printed
from loop.model.history import RESOURCES, HistorySession
from loop.model.pattern import Pattern
from loop.profile import promised
from loop.report import format as say
from loop.store import index
from loop.store.recorded import every

ORDER = ("validated", "applied", "doubtful", "retired", "proposed")
ALL = "`loop patterns stats` shows all"
MANY_PLACES = 5
"""Environments that are shown."""


def gather(chosen: Project, patterns: Mapping[str, Read[Pattern]]) -> dict[str, Statistics]:
    """The statistics of all patterns, defined or ever run, for the environment of the last session."""
    estimates = {name: 60 * read.value.estimate.minutes for name, read in patterns.items()}
    rows = [row for row in index.rows(chosen.sessions) if not row.recorded]
    shipped = [one for history in histories() for one in recorded(history, {})]
    elsewhere = {one.id: one.row for one in (*every(chosen.sessions), *shipped)}
    found = statistics.of_patterns(estimates, rows, recorded=elsewhere.values())
    advice = calibration.by_advice(promised.outcomes(rows))
    return {n: _defined(one, patterns[n].value, advice) if n in patterns else one for n, one in found.items()}


def _defined(one: Statistics, pattern: Pattern, advice: Mapping[str, Calibration]) -> Statistics:
    """With what only its definition says: where it comes from, and what its tree advises."""
    tree = _leaves(pattern)
    held = {leaf: advice[leaf] for leaf in tree if leaf in advice} if tree else None
    return replace(one, sources=tuple(dict.fromkeys(e.session for e in pattern.evidence)), advice=held)


def _leaves(pattern: Pattern) -> tuple[str, ...]:
    """The leaves of its decision tree; none where it has no tree."""
    rules = (rule for step in pattern.steps for rule in step.arguments.get("tree", ()))
    return tuple(dict.fromkeys(rule["bottleneck"] for rule in rules))


def show_statistics(name: str | None, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All patterns, a row each; or one, in full."""
    chosen = project(target, Path.cwd())
    patterns = definitions.patterns(chosen)
    found = gather(chosen, patterns)
    if name is not None and name not in found:
        close = nearest(name, list(found))
        raise UsageError(f"no pattern {name!r}", hint=f"did you mean {close[0]!r}?" if close else ALL)
    if as_json:
        wanted = [found[name]] if name else list(found.values())
        screen.data(to_json(PatternsStatistics(patterns=tuple(as_fields(one) for one in wanted))))
    elif name:
        screen.prose("\n".join(lines(found[name])))
    else:
        _table(found, patterns, screen)
    return ExitCode.OK


def _table(found: Mapping[str, Statistics], patterns: Mapping[str, Read[Pattern]], screen: Screen) -> None:
    ranked = sorted(found.values(), key=lambda one: (ORDER.index(one.standing), -one.applied))
    heads = ("pattern", "status", "runs", "answered", "takes", "saved", "last")
    screen.table(heads, [_row(one, one.pattern in patterns) for one in ranked], wrap=0)
    screen.say("answered: share of runs that passed or found something wrong, 90 % interval")
    screen.say("takes: 80 % of runs; saved: as measured here")
    screen.say("runs: own ones + sessions recorded elsewhere that applied it")
    screen.say("\n".join(statistics.RULE))


def _row(one: Statistics, defined: bool) -> tuple[str, ...]:
    low, high = one.duration.interval()
    return (
        one.pattern if defined else f"{one.pattern} (not defined here)",
        one.standing,
        f"{one.applied}+{len(one.recorded)}" if one.recorded else str(one.applied),
        f"{100 * one.success.low:.0f}-{100 * one.success.high:.0f} %" if one.applied else "-",
        f"{short(low)}-{short(high)}",
        say.minutes(one.saved.minutes) if one.saved else "-",
        one.last[:10] or "-",
    )


def lines(one: Statistics) -> list[str]:
    """One pattern's statistics in sentences."""
    low, high = one.duration.interval()
    shrunk = f"runs worth {one.duration.weight:.3g} here" if one.duration.weight else "its author's estimate alone"
    text = [f"{one.pattern} is {one.standing}: {one.why}"]
    text.append(f"comes from {', '.join(one.sources)}" if one.sources else "no session is named as its source")
    if one.applied:
        found = one.successes - one.passed
        text.append(
            f"run {one.applied} times: {one.passed} passed, {found} found something wrong, {one.broken} broke"
        )
    text += _past(one)
    text.append(
        f"the next run takes {seconds_text(one.duration.seconds)}, between {seconds_text(low)} and "
        f"{seconds_text(high)} in 80 % of cases, from {shrunk}"
    )
    if one.saved:
        in_ = say.count(one.saved.sessions, "session")
        text.append(f"saved {say.minutes(one.saved.minutes)}, {say.usd(one.saved.usd)}, as measured in {in_}")
    text += _places(one)
    if one.last:
        text.append(f"last used {one.last[:10]}, in {one.session}")
    return text


def _past(one: Statistics) -> Iterator[str]:
    """What it took, cost and found, here and in recorded sessions."""
    past = one.experience
    if one.applied:
        share = "by their share of the sessions' time"
        yield f"its runs took {seconds_text(60 * past.minutes)} in all and cost ${past.usd:.2f}, {share}"
        yield f"predicted against actual time: {_held(past.held)}"
    yield from _advice(one.advice)
    yield from (f"found in {each.session}, {each.step}: {each.text}" for each in past.found)
    if one.recorded:
        yield f"applied in {say.count(len(one.recorded), 'recorded session')}:"
    yield from (f"  {_recorded(row)}" for row in one.recorded)


def _advice(advice: Mapping[str, Calibration] | None) -> Iterator[str]:
    """How its promises of a gain held, and what follows for the next one."""
    if advice is None:
        return
    yield f"promised against actual gain: {'' if advice else 'no outcome yet; '}{promised.RULE}"
    for leaf, found in advice.items():
        yield f"  {leaf}: {found.inside} of {found.count} inside the stated interval, {found.text}"


def _held(found: Calibration | None) -> str:
    """How many predictions lay inside their interval."""
    if found is None:
        return "no outcome yet"
    off = f"off by {100 * math.expm1(found.error):.0f} % in the middle"
    return f"{found.inside} of {found.count} inside the 80 % interval, {found.text}; {off}"


def _recorded(row: HistorySession) -> str:
    """`N+4: 25 of 30 planned minutes, $0.41, environment validated`."""
    planned = f" of {row.target_minutes:g} planned" if row.target_minutes else ""
    usd = [amount for name in RESOURCES if (amount := row.usd_of(name)) is not None]
    cost = f", ${sum(usd):.2f}" if usd else ""
    return f"{row.id}: {row.minutes:g}{planned} minutes{cost}, {row.outcome}"


def _places(one: Statistics) -> list[str]:
    """Where it was run, and what those runs are worth where the last session ran."""
    shown = [
        f"in {durations.in_words(scope.place)}: {scope.successes} of {scope.successes + scope.broken} "
        f"answered, each worth {scope.weight:.3g} here"
        for scope in one.scopes[:MANY_PLACES]
    ]
    more = len(one.scopes) - MANY_PLACES
    return shown + ([f"in {more} more environments"] if more > 0 else [])


def as_fields(one: Statistics) -> PatternStatistics:
    """One pattern's statistics for programs."""
    low, high = one.duration.interval()
    held = one.experience.held
    return PatternStatistics(
        name=one.pattern,
        status=one.standing,
        why=one.why,
        applied=one.applied,
        passed=one.passed,
        found=one.successes - one.passed,
        broken=one.broken,
        success=one.success if one.applied else None,
        time=Takes(
            median_s=one.duration.seconds, low_s=low, high_s=high, level=durations.LEVEL, runs=one.duration.weight
        ),
        saved=one.saved._asdict() if one.saved else None,
        environments=tuple(map(_place, one.scopes)),
        last_used=one.last or None,
        last_session=one.session or None,
        sources=one.sources,
        recorded_sessions=tuple(row.id for row in one.recorded),
        spent=Spent(minutes=one.experience.minutes, usd=one.experience.usd),
        predicted=asdict(held) if held else None,
        advice=None if one.advice is None else {leaf: asdict(found) for leaf, found in one.advice.items()},
        findings=tuple(asdict(each) for each in one.experience.found),
    )


def _place(scope: statistics.Scope) -> PlaceRuns:
    facts = dict(zip(durations.FACTS, scope.place, strict=True))
    return PlaceRuns(successes=scope.successes, broken=scope.broken, weight=scope.weight, **facts)


class PatternsStatistics(Printed):
    """What the sessions say of patterns."""

    schema_version: Literal[2] = 2
    """Number of this schema."""
    patterns: tuple[PatternStatistics, ...]
    """All of them, or the one that was named."""
