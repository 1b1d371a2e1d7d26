"""`loop sessions list|show`. The list reads only the index and imports no model, so it is quick."""

import json
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from loop.base.locks import is_locked
from loop.base.places import find_project
from loop.base.screen import Screen, seconds_text
from loop.store import index
from loop.store.index import SessionListing

LOCK = "lock"
"""Lock file of the process that writes a session."""
MOST_NAMED = 5
"""Most damaged folders that are named below the list; `--json` has all."""


class SessionLine(TypedDict):
    """One row of the list; None: not known, or not yet."""

    id: str
    target: str | None
    plan: str | None
    device: str | None
    status: str
    grade: str | None
    seconds: float | None
    usd: float | None
    fastest: str | None
    recorded: NotRequired[bool]
    reason: NotRequired[str]


class SessionList(TypedDict):
    """What `loop sessions list --json` prints, oldest session first."""

    schema_version: int
    sessions: list[SessionLine]


def list_sessions(target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """Print all sessions, oldest first, then name damaged folders."""
    root = find_project(target, Path.cwd()).sessions
    listed = index.list_folders(root)
    rows = [_row(session, root) for session in listed]
    if as_json:
        answer: SessionList = {"schema_version": 1, "sessions": rows}
        screen.data(json.dumps(answer, indent=1, ensure_ascii=False))
        return
    if not rows:
        screen.say(f"no sessions in {root}; `loop run session` makes one")
        return
    cells = []
    for row in rows:
        duration = "-" if row["seconds"] is None else seconds_text(row["seconds"])
        usd = f"{row['usd']:.4f}" if row["usd"] else "-"
        leading_cells = row["id"], row["status"], row["grade"] or "-", row["device"] or "-"
        cells.append((*leading_cells, duration, usd, row["fastest"] or "-"))
    screen.table(("session", "status", "", "device", "took", "usd", "fastest"), cells, wrap=0)
    damaged = [session for session in listed if session.problem]
    for session in damaged[:MOST_NAMED]:
        screen.say(f"{session.folder}: {session.problem}")
    if len(damaged) > MOST_NAMED:
        others = len(damaged) - MOST_NAMED
        screen.say(f"{others} more folders have something wrong: loop sessions list --json")


def _row(session: SessionListing, root: Path) -> SessionLine:
    """The row of one session folder. `root`: the folder of all sessions."""
    has_ended = session.readable and (session.recorded or session.status is not None)
    if not session.readable:
        status = "damaged"
    elif session.recorded:
        status = "recorded"
    else:
        is_running = is_locked(root / session.folder / LOCK)
        status = session.status or ("running" if is_running else "open")
    row: SessionLine = {
        "id": session.folder,
        "target": session.target,
        "plan": session.plan,
        "device": session.device,
        "status": status,
        "grade": session.grade or None if has_ended else None,
        "seconds": session.seconds if has_ended else None,
        "usd": session.usd if has_ended else None,
        "fastest": session.fastest if has_ended else None,
    }
    if session.readable and session.recorded:
        row["recorded"] = True
    if session.problem:
        row["reason"] = session.problem
    return row


def show_session(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Print the facts and steps of a session. Returns the exit code."""
    from loop.base.documents import to_json
    from loop.session import recorded
    from loop.session.recorded import ShownSession
    from loop.store import sessions

    root = find_project(target, Path.cwd()).sessions
    imported = recorded.find_recorded(root, name)
    if imported is not None:
        return recorded.show_recorded(imported, screen, as_json=as_json)
    folder = sessions.find_session(root, name)
    head, record, finished = folder.head(), folder.record(), folder.finished()
    if as_json:
        screen.data(to_json(ShownSession(head=head, record=record, steps=finished)))
        return 0
    screen.prose(f"{head.id}: {head.plan.plan.title}")
    screen.prose(f"target {head.target} ({', '.join(head.variants)}) on {head.device}, seed {head.seed}")
    revision = head.revision
    commit = "unknown (not under git)" if revision.commit is None else revision.commit[:12]
    edits = " with uncommitted changes" if revision.commit and revision.dirty else ""
    screen.prose(f"revision {commit}{edits}, loop {head.loop_version}, {head.machine.processor}\n\n")
    rows = []
    for step in finished:
        rows.append((f"{step.pattern}/{step.step}", step.status, seconds_text(step.seconds), step.message))
    screen.table(("step", "status", "took", "outcome"), rows)
    if record is None:
        screen.data(f"\nnot finished; go on with: {head.resume_command}")
        return 0
    screen.prose(f"\n{record.status}: {record.reason}\ngrade {record.grade}: {record.grade_reason}")
    screen.data(f"report: {folder.report}")
    if record.can_resume:
        screen.data(f"go on with: {head.resume_command}")
    return 0
