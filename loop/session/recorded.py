"""`loop sessions import`, and what is shown of a session that was recorded elsewhere."""

from collections.abc import Iterator
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import project
from loop.base.screen import Screen, fold, width
from loop.library import definitions, histories
from loop.model.base import Printed
from loop.model.history import RESOURCES, RecordedSession
from loop.model.record import Finished, SessionHead, SessionRecord
from loop.store.sessions import NAME, every_recorded, put, read

BEGINNING = "recorded-"


class Imported(Printed):
    """Sessions that were recorded without loop."""

    imported: tuple[str, ...]
    """Those that are new here."""
    already: tuple[str, ...]
    """Those that were here."""


class ShownRecorded(Printed):
    """A session that was recorded elsewhere."""

    recorded: RecordedSession
    """Its rows."""


class ShownSession(Printed):
    """One session in full."""

    schema_version: int = 2
    """Number of this schema."""
    head: SessionHead
    """What was known when it began."""
    record: SessionRecord | None
    """What it found; None while it is not finished."""
    steps: tuple[Finished, ...]
    """Its steps, in order."""


AnySession = ShownSession | ShownRecorded
"""What `loop sessions show` prints."""


def import_sessions(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Make a session of each row of a history; nothing is written where any file has a mistake."""
    chosen = project(target, Path.cwd())
    read = [histories.read_history(path).value for path in histories.paths(name)]
    names = {pattern.value.number: pattern.value.name for pattern in definitions.patterns(chosen).values()}
    sessions = [histories.recorded(history, names) for history in read]
    stored = [put(chosen.sessions, rows) for rows in sessions]
    new, known = (tuple(name for ids in stored for name in ids[side]) for side in (0, 1))
    if as_json:
        screen.data(to_json(Imported(imported=new, already=known)))
        return ExitCode.OK
    for history in read:
        screen.say(fold(", ".join(filter(None, (history.source, history.when))), width(screen.err)))
    for name in new:
        screen.data(name)
    there = f", {len(known)} {'was' if len(known) == 1 else 'were'} there" if known else ""
    screen.say(f"{len(new)} session{'' if len(new) == 1 else 's'} imported{there}")
    return ExitCode.OK


def find(root: Path, name: str) -> RecordedSession | None:
    """A recorded session by id or its beginning. Raises LoopError for several."""
    if not name.startswith(BEGINNING):
        return None
    exact = root / name
    if exact.parent == root and (exact / NAME).is_file():
        return read(exact)
    matches = [session for session in every_recorded(root) if session.id.startswith(name)]
    if len(matches) > 1:
        hint = f"one of {', '.join(session.id for session in matches)}"
        raise UsageError(f"{name}: {len(matches)} sessions begin so", hint=hint)
    return matches[0] if matches else None


def show(session: RecordedSession, screen: Screen, *, as_json: bool) -> int:
    """One recorded session: its rows."""
    if as_json:
        screen.data(to_json(ShownRecorded(recorded=session)))
        return ExitCode.OK
    for line in _lines(session):
        screen.prose(line)
    for rows in (session.steps, session.measurements):
        if rows:
            heads = list(dict.fromkeys(key for row in rows for key in row))
            screen.data("")
            screen.table(heads, [[row.get(key, "-") for key in heads] for row in rows], wrap=0)
    return ExitCode.OK


def _lines(session: RecordedSession) -> Iterator[str]:
    row, when = session.row, f", {session.when}" if session.when else ""
    yield f"{session.id}: {row.outcome}"
    yield f"recorded elsewhere as {row.id}, number {session.position}{when}: {session.source}"
    costs = [(resource, row.usd_of(resource)) for resource in RESOURCES]
    stated = [f"{name} ${usd:.2f}" for name, usd in costs if usd is not None]
    where = session.gpu.get("name", "another machine")
    planned = f" of {row.target_minutes:g} planned" if row.target_minutes else ""
    yield f"{row.minutes:g} min{planned} on {where}; {', '.join(stated) or 'no cost stated'}"
    if row.applied:
        yield f"applied {', '.join(row.applied)}"
    if row.speedup is not None:
        wrong = "; its output was wrong" if row.correct is False else ""
        yield f"speed-up as stated {row.speedup:g}{wrong}"
    for label, text in (("grade", row.grade), ("build", row.build), ("note", row.note)):
        if text:
            yield f"{label}: {text}"
