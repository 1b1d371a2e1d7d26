"""`loop sessions import`: reads sessions that were recorded without loop, stores and shows their rows."""

import re
from collections.abc import Iterator
from pathlib import Path

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import find_project, shipped
from loop.base.screen import Screen, fold, terminal_columns
from loop.library.definitions import read_file
from loop.model.base import Printed
from loop.model.history import History, RecordedSession
from loop.model.record import Finished, SessionHead, SessionRecord
from loop.store.journal import write_error
from loop.store.sessions import RECORDED, read_recorded

ID_PREFIX = "recorded-"
SHIPPED_NAME = "history"
"""The name that imports the histories shipped with loop."""


class Imported(Printed):
    """What `loop sessions import --json` prints."""

    imported: tuple[str, ...]
    """Ids of sessions imported now."""
    already: tuple[str, ...]
    """Ids of sessions that had been imported before."""


class ShownRecorded(Printed):
    """An imported session, as `loop sessions show --json` prints it."""

    recorded: RecordedSession
    """The session's rows, as they were recorded."""


class ShownSession(Printed):
    """A session that loop ran, as `loop sessions show --json` prints it."""

    schema_version: int = 2
    head: SessionHead
    """What was known when it began."""
    record: SessionRecord | None
    """The session's conclusion; None while the session is not finished."""
    steps: tuple[Finished, ...]
    """The finished steps, in order."""


AnySession = ShownSession | ShownRecorded
"""The type of what `loop sessions show --json` prints."""


def read_histories(name: str = SHIPPED_NAME) -> list[History]:
    """Recorded histories: one file, or all shipped ones. Raises DefinitionError with every mistake."""
    path = Path(name)
    if path.is_file():
        return [read_file(path, History).value]
    if name != SHIPPED_NAME:
        hint = f"loop sessions import {SHIPPED_NAME} takes what ships with loop"
        raise UsageError(f"{name}: no such file", hint=hint)
    return [read_file(file, History).value for file in sorted(shipped("sessions/history").glob("*.yaml"))]


def recorded_sessions(history: History) -> Iterator[RecordedSession]:
    """The sessions of a history. Only raw rows are stored; anything derived is computed when needed."""
    digest = content_hash(history.source.encode())[:6]
    for position, row in enumerate(history.sessions, start=1):
        slug = re.sub(r"[^a-z0-9+.-]", "-", row.id.lower())
        yield RecordedSession(
            id=f"{ID_PREFIX}{digest}-{slug}",
            source=history.source,
            when=history.when,
            gpu=history.gpu,
            position=position,
            row=row,
            steps=history.steps.get(row.id, []),
            measurements=history.measurements.get(row.id, []),
        )


def import_sessions(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Store each row of the histories `name` as a session; rows stored before are written again. A mistake in any
    file prevents all writing. Returns the exit code."""
    root, histories = find_project(target, Path.cwd()).sessions, read_histories(name)
    new_ids, known_ids = list[str](), list[str]()
    for session in (session for history in histories for session in recorded_sessions(history)):
        folder = root / session.id
        (known_ids if folder.exists() else new_ids).append(session.id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sums.write_sealed(folder / RECORDED, session)
        except OSError as error:
            raise write_error(root, error) from error
    if as_json:
        screen.data(to_json(Imported(imported=tuple(new_ids), already=tuple(known_ids))))
        return ExitCode.OK
    for history in histories:
        screen.say(fold(", ".join(filter(None, (history.source, history.when))), terminal_columns(screen.err)))
    for name in new_ids:
        screen.data(name)
    known_text = f", {len(known_ids)} were there" if known_ids else ""
    screen.say(f"{len(new_ids)} sessions imported{known_text}")
    return ExitCode.OK


def find_recorded(root: Path, name: str) -> RecordedSession | None:
    """An imported session by its id or prefix; None if none matches. Raises LoopError if several match."""
    if not name.startswith(ID_PREFIX):
        return None
    names = sorted(path.parent.name for path in root.glob(f"{ID_PREFIX}*/{RECORDED}"))
    matches = [name] if name in names else [other for other in names if other.startswith(name)]
    if len(matches) > 1:
        raise UsageError(f"{name}: {len(matches)} sessions begin so", hint=f"one of {', '.join(matches)}")
    return read_recorded(root / matches[0]) if matches else None


def show_recorded(session: RecordedSession, screen: Screen, *, as_json: bool) -> int:
    """Print the rows of an imported session. Returns the exit code."""
    if as_json:
        screen.data(to_json(ShownRecorded(recorded=session)))
        return ExitCode.OK
    row, when = session.row, f", {session.when}" if session.when else ""
    screen.prose(f"{session.id}: {row.outcome}")
    screen.prose(f"recorded elsewhere as {row.id}, number {session.position}{when}: {session.source}")
    if session.gpu:
        screen.prose(f"on {', '.join(map(str, session.gpu.values()))}")
    for name, value in row.model_dump(exclude={"id", "outcome", "environment"}, exclude_none=True).items():
        if value not in ("", (), []):
            screen.prose(f"{name.replace('_', ' ')}: {', '.join(value) if isinstance(value, tuple) else value}")
    for rows in (session.steps, session.measurements):
        if rows:
            heads = list(dict.fromkeys(key for fields in rows for key in fields))
            screen.data("")
            screen.table(heads, [[fields.get(key, "-") for key in heads] for fields in rows], wrap=0)
    return ExitCode.OK
