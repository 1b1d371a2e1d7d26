"""Ends a session: computes its record from the journal, writes the report, prints the outcome."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.agents import proposing
from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.places import shipped
from loop.base.screen import Screen, table_lines, terminal_columns
from loop.debug.explaining import diagnoses
from loop.learning import learnings, prediction
from loop.learning.failures import Recall
from loop.library.rates import rates
from loop.model.change import BriefOutput, hosts_of
from loop.model.exported import ExportedSession
from loop.model.output import read_output
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.money.bill import NO_AI, Used, judged_before, make_bill
from loop.optimize.edits import page_of
from loop.optimize.keeping import kept_changes_gains
from loop.optimize.section import changes_json
from loop.report.figures.svg import Figure
from loop.report.sections import show
from loop.session import course
from loop.session.bounds import Ending
from loop.session.course import View
from loop.session.first_screen import first_screen
from loop.session.next_session import proposal
from loop.session.objective import Objective, session_facts, unless_nothing_judged
from loop.session.page import in_json, on_screen, render_session
from loop.steps.setting import Setting, made_for_another
from loop.store import index, journal
from loop.store.sessions import CHANGES, SessionFolder

TABLE_WIDTH = 110
"""Width of the table of variants in characters; a narrower terminal gets a narrower table."""


def conclude(
    setting: Setting, head: SessionHead, folder: SessionFolder, ending: Ending, seconds: float
) -> SessionRecord:
    """The final record of a session, from its journal. `seconds`: its wall time over all walks."""
    lines = folder.lines()
    finished = journal.finished_steps(lines)
    attempts = tuple(line.event for line in lines if isinstance(line.event, Finished))  # All are billed.
    steps_s = sum(attempt.seconds for attempt in attempts)
    own_s = course.own_seconds(seconds, steps_s)
    seconds = steps_s + own_s
    findings = learnings.collect_findings(finished)
    status, reason = learnings.session_status(finished, findings.verdicts)
    if ending.status is not None:
        status, reason = ending.status, ending.reason
    plan, card = head.plan.plan, rates(setting.project).with_waiting_person(head.attended)
    ended, facts = status in ("passed", "failed"), session_facts(card, head)(finished)
    objective = Objective.of(head).judge(finished, facts) if ended else None
    status, reason = unless_nothing_judged(head, finished, status, reason)
    letter, why = course.grade(plan, status, reason, finished, objective, seconds)
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK, target=head.target)
    rows = [row for row in rows if not row.recorded and row.id < head.id]
    ai, no_ai = proposing.usage_of_session(folder)
    used = Used(seconds, head.device, head.gpu, ai, no_ai or NO_AI, hosts_of(finished))
    spared = () if status != "passed" or judged_before(rows, head.ground) else attempts
    today = datetime.datetime.now(datetime.UTC).date()
    record = SessionRecord(
        head=head,
        status=status,
        reason=reason,
        seconds=seconds,
        own_seconds=own_s,
        verdicts=findings.verdicts,
        bill=make_bill(used, card, spared, gains=kept_changes_gains(finished), today=today),
        grade=letter,
        grade_reason=why,
        objective=objective,
        learnings=learnings.learnings(finished),
        not_exercised=(
            *findings.not_exercised,
            *never_reached(head.plan, finished, ending),
            *left_out(setting, head),
            *ending.unwatched,
        ),
        proposal="",
        lines=len(lines),
    )
    return record.model_copy(update={"proposal": proposal(setting, record, lines)})


def never_reached(plan: ResolvedPlan, finished: tuple[Finished, ...], ending: Ending) -> list[str]:
    """A sentence for each planned step that was not done. A paused step counts as done unless interrupted."""
    broken = ("aborted", "paused") if ending.cut else ("aborted",)
    done = {(r.pattern, r.step) for r in latest_attempts(finished) if r.status not in broken}
    return [
        f"step {planned.pattern.name}/{step.id}: {ending.not_reached}"
        for planned in plan.patterns
        for step in planned.pattern.steps
        if planned.planned and (planned.pattern.name, step.id) not in done
    ]


def left_out(setting: Setting, head: SessionHead) -> list[str]:
    """A sentence for each variant and device that this session did not test, with the reason."""
    lines = []
    for name, variant in setting.target.variants.items():
        if name not in (*head.variants, *head.emulated):
            another = made_for_another(setting.target, name) if head.device == "cuda" else ""
            here = variant.device in (head.device, "any")
            why = another or ("not selected" if here else f"it runs on {variant.device}")
            lines.append(f"variant {name}: {why}")
    lines += [f"speed of {name}: it runs on a GPU, here it was emulated" for name in head.emulated]
    if not head.machine.gpus:
        lines.append("anything on a GPU: this machine has none")
    return lines


def render(setting: Setting, record: SessionRecord, folder: SessionFolder) -> tuple[str, tuple[Figure, ...]]:
    """The report of a session as Markdown, and its figures."""
    templates = setting.project.definitions_folder("templates") or shipped("templates")
    return render_session(templates, view_of(setting, record, folder))


def view_of(setting: Setting, record: SessionRecord, folder: SessionFolder) -> View:
    """All data of a report: the record, its steps, earlier failures, and how good predictions were."""
    began = record.head.started
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK)
    return View(
        record=record,
        finished=folder.finished(),
        recalled=Recall(setting.project, record.head.id).lines,
        calibration=prediction.how_predictions_held(
            [row for row in rows if row.started is not None and row.started <= began]
        ),
    )


def tell_end(
    setting: Setting, record: SessionRecord, folder: SessionFolder, screen: Screen, *, as_json: bool
) -> int:
    """Print the outcome, as text or as one JSON object. Returns the exit code that the gates decide.

    Verdict, cause and next command come last: the end of the output stays visible in a terminal.
    """
    finished = folder.finished()
    if as_json:
        screen.data(to_json(session_outcome(setting, record, folder)))
    else:
        show(on_screen(View(record, finished)), screen)
    first = first_screen(record, finished)
    columns = min(TABLE_WIDTH, terminal_columns(screen.err)) if screen.err.isatty() else TABLE_WIDTH
    lines: list[str] = []
    for section in first.further.values():
        lines += filter(None, [section.note, *(f"  {line}" for line in section.lines if section.note)])
        if section.table is not None:
            heads = [column.title for column in section.table.columns]
            lines += table_lines(heads, section.table.rows, columns, wrap=1)
        lines += [str(line) for line in (*section.after, *(() if section.note else section.lines))]
    lines += filter(None, [waiting_for(finished)])
    for line in (*lines, *(f"note: {note}" for note in record.bill.notes)):
        screen.say(line.replace("`", ""))
    screen.say(f"Report: {folder.report}")
    screen.outcome(record.status, f": {record.head.target}: {first.decided.replace('`', '')}.")
    for line in first.cause:
        screen.say(f"  {line}")
    if not record.can_resume:
        screen.say(f"Next: {first.next}")
        if first.command:
            screen.say(f"  {first.command}")
    return ExitCode.OK if record.status == "passed" else ExitCode.GATE_FAILED


def waiting_for(finished: Sequence[Finished]) -> str:
    """What the user has to do before a paused session can go on; empty for any other session."""
    last = latest_attempts(finished)[-1:]
    return last[0].hint or "" if last and last[0].status == "paused" else ""


def brief_page(folder: SessionFolder, finished: Sequence[Finished]) -> Path | None:
    """Path of the brief's page when a paused session waits for a code change; else None."""
    last = latest_attempts(finished)[-1:]
    brief = read_output(last[0], BriefOutput) if last and last[0].status == "paused" else None
    return page_of(folder.path / CHANGES, brief.brief) if brief and brief.brief else None


def session_outcome(setting: Setting, record: SessionRecord, folder: SessionFolder) -> dict[str, Any]:
    """What `--json` prints of a session: head, record, steps, and the sections of its report."""
    head, finished = record.head, folder.finished()
    known = {**vars(head), **vars(record)}
    page = brief_page(folder, finished)
    exported = ExportedSession(
        **{name: known[name] for name in ExportedSession.model_fields if name in known},
        report=str(folder.report),
        waiting_for=waiting_for(finished),
        brief=str(page.with_suffix(".json")) if page else "",
        steps=latest_attempts(finished),
        failures=Recall(setting.project, head.id).failed(finished),
        diagnoses=diagnoses(head, finished),
        changes=changes_json(finished),
        cost=record.bill,
        sections=tuple(in_json(view_of(setting, record, folder))),
    )
    return exported.model_dump(mode="json")
