"""`loop sessions ...`, `loop report`, `loop status`: look at what was recorded."""

import json
from pathlib import Path

from loop.commands import closing, recorded
from loop.commands.setting import read_setting
from loop.documents import to_json
from loop.errors import ExitCode, LoopError
from loop.locks import held
from loop.model.record import Finished
from loop.places import project
from loop.screen import Screen, seconds_text
from loop.store import index, sessions
from loop.store.journal import open_step
from loop.store.sessions import LOCK, SessionFolder

WAITING = ("aborted", "paused")
"""How a session ended that can go on; one without an end can, too."""


def _root(target: Path | None) -> Path:
    return project(target, Path.cwd()).sessions


def show_session(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One session: its facts and its steps."""
    elsewhere = recorded.find(_root(target), name)
    if elsewhere is not None:
        return recorded.show(elsewhere, _root(target), screen, as_json=as_json)
    folder = sessions.find(_root(target), name)
    head, record, finished = folder.head(), folder.record(), folder.finished()
    if as_json:
        steps = [step.model_dump(mode="json") for step in finished]
        fields = {"schema_version": 1, "head": head, "record": record, "steps": steps}
        screen.data(to_json(fields))
        return ExitCode.OK
    screen.data(f"{head.id}: {head.plan.plan.title}")
    screen.data(f"target {head.target} ({', '.join(head.variants)}) on {head.device}, seed {head.seed}")
    screen.data(f"revision {_revision(folder)}, loop {head.loop_version}, {head.machine.processor}\n")
    screen.table(("step", "status", "took", "outcome"), [_step_row(step) for step in finished])
    if record is not None:
        screen.data(f"\n{record.status}: {record.reason}\ngrade {record.grade}: {record.grade_reason}")
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


def report(name: str, form: str, target: Path | None, screen: Screen) -> int:
    """A session's report, rendered again from its record."""
    setting = read_setting(target)
    folder = sessions.find(setting.project.sessions, name)
    record = folder.record()
    if record is None:
        raise LoopError(f"{folder.id} is not finished: it has no report yet", hint=folder.head().resume_command)
    if form == "json":
        screen.data(json.dumps(closing.outcome(record, folder, closing.recall(setting, folder.id)), indent=1))
    elif form == "md":
        screen.data(closing.render(setting, record, folder))
    else:
        raise LoopError(f"unknown format {form!r}", hint="--format md or --format json")
    return ExitCode.OK


def status(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """What runs, what waits to be resumed, and what the sessions cost so far."""
    root = _root(target)
    listed = [one for one in index.listing(root) if not one.recorded and not one.copy_of]
    waiting = [
        SessionFolder(root / one.folder) for one in listed if one.readable and one.status in (None, *WAITING)
    ]
    running = [folder for folder in waiting if held(folder.path / LOCK)]
    usd = sum(one.usd or 0.0 for one in listed)
    if as_json:
        fields = {
            "schema_version": 1,
            "running": [folder.id for folder in running],
            "waiting": [folder.id for folder in waiting if folder not in running],
            "sessions": len(listed),
            "usd": usd,
        }
        screen.data(to_json(fields))
        return ExitCode.OK
    for folder in waiting:
        screen.data(_status_line(folder, running=folder in running))
    if not waiting:
        screen.data("nothing runs, nothing waits")
    last = listed[-1].folder if listed else "none"
    screen.data(f"{len(listed)} sessions, ${usd:.4f} in all; the last: {last}")
    return ExitCode.OK


def _status_line(folder: SessionFolder, *, running: bool) -> str:
    step = open_step(folder.lines())
    at = f", at {step.pattern}/{step.step}" if step else ""
    if running:
        return f"{folder.id} runs{at}"
    return f"{folder.id} waits{at}: {_resume(folder)}"


def _resume(folder: SessionFolder) -> str:
    """The command that goes on with a session; what is wrong with its head where that cannot be read."""
    try:
        return folder.head().resume_command
    except LoopError as error:
        return error.message
