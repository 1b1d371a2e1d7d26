"""What did a session cost, and what did its patterns avoid? Measured use, dated prices, labelled evidence."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.model.history import History
from loop.model.money import Bill, Charge, EvidenceClass, Rate, RateCard, Saving, Unmeasured
from loop.model.pattern import Pattern
from loop.model.plan import ResolvedPlan
from loop.model.record import DeviceName, Finished, latest_attempts
from loop.stats import median

SHORTEST_GPU_S = 60.0
"""A cloud charges a virtual machine by the second, and never for less than a minute."""

NOT_MEASURED = (
    Unmeasured(resource="ai", reason="loop started no agent and read no agent's log"),
    Unmeasured(resource="energy", reason="no energy counter was read"),
)


@dataclass(frozen=True)
class Applied:
    """A pattern that passed in this session, and the seconds its runs took."""

    pattern: Pattern
    seconds: float


@dataclass(frozen=True)
class Without:
    """What the same result takes without a pattern."""

    minutes: tuple[float, ...]
    """One value a row; the median counts."""
    evidence: EvidenceClass
    source: str


def applied(finished: Iterable[Finished], plan: ResolvedPlan) -> tuple[Applied, ...]:
    """The patterns all of whose steps passed or were not called for, in order; each pattern once."""
    attempts = tuple(finished)
    seconds: dict[str, float] = {}
    for run, name in dict.fromkeys((record.run, record.pattern) for record in attempts):
        if _passed(attempts, run, plan.find(name).pattern):
            took = sum(record.seconds for record in attempts if (record.run, record.pattern) == (run, name))
            seconds[name] = seconds.get(name, 0.0) + took
    return tuple(Applied(plan.find(name).pattern, took) for name, took in seconds.items())


def unchanged(
    finished: Iterable[Finished], earlier: Mapping[str, Iterable[Finished]], same_files: Container[str]
) -> dict[str, str]:
    """Patterns that established nothing an earlier session had not: each with the latest such session.

    A pattern establishes the identities of its steps (an environment, builds); one without any depends on those
    of the whole session and on the target's files (`same_files`: sessions that had them). What is repeated on the
    same ground changes no outcome, and so saves nothing.
    """
    mine = _identities(finished)
    ground = set().union(*mine.values())
    known: dict[str, str] = {}
    for session, records in earlier.items():
        theirs = _identities(records)
        before = set().union(*theirs.values())
        whole = session in same_files and ground <= before
        same = [name for name, own in mine.items() if name in theirs and (own <= before if own else whole)]
        known |= dict.fromkeys(same, session)
    return known


def _identities(finished: Iterable[Finished]) -> dict[str, set[str]]:
    """What the passed steps of each pattern stand on."""
    found: dict[str, set[str]] = {}
    for record in latest_attempts(finished):
        if record.status == "passed":
            identity = record.output.get("identity")
            found.setdefault(record.pattern, set()).update([identity] if identity else [])
    return found


def _passed(attempts: Iterable[Finished], run: int, pattern: Pattern) -> bool:
    """Whether every step has a record, none of them failed and one at least passed."""
    mine = [r for r in latest_attempts(attempts) if (r.run, r.pattern) == (run, pattern.name)]
    statuses = {record.status for record in mine}
    whole = {record.step for record in mine} == {step.id for step in pattern.steps}
    return whole and "passed" in statuses and statuses <= {"passed", "skipped"}


def bill(
    seconds: float,
    device: DeviceName,
    card: RateCard,
    patterns: Sequence[Applied] = (),
    histories: Sequence[History] = (),
    own_without_s: Mapping[str, Sequence[float]] | None = None,
    repeated: Mapping[str, str] | None = None,
) -> Bill:
    """Cost and saving of a session that took `seconds` of wall time.

    A GPU is charged only where the session ran on one; whoever waits is charged for every second.
    `own_without_s`: pattern to the seconds this project's own sessions took where they did without it.
    `repeated`: pattern to the earlier session that had its outcome already; such a pattern saved nothing.
    Raises KeyError when the card lacks the rates it names.
    """
    rates = _rates(card, device)
    charges = tuple(_charge(rate, seconds) for rate in rates)
    usd = sum(charge.usd for charge in charges)
    per_minute = sum(rate.usd_per_hour for rate in rates) / 60
    savings = tuple(_savings(patterns, histories, own_without_s or {}, repeated or {}, per_minute))
    saved = _by_class(savings)
    return Bill(
        charges=charges,
        unmeasured=NOT_MEASURED,
        savings=savings,
        usd=usd,
        saved_usd=saved,
        roi={evidence: (value - usd) / usd for evidence, value in saved.items()} if usd > 0 else {},
    )


def _rates(card: RateCard, device: DeviceName) -> tuple[Rate, ...]:
    names = [card.gpu, card.waiting] if device == "cuda" else [card.waiting]
    by_name = {rate.name: rate for rate in card.rates}
    return tuple(by_name[name] for name in names)


def _charge(rate: Rate, seconds: float) -> Charge:
    used = max(seconds, SHORTEST_GPU_S) if rate.resource == "gpu" else seconds
    return Charge(resource=rate.resource, rate=rate.name, seconds=used, usd=used / 3600 * rate.usd_per_hour)


def _by_class(savings: Iterable[Saving]) -> dict[EvidenceClass, float]:
    totals: dict[EvidenceClass, float] = {}
    for saving in savings:
        totals[saving.evidence] = totals.get(saving.evidence, 0.0) + saving.usd
    return totals


def _savings(
    patterns: Sequence[Applied],
    histories: Sequence[History],
    own_without_s: Mapping[str, Sequence[float]],
    repeated: Mapping[str, str],
    usd_per_minute: float,
) -> Iterator[Saving]:
    ledger = Ledger(histories)
    for used in patterns:
        without = _without(used.pattern, ledger, own_without_s.get(used.pattern.name, ()))
        if without is not None and used.pattern.name in repeated:
            source = f"nothing has changed since session {repeated[used.pattern.name]}"
            yield _saving(used, Without((0.0,), without.evidence, source), usd_per_minute)
        elif without is not None:
            yield _saving(used, without, usd_per_minute)


def _saving(used: Applied, without: Without, usd_per_minute: float) -> Saving:
    took = used.seconds / 60 if any(without.minutes) else 0.0
    minutes = median(without.minutes) - took
    return Saving(
        pattern=used.pattern.name,
        evidence=without.evidence,
        source=without.source,
        minutes=minutes,
        minutes_low=min(without.minutes) - took,
        minutes_high=max(without.minutes) - took,
        usd=minutes * usd_per_minute,
    )


def _without(pattern: Pattern, ledger: "Ledger", own_s: Sequence[float]) -> Without | None:
    """The best evidence there is: own records, then the history, then the author's word."""
    if own_s:
        plural = "s" if len(own_s) > 1 else ""
        source = f"{len(own_s)} session{plural} of this project without it"
        return Without(tuple(seconds / 60 for seconds in own_s), "measured", source)
    if pattern.without is None:
        return None
    recorded = ledger.take(pattern.without.history) if pattern.without.history else None
    if recorded is not None:
        return recorded
    if pattern.without.minutes is not None:
        return Without((pattern.without.minutes,), "prior", pattern.without.evidence)
    return None


