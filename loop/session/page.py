"""The report of a session: everything that its template shows, formatted; nothing is decided in the template."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
from loop.bisect.section import searches
from loop.debug.section import diagnoses
from loop.learning.prediction_section import predicted
from loop.model.grade import RULE
from loop.model.history import History
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, Line, SessionRecord, latest_attempts
from loop.money.section import decisions, money
from loop.optimize.section import changes, spared, timed, verified
from loop.profile.model import ProfileOutput
from loop.profile.section import bottleneck
from loop.proving.section import trust
from loop.report import format as say
from loop.report.chapter import Chapter
from loop.report.figures.error_map import error_map
from loop.report.figures.ratios import ratios
from loop.report.figures.roofline import roofline
from loop.report.figures.svg import Figure
from loop.report.figures.timeline import timeline
from loop.report.findings import Correctness, Rounds, correctness, reasons, speeds
from loop.report.plain import shortened
from loop.report.spans import spans
from loop.report.templates import environment, fitted
from loop.session import course, earlier, first_screen
from loop.session.chain import chain, mermaid
from loop.session.chain_figure import chain_figure
from loop.session.course import Recalled
from loop.session.headline import headline
from loop.session.objective_section import objective
from loop.timing.section import how_called, sensor_lines

TEMPLATE = "report.md.j2"
LONGEST_GRADE = 20
"""Letters of a grade; loop gives one."""
Shown = dict[str, Any]
"""What a template reads, by name. Text is plain unless its type is Markdown."""


@dataclass(frozen=True)
class ReportInput:
    """Everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    earlier: Sequence[SessionRecord] = ()
    """Any sessions; those that fit are taken."""
    histories: Sequence[History] = ()
    recalled: Recalled = lambda record: ()
    """What earlier sessions tell of a failed step."""
    calibration: str = ""
    """How earlier predictions held."""
    journal: Sequence[Line] = ()
    """Gives steps their times."""
    rounds: Rounds = field(default_factory=dict)
    """Ratios round by round: the curves."""
    replayed: bool = False
    """Whether a recipe lies beside it."""


@dataclass(frozen=True)
class Rendered:
    """A report, and the figures that it shows."""

    text: str
    figures: tuple[Figure, ...] = ()


def render_session(templates: Path, given: ReportInput) -> Rendered:
    """The report of a session as Markdown, with its figures. `templates`: the folder of report.md.j2."""
    drawn = figures(given)
    view = {**_head(given), **_findings(given), **_account(given), "pictures": drawn}
    text = fitted(lambda room: environment(templates, room).get_template(TEMPLATE).render(view=view))
    return Rendered(text, tuple(figure for figure in drawn.values() if figure is not None))


def figures(given: ReportInput) -> dict[str, Figure | None]:
    """Every figure of a session; None where there is nothing to draw."""
    record, finished = given.record, given.finished
    profiles = [one for output in outputs_of(finished, ProfileOutput) for one in output.profiles]
    return {
        "chain": chain_figure(chain(finished, record.head.plan)),
        "timeline": timeline(spans(given.journal, finished)),
        "error_map": error_map(finished),
        "ratios": ratios(record.verdicts, record.head.baseline),
        "roofline": roofline(profiles, record.head.baseline),
    }


def _head(given: ReportInput) -> Shown:
    """What the session was, and how it went."""
    record, finished, head = given.record, given.finished, given.record.head
    return {
        "id": head.id,
        "headline": headline(record, finished),
        "diagnoses": diagnoses(head, finished),
        "objective": objective(record),
        "target": head.target,
        "variants": first_screen.variants(record, finished),
        "baseline": head.baseline,
        "device": course.device(head),
        "started": say.day(head.started),
        "steps": course.steps(finished),
        "own": say.seconds(record.own_seconds),
        "chain": mermaid(chain(finished, head.plan)),
        "troubles": course.troubles(finished, given.recalled),
        "environment": course.environment(head, finished),
    }


