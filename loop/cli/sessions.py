"""`loop status`, `plan next`, `sessions`: what runs, waits and is next; earlier sessions."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.locks import is_locked
from loop.learning.comparison import LETTERS, ComparedSession, SessionComparison, compare
from loop.library.definitions import find_project
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.change import DecisionOutput, hosts_of
from loop.model.index import SessionRow
from loop.model.measurement import Verdict
from loop.model.money import RateCard
from loop.model.output import outputs_of
from loop.model.record import RESUMABLE, latest_attempts
from loop.report import format as say
from loop.report.screen import Screen
from loop.report.sections import Section, print_sections
from loop.session import closing, recorded
from loop.session.drive import charges_so_far
from loop.session.next_session import NextSession, propose_next
from loop.steps.setting import read_setting
from loop.store import sessions
from loop.store.journal import finished_steps, open_step

MOST_WAITING = 10  # Most waiting sessions that are listed, newest first.
MOST_SESSIONS = len(LETTERS)


@dataclass(frozen=True)
class Running:
    """A running session, read from its journal while another process writes to that."""

    id: str
    plan: str
    step: str  # `pattern/step`; empty between two steps.
    title: str
    since: datetime.datetime | None  # When the step began, UTC; None between two steps.
    step_s: float
    step_budget_s: float
    done: int
    of: int  # Number of steps in the plan, of which `done` have ended.
    seconds: float
    budget_s: float
    usd: float  # The session's cost so far; AI is added only at the session's end.

    @classmethod
    def read(cls, folder: sessions.SessionFolder, card: RateCard, now: datetime.datetime) -> Self:
        """The present state of a running session. `card`: prices."""
        head, lines = folder.head(), folder.lines()
        step, plan, finished = open_step(lines), head.plan, finished_steps(lines)
        last_line_at = lines[-1].at if lines else None  # Of an open step: when it began.
        since_s = (now - last_line_at).total_seconds() if last_line_at else 0.0
        seconds = sessions.running_seconds(lines) + max(0.0, since_s)
        return cls(
            id=head.id,
            plan=plan.plan.name,
            step=step.label if step else "",
            title=step.title if step else "",
            since=last_line_at if step else None,
            step_s=since_s if step else 0.0,
            step_budget_s=step.budget_s if step else 0.0,
            done=len(latest_attempts(finished)),
            of=sum(len(plan.find_pattern(name).pattern.steps) for name in plan.plan.patterns),
            seconds=seconds,
            budget_s=plan.plan.budget.minutes * 60,
            usd=charges_so_far(seconds, card, head, hosts=hosts_of(finished)).usd,
        )


@dataclass(frozen=True)
class WaitingSession:
    """A session that can be resumed."""

    id: str
    status: str  # `paused`, `aborted`, or `open`: its process was killed.
    why: str
    command: str
    usd: float

    @classmethod
    def read(cls, row: SessionRow, root: Path, card: RateCard) -> Self:
        """Why a session in the folder `root` waits, and its cost; an unreadable file says why."""
        folder, status = sessions.SessionFolder(root / row.id), row.status or "open"
        try:
            head, record, lines = folder.head(), folder.record(), folder.lines()
        except LoopError as error:
            return cls(row.id, status, error.message, "loop sessions list", row.usd)
        step, finished = open_step(lines), finished_steps(lines)
        if record is not None:
            why, usd = record.reason, record.bill.usd
        else:
            why = f"it ended without a word{f' in {step.label}' if step else ''}"
            seconds = sessions.running_seconds(lines)
            usd = charges_so_far(seconds, card, head, hosts=hosts_of(finished)).usd
        request = closing.pending_user_task(finished)
        if request and head.resume_command not in request:  # The resume command is printed anyway.
            why = f"{why}; {request}"
        return cls(row.id, status, why, head.resume_command, usd)


class Status(Printed):
    """What `loop status --json` prints."""

    schema_version: Literal[6] = 6
    target: str
    """The target's name; its folder if its definition is unreadable."""
    at: datetime.datetime
    running: tuple[Running, ...]
    waiting: tuple[WaitingSession, ...]
    """Sessions that can be resumed, the newest `MOST_WAITING`, newest first."""
    left: tuple[str, ...]
    """What is wrong with session folders, and where they are."""
    sessions: int
    usd: float
    """Cost of all sessions, including running ones."""
    last: str
    milestone: NextSession | None
    no_milestone: str = ""

    def show(self, screen: Screen) -> None:
        """Print sessions, wrong or unjudged variants, problems, money, and the next session."""
        sections = []
        for running in self.running:
            place = f", at {running.step}" if running.step else ""
            progress = f"{running.done} of {say.count(running.of, 'step')}"
            lines = [f"{progress}; {say.billed_usd(running.usd)} so far"]
            lines.append(_time_of_budget(running.seconds, running.budget_s))
            if running.since is not None:
                step_time = _time_of_budget(running.step_s, running.step_budget_s)
                lines = [running.title, f"since {say.day(running.since)}: {step_time}", *lines]
            sections.append(Section(f"{running.id} runs{place}", tuple(lines)))
        for waiting in self.waiting:
            reason_and_command = (f"{waiting.status}: {waiting.why}", f"go on: {waiting.command}")
            sections.append(Section(f"{waiting.id} waits", reason_and_command))
        if not sections:
            sections = [Section("Nothing runs, nothing waits", (f"as of {say.day(self.at)}",))]
        proposal = Section("Next", (self.no_milestone,))
        if self.milestone is not None:
            correctness, proposal = self.milestone.sections
            sections.append(correctness)
        sections.append(Section("To look at", self.left))
        count = say.count(self.sessions, "session")
        cost = f"{count}, {say.usd(self.usd)} in all; the last: {self.last}"
        sections += [Section("Money", (cost,)), proposal]
        print_sections(sections, screen)


