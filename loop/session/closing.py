"""The end of a session: what its records mean, the report, and what is told."""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loop.agents import results
from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError
from loop.base.places import shipped
from loop.base.screen import Screen, table_lines, width
from loop.debug.section import diagnoses
from loop.learning import calibration, learnings
from loop.learning.failures import Recall
from loop.library.rates import rates
from loop.model.base import Model
from loop.model.change import BriefOutput, hosts_of
from loop.model.exported import ExportedSession, ExportedStep
from loop.model.output import read_output
from loop.model.plan import ResolvedPlan
from loop.model.record import (
    RESUMABLE,
    Conclusion,
    Finished,
    SessionFacts,
    SessionHead,
    SessionRecord,
    latest_attempts,
)
from loop.model.target import CAbiVariant
from loop.money.bill import NO_AI, Used, bill, judged_before
from loop.optimize.edits import page_of
from loop.optimize.keeping import gains
from loop.optimize.section import changes_json
from loop.replay import recipe
from loop.session import grading, samples
from loop.session.drive import Ending
from loop.session.first_screen import FirstScreen, first_screen
from loop.session.grading import late_steps
from loop.session.next_session import proposal
from loop.session.objective import Objective, phase_times, session_facts, unless_nothing_judged
from loop.session.page import Rendered, ReportInput, render_session
from loop.steps.setting import Setting, made_for_another
from loop.store import index, journal, sessions
from loop.store.sessions import CHANGES, SessionFolder

TABLE_WIDTH = 110
"""Columns of the table of variants, where no terminal has fewer."""


def conclude(
    setting: Setting, head: SessionHead, folder: SessionFolder, ending: Ending, seconds: float
) -> SessionRecord:
    """The final record, from the journal alone."""
    lines = folder.lines()
    finished = journal.finished(lines)
    now = datetime.datetime.now(datetime.UTC)
    took = grading.believed(seconds, [one.seconds for one in every_attempt(folder)])
    findings = learnings.collect(finished)
    status, reason = learnings.session_status(finished, findings.verdicts)
    if ending.status is not None:
        status, reason = ending.status, ending.reason
    plan, card = head.plan.plan, rates(setting.project).attended(head.attended)
    facts = session_facts(card, head)
    ended = status in ("passed", "failed")
    objective = Objective.of(head).judge(finished, facts(finished)) if ended else None
    status, reason = unless_nothing_judged(head, finished, status, reason)
    letter, why = grading.grade(plan, status, reason, finished, objective, took.seconds)
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK, target=head.target)
    rows = [row for row in rows if not row.recorded and row.id < head.id]
    repeats = status != "passed" or judged_before(rows, head.ground)
    record = SessionRecord(
        head=head,
        status=status,
        reason=reason,
        seconds=took.seconds,
        own_seconds=took.own_seconds,
        verdicts=findings.verdicts,
        bill=bill(
            measured_use(head, folder, took.seconds),
            card,
            () if repeats else every_attempt(folder),
            gains=gains(finished),
            notes=[took.note] if took.note else [],
            today=now.date(),
        ),
        grade=letter,
        grade_reason=why,
        objective=objective,
        phases=phase_times(plan, finished),
        late=late_steps(head.plan, finished) if took.seconds > 60 * plan.budget.minutes else (),
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
    return record.model_copy(update={"proposal": proposal(setting, record, lines, sources_of(setting))})


def every_attempt(folder: SessionFolder) -> tuple[Finished, ...]:
    """All steps that ended, those too that no longer count: what was used was used."""
    return tuple(line.event for line in folder.lines() if isinstance(line.event, Finished))


def measured_use(head: SessionHead, folder: SessionFolder, seconds: float) -> Used:
    """What the session used, by its own journal and the best word on AI."""
    ai, reason = results.used(folder)
    hosts = hosts_of(folder.finished())
    return Used(seconds, head.device, head.gpu, ai, reason or NO_AI, hosts)


def never_reached(plan: ResolvedPlan, finished: tuple[Finished, ...], ending: Ending) -> list[str]:
    """Steps of the planned patterns that were not done; one that waits for somebody is under way."""
    broken = ("aborted", "paused") if ending.cut else ("aborted",)
    done = {(r.pattern, r.step) for r in latest_attempts(finished) if r.status not in broken}
    planned = [planned.pattern for planned in plan.patterns if planned.planned]
    return [
        f"step {pattern.name}/{step.id}: {ending.not_reached}"
        for pattern in planned
        for step in pattern.steps
        if (pattern.name, step.id) not in done
    ]


def left_out(setting: Setting, head: SessionHead) -> list[str]:
    """Variants and devices that this session did not touch."""
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


def sources_of(setting: Setting) -> dict[str, tuple[str, ...]]:
    """The files of each variant, as a user would open them."""
    compiled = {n: v for n, v in setting.target.variants.items() if isinstance(v, CAbiVariant)}
    return {name: tuple(str(setting.project.target / s) for s in v.sources) for name, v in compiled.items()}


def render(setting: Setting, record: SessionRecord, folder: SessionFolder) -> Rendered:
    """The report of a session, beside its predecessors, with its figures."""
    finished = folder.finished()
    samples.say_damaged_patches(finished)
    given = ReportInput(
        record=record,
        finished=finished,
        earlier=list(predecessors(setting, record)),
        recalled=recall(setting, record.head.id).lines,
        calibration=predictions_held(setting, record),
        replayed=(folder.path / recipe.NAME).is_file(),
    )
    return render_session(setting.project.own("templates") or shipped("templates"), given)


def predecessors(setting: Setting, record: SessionRecord) -> Iterator[SessionRecord]:
    """Recent sessions of the target that had ended before this one began; the index says which to read."""
    root = setting.project.sessions
    for row in index.rows(root, last=sessions.RECENT, target=record.head.target):
        if row.status is not None and not row.recorded and row.id < record.head.id:
            try:
                found = SessionFolder(root / row.id).record()
            except LoopError as error:
                sessions.left_out(error)
                continue
            if found is not None:
                yield found


def predictions_held(setting: Setting, record: SessionRecord) -> str:
    """How the predictions of this session and those before it held."""
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK)
    began = record.head.started
    return calibration.in_words([row for row in rows if row.started is not None and row.started <= began])


