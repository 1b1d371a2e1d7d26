"""Where a failure was seen before, and what had changed when it was gone: over rows of the index. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loop.learning.durations import FACTS
from loop.model.base import Model
from loop.model.index import FailureSeen, SessionRow
from loop.report import format as say
from loop.store.snapshots import Change

LOOKED_AT = 12
"""Meetings with a failure, the last ones, whose cures are looked for."""
NAMED = {"cuda": "nvcc", "gpu": "GPU"}
SHOWN = 3
"""Files, or facts, that are named before the rest is counted."""
HASH = 12


class Cure(Model):
    """The first later session in which the same step passed, and what had changed since it failed."""

    failed: str
    """The session in which it failed."""
    session: str
    """The session in which it passed; the same one where that was resumed."""
    environment: tuple[str, ...] = ()
    """Facts that changed: `torch 2.3.0 -> 2.4.1`."""
    commits: tuple[str, str] | None = None
    """Revisions of the target then and at the cure, where both were committed and differ."""
    sources: bool = False
    """Whether the target's files had changed."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of what had changed: `torch`, `sources`."""
        named = tuple(text.split(" ", 1)[0] for text in self.environment)
        return (*named, "sources") if self.sources else named


class Memory(Model):
    """A failure that was seen before."""

    sessions: tuple[str, ...]
    """Where, the last first."""
    cures: tuple[Cure, ...] = ()
    """What cured it, the last first, each session once; of the last meetings alone."""

    @property
    def cure(self) -> Cure | None:
        """What cured it the last time that anything did."""
        return self.cures[0] if self.cures else None

    @property
    def suspects(self) -> tuple[tuple[str, int], ...]:
        """What had changed at its cures, and at how many: most often first, then by the last cure.

        What cures a failure changes at every cure; what merely happened to change at one seldom does at the next.
        """
        counts = Counter(name for cure in self.cures for name in cure.changed)
        return tuple(sorted(counts.items(), key=lambda one: -one[1]))


def remembered(rows: Sequence[SessionRow], key: str) -> Memory | None:
    """What earlier sessions (oldest first) say of a signature; None where none has met it."""
    met = [(index, failure) for index, row in enumerate(rows) for failure in row.failures if failure.key == key]
    if not met:
        return None
    cures: dict[str, Cure] = {}
    for index, failure in met[: -LOOKED_AT - 1 : -1]:
        if cure := cure_of(rows, index, failure):
            cures.setdefault(cure.session, cure)
    return Memory(
        sessions=tuple(dict.fromkeys(rows[index].id for index, _ in reversed(met))), cures=tuple(cures.values())
    )


def cure_of(rows: Sequence[SessionRow], index: int, failure: FailureSeen) -> Cure | None:
    """The first session from `index` on that got past a failure of that one: same target, device and variants."""
    row = rows[index]
    if failure.cured_by == row.id:
        return Cure(failed=row.id, session=row.id)
    variants = {*row.variants, *row.emulated}
    for later in rows[index + 1 :]:
        same = not later.recorded and (later.target, later.device) == (row.target, row.device)
        if same and variants <= {*later.variants, *later.emulated} and _got_past(later, failure):
            return between(row, later)
    return None


def _got_past(row: SessionRow, failure: FailureSeen) -> bool:
    """Whether the step passed; or failed for others, and the variant in question was right."""
    statuses = [step.status for step in row.steps if (step.pattern, step.step) == (failure.pattern, failure.step)]
    if "passed" in statuses[-1:]:
        return True
    here = {f.subject for f in row.failures if (f.pattern, f.step) == (failure.pattern, failure.step)}
    others = bool(here) and "" not in here and failure.subject not in here
    return "failed" in statuses[-1:] and bool(failure.subject) and others


def between(failed: SessionRow, passed: SessionRow) -> Cure:
    """What is on record as having changed from one session to another."""
    moved = failed.commit and passed.commit and failed.commit != passed.commit
    return Cure(
        failed=failed.id,
        session=passed.id,
        environment=tuple(_facts(failed, passed)),
        commits=(failed.commit, passed.commit) if moved and failed.commit and passed.commit else None,
        sources=failed.ground != passed.ground,
    )


def _facts(failed: SessionRow, passed: SessionRow) -> Iterator[str]:
    pairs = [(NAMED.get(n, n), getattr(failed.environment, n), getattr(passed.environment, n)) for n in FACTS]
    pairs += [("loop", failed.loop_version, passed.loop_version), ("threads", failed.threads, passed.threads)]
    for name, before, after in pairs:
        if before != after and (before or after):
            yield f"{name} {before or 'not there'} -> {after or 'not there'}"


def sentence(memory: Memory, change: Change | None = None) -> str:
    """`seen before: session X (and 2 more); cured in session Y by ...`. `change`: what it changed in files."""
    more = len(memory.sessions) - 1
    where = f"seen before: session {memory.sessions[0]}" + (f" (and {more} more)" if more else "")
    if memory.cure is None:
        return f"{where}; no session has got past it yet"
    return f"{where}; {cured(memory.cure, change)}{_usually(memory)}"


def _usually(memory: Memory) -> str:
    """What had changed at several cures: of one alone nothing can be told from what merely changed too."""
    often = [(name, times) for name, times in memory.suspects if times > 1][:SHOWN]
    named = ", ".join(
        f"{'files of the target' if name == 'sources' else name} at {times}" for name, times in often
    )
    return f"; of {len(memory.cures)} cures changed: {named}" if named else ""


def cured(cure: Cure, change: Change | None = None) -> str:
    """Which session got past it, and what is on record as having changed."""
    where = "gone when that was resumed" if cure.session == cure.failed else f"cured in session {cure.session}"
    changes = list(_changed(cure, change))
    return f"{where} by {'; '.join(changes)}" if changes else f"{where}, with nothing changed that is on record"


def _changed(cure: Cure, change: Change | None) -> Iterator[str]:
    yield from _first(cure.environment, "more fact")
    if change is not None and change.files:
        lines = [line for line in change.patch.splitlines() if not line.startswith(("+++ ", "--- "))]
        added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        yield ", ".join(_first(change.files, "more file")) + (
            f" (+{added} -{gone} lines)" if added or gone else ""
        )
    elif cure.sources:
        yield "other files of the target"
    if cure.commits is not None:
        yield f"commits {cure.commits[0][:HASH]}..{cure.commits[1][:HASH]}"


def _first(names: Sequence[str], noun: str) -> Iterator[str]:
    """The first names, and how many more there are."""
    yield from names[:SHOWN]
    if len(names) > SHOWN:
        yield say.count(len(names) - SHOWN, noun)
