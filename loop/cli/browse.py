"""`loop sessions show`: look at what was recorded."""

from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.places import project
from loop.base.screen import Screen, seconds_text
from loop.model.record import Finished
from loop.session import recorded
from loop.store import sessions
from loop.store.sessions import SessionFolder

WAITING = ("aborted", "paused")
"""How a session ended that can go on; one without an end can, too."""


def _root(target: Path | None) -> Path:
    return project(target, Path.cwd()).sessions


def show_session(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One session: its facts and its steps."""
    elsewhere = recorded.find(_root(target), name)
    if elsewhere is not None:
        return recorded.show(elsewhere, screen, as_json=as_json)
    folder = sessions.find(_root(target), name)
    head, record, finished = folder.head(), folder.record(), folder.finished()
    if as_json:
        steps = [step.model_dump(mode="json") for step in finished]
        fields = {"schema_version": 1, "head": head, "record": record, "steps": steps}
        screen.data(to_json(fields))
        return ExitCode.OK
    screen.prose(f"{head.id}: {head.plan.plan.title}")
    screen.prose(f"target {head.target} ({', '.join(head.variants)}) on {head.device}, seed {head.seed}")
    screen.prose(f"revision {_revision(folder)}, loop {head.loop_version}, {head.machine.processor}\n\n")
    screen.table(("step", "status", "took", "outcome"), [_step_row(step) for step in finished])
    if record is not None:
        screen.prose(f"\n{record.status}: {record.reason}\ngrade {record.grade}: {record.grade_reason}")
        screen.data(f"report: {folder.report}")
    if record is not None and record.status in WAITING:
        screen.data(f"go on with: {head.resume_command}")
    if record is None:
        screen.data(f"\nnot finished; go on with: {head.resume_command}")
    return ExitCode.OK


def _revision(folder: SessionFolder) -> str:
    revision = folder.head().revision
    if revision.commit is None:
        return "unknown (not under git)"
    return revision.commit[:12] + (" with uncommitted changes" if revision.dirty else "")


def _step_row(step: Finished) -> tuple[str, str, str, str]:
    return f"{step.pattern}/{step.step}", step.status, seconds_text(step.seconds), step.message
