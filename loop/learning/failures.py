"""Where a failure was seen before, and what had changed when it was gone: over rows of the index. Pure."""

from collections.abc import Iterator, Sequence

from loop.model.index import FailureSeen, SessionRow
from loop.model.memory import Cure, Memory

LOOKED_AT = 12
"""Meetings with a failure, the last ones, whose cures are looked for."""
FACTS = ("processor", "gpu", "driver", "cuda", "torch", "compiler")
"""Facts of an environment, by the names of its fields."""
NAMED = {"cuda": "nvcc", "gpu": "GPU"}


def remembered(rows: Sequence[SessionRow], key: str) -> Memory | None:
    """What earlier sessions (oldest first) say of a signature; None where none has met it."""
    met = [(index, one) for index, row in enumerate(rows) for one in row.failures if one.key == key]
    if not met:
        return None
    cures: dict[str, Cure] = {}
    for index, one in met[: -LOOKED_AT - 1 : -1]:
        if found := cure_of(rows, index, one):
            cures.setdefault(found.session, found)
    return Memory(
        failure=met[-1][1],
        sessions=tuple(dict.fromkeys(rows[index].id for index, _ in reversed(met))),
        cures=tuple(cures.values()),
    )


def cure_of(rows: Sequence[SessionRow], index: int, failure: FailureSeen) -> Cure | None:
    """The first session from `index` on that got past a failure of that one: same target, device and variants."""
    row = rows[index]
    if failure.cured_by == row.id:
        return Cure(failed=row.id, session=row.id)
    later = (one for one in rows[index + 1 :] if _alike(one, row) and _got_past(one, failure))
    found = next(later, None)
    return between(row, found) if found else None


def _alike(one: SessionRow, row: SessionRow) -> bool:
    mine, theirs = {*row.variants, *row.emulated}, {*one.variants, *one.emulated}
    return not one.recorded and (one.target, one.device) == (row.target, row.device) and mine <= theirs


def _got_past(row: SessionRow, failure: FailureSeen) -> bool:
    """Whether the step passed; or failed for others, and the variant in question was right."""
    statuses = [one.status for one in row.steps if (one.pattern, one.step) == (failure.pattern, failure.step)]
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