def recall(setting: Setting, session: str) -> Recall:
    """What sessions before this one say of failures."""
    return Recall(setting.project, session)


def tell(record: SessionRecord, folder: SessionFolder, screen: Screen, recalled: Recall, *, as_json: bool) -> int:
    """The first screen of its report, or one JSON object. The exit code by the gates.

    A terminal shows the end of it: so the verdict, its cause and what to do next stand there.
    """
    from loop.report.html import words  # Here: markdown-it is needed at the end of a session alone.

    finished = folder.finished()
    if as_json:
        screen.data(to_json(outcome(record, folder, recalled)))
    told = first_screen(record, finished)
    room = min(TABLE_WIDTH, width(screen.err)) if screen.err.isatty() else TABLE_WIDTH
    for line in (*_further(told), *_table(told, room), *told.lines, *_account(record, finished)):
        screen.say(line)
    screen.say(f"Report: {folder.report}")
    screen.outcome(record.status, f": {record.head.target}: {words(told.decided)}.")
    for line in told.cause:
        screen.say(f"  {line}")
    if record.status not in RESUMABLE:
        screen.say(f"Next: {told.next}")
        if told.command:
            screen.say(f"  {told.command}")
    return ExitCode.OK if record.status == "passed" else ExitCode.GATE_FAILED


def _further(told: FirstScreen) -> Iterator[str]:
    """What else is known of each wrong variant."""
    for found in told.wrong:
        lines = [f"  {label}: {text}" for label, text in found.lines]
        again = [f"  Again: {found.command}"] if found.command else []
        yield from (f"What else is known of {found.variant}:", *lines, *again) if lines or again else ()


def _table(told: FirstScreen, room: int) -> Iterator[str]:
    if told.variants is not None:
        heads = [one.title for one in told.variants.columns]
        yield from table_lines(heads, told.variants.rows, room, wrap=1)
    if told.known_good:
        yield told.known_good


def _account(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """What it waits for, and notes of the bill."""
    yield from filter(None, (waiting_for(finished), *(f"note: {note}" for note in record.bill.notes)))


def waiting_for(finished: Sequence[Finished]) -> str:
    """What a paused session waits for; empty for any other."""
    last = latest_attempts(finished)[-1:]
    return last[0].hint or "" if last and last[0].status == "paused" else ""


def brief_page(folder: SessionFolder, finished: Sequence[Finished]) -> Path | None:
    """The page of the change that a paused session waits for; None where it waits for none."""
    last = latest_attempts(finished)[-1:]
    asked = read_output(last[0], BriefOutput) if last and last[0].status == "paused" else None
    return page_of(folder.path / CHANGES, asked.brief) if asked and asked.brief else None


def outcome(record: SessionRecord, folder: SessionFolder, recalled: Recall) -> dict[str, Any]:
    """What `--json` prints of a session."""
    head, finished = record.head, folder.finished()
    exported = ExportedSession(
        **_picked(head, SessionFacts),
        **_picked(record, Conclusion),
        report=str(folder.report),
        waiting_for=waiting_for(finished),
        brief=str(page.with_suffix(".json")) if (page := brief_page(folder, finished)) else "",
        steps=tuple(ExportedStep(**_picked(step, ExportedStep)) for step in latest_attempts(finished)),
        failures=recalled.failed(finished),
        diagnoses=diagnoses(head, finished),
        changes=changes_json(finished),
        cost=record.bill,
    )
    return exported.model_dump(mode="json")


def _picked(value: Model, model: type[Model]) -> dict[str, Any]:
    """The fields of a value that another model has."""
    return {name: getattr(value, name) for name in model.model_fields}
