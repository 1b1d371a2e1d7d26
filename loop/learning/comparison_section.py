"""Sessions beside each other, as sections of a page."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.learning.comparison import ComparedRow, ComparedSession, ComparedSpeed, Comparison
from loop.report import format as say
from loop.report.markdown import Table, columns, filled
from loop.report.plain import shortened
from loop.report.sections import Section
from loop.repository.history import Revisions

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ROOM = 2
"""Sessions whose intervals fit beside each other on a terminal."""
FILES = 10
"""Changed files that are named."""
WORDS = {"higher": "higher", "lower": "lower", "within": "overlap"}
UNKNOWN = "?"


def sections(found: Comparison, *, wide: bool = False) -> Iterator[Section]:
    """The page. `wide`: with the intervals, however many sessions there are."""
    yield Section("Sessions", table=_sessions(found.sessions), wrap=-1)
    yield Section("Not compared", found.refused)
    for variant in dict.fromkeys(row.variant for row in found.rows):
        yield _variant(variant, found, wide or len(found.sessions) <= ROOM)
    yield Section("Environment", tuple(_environment(found)))
    yield Section("Sources", tuple(line for pair in found.revisions for line in _sources(pair, found.sessions)))
    yield Section("Cost and time", table=_costs(found.sessions), after=tuple(_unmeasured(found.sessions)))


def _lettered(sessions: Sequence[ComparedSession]) -> list[tuple[str, ComparedSession]]:
    return list(zip(LETTERS, sessions, strict=False))


def _heads(sessions: Sequence[ComparedSession]) -> tuple[str, ...]:
    return tuple(f">{letter}" for letter, _ in _lettered(sessions))


def _sessions(sessions: Sequence[ComparedSession]) -> Table | None:
    rows = tuple(
        (
            letter,
            session.id,
            ", ".join(filter(None, (session.status, session.grade))),
            session.target,
            _device(session),
        )
        for letter, session in _lettered(sessions)
    )
    return filled(columns("", "Session", "Ended", "Target", "Device"), rows)


def _device(session: ComparedSession) -> str:
    gpu = session.facts.get("GPU")
    return f"{session.device} ({gpu})" if session.device == "cuda" and gpu else session.device


def _variant(variant: str, found: Comparison, wide: bool) -> Section:
    rows = [row for row in found.rows if row.variant == variant]
    baseline = next(session.baseline for session in found.sessions if session.baseline)
    heads = columns("Workload", *_heads(found.sessions), "Change")
    cells = tuple((row.workload, *(_cell(cell, wide) for cell in row.cells), _change(row)) for row in rows)
    return Section(
        f"{variant} against {baseline}",
        table=filled(heads, (*cells, *_mean(rows, len(found.sessions)))),
        lines=tuple(_kept(variant, found.sessions)),
        after=(*_verdicts(rows, found.sessions), *_regressions(variant, found.sessions), *_vague(rows)),
    )


def _cell(cell: ComparedSpeed | None, wide: bool) -> str:
    if cell is None:
        return "-"
    if cell.ratio is None or cell.interval is None:
        return cell.verdict
    if not wide:
        return "?" if cell.vague else say.times(cell.ratio)
    return say.ratio(cell.ratio, cell.interval)


def _change(row: ComparedRow) -> str:
    if row.change is None or row.moved is None:
        return "-"
    return f"{say.times(row.change)} {WORDS[row.moved]}"


def _mean(rows: Sequence[ComparedRow], count: int) -> tuple[tuple[str, ...], ...]:
    """Geometric means over the workloads that all have a ratio on; none where one of these says nothing."""
    speaking = [place for place in range(count) if any(_ratio(row, place) for row in rows)]
    common = [row for row in rows if all(_ratio(row, place) for place in speaking)]
    if len(common) < 2 or len(speaking) < 2 or list(_vague(common)):
        return ()
    means = {place: geometric_mean([_ratio(row, place) or 1.0 for row in common]) for place in speaking}
    cells = [say.times(means[place]) if place in means else "-" for place in range(count)]
    change = say.times(means[speaking[-1]] / means[speaking[0]])
    return ((f"geometric mean of {len(common)}", *cells, change),)


def _ratio(row: ComparedRow, place: int) -> float | None:
    cell = row.cells[place]
    return cell.ratio if cell else None


def _verdicts(rows: Sequence[ComparedRow], sessions: Sequence[ComparedSession]) -> Iterator[str]:
    for place, (letter, _) in enumerate(_lettered(sessions)):
        words = Counter(cell.verdict for row in rows if (cell := row.cells[place]))
        if words:
            yield f"{letter}: {', '.join(f'{word} on {count}' for word, count in words.most_common())}"
    for row in rows:
        if row.verdict_changed:
            there = [cell.verdict for cell in row.cells if cell]
            yield f"verdict changed on {row.workload}: {' -> '.join(there)}"


def _kept(variant: str, sessions: Sequence[ComparedSession]) -> Iterator[str]:
    """What a session's kept changes brought, and on which workloads."""
    for letter, session in _lettered(sessions):
        for kept in (kept for kept in session.kept if kept.variant == variant):
            on = "; ".join(
                f"{name} {say.ratio(mid, (low, high))}" for name, (low, mid, high) in kept.workloads.items()
            )
            yield f"{letter} kept a change: {say.gained(kept)}{on and f': {on}'}"


