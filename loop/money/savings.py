"""What did the patterns of a session avoid? Labelled evidence, an interval, nothing counted twice."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.base.stats import median
from loop.gate.model import BuildOutput
from loop.model.history import History
from loop.model.money import EvidenceClass, Saving
from loop.model.output import read_output
from loop.model.pattern import Pattern
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, latest_attempts


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
    """The patterns all of whose steps passed or were not called for, and that had something to do, in order."""
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
    """Whether every step has a record, none of them failed, and one at least passed that had something to do."""
    mine = [r for r in latest_attempts(attempts) if (r.run, r.pattern) == (run, pattern.name)]
    whole = {record.step for record in mine} == {step.id for step in pattern.steps}
    did = any(record.status == "passed" and not record.output.get("nothing_done") for record in mine)
    return whole and did and {record.status for record in mine} <= {"passed", "skipped"}


def savings(
    patterns: Sequence[Applied],
    histories: Sequence[History],
    repeated: Mapping[str, str],
    usd_per_minute: float,
    finished: Sequence[Finished] = (),
) -> tuple[Saving, ...]:
    """What each pattern avoided, by its best evidence; and what the cache of builds spared, which was measured."""
    recorded = RecordedMinutes(histories)
    found = []
    for used in patterns:
        without = _without(used.pattern, recorded)
        if without is not None and used.pattern.name in repeated:
            source = f"nothing has changed since session {repeated[used.pattern.name]}"
            without = Without((0.0,), without.evidence, source)
        if without is not None:
            found.append(_saving(used.pattern.name, without, used.seconds, usd_per_minute))
    return (*found, *_spared(finished, usd_per_minute))


def _spared(finished: Sequence[Finished], usd_per_minute: float) -> Iterator[Saving]:
    """Compiling that the cache spared: what the very same build took when it was compiled, pattern by pattern."""
    for pattern, seconds in cached_seconds(finished).items():
        minutes = sum(seconds.values()) / 60
        source = f"{', '.join(seconds)} from the cache; compiling took {sum(seconds.values()):.1f} s then"
        yield _saving(pattern, Without((minutes,), "measured", source), 0.0, usd_per_minute)


def cached_seconds(finished: Sequence[Finished]) -> dict[str, dict[str, float]]:
    """Pattern to variant to the seconds of compiling that the cache spared.

    Each build counts once a session, and not at all where an earlier attempt of this very session compiled it.
    """
    seen: set[str] = set()
    found: dict[str, dict[str, float]] = {}
    for record in finished:
        output = read_output(record, BuildOutput)
        for build in output.builds if output else ():
            fresh = build.build_id not in seen
            seen.add(build.build_id)
            if fresh and build.cached and record.status == "passed":
                found.setdefault(record.pattern, {})[build.variant] = build.seconds
    return found


def _saving(pattern: str, without: Without, seconds: float, usd_per_minute: float) -> Saving:
    """`seconds`: what it took with the pattern."""
    took = seconds / 60 if any(without.minutes) else 0.0
    low, middle, high = min(without.minutes) - took, median(without.minutes) - took, max(without.minutes) - took
    return Saving(
        pattern=pattern,
        evidence=without.evidence,
        source=without.source,
        minutes=middle,
        minutes_low=low,
        minutes_high=high,
        usd=middle * usd_per_minute,
        usd_low=low * usd_per_minute,
        usd_high=high * usd_per_minute,
    )


def _without(pattern: Pattern, recorded: "RecordedMinutes") -> Without | None:
    """The best evidence there is: the history, then the author's word."""
    if pattern.without is None:
        return None
    rows = recorded.take(pattern.without.history) if pattern.without.history else None
    if rows is not None:
        return rows
    if pattern.without.minutes is not None:
        return Without((pattern.without.minutes,), "prior", pattern.without.evidence)
    return None


class RecordedMinutes:
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
