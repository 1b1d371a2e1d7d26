"""`loop cost show|rates`: what sessions cost and saved, and the prices behind it."""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.places import Project, project
from loop.base.screen import Screen
from loop.library.derived import contradictions
from loop.library.rates import rates
from loop.model.index import SessionRow
from loop.model.money import Rate, RateCard
from loop.money.answers import (
    AgedRate,
    ChargedAt,
    Cost,
    Costs,
    DamagedFolder,
    LessThan,
    Prices,
    SessionCost,
    Spared,
)
from loop.money.charging import STALE_DAYS, age_days
from loop.money.ledger import RESOURCES, Totals, choose, notes, roi, savings, totals, with_open
from loop.report import format as say
from loop.store import index, recorded

SHOWN = 30
"""Sessions in a table for people; totals are over all of them."""
UNKNOWN = "?"
EXACT = 9
"""Decimals of what is added up: sums of cents come out as cents."""


def show_costs(
    *, sessions: str | None, against: str | None, target: Path | None, as_json: bool, screen: Screen
) -> int:
    """Sessions and their sum, what was measurably spared, and what has no figure."""
    here = project(target, Path.cwd())
    rows, damaged = index.read(here.sessions)
    rows = with_open(rows, rates(here))
    chosen = choose(rows, sessions)
    earlier = choose(rows, against, "--against") if against else []
    less = _less_than(chosen, earlier, here) if chosen and earlier else None
    wrong = _contradictions((*earlier, *chosen), here)
    if as_json:
        shown = Costs(
            totals=Cost(**_plain(totals(chosen))),
            rows=tuple(SessionCost(name=row.id, **_plain(totals([row]))) for row in chosen),
            spared=Spared(**savings(chosen)._asdict(), roi=roi(chosen)),
            saved_against=LessThan(sessions=str(against), **less) if less else None,
            notes=tuple(notes(chosen)),
            contradictions=tuple(wrong),
            damaged=tuple(DamagedFolder(folder=one.folder, reason=one.reason) for one in damaged),
        )
        screen.data(to_json(shown))
    elif not chosen:
        screen.say(f"no sessions in {here.sessions}; `loop run session` makes one")
    else:
        lines = [*_savings(chosen), *_less_lines(against, less), *(f"note: {note}" for note in notes(chosen))]
        lines += [f"contradiction: {one}" for one in wrong]
        lines += [f"damaged: {one.folder}: {one.reason}" for one in damaged]
        _show_costs(chosen, lines, screen)
    return ExitCode.OK


def _less_than(chosen: Sequence[SessionRow], earlier: Sequence[SessionRow], here: Project) -> dict[str, Any]:
    """What a session of the chosen took less than one of the earlier: on average, and each by itself."""
    ours, theirs = _environment(chosen, here), _environment(earlier, here)
    rows = [{"name": row.id, **_less_a_session([row], earlier)} for row in chosen]
    return {**_less_a_session(chosen, earlier), "environment_minutes": _less(theirs, ours), "rows": rows}


def _less_a_session(chosen: Sequence[SessionRow], earlier: Sequence[SessionRow]) -> dict[str, Any]:
    before, after = _means(earlier), _means(chosen)
    less = {name: _less(before[name], after[name]) for name in before}
    return {**less, **{f"{name}_percent": _percent(less[name], before[name]) for name in ("minutes", "usd")}}


def _contradictions(sessions: Sequence[SessionRow], here: Project) -> list[str]:
    """Figures of the recorded ones among these sessions that cannot all be right."""
    ids = dict.fromkeys(one.id for one in sessions if one.recorded)
    known = {one.id: one for one in recorded.every(here.sessions)} if ids else {}
    return [told for name in ids if name in known for told in contradictions(known[name])]


def _means(sessions: Sequence[SessionRow]) -> dict[str, float | None]:
    """Minutes and dollars of a session, on average."""
    sums = totals(sessions)
    figures = {"minutes": sums.minutes, **{f"{name}_usd": sums.of(name) for name in RESOURCES}, "usd": sums.usd}
    return {name: None if figure is None else figure / len(sessions) for name, figure in figures.items()}


def _percent(less: float | None, before: float | None) -> float | None:
    return None if less is None or not before else round(100 * less / before, 1)


def _less(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(before - after, EXACT)


def _environment(sessions: Sequence[SessionRow], here: Project) -> float | None:
    """Minutes that a recorded session's environment took; None for any other, or where its report does not say."""
    if len(sessions) != 1 or not sessions[0].recorded:
        return None
    stated = recorded.read(here.sessions / sessions[0].id).row.environment
    return stated.minutes if stated else None


def _plain(sums: Totals) -> dict[str, Any]:
    """Totals as JSON has them: `null` is not known, 0 is nothing used."""
    dollars = {f"{name}_usd": _rounded(sums.of(name)) for name in RESOURCES}
    return {
        "sessions": sums.sessions,
        "minutes": round(sums.minutes, EXACT),
        **dollars,
        "energy_j": sums.energy_j,
        "usd": _rounded(sums.usd),
    }


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, EXACT)


