"""`loop sessions ...`, `loop report`, `loop status`: look at what was recorded."""

import json
from pathlib import Path

from loop.commands import closing
from loop.commands.setting import read_setting
from loop.documents import to_json
from loop.errors import ExitCode, LoopError
from loop.locks import Held
from loop.model.record import Finished, SessionRecord
from loop.places import project
from loop.screen import Screen, seconds_text
from loop.stats import geometric_mean
from loop.store import sessions
from loop.store.journal import open_step
from loop.store.sessions import SessionFolder

WAITING = ("aborted", "paused")
"""How a session ended that can go on."""


def _root(target: Path | None) -> Path:
    return project(target, Path.cwd()).sessions


def list_sessions(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All sessions, a row each, oldest first."""
    rows = [_row(folder) for folder in sessions.every(_root(target))]
    if as_json:
        screen.data(to_json({"schema_version": 1, "sessions": rows}))
    elif not rows:
        screen.say(f"no sessions in {_root(target)}; `loop run session` makes one")
    else:
        keys = ("id", "status", "grade", "device", "seconds", "usd", "fastest")
        heads = ("session", "status", "", "device", "took", "usd", "fastest")
        screen.table(heads, [[_cell(key, row[key]) for key in keys] for row in rows], wrap=0)
    return ExitCode.OK


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return seconds_text(value) if key == "seconds" else f"{value:.4f}"
    return str(value)


def _row(folder: SessionFolder) -> dict[str, object]:
    """What a list says of one session; a damaged one is listed as such."""
    blank = dict.fromkeys(("device", "grade", "seconds", "usd", "fastest", "target", "plan"))
    try:
        head, record = folder.head(), folder.record()
    except LoopError as error:
        return {**blank, "id": folder.id, "status": "damaged", "reason": error.message}
    known = {**blank, "id": folder.id, "target": head.target, "plan": head.plan.plan.name, "device": head.device}
    if record is None:
        return {**known, "status": "running" if is_running(folder) else "open"}
    ended = {"status": record.status, "grade": record.grade, "seconds": record.seconds, "usd": record.bill.usd}
    return {**known, **ended, "fastest": fastest(record)}


def fastest(record: SessionRecord) -> str | None:
    """The variant with the best geometric mean of those that were judged everywhere, as `cpu 1.63x`."""
    ratios: dict[str, list[float]] = {}
    unsure = {verdict.variant for verdict in record.verdicts if verdict.verdict == "inconclusive"}
    for verdict in (one for one in record.verdicts if one.variant not in unsure):
        if verdict.ratio is not None and verdict.against == "baseline":
            ratios.setdefault(verdict.variant, []).append(verdict.ratio)
    means = {variant: geometric_mean(values) for variant, values in ratios.items()}
    best = max(means, key=lambda variant: means[variant], default=None)
    return f"{best} {means[best]:.2f}x" if best else None


def is_running(folder: SessionFolder) -> bool:
    """Whether a process holds the session."""
    try:
        with folder.lock():
            return False
    except Held:
        return True


def show_session(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One session: its facts and its steps."""
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
        screen.data(json.dumps(closing.outcome(record, folder), indent=1))
    elif form == "md":
        screen.data(closing.render(setting, record, folder))
    else:
        raise LoopError(f"unknown format {form!r}", hint="--format md or --format json")
    return ExitCode.OK


def status(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """What runs, what waits to be resumed, and what the sessions cost so far."""
    folders = sessions.every(_root(target))
    waiting = [folder for folder in folders if _waits(folder)]
    running = [folder for folder in waiting if is_running(folder)]
    records = sessions.records(_root(target))
    usd = sum(record.bill.usd for record in records)
    if as_json:
        fields = {
            "schema_version": 1,
            "running": [folder.id for folder in running],
            "waiting": [folder.id for folder in waiting if folder not in running],
            "sessions": len(folders),
            "usd": usd,
        }
        screen.data(to_json(fields))
        return ExitCode.OK
    for folder in waiting:
        screen.data(_status_line(folder, running=folder in running))
    if not waiting:
        screen.data("nothing runs, nothing waits")
    screen.data(f"{len(folders)} sessions, ${usd:.4f} in all; the last: {folders[-1].id if folders else 'none'}")
    return ExitCode.OK


def _waits(folder: SessionFolder) -> bool:
    try:
        record = folder.record()
    except LoopError:
        return False
    return record is None or record.status in WAITING


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