class Ledger:
    """The minutes of recorded sessions, each of them given away once.

    The rows overlap: the minutes until a baseline existed contain those lost to the environment and to the
    build. Whatever one pattern has been credited with is gone for the next.
    """

    def __init__(self, histories: Sequence[History]) -> None:
        self.histories = histories
        self.left = {
            (index, session.id): session.minutes
            for index, history in enumerate(histories)
            for session in history.sessions
        }

    def take(self, what: str) -> Without | None:
        """The rows called `what`, less what is given away already; None where no history has them."""
        minutes: list[float] = []
        sources: list[str] = []
        for index, history in enumerate(self.histories):
            rows = history.minutes_without(what)
            taken = {session: self._take((index, session), wanted) for session, wanted in rows.items()}
            minutes += taken.values()
            if rows:
                sources.append(_rows(rows, taken, _gpu(history)))
        return Without(tuple(minutes), "history", "; ".join(sources)) if minutes else None

    def _take(self, session: tuple[int, str], wanted: float) -> float:
        taken = min(wanted, self.left.get(session, wanted))
        self.left[session] = self.left.get(session, wanted) - taken
        return taken


def _gpu(history: History) -> str:
    return f"an {history.gpu['name']}" if "name" in history.gpu else "another machine"


def _rows(rows: Mapping[str, float], taken: Mapping[str, float], gpu: str) -> str:
    """`N 60, N+2 40 min (recorded on an NVIDIA L4)`, and what was counted already."""
    words = [
        f"{session} {taken[session]:g}" + ("" if taken[session] == wanted else f" of {wanted:g}")
        for session, wanted in rows.items()
    ]
    counted = "; the rest is counted above" if dict(rows) != dict(taken) else ""
    return f"{', '.join(words)} min (recorded on {gpu}{counted})"


@dataclass(frozen=True)
class Totals:
    """Sums over recorded sessions; a row that states no figure adds nothing, and is named."""

    minutes: float
    gpu_usd: float
    ai_usd: float
    not_stated: tuple[str, ...]
    """Sessions without a figure for the GPU or the AI."""


def totals_through(history: History, session: str) -> Totals:
    """What the recorded sessions had cost when `session` ended. Raises ValueError for an unknown one."""
    ids = [row.id for row in history.sessions]
    rows = history.sessions[: ids.index(session) + 1]
    return Totals(
        minutes=sum(row.minutes for row in rows),
        gpu_usd=sum(row.gpu_usd or 0.0 for row in rows),
        ai_usd=sum(row.ai_usd or 0.0 for row in rows),
        not_stated=tuple(row.id for row in rows if row.gpu_usd is None or row.ai_usd is None),
    )


def environment_minutes_saved(history: History, session: str, earlier: str) -> float | None:
    """Minutes by which one recorded session got its environment sooner than an earlier; None where not stated."""
    minutes = {row.id: row.environment.minutes for row in history.sessions if row.environment}
    ours, theirs = minutes.get(session), minutes.get(earlier)
    return None if ours is None or theirs is None else theirs - ours