def _regressions(variant: str, sessions: Sequence[ComparedSession]) -> Iterator[str]:
    for letter, session in _lettered(sessions):
        if variant in session.regressed:
            yield f"{letter}: slower than its known good of then"


def _vague(rows: Sequence[ComparedRow]) -> Iterator[str]:
    if any(cell.vague for row in rows for cell in row.cells if cell):
        yield "an interval whose ends differ by more than a factor of 10 says nothing; it is compared with none"


def _environment(found: Comparison) -> Iterator[str]:
    for difference in found.environment:
        pairs = zip(LETTERS, difference.values, strict=False)
        yield f"{difference.fact}: {', '.join(f'{letter} {value or UNKNOWN}' for letter, value in pairs)}"
    if not found.environment:
        yield "nothing that is on record differs"
    if found.same:
        yield f"the same: {', '.join(f'{fact} {value}' for fact, value in found.same.items())}"
    if found.environment:
        yield "a ratio may move because the library or the machine did, and not the kernel"


def _sources(one: Revisions, sessions: Sequence[ComparedSession]) -> Iterator[str]:
    letters = {session.id: letter for letter, session in _lettered(sessions)}
    pair = f"{letters[one.older]} to {letters[one.newer]}"
    yield f"{pair}: {_relation(one)}"
    dirty = [letters[session.id] for session in sessions if session.dirty and session.id in (one.older, one.newer)]
    if dirty:
        yield f"{pair}: {say.listed(dirty)} had changes that were not committed"
    for text in one.commits:
        yield f"{pair}: {shortened(text, 100)}"
    if one.count > len(one.commits):
        yield f"{pair}: and {say.count(one.count - len(one.commits), 'older commit')}"
    if one.files:
        yield f"{pair}: changed: {', '.join(_files(one.files))}"


def _relation(pair: Revisions) -> str:
    words = {
        "same": "the same commit",
        "after": f"{say.count(pair.count, 'commit')} later",
        "before": f"{say.count(pair.missing, 'commit')} earlier",
        "apart": f"on another line: {say.count(pair.count, 'commit')} of its own, {pair.missing} not in it",
        "unknown": f"not known: {pair.reason}",
    }
    return words[pair.relation]


def _files(files: dict[str, tuple[int, int]]) -> Iterator[str]:
    ranked = sorted(files, key=lambda name: -sum(files[name]))
    for name in ranked[:FILES]:
        yield f"{shortened(name, 100)} (+{files[name][0]} -{files[name][1]})"
    if len(ranked) > FILES:
        yield say.count(len(ranked) - FILES, "more file")


def _costs(sessions: Sequence[ComparedSession]) -> Table | None:
    resources = dict.fromkeys(charge.resource for session in sessions for charge in session.charges)
    took = (
        "took",
        *(UNKNOWN if session.seconds is None else say.seconds(session.seconds) for session in sessions),
    )
    cost = ("cost", *(UNKNOWN if session.usd is None else say.billed(session.usd) for session in sessions))
    parts = tuple((f"of it {name}", *(_charged(session, name) for session in sessions)) for name in resources)
    return filled(columns("", *_heads(sessions)), (took, cost, *parts))


def _charged(session: ComparedSession, resource: str) -> str:
    mine = [charge.usd for charge in session.charges if charge.resource == resource]
    return say.usd(sum(mine)) if mine else UNKNOWN


def _unmeasured(sessions: Sequence[ComparedSession]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for letter, session in _lettered(sessions):
        for missing in session.unmeasured:
            reasons.setdefault(f"{missing.resource}: {missing.reason}", []).append(letter)
    return (f"no figure for {reason} ({say.listed(letters)})" for reason, letters in reasons.items())