def next_session(target: Path | None) -> NextSession:
    """The proposed next session of a project, with further ideas."""
    return propose_next(read_setting(target), ["--target", str(target)] if target else [])


def gather_status(target: Path | None, now: datetime.datetime | None = None) -> Status:
    """The status of a project; a mistake in a definition is in `no_milestone`. `now`: for tests."""
    now = now or datetime.datetime.now(datetime.UTC)
    here = find_project(target, Path.cwd())
    card = rates(here)
    root = here.sessions
    entries = sessions.entries(root)
    rows = [entry.row for entry in entries if entry.row is not None and not entry.row.recorded]
    unfinished = [row for row in rows if row.status in (None, *RESUMABLE)]
    running_ids = {row.id for row in unfinished if is_locked(root / row.id / sessions.LOCK)}
    folders = [sessions.SessionFolder(root / name) for name in sorted(running_ids)]
    running = [Running.read(folder, card, now) for folder in folders]
    waiting = [row for row in unfinished if row.id not in running_ids][-MOST_WAITING:]
    name, milestone, no_milestone = str(here.target), None, ""
    try:
        name = read_setting(target).target.name
        milestone = next_session(target)
    except LoopError as error:
        no_milestone = error.message
    return Status(
        target=name,
        at=now,
        running=tuple(running),
        waiting=tuple(WaitingSession.read(row, root, card) for row in reversed(waiting)),
        left=tuple(entry.problem for entry in entries if entry.problem)[: sessions.MAX_NAMED],
        sessions=len(rows),
        usd=sum(row.usd for row in rows) + sum(session.usd for session in running),
        last=rows[-1].id if rows else "none",
        milestone=milestone,
        no_milestone=no_milestone,
    )


def _time_of_budget(seconds: float, budget_s: float) -> str:
    """A duration against its budget in words: `90 s of 60 s, 1.5 times its budget`."""
    is_over = bool(budget_s) and seconds > budget_s
    excess = f", {seconds / budget_s:.1f} times its budget" if is_over else ""
    return f"{say.seconds(seconds)} of {say.seconds(budget_s)}{excess}"


