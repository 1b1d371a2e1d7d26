"""Where a history's reports contradict its rows, or their own arithmetic. Pure: rows are believed, both shown."""

import math
from collections.abc import Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.model.history import RESOURCES, Contradiction, History, HistorySession, Resource, Stated

CENT = 0.01
"""Dollars by which figures may differ that were rounded to cents, up or down."""
NAMES: dict[Resource, str] = {"gpu": "GPU", "ai": "AI", "engineer": "engineer"}


def contradictions(history: History) -> tuple[Contradiction, ...]:
    """Every stated figure that does not follow from the rows, in the order of the sessions."""
    found = [one for row in history.sessions for one in _of_row(row, history)]
    found += [one for stated in history.stated for one in _of_stated(stated, history)]
    order = [row.id for row in history.sessions]
    return tuple(sorted(found, key=lambda one: order.index(one.session)))


def _of_row(row: HistorySession, history: History) -> Iterator[Contradiction]:
    for resource in RESOURCES:
        yield from _rate(row, resource, history.rates_stated.get(f"{resource}_usd_per_hour"))
    yield from _parts(row, history)
    yield from _speedup(row, history)


def _rate(row: HistorySession, resource: Resource, rate: float | None) -> Iterator[Contradiction]:
    """A cost that is not its minutes at the stated rate: something else was counted."""
    usd = row.usd_of(resource)
    if usd is None or rate is None or abs(usd - row.minutes / 60 * rate) <= CENT + 1e-9:
        return
    due = f"{row.minutes:g} min at ${rate:.2f}/h are ${row.minutes / 60 * rate:.2f}"
    yield Contradiction(
        session=row.id,
        stated=f"{NAMES[resource]} ${usd:.2f} for {row.minutes:g} min",
        derived=f"{due}; ${usd:.2f} are {usd / rate:.3g} h",
    )


def _parts(row: HistorySession, history: History) -> Iterator[Contradiction]:
    """Parts of a session that took longer than all of it."""
    environment = row.environment.minutes if row.environment else None
    parts = {
        "the environment": environment,
        "the build": history.debugging_build_minutes.get(row.id),
        "the way to a baseline": history.time_to_baseline_minutes.get(row.id),
        "its steps": _steps_minutes(history, row.id),
    }
    for name, minutes in parts.items():
        if minutes is not None and minutes > row.minutes * 1.005:
            stated = f"{name} took {minutes:.4g} min"
            yield Contradiction(session=row.id, stated=stated, derived=f"the session took {row.minutes:g} min")


def _steps_minutes(history: History, session: str) -> float | None:
    seconds = [step.get("actual_s") for step in history.steps.get(session, ())]
    known = [float(one) for one in seconds if isinstance(one, int | float)]
    return sum(known) / 60 if known else None


def _speedup(row: HistorySession, history: History) -> Iterator[Contradiction]:
    """A speed-up that is no geometric mean of the session's own rows."""
    ratios = list(_ratios(history.measurements.get(row.id, ())))
    if row.speedup is None or not ratios:
        return
    mean = geometric_mean(ratios)
    half = 0.5 * 10 ** -_decimals(row.speedup)
    if abs(mean - row.speedup) <= half + 1e-12:
        return
    arithmetic = math.fsum(ratios) / len(ratios)
    what = " (their arithmetic mean)" if abs(arithmetic - row.speedup) <= half else ""
    yield Contradiction(
        session=row.id,
        stated=f"speed-up {row.speedup:g}{what}",
        derived=f"the geometric mean of its {len(ratios)} rows is {mean:.3g}",
    )


def _ratios(rows: Sequence[dict[str, object]]) -> Iterator[float]:
    for one in rows:
        theirs, ours = one.get("pytorch_ms"), one.get("ours_ms")
        if isinstance(theirs, int | float) and isinstance(ours, int | float) and theirs > 0 and ours > 0:
            yield theirs / ours


def _decimals(value: float) -> int:
    return len(f"{value:g}".partition(".")[2]) or 0


def _of_stated(stated: Stated, history: History) -> Iterator[Contradiction]:
    """A report's own figures for a session, or its sums over all of them, against the rows."""
    ids = [row.id for row in history.sessions]
    last = stated.session or stated.through or ""
    rows = [history.sessions[ids.index(last)]] if stated.session else history.sessions[: ids.index(last) + 1]
    named = "its row" if stated.session else f"the {len(rows)} rows up to it"
    for what, derived in _differences(stated, rows):
        words = f"report {stated.report}: {what}" + ("" if stated.session else " in all")
        yield Contradiction(session=last, stated=words, derived=f"{named}: {derived}")


def _differences(stated: Stated, rows: Sequence[HistorySession]) -> Iterator[tuple[str, str]]:
    if stated.sessions is not None and stated.sessions != len(rows):
        yield f"{stated.sessions} sessions", f"{len(rows)} sessions"
    hours = math.fsum(row.minutes for row in rows) / 60
    if stated.hours is not None and abs(hours - stated.hours) > 0.5 * 10 ** -_decimals(stated.hours) + 1e-9:
        yield f"{stated.hours:g} h", f"{hours:.1f} h"
    for resource in RESOURCES:
        said, known = stated.usd_of(resource), [row.usd_of(resource) for row in rows]
        usd = math.fsum(one for one in known if one is not None)
        if said is not None and abs(said - usd) > CENT + 1e-9:
            silent = sum(one is None for one in known)
            without = f" ({silent} of them state none)" if silent else ""
            yield f"{NAMES[resource]} ${said:.2f}", f"${usd:.2f}{without}"
