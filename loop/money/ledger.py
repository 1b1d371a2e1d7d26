"""The ledger: totals over sessions, by session, pattern, target or week. Sums over rows, nothing else.

What nobody measured is None, never 0; savings are added up class of evidence by class.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loop.base.errors import UsageError
from loop.model.ledger import Account, Book, Spent
from loop.money.totals import RESOURCES, Saved, Totals, saved

BETWEEN = "(between the patterns)"
WHOLE = "(AI and energy: no pattern's own)"
UNDATED = "undated"


@dataclass
class Ledger:
    """What a choice of sessions cost, saved and brought."""

    totals: Totals
    own_usd: float
    """What was charged for sessions run here: savings are theirs alone, and so is their return."""
    rows: dict[str, Totals]
    saved: dict[str, Saved]
    accepted: int = 0
    """Changes that were kept."""
    accepted_us: float | None = None
    """Microseconds a call that they save."""
    bugs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Session to the variants whose failure it was the first to find."""
    notes: list[str] = field(default_factory=list)

    @property
    def usd_per_accepted_us(self) -> float | None:
        """All that was spent, on what was kept and on what was not, by the microseconds a call that are left."""
        return self.totals.usd / self.accepted_us if self.accepted_us and self.accepted_us > 0 else None

    @property
    def usd_per_bug(self) -> float | None:
        """All that was spent by the failures of the gate that nobody knew of."""
        found = sum(len(variants) for variants in self.bugs.values())
        return self.totals.usd / found if found and self.totals.known_usd is not None else None


def ledger(book: Book, chosen: Sequence[Account], by: str, shown: int | None = None) -> Ledger:
    """The ledger of the chosen sessions. `by`: session, pattern, target or week; `shown`: only the last rows."""
    ids = {one.session for one in chosen}
    spent = [one for one in book.spent if one.session in ids]
    totals = _sum(chosen, spent)
    known = [one.accepted_us for one in chosen if one.accepted_us is not None]
    own = {one.session for one in chosen if not one.recorded}
    found = new_bugs((one.session, one.judged) for one in book.accounts)
    return Ledger(
        totals=totals,
        own_usd=sum(one.usd for one in spent if one.session in own),
        rows=_by_pattern(book, chosen, spent)
        if by == "pattern"
        else _grouped(chosen[-(shown or 0) :], spent, KEYS[by]),
        saved=saved(one for one in book.avoided if one.session in ids),
        accepted=sum(one.accepted for one in chosen),
        accepted_us=sum(known) if known else None,
        bugs={session: variants for session, variants in found.items() if session in ids},
        notes=_notes(chosen, spent, totals),
    )


def new_bugs(sessions: Iterable[tuple[str, Mapping[str, bool]]]) -> dict[str, tuple[str, ...]]:
    """Session to the variants whose gate failed there and had not before: what was found, not what was known.

    `sessions`: id, and variant to whether it was good, oldest first; a variant that was not judged is not named.
    """
    good: dict[str, bool] = {}
    found: dict[str, tuple[str, ...]] = {}
    for session, judged in sessions:
        bad = tuple(name for name, right in judged.items() if not right and good.get(name, True))
        if bad:
            found[session] = bad
        good |= judged
    return found


OPEN = "sessions that never closed are charged for the steps that their journals hold"


def settle(book: Book) -> Book:
    """The book with charges for sessions that never closed: their steps at the rates of a session that did.

    That is the last one on the same device. A session without such a one is left as it is.
    """
    closed = {one.session: (one.device, one.gpu) for one in book.accounts if one.status is not None}
    last: dict[tuple[str, str | None], tuple[str, list[Spent]]] = {}
    for charge in book.spent:
        place = closed.get(charge.session)
        if place is not None and charge.seconds > 0 and charge.resource in ("gpu", "engineer"):
            session, charges = last.get(place, ("", []))
            last[place] = (charge.session, [*charges, charge] if session == charge.session else [charge])
    accounts, more = list(book.accounts), []
    for index, one in enumerate(accounts):
        if is_open(one) and (one.device, one.gpu) in last:
            charges = last[one.device, one.gpu][1]
            more += [_as_long(charge, one) for charge in charges]
            unmeasured = dict.fromkeys(("ai", "energy"), "the session never closed")
            accounts[index] = one._replace(status="open", unmeasured=unmeasured, notes=(OPEN,))
    return book._replace(accounts=tuple(accounts), spent=(*book.spent, *more))


def is_open(one: Account) -> bool:
    """Whether a session never closed."""
    return one.status is None and not one.recorded


def _as_long(charge: Spent, one: Account) -> Spent:
    """A charge of another session, for as long as this one took."""
    usd = charge.usd / charge.seconds * one.seconds
    return charge._replace(session=one.session, seconds=one.seconds, usd=usd)


def choose(accounts: Sequence[Account], words: str | None) -> list[Account]:
    """The sessions from A to B: `A..B`, `A..`, `..B` or one, by id, by the beginning of one, `last` or `last~1`.

    Raises LoopError for one that is not there, or for a range that runs backwards.
    """
    if not words:
        return list(accounts)
    first, dots, last = words.partition("..")
    start = _place(accounts, first) if first else 0
    end = _place(accounts, last) if last else len(accounts) - 1 if dots else start
    if end < start:
        hint = f"--sessions {last}..{first}"
        raise UsageError(f"--sessions {words}: {last} comes before {first}", hint=hint)
    return list(accounts[start : end + 1])