class SessionLine(Model):
    """One row of the list; None: not known, or not yet."""

    id: str
    target: str | None = None
    plan: str | None = None
    device: str | None = None
    status: str
    grade: str | None = None
    seconds: float | None = None
    usd: float | None = None
    fastest: str | None = None
    reason: str = ""
    """What is wrong with the folder; empty: nothing."""

    @classmethod
    def from_entry(cls, entry: sessions.IndexEntry, root: Path) -> "SessionLine":
        """The row of a session. `root`: the folder of all sessions."""
        row, results = entry.row, dict[str, Any]()
        if row is None:
            return cls(id=entry.folder, status="damaged", reason=entry.problem)
        if row.status is not None or row.recorded:
            # The report of an imported session may state no cost.
            usd = row.usd if row.charges or not row.recorded else None
            results = {"grade": row.grade or None, "seconds": row.seconds, "usd": usd}
            if row.fastest:
                ratio, variant = row.fastest
                results["fastest"] = f"{variant} {say.speedup_text(ratio)}"
        facts = {"target": row.target, "plan": row.plan, "device": row.device}
        is_running = row.status is None and is_locked(root / entry.folder / sessions.LOCK)
        status = "recorded" if row.recorded else row.status or ("running" if is_running else "open")
        return cls(id=entry.folder, status=status, reason=entry.problem, **facts, **results)


class SessionList(Printed):
    """What `loop sessions list --json` prints, oldest session first."""

    sessions: tuple[SessionLine, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row per session, then the damaged folders."""
        if not self.sessions:
            screen.say("no sessions yet; `loop run session` makes one")
            return
        rows = []
        for row in self.sessions:
            duration = "-" if row.seconds is None else say.seconds(row.seconds)
            rows.append((row.id, row.status, row.grade or "-", duration, row.fastest or "-"))
        screen.table(("session", "status", "", "took", "fastest"), rows)
        for row in self.sessions:
            if row.reason:
                screen.say(f"{row.id}: {row.reason}")


def list_sessions(target: Path | None) -> SessionList:
    """All sessions of a project, oldest first; open and damaged ones without results."""
    root = find_project(target, Path.cwd()).sessions
    lines = tuple(SessionLine.from_entry(entry, root) for entry in sessions.entries(root))
    return SessionList(sessions=lines)


def show_session(name: str, target: Path | None) -> recorded.ShownSession | recorded.ShownRecorded:
    """The facts and steps of a session by its id, prefix or `last`."""
    root = find_project(target, Path.cwd()).sessions
    imported = recorded.find_recorded(root, name)
    if imported is not None:
        return recorded.ShownRecorded(recorded=imported)
    folder = sessions.find_session(root, name)
    head, record = folder.head(), folder.record()
    return recorded.ShownSession(head=head, record=record, steps=folder.finished())


def compare_sessions(names: Sequence[str], target: Path | None) -> SessionComparison:
    """A comparison of 2 to `MOST_SESSIONS` sessions, all different, in order. Raises UsageError."""
    root = find_project(target, Path.cwd()).sessions
    if not 2 <= len(names) <= MOST_SESSIONS:
        hint = "loop sessions compare last~1 last"
        raise UsageError(f"{len(names)} sessions named: expected 2 to {MOST_SESSIONS}", hint=hint)
    compared = list[ComparedSession]()
    for name in names:
        folder = sessions.find_session(root, name)
        row, problem = sessions.compute_row(folder.path)
        if row is None:
            raise WorkFailed(problem, hint=f"move {folder.path} aside")
        head, record = folder.head(), folder.record()
        verdicts: dict[str, dict[str, Verdict]] = {}
        for verdict in record.verdicts if record else ():
            if verdict.against == "baseline":  # A wrong variant has only this verdict.
                verdicts.setdefault(verdict.variant, {})[verdict.workload] = verdict
        commit = head.revision.commit and head.revision.commit[:12]
        changed_files = list[str]()
        for decision in outputs_of(folder.finished(), DecisionOutput):
            if decision.kept and decision.tried:
                changed_files += decision.tried.files
        facts = {"machine": head.machine.name, "threads": str(head.threads)}
        facts |= row.environment.model_dump()
        session = ComparedSession(
            id=row.id,
            target=row.target,
            device=row.device,
            status=row.status or "open",
            grade=row.grade,
            baseline=head.baseline,
            facts={**facts, "loop": head.loop_version, "commit": commit},
            files=head.files | dict.fromkeys(changed_files, row.left),
            ground=row.left or row.ground,
            verdicts=verdicts,
            seconds=row.seconds if record else None,
            usd=row.usd if record else None,
            kept=row.kept,
        )
        compared.append(session)
    ids = [session.id for session in compared]
    if len(set(ids)) < len(ids):
        message = f"a session is named twice: {', '.join(ids)}"
        raise UsageError(message, hint="`loop sessions list` names the others")
    return compare(compared)
