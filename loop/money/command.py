"""`loop cost show|rates|keep-or-stop|pivot`: costs, savings, prices, and decisions about money."""

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import Project, find_project
from loop.base.screen import Screen
from loop.library.definitions import read_file
from loop.library.rates import rates
from loop.library.targets import read_target as read_target
from loop.machine.gpus import gpus
from loop.model.index import SessionRow
from loop.model.money import HIGHEST_USD_PER_HOUR, RateCard
from loop.money import decisions
from loop.money.bill import STALE_DAYS, Used, make_bill, no_price, rate_for_gpu
from loop.money.model import AgedRate, Costs, Ledger, Options, Prices, StopCost, Waiting
from loop.money.section import WHO
from loop.report import format as say
from loop.store import index

SHOWN = 30
"""Most sessions in the printed table; totals cover all sessions."""
EXACT = 9
"""Decimals to which sums are rounded, so that sums of cents are exact."""
NEVER_CLOSED = "sessions that never closed are charged for the steps that their journals hold"
WAITING: tuple[Waiting, ...] = ("nobody", "agent", "engineer")


def show_costs(*, target: Path | None, as_json: bool, screen: Screen) -> int:
    """Print each session's cost, the sums, the measured savings, and resources without a figure."""
    here = find_project(target, Path.cwd())
    rows, damaged = index.read_index(here.sessions)
    card = rates(here)
    rows = [_charged(row, card) if row.status is None and not row.recorded else row for row in rows]
    minutes, usd, roi = spared_total(rows)
    ledger = Ledger(
        totals=totals("sum", rows),
        rows=tuple(totals(row.id, [row]) for row in rows),
        spared_minutes=minutes,
        spared_usd=usd,
        roi=roi,
        notes=tuple(notes(rows)),
        damaged={bad.folder: bad.problem for bad in damaged},
    )
    if as_json:
        screen.data(to_json(ledger))
    elif not rows:
        screen.say(f"no sessions in {here.sessions}; `loop run session` makes one")
    else:
        _show_ledger(ledger, screen)
    return ExitCode.OK


def _charged(session: SessionRow, card: RateCard) -> SessionRow:
    """A session that never closed, charged for the steps in its journal."""
    seconds = sum(run.seconds for run in session.runs)
    used = Used(seconds=seconds, device=session.device, gpu=session.environment.gpu, hosts=session.hosts)
    charged = make_bill(used, card.with_waiting_person(session.attended))
    facts = {"charges": charged.charges, "unmeasured": charged.unmeasured, "usd": charged.usd}
    return session.model_copy(update={**facts, "seconds": seconds, "notes": (NEVER_CLOSED,)})


def totals(name: str, sessions: Sequence[SessionRow]) -> Costs:
    """Sums over sessions. A resource that no session measured is None, never 0."""
    sums: defaultdict[str, float] = defaultdict(float)
    for charge in (charge for session in sessions for charge in session.charges):
        sums[charge.resource] += charge.usd
    partial = {missing.resource for session in sessions for missing in session.unmeasured}
    is_unknown = {resource: resource in partial and resource not in sums for resource in WHO}
    usd = {f"{name}_usd": None if unknown else round(sums[name], EXACT) for name, unknown in is_unknown.items()}
    return Costs(
        name=name,
        sessions=len(sessions),
        minutes=round(sum(session.seconds / 60 for session in sessions), EXACT),
        usd=None if partial and not any(sums.values()) else round(sum(sums.values()), EXACT),
        partial=tuple(sorted(partial)),
        **usd,
    )


def spared_total(sessions: Sequence[SessionRow]) -> tuple[float, float, float | None]:
    """Minutes and dollars saved, and the return (saved - cost) / cost of local sessions."""
    savings = [saving for session in sessions for saving in session.savings]
    minutes, usd = sum(saving.minutes for saving in savings), sum(saving.usd for saving in savings)
    cost = sum(session.usd for session in sessions if not session.recorded)
    return minutes, usd, (usd - cost) / cost if cost > 0 and minutes else None


