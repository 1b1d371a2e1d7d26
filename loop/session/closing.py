"""Ends a session: computes its record from the journal, prints the outcome, renders the report."""

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from loop.agents import proposing
from loop.base.documents import folder_for_temporary, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.places import shipped
from loop.learning import learnings
from loop.learning.failures import FailureHistory
from loop.library.definitions import find_project
from loop.library.rates import rates
from loop.model import record as records
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, TriedChange, hosts_of
from loop.model.money import Bill
from loop.model.output import Diagnosis, Output, outputs_of, read_output
from loop.model.record import RESUMABLE, Finished, SessionHead, SessionRecord, latest_attempts
from loop.money.bill import NO_AI_COST, SessionUse, make_bill
from loop.optimize.model import BriefOutput
from loop.optimize.section import changes_json
from loop.optimize.session_changes import brief_path
from loop.report.figures import Figure
from loop.report.screen import Screen, table_lines, terminal_columns
from loop.report.sections import section_fields
from loop.session import objective as judging
from loop.session import page
from loop.session.drive import Ending
from loop.session.next_session import proposal_text
from loop.session.opening import SessionRequest
from loop.steps.setting import Setting, architecture_mismatch, read_setting
from loop.store import journal, sessions
from loop.store.sessions import CHANGES, RECENT_SESSIONS, SessionFolder


class ExportedSession(records.SessionFacts, records.Conclusion):
    """One session as JSON. Releases may add fields; existing fields keep name and meaning."""

    schema_version: Literal[3] = 3
    report: str
    waiting_for: str
    """What a paused session waits for; empty if it is not paused."""
    brief: str = ""
    """Path of the JSON brief of the awaited change, with a text page next to it; or empty."""
    steps: tuple[records.EndedStep, ...]
    failures: tuple[dict[str, Any], ...]
    """Each failed `step`: `message`, `signatures` (fingerprints), `seen_before` (sessions)."""
    diagnoses: tuple[Diagnosis, ...]
    changes: dict[str, tuple[TriedChange, ...] | tuple[Proposal, ...] | tuple[Confirmed, ...]]
    """`judged` changes, `proposals`, and final measurements against the start (`confirmed`)."""
    cost: Bill
    sections: tuple[dict[str, Any], ...] = ()
    """Sections of the report: `fold`, `title`, `note`, `lines`, a table's `columns` and `rows`."""


TABLE_WIDTH = 110  # Characters of the table of variants; a narrower terminal gets a narrower one.


def make_record(
    setting: Setting, head: SessionHead, folder: SessionFolder, ending: Ending, seconds: float
) -> SessionRecord:
    """The record of a session, by its journal and its last walk's `ending`. `seconds`: wall time of
    all walks. The ending's status counts, if it has one; else verdicts and steps decide. `passed`
    without the verdict that the plan asks for becomes `skipped`."""
    lines = folder.lines()
    finished = journal.finished_steps(lines)
    attempts = tuple(line.event for line in lines if isinstance(line.event, Finished))
    steps_s = sum(attempt.seconds for attempt in attempts)
    between_s = seconds - steps_s
    # Outside these bounds the clock was set, or the machine slept: only the steps' time counts.
    is_plausible = -1.0 <= between_s <= 60.0 + 0.1 * steps_s
    between_s = max(0.0, between_s) if is_plausible else 0.0
    seconds = steps_s + between_s
    verdicts = learnings.session_verdicts(finished)
    status, reason = ending.status, ending.reason
    if status is None:
        status, reason = learnings.session_status(finished, verdicts)
    card, objective = rates(setting.project).with_waiting_person(is_attended=head.attended), None
    if status in ("passed", "failed"):
        values = judging.compute_session_values(card, head, finished)
        objective = judging.judge_objective(head, finished, values)
    status, reason = judging.skipped_if_nothing_judged(head, finished, status, reason)
    letter, grade_reason = judging.grade_session(head, status, reason, finished, objective, seconds)
    ai, why_no_ai = proposing.read_session_use(folder)
    why_no_ai = why_no_ai or NO_AI_COST
    used = SessionUse(seconds, head.device, head.gpu, ai, why_no_ai, hosts_of(finished))
    # A session that only repeats an earlier one saves nothing, nor does one that did not pass.
    rows = sessions.rows(setting.project.sessions, last=RECENT_SESSIONS, target=head.target)
    repeated = [row for row in rows if row.id < head.id and row.ground == head.ground]
    is_repeat = any(row.status in ("passed", "failed") and not row.recorded for row in repeated)
    saving_steps = attempts if status == "passed" and not is_repeat else ()
    today, outputs = datetime.datetime.now(datetime.UTC).date(), outputs_of(finished, Output)
    record = SessionRecord(
        head=head,
        status=status,
        reason=reason,
        seconds=seconds,
        own_seconds=between_s,
        verdicts=verdicts,
        bill=make_bill(used, card, saving_steps, today=today),
        grade=letter,
        grade_reason=grade_reason,
        objective=objective,
        learnings=tuple(dict.fromkeys(text for output in outputs for text in output.learned)),
        not_exercised=(
            *dict.fromkeys(text for output in outputs for text in output.not_exercised),
            *sentences_on_untested(setting, head, finished, ending),
            *ending.unwatched_sentences,
        ),
        proposal="",
        lines=len(lines),
    )
    return record.model_copy(update={"proposal": proposal_text(setting, record, lines)})


