"""The report of a session: everything that its template shows, formatted; nothing is decided in the template."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
from loop.base.stats import geometric_mean
from loop.bisect.section import searches
from loop.jobs.groups import groups
from loop.learning.calibration import predicted
from loop.model.change import jobs_of
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of, read_output
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.model.verdict import SpeedVerdict
from loop.money.section import decisions, money
from loop.optimize.section import changes, timed, verified
from loop.profile.model import ProfileOutput
from loop.profile.section import bottleneck
from loop.proving.section import trust
from loop.report import format as say
from loop.report.figures.ratios import ratios
from loop.report.figures.roofline import roof_of, roofline
from loop.report.figures.svg import Figure
from loop.report.findings import Correctness, correctness, reasons, speed_verdicts, speeds
from loop.report.markdown import Chapter, Table, columns, filled
from loop.report.plain import shortened
from loop.report.templates import environment, fitted
from loop.session import course, first_screen
from loop.session.course import Recalled
from loop.session.grading import RULE
from loop.session.objective import objective
from loop.timing.section import how_called, sensor_lines

RECENT = 5
"""Earlier sessions that are shown."""


def earlier(record: SessionRecord, before: Iterable[SessionRecord]) -> Table | None:
    """Earlier sessions of this target and device, newest first: ratios only, on the workloads in common."""
    heads = columns(
        "Session", "Sources", "Machine", "Variant", ">Workloads in common", ">Ratio then", ">Ratio now"
    )
    head = record.head
    mine = [
        one
        for one in before
        if (one.head.target, one.head.device) == (head.target, head.device) and one.head.id != head.id
    ]
    mine.sort(key=lambda one: one.head.started)
    rows = tuple(row for one in reversed(mine[-RECENT:]) for row in _earlier_rows(record, one))
    return filled(heads, rows)


def _earlier_rows(now: SessionRecord, then: SessionRecord) -> Iterator[tuple[str, ...]]:
    sources = (then.head.revision.commit or "unknown")[:12] + (" + changes" if then.head.revision.dirty else "")
    machine = "this one" if _place(now.head) == _place(then.head) else "another"
    for variant in dict.fromkeys((*now.head.variants, *then.head.variants)):
        if variant in then.head.variants:
            figures = _in_common(_ratios(now, variant), _ratios(then, variant))
            yield then.head.id, sources, machine, variant, *figures


def _in_common(now: dict[str, SpeedVerdict], then: dict[str, SpeedVerdict]) -> tuple[str, str, str]:
    common = [name for name in then if name in now]
    if not common:
        return "0", _alone(then), _alone(now)
    first, second = (_mean([side[name] for name in common]) for side in (then, now))
    return str(len(common)), first, second


def _mean(judged: Sequence[SpeedVerdict]) -> str:
    """A mean of noise is noise: where an interval says nothing there is none."""
    return (
        "disturbed" if any(one.vague for one in judged) else say.times(geometric_mean([v.ratio for v in judged]))
    )


def _alone(judged: dict[str, SpeedVerdict]) -> str:
    """A mean that has nothing to stand beside."""
    return f"{_mean([*judged.values()])} over {len(judged)}" if judged else "no speed"


def _ratios(record: SessionRecord, variant: str) -> dict[str, SpeedVerdict]:
    judged: list[SpeedVerdict] = speed_verdicts(record.verdicts)
    return {one.workload: one for one in judged if one.variant == variant}


def _place(head: SessionHead) -> tuple[object, ...]:
    machine = head.machine
    return machine.name, machine.processor, machine.cores, machine.gpus, head.threads


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
    recalled: Recalled = lambda record: ()
    """What earlier sessions tell of a failed step."""
    calibration: str = ""
    """How earlier predictions held."""
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
    return {
        "ratios": ratios(record.verdicts, record.head.baseline),
        "roofline": roofline(_profiles(finished), record.head.baseline),
    }


def _jobs(finished: Sequence[Finished]) -> Shown:
    """Groups of devices that ran jobs."""
    ran = jobs_of(finished)
    counted = ((name, len({one.uuid for one in some}), len(some)) for name, some in groups(ran).items())
    lines = [f"{name}: {say.count(many, 'device')}, {say.count(jobs, 'job')}" for name, many, jobs in counted]
    return {"lines": lines}


def _head(given: ReportInput) -> Shown:
    """What the session was, and how it went."""
    record, finished, head = given.record, given.finished, given.record.head
    return {
        "title": f"{head.target}: session {head.id} {record.status}",
        "first": first_screen.first_screen(record, finished),
        "objective": objective(record, finished),
        "baseline": head.baseline,
        "device": course.device(head),
        "steps": course.steps(finished),
        "answers": tuple(course.answers(finished, head.plan)),
        "own": say.seconds(record.own_seconds),
        "troubles": course.troubles(finished, given.recalled),
        "environment": course.environment(head, finished),
    }


def _findings(given: ReportInput) -> Shown:
    """What its steps found."""
    record, finished = given.record, given.finished
    found, chapters = correctness(finished), tuple(_chapters(finished))
    return {
        "correctness": found,
        "no_check": "Only changes were verified" if verified(finished) else "Nothing was verified",
        "speeds": speeds(record, finished, roof_of(_profiles(finished))),
        "speed_reasons": reasons(record.verdicts),
        "called": tuple(line for output in outputs_of(finished, MeasureOutput) for line in how_called(output)),
        "sensors": sensor_lines(finished, record.head.baseline),
        "no_speed": _no_speed(finished, found),
        "trust": trust(finished, record.verdicts),
        "jobs": _jobs(finished),
        "bottleneck": bottleneck(finished),
        "chapters": [one for one in chapters if not one.modelled],
        "modelled": [one for one in chapters if one.modelled],
        "searches": searches(finished),
        "changes": changes(finished),
        "decisions": decisions(finished),
    }


def _profiles(finished: Sequence[Finished]) -> list[Profile]:
    return [one for output in outputs_of(finished, ProfileOutput) for one in output.profiles]


def _account(given: ReportInput) -> Shown:
    """What it cost, what is known by now, and what comes next."""
    record, finished = given.record, given.finished
    return {
        "predicted": predicted(record, finished),
        "calibration": given.calibration,
        "money": money(record.bill, record.seconds),
        "earlier": earlier(record, given.earlier),
        "not_exercised": first_screen.not_exercised(record, finished),
        "learnings": record.learnings,
        "grade": shortened(record.grade, LONGEST_GRADE),
        "grade_reason": record.grade_reason,
        "rule": RULE,
        "again": _again(record, finished) | {"recipe": given.replayed},
    }


def _no_speed(finished: Sequence[Finished], found: Correctness) -> str:
    """That nothing was timed, and why; or that only changes were."""
    measured = any(record.action == "kernel.measure" for record in finished)
    if timed(finished) and not measured:
        return "Only changes were timed"
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


def _chapters(finished: Sequence[Finished]) -> Iterator[Chapter]:
    """What actions add to the report by themselves, in the order of the steps."""
    for record in latest_attempts(finished):
        action = ACTIONS.get(record.action)
        if action is not None and action.chapter is not None:
            output = read_output(record, action.output)
            chapter = action.chapter(output) if output else None
            if chapter is not None:
                yield chapter


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