def notes(sessions: Sequence[SessionRow]) -> Iterator[str]:
    """Sentences on resources without a figure, on stated amounts, and the notes of the bills."""
    unmeasured = [missing for session in sessions for missing in session.unmeasured]
    for resource, word in WHO.items():
        reasons = [missing.reason for missing in unmeasured if missing.resource == resource]
        why = f" ({reasons[0]})" if len(set(reasons)) == 1 else ""
        if reasons:
            yield f"{word}: not measured in {len(reasons)} of {len(sessions)} sessions{why}"
    stated = sum(any(item.basis == "stated" for item in session.charges) for session in sessions)
    if stated:
        yield f"stated by somebody, not measured: charges of {stated} of {len(sessions)} sessions"
    times = Counter(note for session in sessions for note in session.notes)
    for note, count in times.items():
        yield note if count == 1 else f"{note} ({count} sessions)"


def _show_ledger(ledger: Ledger, screen: Screen) -> None:
    """Print the ledger for people: the last sessions, savings, notes, damaged folders."""
    shown = ledger.rows[-SHOWN:]
    if len(shown) < len(ledger.rows):
        screen.data(f"the last {len(shown)} of {len(ledger.rows)} sessions; --json has all")
    cells = [costs.cells for costs in (*shown, ledger.totals)]
    screen.table(("session", "min", "GPU", "AI", "engineer", "all"), cells, wrap=0)
    screen.data("")
    if ledger.spared_minutes:
        roi = "" if ledger.roi is None else f"; ROI {ledger.roi:.3g}"
        amount = f"{ledger.spared_minutes:.1f} min, {say.usd(ledger.spared_usd)}"
        screen.prose(f"spared, as measured here: {amount}{roi}")
    for note in ledger.notes:
        screen.prose(f"note: {note}")
    for folder, reason in ledger.damaged.items():
        screen.prose(f"damaged: {folder}: {reason}")


def show_rates(*, target: Path | None, as_json: bool, screen: Screen) -> int:
    """Print the rate card, with the age of each price."""
    card, today = rates(find_project(target, Path.cwd())), datetime.datetime.now(datetime.UTC).date()
    prices = []
    for rate in card.all_rates:
        age, charged_at = (today - rate.as_of).days, rate.name in (card.gpu, card.waiting, card.ai)
        prices.append(AgedRate(**dict(rate), age_days=age, old=age > STALE_DAYS, charged_at=charged_at))
    if as_json:
        screen.data(to_json(Prices(rates=tuple(prices))))
        return ExitCode.OK
    sources = list(dict.fromkeys(rate.source for rate in prices))
    cells = []
    for rate in prices:
        name, age_text = f"{rate.name}{' *' * rate.charged_at}", f"{rate.age_days} d{', old' * rate.old}"
        number = sources.index(rate.source) + 1
        cells.append((name, f"{rate.usd_per_hour:.5g}", str(rate.as_of), age_text, str(number)))
    screen.table(("rate (* sessions are charged at it)", "$/h", "as of", "age", "source"), cells, wrap=0)
    screen.data("")
    for number, source in enumerate(sources, start=1):
        screen.data(f"{number:2d}  {source}")
    return ExitCode.OK


