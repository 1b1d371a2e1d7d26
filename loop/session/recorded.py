"""`loop sessions import`: reads sessions recorded without loop, stores and shows their rows."""

import re
from pathlib import Path

from loop.base.documents import content_hash, sums
from loop.base.errors import UsageError
from loop.base.places import shipped
from loop.library.definitions import find_project, read_file
from loop.model.base import Printed
from loop.model.history import History, RecordedSession
from loop.model.record import RESUMABLE, Finished, SessionHead, SessionRecord
from loop.report import format as say
from loop.report.screen import Screen
from loop.store.journal import write_error
from loop.store.sessions import RECORDED, read_stored

ID_PREFIX = "recorded-"
SHIPPED_NAME = "history"  # The name that imports the histories shipped with loop.


class Imported(Printed):
    """What `loop sessions import --json` prints."""

    imported: tuple[str, ...]
    """Ids of sessions imported now."""
    already: tuple[str, ...]
    """Ids of sessions that had been imported before."""
    sources: tuple[str, ...]
    """Where each history comes from, and when its sessions ran."""

    def show(self, screen: Screen) -> None:
        """Print where the histories come from, the new ids, and how many sessions were known."""
        for source in self.sources:
            screen.say(source)
        for session_id in self.imported:
            screen.data(session_id)
        known_text = f", {len(self.already)} were there" if self.already else ""
        screen.say(f"{len(self.imported)} sessions imported{known_text}")


class ShownRecorded(Printed):
    """An imported session, as `loop sessions show --json` prints it."""

    recorded: RecordedSession
    """The session's rows, as they were recorded."""

    def show(self, screen: Screen) -> None:
        """Print its facts (without `environment`, which is a mapping), steps and measurements."""
        session = self.recorded
        row, when = session.row, f", {session.when}" if session.when else ""
        screen.prose(f"{session.id}: {row.outcome}")
        screen.prose(f"recorded as {row.id}, number {session.position}{when}: {session.source}")
        if session.gpu:
            screen.prose(f"on {', '.join(map(str, session.gpu.values()))}")
        left_out = {"id", "outcome", "environment"}
        for name, value in row.model_dump(exclude=left_out, exclude_none=True).items():
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            if text != "":
                screen.prose(f"{name.replace('_', ' ')}: {text}")
        for rows in filter(None, (session.steps, session.measurements)):
            heads = list(dict.fromkeys(key for fields in rows for key in fields))
            screen.data("")
            cells = [[fields.get(key, "-") for key in heads] for fields in rows]
            screen.table(heads, cells, folded_column=0)


class ShownSession(Printed):
    """A session that loop ran, as `loop sessions show --json` prints it."""

    schema_version: int = 2
    head: SessionHead
    """What was known when it began."""
    record: SessionRecord | None
    """The session's conclusion; None while the session is not finished."""
    steps: tuple[Finished, ...]
    """The finished steps, in order."""

    def show(self, screen: Screen) -> None:
        """Print the session's facts, a row per step, and its outcome."""
        head, record, revision = self.head, self.record, self.head.revision
        screen.prose(f"{head.id}: {head.plan.plan.title}")
        variants = ", ".join(head.variants)
        screen.prose(f"target {head.target} ({variants}) on {head.device}, seed {head.seed}")
        commit = "unknown (not under git)" if revision.commit is None else revision.commit[:12]
        commit += " with uncommitted changes" if revision.commit and revision.dirty else ""
        screen.prose(f"revision {commit}, loop {head.loop_version}, {head.machine.processor}\n\n")
        rows = []
        for step in self.steps:
            rows.append((step.label, step.status, say.seconds(step.seconds), step.message))
        screen.table(("step", "status", "took", "outcome"), rows)
        if record is None:
            screen.data(f"\nnot finished; go on with: {head.resume_command}")
            return
        screen.prose(f"\n{record.status}: {record.reason}")
        screen.prose(f"grade {record.grade}: {record.grade_reason}")
        screen.data(f"report: {head.report_command}")
        if record.status in RESUMABLE:
            screen.data(f"go on with: {head.resume_command}")


def read_histories(name: str = SHIPPED_NAME) -> list[History]:
    """Recorded histories: of the file `name`, or all that ship with loop (`history`). Raises
    DefinitionError with every mistake, UsageError for no file."""
    files = [Path(name)]
    if name == SHIPPED_NAME and not files[0].is_file():
        files = sorted(shipped("sessions/history").glob("*.yaml"))
    elif not files[0].is_file():
        hint = f"loop sessions import {SHIPPED_NAME} takes what ships with loop"
        raise UsageError(f"{name}: no such file", hint=hint)
    return [read_file(file, History).value for file in files]


def import_sessions(name: str, target: Path | None) -> Imported:
    """Store the sessions of the histories `name`: one file, or those shipped. Sessions that were
    stored before are written anew. Stores none if any file has a mistake."""
    root, histories = find_project(target, Path.cwd()).sessions, read_histories(name)
    new_ids, known_ids, sources = list[str](), list[str](), list[str]()
    for history in histories:
        sources.append(", ".join(filter(None, (history.source, history.when))))
        digest = content_hash(history.source.encode())[:6]
        for position, row in enumerate(history.sessions, start=1):
            slug = re.sub(r"[^a-z0-9+.-]", "-", row.id.lower())
            session = RecordedSession(
                id=f"{ID_PREFIX}{digest}-{slug}",
                source=history.source,
                when=history.when,
                gpu=history.gpu,
                position=position,
                row=row,
                steps=history.steps.get(row.id, []),
                measurements=history.measurements.get(row.id, []),
            )
            folder = root / session.id
            (known_ids if folder.exists() else new_ids).append(session.id)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                sums.write_sealed(folder / RECORDED, session)
            except OSError as error:
                raise write_error(root, error) from error
    return Imported(imported=tuple(new_ids), already=tuple(known_ids), sources=tuple(sources))


def find_recorded(root: Path, name: str) -> RecordedSession | None:
    """An imported session by its id or prefix; None if none matches. LoopError if several match."""
    paths = sorted(root.glob(f"{ID_PREFIX}*/{RECORDED}")) if name.startswith(ID_PREFIX) else []
    matches = [path for path in paths if path.parent.name.startswith(name)]
    matches = [path for path in matches if path.parent.name == name] or matches
    if len(matches) > 1:
        ids = ", ".join(path.parent.name for path in matches)
        raise UsageError(f"{name}: {len(matches)} sessions begin so", hint=f"one of {ids}")
    return read_stored(RecordedSession, matches[0]) if matches else None