def sentences_on_untested(
    setting: Setting, head: SessionHead, finished: Sequence[Finished], ending: Ending
) -> list[str]:
    """A sentence for each planned step not done, and each variant and device not tested, with the
    reason. A paused step counts as done, unless the walk ended in it."""
    undone_statuses = ("aborted", "paused") if ending.why_not_reached else ("aborted",)
    done = [step.label for step in latest_attempts(finished) if step.status not in undone_statuses]
    patterns = [planned.pattern for planned in head.plan.patterns if planned.planned]
    labels = [f"{pattern.name}/{step.id}" for pattern in patterns for step in pattern.steps]
    why_not_reached = ending.why_not_reached or "the session did not get there"
    lines = [f"step {label}: {why_not_reached}" for label in labels if label not in done]
    for name, variant in setting.target.variants.items():
        if name not in (*head.variants, *head.emulated):
            reason = architecture_mismatch(setting.target, name) if head.device == "cuda" else ""
            if not reason and variant.device in (head.device, "any"):
                reason = "not selected"
            lines.append(f"variant {name}: {reason or f'it runs on {variant.device}'}")
    lines += [f"speed of {name}: it runs on a GPU, here it was emulated" for name in head.emulated]
    if not head.machine.gpus:
        lines.append("anything on a GPU: this machine has none")
    return lines


def render(
    setting: Setting, record: SessionRecord, folder: SessionFolder
) -> tuple[str, tuple[Figure, ...]]:
    """The report of a session as Markdown, and its figures."""
    templates = setting.project.definitions_folder("templates") or shipped("templates")
    history = FailureHistory(setting.project, record.head)
    view = page.View(record, folder.finished(), history.describe_failures)
    return page.render_session(templates, view)


def print_outcome(
    setting: Setting,
    record: SessionRecord,
    folder: SessionFolder,
    screen: Screen,
    request: SessionRequest,
    resume_phrase: str = "",
) -> int:
    """Print the outcome to stdout, the verdict last. With `--json` or `--events`, stdout gets JSON,
    and the text becomes a message. `resume_phrase`: words before the resume command; empty: that is
    not printed. Returns 0 if the session passed or had nothing to do, else 1."""
    finished = folder.finished()
    user_task, summary = pending_user_task(finished), page.first_screen(record, finished)
    if request.events:
        outcome = outcome_json(setting, record, folder)
        screen.data(to_json({"happening": "SessionEnded", **outcome}, None))
    if request.json:
        screen.data(to_json(outcome_json(setting, record, folder)))
    if not (request.json or request.events):
        screen = screen.on_stdout()
    width = min(TABLE_WIDTH, terminal_columns(screen.err)) if screen.err.isatty() else TABLE_WIDTH
    lines = list[str]()
    for section in summary.further_sections:
        lines += filter(None, [section.note])
        if section.table is not None:
            lines += table_lines(section.table.titles, section.table.rows, width, folded_column=1)
        indent = "  " if section.note else ""
        lines += [f"{indent}{line}" for line in (*section.after, *section.lines)]
    lines += [*filter(None, [user_task]), *(f"note: {note}" for note in record.bill.notes)]
    for line in lines:
        screen.say(line.replace("`", ""))
    screen.say(f"Report: {folder.report}")
    facts = summary.deciding_text.replace("`", "")
    screen.outcome(record.status, f": {record.head.target}: {facts}.")
    for line in summary.cause:
        screen.say(f"  {line.replace('`', '')}")
    if record.status not in RESUMABLE:
        screen.say(f"Next: {summary.next}")
        if summary.command:
            screen.say(f"  {summary.command}")
    if resume_phrase and not user_task:
        screen.say(f"{resume_phrase}: {record.head.resume_command}")
    had_nothing_to_do = (record.status, record.grade) == ("skipped", "-")
    return ExitCode.OK if record.status == "passed" or had_nothing_to_do else ExitCode.GATE_FAILED