def _place(accounts: Sequence[Account], name: str) -> int:
    exact = [place for place, one in enumerate(accounts) if one.session == name]
    if exact:
        return exact[0]
    back = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if back and int(back[1] or 0) < len(accounts):
        return len(accounts) - 1 - int(back[1] or 0)
    found = [place for place, one in enumerate(accounts) if _called(one, name)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} sessions begin so" if found else "no such session"
    raise UsageError(f"--sessions {name}: {what}", hint="`loop sessions list` names them")


def _called(one: Account, name: str) -> bool:
    """Whether a session's id begins so; one recorded elsewhere ends with what its report calls it."""
    return one.session.startswith(name) or (one.recorded and one.session.endswith(f"-{name.lower()}"))


def week(started: str | None) -> str:
    """The week of a moment, as ISO 8601 counts them: `2026-W47`."""
    if not started:
        return UNDATED
    year, number, _ = datetime.datetime.fromisoformat(started).isocalendar()
    return f"{year}-W{number:02d}"


KEYS: dict[str, Callable[[Account], str]] = {
    "session": lambda one: one.session,
    "target": lambda one: one.target,
    "week": lambda one: week(one.started),
}
BY = ("session", "pattern", "target", "week")


def _sum(chosen: Iterable[Account], spent: Iterable[Spent]) -> Totals:
    (totals,) = _grouped(chosen, spent, lambda one: "").values() or (Totals(),)
    return totals


def _grouped(
    chosen: Iterable[Account], spent: Iterable[Spent], key: Callable[[Account], str]
) -> dict[str, Totals]:
    rows: dict[str, Totals] = {}
    of: dict[str, Totals] = {}
    for one in chosen:
        name = key(one)
        row = rows.get(name)
        if row is None:
            row = rows[name] = Totals()
        of[one.session] = row
        row.count(one)
    for charge in spent:
        if charge.session in of:
            of[charge.session].add(charge.resource, charge.usd)
    return rows


def _by_pattern(book: Book, chosen: Sequence[Account], spent: Iterable[Spent]) -> dict[str, Totals]:
    """What is paid by time is shared out by the time of each pattern; the rest of it lay between them.

    AI and energy are not used by the second: no pattern is charged with them.
    """
    ids = {one.session: one for one in chosen}
    runs: dict[str, dict[str, float]] = {}
    for run in book.worked:
        if run.session in ids:
            times = runs.setdefault(run.session, {})
            times[run.pattern] = times.get(run.pattern, 0.0) + run.seconds
    rows: dict[str, Totals] = {}
    for session, one in ids.items():
        for name, seconds in _shares(one, runs.get(session, {})).items():
            row = rows.setdefault(name, Totals())
            row.sessions += 1
            row.minutes += seconds / 60
    for charge in spent:
        one, by_time = ids[charge.session], charge.resource in ("gpu", "engineer")
        shares = _shares(one, runs.get(charge.session, {})) if by_time else {WHOLE: 1.0}
        whole = sum(shares.values())
        for name, share in shares.items():
            rows.setdefault(name, Totals()).add(charge.resource, charge.usd * share / whole if whole else 0.0)
    unknown = {"ai", "energy"}.union(*(one.unmeasured for one in chosen))
    for row in rows.values():
        row.unknown |= unknown
    return dict(sorted(rows.items(), key=lambda item: -item[1].usd))


def _shares(one: Account, times: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each pattern of a session, and what is left of it."""
    rest = one.seconds - sum(times.values())
    return {**times, BETWEEN: rest} if rest > 0 or not times else dict(times)


def _notes(chosen: Sequence[Account], spent: Sequence[Spent], totals: Totals) -> list[str]:
    """What has no figure, in how many sessions; what was stated; what the bills themselves say."""
    notes = []
    for name in RESOURCES:
        without = [one for one in chosen if name in one.unmeasured]
        if without and name != "energy":
            notes.append(
                f"{WORDS[name]}: not measured in {len(without)} of {len(chosen)} sessions{_why(without, name)}"
            )
    stated = {one.session for one in spent if one.basis == "stated"}
    if stated:
        notes.append(f"stated by somebody, not measured: charges of {len(stated)} of {len(chosen)} sessions")
    if totals.energy_j is not None and not totals.of("energy"):
        notes.append(f"energy: {totals.energy_j:,.0f} J while GPUs were timed, without a price")
    told: dict[str, int] = {}
    for note in (note for one in chosen for note in one.notes):
        told[note] = told.get(note, 0) + 1
    return [*notes, *(note if times == 1 else f"{note} ({times} sessions)" for note, times in told.items())]


WORDS = {"gpu": "GPU", "ai": "AI", "engineer": "engineer", "energy": "energy"}


def _why(without: Sequence[Account], name: str) -> str:
    reasons = dict.fromkeys(one.unmeasured[name] for one in without)
    return f" ({next(iter(reasons))})" if len(reasons) == 1 else ""