def keep_or_stop(
    *,
    idle_hours: float | None,
    gpu_usd_per_hour: float | None,
    stop_cost_usd: float | None,
    restart_minutes: float | None,
    waiting: str | None,
    target: Path | None,
    as_json: bool,
    screen: Screen,
) -> int:
    """Print the cost of idling and of a stop, the break-even and the decision. Always returns 0.

    Missing prices come from the rate card, a restart's time from past sessions. Raises UsageError.
    """
    if idle_hours is None:
        raise UsageError("for how long will the GPU idle?", hint="loop cost keep-or-stop --idle-hours 5")
    amounts = {"--idle-hours": idle_hours, "--stop-cost-usd": stop_cost_usd, "--restart-minutes": restart_minutes}
    for option, value in amounts.items():
        if value is not None and not (math.isfinite(value) and 0 <= value < 1e6):
            raise UsageError(f"{option} {value:g}: expected a number from 0 to 1e+06", hint=f"{option} 5")
    here = find_project(target, Path.cwd())
    card = rates(here)
    rate = _usd_per_hour(gpu_usd_per_hour, card, here)
    who = next((name for name in WAITING if name == waiting), None)
    if waiting is not None and who is None:
        raise UsageError(f"--waiting {waiting!r}: expected {', '.join(WAITING)}", hint=f"--waiting {WAITING[0]}")
    parts = {"--restart-minutes": restart_minutes, "--waiting": waiting}
    if stop_cost_usd is None:
        stop = _measured_stop(here, card, rate, who, restart_minutes)
    elif doubled := [option for option, part in parts.items() if part is not None]:
        both = f"--stop-cost-usd is the whole cost of a stop, and {doubled[0]} a part of it: name one"
        raise UsageError(both, hint=f"leave out {doubled[0]}")
    else:
        stop = StopCost(usd=stop_cost_usd, source="as given")
    weighed = decisions.decide_keep_or_stop(idle_hours, rate, stop)
    if as_json:
        screen.data(to_json(weighed))
        return ExitCode.OK
    for line in (weighed.sentence, *stop.sides(rate)):
        screen.prose(line)
    return ExitCode.OK


def _usd_per_hour(stated: float | None, card: RateCard, here: Project) -> float:
    """Dollars an hour: stated, else the card's rate for this GPU, else for the last session's.

    Raises UsageError, with the card's prices for this GPU, if the charged rate is another GPU's.
    """
    if stated is not None:
        if math.isfinite(stated) and 0 < stated < HIGHEST_USD_PER_HOUR:
            return stated
        expected = f"a price above 0 and below {HIGHEST_USD_PER_HOUR}"
        hint = "without a price there is no break-even; catalogues write 0 or 700 where nothing is offered"
        raise UsageError(f"--gpu-usd-per-hour {stated:g}: expected {expected}", hint=hint)
    first, recent = gpus().first, index.rows(here.sessions, last=index.RECENT_SESSIONS)
    past = [row.environment.gpu for row in recent if not row.recorded]
    gpu = first.name if first else next(filter(None, reversed(past)), None)
    rate = rate_for_gpu(card, gpu)
    if rate is None:
        raise UsageError(no_price(card, gpu), hint="or state its price: --gpu-usd-per-hour 0.70")
    return rate.usd_per_hour


def _measured_stop(
    here: Project, card: RateCard, rate: float, who: Waiting | None, restart_minutes: float | None
) -> StopCost:
    """Cost of a stop by the minutes of a restart: given, else measured. Raises UsageError."""
    rows = _rows(here)
    restart = decisions.restart_of(rows, "cuda") or decisions.restart_of(rows, "cpu")
    if restart_minutes is not None:
        restart = restart_minutes, "as given"
    if restart is None:
        hint = "give what a stop costs (--stop-cost-usd), or how long a restart takes (--restart-minutes)"
        raise UsageError("no restart was measured: in no session was anything compiled and then timed", hint)
    return decisions.stop_cost(*restart, rate, *decisions.who_waits(card, who))


def _rows(here: Project) -> list[SessionRow]:
    """Sessions of a project's target, oldest first."""
    return index.rows(here.sessions, target=read_target(here).value.name)


def pivot(*, options: Path | None, target: Path | None, as_json: bool, screen: Screen) -> int:
    """Print stop rules and expected values. The exit code does not depend on the decision."""
    choices = read_file(options, Options).value if options is not None else None
    rows = _rows(find_project(target, Path.cwd()))
    rules = decisions.stop_rules([row for row in rows if row.device == rows[-1].device])
    weighed = decisions.weigh_all(choices, rules)
    if as_json:
        screen.data(to_json(weighed))
        return ExitCode.OK
    for line in weighed.lines:
        screen.prose(line)
    return ExitCode.OK
