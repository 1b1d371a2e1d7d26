"""`loop report`: a session as people read it, and in the formats of other tools."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.documents.files import folder_beside
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.places import project, shipped
from loop.base.screen import Screen
from loop.model.record import SessionRecord
from loop.report.exports import rows
from loop.session import closing, recorded, samples, summary
from loop.steps.setting import Setting, read_setting
from loop.store import sessions
from loop.store.sessions import SessionFolder


@dataclass(frozen=True)
class Written:
    """What a format came to."""

    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Figures that it shows, by their paths from it."""


def _markdown(setting: Setting, folder: SessionFolder) -> Written:
    rendered = closing.render(setting, ended(folder), folder)
    return Written(rendered.text, {one.path: one.file for one in rendered.figures})


def _html(setting: Setting, folder: SessionFolder) -> Written:
    from loop.report.html import page  # Here: markdown-it is needed for this format alone.

    record = ended(folder)
    rendered = closing.render(setting, record, folder)
    return Written(page(shipped("templates"), rendered.text, rendered.figures, record.status))


def _json(setting: Setting, folder: SessionFolder) -> Written:
    outcome = closing.outcome(ended(folder), folder, closing.recall(setting, folder.id))
    return Written(json.dumps(outcome, indent=1) + "\n")


def _csv(setting: Setting, folder: SessionFolder) -> Written:
    read = samples.read_samples(folder, folder.finished())
    return Written(rows(folder.id, samples.required(folder, read)))


FORMATS: dict[str, Callable[[Setting, SessionFolder], Written]] = {
    "md": _markdown,
    "html": _html,
    "json": _json,
    "csv": _csv,
}
"""What `--format` may be, besides a summary, which has options of its own."""
SUMMARY = "summary"


def find(root: Path, name: str) -> SessionFolder:
    """The folder of a session that loop ran. Raises LoopError; for one recorded elsewhere, with what shows it."""
    try:
        return sessions.find(root, name)
    except LoopError:
        known = recorded.find(root, name)
        if known is None:
            raise
        raise UsageError(
            f"{known.id} was recorded elsewhere: there is no report of it", hint=f"loop sessions show {known.id}"
        ) from None


def ended(folder: SessionFolder) -> SessionRecord:
    """The final record; LoopError for a session that has none."""
    record = folder.record()
    if record is None:
        raise UsageError(f"{folder.id} is not finished: it has no report yet", hint=folder.head().resume_command)
    return record


def report(
    session_id: str,
    form: str,
    target: Path | None,
    output: Path | None,
    screen: Screen,
    limit: int = summary.LIMIT,
    link: str = "",
    *,
    as_json: bool = False,
) -> int:
    """A session, rendered again from its records, to stdout or into a file. `limit` and `link` are a summary's."""
    form = "json" if as_json else form
    if form == SUMMARY:
        if output is not None:
            raise UsageError("a summary goes to stdout", hint="loop report --format summary > FILE")
        folder = find(project(target, Path.cwd()).sessions, session_id)
        screen.data(summary.digest(ended(folder), folder.finished(), limit, link))
        return ExitCode.OK
    if form not in FORMATS:
        raise UsageError(f"unknown format {form!r}", hint=f"--format is one of {', '.join((*FORMATS, SUMMARY))}")
    setting = read_setting(target)
    folder = find(setting.project.sessions, session_id)
    written = FORMATS[form](setting, folder)
    if output is None or str(output) == "-":
        screen.data(written.text)
    else:
        _store(written, output, folder, screen)
    return ExitCode.OK


def _store(written: Written, output: Path, folder: SessionFolder, screen: Screen) -> None:
    """The file, its figures beside it; the session's own report with its checksums."""
    if output.is_dir():
        raise UsageError(f"{output}: is a folder", hint=f"name a file in it: --output {output / 'report.md'}")
    own = os.path.realpath(output) == os.path.realpath(folder.report)
    if own:
        folder.write_report(written.text, written.files)
    else:
        write_atomic(output, written.text)
    beside = folder_beside(output)
    if beside is not None and not own:
        sessions.write_figures(beside, written.files)
    figures = f", figures beside it: {len(written.files)}" if beside is not None and written.files else ""
    screen.say(f"written: {output}{figures}")
