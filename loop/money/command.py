"""`loop cost show|rates`: what sessions cost, saved and brought, and the prices behind it."""

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loop.base.errors import ExitCode, UsageError
from loop.base.places import Project, project
from loop.base.screen import Screen, fold, width
from loop.model.ledger import Account, Book, Spent
from loop.money.ledger import BY, OPEN, Ledger, choose, is_open, ledger, settle
from loop.money.stored_ledger import book
from loop.money.totals import RESOURCES, Saved, Totals

if TYPE_CHECKING:
    from loop.model.money import Rate, RateCard
    from loop.model.record import DeviceName

SHOWN = 30
"""Sessions in a table for people; totals are over all of them."""
UNKNOWN = "?"
CLASSES = ("measured", "history", "prior")
EXACT = 9
"""Decimals of what is added up: sums of cents come out as cents."""


@dataclass(frozen=True)
class CostRequest:
    """What the user asked for."""

    sessions: str | None = None
    """`A..B`, `A..`, `..B` or one; all where nothing is said."""
    by: str = "session"
    against: str | None = None
    """An earlier session, to see what was saved since."""
    target: Path | None = None
    json: bool = False
    csv: bool = False


def show_costs(request: CostRequest, screen: Screen) -> int:
    """Totals, then rows, savings by class of evidence, and what has no figure."""
    if request.by not in BY:
        raise UsageError(f"--by {request.by}: expected {', '.join(BY)}", hint=f"--by {BY[0]}")
    chosen_project = project(request.target, Path.cwd())
    kept = with_open(book(chosen_project.sessions), chosen_project)
    chosen = choose(kept.accounts, request.sessions)
    made = ledger(kept, chosen, request.by, SHOWN if request.by == "session" and not request.json else None)
    if request.csv:
        screen.data(_csv(kept, chosen, chosen_project))
        return ExitCode.OK
    since = choose(kept.accounts, request.against) if request.against else []
    saved = _since(kept, chosen, since, chosen_project) if since else None
    if request.json:
        screen.data(json.dumps(_json(request, made, kept, saved), indent=1))
    elif not chosen:
        screen.say(f"no sessions in {chosen_project.sessions}; `loop run session` makes one")
    else:
        _show(request, made, kept, saved, screen)
    return ExitCode.OK


def with_open(kept: Book, chosen: Project) -> Book:
    """The book with charges for sessions that never closed, at today's card where none closed on their device."""
    settled = settle(kept)
    left = [one for one in settled.accounts if is_open(one)]
    if not left:
        return settled
    from loop.library.rates import rates

    card = rates(chosen)
    by_card = {one.session: _by_card(one, card) for one in left}
    accounts = tuple(by_card[one.session][0] if one.session in by_card else one for one in settled.accounts)
    more = (charge for _, charges in by_card.values() for charge in charges)
    return settled._replace(accounts=accounts, spent=(*settled.spent, *more))


def _by_card(one: Account, card: "RateCard") -> tuple[Account, list[Spent]]:
    from loop.money.charging import Used, charge

    device: DeviceName = "cuda" if one.device == "cuda" else "cpu"
    charged = charge(Used(seconds=one.seconds, device=device, gpu=one.gpu), card)
    unmeasured: dict[str, str] = {found.resource: found.reason for found in charged.unmeasured}
    spent = [Spent(one.session, c.resource, c.rate, c.seconds, c.usd, c.basis) for c in charged.charges]
    return one._replace(status="open", unmeasured=unmeasured, notes=(OPEN,)), spent


def _csv(kept: Book, chosen: Sequence[Account], where: Project) -> str:
    from loop.library.rates import rates
    from loop.money.focus import to_csv

    clouds = {rate.name: rate.cloud for rate in rates(where).every if rate.cloud}
    return to_csv(chosen, kept.spent, clouds)


def _since(kept: Book, chosen: Sequence[Account], since: Sequence[Account], where: Project) -> dict[str, Any]:
    """What the chosen sessions took less than earlier ones, and their environments."""
    now, then = (ledger(kept, some, "session").totals for some in (chosen, since))
    minutes = [_environment(some, where) for some in (since, chosen)]
    environment = None if None in minutes else minutes[0] - minutes[1]  # type: ignore[operator]
    return {
        "minutes": round(then.minutes - now.minutes, EXACT),
        **{f"{name}_usd": _less(then.of(name), now.of(name)) for name in RESOURCES},
        "usd": _less(then.known_usd, now.known_usd),
        "environment_minutes": environment,
    }