def _show_costs(chosen: Sequence[SessionRow], lines: Sequence[str], screen: Screen) -> None:
    shown = chosen[-SHOWN:]
    if len(shown) < len(chosen):
        screen.data(f"the last {len(shown)} of {len(chosen)} sessions; --json has all")
    heads = ("session", "min", "GPU", "AI", "engineer", "all")
    cells = [row_of(row.id, totals([row])) for row in shown]
    screen.table(heads, [*cells, row_of("sum", totals(chosen))], wrap=0)
    screen.data("")
    for line in lines:
        screen.prose(line)


def row_of(name: str, sums: Totals) -> tuple[str, ...]:
    """A row of the table: minutes, and dollars by resource."""
    cells = [_in_part(sums.of(resource), resource in sums.unknown) for resource in ("gpu", "ai", "engineer")]
    return name, f"{sums.minutes:.1f}", *cells, _in_part(sums.usd, bool(sums.unknown - {"energy"}))


def _in_part(value: float | None, partial: bool) -> str:
    """Dollars, with a plus where some of them were not measured."""
    return f"{_usd(value)}{'+' * (partial and value is not None)}"


def _usd(value: float | None) -> str:
    """`0.4167`, `25.00`; what is not known is a question mark, never a zero."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if value == 0 or abs(value) >= 1 else f"{value:.4f}"


def _savings(chosen: Sequence[SessionRow]) -> Iterator[str]:
    """What was spared, and what that returns."""
    saved, returned = savings(chosen), roi(chosen)
    if saved.minutes:
        told = "" if returned is None else f"; ROI {returned:.3g}"
        yield f"spared, as measured here: {saved.minutes:.1f} min, {say.usd(saved.usd)}{told}"


def _less_lines(against: str | None, less: dict[str, Any] | None) -> Iterator[str]:
    """Each session against the earlier ones; the mean, where there are several."""
    if less is None:
        return
    rows = less["rows"][-SHOWN:]
    for row in rows if len(rows) > 1 else ():
        yield f"{row['name']}, less than {against}: {_less_text(row)}"
    yield f"{'on average, ' if len(rows) > 1 else ''}less than {against}: {_less_text(less)}"
    if less["environment_minutes"] is not None:
        yield f"its environment took {less['environment_minutes']:g} min less"


def _less_text(less: dict[str, Any]) -> str:
    usd, shares = less["usd"], (less["minutes_percent"], less["usd_percent"])
    minutes, dollars = ("" if one is None else f" ({one:.0f} %)" for one in shares)
    told = "dollars unknown" if usd is None else f"{'-' if usd < 0 else ''}${abs(usd):.2f}{dollars}"
    return f"{less['minutes']:.1f} min{minutes}, {told}"


def show_rates(*, target: Path | None, as_json: bool, screen: Screen) -> int:
    """The card, with the age of each price."""
    card, today = rates(project(target, Path.cwd())), datetime.datetime.now(datetime.UTC).date()
    rows = [_rate(rate, card, today) for rate in card.every]
    if as_json:
        charged = ChargedAt(gpu=card.gpu, waiting=card.waiting, ai=card.ai, energy=card.energy)
        screen.data(to_json(Prices(charged_at=charged, rates=tuple(AgedRate(**row) for row in rows))))
        return ExitCode.OK
    sources = list(dict.fromkeys(row["source"] for row in rows))
    cells = [
        (
            row["name"] + (" *" if row["charged_at"] else ""),
            f"{row['usd_per_hour']:.5g}",
            row["as_of"],
            f"{row['age_days']} d{', old' if row['old'] else ''}",
            sources.index(row["source"]) + 1,
        )
        for row in rows
    ]
    screen.table(("rate (* sessions are charged at it)", "$/h", "as of", "age", "source"), cells, wrap=0)
    screen.data("")
    for number, source in enumerate(sources, start=1):
        screen.data(f"{number:2d}  {source}")
    if card.energy is not None:
        screen.data(f"energy: ${card.energy.usd_per_kwh:g}/kWh, {card.energy.as_of}: {card.energy.source}")
    return ExitCode.OK


def _rate(rate: Rate, card: RateCard, today: datetime.date) -> dict[str, Any]:
    age = age_days(rate.as_of, today)
    return {
        **rate.model_dump(mode="json"),
        "age_days": age,
        "old": age > STALE_DAYS,
        "charged_at": rate.name in (card.gpu, card.waiting, card.ai),
    }
