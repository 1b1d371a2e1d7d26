"""Recorded histories: read from YAML, with every row about a session that is there."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from loop.base.documents import Complaint, complain, content_hash
from loop.base.errors import DefinitionError, UsageError
from loop.base.places import shipped
from loop.library.definitions import Read, read_file
from loop.model.history import History, HistorySession, RecordedSession

BY_PATTERN = re.compile(r"pattern (\d{1,4})")
SHIPPED = "history"
"""The name by which the histories that ship with loop are imported."""


def paths(name: str) -> list[Path]:
    """The files that a name stands for: `history` for those that ship with loop, else a path."""
    path = Path(name)
    if name == SHIPPED and not path.is_file():
        return sorted(shipped("sessions/history").glob("*.yaml"))
    if not path.is_file():
        raise UsageError(
            f"{name}: no such file", hint=f"loop sessions import {SHIPPED} takes what ships with loop"
        )
    return [path]


def histories() -> list[History]:
    """The recorded histories that ship with loop."""
    return [read_history(path).value for path in paths(SHIPPED)]


def read_history(path: Path) -> Read[History]:
    """One file. Raises DefinitionError with file, line and column of every mistake."""
    read = read_file(path, History)
    complaints = [*_twice(read), *_unknown(read)]
    if complaints:
        raise DefinitionError(complaints)
    return read


def _twice(read: Read[History]) -> Iterator[Complaint]:
    """Ids that are used twice, or that differ only in how they are written."""
    known: dict[str, str] = {}
    for index, row in enumerate(read.value.sessions):
        if slug(row.id) in known:
            got = f"{row.id!r} beside {known[slug(row.id)]!r}"
            yield complain(
                read.document, ("sessions", index, "id"), "ids that differ, letters apart from case", got
            )
        known[slug(row.id)] = row.id


def _unknown(read: Read[History]) -> Iterator[Complaint]:
    """Rows about sessions that are not there."""
    history = read.value
    ids = {row.id for row in history.sessions}
    expected = f"one of the sessions ({', '.join(sorted(ids)[:20])})"
    for field in ("debugging_build_minutes", "steps", "measurements"):
        for name in getattr(history, field):
            if name not in ids:
                yield complain(read.document, (field, name), expected, repr(name), key=True)


def recorded(history: History, names: Mapping[int, str]) -> tuple[RecordedSession, ...]:
    """A history as sessions: raw rows only, what is derived is left to be derived again.

    `names`: number of a pattern to its name.
    """
    digest = content_hash(history.source.encode())[:6]
    return tuple(_session(history, digest, index, names) for index in range(len(history.sessions)))


def _session(history: History, digest: str, index: int, names: Mapping[int, str]) -> RecordedSession:
    row = history.sessions[index]
    return RecordedSession(
        id=f"recorded-{digest}-{slug(row.id)}",
        history=digest,
        position=index + 1,
        source=history.source,
        when=history.when,
        gpu=history.gpu,
        row=row,
        patterns=_patterns(row, names),
        steps=history.steps.get(row.id, []),
        measurements=history.measurements.get(row.id, []),
    )


def _patterns(row: HistorySession, names: Mapping[int, str]) -> dict[str, float]:
    """The pattern that made its environment, where its report names one that is known here."""
    environment = row.environment
    match = BY_PATTERN.fullmatch(environment.how) if environment else None
    if environment is None or environment.minutes is None or match is None or int(match[1]) not in names:
        return {}
    return {names[int(match[1])]: environment.minutes}


def slug(name: str) -> str:
    """The name of a session as part of a folder's."""
    return re.sub(r"[^a-z0-9+.-]", "-", name.lower())
