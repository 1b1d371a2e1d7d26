"""`loop cost show|rates|keep-or-stop|pivot`: costs, savings, prices, and decisions about money."""

import datetime
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.library.definitions import find_project, read_file
from loop.library.rates import rates
from loop.library.targets import read_target
from loop.machine.machine import detect_gpus
from loop.model.base import Model, Printed
from loop.model.index import SessionRow
from loop.model.money import Rate
from loop.money import decisions
from loop.money.bill import STALE_DAYS, SessionUse, explain_missing_price, make_bill, rate_for_gpu
from loop.money.decisions import KeepOrStop, Options, Pivot, Waiting
from loop.report import format as say
from loop.report.format import RESOURCE_NAMES
from loop.report.screen import Screen
from loop.store import sessions

MOST_SHOWN = 30  # Most sessions in the printed table of costs; totals cover all sessions.
SUM_DECIMALS = 9  # Decimals to which sums are rounded, so that sums of cents are exact.
NEVER_CLOSED = "sessions that never closed are charged for the steps that their journals hold"


class Costs(Model):
    """Duration and cost of sessions, in dollars. None: not measured; 0: nothing was used."""

    name: str
    """Id of the session; `sum` for all sessions."""
    sessions: int
    minutes: float
    gpu_usd: float | None
    ai_usd: float | None
    engineer_usd: float | None
    """Dollars for attending people, as stated."""
    usd: float | None
    partial: tuple[str, ...] = ()
    """Resources that some sessions have no figure for, so their dollars are only a part."""

    @classmethod
    def of_sessions(cls, name: str, sessions: Sequence[SessionRow]) -> "Costs":
        """Sums over sessions. A resource that no session measured is None, never 0."""
        charges = [charge for session in sessions for charge in session.charges]
        unmeasured = {missing.resource for session in sessions for missing in session.unmeasured}
        fields: dict[str, Any] = {"name": name, "sessions": len(sessions)}
        for resource in RESOURCE_NAMES:
            amounts = [charge.usd for charge in charges if charge.resource == resource]
            is_unknown = resource in unmeasured and not amounts
            fields[f"{resource}_usd"] = None if is_unknown else round(sum(amounts), SUM_DECIMALS)
        total = round(sum(charge.usd for charge in charges), SUM_DECIMALS)
        minutes = round(sum(session.seconds / 60 for session in sessions), SUM_DECIMALS)
        usd = None if unmeasured and not total else total
        return cls(**fields, partial=sorted(unmeasured), minutes=minutes, usd=usd)


class Ledger(Printed):
    """Costs of sessions, and measured savings."""

    schema_version: int = 6
    totals: Costs
    rows: tuple[Costs, ...]
    spared_minutes: float
    """Minutes of compiling that the build cache spared, as measured when it compiled."""
    spared_usd: float
    roi: float | None
    """(Saved - cost) / cost, in dollars; None if nothing was charged or saved."""
    notes: tuple[str, ...]
    """Limits of these figures, a sentence each."""
    damaged: dict[str, str]
    """Session folders that were skipped, each with the reason."""

    def show(self, screen: Screen) -> None:
        """Print rows of the last sessions (`?`: unknown; `+`: a part), savings, notes, damage."""
        if not self.rows:
            screen.say("no sessions yet; `loop run session` makes one")
            return
        last_rows = self.rows[-MOST_SHOWN:]
        if len(last_rows) < len(self.rows):
            screen.data(f"the last {len(last_rows)} of {len(self.rows)} sessions; --json has all")
        rows = []
        for costs in (*last_rows, self.totals):
            rows.append([costs.name, f"{costs.minutes:.1f}"])
            amounts = {"gpu": costs.gpu_usd, "ai": costs.ai_usd, "engineer": costs.engineer_usd}
            for resource, usd in {**amounts, "": costs.usd}.items():
                plus = "+" if costs.partial and resource in ("", *costs.partial) else ""
                decimals = 2 if not usd or abs(usd) >= 1 else 4
                rows[-1].append("?" if usd is None else f"{usd:.{decimals}f}{plus}")
        screen.table(("session", "min", "GPU", "AI", "engineer", "all"), rows)
        screen.data("")
        if self.spared_minutes:  # Compile time that the build cache saved.
            roi = "" if self.roi is None else f"; ROI {self.roi:.3g}"
            amount = f"{self.spared_minutes:.1f} min, {say.usd(self.spared_usd)}"
            screen.prose(f"spared, as measured here: {amount}{roi}")
        for note in self.notes:
            screen.prose(f"note: {note}")
        for folder, reason in self.damaged.items():
            screen.prose(f"damaged: {folder}: {reason}")