def _findings(given: ReportInput) -> Shown:
    """What its steps found."""
    record, finished = given.record, given.finished
    found = correctness(finished)
    return {
        "correctness": found,
        "no_check": "Only changes were verified: see Changes" if verified(finished) else "Nothing was verified",
        "speeds": speeds(record, finished, given.rounds),
        "speed_reasons": reasons(record.verdicts),
        "called": tuple(line for output in outputs_of(finished, MeasureOutput) for line in how_called(output)),
        "sensors": sensor_lines(finished, record.head.baseline),
        "no_speed": _no_speed(finished, found),
        "trust": trust(finished, record.verdicts),
        "bottleneck": bottleneck(finished),
        "chapters": tuple(_chapters(finished)),
        "searches": searches(finished),
        "explained": [found.variant for found in diagnoses(record.head, finished)],
        "changes": changes(finished),
        "decisions": decisions(finished),
    }


def _account(given: ReportInput) -> Shown:
    """What it cost, what is known by now, and what comes next."""
    record, finished, head = given.record, given.finished, given.record.head
    missing = tuple(dict.fromkeys((*record.not_exercised, *_skipped(finished))))
    return {
        "patterns": course.patterns(finished, head.plan),
        "predicted": predicted(record, finished),
        "calibration": given.calibration,
        "money": money(record.bill, record.seconds),
        "summary": tuple(first_screen.lines(record, missing)),
        "earlier": earlier.earlier(record, given.earlier),
        "recorded": earlier.recorded(given.histories) if head.target_folder == "bundled" else (),
        "not_exercised": missing,
        "learnings": record.learnings,
        "grade": shortened(record.grade, LONGEST_GRADE),
        "grade_reason": record.grade_reason,
        "rule": RULE,
        "next": _next(record.proposal),
        "again": _again(record, finished) | {"recipe": given.replayed},
    }


def _no_speed(finished: Sequence[Finished], found: Correctness) -> str:
    """That nothing was timed, and why; or that only changes were."""
    measured = any(record.action == "kernel.measure" for record in finished)
    if timed(finished) and not measured:
        return "Only changes were timed: see Changes"
    return f"Nothing was measured: {_why_no_speed(finished, found)}"


def _why_no_speed(finished: Sequence[Finished], found: Correctness) -> str:
    """Why nothing was timed: nothing is right, the measuring step's own words, or what was missing before it."""
    checked = [checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants]
    if checked and not any(checks.right for checks in checked):
        return "no variant is right, and a wrong kernel has no speed"
    for record in latest_attempts(finished):
        if record.action == "kernel.measure" and record.status != "passed":
            return record.skipped_because if record.status == "skipped" else record.message.rstrip(".")
    return (
        "no step of this session measured speed" if found.table else "nothing was verified, so nothing was timed"
    )


def _skipped(finished: Sequence[Finished]) -> Iterator[str]:
    """Steps that were not run; those of the gate for changes only where a change came so far."""
    for record in latest_attempts(finished):
        if record.status == "skipped" and not spared(record, finished):
            yield f"step {course.name_of(record)} was skipped: {record.skipped_because}"


def _chapters(finished: Sequence[Finished]) -> Iterator[Chapter]:
    """What actions add to the report by themselves, in the order of the steps."""
    for record in latest_attempts(finished):
        action = ACTIONS.get(record.action)
        if action is not None and action.chapter is not None:
            output = read_output(record, action.output)
            chapter = action.chapter(output) if output else None
            if chapter is not None:
                yield chapter


def _next(proposal: str) -> Shown:
    """A proposal is a sentence, then commands of loop's own, a line each; nothing else is offered to be pasted."""
    lines = proposal.splitlines()
    commands = tuple(line for line in lines[1:] if line.startswith("loop "))
    return {"text": " ".join(line for line in lines if line not in commands), "commands": commands}


def _again(record: SessionRecord, finished: Sequence[Finished]) -> Shown:
    """How the numbers are had again; `resume` only where the session has not ended."""
    head = record.head
    with_files = [one for one in latest_attempts(finished) if one.artifacts]
    return {
        "session": head.command(),
        "report": head.report_command,
        "rows": f"{head.report_command} --format csv",
        "resume": head.resume_command if record.status in ("aborted", "paused") else None,
        "samples": [{"step": course.name_of(one), "files": one.artifacts} for one in with_files],
    }
