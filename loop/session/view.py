"""Records to a plain view: everything a template shows, formatted, nothing decided in the template."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loop.bisect.section import Search, searches
from loop.debug.section import Diagnosis, diagnoses
from loop.learning.prediction_section import predicted
from loop.model.grade import RULE
from loop.model.history import History
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, Line, SessionRecord, latest_attempts
from loop.money import account
from loop.money.decisions_section import Decisions, decisions
from loop.optimize.section import Changes, changes, spared, timed, verified
from loop.profile.resources_section import Outlook, outlooks
from loop.profile.section import Bottleneck, bottleneck
from loop.proving.section import Trust, trust
from loop.report import format as say
from loop.report.findings import Correctness, Rounds, VariantSpeed, correctness, reasons, speeds
from loop.report.markdown import Markdown, Table
from loop.report.plain import shortened
from loop.session import course
from loop.session.chain import chain, mermaid
from loop.session.course import Recalled, Trouble
from loop.session.headline import headline
from loop.session.pictures import Pictures, pictures
from loop.timing.section import how_called, sensor_lines

LONGEST_GRADE = 20
"""Letters of a grade; loop gives one."""


@dataclass(frozen=True)
class Money:
    """Cost, saving and what came of it."""

    total: str
    charges: Table | None
    unmeasured: tuple[str, ...]
    savings: Table | None
    returns: tuple[str, ...]
    tokens: Table | None
    """What AI read and wrote, model by model."""
    notes: tuple[str, ...]
    """What a reader has to know of these figures."""
    gains: tuple[str, ...]
    """What the cost comes to for what it brought."""


@dataclass(frozen=True)
class Samples:
    """Files in which the raw material of a step is."""

    step: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Next:
    """What to do next."""

    text: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Again:
    """How the numbers are had again."""

    session: str
    report: str
    rows: str
    """The command that prints all samples."""
    resume: str | None
    """Only for a session that has not ended."""
    samples: tuple[Samples, ...]


@dataclass(frozen=True)
class View:
    """One session, ready to be shown. Text is plain unless it says Markdown."""

    id: str
    headline: Markdown
    diagnoses: tuple[Diagnosis, ...]
    """What is wrong with each variant that was looked into."""
    objective: str
    target: str
    variants: str
    emulated: str
    """Variants made for a GPU that ran under the emulator; empty where there are none."""
    baseline: str
    device: str
    started: str
    took: str
    steps: Table | None
    pictures: Pictures
    chain: tuple[str, ...]
    """Lines of a Mermaid flowchart; none where nothing was begun."""
    troubles: tuple[Trouble, ...]
    environment: tuple[tuple[str, str], ...]
    correctness: Correctness
    no_check: str
    """What is said where no variant was verified."""
    speeds: tuple[VariantSpeed, ...]
    speed_reasons: tuple[str, ...]
    called: tuple[str, ...]
    """How each side was called, and what a call takes that does nothing."""
    sensors: tuple[str, ...]
    """What the GPU's sensors said while each side was timed."""
    no_speed: str
    """Why there is no speed, where there is none, in a sentence."""
    trust: Trust
    bottleneck: Bottleneck
    outlooks: tuple[Outlook, ...]
    searches: tuple[Search, ...]
    """For the commit of a regression."""
    changes: Changes
    decisions: Decisions
    patterns: Table | None
    predicted: Table | None
    """What was expected beside what came; None where nothing was."""
    calibration: str
    """How earlier predictions held; empty where none was made."""
    money: Money
    earlier: Table | None
    recorded: tuple[str, ...]
    not_exercised: tuple[str, ...]
    learnings: tuple[str, ...]
    grade: str
    grade_reason: str
    rule: tuple[tuple[str, str], ...]
    next: Next
    again: Again


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


def view(given: ReportInput) -> View:
    """Everything the report of a session shows."""
    record, finished = given.record, given.finished
    head = record.head
    found = correctness(finished)
    return View(
        id=head.id,
        headline=headline(record, finished),
        diagnoses=diagnoses(head, finished),
        objective=head.plan.plan.title,
        target=head.target,
        variants=", ".join(head.variants) or "none",
        emulated=", ".join(head.emulated),
        baseline=head.baseline,
        device=course.device(head),
        started=say.day(head.started),
        took=_took(record),
        steps=course.steps(finished),
        pictures=pictures(record, finished, given.journal),
        chain=mermaid(chain(finished, head.plan)),
        troubles=course.troubles(finished, given.recalled),
        environment=course.environment(head, finished),
        correctness=found,
        no_check="Only changes were verified: see Changes" if verified(finished) else "Nothing was verified",
        speeds=speeds(record, finished, given.rounds),
        speed_reasons=reasons(record.verdicts),
        called=tuple(line for output in outputs_of(finished, MeasureOutput) for line in how_called(output)),
        sensors=sensor_lines(finished, head.baseline),
        no_speed=_no_speed(finished, found),
        trust=trust(finished, record.verdicts),
        bottleneck=bottleneck(finished),
        outlooks=outlooks(finished),
        searches=searches(finished),
        changes=changes(finished),
        decisions=decisions(finished),
        patterns=course.patterns(finished, head.plan),
        predicted=predicted(record, finished),
        calibration=given.calibration,
        money=_money(record),
        earlier=account.earlier(record, given.earlier),
        recorded=account.recorded(given.histories) if head.target_folder == "bundled" else (),
        not_exercised=tuple(dict.fromkeys((*record.not_exercised, *_skipped(finished)))),
        learnings=record.learnings,
        grade=shortened(record.grade, LONGEST_GRADE),
        grade_reason=record.grade_reason,
        rule=RULE,
        next=_next(record.proposal),
        again=_again(record, finished),
    )


def _took(record: SessionRecord) -> str:
    planned = say.seconds(record.head.plan.plan.budget.minutes * 60)
    own = say.seconds(record.own_seconds)
    return f"{say.seconds(record.seconds)} of {planned} planned, {own} of it spent by loop between the steps"


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
            return course.skip_reason(record) if record.status == "skipped" else record.message.rstrip(".")
    return (
        "no step of this session measured speed" if found.table else "nothing was verified, so nothing was timed"
    )


def _skipped(finished: Sequence[Finished]) -> Iterator[str]:
    """Steps that were not run; those of the gate for changes only where a change came so far."""
    for record in latest_attempts(finished):
        if record.status == "skipped" and not spared(record, finished):
            yield f"step {course.name_of(record)} was skipped: {course.skip_reason(record)}"


def _money(record: SessionRecord) -> Money:
    bill = record.bill
    return Money(
        total=say.usd(bill.usd),
        charges=account.charges(bill),
        unmeasured=account.unmeasured(bill),
        savings=account.savings(bill),
        returns=account.returns(bill),
        tokens=account.tokens(bill),
        notes=account.notes(bill),
        gains=account.gains(bill),
    )


def _next(proposal: str) -> Next:
    """A proposal is a sentence, then commands of loop's own, a line each; nothing else is offered to be pasted."""
    lines = proposal.splitlines()
    commands = tuple(line for line in lines[1:] if line.startswith("loop "))
    return Next(" ".join(line for line in lines if line not in commands), commands)


def _again(record: SessionRecord, finished: Sequence[Finished]) -> Again:
    head = record.head
    samples = [Samples(course.name_of(one), one.artifacts) for one in latest_attempts(finished) if one.artifacts]
    return Again(
        session=head.command(),
        report=head.report_command,
        rows=f"{head.report_command} --format csv",
        resume=head.resume_command if record.status in ("aborted", "paused") else None,
        samples=tuple(samples),
    )
