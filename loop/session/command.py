"""`loop report`: prints a session's report as Markdown, HTML, JSON or a short summary."""

import json
import os
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.documents.files import folder_for_temporary
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.places import find_project, shipped
from loop.report.screen import Screen
from loop.session import closing, recorded
from loop.session.page import DEFAULT_LIMIT_BYTES, markdown_summary
from loop.steps.setting import read_setting
from loop.store import sessions
from loop.store.sessions import SessionFolder

SUMMARY = "summary"
"""The value of `--format` that alone takes `--limit` and `--link`."""


def report(
    session_id: str,
    form: str,
    target: Path | None,
    output: Path | None,
    screen: Screen,
    limit: int = DEFAULT_LIMIT_BYTES,
    link: str = "",
    *,
    as_json: bool = False,
) -> int:
    """Print a session's report, or write it to `output`, with its figures beside it. `form`: md, html, json or
    summary; `as_json` overrides it. `limit` (bytes) and `link` are for a summary. Returns the exit code."""
    form = "json" if as_json else form
    if form == SUMMARY and output is not None:
        raise UsageError("a summary goes to stdout", hint="loop report --format summary > FILE")
    folder = find_own_session(find_project(target, Path.cwd()).sessions, session_id)
    record, figures = folder.record(), dict[str, str]()
    if record is None:
        raise UsageError(f"{folder.id} is not finished: it has no report yet", hint=folder.head().resume_command)
    if form == SUMMARY:  # Works without the project's definitions.
        screen.data(markdown_summary(record, folder.finished(), limit, link))
        return ExitCode.OK
    setting = read_setting(target)
    if form == "json":
        text = json.dumps(closing.outcome_as_json(setting, record, folder), indent=1) + "\n"
    else:
        text, report_figures = closing.render(setting, record, folder)
        figures = {figure.path: figure.file for figure in report_figures}
        if form == "html":
            from loop.report.html import render_page  # Here: markdown-it is needed for this format alone.

            text, figures = render_page(shipped("templates"), text, report_figures, record.status), {}
    if output is None or str(output) == "-":
        screen.data(text)
        return ExitCode.OK
    if output.is_dir():
        raise UsageError(f"{output}: is a folder", hint=f"name a file in it: --output {output / 'report.md'}")
    figure_folder = folder_for_temporary(output)
    if os.path.realpath(output) == os.path.realpath(folder.report):  # Writes the report's checksums, too.
        folder.write_report(text, figures)
    else:
        write_atomic(output, text)
        if figure_folder is not None:
            sessions.write_figures(figure_folder, figures)
    figures_text = f", figures beside it: {len(figures)}" if figure_folder is not None and figures else ""
    screen.say(f"written: {output}{figures_text}")
    return ExitCode.OK


def find_own_session(root: Path, name: str) -> SessionFolder:
    """A session that loop ran, by id, prefix or `last`. LoopError: none, or an imported one without a report."""
    try:
        return sessions.find_session(root, name)
    except LoopError:
        imported = recorded.find_recorded(root, name)
        if imported is None:
            raise
        message = f"{imported.id} was recorded elsewhere: only its rows are known"
        raise UsageError(message, hint=f"loop sessions show {imported.id}") from None