class AgedRate(Rate):
    """A price with its age."""

    age_days: int
    old: bool
    """Whether the price is too old to rely on."""
    charged_at: bool


class Prices(Printed):
    """The prices of the rate card."""

    schema_version: int = 2
    rates: tuple[AgedRate, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row per price, then the sources by number."""
        sources = list(dict.fromkeys(rate.source for rate in self.rates))
        rows = []
        for rate in self.rates:
            name = f"{rate.name} *" if rate.charged_at else rate.name
            age_text = f"{rate.age_days} d, old" if rate.old else f"{rate.age_days} d"
            number = str(sources.index(rate.source) + 1)
            rows.append((name, f"{rate.usd_per_hour:.5g}", str(rate.as_of), age_text, number))
        heads = ("rate (* sessions are charged at it)", "$/h", "as of", "age", "source")
        screen.table(heads, rows, folded_column=0)
        screen.data("")
        for position, source in enumerate(sources, start=1):
            screen.data(f"{position:2d}  {source}")


def show_costs(target: Path | None) -> Ledger:
    """Costs of sessions, sums and savings. A session that never closed is charged for its steps."""
    this_project = find_project(target, Path.cwd())
    entries = sessions.entries(this_project.sessions)
    card, rows = rates(this_project), []
    for row in (entry.row for entry in entries if entry.row is not None):
        if row.status is None and not row.recorded:
            seconds, gpu = sum(run.seconds for run in row.runs), row.environment.gpu
            use = SessionUse(seconds=seconds, device=row.device, gpu=gpu, hosts=row.hosts)
            bill = make_bill(use, card.with_waiting_person(is_attended=row.attended))
            fields = {"charges": bill.charges, "unmeasured": bill.unmeasured, "usd": bill.usd}
            row = row.model_copy(update={**fields, "seconds": seconds, "notes": (NEVER_CLOSED,)})
        rows.append(row)
    return make_ledger(rows, {entry.folder: entry.problem for entry in entries if entry.problem})


def make_ledger(rows: Sequence[SessionRow], damaged: dict[str, str]) -> Ledger:
    """Costs, savings and return of sessions. The return leaves out imported ones."""
    savings = [saving for row in rows for saving in row.savings]
    saved_minutes = sum(saving.minutes for saving in savings)
    saved_usd = sum(saving.usd for saving in savings)
    cost = sum(row.usd for row in rows if not row.recorded)
    roi = (saved_usd - cost) / cost if cost > 0 and saved_minutes else None
    spared = {"spared_minutes": saved_minutes, "spared_usd": saved_usd, "roi": roi}
    totals, notes = Costs.of_sessions("sum", rows), tuple(cost_notes(rows))
    costs = tuple(Costs.of_sessions(row.id, [row]) for row in rows)
    return Ledger(totals=totals, rows=costs, notes=notes, damaged=damaged, **spared)


def cost_notes(rows: Sequence[SessionRow]) -> Iterator[str]:
    """Sentences on resources without a figure, on stated amounts, and the notes of the bills."""
    gaps = [missing for row in rows for missing in row.unmeasured]
    for resource, name in RESOURCE_NAMES.items():
        reasons = [missing.reason for missing in gaps if missing.resource == resource]
        if reasons:
            same_reason = f" ({reasons[0]})" if len(set(reasons)) == 1 else ""
            yield f"{name}: not measured in {len(reasons)} of {len(rows)} sessions{same_reason}"
    stated = [row for row in rows if any(charge.basis == "stated" for charge in row.charges)]
    if stated:
        yield f"stated by somebody, not measured: charges of {len(stated)} of {len(rows)} sessions"
    count_by_note = Counter(note for row in rows for note in row.notes)
    for note, count in count_by_note.items():
        yield note if count == 1 else f"{note} ({count} sessions)"


def show_rates(target: Path | None) -> Prices:
    """The rate card, with the age of each price; above `STALE_DAYS` it is old."""
    card = rates(find_project(target, Path.cwd()))
    today = datetime.datetime.now(datetime.UTC).date()
    prices = []
    for rate in card.all_rates:
        age_days = (today - rate.as_of).days
        is_charged = rate.name in (card.gpu, card.waiting, card.ai)
        fields = {"age_days": age_days, "old": age_days > STALE_DAYS, "charged_at": is_charged}
        prices.append(AgedRate(**dict(rate), **fields))
    return Prices(rates=tuple(prices))


def keep_or_stop(
    *,
    idle_hours: float | None,
    restart_minutes: float | None,
    waiting: Waiting | None,
    target: Path | None,
) -> KeepOrStop:
    """Costs of idling and of a stop, by the price of this GPU, or of the last session's.
    `restart_minutes`: None: as measured in past sessions. Raises UsageError."""
    if idle_hours is None:
        raise UsageError("for how long will the GPU idle?", "loop cost keep-or-stop --idle-hours 5")
    for option, amount in (("--idle-hours", idle_hours), ("--restart-minutes", restart_minutes)):
        if amount is not None and not (math.isfinite(amount) and 0 <= amount < 1e6):
            message = f"{option} {amount:g}: expected a number from 0 to 1e+06"
            raise UsageError(message, f"{option} 5")
    this_project = find_project(target, Path.cwd())
    card, gpu_here = rates(this_project), detect_gpus().first
    rows = sessions.rows(this_project.sessions, last=sessions.RECENT_SESSIONS)
    past_gpus = [row.environment.gpu for row in rows if row.environment.gpu and not row.recorded]
    gpu = gpu_here.name if gpu_here else next(reversed(past_gpus), None)
    rate = rate_for_gpu(card, gpu)
    if rate is None:
        raise UsageError(explain_missing_price(card, gpu), hint="loop cost rates")
    terms = (card, rate.usd_per_hour, waiting)
    if restart_minutes is not None:
        stop = decisions.price_restart(restart_minutes, "as given", *terms)
        return decisions.decide_keep_or_stop(idle_hours, rate.usd_per_hour, stop)
    rows = sessions.rows(this_project.sessions, target=read_target(this_project).value.name)
    measured = decisions.measured_stop(rows, "cuda", *terms)
    measured = measured or decisions.measured_stop(rows, "cpu", *terms)
    if measured is None:
        message = "no restart was measured: in no session was anything compiled and then timed"
        raise UsageError(message, "say how long a restart takes: --restart-minutes 4")
    return decisions.decide_keep_or_stop(idle_hours, rate.usd_per_hour, measured)


def pivot(options: Path | None, target: Path | None) -> Pivot:
    """Stop rules and expected values. `options`: file of options; None: stop rules only."""
    choices = read_file(options, Options).value if options is not None else None
    this_project = find_project(target, Path.cwd())
    name = read_target(this_project).value.name
    rows = sessions.rows(this_project.sessions, target=name)  # Oldest first.
    rules = decisions.check_stop_rules([row for row in rows if row.device == rows[-1].device])
    return decisions.weigh_pivot(choices, rules)