def pending_user_task(finished: Sequence[Finished]) -> str:
    """What the user has to do before a paused session can go on; empty for any other session."""
    paused = [record for record in latest_attempts(finished)[-1:] if record.status == "paused"]
    return (paused[0].hint or "") if paused else ""


def outcome_json(setting: Setting, record: SessionRecord, folder: SessionFolder) -> dict[str, Any]:
    """What `--json` prints of a session: head, record, steps, and the sections of its report."""
    head, finished = record.head, folder.finished()
    steps, values = latest_attempts(finished), {**vars(head), **vars(record)}
    output = read_output(steps[-1], BriefOutput) if steps and steps[-1].status == "paused" else None
    brief = brief_path(folder.path / CHANGES, output.brief) if output and output.brief else None
    history = FailureHistory(setting.project, head)
    folds = page.sections_by_fold(page.View(record, finished, history.describe_failures))
    exported = ExportedSession(
        **{name: values[name] for name in ExportedSession.model_fields if name in values},
        report=str(folder.report),
        waiting_for=pending_user_task(finished),
        brief=str(brief.with_suffix(".json")) if brief else "",
        steps=steps,
        failures=history.describe_failed_steps(finished),
        diagnoses=page.make_diagnoses(head, finished),
        changes=changes_json(finished),
        cost=record.bill,
        sections=tuple({"fold": fold, **section_fields(section)} for fold, section in folds),
    )
    return exported.model_dump(mode="json")


def report(
    session_id: str,
    form: str,
    target: Path | None,
    output: Path | None,
    screen: Screen,
    limit: int = page.DEFAULT_BYTES,
    link: str = "",
    *,
    as_json: bool = False,
) -> int:
    """Print a session's report, or write it to `output`, with its figures beside it. `form`: md,
    html, json or summary; `as_json` overrides it. `limit` (bytes) and `link` are for a summary.
    Returns 0. Raises UsageError for a session that has not ended."""
    form = "json" if as_json else form
    if form == "summary" and output is not None:
        raise UsageError("a summary goes to stdout", hint="loop report --format summary > FILE")
    folder = sessions.find_session(find_project(target, Path.cwd()).sessions, session_id)
    record = folder.record()
    if record is None:
        resume_command = folder.head().resume_command
        raise UsageError(f"{folder.id} is not finished: it has no report yet", resume_command)
    if form == "summary":  # Works without the project's definitions.
        screen.data(page.markdown_summary(record, folder.finished(), limit, link))
        return ExitCode.OK
    setting = read_setting(target)
    figures = tuple[Figure, ...]()
    if form == "json":
        text = json.dumps(outcome_json(setting, record, folder), indent=1) + "\n"
    else:
        text, figures = render(setting, record, folder)
    if form == "html":
        from loop.report.html import render_page  # Only this format needs markdown-it.

        text, figures = render_page(shipped("templates"), text, figures, record.status), ()
    if output is None or str(output) == "-":
        screen.data(text)
        return ExitCode.OK
    if output.is_dir():
        raise UsageError(f"{output}: is a folder", hint=f"--output {output / 'report.md'}")
    figure_folder, destination = folder_for_temporary(output), Path(os.path.realpath(output))
    is_in_session = any((parent / sessions.HEAD).is_file() for parent in destination.parents)
    if output.exists() and is_in_session and destination != folder.report.resolve():
        raise UsageError(f"{output}: is a file of a session", hint="name another file")
    write_atomic(output, text)
    screen.say(f"written: {output}")
    if figure_folder is not None and figures:
        sessions.write_figures(figure_folder, {figure.path: figure.file for figure in figures})
        screen.say(f"figures beside it: {len(figures)}")
    return ExitCode.OK