def _less(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(before - after, EXACT)


def _environment(some: Sequence[Account], where: Project) -> float | None:
    """Minutes that a recorded session's environment took; None for any other, or where its report does not say."""
    if len(some) != 1 or not some[0].recorded:
        return None
    from loop.store import recorded

    found = recorded.read(where.sessions / some[0].session).row.environment
    return found.minutes if found else None


def _plain(totals: Totals) -> dict[str, Any]:
    """Totals as JSON has them: `null` is not known, 0 is nothing used."""
    dollars = {
        f"{name}_usd": None if (usd := totals.of(name)) is None else round(usd, EXACT) for name in RESOURCES
    }
    return {
        "sessions": totals.sessions,
        "minutes": round(totals.minutes, EXACT),
        **dollars,
        "energy_j": totals.energy_j,
        "usd": None if totals.known_usd is None else round(totals.known_usd, EXACT),
    }


def _json(
    request: CostRequest,
    made: Ledger,
    kept: Book,
    saved: dict[str, Any] | None,
) -> dict[str, Any]:
    bugs = sum(len(variants) for variants in made.bugs.values())
    return {
        "schema_version": 1,
        "by": request.by,
        "totals": _plain(made.totals),
        "rows": [{"name": name, **_plain(row)} for name, row in made.rows.items()],
        "savings": {name: _saving(one, made.own_usd) for name, one in made.saved.items()},
        "saved_against": {"sessions": request.against, **saved} if saved else None,
        "accepted": {
            "changes": made.accepted,
            "us_per_call": made.accepted_us,
            "usd_per_us": made.usd_per_accepted_us,
        },
        "bugs": {"found": bugs, "usd_per_bug": made.usd_per_bug, "sessions": made.bugs},
        "notes": made.notes,
        "damaged": [{"folder": folder, "reason": reason} for folder, reason in kept.damaged],
    }


def _saving(one: Saved, cost: float) -> dict[str, Any]:
    roi = one.roi(cost)
    return {**asdict(one), "roi": dict(zip(("value", "low", "high"), roi, strict=True)) if roi else None}


def _show(
    request: CostRequest,
    made: Ledger,
    kept: Book,
    saved: dict[str, Any] | None,
    screen: Screen,
) -> None:
    if request.by == "session" and len(made.rows) < made.totals.sessions:
        screen.data(f"the last {len(made.rows)} of {made.totals.sessions} sessions; --json has all")
    heads = (request.by, "min", "GPU", "AI", "engineer", "all")
    cells = [_cells(name, row) for name, row in made.rows.items()]
    screen.table(heads, [*cells, _cells("sum", made.totals)], wrap=0)
    lines = [*_savings(made), *_since_lines(request, saved), *_gains(made)]
    lines += [f"note: {note}" for note in made.notes]
    lines += [f"damaged: {folder}: {reason}" for folder, reason in kept.damaged]
    screen.data("")
    for line in lines:
        screen.data(fold(line, width(screen.out)))


def _cells(name: str, row: Totals) -> tuple[str, ...]:
    return (
        name,
        f"{row.minutes:.1f}",
        *(_usd(row.of(one)) for one in ("gpu", "ai", "engineer")),
        _usd(row.known_usd),
    )


def _usd(value: float | None) -> str:
    """`0.4167`, `25.00`; what is not known is a question mark, never a zero."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if value == 0 or abs(value) >= 1 else f"{value:.4f}"


def _savings(made: Ledger) -> Iterator[str]:
    """One line a class of evidence; they are never added up."""
    for name in CLASSES:
        one = made.saved.get(name)
        if one is None:
            continue
        roi = one.roi(made.own_usd)
        told = f"; ROI {roi[0]:.3g} [{roi[1]:.3g}, {roi[2]:.3g}]" if roi else "; ROI undefined"
        minutes = f"{one.minutes:.1f} min [{one.minutes_low:.1f}, {one.minutes_high:.1f}]"
        yield f"saved, {name} evidence: ${one.usd:.2f} [{one.usd_low:.2f}, {one.usd_high:.2f}], {minutes}{told}"


def _since_lines(request: CostRequest, saved: dict[str, Any] | None) -> Iterator[str]:
    if saved is None:
        return
    usd = saved["usd"]
    dollars = "dollars unknown" if usd is None else f"{'-' if usd < 0 else ''}${abs(usd):.2f}"
    yield f"less than {request.against}: {saved['minutes']:.1f} min, {dollars}"
    if saved["environment_minutes"] is not None:
        yield f"its environment took {saved['environment_minutes']:g} min less"


def _gains(made: Ledger) -> Iterator[str]:
    if made.usd_per_accepted_us is not None:
        changes = f"{made.accepted} kept change{'s' if made.accepted > 1 else ''}"
        yield f"accepted: {made.accepted_us:.3g} µs a call by {changes}, ${made.usd_per_accepted_us:.4f} a µs"
    if made.usd_per_bug is not None:
        found = sum(len(variants) for variants in made.bugs.values())
        failures = "1 new failure" if found == 1 else f"{found} new failures"
        yield f"found: {failures} of the gate, ${made.usd_per_bug:.2f} each"


def show_rates(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """The card, with the age of each price."""
    from loop.library.rates import rates

    card, today = rates(project(target, Path.cwd())), datetime.datetime.now(datetime.UTC).date()
    rows = [_rate(rate, card, today) for rate in card.every]
    if as_json:
        energy = card.energy.model_dump(mode="json") if card.energy else None
        charged = {"gpu": card.gpu, "waiting": card.waiting, "ai": card.ai, "energy": energy}
        screen.data(json.dumps({"schema_version": 1, "charged_at": charged, "rates": rows}, indent=1))
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


def _rate(rate: "Rate", card: "RateCard", today: datetime.date) -> dict[str, Any]:
    from loop.money.charging import STALE_DAYS, age_days

    age = age_days(rate.as_of, today)
    return {
        **rate.model_dump(mode="json"),
        "age_days": age,
        "old": age > STALE_DAYS,
        "charged_at": rate.name in (card.gpu, card.waiting, card.ai),
    }
