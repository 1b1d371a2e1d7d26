"""`loop sessions list|show|compare`: lists sessions, shows one, compares some."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError, WorkFailed
from loop.base.locks import is_locked
from loop.base.places import find_project
from loop.learning.comparison import LETTERS, ComparedSession, SessionComparison, compare
from loop.model.base import Model, Printed
from loop.model.change import DecisionOutput
from loop.model.output import outputs_of
from loop.model.verdict import Verdict
from loop.report import format as say
from loop.report.screen import Screen
from loop.session import recorded
from loop.session.closing import find_own_session
from loop.session.recorded import ShownRecorded, ShownSession
from loop.store import index, sessions
from loop.store.rows import compute_row
from loop.store.sessions import LOCK

MOST_SESSIONS = len(LETTERS)


class SessionLine(Model):
    """One row of the list; None: not known, or not yet."""

    id: str
    target: str | None = None
    plan: str | None = None
    device: str | None = None
    status: str
    grade: str | None = None
    seconds: float | None = None
    usd: float | None = None
    fastest: str | None = None
    reason: str = ""
    """What is wrong with the folder; empty: nothing."""


class SessionList(Printed):
    """What `loop sessions list --json` prints, oldest session first."""

    sessions: tuple[SessionLine, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row per session, then the damaged folders."""
        if not self.sessions:
            screen.say("no sessions yet; `loop run session` makes one")
            return
        cells = []
        for row in self.sessions:
            duration = "-" if row.seconds is None else say.seconds(row.seconds)
            usd = f"{row.usd:.4f}" if row.usd else "-"
            leading_cells = row.id, row.status, row.grade or "-", row.device or "-"
            cells.append((*leading_cells, duration, usd, row.fastest or "-"))
        screen.table(("session", "status", "", "device", "took", "usd", "fastest"), cells, wrap=0)
        damaged = [row for row in self.sessions if row.reason]
        for row in damaged[: index.MAX_NAMED]:
            screen.say(f"{row.id}: {row.reason}")
        if len(damaged) > index.MAX_NAMED:
            others = len(damaged) - index.MAX_NAMED
            screen.say(f"{others} more folders have something wrong: loop sessions list --json")


def list_sessions(target: Path | None) -> SessionList:
    """All sessions of a project, oldest first: of one that runs or was killed (`open`) no results, of a damaged
    folder only the reason."""
    root = find_project(target, Path.cwd()).sessions
    lines = []
    for entry in index.entries(root):
        row = entry.row
        if row is None:
            lines.append(SessionLine(id=entry.folder, status="damaged", reason=entry.problem))
            continue
        ending = row.status or ("running" if is_locked(root / entry.folder / LOCK) else "open")
        results: dict[str, Any] = {}
        if row.status is not None or row.recorded:
            # The report of an imported session may state no cost.
            usd = row.usd if row.charges or not row.recorded else None
            results = {"grade": row.grade or None, "seconds": row.seconds, "usd": usd, "fastest": row.fastest_text}
        facts = {"target": row.target, "plan": row.plan, "device": row.device, "reason": entry.problem}
        status = "recorded" if row.recorded else ending
        lines.append(SessionLine(id=entry.folder, status=status, **facts, **results))
    return SessionList(sessions=tuple(lines))


def show_session(name: str, target: Path | None) -> ShownSession | ShownRecorded:
    """The facts and steps of a session by its id, prefix or `last`."""
    root = find_project(target, Path.cwd()).sessions
    imported = recorded.find_recorded(root, name)
    if imported is not None:
        return ShownRecorded(recorded=imported)
    folder = sessions.find_session(root, name)
    return ShownSession(head=folder.head(), record=folder.record(), steps=folder.finished())


def compare_sessions(names: Sequence[str], target: Path | None) -> SessionComparison:
    """A comparison of 2 to `MOST_SESSIONS` sessions, in the order of `names`. Raises UsageError for fewer, for
    more, and for one that is named twice."""
    root = find_project(target, Path.cwd()).sessions
    if not 2 <= len(names) <= MOST_SESSIONS:
        hint = "loop sessions compare last~1 last"
        raise UsageError(f"{len(names)} sessions named: expected 2 to {MOST_SESSIONS}", hint=hint)
    compared = [_compared_session(root, name) for name in names]
    ids = [session.id for session in compared]
    if len(set(ids)) < len(ids):
        message = f"a session is named twice: {', '.join(ids)}"
        raise UsageError(message, hint="`loop sessions list` names the others")
    return compare(compared)


def _compared_session(root: Path, name: str) -> ComparedSession:
    """What a comparison reads of a session (id, prefix, `last`). Raises LoopError for a damaged one."""
    folder = find_own_session(root, name)
    row, problem = compute_row(folder.path)
    if row is None:
        raise WorkFailed(problem, hint=f"move {folder.path} aside")
    head, record = folder.head(), folder.record()
    verdicts: dict[str, dict[str, Verdict]] = {}
    for verdict in record.verdicts if record else ():
        if verdict.against == "baseline":  # A wrong variant has only this verdict.
            verdicts.setdefault(verdict.variant, {})[verdict.workload] = verdict
    commit = head.revision.commit and head.revision.commit[:12]
    kept_changes = [decision.tried for decision in outputs_of(folder.finished(), DecisionOutput) if decision.kept]
    changed_files = [file for change in kept_changes if change for file in change.files]
    facts = {"machine": head.machine.name, "threads": str(head.threads), **row.environment.model_dump()}
    return ComparedSession(
        id=row.id,
        target=row.target,
        device=row.device,
        status=row.status or "open",
        grade=row.grade,
        baseline=head.baseline,
        facts={**facts, "loop": head.loop_version, "commit": commit},
        files=head.files | dict.fromkeys(changed_files, row.left),
        ground=row.left or row.ground,
        verdicts=verdicts,
        seconds=row.seconds if record else None,
        usd=row.usd if record else None,
        kept=row.kept,
    )
